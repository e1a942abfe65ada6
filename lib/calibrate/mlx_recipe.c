/*
 * mlx_recipe.c - the recipe of MLX for codes with a bias, as its CPU computes it, in f32. For the
 * codes 0 .. n of a set with the least value lo and the largest value hi:
 *
 *     s = max((hi - lo) / n, 1e-7)
 *     the edge is lo if |lo| > |hi|, else hi, and then s becomes -s
 *     q = rint(edge / s); if q is not 0, s = edge / q and the bias is the edge; else it is 0
 *     codes: clamp(rint((x - bias) / s))
 *
 * Scale and bias are rounded to their type when they are stored, and not for the codes. The range
 * need not hold 0, unlike that of other rows.
 *
 * The state of n sets is their largest values, then their least ones, each as a number that grows
 * with how far it reaches: 0 is that of a set of which nothing was seen.
 */
#include "recipe.h"

#include "kernels/codes/biased.h"

#include <math.h>

/* ---- Ranges ------------------------------------------------------------------------------------
 */

/* An integer in the order of f32 values, and the value of it. */
static int32_t order_of(float x)
{
    const int32_t bits = (int32_t)qp_bits_f32(x);
    return bits ^ (bits >> 31 & INT32_MAX);
}

static float of_order(int32_t order)
{
    return qp_of_bits_f32((uint32_t)(order ^ (order >> 31 & INT32_MAX)));
}

/* How far the order of a largest value reaches, and what reaches so far. */
static uint32_t reach_of(int32_t order)
{
    return (uint32_t)order ^ 0x80000000u;
}

static float of_reach(uint32_t reach)
{
    return of_order((int32_t)(reach ^ 0x80000000u));
}

static void widen(uint32_t *reach, uint32_t by)
{
    *reach = by > *reach ? by : *reach;
}

/* What was seen of the sets of a tile. */
struct sight {
    uint32_t *most, *least;
    uint64_t n_others; /* values that are not finite */
};

/* How many values are not finite: their orders lie beyond those of all that are. */
static uint64_t count_others(const float *x, size_t n)
{
    uint64_t n_others = 0;
    for (size_t i = 0; i < n; i++)
        n_others += fabsf(x[i]) < INFINITY ? 0 : 1;
    return n_others;
}

static void see_run(void *ctx, const struct qp_recipe_run *run, float *x, size_t at)
{
    struct sight *sight = ctx;
    (void)at;
    for (size_t i = 0, end; i < run->n; i = end) {
        const size_t set = run->first + qp_recipe_set(run, i, &end);
        int32_t most = INT32_MIN, least = INT32_MAX;
        for (size_t k = i; k < end; k++) {
            const int32_t order = order_of(x[k]);
            most = order > most ? order : most;
            least = order < least ? order : least;
        }
        widen(&sight->most[set], reach_of(most));
        widen(&sight->least[set], ~reach_of(least));
        if (most >= order_of(INFINITY) || least <= order_of(-INFINITY))
            sight->n_others += count_others(x + i, end - i);
    }
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    uint32_t *most = state;
    struct sight sight = {.most = most, .least = most + qp_tile_sets(tile)};
    (void)pass;
    qp_recipe_walk(c, tile, src, see_run, &sight);
    return sight.n_others;
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    uint32_t *most = (uint32_t *)state + first, *least = most + n_all;
    const uint32_t *other = of_tile;
    (void)c, (void)pass;
    for (size_t i = 0; i < n; i++) {
        widen(&most[i], other[i]);
        widen(&least[i], other[n + i]);
    }
}

/* ---- Parameters --------------------------------------------------------------------------------
 */

static float find_scale(float lo, float hi, float steps, float *bias)
{
    const float width = (hi - lo) / steps, positive = width > 1e-7f ? width : 1e-7f;
    const bool is_low = fabsf(lo) > fabsf(hi);
    const float edge = is_low ? lo : hi, scale = is_low ? positive : -positive;
    const float q = rintf(edge / scale);
    *bias = q != 0 ? edge : 0;
    return q != 0 ? edge / q : scale;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const uint32_t *most = state, *least = most + n;
    const float steps = (float)c->rule->q_max;
    const float infinite = qp_recipe_infinite(c->rule->scale_dtype);
    float *s = scale;
    (void)pass;
    for (size_t i = 0; i < n; i++) {
        float bias;
        s[i] = find_scale(of_reach(~least[i]), of_reach(most[i]), steps, &bias);
        if (!(fabsf(s[i]) < infinite && fabsf(bias) < infinite))
            return i;
        zero[i] = qp_bias_bits(bias);
    }
    return n;
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

/* The kernels for biased codes compute the very same, of numbers. */
static void make_codes(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                       const void *scale, const int32_t *zero, uint8_t *codes)
{
    c->quantizer->quantize(tile, src, c->rule, scale, zero, codes);
}

static bool makes(const struct qplan_scheme *scheme)
{
    return qp_recipe_is_integers(scheme) && scheme->asymmetric;
}

const struct qp_calibrator qp_recipe_mlx = {
    .name = "reference:mlx",
    .method = "minmax",
    .can_clip = true,
    .from_source = true,
    .passes = 1,
    .state_bytes = 2 * sizeof(uint32_t),
    .see = see,
    .merge = merge,
    .finish = finish,
    .codes = make_codes,
    .makes = makes,
};
