/*
 * layout.c - the proof of a file's layout, and the arithmetic of shapes.
 *
 * After it every range lies in the file, has the size of its tensor, and each byte of the data
 * belongs to exactly one tensor; so no later code checks an offset again. Never reads data.
 */
#include "internal.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bits of the largest tensor: its bytes then fit a signed 64-bit file offset with room to spare. */
#define MAX_BITS ((uint64_t)1 << 63)

/* ---- Arithmetic of shapes -------------------------------------------------------------------- */

/* The product of the non-zero extents: what a zero elsewhere in the shape must not hide. */
static bool nonzero_product(const uint64_t *shape, unsigned rank, uint64_t *out)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] != 0 && (!qp_mul_u64(product, shape[i], &product) || product > MAX_BITS))
            return false;
    }
    *out = product;
    return true;
}

static bool has_zero(const uint64_t *shape, unsigned rank)
{
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] == 0)
            return true;
    }
    return false;
}

bool qp_same_shape(const uint64_t *a, unsigned rank_a, const uint64_t *b, unsigned rank_b)
{
    if (rank_a != rank_b)
        return false;
    return a == b || rank_a == 0 || memcmp(a, b, rank_a * sizeof *a) == 0;
}

bool qp_shape_elements(const uint64_t *shape, unsigned rank, uint64_t *out)
{
    uint64_t product;
    if (!nonzero_product(shape, rank, &product))
        return false;
    *out = has_zero(shape, rank) ? 0 : product;
    return true;
}

bool qp_shape_fits(enum qplan_storage storage, const uint64_t *shape, unsigned rank)
{
    uint64_t product, bits;
    return nonzero_product(shape, rank, &product) &&
           qp_mul_u64(product, qplan_storage_bits(storage), &bits) && bits <= MAX_BITS;
}

bool qp_storage_bytes(enum qplan_storage storage, uint64_t n_elems, uint64_t *out)
{
    uint64_t bits;
    if (!qp_mul_u64(n_elems, qplan_storage_bits(storage), &bits) || bits % 8 != 0)
        return false;
    *out = bits / 8;
    return true;
}

uint64_t qp_entry_elements(const struct qplan_entry *entry)
{
    uint64_t n_elems = 0;
    (void)qp_shape_elements(entry->shape, entry->rank, &n_elems); /* proven when it was read */
    return n_elems;
}

/* ---- One tensor ------------------------------------------------------------------------------ */

/* Room for the text of any shape: 64 extents of up to 20 digits, their commas, brackets, NUL. */
#define SHAPE_TEXT (QPLAN_MAX_RANK * 21 + 3)

static const char *shape_text(char out[SHAPE_TEXT], const struct qplan_entry *entry)
{
    size_t used = 0;
    for (unsigned i = 0; i < entry->rank; i++)
        used += (size_t)snprintf(out + used, SHAPE_TEXT - used, "%c%" PRIu64, i ? ',' : '[',
                                 entry->shape[i]);
    (void)snprintf(out + used, SHAPE_TEXT - used, used ? "]" : "[]");
    return out;
}

/* A fault of one tensor, at its name in the header. */
static enum qplan_status bad_size(const struct qp_st *st, const struct qplan_entry *entry,
                                  const char *what, const char *found, struct qplan_error *err)
{
    char subject[512], shape[SHAPE_TEXT];
    return qp_fail_at(err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, entry),
                      qp_st_position(st, entry->name), "%s: %s of shape %s: %s", what,
                      qplan_storage_name(entry->storage), shape_text(shape, entry), found);
}

/* The file ends too early. Names the tensor that the end cuts, not the first one in the header. */
static enum qplan_status past_end(const struct qp_st *st, struct qplan_error *err)
{
    const struct qplan_entry *first = NULL;
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *entry = &st->entries[i];
        if (entry->end > st->data_bytes && (!first || entry->begin < first->begin))
            first = entry;
    }
    uint64_t need = 0;
    (void)qp_add_u64(st->header_bytes, first->end, &need); /* below 2^63 + 10^8 */
    char subject[512];
    return qp_fail_at(err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, first), st->file.size,
                      "data_offsets [%" PRIu64 ",%" PRIu64
                      "] pass the end: expected a file of at least %" PRIu64
                      " bytes, found %" PRIu64,
                      first->begin, first->end, need, st->file.size);
}

static enum qplan_status check_size(const struct qp_st *st, const struct qplan_entry *entry,
                                    struct qplan_error *err)
{
    uint64_t n_bytes;
    if (!qp_shape_fits(entry->storage, entry->shape, entry->rank))
        return bad_size(st, entry, "size overflow", "expected at most 2^63 bits, found more", err);
    if (!qp_storage_bytes(entry->storage, qp_entry_elements(entry), &n_bytes))
        return bad_size(st, entry, "bits are not whole bytes",
                        "expected a multiple of 8 bits, found a remainder", err);
    uint64_t length = entry->end - entry->begin;
    if (length == n_bytes)
        return QPLAN_OK;
    char sizes[80];
    (void)snprintf(sizes, sizeof sizes, "expected %" PRIu64 " bytes, found %" PRIu64, n_bytes,
                   length);
    return bad_size(st, entry, "data_offsets do not fit the shape", sizes, err);
}

static enum qplan_status check_entry(const struct qp_st *st, const struct qplan_entry *entry,
                                     struct qplan_error *err)
{
    char subject[512];
    if (entry->begin > entry->end)
        return qp_fail_at(err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, entry),
                          qp_st_position(st, entry->name),
                          "data_offsets run backwards: expected begin <= end, found [%" PRIu64
                          ",%" PRIu64 "]",
                          entry->begin, entry->end);
    if (entry->end > st->data_bytes)
        return past_end(st, err);
    return check_size(st, entry, err);
}

