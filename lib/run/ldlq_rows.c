/*
 * ldlq_rows.c - rounding the rows of a tensor.
 *
 * A worker has some rows at a time, turned, so that its lanes are rows: what is added to one column
 * of all rows is a number of the factor times errors of all rows.
 */
#include "ldlq_rows.h"

#include "job.h"
#include "kernels/codes/largest.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/store/hold.h"
#include "source_values.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Rows that are done together where memory allows it: their columns stay in a second-level cache.
 */
#define ROWS 64

/* Rows of the source that are turned together. */
#define TURNED 16

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_ldlq_work work;
    const struct qp_plan_tensor *t;
    struct qp_tensor tensor; /* as it is read */
    const struct qp_ldlq_factor *factor;
    const struct qp_product_kernels *products;
    const struct qp_source_kernels *kernels;
    const struct qp_quantizer *quantizer; /* of f32 values */
    struct qp_code_rule rule;
    struct qp_sets sets;
    uint64_t n, n_rows;     /* columns, and rows of the last axis */
    uint64_t width, n_sets; /* columns of a set in a row, sets of a row at the most */
    bool goes_on;           /* sets do not begin with each row */
    struct qp_flat flat;
};

/* The buffers of a worker, for so many rows at a time. */
struct buffers {
    uint64_t rows;
    void *source;
    float *lines;         /* TURNED rows, as they follow each other */
    float *x;             /* places of all blocks, of all rows each: values, then errors */
    float *scale, *w, *y; /* of sets, of all rows each; of the columns of a panel; of one column */
    int32_t *zero;        /* of sets, likewise */
    uint64_t *begun;      /* columns of the first set of a row that are in rows before it */
    float *column_scale;  /* of the sets of one column, of all rows, where sets go on */
    int32_t *column_zero;
    uint8_t *column; /* codes of a column */
    uint8_t *codes;  /* row by row */
    void *image;     /* as they are stored */
    struct qp_param_window window;
    struct qp_value_room values;
};

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

/* ---- Memory ------------------------------------------------------------------------------------
 */

static uint64_t places(const struct engine *e)
{
    return e->factor->n_blocks * e->factor->places;
}

/* Cuts between rows that share no word, and are whole lanes. */
static uint64_t grain(const struct engine *e)
{
    return qp_max_u64(QP_PRODUCT_ROWS, qp_tall_rows(&e->tensor));
}

/* The columns of so many rows fill a tile. */
static size_t bytes_of_rows(const struct engine *e, uint64_t rows)
{
    return (size_t)(rows * places(e) * sizeof(float));
}

static uint64_t rows_of(const struct engine *e, size_t tile_bytes)
{
    const uint64_t rows = tile_bytes / bytes_of_rows(e, 1) / grain(e) * grain(e);
    return qp_min_u64(qp_max_u64(rows, grain(e)), qp_max_u64(ROWS, grain(e)));
}

static size_t tile_least(const struct qp_job *job)
{
    const struct engine *e = (const struct engine *)job;
    return bytes_of_rows(e, grain(e));
}

static size_t tile_wish(const struct qp_job *job)
{
    const struct engine *e = (const struct engine *)job;
    return bytes_of_rows(e, qp_max_u64(ROWS, grain(e)));
}

static void carve(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                  void *buffers)
{
    const struct engine *e = (const struct engine *)job;
    struct buffers *b = buffers;
    const uint64_t rows = rows_of(e, tile_bytes), n_sets = rows * e->n_sets;
    b->rows = rows;
    b->source = qp_take(carve, rows * e->n * e->kernels->elem_bytes + QP_IO_SPARE);
    b->lines = qp_take(carve, TURNED * e->n * sizeof *b->lines);
    b->x = qp_take(carve, rows * places(e) * sizeof *b->x);
    b->w = qp_take(carve, rows * QP_PANEL * sizeof *b->w);
    b->y = qp_take(carve, rows * sizeof *b->y);
    b->scale = qp_take(carve, n_sets * sizeof *b->scale);
    b->zero = qp_take(carve, n_sets * sizeof *b->zero);
    b->begun = qp_take(carve, rows * sizeof *b->begun);
    b->column_scale = qp_take(carve, rows * sizeof *b->column_scale);
    b->column_zero = qp_take(carve, rows * sizeof *b->column_zero);
    b->column = qp_take(carve, rows);
    b->codes = qp_take(carve, rows * e->n);
    b->image = qp_take(carve, QP_IMAGE_ROOM(rows * e->n, 1));
    b->window.scale = qp_take(carve, n_sets * sizeof(float));
    b->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->window.stored = qp_take(carve, QP_PART_ROOM(n_sets, sizeof(float)));
    if (e->work.plan->checkpoint->is_decoded)
        qp_values_carve(carve, tile_bytes, &b->values);
}

