/*
 * arrange.h - the tensors of a checkpoint as an output has them: where a model keeps the experts of
 * a layer in one tensor and the output each in its own, or the other way round, the tensors that
 * stand in the place of the stored ones. Their values are read through an excerpt of these.
 */
#ifndef QP_STORE_ARRANGE_H
#define QP_STORE_ARRANGE_H

#include "checkpoint.h"

/* What is asked for. */
struct qp_arrangement {
    bool split;   /* fused experts one by one */
    bool stack;   /* of each projection all experts in one, single or fused ones */
    bool unstack; /* such stacks one by one */
    bool engines; /* of those that are split, only what engines load so */
    const struct qplan_checkpoint
        *like; /* only what this checkpoint has; NULL = wherever one can */
};

/* Tensors in byte-wise order of names: those of a checkpoint, which must outlive them, or others.
 */
struct qp_arranged {
    const struct qp_tensor *list;
    size_t n;
    struct qp_tensor *made; /* the list, unless it is the checkpoint's */
    struct qp_arena arena;
};

/*
 * Arranges the tensors of a checkpoint. INVALID if experts are to be split, without a checkpoint to
 * be like, and it is not known how such a model has them, or engines do not load them so.
 * qp_arranged_free in any case.
 */
enum qplan_status qp_arrange(struct qp_arranged *out, const struct qplan_checkpoint *checkpoint,
                             const struct qp_arrangement *wish, struct qplan_error *err);
void qp_arranged_free(struct qp_arranged *arranged);

/* The tensor with this name, or NULL. */
const struct qp_tensor *qp_arranged_find(const struct qp_arranged *arranged, const char *name,
                                         size_t n);

#endif
