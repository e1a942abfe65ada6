/*
 * mse.h - what the two halves of the least squared error share: mse_trials.c says what is tried
 * next for a set, mse.c tries it.
 *
 * For given codes q the best scale is <x,q> / <q,q>, and what it leaves of |x|^2 is least where
 * <x,q>^2 / <q,q> is largest. So a trial is a way to make codes, and its score needs no scale. A
 * few trials at a time are scored in a pass; the next pass looks nearer to the best so far. Last,
 * the real quantizer is run with minmax's parameters and with the best ones, as they are stored,
 * and the least error wins. So no set is ever worse than by minmax.
 */
#ifndef QP_CALIBRATE_MSE_H
#define QP_CALIBRATE_MSE_H

#include "calibrate.h"
#include "kernels/search/trials.h"

/* How hard it is tried: each level does what those before it do, and more. */
enum qp_mse_level { QP_MSE_FAST = 1, QP_MSE_BEST, QP_MSE_EXACT, QP_MSE_LEVELS };

/* What a pass does. */
enum qp_mse_move {
    QP_MSE_RANGE,  /* finds the range */
    QP_MSE_GRID,   /* trials over the window of the code type */
    QP_MSE_SPREAD, /* beyond the window if its end was best, else near the best */
    QP_MSE_ZEROS,  /* neighbouring zero points or offsets, else near the best */
    QP_MSE_POLISH, /* the scale that is best for the best codes */
    QP_MSE_FINE,   /* twice as many trials as the grid */
    QP_MSE_OTHER,  /* as many with the other sign, or neighbouring zero points */
    QP_MSE_DENSE,  /* very many */
    QP_MSE_JUDGE   /* the errors of the real quantizer */
};

struct qp_mse_pass {
    enum qp_mse_move move;
    enum qp_mse_level level;
    unsigned part; /* of a move that takes several passes */
};

#define QP_MSE_DENSE_PARTS 24

/* What a search of the first level needs of a calibrator. */
#define QP_MSE_FAST_PASSES 7

/* A way to make codes: rne(x * step + shift), for x relative to the set's unit. */
struct qp_mse_trial {
    double step, shift;
    double share; /* of the largest step that clips nothing */
    int32_t zero; /* the zero point; of biased codes, quarters of a code that they are shifted by */
    int sign;     /* of the scale */
    double spread; /* the distance to its neighbours, as a share */
};

/* What is found in a pass, of a set. */
struct qp_mse_state {
    uint64_t n; /* values */
    union {
        struct qp_trial_sums sums;
        int64_t errors[QP_MSE_LEVELS];
    };
};

/* Parameters as the quantizer takes them. */
struct qp_mse_params {
    double scale;
    int32_t zero;
};

/* What is known of a set. */
struct qp_mse_known {
    double lo, hi;
    double unit;        /* a power of 2 that brings the larger end to 1 .. 2 in size */
    double score;       /* of the best trial */
    double scale, bias; /* the best for its codes, relative to the unit */
    struct qp_mse_trial best;
    struct qp_mse_params last[QP_MSE_LEVELS]; /* minmax's, then the best of each level */
};

/* Sets the trials of a pass; returns how many there are. */
unsigned qp_mse_trials(const struct qp_code_rule *rule, bool positive,
                       const struct qp_mse_pass *pass, const struct qp_mse_known *known,
                       struct qp_mse_trial trials[QP_TRIALS]);

/* The steps from the zero point to the least and the most code. */
void qp_mse_limits(const struct qp_code_rule *rule, int32_t zero, int32_t *least, int32_t *most);

#endif
