/*
 * factors.h - the factors of scales that have one, found in a pass of their own before any code is
 * made: a factor follows from the largest value of its tensor or, where the layout wants one factor
 * for tensors that engines load as one, of all of these, in whichever shards they are.
 */
#ifndef QP_RUN_FACTORS_H
#define QP_RUN_FACTORS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/*
 * The factor of each tensor of a plan that has one, by its place in the plan; NULL if none has. To
 * be released with qp_free. The largest size of a value of each tensor is read from the source,
 * unless most has it, by its place in the plan. VALUE if a factor is too large. CPU only.
 */
enum qplan_status qp_find_factors(float **factors, const struct qplan_plan *plan,
                                  const double *most, const struct qplan_run *run,
                                  struct qplan_error *err);

/* Writes the factors that were found; NULL is none. */
enum qplan_status qp_write_factors(const float *factors, const struct qplan_plan *plan,
                                   const struct qp_outs *outs, struct qplan_error *err);

#endif
