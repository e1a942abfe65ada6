/*
 * digest.h - the SHA-256 of files, by which records and plans name data that is not in them.
 */
#ifndef QP_BASE_DIGEST_H
#define QP_BASE_DIGEST_H

#include "arena.h"
#include "io.h"

/* This and 64 hexadecimal digits in lower case are the text of a digest, with a NUL. */
#define QP_DIGEST_PREFIX "sha256:"
#define QP_DIGEST_TEXT   72

struct qp_digest {
    char text[QP_DIGEST_TEXT];
};

/* Those of several files, in their order; zeroed there are none. */
struct qp_digests {
    struct qp_digest *list;
    size_t n;
};

/* Reads a whole file, a buffer at a time. IO, MEMORY; CANCELLED if cancel, which may be NULL, is
 * not 0 any more. */
enum qplan_status qp_digest_file(struct qp_digest *out, const struct qp_file *file,
                                 const volatile sig_atomic_t *cancel, struct qplan_error *err);

/* Takes a text that is written as above; false for any other. */
bool qp_digest_read(struct qp_digest *out, const char *text, size_t n);

/* Adds one behind the others. MEMORY. */
enum qplan_status qp_digests_add(struct qp_digests *digests, const struct qp_digest *digest,
                                 struct qp_arena *arena, struct qplan_error *err);

/*
 * Adds that of a file. INVALID if it is not the one that is expected at its place; without any
 * that are expected (NULL, or none) every file is right.
 */
enum qplan_status qp_digests_add_file(struct qp_digests *digests, const struct qp_file *file,
                                      const struct qp_digests *expected, struct qp_arena *arena,
                                      const volatile sig_atomic_t *cancel, struct qplan_error *err);

/* INVALID if fewer files were added than are expected; what says of which kind. */
enum qplan_status qp_digests_complete(const struct qp_digests *digests,
                                      const struct qp_digests *expected, const char *what,
                                      struct qplan_error *err);

#endif