/* ---- What a row begins with --------------------------------------------------------------------
 */

/* The rows at hand. */
struct rows {
    const struct engine *e;
    const struct buffers *b;
    uint64_t first, n; /* of the last axis */
};

static enum qplan_status read_values(const struct rows *r, struct qplan_error *err)
{
    const struct engine *e = r->e;
    const struct qp_values values = {&e->work.plan->checkpoint->source, e->t->source,
                                     e->job.run->isa, &r->b->values};
    return qp_values_read(&values, r->first * e->n, r->n * e->n, r->b->source, err);
}

/* Puts some rows of the source into their lanes, column by column. */
static void turn_rows(const struct rows *r, uint64_t row, uint64_t n_rows)
{
    const struct engine *e = r->e;
    const struct buffers *b = r->b;
    for (uint64_t i = 0; i < n_rows; i++)
        e->kernels->work->load(e->kernels->dtype, (size_t)e->n,
                               (const char *)b->source + (row + i) * e->n * e->kernels->elem_bytes,
                               b->lines + i * e->n);
    for (uint64_t k = 0; k < places(e); k++) {
        const uint32_t col = e->factor->order[k];
        float *to = b->x + k * b->rows + row;
        for (uint64_t i = 0; col != UINT32_MAX && i < n_rows; i++)
            to[i] = b->lines[i * e->n + col];
    }
}

/* Lanes without a row, and places without a column, are zeros. */
static enum qplan_status take_values(const struct rows *r, struct qplan_error *err)
{
    memset(r->b->x, 0, bytes_of_rows(r->e, r->b->rows));
    QP_TRY(read_values(r, err));
    for (uint64_t row = 0; row < r->n; row += TURNED)
        turn_rows(r, row, qp_min_u64(TURNED, r->n - row));
    return QPLAN_OK;
}

/* The first set of a row of the last axis. */
static uint64_t first_set(const struct engine *e, uint64_t row)
{
    struct qp_tile tile;
    uint64_t set;
    (void)qp_tile_at(&e->sets, row * e->n, (row + 1) * e->n, e->n_sets, &tile, &set);
    return set;
}

/* Reads the parameters of n sets. */
static enum qplan_status read_params(const struct rows *r, uint64_t set, uint64_t n,
                                     struct qplan_error *err)
{
    const struct engine *e = r->e;
    const struct qp_param_window *window = &r->b->window;
    const struct qp_work_kernels *work = e->kernels->work;
    QP_TRY(qp_read_scales(e->work.stored, &e->tensor, work, set, (size_t)n, window, err));
    QP_TRY(qp_read_zeros(e->work.stored, &e->tensor, set, (size_t)n, window, err));
    if (e->rule.of_largest)
        qp_times_f32(work->work, (size_t)n, qp_part_of_largest(&e->rule), window->scale);
    return QPLAN_OK;
}

/* The set behind the last one of a row of the last axis. */
static uint64_t end_set(const struct engine *e, uint64_t row)
{
    return e->goes_on ? ((row + 1) * e->n - 1) / e->width + 1 : first_set(e, row) + e->n_sets;
}

/* The n parameters of a row from those in the window on, into its lane. */
static void put_params(const struct rows *r, uint64_t row, uint64_t from, uint64_t n)
{
    const struct buffers *b = r->b;
    const float *scale = b->window.scale;
    for (uint64_t i = 0; i < n; i++) {
        b->scale[i * b->rows + row] = scale[from + i];
        b->zero[i * b->rows + row] = b->window.zero[from + i];
    }
}

