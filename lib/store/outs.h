/*
 * outs.h - the files of a checkpoint that is written: headers, bytes of stored tensors by their
 * offsets, and names at the very end. One file for now; it appears complete or not at all.
 *
 * Bytes may also go to a checkpoint that is there already: then nothing is written, and every byte
 * is compared with the one in its place.
 */
#ifndef QP_STORE_OUTS_H
#define QP_STORE_OUTS_H

#include "source.h"

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
    struct qp_out *files;
    const struct qp_st_new *news; /* what they will be; the caller's */
    size_t n_files;

    /* In the place of all that: where bytes are compared. */
    const struct qp_source *there;
    qp_differ_fn differ;
    void *ctx;
};

/* Outs whose bytes are compared with those of a source. They need not be discarded. */
struct qp_outs qp_outs_compare(const struct qp_source *there, qp_differ_fn differ, void *ctx);

/*
 * Makes the files of a checkpoint that will be called path, with the modes of those of the source,
 * and writes their headers. USAGE if path is a file of the source; IO if it exists without force,
 * or the space is short. On failure nothing is left.
 */
enum qplan_status qp_outs_open(struct qp_outs *outs, const char *path, bool force,
                               const struct qp_st_new *news, size_t n_files,
                               const struct qp_source *source, struct qplan_error *err);

/* Where in its file a byte of a stored tensor is. */
uint64_t qp_outs_at(const struct qp_outs *outs, const struct qplan_entry *entry, uint64_t off);

/* Writes n bytes of a stored tensor, from its byte off on. Callable from several threads at once.
 */
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

/* Gives the files their names; *synced is false on a file system that cannot sync. */
enum qplan_status qp_outs_commit(struct qp_outs *outs, bool *synced, struct qplan_error *err);

/* Removes what has no name yet, and closes. Accepts what a failed qp_outs_open left. */
void qp_outs_discard(struct qp_outs *outs);

#endif
