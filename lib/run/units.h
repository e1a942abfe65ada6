/*
 * units.h - running a plan: source bytes in, output bytes at their offsets.
 */
#ifndef QP_RUN_UNITS_H
#define QP_RUN_UNITS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/* What is made of quantized tensors: all parts, or scales and zero points alone. */
enum qp_roles { QP_ALL_ROLES, QP_PARAMETERS };

/*
 * Writes every tensor of the plan; the headers are there already. The output has no name yet.
 * QP_PARAMETERS is for the CPU, and for outs that compare: codes are left out. *all_threads is
 * false if the system refused some; the bytes are the same.
 */
enum qplan_status qp_run_units(const struct qplan_plan *plan, const struct qp_outs *outs,
                               enum qp_roles roles, const struct qplan_run *run, bool *all_threads,
                               struct qplan_error *err);

#endif
