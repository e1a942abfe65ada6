/*
 * modelopt_recipe.c - the recipe of ModelOpt for nvfp4, in f32. For a set with the largest size m
 * of a value, and M that of all tensors that share a factor:
 *
 *     F = M / 2688
 *     s = e4m3(m / (6 * F)), which is 1 where that quotient is 0, and else at least 2^-9
 *     codes   the nearest to x / (s * F); that of 0 has no sign
 *
 * Where F is 0, or the product of it and the least scale, the tool makes scales or codes that are
 * no numbers: that is refused.
 */
#include "recipe.h"

#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#define LEAST_SCALE 0x1p-9f

static float factor(enum qplan_dtype dtype, float most)
{
    const float found = most / (6 * QP_F8E4M3_MOST);
    (void)dtype;
    return found * LEAST_SCALE > 0 ? found : 0;
}

static float scale_of(const struct qp_calibration *c, float part)
{
    (void)c;
    if (part == 0)
        return 1;
    return qp_widen_f8e4m3(qp_narrow_f8e4m3(part > LEAST_SCALE ? part : LEAST_SCALE));
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    (void)pass;
    qp_recipe_parts(c, n, state, 6 * c->rule->factor, scale);
    return qp_recipe_scales(c, n, scale, zero, scale_of);
}

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *t,
                   uint8_t *codes)
{
    qp_recipe_divide(to, run, t);
    for (size_t i = 0; i < run->n; i++)
        t[i] = t[i] == 0 ? 0 : t[i];
    qp_recipe_floats(to->c, run->n, t, codes);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return scheme->dtype == QPLAN_F4E2M1 && scheme->scale_dtype == QPLAN_F8E4M3;
}

const struct qp_calibrator qp_recipe_modelopt = {
    QP_RECIPE("reference:modelopt"),
    .finish = finish,
    .codes = qp_recipe_encode,
    .encode = encode,
    .makes = makes,
    .factor = factor,
};
