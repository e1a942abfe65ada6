/*
 * scheme.h - how one tensor is quantized: scheme text in and out, and what a scheme means without a
 * shape. What it means for a shape is sets.h.
 */
#ifndef QP_MODEL_SCHEME_H
#define QP_MODEL_SCHEME_H

#include "lib/base/error.h"

/* Whether its parts go together: a bias is one of unsigned codes, a narrow range one of signed
 * integers, floats and tables are symmetric, and scales of tables alone have scales. */
bool qp_scheme_is_sound(const struct qplan_scheme *scheme);

/* Codes of integers: the lowest and the highest, narrow range considered. */
void qp_scheme_range(const struct qplan_scheme *scheme, int32_t *q_min, int32_t *q_max);

/*
 * A scheme with its negative axis counted from the end; false if a tensor of that rank lacks
 * the axis, or the axes that a group or block runs over.
 */
bool qp_scheme_resolve(const struct qplan_scheme *scheme, unsigned rank,
                       struct qplan_scheme *resolved);

bool qp_scheme_equal(const struct qplan_scheme *a, const struct qplan_scheme *b);

/*
 * Whether a scheme is what engines are told of it: not whether a bias is symmetric, and of an open
 * symmetry nothing.
 */
bool qp_scheme_told(const struct qplan_scheme *scheme, const struct qplan_scheme *told,
                    bool open_symmetry);

#endif