/* Lanes without a row make some codes too. */
static void clear_params(const struct rows *r)
{
    const struct engine *e = r->e;
    const struct buffers *b = r->b;
    for (uint64_t i = 0; i < e->n_sets * b->rows; i++) {
        b->scale[i] = 1;
        b->zero[i] = 0;
    }
    for (uint64_t i = 0; i < b->rows; i++) {
        b->begun[i] = e->goes_on ? (r->first + i) * e->n % e->width : 0;
        b->column_scale[i] = 1;
        b->column_zero[i] = 0;
    }
}

/* Sets of rows that follow each other are read at once, those that rows share once for each run. */
static enum qplan_status take_params(const struct rows *r, struct qplan_error *err)
{
    const struct engine *e = r->e;
    const uint64_t first = first_set(e, r->first), end = end_set(e, r->first + r->n - 1);
    const bool follow = e->goes_on || end - first == r->n * e->n_sets;
    clear_params(r);
    if (follow)
        QP_TRY(read_params(r, first, end - first, err));
    for (uint64_t i = 0, last = UINT64_MAX; i < r->n; i++) {
        const uint64_t set = first_set(e, r->first + i), n = end_set(e, r->first + i) - set;
        if (!follow && set != last)
            QP_TRY(read_params(r, set, n, err));
        put_params(r, i, follow ? set - first : 0, n);
        last = set;
    }
    return QPLAN_OK;
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

/* What a column hands on: how far its values are from those of its codes. */
static void put_errors(size_t n, const float *w, const float *y, float *error)
{
    for (size_t i = 0; i < n; i++) {
        const float e = y[i] - w[i];
        error[i] = fabsf(e) <= FLT_MAX ? e : 0;
    }
}

/* The parameters of a column, of all rows each. */
struct column {
    const float *scale;
    const int32_t *zero;
};

static struct column column_of(const struct rows *r, uint32_t col)
{
    const struct engine *e = r->e;
    const struct buffers *b = r->b;
    const uint64_t at = col / e->width * b->rows;
    if (!e->goes_on)
        return (struct column){b->scale + at, b->zero + at};
    for (uint64_t i = 0; i < r->n; i++) {
        const uint64_t from = (b->begun[i] + col) / e->width * b->rows + i;
        b->column_scale[i] = b->scale[from];
        b->column_zero[i] = b->zero[from];
    }
    return (struct column){b->column_scale, b->column_zero};
}

/* Codes of a column, whose terms are all there; its errors take its place. */
static void make_column(const struct rows *r, uint32_t col, const float *w, float *x)
{
    const struct engine *e = r->e;
    const struct buffers *b = r->b;
    const size_t n = (size_t)b->rows;
    const struct qp_tile tile = {.rows = 1, .cols = n, .band_rows = 1, .col_width = 1};
    const struct column params = column_of(r, col);
    e->quantizer->quantize(&tile, x, &e->rule, params.scale, params.zero, b->column);
    e->quantizer->dequantize(&tile, b->column, &e->rule, params.scale, params.zero, b->y);
    put_errors(n, w, b->y, x);
    for (uint64_t i = 0; i < r->n; i++)
        b->codes[i * e->n + col] = b->column[i];
}

/* x less the errors of a column, each times a number of the factor. */
static void subtract(size_t n, float factor, const float *error, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] -= error[i] * factor;
}

static void make_panel(const struct rows *r, uint64_t block, uint64_t i)
{
    const struct qp_ldlq_factor *f = r->e->factor;
    const size_t n = (size_t)r->b->rows, first = (size_t)(QP_PANEL * i);
    const float *panel = qp_ldlq_panel(f, block, i);
    const uint32_t *order = f->order + block * f->places + first;
    float *begin = r->b->x + block * f->places * n, *x = begin + first * n;
    memcpy(r->b->w, x, QP_PANEL * n * sizeof *x);
    r->e->products->subtract_f32(first, n, n, begin, panel, QP_PANEL, x);
    for (size_t k = 0; k < QP_PANEL && order[k] != UINT32_MAX; k++) {
        for (size_t j = 0; j < k; j++)
            subtract(n, panel[(first + j) * QP_PANEL + k], x + j * n, x + k * n);
        make_column(r, order[k], r->b->w + k * n, x + k * n);
    }
}

