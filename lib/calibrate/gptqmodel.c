/*
 * gptqmodel.c - the recipe of GPTQModel for weights that are rounded without data, in f32. For
 * codes of b bits, counted from 0 to n = 2^b - 1, and a set with the range lo <= 0 <= hi:
 *
 *     symmetric    both ends become the larger one, but lo stays 0 where no value is negative
 *     all zeros    the range becomes -1 to 1
 *     s = (hi - lo) / n, z = (n + 1) / 2 or, asymmetric, rint(-lo / s)
 *     codes        clamp(rint(x / s) + z)
 *
 * Scales are rounded to f16 when they are stored, and not for the codes. Where no value is negative
 * a symmetric set leaves everything above half its range outside: that is what the tool does. What
 * it computes again when it packs, rint((s (q - z) + z s) / s), is q: the errors of these few steps
 * are far below a half.
 */
#include "recipe.h"

#include "kernels/codes/linear.h"

static float find_scale(const struct qp_code_rule *rule, float lo, float hi, float *zero)
{
    const float n = (float)(rule->q_max - rule->q_min);
    if (!rule->asymmetric) {
        hi = -lo > hi ? -lo : hi;
        lo = lo < 0 ? -hi : lo;
    }
    if (lo == 0 && hi == 0) {
        lo = -1;
        hi = 1;
    }
    const float scale = (hi - lo) / n;
    *zero = rule->asymmetric ? qp_rne_f32(qp_recipe_clamp(-lo / scale, 0, n)) : (n + 1) / 2;
    return scale;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    const float infinite = qp_recipe_infinite(c->rule->scale_dtype);
    float *s = scale, z;
    (void)pass;
    for (size_t i = 0; i < n; i++) {
        s[i] = find_scale(c->rule, lo[i], hi[i], &z);
        if (!(s[i] > 0x1p-25f && s[i] < infinite)) /* in f16 it would be 0, or infinite */
            return i;
        zero[i] = c->rule->q_min + (int32_t)z;
    }
    return n;
}

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *t,
                   uint8_t *codes)
{
    const float least = (float)to->c->rule->q_min, most = (float)to->c->rule->q_max;
    for (size_t i = 0, end; i < run->n; i = end) {
        const size_t set = run->first + qp_recipe_set(run, i, &end);
        const float scale = to->scale[set], zero = (float)to->zero[set];
        for (size_t k = i; k < end; k++)
            t[k] = qp_rne_f32(qp_recipe_clamp(t[k] / scale, least - most, most - least)) + zero;
    }
    for (size_t i = 0; i < run->n; i++)
        codes[i] = (uint8_t)(int32_t)qp_recipe_clamp(t[i], least, most);
}

const struct qp_calibrator qp_recipe_gptqmodel = {
    QP_RECIPE("reference:gptqmodel"), .finish = finish, .codes = qp_recipe_encode, .encode = encode,
    .makes = qp_recipe_is_integers,
};
