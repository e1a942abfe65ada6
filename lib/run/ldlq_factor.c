/*
 * ldlq_factor.c - a job over square tiles of a Hessian. With its columns in reverse the matrix M of
 * ldlq_factor.h is the lower triangular one of Cholesky's decomposition, which is made in place,
 * column of tiles by column of tiles: the tiles that one needs are before it in the order in which
 * workers claim them, so they wait for each other but never in a circle.
 */
#include "ldlq_factor.h"

#include "job.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows and columns of a tile: two of them stay in a first-level cache, or nearly. */
#define TILE       64
#define TILE_ELEMS ((size_t)TILE * TILE)

/* How often the damp grows before a Hessian is given up. */
#define MOST_TRIES 12

/* Numbers on both sides of a diagonal may differ by this share of the diagonal: sums of products
 * that were made in another order. */
#define UNEQUAL 0x1p-10

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_ldlq_factor *factor;
    const struct qp_product_kernels *kernels;
    double *tiles;   /* of all blocks: of the lower triangle, column by column in each */
    bool *done;      /* by tile */
    uint64_t n_side; /* tiles along the side of a block */
    uint64_t n_tiles, n_done, n_units;
    uint64_t next;
};

static uint64_t sum_to(uint64_t n)
{
    return n * (n + 1) / 2;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* All but the tiles: panels, and the order. False if that overflows. */
static bool factor_bytes(const struct qp_hessian *h, uint64_t *out)
{
    const uint64_t n_panels = qp_div_up(h->block, QP_PANEL), n_blocks = h->columns / h->block;
    uint64_t floats, order;
    if (n_panels > UINT32_MAX || h->columns >= UINT32_MAX)
        return false;
    return qp_mul_u64(sum_to(n_panels), QP_PANEL * QP_PANEL * sizeof(float), &floats) &&
           qp_mul_u64(floats, n_blocks, &floats) &&
           qp_mul_u64(n_blocks, n_panels * QP_PANEL * sizeof(uint32_t), &order) &&
           qp_add_u64(floats, order, out);
}

static bool tile_bytes(const struct qp_hessian *h, uint64_t *out)
{
    const uint64_t n_side = qp_div_up(h->block, TILE);
    uint64_t tiles;
    return n_side <= UINT32_MAX && qp_mul_u64(sum_to(n_side), h->columns / h->block, &tiles) &&
           qp_mul_u64(tiles, TILE_ELEMS * sizeof(double) + sizeof(bool), out);
}

uint64_t qp_ldlq_factor_bytes(const struct qp_hessian *h)
{
    uint64_t n;
    return factor_bytes(h, &n) ? n : UINT64_MAX;
}

uint64_t qp_ldlq_peak_bytes(const struct qp_hessian *h)
{
    uint64_t factor, tiles, sum;
    /* While it is read there are the diagonal and a row, too. */
    const uint64_t rows = (h->columns + h->block) * sizeof(float);
    if (!factor_bytes(h, &factor) || !tile_bytes(h, &tiles) || !qp_add_u64(factor, tiles, &sum) ||
        !qp_add_u64(sum, rows, &sum))
        return UINT64_MAX;
    return sum;
}

/* ---- Order -------------------------------------------------------------------------------------
 */

struct weight {
    float h;
    uint32_t column;
};

static int by_weight(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->h != y->h)
        return x->h > y->h ? -1 : 1;
    return x->column < y->column ? -1 : 1;
}

