/*
 * proof.h - a file against its source: the errors of its quantized tensors, and the proof. The
 * head of proof.c lists what is proven.
 */
#ifndef QP_VERIFY_PROOF_H
#define QP_VERIFY_PROOF_H

#include "lib/store/arrange.h"
#include "recompute.h"

/* A tensor of the file, and what was found of it. */
struct qp_tested {
    const struct qp_tensor *tensor;   /* given */
    const struct qp_measure *measure; /* of a quantized tensor that the source has too; or NULL */
    bool proven;
};

struct qp_proof {
    const struct qplan_checkpoint *file, *source;
    bool strict;              /* prove; else only compare what both files have */
    bool exact;               /* compute every byte of quantized tensors again */
    bool allow_unquantized;   /* nothing quantized is no offence */
    bool allow_unproven;      /* codes that cannot be proven without being computed are none */
    struct qp_made_with with; /* what they may be computed by besides the source */
    struct qp_made_with weighed_by; /* what tells how errors are weighted, where no plan does: */
    const struct qplan_plan *plan;  /* that the file was just made by; or NULL */
    struct qp_tested *tested;       /* tensors of the file, in name order */
    size_t n_tested;

    struct qp_arranged sources; /* tensors of the source, with experts as the file has them */

    /* What was found. */
    bool holds;              /* nothing that was looked at offends, and all of it is proven */
    uint64_t unproven;       /* quantized tensors that are not proven, and need not be */
    uint64_t missing;        /* tensors of the source that the file lacks */
    struct qp_pair *pairs;   /* the measures of .tested are in here */
    struct qp_tensor *typed; /* those of .tested that got their type from the source */
    struct qp_arena arena;   /* what the columns of pairs count */
};

/*
 * Compares the file with the source. If .strict, PROOF where anything offends: err describes the
 * first offence, and all that was found is there. Else an offence only makes .holds false, and a
 * tensor that does not fit the source is INVALID, since then it is not the source of the file.
 */
enum qplan_status qp_prove(struct qp_proof *proof, const struct qplan_run *run,
                           struct qplan_error *err);

/* Releases the tensors that were given, from qp_alloc, and what qp_prove has made. */
void qp_proof_free(struct qp_proof *proof);

#endif
