/*
 * ldlq_tensors.h - codes that are rounded by Hessians, of all tensors of a plan that have one.
 */
#ifndef QP_RUN_LDLQ_TENSORS_H
#define QP_RUN_LDLQ_TENSORS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"
#include "notes.h"

/*
 * MEMORY, which names what is needed, if the run may not have enough for the largest Hessian of the
 * plan.
 */
enum qplan_status qp_ldlq_check(const struct qplan_plan *plan, const struct qplan_run *run,
                                struct qplan_error *err);

/*
 * Makes and writes the codes of all tensors of a plan that have a Hessian; factors are those of
 * their scales, or NULL. Notes tell where a larger damp was needed. CPU only.
 */
enum qplan_status qp_ldlq_run(const struct qplan_plan *plan, const struct qp_outs *outs,
                              const float *factors, const struct qplan_run *run,
                              struct qp_run_notes *notes, struct qplan_error *err);

#endif
