/*
 * bitsandbytes.c - the recipe of bitsandbytes, for codes of 8 bits and for nf4. All is done in f32.
 *
 * For codes of 8 bits weights are rounded to f16, half to even. For a row with the largest size m,
 * which is stored:
 *
 *     codes   rint(x * ((1 / m) * 127)), and 0 where m is 0
 *
 * No value has a size above m, so none is outside -127 .. 127. A row that is infinite in f16 is
 * refused: no decoder gets it back.
 *
 * For nf4 the largest size m of a group is stored, and M is m, but not less than 1e-38. The code is
 * that of the nearest value, the lower one of two, to
 *
 *     clamp(x * (1 / M))    or, in a last group with fewer elements, where M is stored, clamp(x /
 * M)
 */
#include "recipe.h"

#include "kernels/codes/book.h"
#include "kernels/codes/linear.h"

/* ---- Parameters --------------------------------------------------------------------------------
 */

/* The least size that values of nf4 are divided by. */
#define LEAST 1e-38f

static bool is_short(const struct qp_calibration *c, size_t set)
{
    return set + 1 == c->short_set;
}

static float of_group(float most)
{
    return most > LEAST ? most : LEAST;
}

static size_t finish_groups(const struct qp_calibration *c, size_t n, const float *lo,
                            const float *hi, float *most, int32_t *zero)
{
    for (size_t i = 0; i < n; i++) {
        most[i] = -lo[i] > hi[i] ? -lo[i] : hi[i];
        if (is_short(c, i))
            most[i] = of_group(most[i]);
        zero[i] = 0;
    }
    return n;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    float *most = scale;
    (void)pass;
    if (c->rule->kind == QP_CODES_BOOK)
        return finish_groups(c, n, lo, hi, most, zero);
    for (size_t i = 0; i < n; i++) {
        most[i] = -lo[i] > hi[i] ? -lo[i] : hi[i];
        if (most[i] >= qp_recipe_infinite(QPLAN_F16))
            return i;
        /* Rounding keeps the order: it is the largest one still. */
        qp_recipe_round(c, QPLAN_F16, 1, &most[i]);
        zero[i] = 0;
    }
    return n;
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

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

static void encode_groups(const struct qp_recipe_codes *to, const struct qp_recipe_run *run,
                          float *x, uint8_t *codes)
{
    float limits[QP_BOOK_SIZE - 1];
    qp_book_limits_f32(to->c->rule->type->book, limits);
    for (size_t i = 0, end; i < run->n; i = end) {
        const size_t set = run->first + qp_recipe_set(run, i, &end);
        const float most = of_group(to->scale[set]), factor = 1 / most;
        const bool divides = is_short(to->c, set);
        for (size_t k = i; k < end; k++) {
            const float t = divides ? x[k] / most : x[k] * factor;
            codes[k] = qp_book_code_f32(qp_recipe_clamp(t, -1, 1), limits);
        }
    }
}

static void make_codes(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                       const void *scale, const int32_t *zero, uint8_t *codes)
{
    const bool is_book = c->rule->kind == QP_CODES_BOOK;
    const struct qp_recipe_codes to = {c, scale, zero, codes, is_book ? encode_groups : encode};
    qp_recipe_make_codes(&to, tile, src);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return (scheme->dtype == QPLAN_NF4 && !scheme->nested) || qp_recipe_is_integers(scheme);
}

const struct qp_calibrator qp_recipe_bitsandbytes = {
    QP_RECIPE("reference:bitsandbytes"),
    .finish = finish,
    .codes = make_codes,
    .makes = makes,
};
