/*
 * constants.h - parts of an output that are known without any value of its tensor.
 */
#ifndef QP_RUN_CONSTANTS_H
#define QP_RUN_CONSTANTS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/* Writes the constants and the indexes of all tensors. */
enum qplan_status qp_write_constants(const struct qplan_plan *plan, const struct qp_outs *outs,
                                     struct qplan_error *err);

#endif
