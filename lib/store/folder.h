/*
 * folder.h - which files a checkpoint has: one that was named, the only one of a folder, or the
 * shards that an index lists. Names only; source.h opens the files.
 */
#ifndef QP_STORE_FOLDER_H
#define QP_STORE_FOLDER_H

#include "lib/base/warning.h"

/* The most shards that an index may list, and the most bytes that it may have. */
#define QP_MOST_SHARDS       10000u
#define QP_MOST_INDEX_BYTES  250000000u
#define QP_INDEX_SUFFIX      ".safetensors.index.json"
#define QP_CHECKPOINT_SUFFIX ".safetensors"

/* Names of files, in an arena. */
struct qp_names {
    char **list;
    size_t n;
};

/* The names of all that is in a folder, in byte-wise order. */
enum qplan_status qp_list_names(const char *path, struct qp_arena *arena, struct qp_names *names,
                                struct qplan_error *err);

/* The path of a name in a folder; NULL when out of memory. */
char *qp_path_in(struct qp_arena *arena, const char *folder, const char *name);

/* What an index says of a tensor. */
struct qp_mapped {
    const char *name; /* counted; it may contain NULs */
    size_t n;
    const char *file; /* bare name of its shard */
    size_t shard;     /* its number among the files of the folder */
};

struct qp_folder {
    char *name;   /* of the folder itself, also where the path ends in dots */
    char *path;   /* of the folder */
    char *index;  /* bare name, or NULL: the only file is the checkpoint */
    char *stem;   /* "model" of model.safetensors and model.safetensors.index.json */
    char **names; /* bare names of the files, in byte-wise order */
    size_t n_files;
    struct qp_mapped *map; /* in byte-wise order of names; only with an index; from qp_alloc */
    size_t n_map;
    const char *total; /* what the index states as the bytes of all tensors, or NULL */
    struct qp_warnings warnings;
    struct qp_arena arena; /* all of the above */
    char *text;            /* of the index, which names point into */
};

/*
 * Finds the files of the checkpoint at path: a folder, or an index in one. *is_folder is false, and
 * nothing is made, where path is anything else: a file by itself, or something that cannot be
 * opened as one. INVALID for a folder that is not one checkpoint, and for a bad index.
 */
enum qplan_status qp_folder_find(struct qp_folder *folder, const char *path, bool *is_folder,
                                 struct qplan_error *err);
void qp_folder_free(struct qp_folder *folder);

/* What the index says of a tensor, or NULL. */
const struct qp_mapped *qp_folder_mapped(const struct qp_folder *folder, const char *name,
                                         size_t n);

/*
 * For a file that is named by itself: *index is the bare name of the index beside it of which it is
 * one shard, in the arena, or NULL.
 */
enum qplan_status qp_index_beside(const char *path, struct qp_arena *arena, const char **index,
                                  struct qplan_error *err);

#endif
