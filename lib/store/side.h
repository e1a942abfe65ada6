/*
 * side.h - the files of a folder besides the checkpoint: which of them an output takes over.
 */
#ifndef QP_STORE_SIDE_H
#define QP_STORE_SIDE_H

#include "source.h"

/* All of it is in the arena that qp_side_find was given. */
struct qp_side {
    char **names; /* bare names of all files of the output that hold no tensors */
    char **paths; /* where each is copied from; NULL = it is made */
    size_t n;
    uint64_t n_bytes; /* of those that are copied */
    char *index;      /* the name of the output's index */
    char *config;     /* what config.json will be, where it is edited; else NULL */
    size_t n_config;
    mode_t config_mode;
    char **left; /* names of what is not taken over */
    size_t n_left;
};

/* Whether a file with this name is not copied, unless that is asked for. */
bool qp_side_is_left_out(const char *name);

/*
 * Decides about the files at the top of a source's folder. Plain files are copied; code, pickles
 * and other weights, what describes another quantization, hidden files and folders are not, unless
 * one of the patterns matches. INVALID for a pattern that matches no file; IO for a link in the
 * place of what is copied that leads nowhere. Of a source that is a file nothing is copied.
 */
enum qplan_status qp_side_find(struct qp_side *side, const struct qp_source *source,
                               char *const *copy, size_t n_copy, struct qp_arena *arena,
                               struct qplan_error *err);

/* Likewise, with the patterns of a run, which may be NULL: they are for folders alone. */
enum qplan_status qp_side_find_more(struct qp_side *side, const struct qp_source *source,
                                    const struct qplan_run *run, struct qp_arena *arena,
                                    struct qplan_error *err);

/*
 * Has the output's config.json say value under each of the keys, which end with NULL, instead of
 * what it says of a quantization; without keys it says nothing of one. Of a source without a
 * config.json nothing is made.
 */
enum qplan_status qp_side_edit_config(struct qp_side *side, const struct qp_source *source,
                                      const char *const *keys, const struct qp_writer *value,
                                      struct qp_arena *arena, struct qplan_error *err);

/* Adds a warning that lists what is left out, if there is any, and one if there is no config.json.
 */
enum qplan_status qp_side_warn(const struct qp_side *side, const char *path,
                               struct qp_warnings *warnings, struct qp_arena *arena,
                               struct qplan_error *err);

#endif
