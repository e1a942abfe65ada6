/*
 * digest.c - SHA-256 by libnettle: the only file that knows of it.
 */
#include "digest.h"

#include "alloc.h"
#include "check.h"
#include "text.h"

#include <nettle/sha2.h>
#include <nettle/version.h>
#include <string.h>

#define N_BYTES SHA256_DIGEST_SIZE
#define BUFFER  ((size_t)256 << 10)

static const char digits[] = "0123456789abcdef";

static void put_text(struct qp_digest *out, const unsigned char bytes[N_BYTES])
{
    char *at = out->text + sizeof QP_DIGEST_PREFIX - 1;
    memcpy(out->text, QP_DIGEST_PREFIX, sizeof QP_DIGEST_PREFIX);
    for (size_t i = 0; i < N_BYTES; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    *at = '\0';
}

/* The sum of all that a hash has taken; version 4 of the library writes no other length. */
static void finish(struct sha256_ctx *hash, unsigned char bytes[N_BYTES])
{
#if NETTLE_VERSION_MAJOR < 4
    sha256_digest(hash, N_BYTES, bytes);
#else
    sha256_digest(hash, bytes);
#endif
}

static enum qplan_status read_all(struct sha256_ctx *hash, const struct qp_file *file, void *buffer,
                                  const volatile sig_atomic_t *cancel, struct qplan_error *err)
{
    for (uint64_t off = 0; off < file->size; off += BUFFER) {
        QP_TRY(qp_check_cancel(cancel, file->shown, err));
        const size_t n = (size_t)qp_min_u64(BUFFER, file->size - off);
        QP_TRY(qp_file_read(file, off, buffer, n, err));
        sha256_update(hash, n, buffer);
    }
    return QPLAN_OK;
}

enum qplan_status qp_digest_file(struct qp_digest *out, const struct qp_file *file,
                                 const volatile sig_atomic_t *cancel, struct qplan_error *err)
{
    struct sha256_ctx hash;
    unsigned char bytes[N_BYTES];
    void *buffer = qp_alloc_buffer(BUFFER);
    if (!buffer)
        return qp_fail_memory(err, file->shown, BUFFER);
    sha256_init(&hash);
    const enum qplan_status status = read_all(&hash, file, buffer, cancel, err);
    qp_free(buffer);
    QP_TRY(status);
    finish(&hash, bytes);
    put_text(out, bytes);
    return QPLAN_OK;
}

bool qp_digest_read(struct qp_digest *out, const char *text, size_t n)
{
    const size_t n_prefix = sizeof QP_DIGEST_PREFIX - 1;
    if (n != QP_DIGEST_TEXT - 1 || memcmp(text, QP_DIGEST_PREFIX, n_prefix) != 0)
        return false;
    for (size_t i = n_prefix; i < n; i++) {
        if (!text[i] || !strchr(digits, text[i]))
            return false;
    }
    memcpy(out->text, text, n);
    out->text[n] = '\0';
    return true;
}

enum qplan_status qp_digests_add(struct qp_digests *digests, const struct qp_digest *digest,
                                 struct qp_arena *arena, struct qplan_error *err)
{
    struct qp_digest *list = qp_arena_grow(arena, digests->list, digests->n, sizeof *list);
    if (!list)
        return qp_fail_memory(err, "digests", (digests->n + 1) * sizeof *list);
    list[digests->n++] = *digest;
    digests->list = list;
    return QPLAN_OK;
}

enum qplan_status qp_digests_add_file(struct qp_digests *digests, const struct qp_file *file,
                                      const struct qp_digests *expected, struct qp_arena *arena,
                                      const volatile sig_atomic_t *cancel, struct qplan_error *err)
{
    struct qp_digest found;
    QP_TRY(qp_digest_file(&found, file, cancel, err));
    if (expected && expected->n > 0) {
        const char *wanted =
            digests->n < expected->n ? expected->list[digests->n].text : "no further file";
        if (strcmp(wanted, found.text) != 0)
            return qp_fail(err, QPLAN_ERR_INVALID, file->shown,
                           "not the file that was used: expected %s, found %s", wanted, found.text);
    }
    return qp_digests_add(digests, &found, arena, err);
}

enum qplan_status qp_digests_complete(const struct qp_digests *digests,
                                      const struct qp_digests *expected, const char *what,
                                      struct qplan_error *err)
{
    if (!expected || digests->n >= expected->n)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, what,
                   "not all files that were used: expected %zu, found %zu: %s is missing",
                   expected->n, digests->n, expected->list[digests->n].text);
}
