/*
 * tile_values.c - the values of a tile in working precision, some at a time.
 */
#include "tile_values.h"

#include "kernels/tiles/runs.h"

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

/* The columns of one set in the rows of a band, gathered. */
static void walk_set(struct walk *w, const struct qp_band *band, size_t col, size_t n_cols,
                     size_t set)
{
    const size_t size = w->c->kernels->elem_bytes;
    char *gathered = (char *)w->gathered;
    size_t n = 0;
    for (size_t row = band->row; row < band->row + band->n_rows; row++) {
        put_weights(w, n, col, n_cols);
        memcpy(gathered + n * size, w->src + (row * w->tile->cols + col) * size, n_cols * size);
        n += n_cols;
        if (n + n_cols <= QP_VALUES_RUN && row + 1 < band->row + band->n_rows)
            continue;
        const struct qp_tile part = {1, n, 1, n, 0};
        take_run(w, &part, set, gathered);
        n = 0;
    }
}

static void walk_band(struct walk *w, const struct qp_band *band)
{
    const struct qp_tile *tile = w->tile;
    size_t skip = tile->col_skip, set = band->set;
    for (size_t col = 0, n; col < tile->cols; col += n) {
        const size_t left = tile->cols - col, room = tile->col_width - skip;
        n = left < room ? left : room;
        walk_set(w, band, col, n, set++);
        skip = 0;
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
        FOR_EACH_BAND(tile, band)
        walk_band(&w, &band);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++)
        walk_row(&w, row);
}
