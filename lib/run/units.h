/*
 * units.h - running a plan: source bytes in, output bytes at their offsets.
 */
#ifndef QP_RUN_UNITS_H
#define QP_RUN_UNITS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/*
 * Writes every tensor of the plan; the headers are there already. The output has no name yet.
 * *all_threads is false if the system refused some; the bytes are the same.
 */
enum qplan_status qp_run_units(const struct qplan_plan *plan, const struct qp_outs *outs,
                               const struct qplan_run *run, bool *all_threads,
                               struct qplan_error *err);

#endif
