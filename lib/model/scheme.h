/*
 * scheme.h - how one tensor is quantized: scheme text in and out, and what a scheme means without a
 * shape. What it means for a shape is sets.h.
 */
#ifndef QP_MODEL_SCHEME_H
#define QP_MODEL_SCHEME_H

#include "lib/base/error.h"

/* Codes: the lowest and the highest, narrow range considered. */
void qp_scheme_range(const struct qplan_scheme *scheme, int32_t *q_min, int32_t *q_max);

/*
 * A scheme with its negative axis counted from the end; false if a tensor of that rank lacks
 * the axis, or the axes that a group or block runs over.
 */
bool qp_scheme_resolve(const struct qplan_scheme *scheme, unsigned rank,
                       struct qplan_scheme *resolved);

bool qp_scheme_equal(const struct qplan_scheme *a, const struct qplan_scheme *b);

#endif
