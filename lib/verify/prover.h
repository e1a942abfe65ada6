/*
 * prover.h - a proof while it is made, for proof.c and metadata.c.
 */
#ifndef QP_VERIFY_PROVER_H
#define QP_VERIFY_PROVER_H

#include "proof.h"

struct qp_prover {
    struct qp_proof *proof;
    size_t n_pairs;
    bool failed;     /* err describes the first offence, if .strict */
    bool impossible; /* what the file says it was made by cannot be done to the source */
    struct qplan_error *err;
};

/* Something is not as it must be. */
void QP_PRINTF(3, 4) qp_offend(struct qp_prover *prover, const char *subject, const char *fmt, ...);

/*
 * Compares the metadata of the file with those of the source: all of them, or where another tool
 * made the file, which hands on what it likes, those that both have. MEMORY.
 */
enum qplan_status qp_prove_metadata(struct qp_prover *prover);

#endif
