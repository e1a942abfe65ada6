/*
 * new_header.c - the canonical header of a new file: one order, one form of JSON, one padding.
 *
 * The bytes depend on the tensors and the metadata alone. Never writes data.
 */
#include "internal.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Order and offsets ----------------------------------------------------------------------- */

/* Entries are sorted by pointer, so that whoever made them finds them where they were. */
static const struct qplan_entry *entry_at(const void *slot)
{
    return *(const struct qplan_entry *const *)slot;
}

static struct qp_st_name name_at(const void *slot)
{
    return qp_st_entry_name(entry_at(slot));
}

static int compare_names(const void *a, const void *b)
{
    return qp_st_compare(name_at(a), name_at(b));
}

#define MAX_ELEM_BITS 64

/*
 * Wide elements first: then each tensor begins at a multiple of its element width. Tensors of one
 * width keep their order, which is that of their names.
 */
static bool sort_by_width(struct qplan_entry **entries, size_t n)
{
    struct qplan_entry **sorted = qp_alloc(n, sizeof *sorted);
    size_t next[MAX_ELEM_BITS + 2] = {0}; /* where the next tensor of a width goes, widest first */
    if (!sorted)
        return false;
    for (size_t i = 0; i < n; i++)
        next[MAX_ELEM_BITS - qplan_storage_bits(entries[i]->storage) + 1]++;
    for (unsigned k = 1; k <= MAX_ELEM_BITS; k++)
        next[k] += next[k - 1];
    for (size_t i = 0; i < n; i++)
        sorted[next[MAX_ELEM_BITS - qplan_storage_bits(entries[i]->storage)]++] = entries[i];
    if (n > 0)
        memcpy(entries, sorted, n * sizeof *sorted);
    qp_free(sorted);
    return true;
}

/* Names that ascend, as they mostly do, are in order and all different. */
static enum qplan_status sort_by_name(struct qplan_entry **entries, size_t n, const char *subject,
                                      struct qplan_error *err)
{
    if (qp_st_ascending(entries, n, sizeof *entries, name_at))
        return QPLAN_OK;
    qsort(entries, n, sizeof *entries, compare_names);
    size_t twice = qp_st_duplicate(entries, n, sizeof *entries, name_at);
    if (twice == 0)
        return QPLAN_OK;
    char name[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, subject,
                   "duplicate tensor name: expected %s once, found it twice",
                   qp_quote(name, entries[twice]->name, entries[twice]->name_len));
}

/* Places one tensor at begin. False if its end is no offset that a header can hold. */
static bool place(struct qplan_entry *entry, uint64_t begin)
{
    uint64_t n_bytes;
    entry->begin = begin;
    if (!qp_shape_fits(entry->storage, entry->shape, entry->rank) ||
        !qp_storage_bytes(entry->storage, qp_entry_elements(entry), &n_bytes))
        return false;
    entry->end = begin + n_bytes; /* below 2^63 and 2^61 */
    return entry->end <= INT64_MAX;
}

/* Gives all their begin and end, in the order that they are in. */
static enum qplan_status place_all(struct qplan_entry **entries, size_t n, uint64_t *data_bytes,
                                   const char *subject, struct qplan_error *err)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        char name[QP_QUOTED];
        if (!place(entries[i], end))
            return qp_fail(err, QPLAN_ERR_INVALID, subject,
                           "size of %s: expected whole bytes up to offset %" PRId64
                           ", found more or a part of a byte",
                           qp_quote(name, entries[i]->name, entries[i]->name_len), INT64_MAX);
        end = entries[i]->end;
    }
    *data_bytes = end;
    return QPLAN_OK;
}

enum qplan_status qp_st_layout(struct qplan_entry **entries, size_t n, uint64_t *data_bytes,
                               const char *subject, struct qplan_error *err)
{
    QP_TRY(sort_by_name(entries, n, subject, err));
    if (!sort_by_width(entries, n))
        return qp_fail_memory(err, subject, n * sizeof *entries);
    return place_all(entries, n, data_bytes, subject, err);
}

/* ---- The header ------------------------------------------------------------------------------ */

