/*
 * units.h - running a plan: source bytes in, output bytes at their offsets.
 */
#ifndef QP_RUN_UNITS_H
#define QP_RUN_UNITS_H

#include "lib/base/exact.h"
#include "lib/plan/plan.h"
#include "lib/store/outs.h"
#include "notes.h"

/*
 * What is made of quantized tensors: all parts; scales and zero points alone; or nothing, but codes
 * are made and decoded, and their errors summed, or parameters are handed to who asked for them.
 */
enum qp_roles { QP_ALL_ROLES, QP_PARAMETERS, QP_ERRORS, QP_SETS };

/*
 * The parameters of n neighbouring sets of a tensor: scales and the ranges of values, in working
 * precision, and zero points or biases. A scale is the value of the largest code where that is
 * stored, and the largest size of a value where scales have scales.
 */
struct qp_found_sets {
    const struct qp_plan_tensor *tensor;
    const struct qp_work_kernels *work;
    uint64_t set;
    size_t n;
    const void *scale, *lo, *hi;
    const int32_t *zero;
};

/* Takes them; called by several threads at once. What fails ends the run. */
typedef enum qplan_status (*qp_sets_fn)(void *ctx, const struct qp_found_sets *found,
                                        struct qplan_error *err);

/*
 * Writes every tensor of the plan; the headers are there already. The output has no name yet.
 * QP_PARAMETERS is for the CPU, and for outs that compare: codes are left out.
 */
enum qplan_status qp_run_units(const struct qplan_plan *plan, const struct qp_outs *outs,
                               enum qp_roles roles, const struct qplan_run *run,
                               struct qp_run_notes *notes, struct qplan_error *err);

/*
 * Sums the squared errors of every tensor of a plan, all of which are quantized, and which may have
 * the same source: errors has a sum for each. Errors of a tensor whose columns have importance are
 * weighted by it. Nothing is written. CPU only; the sums are the same for every team and tile.
 */
enum qplan_status qp_measure_units(const struct qplan_plan *plan, struct qp_exact *errors,
                                   const struct qplan_run *run, struct qplan_error *err);

/*
 * Hands the parameters of all sets of a plan to take, once each: of tensors whose calibrator finds
 * ranges in one pass, and by their schemes alone, without a factor. Nothing is written. CPU only.
 */
enum qplan_status qp_find_sets(const struct qplan_plan *plan, qp_sets_fn take, void *ctx,
                               const struct qplan_run *run, struct qplan_error *err);

#endif
