/*
 * document.h - small text files as a whole: a plan read from a file or a pipe, a plan written to a
 * new file. Models never pass through here.
 */
#ifndef CLI_DOCUMENT_H
#define CLI_DOCUMENT_H

#include <qplan.h>

struct document {
    char *text; /* not NUL-terminated */
    size_t n_bytes;
};

/* Reads all of a file, or of stdin for "-". IO, MEMORY, or INVALID beyond 1 GiB. */
enum qplan_status document_read(struct document *out, const char *path, struct qplan_error *err);
void document_free(struct document *document);

/* A file that appears under its name when it is complete. */
struct new_document {
    const char *path;
    char *hidden; /* where it is written; NULL = nothing to remove */
    int fd;
    int error; /* errno of the first failed write */
    bool force;
};

/*
 * Starts the file. IO if the target exists and force is not set, or is not a regular file; USAGE if
 * it is the input. new_document_end must be called in any case.
 */
enum qplan_status new_document_begin(struct new_document *out, const char *path, bool force,
                                     const char *input, struct qplan_error *err);

/* A qplan_write_fn; ctx is the struct. */
int new_document_write(void *ctx, const void *bytes, size_t n_bytes);

/* Gives the file its name. */
enum qplan_status new_document_commit(struct new_document *document, struct qplan_error *err);

/* Removes what was not committed. */
void new_document_end(struct new_document *document);

#endif
