/*
 * reader.c - opening a safetensors file: the framing, and looking things up in what was read.
 *
 * A file is the length N of the header (64 bits, little endian), N bytes of JSON, and the data.
 * The header is read once and never again; no byte of the data is read here.
 */
#include "internal.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <inttypes.h>
#include <string.h>

uint64_t qp_st_position(const struct qp_st *st, const char *text)
{
    return (uint64_t)(text - st->header) + QP_ST_LENGTH_BYTES - 1; /* of its opening quote */
}

struct qp_st_name qp_st_entry_name(const void *entry)
{
    const struct qplan_entry *e = entry;
    return (struct qp_st_name){e->name, e->name_len};
}

struct qp_st_name qp_st_pair_name(const void *pair)
{
    const struct qp_st_pair *p = pair;
    return (struct qp_st_name){p->key, p->key_len};
}

/* ---- Framing --------------------------------------------------------------------------------- */

static uint64_t load_le64(const unsigned char bytes[8])
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static enum qplan_status too_long(const struct qp_st *st, uint64_t n, struct qplan_error *err)
{
    (void)qp_fail_at(err, QPLAN_ERR_INVALID, st->file.shown, 0,
                     "header too long: expected at most %u bytes, found a length of %" PRIu64,
                     QP_ST_MAX_HEADER, n);
    uint64_t swapped = __builtin_bswap64(n);
    if (swapped < st->file.size)
        qp_hint(err,
                "the length was written in big-endian byte order (%" PRIu64
                "): the writer of this file is wrong",
                swapped);
    return QPLAN_ERR_INVALID;
}

/* Checks the length of the header against the format and the file, and splits the file by it. */
static enum qplan_status check_length(struct qp_st *st, uint64_t n, struct qplan_error *err)
{
    if (st->file.size < QP_ST_LENGTH_BYTES)
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "file too short: expected at least 8 bytes, found %" PRIu64, st->file.size);
    uint64_t left = st->file.size - QP_ST_LENGTH_BYTES;
    if (n > QP_ST_MAX_HEADER)
        return too_long(st, n, err);
    if (n > left)
        return qp_fail_at(err, QPLAN_ERR_INVALID, st->file.shown, 0,
                          "header passes the end of the file: expected at most the %" PRIu64
                          " bytes left, found a length of %" PRIu64,
                          left, n);
    if (n == 0)
        return qp_fail_at(err, QPLAN_ERR_INVALID, st->file.shown, QP_ST_LENGTH_BYTES,
                          "empty header: expected a JSON object, found 0 bytes");
    st->header_bytes = n + QP_ST_LENGTH_BYTES;
    st->data_bytes = left - n;
    return QPLAN_OK;
}

static enum qplan_status make_header(struct qp_st *st, struct qplan_error *err)
{
    st->header = qp_alloc(st->header_bytes, 1);
    return st->header ? QPLAN_OK : qp_fail_memory(err, st->file.shown, st->header_bytes);
}

/* A header that does not begin as JSON objects do: perhaps the file is something else. */
static enum qplan_status check_first(const struct qp_st *st, const char *magic, size_t n,
                                     struct qplan_error *err)
{
    if (memchr("{ \t\r\n", st->header[0], 5))
        return QPLAN_OK;
    return qp_st_recognise(magic, n, st->file.shown, err);
}

/* A header that was written must be there, byte for byte; it has not been decoded yet. */
static enum qplan_status check_written(const struct qp_st *st, const char *length,
                                       const struct qp_st_new *written, struct qplan_error *err)
{
    if (st->header_bytes == written->header_bytes &&
        memcmp(length, written->header, QP_ST_LENGTH_BYTES) == 0 &&
        memcmp(st->header, written->header + QP_ST_LENGTH_BYTES,
               written->header_bytes - QP_ST_LENGTH_BYTES) == 0)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_IO, st->file.shown,
                   "the header read back is not the one written");
}