static void put_metadata(struct qp_writer *w, const struct qp_st_pair *pairs, size_t n)
{
    qp_json_key(w, "__metadata__");
    qp_json_open(w, '{');
    for (size_t i = 0; i < n; i++) {
        qp_json_key_n(w, pairs[i].key, pairs[i].key_len);
        qp_json_put_string(w, pairs[i].value, pairs[i].value_len);
    }
    qp_json_close(w, '}');
}

/* The bytes between the numbers are always the same, so they are put as they are. */
static void put_entry(struct qp_writer *w, const struct qplan_entry *entry)
{
    static const char dtype[] = "{\"dtype\":\"";
    qp_json_key_n(w, entry->name, entry->name_len);
    qp_json_put_raw(w, dtype, sizeof dtype - 1);
    qp_puts(w, qplan_storage_name(entry->storage));
    qp_puts(w, "\",\"shape\":[");
    for (unsigned i = 0; i < entry->rank; i++) {
        qp_puts(w, i ? "," : "");
        qp_put_u64(w, entry->shape[i]);
    }
    qp_puts(w, "],\"data_offsets\":[");
    qp_put_u64(w, entry->begin);
    qp_puts(w, ",");
    qp_put_u64(w, entry->end);
    qp_puts(w, "]}");
}

static void put_json(struct qp_writer *w, const struct qplan_entry *const *entries, size_t n,
                     const struct qp_st_pair *metadata, size_t n_metadata)
{
    qp_json_open(w, '{');
    if (n_metadata > 0)
        put_metadata(w, metadata, n_metadata);
    for (size_t i = 0; i < n; i++)
        put_entry(w, entries[i]);
    qp_json_close(w, '}');
}

/* About what a header will have, so that its text does not move while it grows. */
static size_t expected_bytes(const struct qplan_entry *const *entries, size_t n,
                             const struct qp_st_pair *metadata, size_t n_metadata)
{
    size_t n_bytes = 256;
    for (size_t i = 0; i < n; i++)
        n_bytes += entries[i]->name_len + 96u;
    for (size_t i = 0; i < n_metadata; i++)
        n_bytes += metadata[i].key_len + metadata[i].value_len + metadata[i].value_len / 8u;
    return n_bytes;
}

enum qplan_status qp_st_put_header(struct qp_writer *w, const struct qplan_entry *const *entries,
                                   size_t n, const struct qp_st_pair *metadata, size_t n_metadata,
                                   const char *subject, struct qplan_error *err)
{
    const size_t begin = w->n;
    qp_writer_reserve(w, expected_bytes(entries, n, metadata, n_metadata));
    qp_put(w, "\0\0\0\0\0\0\0\0", QP_ST_LENGTH_BYTES); /* known when the text is there */
    put_json(w, entries, n, metadata, n_metadata);
    const uint64_t n_json = w->n - begin - QP_ST_LENGTH_BYTES, padded = qp_div_up(n_json, 8) * 8;
    qp_put(w, "        ", (size_t)(padded - n_json));
    QP_TRY(qp_writer_finish(w, subject, err));
    if (padded > QP_ST_MAX_HEADER) {
        w->n = begin;
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "header too long: expected at most %u bytes, found %" PRIu64,
                       QP_ST_MAX_HEADER, padded);
    }
    for (unsigned i = 0; i < QP_ST_LENGTH_BYTES; i++)
        w->data[begin + i] = (char)(padded >> (8 * i) & 0xff);
    return QPLAN_OK;
}

enum qplan_status qp_st_make(struct qp_st_new *file, struct qplan_entry **entries, size_t n,
                             const struct qp_st_pair *metadata, size_t n_metadata,
                             const char *subject, struct qplan_error *err)
{
    struct qp_writer w;
    file->header = NULL;
    QP_TRY(qp_st_layout(entries, n, &file->data_bytes, subject, err));
    qp_writer_init(&w);
    enum qplan_status status = qp_st_put_header(&w, (const struct qplan_entry *const *)entries, n,
                                                metadata, n_metadata, subject, err);
    if (status != QPLAN_OK) {
        qp_writer_free(&w);
        return status;
    }
    file->header = w.data;
    file->header_bytes = w.n;
    return QPLAN_OK;
}
