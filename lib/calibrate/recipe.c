/*
 * recipe.c - the way of a recipe over a tile, and the steps that recipes have in common.
 */
#include "recipe.h"

#include "kernels/codes/floats.h"

#include <math.h>

float qp_recipe_infinite(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F16 ? 65520 : dtype == QPLAN_BF16 ? 0x1.ffp127f : INFINITY;
}

float qp_recipe_least_normal(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F16 ? 0x1p-14f : 0x1p-126f;
}

bool qp_recipe_is_integers(const struct qplan_scheme *scheme)
{
    int32_t least, most;
    return qplan_dtype_range(scheme->dtype, &least, &most);
}

bool qp_recipe_is_floats(const struct qplan_scheme *scheme, enum qplan_dtype scale)
{
    return qp_code_type(scheme->dtype)->kind == QP_CODES_FLOAT && scheme->scale_dtype == scale;
}

/* Of some values that are not all finite those that are: the others would become the largest. */
static void round_finite(const struct qp_calibration *c, enum qplan_dtype dtype, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            c->kernels->work->round(dtype, 1, &x[i]);
    }
}

void qp_recipe_round(const struct qp_calibration *c, enum qplan_dtype dtype, size_t n, float *x)
{
    const float infinite = qp_recipe_infinite(dtype);
    unsigned n_infinite = 0;
    if (dtype == QPLAN_F32)
        return;
    for (size_t i = 0; i < n; i++)
        n_infinite += fabsf(x[i]) < infinite ? 0u : 1u;
    for (size_t i = 0; n_infinite > 0 && i < n; i++)
        x[i] = fabsf(x[i]) < infinite ? x[i] : x[i] * INFINITY;
    if (n_infinite == 0)
        c->kernels->work->round(dtype, n, x);
    else
        round_finite(c, dtype, n, x);
}

/* ---- Ways --------------------------------------------------------------------------------------
 */

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

void qp_recipe_encode(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                      const void *scale, const int32_t *zero, uint8_t *codes)
{
    const struct qp_recipe_codes to = {c, scale, zero, codes, c->calibrator->encode};
    qp_recipe_make_codes(&to, tile, src);
}

/* ---- Scales and codes --------------------------------------------------------------------------
 */

void qp_recipe_parts(const struct qp_calibration *c, size_t n, void *state, float divisor,
                     float *parts)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    for (size_t i = 0; i < n; i++)
        parts[i] = (-lo[i] > hi[i] ? -lo[i] : hi[i]) / divisor;
}

void qp_recipe_round_all(const struct qp_calibration *c, size_t n, float *x)
{
    for (size_t at = 0; at < n; at += QP_RECIPE_RUN)
        qp_recipe_round(c, c->kernels->dtype, n - at < QP_RECIPE_RUN ? n - at : QP_RECIPE_RUN,
                        x + at);
}

size_t qp_recipe_scales(const struct qp_calibration *c, size_t n, float *scale, int32_t *zero,
                        float (*scale_of)(const struct qp_calibration *c, float part))
{
    for (size_t i = 0; i < n; i++) {
        scale[i] = scale_of(c, scale[i]);
        if (isnan(scale[i]))
            return i;
        zero[i] = 0;
    }
    return n;
}

/* Sets may be short, so that a division for each would be felt. */
void qp_recipe_divide(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x)
{
    size_t end, set = run->first + qp_recipe_set(run, 0, &end);
    for (size_t i = 0; i < run->n; set++) {
        const float scale = qp_with_factor(to->c->rule, to->scale[set]);
        for (; i < end; i++)
            x[i] /= scale;
        end = run->n - i > run->width ? i + run->width : run->n;
    }
}

/* Those of kernels for a scale of 1, but of NaN, which they take for 0. */
void qp_recipe_floats(const struct qp_calibration *c, size_t n, const float *t, uint8_t *codes)
{
    const struct qp_tile tile = {.rows = 1, .cols = n, .band_rows = 1, .col_width = n};
    struct qp_code_rule rule = *c->rule;
    const float largest = (float)rule.type->largest, one = 1;
    const int32_t zero = 0;
    unsigned n_others = 0;
    for (size_t i = 0; i < n; i++)
        n_others += t[i] == t[i] ? 0u : 1u;
    rule.bounded = false; /* which nobody promises of quotients by a tool's scale */
    qp_quantizer(QPLAN_F32, rule.kind, c->kernels->isa)
        ->quantize(&tile, t, &rule, &one, &zero, codes);
    for (size_t i = 0; n_others > 0 && i < n; i++)
        codes[i] = qp_float_code_f32(t[i], &rule.type->grid, largest);
}
