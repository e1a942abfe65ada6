/*
 * code.c - finds a code type, and what a scheme makes of it.
 */
#include "code.h"

const struct qp_code_type *qp_code_type(enum qplan_dtype dtype)
{
    const struct qp_code_type *const *row = qp_code_types;
    while (*row && (*row)->dtype != dtype)
        row++;
    return *row;
}

struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme)
{
    struct qp_code_rule rule = {
        .type = qp_code_type(scheme->dtype),
        .asymmetric = scheme->asymmetric,
        .scale_dtype = scheme->scale_dtype,
    };
    qp_scheme_range(scheme, &rule.q_min, &rule.q_max);
    return rule;
}
