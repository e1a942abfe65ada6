/*
 * mse.h - what the parts of the least squared error share. mse.c goes through the passes;
 * mse_trials.c and mse_scales.c say what is tried next for a set, mse_judge.c runs the real
 * quantizer.
 *
 * Where a scale may be any number, codes that are integers are searched for themselves: for given
 * codes q the best scale is <x,q> / <q,q>, and what it leaves of |x|^2 is least where
 * <x,q>^2 / <q,q> is largest. So a trial is a way to make codes, and its score needs no scale. Some
 * trials are scored in a pass; the next pass looks nearer to the best so far. Last, the real
 * quantizer is run with minmax's parameters and with the best ones, as they are stored, and the
 * least error wins.
 *
 * Codes that are floats or places in a table, and scales of few bits, are not made by rounding to
 * integers or not free. There the real quantizer is run with every scale that is tried, minmax's
 * among them, and the least error wins at once. Either way no set is ever worse than by minmax.
 */
#ifndef QP_CALIBRATE_MSE_H
#define QP_CALIBRATE_MSE_H

#include "kernels/search/trials.h"
#include "tile_values.h"

/* How hard it is tried: each level does what those before it do, and more. */
enum qp_mse_level { QP_MSE_FAST = 1, QP_MSE_BEST, QP_MSE_EXACT, QP_MSE_LEVELS };

/* What a pass does. */
enum qp_mse_move {
    QP_MSE_RANGE,  /* finds the range */
    QP_MSE_GRID,   /* trials over the window of the code type */
    QP_MSE_SPREAD, /* beyond the window if its end was best, else near the best */
    QP_MSE_ZEROS,  /* neighbouring zero points or offsets */
    QP_MSE_POLISH, /* the scale that is best for the best codes */
    QP_MSE_FINE,   /* twice as many trials as the grid */
    QP_MSE_OTHER,  /* as many with the other sign, or neighbouring zero points */
    QP_MSE_DENSE,  /* very many */
    QP_MSE_JUDGE,  /* the errors of the real quantizer with the best of each level */
    QP_MSE_SCALES  /* the errors of the real quantizer with some scales */
};

struct qp_mse_pass {
    enum qp_mse_move move;
    enum qp_mse_level level;
    unsigned part; /* of a move that takes several passes */
};

#define QP_MSE_DENSE_PARTS 24

/* Passes that try scales: those of each level follow on those of the levels before. */
#define QP_MSE_FAST_PARTS  6
#define QP_MSE_BEST_PARTS  12
#define QP_MSE_EXACT_PARTS 38

/* All passes of the first level. */
#define QP_MSE_FAST_PASSES (QP_MSE_FAST_PARTS + 1)

/* Ways to make codes of x relative to the set's unit, and where they come from. */
struct qp_mse_trials {
    struct qp_trials codes;
    double share[QP_TRIALS]; /* of the largest step that clips nothing */
    double spread;           /* the distance of a trial to its neighbours, as a share */
    int32_t zero[QP_TRIALS]; /* zero points; of biased codes, quarters of a code that they are
                              * shifted by */
    int sign;                /* of the scale */
};

/* Parameters as the quantizer takes them. */
struct qp_mse_params {
    double scale;
    int32_t zero;
};

/* What is tried as it is: parameters, and how they were found. */
struct qp_mse_scale {
    struct qp_mse_params params;
    double share;  /* of the scale that makes the largest value the largest of the codes */
    double spread; /* the distance to its neighbours, as a share */
};

/* The best trial. */
struct qp_mse_best {
    double share, spread;
    int32_t zero;
    int sign;
};

/* What is known of a set. */
struct qp_mse_known {
    double lo, hi;
    double unit;        /* a power of 2 that brings the larger end to 1 .. 2 in size */
    double score;       /* of the best trial */
    double scale, bias; /* the best for its codes, relative to the unit */
    struct qp_mse_best best;
    struct qp_mse_scale found;                /* the best that was tried as it is */
    int64_t error;                            /* what it leaves */
    struct qp_mse_params last[QP_MSE_LEVELS]; /* minmax's, then the best of each level */
};

