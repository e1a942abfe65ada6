/*
 * bitsandbytes.c - the recipe of bitsandbytes for codes of 8 bits. Weights are rounded to f16, half
 * to even, and all else is done in f32. For a row with the largest size m, which is stored:
 *
 *     codes   rint(x * ((1 / m) * 127)), and 0 where m is 0
 *
 * No value has a size above m, so none is outside -127 .. 127. A row that is infinite in f16 is
 * refused: no decoder gets it back.
 */
#include "recipe.h"

#include "kernels/codes/linear.h"

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    float *most = scale;
    (void)pass;
    for (size_t i = 0; i < n; i++) {
        most[i] = -lo[i] > hi[i] ? -lo[i] : hi[i];
        if (most[i] >= qp_recipe_infinite(QPLAN_F16))
            return i;
        qp_recipe_round(c, QPLAN_F16, 1,
                        &most[i]); /* rounding keeps the order: it is the largest one still */
        zero[i] = 0;
    }
    return n;
}

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x,
                   uint8_t *codes)
{
    const float limit = (float)to->c->rule->q_max;
    qp_recipe_round(to->c, QPLAN_F16, run->n, x);
    for (size_t i = 0, end; i < run->n; i = end) {
        const float most = to->scale[run->first + qp_recipe_set(run, i, &end)];
        const float factor = most > 0 ? 1 / most * limit : 0;
        for (size_t k = i; k < end; k++)
            codes[k] = (uint8_t)qp_steps_f32(qp_recipe_clamp(x[k] * factor, -limit, limit));
    }
}

static void make_codes(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                       const void *scale, const int32_t *zero, uint8_t *codes)
{
    const struct qp_recipe_codes to = {c, scale, zero, codes, encode};
    qp_recipe_make_codes(&to, tile, src);
}

const struct qp_calibrator qp_recipe_bitsandbytes = {
    .name = "reference:bitsandbytes",
    .method = "minmax",
    .can_clip = true,
    .from_source = true,
    .passes = 1,
    .state_bytes = 2 * sizeof(double),
    .see = qp_ranges_see,
    .merge = qp_ranges_merge,
    .finish = finish,
    .codes = make_codes,
    .makes = qp_recipe_is_integers,
};
