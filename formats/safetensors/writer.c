/*
 * writer.c - the canonical header of a new file: one order, one form of JSON, one padding.
 *
 * The bytes depend on the tensors and the metadata alone. Never writes data.
 */
#include "internal.h"

#include "../../lib/base/alloc.h"
#include "../../lib/base/check.h"
#include "../../lib/base/dtype.h"
#include "../../lib/base/json.h"

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

/* Where the next tensor of each element width goes: wide ones first. */
struct places {
    size_t next[MAX_ELEM_BITS + 1];
};

static inline size_t *place_of(struct places *places, const struct qplan_entry *entry)
{
    return &places->next[qplan_storage_bits(entry->storage)];
}

/* From the number of tensors of each width. */
static void begin_places(struct places *places)
{
    size_t end = 0;
    for (unsigned bits = MAX_ELEM_BITS + 1; bits-- > 0;) {
        const size_t count = places->next[bits];
        places->next[bits] = end;
        end += count;
    }
}

/*
 * Wide elements first: then each tensor begins at a multiple of its element width. Those of a width
 * keep their order, which is that of their names.
 */
static bool sort_by_width(struct qplan_entry **entries, size_t n)
{
    struct places places = {.next = {0}};
    struct qplan_entry **sorted = qp_alloc(n, sizeof *sorted);
    if (!sorted)
        return false;
    for (size_t i = 0; i < n; i++)
        ++*place_of(&places, entries[i]);
    begin_places(&places);
    for (size_t i = 0; i < n; i++)
        sorted[(*place_of(&places, entries[i]))++] = entries[i];
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
    uint64_t n_elems, n_bytes;
    entry->begin = begin;
    return qp_shape_elements(entry->shape, entry->rank, &n_elems) &&
           qp_storage_bytes(entry->storage, n_elems, &n_bytes) &&
           qp_add_u64(begin, n_bytes, &entry->end) && entry->end <= INT64_MAX;
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

enum qplan_status qp_st_layout_sorted(struct qplan_entry *entries, size_t n,
                                      struct qplan_entry **order, uint64_t *data_bytes,
                                      const char *subject, struct qplan_error *err)
{
    struct places places = {.next = {0}};
    for (size_t i = 0; i < n; i++)
        ++*place_of(&places, &entries[i]);
    begin_places(&places);
    for (size_t i = 0; i < n; i++)
        order[(*place_of(&places, &entries[i]))++] = &entries[i];
    return place_all(order, n, data_bytes, subject, err);
}

bool qp_st_before(const struct qplan_entry *a, const struct qplan_entry *b)
{
    return qp_st_compare(qp_st_entry_name(a), qp_st_entry_name(b)) < 0;
}

/* ---- The header ------------------------------------------------------------------------------ */

#define METADATA_KEY "__metadata__"

static void put_metadata(struct qp_writer *w, const struct qp_st_pair *pairs, size_t n)
{
    qp_json_key(w, METADATA_KEY);
    qp_json_open(w, '{');
    for (size_t i = 0; i < n; i++) {
        qp_json_key_n(w, pairs[i].key, pairs[i].key_len);
        if (pairs[i].is_json)
            qp_json_put_raw(w, pairs[i].value, pairs[i].value_len);
        else
            qp_json_put_string(w, pairs[i].value, pairs[i].value_len);
    }
    qp_json_close(w, '}');
}

static uint64_t metadata_bytes(const struct qp_st_pair *pairs, size_t n)
{
    uint64_t bytes = strlen("\"" METADATA_KEY "\":{}") + n - 1; /* and commas */
    for (size_t i = 0; i < n; i++)
        bytes += qp_json_string_bytes(pairs[i].key, pairs[i].key_len) + strlen(":") +
                 (pairs[i].is_json ? pairs[i].value_len
                                   : qp_json_string_bytes(pairs[i].value, pairs[i].value_len));
    return bytes;
}

/* The text of an entry between its name and its offsets, and the numbers that it ends in. */
#define FORM_TEXT (QPLAN_MAX_RANK * (QP_U64_TEXT + 1) + 80)

struct form {
    const uint64_t *shape;
    uint8_t storage, rank;
    size_t n; /* 0: none yet */
    char text[FORM_TEXT];
};

struct number {
    uint64_t value;
    size_t n; /* 0: none yet */
    char text[QP_U64_TEXT];
};

/*
 * There may be very many entries, and what is said of one is mostly said of another: tensors that
 * follow each other are of one form, or of two by turns, and begin where the one before ended.
 */
struct said {
    struct form forms[2];
    unsigned n_forms; /* that there have been */
    struct number end;
};

static inline char *add_bytes(char *to, const char *text, size_t n)
{
    memcpy(to, text, n);
    return to + n;
}

static inline char *add_text(char *to, const char *text)
{
    return add_bytes(to, text, strlen(text));
}

static void make_form(struct form *form, const struct qplan_entry *entry)
{
    char *to = add_text(form->text, "{\"dtype\":\"");
    to = add_text(to, qplan_storage_name(entry->storage));
    to = add_text(to, "\",\"shape\":[");
    for (unsigned i = 0; i < entry->rank; i++) {
        if (i > 0)
            *to++ = ',';
        to += qp_format_u64(to, entry->shape[i]);
    }
    to = add_text(to, "],\"data_offsets\":[");
    form->shape = entry->shape;
    form->storage = entry->storage;
    form->rank = entry->rank;
    form->n = (size_t)(to - form->text);
}

static const struct form *form_of(struct said *said, const struct qplan_entry *entry)
{
    for (int i = 0; i < 2; i++) {
        const struct form *form = &said->forms[i];
        if (form->n && form->shape == entry->shape && form->rank == entry->rank &&
            form->storage == entry->storage)
            return form;
    }
    struct form *form = &said->forms[said->n_forms++ % 2];
    make_form(form, entry);
    return form;
}

static inline char *add_number(char *to, struct number *last, uint64_t value)
{
    if (!last->n || last->value != value) {
        last->value = value;
        last->n = qp_format_u64(last->text, value);
    }
    return add_bytes(to, last->text, last->n);
}

/* entry_bytes says how long the text is; the two go together. */
static void put_entry(struct qp_writer *w, const struct qplan_entry *entry, bool plain_name,
                      struct said *said)
{
    const struct form *form = form_of(said, entry);
    const size_t n_key = plain_name ? strlen("\"\":") + entry->name_len : 0;
    if (!plain_name)
        qp_json_key_n(w, entry->name, entry->name_len);
    char *to = qp_json_room(w, n_key + form->n + 2 * QP_U64_TEXT + strlen(",]}"));
    if (!to)
        return;
    if (plain_name) {
        *to++ = '"';
        to = add_bytes(to, entry->name, entry->name_len);
        to = add_text(to, "\":");
    }
    to = add_bytes(to, form->text, form->n);
    to = add_number(to, &said->end, entry->begin);
    *to++ = ',';
    to = add_number(to, &said->end, entry->end);
    to = add_text(to, "]}");
    w->n = (size_t)(to - w->data);
}

static uint64_t entry_bytes(const struct qplan_entry *entry, bool plain_name, struct said *said)
{
    return (plain_name ? strlen("\"\"") + entry->name_len
                       : qp_json_string_bytes(entry->name, entry->name_len)) +
           strlen(":") + form_of(said, entry)->n + qp_count_digits(entry->begin) + strlen(",") +
           qp_count_digits(entry->end) + strlen("]}");
}

static void put_json(struct qp_writer *w, const struct qp_st_header *header)
{
    struct said said = {.n_forms = 0};
    qp_json_open(w, '{');
    if (header->n_metadata > 0)
        put_metadata(w, header->metadata, header->n_metadata);
    for (size_t i = 0; i < header->n_entries; i++)
        put_entry(w, header->entries[i], header->plain_names, &said);
    qp_json_close(w, '}');
}

/* The length of that text. Every member but the first has a comma before it. */
static uint64_t json_bytes(const struct qp_st_header *header)
{
    const size_t n_members = header->n_entries + (header->n_metadata > 0);
    struct said said = {.n_forms = 0};
    uint64_t bytes = strlen("{}") + (n_members ? n_members - 1 : 0);
    if (header->n_metadata > 0)
        bytes += metadata_bytes(header->metadata, header->n_metadata);
    for (size_t i = 0; i < header->n_entries; i++)
        bytes += entry_bytes(header->entries[i], header->plain_names, &said);
    return bytes;
}

enum qplan_status qp_st_measure_header(struct qp_st_header *header, const char *subject,
                                       struct qplan_error *err)
{
    header->n_json = json_bytes(header);
    const uint64_t padded = qp_div_up(header->n_json, 8) * 8;
    header->n_bytes = QP_ST_LENGTH_BYTES + padded;
    if (padded > QP_ST_MAX_HEADER)
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "header too long: expected at most %u bytes, found %" PRIu64,
                       QP_ST_MAX_HEADER, padded);
    return QPLAN_OK;
}

void qp_st_put_measured(struct qp_writer *w, const struct qp_st_header *header)
{
    const uint64_t padded = header->n_bytes - QP_ST_LENGTH_BYTES;
    char length[QP_ST_LENGTH_BYTES];
    for (unsigned i = 0; i < QP_ST_LENGTH_BYTES; i++)
        length[i] = (char)(padded >> (8 * i) & 0xff);
    qp_put(w, length, sizeof length);
    put_json(w, header);
    qp_put(w, "        ", (size_t)(padded - header->n_json));
}

enum qplan_status qp_st_put_header(struct qp_writer *w, const struct qplan_entry *const *entries,
                                   size_t n, const struct qp_st_pair *metadata, size_t n_metadata,
                                   const char *subject, struct qplan_error *err)
{
    struct qp_st_header header = {entries, n, metadata, n_metadata, 0, 0, false};
    QP_TRY(qp_st_measure_header(&header, subject, err));
    qp_st_put_measured(w, &header);
    return qp_writer_finish(w, subject, err);
}