/* ---- All tensors together -------------------------------------------------------------------- */

static enum qplan_status overlap(const struct qp_st *st, const struct qplan_entry *before,
                                 const struct qplan_entry *entry, struct qplan_error *err)
{
    char subject[512], other[QP_QUOTED];
    bool same = before->begin == entry->begin && before->end == entry->end;
    (void)qp_fail_at(
        err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, entry), st->header_bytes + entry->begin,
        "%s %s: expected its data behind offset %" PRIu64 ", found [%" PRIu64 ",%" PRIu64 "]",
        same ? "same range as" : "overlaps", qp_quote(other, before->name, before->name_len),
        before->end, entry->begin, entry->end);
    if (same)
        qp_hint(err, "tied weights: store one of the two and tie them in the config instead");
    return QPLAN_ERR_INVALID;
}

static enum qplan_status hole(const struct qp_st *st, const struct qplan_entry *before,
                              const struct qplan_entry *entry, struct qplan_error *err)
{
    char subject[512], other[QP_QUOTED];
    uint64_t from = before ? before->end : 0;
    return qp_fail_at(err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, entry),
                      st->header_bytes + from,
                      "hole of %" PRIu64 " bytes behind %s: expected data at offset %" PRIu64
                      ", found it at %" PRIu64,
                      entry->begin - from,
                      before ? qp_quote(other, before->name, before->name_len) : "the header", from,
                      entry->begin);
}

static enum qplan_status trailing(const struct qp_st *st, uint64_t covered, struct qplan_error *err)
{
    uint64_t end = st->header_bytes + covered;
    return qp_fail_at(err, QPLAN_ERR_INVALID, st->file.shown, end,
                      "%" PRIu64 " bytes behind the last tensor: expected a file of %" PRIu64
                      " bytes, found %" PRIu64,
                      st->data_bytes - covered, end, st->file.size);
}

/* By range; equal ranges in header order, so that messages are the same everywhere. */
static int compare_ranges(const struct qplan_entry *a, const struct qplan_entry *b)
{
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name);
}

static int compare_places(const void *a, const void *b, void *ctx)
{
    const struct qplan_entry *entries = ctx;
    return compare_ranges(&entries[*(const uint32_t *)a], &entries[*(const uint32_t *)b]);
}

/*
 * The entries in the order of their data, as indices. *out stays NULL if they are in that order
 * already, which is the rule. 32 bits do: a header of 10^8 bytes has fewer tensors.
 */
static enum qplan_status order_by_range(const struct qp_st *st, uint32_t **out,
                                        struct qplan_error *err)
{
    size_t i = 1, n = st->n_entries;
    while (i < n && compare_ranges(&st->entries[i - 1], &st->entries[i]) < 0)
        i++;
    if (i >= n)
        return QPLAN_OK;
    uint32_t *order = qp_alloc(n, sizeof *order);
    if (!order)
        return qp_fail_memory(err, st->file.shown, (uint64_t)n * sizeof *order);
    for (i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare_places, st->entries);
    *out = order;
    return QPLAN_OK;
}

/* Proves that the ranges cover the data without hole and overlap. */
static enum qplan_status check_cover(const struct qp_st *st, const uint32_t *order,
                                     struct qplan_error *err)
{
    const struct qplan_entry *before = NULL;
    uint64_t covered = 0;
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *entry = &st->entries[order ? order[i] : i];
        if (entry->begin > covered)
            return hole(st, before, entry, err);
        if (entry->begin < covered)
            return overlap(st, before, entry, err);
        covered = entry->end;
        before = entry;
    }
    return covered == st->data_bytes ? QPLAN_OK : trailing(st, covered, err);
}

static enum qplan_status prove_cover(const struct qp_st *st, struct qplan_error *err)
{
    uint32_t *order = NULL;
    QP_TRY(order_by_range(st, &order, err));
    enum qplan_status status = check_cover(st, order, err);
    qp_free(order);
    return status;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static enum qplan_status sort_names(struct qp_st *st, struct qplan_error *err)
{
    size_t n = st->n_entries;
    if (qp_st_ascending(st->entries, n, sizeof *st->entries, qp_st_entry_name))
        return QPLAN_OK;
    struct qplan_entry *entries = qp_st_sort(st->entries, n, sizeof *entries, qp_st_entry_name);
    if (!entries)
        return qp_fail_memory(err, st->file.shown, n * sizeof *entries);
    st->entries = entries;
    size_t twice = qp_st_duplicate(entries, n, sizeof *entries, qp_st_entry_name);
    if (twice == 0)
        return QPLAN_OK;
    char subject[512];
    return qp_fail_at(err, QPLAN_ERR_INVALID, qp_st_subject(subject, st, &entries[twice]),
                      qp_st_position(st, entries[twice].name),
                      "duplicate tensor name: first at byte %" PRIu64 ", then again",
                      qp_st_position(st, entries[twice - 1].name));
}

enum qplan_status qp_st_prove(struct qp_st *st, struct qplan_error *err)
{
    for (size_t i = 0; i < st->n_entries; i++)
        QP_TRY(check_entry(st, &st->entries[i], err));
    /* In header order, which mostly is the order of the data. A name that is there twice comes with
     * a fault of the ranges too and explains it: so its message replaces the other. */
    enum qplan_status status = prove_cover(st, err);
    QP_TRY(sort_names(st, err));
    return status;
}
