/*
 * document.h - a text as a whole, from a file or a pipe: a plan. Models never pass through here.
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

#endif
