/*
 * llm_compressor_blocks.c - the recipe of llm-compressor and compressed-tensors for blocks of
 * floats whose scales are bytes: nvfp4, mxfp4 and mxfp8. W is the type of the weights, m the
 * largest size of a value of a set.
 *
 *     nvfp4   the divisor D = W(W(1 / M) * 2688), with M that of all fused tensors and at least the
 *             least normal number of W; 1 where that is infinite
 *             s = e4m3(D * W(m / 6)), and 0.125 where that is 0; codes of x / (s / D) in f32
 *     mx      the power of two of m, or the next one from 1.75 times that on, as an exponent less 2
 *             for f4e2m1 and 8 for f8e4m3; s is that power, and 1 where it is 0 in W;
 *             codes of W(x / s)
 *
 * A power of m is found in the bits of W, so that of a subnormal one it is 0 or the least normal
 * number. The code of what is 0 in W has no sign where codes have 4 bits. Where m is too large for
 * the sum of the bits, the scale of the tool is no number, and refused here.
 */
#include "recipe.h"

#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#include <math.h>

/* The largest scale times the largest code. */
#define LARGEST (448.0f * 6)

/* ---- Parameters --------------------------------------------------------------------------------
 */

static float factor(enum qplan_dtype dtype, float most)
{
    const struct qp_calibration c = {.kernels = qp_source_kernels(dtype, QPLAN_ISA_BEST)};
    const float least = qp_recipe_least_normal(dtype);
    const float inverse = qp_recipe_round_one(&c, 1 / (most > least ? most : least));
    const float divisor = qp_recipe_round_one(&c, inverse * LARGEST);
    return isinf(divisor) ? 1 : divisor;
}

static float nvfp4_scale(const struct qp_calibration *c, float part)
{
    const float scale = qp_widen_f8e4m3(qp_narrow_f8e4m3(c->rule->factor * part));
    return scale == 0 ? 0.125f : scale;
}

/* m, or 0, brought to the power of two below or, from 1.75 times that on, above; may be infinite.
 */
static float power_of(enum qplan_dtype dtype, float most)
{
    const float least = qp_recipe_least_normal(dtype);
    int exponent;
    if (most < least)
        return most < least * 0.75f ? 0 : least;
    const bool is_next = frexpf(most, &exponent) >= 0.875f;
    const float power = ldexpf(1, exponent - 1 + is_next);
    return power < qp_recipe_infinite(dtype) ? power : INFINITY;
}

static float mx_scale(const struct qp_calibration *c, float most)
{
    const float power = power_of(c->kernels->dtype, most);
    const float largest = c->rule->type->bits == 4 ? 4 : 256; /* the power in the largest code */
    const float least = c->kernels->dtype == QPLAN_F16 ? 0x1p-24f : 0x1p-127f;
    if (isinf(power))
        return NAN;
    if (power / largest >= least)
        return power / largest;
    return c->kernels->dtype == QPLAN_F16 ? 1 : least;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const bool is_nvfp4 = c->rule->scale_dtype == QPLAN_F8E4M3;
    (void)pass;
    qp_recipe_parts(c, n, state, is_nvfp4 ? 6 : 1, scale);
    if (is_nvfp4)
        qp_recipe_round_all(c, n, scale);
    return qp_recipe_scales(c, n, scale, zero, is_nvfp4 ? nvfp4_scale : mx_scale);
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *t,
                   uint8_t *codes)
{
    const struct qp_code_rule *rule = to->c->rule;
    qp_recipe_divide(to, run, t);
    if (rule->scale_dtype == QPLAN_E8M0)
        qp_recipe_round(to->c, to->c->kernels->dtype, run->n, t);
    for (size_t i = 0; rule->type->bits == 4 && i < run->n; i++)
        t[i] = t[i] == 0 ? 0 : t[i];
    qp_recipe_floats(to->c, run->n, t, codes);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_floats(scheme, QPLAN_E8M0) || qp_recipe_is_floats(scheme, QPLAN_F8E4M3);
}

/* What it loads as one: words before are "self_attn", "mlp" and such. */
static const struct qp_kin_names kin[] = {
    {{"q_proj", "k_proj", "v_proj"}, "attn"},
    {{"q_proj", "k_proj", "v_proj"}, "attention"},
    {{"wq_a", "wkv_a_with_mqa"}, "attn"},
    {{"wq_a", "wkv_a_with_mqa"}, "attention"},
    {{"gate_proj", "up_proj"}, "mlp"},
    {{"w1", "w3"}, NULL},
    {{NULL}, NULL},
};

const struct qp_calibrator qp_recipe_llm_compressor_blocks = {
    QP_RECIPE("reference:llm-compressor"),
    .finish = finish,
    .codes = qp_recipe_encode,
    .encode = encode,
    .makes = makes,
    .factor = factor,
    .kin = kin,
};
