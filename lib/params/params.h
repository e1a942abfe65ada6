/*
 * params.h - the numbers of struct qplan_params, some sets at a time, without memory of their own:
 * what the public functions and the operator params_from_statistics share.
 */
#ifndef QP_PARAMS_H
#define QP_PARAMS_H

#include "lib/model/scheme.h"

/* Which number is wrong, what it should be, and what it is. */
struct qp_params_fault {
    enum { QP_PARAMS_MIN, QP_PARAMS_MAX, QP_PARAMS_ZERO_POINT } member;
    const char *expected;
    double found;
};

static inline bool qp_params_is_f64(const struct qplan_params *params)
{
    return params->scale_dtype == QPLAN_F64;
}

/* The codes that are used. */
static inline void qp_params_range(const struct qplan_params *params, int32_t *q_min,
                                   int32_t *q_max)
{
    const struct qplan_scheme scheme = {.dtype = params->dtype, .narrow = params->narrow_range};
    qp_scheme_range(&scheme, q_min, q_max);
}

/* INVALID unless dtype, scheme, narrow_range, scale_dtype and block_size go together. */
enum qplan_status qp_params_check_kind(const struct qplan_params *params, struct qplan_error *err);

/*
 * Whether scales and zero points can be made of the ranges of n sets: n, or the first set of which
 * none can, with the reason.
 */
size_t qp_params_check_ranges(const struct qplan_params *params, const double *min,
                              const double *max, size_t n, struct qp_params_fault *fault);

/*
 * Sets scale, zero point and range of the first n sets, whose statistics must be good; all four
 * arrays must be there, and the kind be good.
 */
void qp_params_set(struct qplan_params *params, const double *min, const double *max, size_t n);

/* The bounds of the errors of the first n sets. */
void qp_params_bounds(const struct qplan_params *params, size_t n, double *out);

#endif
