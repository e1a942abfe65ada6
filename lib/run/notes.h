/*
 * notes.h - what should be known of a run that ended well.
 */
#ifndef QP_RUN_NOTES_H
#define QP_RUN_NOTES_H

#include "lib/base/warning.h"

struct qp_run_notes {
    bool fewer_threads; /* the system refused some; the bytes are the same */
    struct qp_warnings warnings;
    struct qp_arena arena; /* of these */
};

static inline void qp_run_notes_free(struct qp_run_notes *notes)
{
    qp_arena_free(&notes->arena);
}

#endif
