/*
 * tile_values.c - the values of a tile in working precision, some at a time.
 */
#include "tile_values.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Runs of fewer columns are gathered from the rows of their set. */
#define NARROW 32

bool qp_values_are_gathered(const struct qp_tile *tile)
{
    return tile->col_width < NARROW && tile->band_rows > 1;
}

/* A walk, and room for what it has at hand. */
struct walk {
    const struct qp_calibration *c;
    const struct qp_tile *tile;
    const char *src;
    void (*take)(void *ctx, const struct qp_values_run *run);
    void *ctx;
    double values[QP_VALUES_RUN];
    uint64_t gathered[QP_VALUES_RUN]; /* elements of the source */
    float weights[QP_VALUES_RUN];
};

/* Nobody wants what is not finite: it becomes 0, which changes no sum. */
static void drop_nonfinite(struct walk *w, size_t n)
{
    double *f64 = w->values;
    float *f32 = (void *)w->values;
    if (w->c->kernels->work_bytes == sizeof(double)) {
        for (size_t i = 0; i < n; i++)
            f64[i] = fabs(f64[i]) <= DBL_MAX ? f64[i] : 0;
    } else {
        for (size_t i = 0; i < n; i++)
            f32[i] = fabsf(f32[i]) <= FLT_MAX ? f32[i] : 0;
    }
}

static void take_run(struct walk *w, const struct qp_tile *tile, size_t set, const void *src)
{
    const struct qp_source_kernels *kernels = w->c->kernels;
    const struct qp_values_run run = {*tile, set, w->values, w->c->weights ? w->weights : NULL};
    kernels->work->load(kernels->dtype, tile->cols, src, w->values);
    drop_nonfinite(w, tile->cols);
    w->take(w->ctx, &run);
}

/* The weights of n columns of the tile, from the place `at` of the run on. */
static void put_weights(struct walk *w, size_t at, size_t col, size_t n)
{
    const struct qp_calibration *c = w->c;
    size_t from = c->weights ? (c->first_weight + col) % c->n_weights : 0;
    for (size_t i = 0; c->weights && i < n; i++) {
        w->weights[at + i] = c->weights[from];
        from = from + 1 < c->n_weights ? from + 1 : 0;
    }
}

/* Some columns of a row at a time, cut between sets where these are short enough. */
static void walk_row(struct walk *w, size_t row)
{
    const struct qp_tile *tile = w->tile;
    const size_t first = row / tile->band_rows * qp_tile_cols(tile);
    const size_t most = tile->col_width < QP_VALUES_RUN
                            ? QP_VALUES_RUN / tile->col_width * tile->col_width
                            : QP_VALUES_RUN;
    for (size_t col = 0, n; col < tile->cols; col += n) {
        const size_t at = tile->col_skip + col, skip = at % tile->col_width;
        const size_t left = tile->cols - col, room = skip < most ? most - skip : most;
        n = left < room ? left : room;
        const struct qp_tile part = {1, n, 1, tile->col_width, skip};
        put_weights(w, 0, col, n);
        take_run(w, &part, first + at / tile->col_width,
                 w->src + (row * tile->cols + col) * w->c->kernels->elem_bytes);
    }
}

/* The values of one set in the rows of a band, gathered. */
static void walk_set(struct walk *w, const struct qp_tile_set *set)
{
    const size_t size = w->c->kernels->elem_bytes, last = set->row + set->n_rows - 1;
    char *gathered = (char *)w->gathered;
    size_t n = 0;
    for (size_t row = set->row; row <= last; row++) {
        put_weights(w, n, set->col, set->n_cols);
        memcpy(gathered + n * size, w->src + (row * w->tile->cols + set->col) * size,
               set->n_cols * size);
        n += set->n_cols;
        if (n + set->n_cols <= QP_VALUES_RUN && row < last)
            continue;
        const struct qp_tile part = {1, n, 1, n, 0};
        take_run(w, &part, set->set, gathered);
        n = 0;
    }
}

void qp_values_walk(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                    void (*take)(void *ctx, const struct qp_values_run *run), void *ctx)
{
    struct walk w; /* too large to be cleared each time */
    w.c = c;
    w.tile = tile;
    w.src = src;
    w.take = take;
    w.ctx = ctx;
    if (qp_values_are_gathered(tile)) {
        FOR_EACH_SET(tile, set)
        walk_set(&w, &set);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++)
        walk_row(&w, row);
}

void qp_elems_walk(const struct qp_tile *tile, const struct qp_tile_set *set, const void *src,
                   size_t elem_bytes, void (*take)(void *ctx, const void *elems, size_t n),
                   void *ctx)
{
    uint64_t gathered[QP_VALUES_RUN];
    char *to = (char *)gathered;
    size_t n = 0;
    for (size_t row = set->row; row < set->row + set->n_rows; row++) {
        const char *from = (const char *)src + (row * tile->cols + set->col) * elem_bytes;
        if (set->n_cols >= NARROW) {
            take(ctx, from, set->n_cols);
            continue;
        }
        memcpy(to + n * elem_bytes, from, set->n_cols * elem_bytes);
        n += set->n_cols;
        if (n + NARROW > QP_VALUES_RUN) {
            take(ctx, gathered, n);
            n = 0;
        }
    }
    if (n > 0)
        take(ctx, gathered, n);
}
