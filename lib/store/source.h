/*
 * source.h - the files of a checkpoint that is read: their stored tensors as one list, and the
 * bytes of each. One file for now; nothing outside this module and the container knows how many
 * there are.
 */
#ifndef QP_STORE_SOURCE_H
#define QP_STORE_SOURCE_H

#include "formats/format.h"

/*
 * Bytes of a file that were read with others before them: for short reads that mostly follow each
 * other. It belongs to one reader.
 */
struct qp_ahead {
    char *data;
    size_t cap, n;
    unsigned file;
    uint64_t at; /* of data[0] in the file */
};

struct qp_source {
    struct qp_listing listing;
    struct qp_st *files;    /* those of the listing */
    char *path;             /* as given */
    uint64_t n_bytes;       /* of all files */
    uint64_t data_bytes;    /* of all tensors */
    struct qp_ahead *ahead; /* NULL but in the copy of a reader that wants it */
};

/* Opens the file at path and proves its layout. */
enum qplan_status qp_source_open(struct qp_source *source, const char *path,
                                 struct qplan_error *err);

/*
 * Opens an output that has no name yet, by a descriptor that stays the caller's, with the same
 * proof. IO if its header is not the one that was written.
 */
enum qplan_status qp_source_open_written(struct qp_source *source, int fd, const char *path,
                                         const struct qp_st_new *written, struct qplan_error *err);
void qp_source_close(struct qp_source *source);

/* Reads n bytes of a stored tensor, from its byte off on. */
enum qplan_status qp_source_read(const struct qp_source *source, const struct qplan_entry *entry,
                                 uint64_t off, void *out, size_t n, struct qplan_error *err);

/* Where in a buffer such bytes are best read to (qp_io_room); it needs QP_IO_SPARE bytes more. */
void *qp_source_room(const struct qp_source *source, const struct qplan_entry *entry, uint64_t off,
                     void *buffer);

/* Whether two stored tensors lie behind each other in one file. */
bool qp_source_follows(const struct qplan_entry *before, const struct qplan_entry *entry);

/* IO if a file changed since it was opened. */
enum qplan_status qp_source_unchanged(const struct qp_source *source, struct qplan_error *err);

#endif
