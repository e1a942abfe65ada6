/*
 * recipe.h - what the recipes of other tools share: the way over a tile, steps and small numbers.
 * All of them work in f32.
 */
#ifndef QP_CALIBRATE_RECIPE_H
#define QP_CALIBRATE_RECIPE_H

#include "calibrate.h"

/* Values that are on their way together, so that they stay in the first-level cache. */
#define QP_RECIPE_RUN 1024

/* Some columns of a row of a tile, at most QP_RECIPE_RUN. */
struct qp_recipe_run {
    size_t col, n;
    size_t width; /* of a set */
    size_t first; /* set of the row, of those of the tile */
};

/* The set of the i-th value of a run, counted from the first of the row, and where its values end.
 */
static inline size_t qp_recipe_set(const struct qp_recipe_run *run, size_t i, size_t *end)
{
    const size_t set = (run->col + i) / run->width;
    const size_t limit = (set + 1) * run->width - run->col;
    *end = limit < run->n ? limit : run->n;
    return set;
}

/* Goes over a tile run by run: take gets the values, and the element of the tile they begin at. */
void qp_recipe_walk(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                    void (*take)(void *ctx, const struct qp_recipe_run *run, float *values,
                                 size_t at),
                    void *ctx);

/* Codes that are made run by run: encode may change the values. */
struct qp_recipe_codes {
    const struct qp_calibration *c;
    const float *scale;
    const int32_t *zero;
    uint8_t *codes;
    void (*encode)(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *values,
                   uint8_t *codes);
};

void qp_recipe_make_codes(const struct qp_recipe_codes *to, const struct qp_tile *tile,
                          const void *src);

/* ->codes of recipes that have ->encode. */
void qp_recipe_encode(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                      const void *scale, const int32_t *zero, uint8_t *codes);

/* What most recipes have in common: scales by the range of each set, which may be too small. */
#define QP_RECIPE(NAME)                                                                            \
    .name = (NAME), .method = "minmax", .can_clip = true, .from_source = true, .passes = 1,        \
    .state_bytes = 2 * sizeof(double), .see = qp_ranges_see, .merge = qp_ranges_merge

/* ---- Steps that recipes have in common ---------------------------------------------------------
 */

/* Rounds n values to a type, half to even, and to infinity; at most QP_RECIPE_RUN. */
void qp_recipe_round(const struct qp_calibration *c, enum qplan_dtype dtype, size_t n, float *x);

/* One value, rounded to the type of the weights. */
static inline float qp_recipe_round_one(const struct qp_calibration *c, float x)
{
    qp_recipe_round(c, c->kernels->dtype, 1, &x);
    return x;
}

/* Of n sets with these ranges the largest size of a value, over a divisor. */
void qp_recipe_parts(const struct qp_calibration *c, size_t n, void *state, float divisor,
                     float *parts);

/* Rounds any number of values to the type of the weights. */
void qp_recipe_round_all(const struct qp_calibration *c, size_t n, float *x);

/*
 * Makes scales of n parts, in their place, and leaves zero points at 0. scale_of gives NaN if the
 * tool's scale cannot be decoded; returns the first such set, or n.
 */
size_t qp_recipe_scales(const struct qp_calibration *c, size_t n, float *scale, int32_t *zero,
                        float (*scale_of)(const struct qp_calibration *c, float part));

/* Divides each value by the scale of its set, which is the stored one with the factor. */
void qp_recipe_divide(const struct qp_recipe_codes *to, const struct qp_recipe_run *run, float *x);

/* The codes of n quotients that are floats; of those beyond the largest that of the largest. */
void qp_recipe_floats(const struct qp_calibration *c, size_t n, const float *t, uint8_t *codes);

/* The least normal number of a type. */
float qp_recipe_least_normal(enum qplan_dtype dtype);

/* Whether a scheme has integers; whether it has floats with scales of this type. */
bool qp_recipe_is_integers(const struct qplan_scheme *scheme);
bool qp_recipe_is_floats(const struct qplan_scheme *scheme, enum qplan_dtype scale);

/* A value between two others; the lower one if it is no number. */
static inline float qp_recipe_clamp(float x, float least, float most)
{
    const float above = x > least ? x : least;
    return above < most ? above : most;
}

/* The least size of an f32 that becomes infinite when it is rounded to a type. */
float qp_recipe_infinite(enum qplan_dtype dtype);

#endif