/* What is found in a pass, of a set. */
struct qp_mse_state {
    uint64_t n; /* values */
    union {
        struct qp_trial_sums sums;
        int64_t errors[QP_TRIALS];
    };
};

/* A tile that is being seen. */
struct qp_mse_seeing {
    const struct qp_calibration *c;
    struct qp_mse_pass pass;
    const struct qp_trial_kernels *kernels;
    const struct qp_quantizer *quantizer; /* from working precision */
    struct qp_mse_state *states;
    bool positive;               /* scales are above 0 */
    struct qp_trial_bits bits;   /* behind the point of sums */
    double x_unit, q_unit;       /* of sums with a value in them, and of the others */
    struct qp_mse_trials trials; /* of the set at hand */
};

static inline struct qp_mse_known *qp_mse_known_of(const struct qp_calibration *c)
{
    return c->known;
}

/* Whether scales are few numbers, to be tried one by one. */
static inline bool qp_mse_is_few(const struct qp_code_rule *rule)
{
    return rule->scale_dtype == QPLAN_E8M0 || rule->scale_dtype == QPLAN_F8E4M3;
}

/* Whether scales are tried as they are, by the real quantizer. */
static inline bool qp_mse_tries_scales(const struct qp_code_rule *rule)
{
    return qp_is_valued(rule->kind) || qp_mse_is_few(rule);
}

/*
 * Whether all scales are above 0: those of floats lose nothing by it, few numbers have no sign, and
 * a scale that is stored as the value of the largest code has none.
 */
bool qp_mse_is_positive(const struct qp_calibration *c);

/*
 * A number in the type of stored scales; whether one is good enough to be tried for a set: it can
 * be used, and where errors are weighted it is near minmax's.
 */
double qp_mse_stored(const struct qp_calibration *c, double x);
bool qp_mse_is_good(const struct qp_calibration *c, const struct qp_mse_known *known, double scale);

/*
 * Whether a pass of trials is left out: what follows on an offset is found slowly, other codes
 * soon, and many codes have next to nothing left to find near the best.
 */
static inline bool qp_mse_is_idle(const struct qp_code_rule *rule, const struct qp_mse_pass *pass)
{
    return pass->move == QP_MSE_POLISH && pass->level == QP_MSE_FAST &&
           rule->kind != QP_CODES_BIASED && (pass->part > 0 || rule->type->bits > 3);
}

/* The shares of trials that a pass has for every set. */
void qp_mse_prepare(const struct qp_code_rule *rule, const struct qp_mse_pass *pass,
                    struct qp_mse_trials *trials);

/* Sets the trials of a pass, for which they are prepared or were set for another set. */
void qp_mse_trials(const struct qp_code_rule *rule, bool positive, const struct qp_mse_pass *pass,
                   const struct qp_mse_known *known, struct qp_mse_trials *trials);

/* The steps from the zero point to the least and the most code. */
void qp_mse_limits(const struct qp_code_rule *rule, int32_t zero, int32_t *least, int32_t *most);

/* How many scales are tried in a part; the k-th of them. False if a set has none there. */
unsigned qp_mse_n_scales(const struct qp_calibration *c, unsigned part);
bool qp_mse_scale(const struct qp_calibration *c, const struct qp_mse_known *known, unsigned part,
                  unsigned k, struct qp_mse_scale *out);

/*
 * Adds the errors of the real quantizer to the states of a run: with the parameters of each level,
 * or with those of a part.
 */
void qp_mse_judge(const struct qp_mse_seeing *s, const struct qp_values_run *run);

/* Bits behind the point of an error, and of sums over n values at the most, so that sums fit. */
int qp_mse_elems_bits(const struct qp_calibration *c);

#endif
