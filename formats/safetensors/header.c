/*
 * header.c - the JSON of the header as entries, shapes and metadata, in header order.
 *
 * Memory grows with what was parsed, never with what was promised. Names are not copied. Sizes and
 * ranges are only recorded here; layout.c proves them.
 */
#include "internal.h"

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Nothing in the format is nested deeper than 3; the rest is room for a better message. */
#define MAX_DEPTH 8

enum field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD_COUNT };

static const char *const field_names[FIELD_COUNT] = {"dtype", "shape", "data_offsets"};

/* What a header says of a tensor. */
struct fields {
    enum qplan_storage storage;
    unsigned rank;
    uint64_t shape[QPLAN_MAX_RANK];
    uint64_t range[2]; /* data_offsets */
};

struct parser {
    struct qp_st *st;
    struct qp_json json;
    struct qplan_error *err;
    struct qplan_entry entry; /* the tensor that is being read */
    struct fields fields;
    size_t cap_entries, cap_metadata;
    uint64_t metadata_at; /* where __metadata__ began, or 0 */
    char subject[512];
};

static const char *subject_of(struct parser *p)
{
    return qp_st_subject(p->subject, p->st, &p->entry);
}

/* Room for more elements behind n; NULL when refused, and then err is filled. */
static void *grow(struct parser *p, void *block, size_t *cap, size_t n, size_t more, size_t size)
{
    if (more <= *cap - n)
        return block;
    size_t larger = *cap + *cap / 2 + 64 + more;
    void *moved = qp_realloc(block, larger, size);
    if (!moved)
        (void)qp_fail_memory(p->err, p->st->file.shown, (uint64_t)larger * size);
    else
        *cap = larger;
    return moved;
}

/* ---- Values of the wrong kind ---------------------------------------------------------------- */

/* Walks to the end of the value that token began. */
static enum qplan_status skip(struct parser *p, const struct qp_json_token *token)
{
    if (token->type != QP_JSON_OBJECT && token->type != QP_JSON_ARRAY)
        return QPLAN_OK;
    struct qp_json_token inner;
    unsigned outside = p->json.depth - 1;
    while (p->json.depth > outside)
        QP_TRY(qp_json_next(&p->json, &inner, p->err));
    return QPLAN_OK;
}

/* The value is skipped first: JSON that is broken or too deep says more than a wrong type. */
static enum qplan_status wrong_type(struct parser *p, const struct qp_json_token *token,
                                    const char *subject, const char *what, const char *wanted)
{
    QP_TRY(skip(p, token));
    return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject, token->at, "%s: expected %s, found %s",
                      what, wanted, qp_json_type_name(token->type));
}

static enum qplan_status wrong_field(struct parser *p, const struct qp_json_token *token,
                                     enum field field, const char *wanted)
{
    return wrong_type(p, token, subject_of(p), field_names[field], wanted);
}

/* ---- Fields of a tensor ---------------------------------------------------------------------- */

static enum qplan_status read_dtype(struct parser *p)
{
    struct qp_json_token token;
    QP_TRY(qp_json_next(&p->json, &token, p->err));
    if (token.type != QP_JSON_STRING)
        return wrong_field(p, &token, FIELD_DTYPE, "a string");
    if (!qp_storage_find(token.text, token.n, &p->fields.storage)) {
        char name[QP_QUOTED];
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), token.at,
                          "unknown dtype: expected one of the %d of the format, found %s",
                          QPLAN_STORAGE_COUNT, qp_quote(name, token.text, token.n));
    }
    return QPLAN_OK;
}

static enum qplan_status bad_integer(struct parser *p, const struct qp_json_token *token,
                                     enum field field, bool too_large)
{
    char literal[QP_QUOTED];
    if (token->type != QP_JSON_NUMBER)
        return wrong_field(p, token, field, "an integer");
    return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), token->at,
                      "%s: %s: expected an integer from 0 to %" PRId64 ", found %s",
                      field_names[field], too_large ? "number too large" : "not an integer",
                      INT64_MAX, qp_quote(literal, token->text, token->n));
}

/* An array of integers. *n is how many there are; only the first cap of them are stored. */
static enum qplan_status read_integers(struct parser *p, enum field field, uint64_t *out,
                                       size_t cap, size_t *n)
{
    struct qp_json_token token;
    QP_TRY(qp_json_next(&p->json, &token, p->err));
    if (token.type != QP_JSON_ARRAY)
        return wrong_field(p, &token, field, "an array");
    for (*n = 0;; (*n)++) {
        uint64_t value = 0;
        bool too_large;
        QP_TRY(qp_json_next(&p->json, &token, p->err));
        if (token.type == QP_JSON_ARRAY_END)
            return QPLAN_OK;
        if (!qp_json_u64(&token, &value, &too_large))
            return bad_integer(p, &token, field, too_large);
        if (*n < cap)
            out[*n] = value;
    }
}

