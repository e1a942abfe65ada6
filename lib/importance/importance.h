/*
 * importance.h - how much each input channel of a weight matters: sums of squared inputs that other
 * tools have collected while a model ran. Squared errors are weighted by them.
 *
 * Files are llama.cpp's imatrix, as GGUF or in its older form, and safetensors with a vector for
 * each weight. Files of several runs are merged.
 */
#ifndef QP_IMPORTANCE_H
#define QP_IMPORTANCE_H

#include "lib/base/digest.h"

/* What is known of a weight, or of as many of the same name as there are experts. */
struct qp_importance_entry {
    const char *name; /* in llama.cpp's files its name there */
    uint64_t columns, matrices;
    double *sums;   /* of each column of each matrix */
    double *counts; /* of each matrix: what its sums are divided by; 0 = it was never used */
    size_t file;    /* that has it, of the last one that does */
};

/* An entry by its name. */
struct qp_importance_name {
    const char *name;
    size_t entry;
};

/* All that files say; zeroed it is empty. */
struct qp_importance {
    struct qp_importance_entry *entries; /* in the order of files */
    size_t n_entries;
    struct qp_importance_name *names; /* of the files that have been read, in byte-wise order */
    size_t n_names, n_files;
    struct qp_digests digests;           /* of the files, in their order */
    const volatile sig_atomic_t *cancel; /* of the caller, or NULL */
    struct qp_arena arena;
};

/*
 * Reads files, one behind the other. INVALID if one is none, or says something that cannot be; and
 * if they are not those that are expected, unless that is NULL or of no file. CANCELLED.
 */
enum qplan_status qp_importance_read(struct qp_importance *importance, const char *const *paths,
                                     size_t n, const struct qp_digests *expected,
                                     struct qplan_error *err);
void qp_importance_free(struct qp_importance *importance);

/*
 * The importance of the columns of a tensor, at most 1 each, in the arena; NULL if no file knows
 * it, or it was never used while they were made. *unit is what 1 stands for, by which tensors
 * compare. INVALID if there are not so many.
 */
enum qplan_status qp_importance_of(const struct qp_importance *importance, const char *tensor,
                                   uint64_t columns, struct qp_arena *arena, const float **out,
                                   double *unit, struct qplan_error *err);

/* Whether a file names a tensor, used or not. */
bool qp_importance_names(const struct qp_importance *importance, const char *tensor);

/* ---- For the readers of files ------------------------------------------------------------------
 */

/* A file in memory, and where it is read. */
struct qp_importance_file {
    const char *shown;
    const unsigned char *bytes;
    uint64_t n, at;
    struct qplan_error *err;
    const volatile sig_atomic_t *cancel;
};

/*
 * The entry of a name, which is made if no file before had it. INVALID if it has another size than
 * before, if this file has it already, or if the name has a U+0000; MEMORY, CANCELLED.
 */
enum qplan_status qp_importance_entry(struct qp_importance *importance,
                                      const struct qp_importance_file *file, const char *name,
                                      size_t name_len, uint64_t columns, uint64_t matrices,
                                      struct qp_importance_entry **out);

/* Adds n values to sums or counts. INVALID if one is negative or not finite. */
enum qplan_status qp_importance_add(const struct qp_importance_file *file, const char *name,
                                    double *to, const float *values, uint64_t n, double factor);

/* The same of values that are stored as F32. */
enum qplan_status qp_importance_add_stored(const struct qp_importance_file *file, const char *name,
                                           double *to, const unsigned char *stored, uint64_t n);

/* The next n bytes of a file. INVALID if it has fewer. */
enum qplan_status qp_importance_take(struct qp_importance_file *file, uint64_t n,
                                     const unsigned char **out);

/* Describes what is wrong with a file; with something of a name in it. */
enum qplan_status qp_importance_bad(const struct qp_importance_file *file, const char *what);
enum qplan_status qp_importance_bad_name(const struct qp_importance_file *file, const char *name,
                                         size_t name_len, const char *what);

enum qplan_status qp_importance_read_gguf(struct qp_importance *importance,
                                          struct qp_importance_file *file);
enum qplan_status qp_importance_read_dat(struct qp_importance *importance,
                                         struct qp_importance_file *file);
enum qplan_status qp_importance_read_vectors(struct qp_importance *importance, const char *path,
                                             const struct qp_digests *expected,
                                             struct qplan_error *err);

/* ---- Names -------------------------------------------------------------------------------------
 */

#define QP_GGUF_NAME 96

/* What llama.cpp calls a tensor, and which of the matrices it is; false if it has no name for it.
 */
bool qp_gguf_name(const char *tensor, char out[QP_GGUF_NAME], uint64_t *matrix);

#endif