/* written: what the header must be, or NULL. */
static enum qplan_status read_file(struct qp_st *st, const struct qp_st_new *written,
                                   struct qplan_error *err)
{
    char magic[QP_ST_MAGIC_BYTES] = {0};
    size_t n_magic = (size_t)qp_min_u64(sizeof magic, st->file.size);
    QP_TRY(qp_file_read(&st->file, 0, magic, n_magic, err));
    uint64_t n = load_le64((const unsigned char *)magic);
    enum qplan_status status = check_length(st, n, err);
    if (status != QPLAN_OK) {
        QP_TRY(qp_st_recognise(magic, n_magic, st->file.shown, err)); /* says more */
        return status;
    }
    QP_TRY(make_header(st, err));
    QP_TRY(qp_file_read(&st->file, QP_ST_LENGTH_BYTES, st->header, (size_t)n, err));
    if (written)
        QP_TRY(check_written(st, magic, written, err));
    QP_TRY(check_first(st, magic, n_magic, err));
    QP_TRY(qp_st_read_header(st, err));
    return qp_st_prove(st, err);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static enum qplan_status close_failed(struct qp_st *st, enum qplan_status status)
{
    if (status != QPLAN_OK)
        qp_st_close(st);
    return status;
}

enum qplan_status qp_st_open_written(struct qp_st *st, const char *path,
                                     const struct qp_st_new *written, struct qplan_error *err)
{
    *st = (struct qp_st){.file.fd = -1};
    QP_TRY(qp_file_open(&st->file, path, err));
    return close_failed(st, read_file(st, written, err));
}

enum qplan_status qp_st_open(struct qp_st *st, const char *path, struct qplan_error *err)
{
    return qp_st_open_written(st, path, NULL, err);
}

enum qplan_status qp_st_open_fd(struct qp_st *st, int fd, const char *path,
                                const struct qp_st_new *written, struct qplan_error *err)
{
    *st = (struct qp_st){.file.fd = -1};
    QP_TRY(qp_file_wrap(&st->file, fd, path, err));
    return close_failed(st, read_file(st, written, err));
}

static enum qplan_status read_memory(struct qp_st *st, const char *json, size_t n,
                                     struct qplan_error *err)
{
    QP_TRY(check_length(st, n, err));
    QP_TRY(make_header(st, err));
    memcpy(st->header, json, n);
    QP_TRY(qp_st_read_header(st, err));
    return qp_st_prove(st, err);
}

enum qplan_status qp_st_parse(struct qp_st *st, const char *json, size_t n, uint64_t file_bytes,
                              const char *path, struct qplan_error *err)
{
    *st = (struct qp_st){.file = {.fd = -1, .size = file_bytes}};
    qp_escape(st->file.shown, sizeof st->file.shown, path, strlen(path));
    st->file.path = qp_strndup(path, strlen(path));
    if (!st->file.path)
        return qp_fail_memory(err, st->file.shown, strlen(path));
    return close_failed(st, read_memory(st, json, n, err));
}

void qp_st_close(struct qp_st *st)
{
    qp_free(st->header);
    qp_arena_free(&st->shapes);
    qp_free(st->entries);
    qp_free(st->metadata);
    qp_file_close(&st->file);
    *st = (struct qp_st){.file.fd = -1};
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* The record with this name among n sorted ones, or NULL. */
static const void *find(const void *records, size_t n, size_t size, qp_st_name_fn name_of,
                        struct qp_st_name name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const void *record = (const char *)records + middle * size;
        int order = qp_st_compare(name, name_of(record));
        if (order == 0)
            return record;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct qplan_entry *qp_entries_find(const struct qplan_entry *entries, size_t n_entries,
                                          const char *name, size_t n)
{
    return find(entries, n_entries, sizeof *entries, qp_st_entry_name,
                (struct qp_st_name){name, n});
}

struct qplan_entry *qp_entries_sort(struct qplan_entry *entries, size_t n)
{
    return qp_st_sort(entries, n, sizeof *entries, qp_st_entry_name);
}

const struct qplan_entry *qp_st_find(const struct qp_st *st, const char *name, size_t n)
{
    return qp_entries_find(st->entries, st->n_entries, name, n);
}

const struct qp_st_pair *qp_st_find_pair(const struct qp_st *st, const char *key, size_t n)
{
    return find(st->metadata, st->n_metadata, sizeof *st->metadata, qp_st_pair_name,
                (struct qp_st_name){key, n});
}

const struct qp_st_pair *qp_st_metadata(const struct qp_st *st, const char *word)
{
    return qp_st_find_pair(st, word, strlen(word));
}

const char *qp_st_subject(char out[512], const struct qp_st *st, const struct qplan_entry *entry)
{
    char name[QP_QUOTED];
    size_t n_name = strlen(qp_quote(name, entry->name, entry->name_len));
    /* A long path is cut, the name never. */
    qp_escape(out, 512 - n_name - 2, st->file.path, strlen(st->file.path));
    size_t used = strlen(out);
    memcpy(out + used, ": ", 2);
    memcpy(out + used + 2, name, n_name + 1);
    return out;
}
