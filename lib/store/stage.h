/*
 * stage.h - a folder that is written: it is built beside its place under another name, OUT.partial,
 * and appears whole by one rename. Until then the old state stands, and a failure removes what was
 * made; after a kill OUT.partial is what is left.
 */
#ifndef QP_STORE_STAGE_H
#define QP_STORE_STAGE_H

#include "lib/base/io.h"

/* A file of the folder. */
struct qp_staged {
    const struct qp_stage *stage;
    const char *name; /* bare */
    mode_t lent;      /* what its owner may only until it is complete: to read or write it */
};

struct qp_stage {
    char *path;    /* of the folder as it will be called, without a slash at its end */
    char *partial; /* where it is built */
    char shown[512];
    int parent, dir; /* of the folder that it will be in; of .partial; -1 = closed */
    int old;         /* of a folder that has its name already; -1 = there is none */
    int mark;        /* that tells others of this run (staging.h); -1 = closed */
    bool force, made;
    struct qp_staged *files; /* that are written by position; their names are the caller's */
    size_t n_files;
    struct qp_handles *handles;
    struct qp_staged *others; /* that were added whole; their names are their own */
    size_t n_others;
};

/*
 * What is wanted of a folder. The umask takes from all modes; what is replaced gives its own
 * instead.
 */
struct qp_stage_request {
    const char *path;
    mode_t mode;         /* of the folder, whose owner may always use it */
    bool force;          /* replace a folder of this name that holds nothing but its like */
    char *const *names;  /* of files that are written by position */
    const mode_t *modes; /* of each */
    size_t n_files;
    char *const *others; /* names of files that are added whole */
    size_t n_others;
    uint64_t n_bytes;   /* that it will have, as far as is known */
    const char *source; /* the folder or file that is read: nothing may lie inside it */
};

/*
 * Checks the target and makes the folder under its other name, with empty files. USAGE if the
 * target is the source, lies in it or holds it; IO if it exists, the space is short, or another run
 * has left its folder. On failure nothing is left.
 */
enum qplan_status qp_stage_open(struct qp_stage *stage, const struct qp_stage_request *request,
                                struct qplan_error *err);

/* Writes n bytes of a file at off. Callable from several threads at once. */
enum qplan_status qp_stage_write(const struct qp_stage *stage, size_t file, uint64_t off,
                                 const void *bytes, size_t n, struct qplan_error *err);

/* Adds a file with these bytes; or with those of a file of the source, and its mode. */
enum qplan_status qp_stage_add(struct qp_stage *stage, const char *name, const void *bytes,
                               size_t n, mode_t mode, struct qplan_error *err);
enum qplan_status qp_stage_copy(struct qp_stage *stage, const char *name, const char *from,
                                struct qplan_error *err);

/*
 * Syncs every file and the folder, gives the folder its name and syncs what it is in. *synced is
 * false on a file system that cannot sync.
 */
enum qplan_status qp_stage_commit(struct qp_stage *stage, bool *synced, struct qplan_error *err);

/* Removes what was made, and closes. Does nothing after a commit, and nothing twice. */
void qp_stage_discard(struct qp_stage *stage);

#endif
