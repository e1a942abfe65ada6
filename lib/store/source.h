/*
 * source.h - the files of a checkpoint that is read: their stored tensors as one list, and the
 * bytes of each. Nothing outside this module and the container cares how many files there are.
 */
#ifndef QP_STORE_SOURCE_H
#define QP_STORE_SOURCE_H

#include "config.h"
#include "folder.h"
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

struct qp_hold;

struct qp_source {
    struct qp_listing listing; /* first: its .read means the source */
    struct qp_st *files;       /* those of the listing */
    char *path;                /* of the file or the folder, as given */
    bool is_folder;            /* then .folder says which files there are */
    struct qp_folder folder;
    struct qp_config *config;    /* of the folder; NULL = it has none */
    struct qp_config *described; /* what says instead how it is quantized; NULL likewise */
    struct qp_warnings warnings; /* about what was found; they are in .arena */
    struct qp_arena arena;
    const struct qp_st_new *written; /* what the headers must be, or NULL; the caller's */
    struct qp_handles *handles;      /* of files that are not open all the time, or NULL */
    struct qplan_entry *entries;     /* those of the listing, if there are several files */
    uint64_t n_bytes;                /* of all files */
    uint64_t data_bytes;             /* of all tensors */
    struct qp_ahead *ahead;          /* NULL but in the copy of a reader that wants it */
    const struct qp_hold *hold;      /* rows that a reader has in memory; NULL likewise */
};

/*
 * Opens the checkpoint at path, a file, a folder or an index, and proves the layout of all files,
 * and that they are what the index says.
 */
enum qplan_status qp_source_open(struct qp_source *source, const char *path,
                                 struct qplan_error *err);

/*
 * Opens an output that has no name yet, by a descriptor that stays the caller's, with the same
 * proof. IO if its header is not the one that was written.
 */
enum qplan_status qp_source_open_written(struct qp_source *source, int fd, const char *path,
                                         const struct qp_st_new *written, struct qplan_error *err);

/*
 * Opens the n files of a folder that has been written under another name, with the same proof; path
 * is what it will be called. IO if a header is not the one that was written.
 */
enum qplan_status qp_source_open_staged(struct qp_source *source, const char *folder,
                                        const char *path, char *const *names,
                                        const struct qp_st_new *written, size_t n,
                                        struct qplan_error *err);
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