static enum qplan_status find_order(struct qp_ldlq_factor *f, const float *diagonal,
                                    struct qplan_error *err)
{
    struct weight *weights = qp_alloc(f->block, sizeof *weights);
    if (!weights)
        return qp_fail_memory(err, "Hessian", f->block * sizeof *weights);
    for (uint64_t b = 0; b < f->n_blocks; b++) {
        uint32_t *order = f->order + b * f->places;
        for (uint64_t i = 0; i < f->block; i++)
            weights[i] = (struct weight){diagonal[b * f->block + i], (uint32_t)(b * f->block + i)};
        qsort(weights, f->block, sizeof *weights, by_weight);
        for (uint64_t i = 0; i < f->places; i++)
            order[i] = i < f->block ? weights[i].column : UINT32_MAX;
    }
    qp_free(weights);
    return QPLAN_OK;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* The tile in this row and column of tiles of a block. */
static size_t tile_at(const struct engine *e, uint64_t block, uint64_t row, uint64_t col)
{
    return (size_t)(block * sum_to(e->n_side) + sum_to(row) + col);
}

/* An element of the lower triangle, in the reverse of the order. */
static double *element(const struct engine *e, uint64_t block, uint64_t row, uint64_t col)
{
    return e->tiles + tile_at(e, block, row / TILE, col / TILE) * TILE_ELEMS + col % TILE * TILE +
           row % TILE;
}

/* What is read, besides the tiles that it goes to. */
struct reading {
    const struct qp_hessian *hessian;
    const float *diagonal;
    double added; /* to the diagonal */
    float *row;
};

/* Row i of a block, in the reverse of the order: its column downwards is taken, what is left of the
 * diagonal was there before. */
static enum qplan_status take_row(const struct engine *e, const struct reading *r, uint64_t block,
                                  uint64_t i, struct qplan_error *err)
{
    const struct qp_ldlq_factor *f = e->factor;
    const uint64_t n = f->block, first = block * n;
    const uint32_t *order = f->order + block * f->places;
    const uint64_t here = order[n - 1 - i] - first;
    QP_TRY(qp_hessian_row(r->hessian, first + here, r->row, err));
    for (uint64_t k = 0; k < i; k++) {
        const uint64_t other = order[n - 1 - k] - first;
        const double there = *element(e, block, i, k), found = (double)r->row[other];
        const double h = (double)r->diagonal[first + here] * (double)r->diagonal[first + other];
        if (!(fabs(there - found) <= UNEQUAL * sqrt(h)))
            return qp_hessian_unequal(r->hessian, block, here, other, there, found, err);
    }
    for (uint64_t k = i; k < n; k++)
        *element(e, block, k, i) = (double)r->row[order[n - 1 - k] - first];
    *element(e, block, i, i) += r->added;
    return QPLAN_OK;
}

/* Places behind the last column are those of an identity. */
static void fill_up(const struct engine *e, uint64_t block, uint64_t from)
{
    for (uint64_t i = from; i < e->n_side * TILE; i++)
        *element(e, block, i, i) = 1;
}

static double mean_of(const float *diagonal, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)diagonal[i];
    return sum / (double)n;
}

/* Inputs that were never other than 0 say nothing: any factor will do. */
static enum qplan_status read_tiles(const struct engine *e, const struct reading *r,
                                    struct qplan_error *err)
{
    const struct qp_ldlq_factor *f = e->factor;
    memset(e->tiles, 0, (size_t)e->n_tiles * TILE_ELEMS * sizeof *e->tiles);
    for (uint64_t b = 0; b < f->n_blocks; b++) {
        const uint64_t n = r->added > 0 ? f->block : 0;
        for (uint64_t i = 0; i < n; i++)
            QP_TRY(take_row(e, r, b, i, err));
        fill_up(e, b, n);
    }
    return QPLAN_OK;
}

/* ---- The decomposition -------------------------------------------------------------------------
 */

/* What a unit is: a tile, or panels of a block when its tiles are done. */
struct place {
    uint64_t block, row, col;
};

static double *tile_of(const struct engine *e, uint64_t block, uint64_t row, uint64_t col)
{
    return e->tiles + tile_at(e, block, row, col) * TILE_ELEMS;
}

