/*
 * recipe.c - the way of a recipe over a tile.
 */
#include "recipe.h"

#include <math.h>

float qp_recipe_infinite(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F16 ? 65520 : dtype == QPLAN_BF16 ? 0x1.ffp127f : INFINITY;
}

void qp_recipe_walk(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                    void (*take)(void *ctx, const struct qp_recipe_run *run, float *values,
                                 size_t at),
                    void *ctx)
{
    const struct qp_source_kernels *kernels = c->kernels;
    float values[QP_RECIPE_RUN];
    for (size_t row = 0; row < tile->rows; row++) {
        for (size_t col = 0; col < tile->cols; col += QP_RECIPE_RUN) {
            const size_t left = tile->cols - col, at = row * tile->cols + col;
            const struct qp_recipe_run run = {.col = tile->col_skip + col,
                                              .n = left < QP_RECIPE_RUN ? left : QP_RECIPE_RUN,
                                              .width = tile->col_width,
                                              .first = row / tile->band_rows * qp_tile_cols(tile)};
            kernels->work->load(kernels->dtype, run.n, (const char *)src + at * kernels->elem_bytes,
                                values);
            take(ctx, &run, values, at);
        }
    }
}

static void encode_run(void *ctx, const struct qp_recipe_run *run, float *values, size_t at)
{
    const struct qp_recipe_codes *to = ctx;
    to->encode(to, run, values, to->codes + at);
}

void qp_recipe_make_codes(const struct qp_recipe_codes *to, const struct qp_tile *tile,
                          const void *src)
{
    struct qp_recipe_codes codes = *to;
    qp_recipe_walk(to->c, tile, src, encode_run, &codes);
}
