/*
 * comfy_kitchen.c - the recipes of comfy-kitchen, whose layouts ComfyUI loads. W is the type of the
 * weights, m the largest size of a value of a set, M that of the tensor; what is not said to be
 * rounded to W is computed in f32.
 *
 *     fp8     s = W(m / n), with n the largest code; codes the nearest to W(x * W(1 / s))
 *     int8    s = m / 127, at least 1e-30; codes rint(W(x / W(s))), where W(s) is not 0, but the
 *             least normal number
 *     nvfp4   F = W(M / 2688), s = e4m3(m / 6 / F); codes the nearest to x / (s * F), and 0 where
 *             that product is 0
 *     mxfp8   s = 2^k with the least integer k not below log2(m / 448), which is rounded to f32:
 *             that may be the integer below; codes the nearest to x / s. A set of zeros has the
 *             least scale.
 *
 * Refused is what no decoder gets back: fp8 where 1 / s is infinite in W, nvfp4 where F is 0, and
 * mxfp8 where the power is the least or less, which the tool takes for 0.
 */
#include "recipe.h"

#include "kernels/codes/linear.h"
#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#include <math.h>

/* ---- One scale for many ------------------------------------------------------------------------
 */

static float inverse_of(const struct qp_calibration *c, float scale)
{
    return qp_recipe_round_one(c, 1 / scale);
}

static float fp8_scale(const struct qp_calibration *c, float part)
{
    return isinf(inverse_of(c, part)) ? NAN : part;
}

static size_t fp8_finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                         void *scale, int32_t *zero)
{
    (void)pass;
    qp_recipe_parts(c, n, state, (float)c->rule->type->largest, scale);
    qp_recipe_round_all(c, n, scale);
    return qp_recipe_scales(c, n, scale, zero, fp8_scale);
}

static void fp8_encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x,
                       uint8_t *codes)
{
    for (size_t i = 0, end; i < run->n; i = end) {
        const size_t set = run->first + qp_recipe_set(run, i, &end);
        const float inverse = inverse_of(to->c, to->scale[set]);
        for (size_t k = i; k < end; k++)
            x[k] *= inverse;
    }
    qp_recipe_round(to->c, to->c->kernels->dtype, run->n, x);
    qp_recipe_floats(to->c, run->n, x, codes);
}

static float int8_scale(const struct qp_calibration *c, float part)
{
    (void)c;
    return part > 1e-30f ? part : 1e-30f;
}

static size_t int8_finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                          void *scale, int32_t *zero)
{
    (void)pass;
    qp_recipe_parts(c, n, state, (float)c->rule->q_max, scale);
    return qp_recipe_scales(c, n, scale, zero, int8_scale);
}

static void int8_encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x,
                        uint8_t *codes)
{
    const struct qp_calibration *c = to->c;
    const float least = (float)c->rule->q_min, most = (float)c->rule->q_max;
    for (size_t i = 0, end; i < run->n; i = end) {
        const size_t set = run->first + qp_recipe_set(run, i, &end);
        float scale = qp_recipe_round_one(c, to->scale[set]);
        scale = scale > 0 ? scale : qp_recipe_least_normal(c->kernels->dtype);
        for (size_t k = i; k < end; k++)
            x[k] /= scale;
    }
    qp_recipe_round(c, c->kernels->dtype, run->n, x);
    for (size_t i = 0; i < run->n; i++)
        codes[i] = (uint8_t)qp_steps_f32(qp_recipe_clamp(x[i], least, most));
}

/* ---- Blocks ------------------------------------------------------------------------------------
 */

static float nvfp4_factor(enum qplan_dtype dtype, float most)
{
    const struct qp_calibration c = {.kernels = qp_source_kernels(dtype, QPLAN_ISA_BEST)};
    return qp_recipe_round_one(&c, most / (6 * QP_F8E4M3_MOST));
}

static float nvfp4_scale(const struct qp_calibration *c, float part)
{
    return qp_widen_f8e4m3(qp_narrow_f8e4m3(part / c->rule->factor));
}

#define LEAST_POWER 0x1p-127f

static float mxfp8_scale(const struct qp_calibration *c, float most)
{
    const float part = most / (float)c->rule->type->largest;
    if (most == 0)
        return LEAST_POWER;
    if (part <= LEAST_POWER)
        return NAN;
    /* No logarithm is as near to the middle between two numbers of f32 as it is off. */
    return ldexpf(1, (int)ceilf((float)log2((double)part)));
}

static size_t blocks_finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                            void *scale, int32_t *zero)
{
    const bool is_nvfp4 = c->rule->scale_dtype == QPLAN_F8E4M3;
    (void)pass;
    qp_recipe_parts(c, n, state, is_nvfp4 ? (float)c->rule->type->largest : 1, scale);
    return qp_recipe_scales(c, n, scale, zero, is_nvfp4 ? nvfp4_scale : mxfp8_scale);
}

/* Where the tool divides by nothing, codes are 0 whatever the sign of a value is. */
static void drop_zeros(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x)
{
    const bool is_nvfp4 = to->c->rule->scale_dtype == QPLAN_F8E4M3;
    for (size_t i = 0, end; i < run->n; i = end) {
        const float stored = to->scale[run->first + qp_recipe_set(run, i, &end)];
        const float scale = qp_with_factor(to->c->rule, stored);
        for (size_t k = i; k < end && (is_nvfp4 ? scale == 0 : stored == LEAST_POWER); k++)
            x[k] = 0;
    }
}

static void blocks_encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run,
                          float *x, uint8_t *codes)
{
    qp_recipe_divide(to, run, x);
    drop_zeros(to, run, x);
    qp_recipe_floats(to->c, run->n, x, codes);
}

/* ---- Rows --------------------------------------------------------------------------------------
 */

static bool makes_fp8(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_floats(scheme, QPLAN_F32);
}

static bool makes_int8(const struct qplan_scheme *scheme)
{
    return scheme->dtype == QPLAN_INT8 && !scheme->asymmetric;
}

static bool makes_blocks(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_floats(scheme, QPLAN_E8M0) || qp_recipe_is_floats(scheme, QPLAN_F8E4M3);
}

const struct qp_calibrator qp_recipe_comfy_fp8 = {QP_RECIPE("reference:comfy-kitchen"),
                                                  .finish = fp8_finish, .codes = qp_recipe_encode,
                                                  .encode = fp8_encode, .makes = makes_fp8};
const struct qp_calibrator qp_recipe_comfy_int8 = {QP_RECIPE("reference:comfy-kitchen"),
                                                   .finish = int8_finish, .codes = qp_recipe_encode,
                                                   .encode = int8_encode, .makes = makes_int8};
const struct qp_calibrator qp_recipe_comfy_blocks = {QP_RECIPE("reference:comfy-kitchen"),
                                                     .finish = blocks_finish,
                                                     .codes = qp_recipe_encode,
                                                     .encode = blocks_encode,
                                                     .makes = makes_blocks,
                                                     .factor = nvfp4_factor};
