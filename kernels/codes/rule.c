/*
 * rule.c - what kernels have to know of a scheme.
 */
#include "kernels/kernel.h"

struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme)
{
    struct qp_code_rule rule = {
        .asymmetric = scheme->asymmetric,
        .is_signed = qplan_dtype_is_signed(scheme->dtype),
        .scale_dtype = scheme->scale_dtype,
    };
    qp_scheme_range(scheme, &rule.q_min, &rule.q_max);
    return rule;
}