static enum qplan_status write_run(void *ctx, const struct qp_part *part, uint64_t off,
                                   const void *bytes, size_t n, struct qplan_error *err)
{
    const struct engine *e = ctx;
    return qp_outs_write(e->work.outs, part->entry, off, bytes, n, err);
}

static enum qplan_status round_rows(struct engine *e, const struct rows *r, struct qplan_error *err)
{
    const struct qp_ldlq_factor *f = e->factor;
    QP_TRY(take_values(r, err));
    QP_TRY(take_params(r, err));
    for (uint64_t block = 0; block < f->n_blocks; block++)
        for (uint64_t i = 0; i < f->places / QP_PANEL; i++)
            make_panel(r, block, i);
    return qp_part_put(e->work.outs, qp_tensor_part(&e->tensor, QP_CODES), r->first * e->n,
                       (size_t)(r->n * e->n), e->job.run->isa, r->b->codes, r->b->image, write_run,
                       e, err);
}

/* ---- The job of a tensor -----------------------------------------------------------------------
 */

static uint64_t length(const void *ctx, size_t item, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    (void)item;
    *unit_length = rows_of(e, e->job.tile_bytes);
    return e->n_rows;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit unit;
    if (!qp_flat_claim(job, &e->flat, &unit))
        return false;
    const struct rows r = {e, buffers, unit.pos, unit.n};
    if (round_rows(e, &r, err) == QPLAN_OK)
        qp_job_advance(job, unit.n * e->n * e->kernels->elem_bytes);
    else
        qp_job_fail(job, unit.number, err);
    return true;
}

static void prepare(struct engine *e, const struct qp_ldlq_work *work,
                    const struct qp_plan_tensor *t, const struct qp_ldlq_factor *factor,
                    enum qplan_isa isa)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    e->work = *work;
    e->t = t;
    e->factor = factor;
    e->tensor = t->result;
    e->tensor.calibrate = t->calibrator->name;
    if (work->factors)
        e->tensor.factor = work->factors[t - work->plan->tensors];
    e->rule = qp_stored_rule(&e->tensor);
    qp_tensor_sets(&e->sets, &t->result);
    e->n = t->source->shape[t->source->rank - 1];
    e->n_rows = e->sets.n_elems / e->n;
    e->goes_on = t->result.is_flat && t->result.scheme->granularity == QPLAN_PER_GROUP &&
                 e->n % e->sets.col_width != 0;
    e->width = e->goes_on ? e->sets.col_width : qp_min_u64(e->sets.col_width, e->n);
    e->n_sets = qp_div_up(e->n, e->width) + e->goes_on; /* a row may begin and end within one */
    e->products = qp_product_kernels(isa);
    e->kernels = qp_source_kernels(row->dtype, isa);
    e->quantizer = qp_quantizer(QPLAN_F32, e->rule.kind, isa);
    e->flat = (struct qp_flat){.ctx = e, .n_items = 1, .length = length};
}

enum qplan_status qp_ldlq_round(const struct qp_ldlq_work *work, const struct qp_plan_tensor *t,
                                const struct qp_ldlq_factor *factor, const struct qplan_run *run,
                                struct qplan_error *err)
{
    static const struct qp_job_ops ops = {.buffers_size = sizeof(struct buffers),
                                          .carve = carve,
                                          .tile_least = tile_least,
                                          .tile_wish = tile_wish,
                                          .step = step};
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    prepare(e, work, t, factor, run->isa);
    const enum qplan_status status =
        qp_job_run(&e->job, &ops, run, qp_tensor_bytes(t->source), err);
    qp_free(e);
    return status;
}

uint64_t qp_ldlq_least_bytes(const struct qplan_plan *plan, const struct qp_plan_tensor *t)
{
    const struct qp_ldlq_work work = {.plan = plan};
    const struct qp_ldlq_factor f = {.block = t->hessian->block,
                                     .n_blocks = t->hessian->columns / t->hessian->block,
                                     .places = qp_div_up(t->hessian->block, QP_PANEL) * QP_PANEL};
    struct engine e = {.t = t};
    struct buffers unused;
    struct qp_carve count = {.used = 0};
    prepare(&e, &work, t, &f, QPLAN_ISA_SCALAR);
    (void)qp_take(&count, sizeof unused);
    carve(&count, qp_job_tile_least(tile_least(&e.job)), &e.job, &unused);
    return count.used;
}
