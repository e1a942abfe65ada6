/*
 * transformers.c - the recipe of transformers for fp8, in f32. For a set with the largest size m:
 *
 *     f = (1 / m) * 448, s = 1 / f, and both 1 where m is 0
 *     codes   the nearest to x * f
 *
 * A set of which f is infinite is refused: no decoder gets it back. The zero points, which are not
 * stored, hold the bits of f.
 */
#include "recipe.h"

#include "kernels/codes/biased.h"

#include <float.h>

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    float *s = scale;
    (void)pass;
    for (size_t i = 0; i < n; i++) {
        const float most = -lo[i] > hi[i] ? -lo[i] : hi[i];
        const float factor = most > 0 ? 1 / most * (float)c->rule->type->largest : 1;
        if (factor > FLT_MAX)
            return i;
        s[i] = 1 / factor;
        zero[i] = qp_bias_bits(factor);
    }
    return n;
}

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x,
                   uint8_t *codes)
{
    for (size_t i = 0, end; i < run->n; i = end) {
        const float factor = qp_bias(to->zero[run->first + qp_recipe_set(run, i, &end)]);
        for (size_t k = i; k < end; k++)
            x[k] *= factor;
    }
    qp_recipe_floats(to->c, run->n, x, codes);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return scheme->dtype == QPLAN_F8E4M3 && scheme->scale_dtype == QPLAN_F32;
}

const struct qp_calibrator qp_recipe_transformers = {
    QP_RECIPE("reference:transformers"),
    .finish = finish,
    .codes = qp_recipe_encode,
    .encode = encode,
    .makes = makes,
};