static enum qplan_status read_shape(struct parser *p, uint64_t at)
{
    size_t rank;
    QP_TRY(read_integers(p, FIELD_SHAPE, p->fields.shape, QPLAN_MAX_RANK, &rank));
    if (rank > QPLAN_MAX_RANK)
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), at,
                          "shape: rank too high: expected at most %d dimensions, found %zu",
                          QPLAN_MAX_RANK, rank);
    p->fields.rank = (unsigned)rank;
    return QPLAN_OK;
}

static enum qplan_status read_offsets(struct parser *p, uint64_t at)
{
    size_t n;
    QP_TRY(read_integers(p, FIELD_OFFSETS, p->fields.range, 2, &n));
    if (n != 2)
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), at,
                          "data_offsets: expected 2 integers, found %zu", n);
    return QPLAN_OK;
}

static enum qplan_status read_field(struct parser *p, enum field field, uint64_t at)
{
    switch (field) {
    case FIELD_DTYPE:
        return read_dtype(p);
    case FIELD_SHAPE:
        return read_shape(p, at);
    default:
        return read_offsets(p, at);
    }
}

static enum field find_field(const struct qp_json_token *key)
{
    static const size_t lengths[FIELD_COUNT] = {sizeof "dtype" - 1, sizeof "shape" - 1,
                                                sizeof "data_offsets" - 1};
    unsigned i = 0;
    while (i < FIELD_COUNT &&
           (lengths[i] != key->n || memcmp(field_names[i], key->text, key->n) != 0))
        i++;
    return (enum field)i;
}

static enum qplan_status unknown_field(struct parser *p, const struct qp_json_token *key)
{
    struct qp_json_token value;
    QP_TRY(qp_json_next(&p->json, &value, p->err));
    QP_TRY(skip(p, &value));
    char name[QP_QUOTED];
    return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), key->at,
                      "unknown field: expected dtype, shape or data_offsets, found %s",
                      qp_quote(name, key->text, key->n));
}

static enum qplan_status missing_field(struct parser *p, unsigned seen, uint64_t at)
{
    unsigned i = 0;
    while (i < FIELD_COUNT - 1 && seen >> i & 1) /* one is missing */
        i++;
    return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), at,
                      "missing field: expected dtype, shape and data_offsets, found no %s",
                      field_names[i]);
}

/* The fields of one tensor, behind its {: each exactly once and no other. */
static enum qplan_status read_fields(struct parser *p)
{
    unsigned seen = 0;
    for (;;) {
        struct qp_json_token token;
        QP_TRY(qp_json_next(&p->json, &token, p->err));
        if (token.type == QP_JSON_OBJECT_END)
            return seen == (1u << FIELD_COUNT) - 1 ? QPLAN_OK : missing_field(p, seen, token.at);
        enum field field = find_field(&token);
        if (field == FIELD_COUNT)
            return unknown_field(p, &token);
        if (seen >> field & 1)
            return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), token.at,
                              "duplicate field: expected %s once, found it again",
                              field_names[field]);
        seen |= 1u << field;
        QP_TRY(read_field(p, field, token.at));
    }
}

/* ---- Members of the header ------------------------------------------------------------------- */

static enum qplan_status check_name(struct parser *p, const struct qp_json_token *key)
{
    if (key->n > QP_ST_MAX_NAME)
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), key->at,
                          "tensor name too long: expected at most %u bytes, found %zu",
                          QP_ST_MAX_NAME, key->n);
    if (memchr(key->text, '\0', key->n))
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject_of(p), key->at,
                          "tensor name contains U+0000: readers in C would cut it there");
    return QPLAN_OK;
}

/* The value of a tensor. */
static enum qplan_status read_value(struct parser *p)
{
    struct qp_json_token token;
    QP_TRY(qp_json_next(&p->json, &token, p->err));
    if (token.type != QP_JSON_OBJECT)
        return wrong_type(p, &token, subject_of(p), "not a tensor", "an object");
    return read_fields(p);
}

static enum qplan_status read_tensor(struct parser *p, const struct qp_json_token *key)
{
    struct qp_st *st = p->st;
    p->entry = (struct qplan_entry){.name = key->text, .name_len = (uint32_t)key->n};
    QP_TRY(check_name(p, key));
    QP_TRY(read_value(p));
    const struct fields *f = &p->fields;
    p->entry.storage = (uint8_t)f->storage;
    p->entry.rank = (uint8_t)f->rank;
    p->entry.shape = qp_arena_copy(&st->shapes, f->shape, f->rank, sizeof *f->shape);
    p->entry.begin = f->range[0];
    p->entry.end = f->range[1];
    if (!p->entry.shape)
        return qp_fail_memory(p->err, st->file.shown, f->rank * sizeof *f->shape);
    struct qplan_entry *entries =
        grow(p, st->entries, &p->cap_entries, st->n_entries, 1, sizeof *entries);
    if (!entries)
        return QPLAN_ERR_MEMORY;
    st->entries = entries;
    entries[st->n_entries++] = p->entry;
    return QPLAN_OK;
}

