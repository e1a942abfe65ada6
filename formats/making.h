/*
 * making.h - what the metadata of a file say of how it was made, beside the records of its tensors:
 * the data that were used besides the source, and what was done about values that are not finite.
 * The same in all shards; what is usual is not said.
 */
#ifndef QP_MAKING_H
#define QP_MAKING_H

#include "format.h"
#include "lib/base/digest.h"

#define QP_IMPORTANCE_KEY   "qplan.importance"
#define QP_HESSIAN_KEY      "qplan.hessian"
#define QP_HESSIAN_DAMP_KEY "qplan.hessian_damp"
#define QP_NONFINITE_KEY    "qplan.nonfinite"

struct qp_making {
    struct qp_digests
        importance;             /* of the files by which errors were weighted, as they were read */
    struct qp_digests hessians; /* of those that codes were rounded by; if there are any: */
    double hessian_damp;        /* the share of the mean that was added to a diagonal */
    bool saturates;             /* what is not finite was brought to a code, not refused */
};

/* Whether a key is one of those above. */
bool qp_is_making_key(const struct qp_st_pair *pair);

/* The pairs that say it, in no order, in the arena; *n of QP_MAKING_PAIRS at the most. MEMORY. */
#define QP_MAKING_PAIRS 4
enum qplan_status qp_making_pairs(const struct qp_making *making, struct qp_arena *arena,
                                  struct qp_st_pair out[QP_MAKING_PAIRS], size_t *n,
                                  struct qplan_error *err);

/*
 * Reads what the files of a checkpoint say that have records. INVALID if it is not what is written
 * above, if digests are in a file of layout "1", in which nothing is made by them, or if it is not
 * the same in all files.
 */
enum qplan_status qp_read_making(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_making *out, struct qplan_error *err);

#endif
