/*
 * mlx_blocks.c - the recipe of MLX for blocks of floats whose scales are bytes, as its CPU computes
 * it: W is the type of the weights, and every step is rounded to it. For a set with the largest
 * size m of a value and codes up to n:
 *
 *     nvfp4   s = e4m3(W(m / n))
 *     mx      s is the power of two that is not below W(m / n), and 1 where that is 0
 *     codes   of 8 bits the nearest to W(x / s); of 4 bits those whose difference from it, in f32,
 *             is the least, of equal ones the smallest: so the code of 0 has no sign, and that of
 *             values far beyond the largest is 0
 *
 * Powers below 2^-127 wrap around in the tool, and their values become huge: that is refused.
 */
#include "recipe.h"

#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#include <math.h>
#include <string.h>

/* ---- Parameters --------------------------------------------------------------------------------
 */

static float mx_scale(const struct qp_calibration *c, float part)
{
    int exponent;
    const bool is_power = frexpf(part, &exponent) == 0.5f;
    (void)c;
    if (part == 0)
        return 1;
    return exponent - is_power < -127 ? NAN : ldexpf(1, exponent - is_power);
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    float *s = scale;
    (void)pass;
    qp_recipe_parts(c, n, state, (float)c->rule->type->largest, scale);
    qp_recipe_round_all(c, n, scale);
    if (c->rule->scale_dtype == QPLAN_E8M0)
        return qp_recipe_scales(c, n, scale, zero, mx_scale);
    for (size_t i = 0; i < n; i++)
        s[i] = qp_widen_f8e4m3(qp_narrow_f8e4m3(s[i]));
    memset(zero, 0, n * sizeof *zero);
    return n;
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

#define SIZES 8 /* of codes of 4 bits */

/* Up to this the differences from all sizes are exact, or at least not equal. */
#define FAR 0x1p20f

/* Of a quotient beyond that: the first with the least difference in f32. */
static unsigned far_code(float size)
{
    static const float sizes[SIZES] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    unsigned code = 0;
    for (unsigned i = 1; i < SIZES; i++)
        code = size - sizes[i] < size - sizes[code] ? i : code;
    return code;
}

/*
 * Between two sizes both differences are exact where they are nearly equal, so that a quotient up
 * to the largest size has the nearest one, or the smaller of two. Of quotients that are rounded to
 * 11 bits or fewer, a little less is nearer to the smaller of two sizes where the quotient is as
 * near to both, and to the same one elsewhere.
 */
#define LITTLE_LESS (1 - 0x1p-22f)

static uint8_t near_code(float size)
{
    return (uint8_t)((size > 0.25f) + (size > 0.75f) + (size > 1.25f) + (size > 1.75f) +
                     (size > 2.5f) + (size > 3.5f) + (size > 5));
}

/* Of quotients that are rounded, none of which is far; they are changed. */
static void rounded_codes(const struct qp_calibration *c, size_t n, float *t, uint8_t *codes)
{
    const uint8_t sign = c->rule->type->grid.sign;
    for (size_t i = 0; i < n; i++)
        t[i] *= LITTLE_LESS;
    qp_recipe_floats(c, n, t, codes);
    for (size_t i = 0; i < n; i++)
        codes[i] = codes[i] == sign ? 0 : codes[i];
}

static void small_codes(const struct qp_calibration *c, size_t n, float *t, uint8_t *codes)
{
    const uint8_t sign = c->rule->type->grid.sign;
    unsigned n_far = 0;
    for (size_t i = 0; i < n; i++)
        n_far += fabsf(t[i]) <= FAR ? 0u : 1u;
    if (n_far == 0 && c->kernels->dtype != QPLAN_F32) {
        rounded_codes(c, n, t, codes);
        return;
    }
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(near_code(fabsf(t[i])) | (t[i] < -0.25f ? sign : 0));
    for (size_t i = 0; n_far > 0 && i < n; i++) { /* also where the scale is 0 */
        if (fabsf(t[i]) <= FAR)
            continue;
        const unsigned code = far_code(fabsf(t[i]));
        codes[i] = (uint8_t)(code | (code > 0 && t[i] < 0 ? sign : 0u));
    }
}

static void encode(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *t,
                   uint8_t *codes)
{
    qp_recipe_divide(to, run, t);
    qp_recipe_round(to->c, to->c->kernels->dtype, run->n, t);
    if (to->c->rule->type->bits == 4)
        small_codes(to->c, run->n, t, codes);
    else
        qp_recipe_floats(to->c, run->n, t, codes);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_floats(scheme, QPLAN_E8M0) || qp_recipe_is_floats(scheme, QPLAN_F8E4M3);
}

const struct qp_calibrator qp_recipe_mlx_blocks = {
    QP_RECIPE("reference:mlx"), .finish = finish, .codes = qp_recipe_encode,
    .encode = encode,           .makes = makes,
};
