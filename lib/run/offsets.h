/*
 * offsets.h - what is added to scales that have scales, found in a pass of its own before any code
 * is made: the mean of the largest sizes of all sets of a tensor.
 */
#ifndef QP_RUN_OFFSETS_H
#define QP_RUN_OFFSETS_H

#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/*
 * The offset of each tensor of a plan whose scales have scales, by its place in the plan; NULL if
 * there is none. To be released with qp_free. The mean is that of an exact sum, so it is the same
 * for every team and tile. It is above 0: the least float where the mean is less. CPU only.
 */
enum qplan_status qp_find_offsets(float **offsets, const struct qplan_plan *plan,
                                  const struct qplan_run *run, struct qplan_error *err);

/* Writes the text parts that tell the offsets which were found; NULL is none. */
enum qplan_status qp_write_offsets(const float *offsets, const struct qplan_plan *plan,
                                   const struct qp_outs *outs, struct qplan_error *err);

#endif