/* Waits for a tile; false if the job stops. */
static bool wait_for(struct engine *e, size_t tile)
{
    (void)pthread_mutex_lock(&e->job.lock);
    while (!e->done[tile] && !qp_job_stopping(&e->job))
        (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    const bool is_done = e->done[tile];
    (void)pthread_mutex_unlock(&e->job.lock);
    return is_done;
}

/* Waits for all tiles; false if the job stops. */
static bool wait_for_all(struct engine *e)
{
    (void)pthread_mutex_lock(&e->job.lock);
    while (e->n_done < e->n_tiles && !qp_job_stopping(&e->job))
        (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    const bool is_done = e->n_done == e->n_tiles;
    (void)pthread_mutex_unlock(&e->job.lock);
    return is_done;
}

static void set_done(struct engine *e, size_t tile)
{
    (void)pthread_mutex_lock(&e->job.lock);
    e->done[tile] = true;
    e->n_done++;
    (void)pthread_cond_broadcast(&e->job.changed);
    (void)pthread_mutex_unlock(&e->job.lock);
}

/* A column of a tile, of whose terms those before the panel are done. */
static void finish_column(double *tile, const double *diagonal, size_t first, size_t col)
{
    double *x = tile + col * TILE;
    for (size_t t = first; t < col; t++) {
        const double *y = tile + t * TILE, factor = diagonal[t * TILE + col];
        for (size_t i = 0; i < TILE; i++)
            x[i] -= y[i] * factor;
    }
}

static void divide_column(double *x, double pivot)
{
    for (size_t i = 0; i < TILE; i++)
        x[i] /= pivot;
}

/* Solves a tile by the one on the diagonal, which may be itself; false if a pivot is not above 0.
 */
static bool solve(const struct engine *e, double *tile, double *diagonal)
{
    for (size_t first = 0; first < TILE; first += QP_PANEL) {
        e->kernels->subtract_f64(first, TILE, TILE, tile, diagonal + first, TILE,
                                 tile + first * TILE);
        for (size_t col = first; col < first + QP_PANEL; col++) {
            finish_column(tile, diagonal, first, col);
            const double pivot = diagonal[col * TILE + col];
            if (tile != diagonal) {
                divide_column(tile + col * TILE, pivot);
                continue;
            }
            if (!(pivot > 0) || isinf(pivot))
                return false;
            divide_column(tile + col * TILE, sqrt(pivot));
        }
    }
    return true;
}

static void subtract_tiles(const struct engine *e, double *tile, const double *a, const double *b)
{
    for (size_t col = 0; col < TILE; col += QP_PANEL)
        e->kernels->subtract_f64(TILE, TILE, TILE, a, b + col, TILE, tile + col * TILE);
}

/* False if a pivot is not above 0. */
static bool make_tile(struct engine *e, const struct place *at)
{
    double *tile = tile_of(e, at->block, at->row, at->col);
    for (uint64_t k = 0; k < at->col; k++) {
        if (!wait_for(e, tile_at(e, at->block, at->row, k)) ||
            !wait_for(e, tile_at(e, at->block, at->col, k)))
            return true;
        subtract_tiles(e, tile, tile_of(e, at->block, at->row, k),
                       tile_of(e, at->block, at->col, k));
    }
    if (at->row != at->col && !wait_for(e, tile_at(e, at->block, at->col, at->col)))
        return true;
    if (!solve(e, tile, tile_of(e, at->block, at->col, at->col)))
        return false;
    set_done(e, tile_at(e, at->block, at->row, at->col));
    return true;
}

/* The panel with the places from QP_PANEL * i on. */
static void make_panel(const struct engine *e, uint64_t block, uint64_t i)
{
    const struct qp_ldlq_factor *f = e->factor;
    float *to = f->panels + (qp_ldlq_panel(f, block, i) - f->panels);
    const uint64_t n = f->block, first = QP_PANEL * i;
    memset(to, 0, (size_t)(first + QP_PANEL) * QP_PANEL * sizeof *to);
    for (uint64_t k = first; k < first + QP_PANEL && k < n; k++) {
        const double pivot = *element(e, block, n - 1 - k, n - 1 - k);
        for (uint64_t j = 0; j < k; j++)
            to[j * QP_PANEL + k - first] =
                (float)(*element(e, block, n - 1 - j, n - 1 - k) / pivot);
    }
}

/* ---- The job -----------------------------------------------------------------------------------
 */

static void carve(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                  void *buffers)
{
    (void)carve;
    (void)tile_bytes;
    (void)job;
    (void)buffers;
}

/* Tiles column by column, one block behind the other. */
static struct place place_of(const struct engine *e, uint64_t unit)
{
    const uint64_t each = sum_to(e->n_side);
    struct place at = {.block = unit / each};
    uint64_t left = unit % each;
    while (left >= e->n_side - at.col)
        left -= e->n_side - at.col++;
    at.row = at.col + left;
    return at;
}

static bool do_unit(struct engine *e, uint64_t unit)
{
    const uint64_t n_panels = e->factor->places / QP_PANEL;
    if (unit < e->n_tiles) {
        const struct place at = place_of(e, unit);
        return make_tile(e, &at);
    }
    unit -= e->n_tiles;
    if (wait_for_all(e))
        make_panel(e, unit / n_panels, n_panels - 1 - unit % n_panels); /* the longest first */
    return true;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    (void)buffers;
    (void)pthread_mutex_lock(&job->lock);
    const bool found = e->next < e->n_units && !qp_job_stopping(job);
    const uint64_t unit = found ? e->next++ : 0;
    (void)pthread_mutex_unlock(&job->lock);
    if (found && !do_unit(e, unit)) {
        qp_fail(err, QPLAN_ERR_VALUE, "Hessian", "a pivot is not above 0");
        qp_job_fail(job, unit, err);
    }
    return found;
}

/* VALUE if a pivot is not above 0. */
static enum qplan_status decompose(struct engine *e, const struct qplan_run *run,
                                   struct qplan_error *err)
{
    static const struct qp_job_ops ops = {
        .buffers_size = sizeof(uint64_t), .carve = carve, .step = step};
    struct qplan_run on_cpu = {.threads = run ? run->threads : 0,
                               .isa = run ? run->isa : 0,
                               .cancel = run ? run->cancel : 0};
    memset(e->done, 0, (size_t)e->n_tiles * sizeof *e->done);
    e->n_done = e->next = 0;
    return qp_job_run(&e->job, &ops, &on_cpu, 0, err);
}

static enum qplan_status give_up(const struct qp_hessian *h, double damp, struct qplan_error *err)
{
    char subject[512], text[QP_F64_TEXT];
    qp_format_f64(text, damp);
    return qp_fail(err, QPLAN_ERR_INVALID,
                   qp_listing_subject(subject, &h->source->listing, h->entry),
                   "not positive definite, even with %s times the mean of its diagonal added to "
                   "the diagonal",
                   text);
}

static enum qplan_status try_damps(struct engine *e, struct reading *r, double damp,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    const double mean = mean_of(r->diagonal, r->hessian->columns);
    enum qplan_status status = QPLAN_ERR_VALUE;
    for (unsigned i = 0; i < MOST_TRIES && status == QPLAN_ERR_VALUE; i++) {
        e->factor->damp = i > 0 ? e->factor->damp * 10 : damp;
        r->added = e->factor->damp * mean;
        QP_TRY(read_tiles(e, r, err));
        status = decompose(e, run, err);
    }
    return status == QPLAN_ERR_VALUE ? give_up(r->hessian, e->factor->damp, err) : status;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

static enum qplan_status make(struct engine *e, struct reading *r, float *diagonal, double damp,
                              const struct qplan_run *run, struct qplan_error *err)
{
    r->diagonal = diagonal;
    QP_TRY(qp_hessian_diagonal(r->hessian, diagonal, err));
    QP_TRY(find_order(e->factor, diagonal, err));
    return try_damps(e, r, damp, run, err);
}

/* The buffers that end with the making of the factor. */
static enum qplan_status make_with(struct engine *e, double damp, const struct qplan_run *run,
                                   struct qplan_error *err)
{
    const struct qp_hessian *h = &e->factor->hessian;
    struct reading r = {.hessian = h, .row = qp_alloc(h->block, sizeof(float))};
    float *diagonal = qp_alloc(h->columns, sizeof *diagonal);
    e->n_side = qp_div_up(h->block, TILE);
    e->n_tiles = sum_to(e->n_side) * e->factor->n_blocks;
    e->n_units = e->n_tiles + e->factor->n_blocks * (e->factor->places / QP_PANEL);
    e->tiles = qp_alloc_buffer(e->n_tiles * TILE_ELEMS * sizeof *e->tiles);
    e->done = qp_alloc(e->n_tiles, sizeof *e->done);
    const enum qplan_status status = r.row && diagonal && e->tiles && e->done
                                         ? make(e, &r, diagonal, damp, run, err)
                                         : qp_fail_memory(err, "Hessian", qp_ldlq_peak_bytes(h));
    qp_free(r.row);
    qp_free(diagonal);
    qp_free(e->tiles);
    qp_free(e->done);
    return status;
}

enum qplan_status qp_ldlq_factor_make(struct qp_ldlq_factor *f, const struct qp_hessian *hessian,
                                      double damp, const struct qplan_run *run,
                                      struct qplan_error *err)
{
    struct engine e = {.factor = f, .kernels = qp_product_kernels(run ? run->isa : QPLAN_ISA_BEST)};
    const uint64_t n_panels = qp_div_up(hessian->block, QP_PANEL);
    *f = (struct qp_ldlq_factor){.hessian = *hessian,
                                 .n_blocks = hessian->columns / hessian->block,
                                 .block = hessian->block,
                                 .places = n_panels * QP_PANEL,
                                 .block_floats = sum_to(n_panels) * QP_PANEL * QP_PANEL};
    if (qp_ldlq_peak_bytes(hessian) == UINT64_MAX)
        return qp_fail_memory(err, "Hessian", UINT64_MAX);
    f->order = qp_alloc(f->n_blocks * f->places, sizeof *f->order);
    f->panels = qp_alloc_buffer(f->n_blocks * f->block_floats * sizeof *f->panels);
    enum qplan_status status = f->order && f->panels
                                   ? make_with(&e, damp, run, err)
                                   : qp_fail_memory(err, "Hessian", qp_ldlq_factor_bytes(hessian));
    if (status != QPLAN_OK)
        qp_ldlq_factor_free(f);
    return status;
}

void qp_ldlq_factor_free(struct qp_ldlq_factor *f)
{
    qp_free(f->order);
    qp_free(f->panels);
    *f = (struct qp_ldlq_factor){.n_blocks = 0};
}
