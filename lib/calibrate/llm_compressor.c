/*
 * llm_compressor.c - the recipe of llm-compressor and compressed-tensors for integer codes and fp8.
 *
 * All arithmetic is in the type W of the weights: a single operation is computed in f32 and rounded
 * half to even to W. For the codes q_min .. q_max of a set with the range lo <= 0 <= hi:
 *
 *     symmetric    s = W(max(-lo, hi) / ((q_max - q_min) / 2)), z = 0
 *     asymmetric   s = W(W(hi - lo) / (q_max - q_min)), z = rne(clamp(W(q_min - W(lo / s))))
 *     codes        rne(clamp(W(W(x / s) + z)))
 *     fp8          s = W(max(-lo, hi) / 448), codes the nearest to clamp(W(x / s))
 *
 * A scale that is 0 then becomes the distance from 1 to the next number of W. Where lo / s is 0 / 0
 * the zero point is 0. A scale that is infinite has no decoder and is refused.
 */
#include "recipe.h"

#include "kernels/codes/linear.h"

#define CHUNK QP_RECIPE_RUN

/* Rounds values to W. */
static void round_all(const struct qp_calibration *c, size_t n, float *x)
{
    qp_recipe_round(c, c->kernels->dtype, n, x);
}

/* ---- Parameters --------------------------------------------------------------------------------
 */

/* The distance from 1 to the next number of W. */
static float step_of(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F16 ? 0x1p-10f : dtype == QPLAN_BF16 ? 0x1p-7f : 0x1p-23f;
}

static void find_symmetric(const struct qp_calibration *c, size_t n, const float *lo,
                           const float *hi, float *scale)
{
    const float half = (float)qp_code_top(c->rule);
    for (size_t i = 0; i < n; i++)
        scale[i] = (-lo[i] > hi[i] ? -lo[i] : hi[i]) / half;
    round_all(c, n, scale);
}

/* Returns n, or the first set whose range is infinite in W. */
static size_t find_asymmetric(const struct qp_calibration *c, size_t n, const float *lo,
                              const float *hi, float *scale, float *zero)
{
    const float least = (float)c->rule->q_min, most = (float)c->rule->q_max;
    const float infinite = qp_recipe_infinite(c->kernels->dtype);
    size_t good = 0;
    for (size_t i = 0; i < n; i++)
        scale[i] = hi[i] - lo[i];
    while (good < n && scale[good] < infinite)
        good++;
    round_all(c, n, scale);
    for (size_t i = 0; i < n; i++)
        scale[i] /= most - least;
    round_all(c, n, scale);
    for (size_t i = 0; i < n; i++)
        zero[i] = lo[i] / scale[i];
    round_all(c, n, zero);
    for (size_t i = 0; i < n; i++)
        zero[i] = least - zero[i];
    round_all(c, n, zero);
    for (size_t i = 0; i < n; i++)
        zero[i] =
            lo[i] == 0 && scale[i] == 0 ? 0 : qp_rne_f32(qp_recipe_clamp(zero[i], least, most));
    return good;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n), *const end = lo + n;
    const float step = step_of(c->kernels->dtype);
    float *s = scale, z[CHUNK] = {0};
    (void)pass;
    for (size_t k; lo < end; lo += k, hi += k, s += k, zero += k) {
        size_t good = k = end - lo < CHUNK ? (size_t)(end - lo) : CHUNK;
        if (c->rule->asymmetric)
            good = find_asymmetric(c, k, lo, hi, s, z);
        else
            find_symmetric(c, k, lo, hi, s);
        if (good < k)
            return n - (size_t)(end - lo) + good;
        for (size_t i = 0; i < k; i++) {
            s[i] = s[i] == 0 ? step : s[i];
            zero[i] = (int32_t)z[i];
        }
    }
    return n;
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *t,
                   uint8_t *codes)
{
    const struct qp_calibration *c = to->c;
    const float least = (float)c->rule->q_min, most = (float)c->rule->q_max;
    qp_recipe_divide(to, run, t);
    round_all(c, run->n, t);
    for (size_t i = 0, end; c->rule->asymmetric && i < run->n; i = end) {
        const float zero = (float)to->zero[run->first + qp_recipe_set(run, i, &end)];
        for (size_t k = i; k < end; k++)
            t[k] += zero;
    }
    if (c->rule->asymmetric)
        round_all(c, run->n, t);
    if (c->rule->kind == QP_CODES_FLOAT) {
        qp_recipe_floats(c, run->n, t, codes);
        return;
    }
    for (size_t i = 0; i < run->n; i++)
        codes[i] = (uint8_t)qp_steps_f32(qp_recipe_clamp(t[i], least, most));
}

/* Scales are of the type of the weights. */
static bool makes(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_integers(scheme) ||
           (scheme->dtype == QPLAN_F8E4M3 && qplan_dtype_bits(scheme->scale_dtype) > 8);
}

const struct qp_calibrator qp_recipe_llm_compressor = {
    QP_RECIPE("reference:llm-compressor"),
    .finish = finish,
    .codes = qp_recipe_encode,
    .encode = encode,
    .makes = makes,
};
