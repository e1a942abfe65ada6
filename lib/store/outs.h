/*
 * outs.h - the files of a checkpoint that is written: headers, bytes of stored tensors by their
 * offsets, and names at the very end. A file, or a folder of files: either appears complete or not
 * at all.
 *
 * Bytes may also go to a checkpoint that is there already: then nothing is written, and every byte
 * is compared with the one in its place.
 */
#ifndef QP_STORE_OUTS_H
#define QP_STORE_OUTS_H

#include "news.h"
#include "side.h"
#include "stage.h"

/* Bytes of a stored tensor that are not those in their place: n_wrong of n. */
struct qp_difference {
    const struct qplan_entry *entry;
    uint64_t off;      /* of the first of the n */
    const char *bytes; /* those that would have been written */
    size_t n, n_wrong;
    size_t first; /* of those that differ */
};

/* Takes a difference; called by several threads at once. */
typedef void (*qp_differ_fn)(void *ctx, const struct qp_difference *difference);

struct qp_outs {
    const struct qp_news *news; /* what the files will be; the caller's */
    bool is_folder, is_open;
    struct qp_out file; /* the only one, or */
    struct qp_stage stage;
    mode_t mode;                /* of files that are of no single one of the source */
    const struct qp_side *side; /* of a folder: what is copied into it; the caller's */

    /* In the place of all that: where bytes are compared. */
    const struct qp_source *there;
    qp_differ_fn differ;
    void *ctx;
};

/* Outs whose bytes are compared with those of a source. They need not be discarded. */
struct qp_outs qp_outs_compare(const struct qp_source *there, qp_differ_fn differ, void *ctx);

/* What is wanted of an output. */
struct qp_outs_request {
    const char *path;
    bool force;
    const struct qp_news *news;
    const struct qp_source *source; /* a folder makes a folder */
    const struct qp_side *side;     /* files that go into a folder besides; NULL for a file */
};

/*
 * Makes the files of a checkpoint and writes their headers. USAGE if path is that of the source; IO
 * if it exists without force, or the space is short. On failure nothing is left.
 */
enum qplan_status qp_outs_open(struct qp_outs *outs, const struct qp_outs_request *request,
                               struct qplan_error *err);

/* Where in its file a byte of a stored tensor is. */
uint64_t qp_outs_at(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off);

/*
 * Writes n bytes of a stored tensor from its byte off on, or of a file from its byte at on.
 * Callable from several threads at once.
 */
enum qplan_status qp_outs_write_at(const struct qp_outs *outs, size_t file, uint64_t at,
                                   const void *bytes, size_t n, struct qplan_error *err);
enum qplan_status qp_outs_write(const struct qp_outs *outs, const struct qplan_entry *entry,
                                uint64_t off, const void *bytes, size_t n, struct qplan_error *err);

/* Where in a buffer such bytes are best written from (qp_io_room). */
void *qp_outs_room(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off,
                   void *buffer);

/* Copies n bytes of a stored tensor as they are, through a buffer with QP_IO_SPARE bytes more. */
enum qplan_status qp_outs_copy(const struct qp_outs *outs, const struct qplan_entry *to,
                               const struct qp_source *source, const struct qplan_entry *from,
                               uint64_t off, uint64_t n, void *buffer, struct qplan_error *err);

/*
 * Opens what has been written, as the reader of any checkpoint does, and proves that the headers
 * are those that were written. path is for messages.
 */
enum qplan_status qp_outs_read_back(const struct qp_outs *outs, struct qp_source *written,
                                    const char *path, struct qplan_error *err);

/*
 * Puts into a folder what is there besides the files, its index by what has been read back, and
 * gives everything its name. *synced is false on a file system that cannot sync.
 */
enum qplan_status qp_outs_commit(struct qp_outs *outs, const struct qp_source *written,
                                 bool *synced, struct qplan_error *err);

/* Removes what has no name yet, and closes. Accepts what a failed qp_outs_open left. */
void qp_outs_discard(struct qp_outs *outs);

#endif