static enum qplan_status add_pair(struct parser *p, const struct qp_json_token *key,
                                  const struct qp_json_token *value)
{
    struct qp_st *st = p->st;
    if (value->type != QP_JSON_STRING) {
        char name[QP_QUOTED], what[QP_QUOTED + 32];
        (void)snprintf(what, sizeof what, "__metadata__: value of %s",
                       qp_quote(name, key->text, key->n));
        return wrong_type(p, value, st->file.shown, what, "a string");
    }
    struct qp_st_pair *pairs =
        grow(p, st->metadata, &p->cap_metadata, st->n_metadata, 1, sizeof *pairs);
    if (!pairs)
        return QPLAN_ERR_MEMORY;
    st->metadata = pairs;
    pairs[st->n_metadata++] = (struct qp_st_pair){.key = key->text,
                                                  .value = value->text,
                                                  .key_len = (uint32_t)key->n,
                                                  .value_len = (uint32_t)value->n};
    return QPLAN_OK;
}

static enum qplan_status read_metadata(struct parser *p, const struct qp_json_token *key)
{
    const char *subject = p->st->file.shown;
    if (p->metadata_at)
        return qp_fail_at(p->err, QPLAN_ERR_INVALID, subject, key->at,
                          "duplicate __metadata__: first at byte %" PRIu64 ", then again",
                          p->metadata_at);
    p->metadata_at = key->at;
    struct qp_json_token token, value;
    QP_TRY(qp_json_next(&p->json, &token, p->err));
    if (token.type == QP_JSON_NULL) /* some writers put it where there is none */
        return QPLAN_OK;
    if (token.type != QP_JSON_OBJECT)
        return wrong_type(p, &token, subject, "__metadata__", "an object or null");
    for (;;) {
        QP_TRY(qp_json_next(&p->json, &token, p->err));
        if (token.type == QP_JSON_OBJECT_END)
            return QPLAN_OK;
        QP_TRY(qp_json_next(&p->json, &value, p->err));
        QP_TRY(add_pair(p, &token, &value));
    }
}

static enum qplan_status read_members(struct parser *p)
{
    static const char metadata[] = "__metadata__";
    struct qp_json_token token;
    QP_TRY(qp_json_next(&p->json, &token, p->err));
    if (token.type != QP_JSON_OBJECT)
        return wrong_type(p, &token, p->st->file.shown, "the header", "an object");
    for (;;) {
        QP_TRY(qp_json_next(&p->json, &token, p->err));
        if (token.type == QP_JSON_OBJECT_END)
            return qp_json_next(&p->json, &token, p->err); /* nothing may follow */
        if (token.n == sizeof metadata - 1 && memcmp(token.text, metadata, token.n) == 0)
            QP_TRY(read_metadata(p, &token));
        else
            QP_TRY(read_tensor(p, &token));
    }
}

/* ---- Afterwards ------------------------------------------------------------------------------ */

static enum qplan_status sort_metadata(struct qp_st *st, struct qplan_error *err)
{
    size_t n = st->n_metadata;
    if (qp_st_ascending(st->metadata, n, sizeof *st->metadata, qp_st_pair_name))
        return QPLAN_OK;
    struct qp_st_pair *pairs = qp_st_sort(st->metadata, n, sizeof *pairs, qp_st_pair_name);
    if (!pairs)
        return qp_fail_memory(err, st->file.shown, n * sizeof *pairs);
    st->metadata = pairs;
    size_t twice = qp_st_duplicate(pairs, n, sizeof *pairs, qp_st_pair_name);
    if (twice == 0)
        return QPLAN_OK;
    char key[QP_QUOTED];
    return qp_fail_at(err, QPLAN_ERR_INVALID, st->file.shown, qp_st_position(st, pairs[twice].key),
                      "__metadata__: duplicate key %s: first at byte %" PRIu64 ", then again",
                      qp_quote(key, pairs[twice].key, pairs[twice].key_len),
                      qp_st_position(st, pairs[twice - 1].key));
}

enum qplan_status qp_st_read_header(struct qp_st *st, struct qplan_error *err)
{
    struct parser p = {.st = st, .err = err};
    qp_json_init(&p.json, st->header, (size_t)(st->header_bytes - QP_ST_LENGTH_BYTES),
                 QP_ST_LENGTH_BYTES, MAX_DEPTH, st->file.shown);
    QP_TRY(read_members(&p));
    return sort_metadata(st, err);
}
