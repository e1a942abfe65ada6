/*
 * recompute.h - the parameters and codes of a file computed again from its source, by the code that
 * makes them, and compared with what is stored.
 *
 * The parameters of sets that a unit of the comparison has in memory anyway are computed in passing
 * (recompute_unit.c). What that leaves open is a job of its own (recompute.c), which also tells
 * what is wrong, and where.
 */
#ifndef QP_VERIFY_RECOMPUTE_H
#define QP_VERIFY_RECOMPUTE_H

#include "lib/calibrate/calibrate.h"
#include "lib/run/stored.h"
#include "measure.h"

struct qplan_plan;

/* What a file may have been made with besides its source. */
struct qp_made_with {
    const struct qp_importance *importance; /* NULL = none is known */
    const struct qp_hessians *hessians;     /* likewise */
    double hessian_damp;
};

/*
 * Finds what errors in the columns of each quantized tensor count: what the plan says, if there is
 * one, else the data, of which those come first by which its record says that it was made. INVALID
 * if they are not for it.
 */
enum qplan_status qp_find_weights(struct qp_pair *pairs, size_t n, const struct qplan_plan *plan,
                                  const struct qp_made_with *with, struct qp_arena *arena,
                                  struct qplan_error *err);

/* Whole sets of a quantized tensor whose elements are in memory. */
struct qp_whole_sets {
    const struct qp_source *file;
    const struct qp_tensor *tensor;
    const struct qp_calibrator *calibrator; /* of one pass */
    struct qp_calibration calibration;
    const struct qp_sets *sets;
    uint64_t begin, end; /* the elements, flat; both are limits of sets */
    const void *src;     /* element begin */

    /* Room for n_sets sets each: what is stored, what is computed. */
    size_t n_sets;
    struct qp_param_window stored;
    void *state, *scale;
    int32_t *zero;
};

/*
 * Counts the sets whose stored parameters are those that the calibrator gives, under the stored
 * factor if they have one, and finds the largest size of a value that one gives by ranges. Sets
 * must follow each other in flat order: qp_set_limit gives their limits.
 */
enum qplan_status qp_recompute_sets(const struct qp_whole_sets *whole, uint64_t *n_same,
                                    double *most, struct qplan_error *err);

/* The first limit between flat sets at an element or behind it. */
uint64_t qp_set_limit(const struct qp_sets *sets, uint64_t elem);

/*
 * Computes the tensors of pairs again whose parameters follow from the source and what they were
 * made with: with .exact, or where a recipe or a Hessian made codes, all of their bytes, else the
 * parameters of those whose .sets_same does not tell that they are right. Of others scales need
 * only be near to minmax's. Sets .wrong of their results, and .computed. CPU only.
 */
enum qplan_status qp_recompute_pairs(struct qp_pair *pairs, size_t n,
                                     const struct qplan_checkpoint *file,
                                     const struct qplan_checkpoint *source, bool exact,
                                     const struct qp_made_with *with, const struct qplan_run *run,
                                     struct qplan_error *err);

#endif
