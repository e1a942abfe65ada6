/*
 * trials.h - trying codes: sums that tell how well some scale would do for values of a set, before
 * any is chosen.
 *
 * All sums are of integers, so they have no order: tiles, lanes and threads may add them as they
 * like. For that, values are brought to fixed point, relative to the largest of their set.
 */
#ifndef QP_KERNELS_TRIALS_H
#define QP_KERNELS_TRIALS_H

#include "kernels/kernel.h"

/* Trials that are made together. */
#define QP_TRIALS 8

/* Values at a time: their sums of products fit 32 bits. */
#define QP_TRIAL_RUN 256

/* Bits behind the point of a value whose largest neighbour is between 1 and 2 in size. */
#define QP_TRIAL_BITS 14

/*
 * Ways to make codes of values x: rne(x * step + shift), brought to least .. most, one for each of
 * n trials. 0 is within least .. most, and steps and shifts are at most 2^20 in size.
 * Arrays are 0 behind the n-th trial.
 */
struct qp_trials {
    unsigned n;
    bool shifted; /* some shift is not 0, and the sums of codes are wanted */
    float step[QP_TRIALS], shift[QP_TRIALS], least[QP_TRIALS], most[QP_TRIALS];
};

/* Sums over values x and their codes q, with x in units of 2^-QP_TRIAL_BITS. */
struct qp_trial_sums {
    int64_t xq[QP_TRIALS], qq[QP_TRIALS];
    int64_t q[QP_TRIALS], x; /* only where trials are shifted */
    int64_t weight;          /* of all values; only where they have weights */
};

/* The units of weighted sums are 2^-x of those with a value in them, and 2^-q of the others. */
struct qp_trial_bits {
    int x, q; /* at most 40 and 34 */
};

struct qp_trial_kernels {
    enum qplan_isa isa;

    /* n values times the unit of their set, at most 2 in size; and these in fixed point. */
    void (*relate_f32)(size_t n, const float *values, double unit, float *x, int16_t *fixed);
    void (*relate_f64)(size_t n, const double *values, double unit, float *x, int16_t *fixed);

    /* Adds the sums of n values; no more than QP_TRIAL_RUN. */
    void (*sums)(size_t n, const float *x, const int16_t *fixed, const struct qp_trials *trials,
                 struct qp_trial_sums *sums);

    /* Adds sums of values that have weights of at most 1 each. */
    void (*weighted_sums)(size_t n, const float *x, const float *weights,
                          const struct qp_trials *trials, struct qp_trial_bits bits,
                          struct qp_trial_sums *sums);

    /*
     * The sum of ((x - y) * unit)^2 over n values of working precision, each brought to units of
     * 2^-bits. Differences must be below 4 / unit in size, bits at most 46. Where there are
     * weights, each square is multiplied by its own.
     */
    int64_t (*errors_f32)(size_t n, const float *x, const float *y, const float *weights,
                          double unit, int bits);
    int64_t (*errors_f64)(size_t n, const double *x, const double *y, const float *weights,
                          double unit, int bits);
};

/* The best kernels at a level. */
const struct qp_trial_kernels *qp_trial_kernels(enum qplan_isa isa);

extern const struct qp_trial_kernels qp_scalar_trials, qp_avx2_trials, qp_avx512_trials;

#endif
