/*
 * params.h - the numbers of struct qplan_params one set at a time, without memory of their own:
 * what the public functions and the operator params_from_statistics share.
 */
#ifndef QP_PARAMS_H
#define QP_PARAMS_H

#include "base/scheme.h"

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
 * Sets scale, zero point and range of set i; all four arrays must be there, and the kind be good.
 * False, with the reason, for statistics that make none.
 */
bool qp_params_set(struct qplan_params *params, size_t i, double min, double max,
                   struct qp_params_fault *fault);

/* The bound of the error of set i. */
double qp_params_bound(const struct qplan_params *params, size_t i);

#endif
