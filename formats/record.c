/*
 * record.c - records of quantized tensors in the metadata, written and read:
 *
 *     "model.layers.0.mlp.up_proj.weight": "int4:g128 minmax BF16 4096x11008"
 *
 * SCHEME CALIBRATOR SOURCEDTYPE D0xD1, one blank between words. What a record says of stored
 * tensors is for the layout to prove. Of parameters that another tool has chosen, which qplan took
 * over from its layout, the calibrator is "unknown".
 */
#include "record.h"

#include "making.h"

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <stdio.h>
#include <string.h>

static const char unknown[] = "unknown";

bool qp_owns_key(const struct qp_st_pair *pair)
{
    static const char begin[] = "qplan.";
    const size_t n = sizeof begin - 1;
    return pair->key_len >= n && memcmp(pair->key, begin, n) == 0;
}

bool qp_is_handed_on(const struct qp_st_pair *pair)
{
    const struct qp_format *format;
    bool is_claim = false;
    for (size_t i = 0; (format = qp_format_at(i)) != NULL; i++)
        is_claim |= format->claim && qp_text_is(pair->key, pair->key_len, format->claim);
    return !is_claim && !qp_owns_key(pair);
}

bool qp_is_format(const struct qp_st_pair *pair)
{
    return qp_text_is(pair->key, pair->key_len, "format");
}

static struct qp_st_pair pair_of(const char *key, const char *value, size_t n_value)
{
    return (struct qp_st_pair){key, value, (uint32_t)strlen(key), (uint32_t)n_value};
}

static bool has_small_scales(const struct qplan_scheme *scheme)
{
    return qplan_dtype_bits(scheme->scale_dtype) == 8;
}

bool qp_needs_layout_2(const struct qp_tensor *tensor)
{
    const unsigned bits = qp_integer_bits(tensor->scheme->dtype);
    return (bits != 4 && bits != 8) || tensor->scheme->bias || has_small_scales(tensor->scheme) ||
           !tensor->calibrate || strcmp(tensor->calibrate, "minmax") != 0;
}

void qp_own_pairs(bool is_layout_2, const char *records, size_t n_records,
                  struct qp_st_pair out[QP_OWN_PAIRS])
{
    out[0] = pair_of("format", QP_FORMAT, strlen(QP_FORMAT));
    out[1] = pair_of(QP_LAYOUT_KEY, is_layout_2 ? "2" : "1", 1);
    out[2] = pair_of(QP_NUMERICS_KEY, QP_NUMERICS, strlen(QP_NUMERICS));
    out[3] = pair_of(QP_TENSORS_KEY, records, n_records);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put_record(struct qp_writer *w, const struct qp_tensor *t, const char *scheme)
{
    qp_puts(w, scheme);
    qp_puts(w, " ");
    qp_puts(w, t->calibrate ? t->calibrate : unknown);
    qp_puts(w, " ");
    qp_puts(w, qplan_storage_name((enum qplan_storage)t->storage));
    for (unsigned i = 0; i < t->rank; i++) {
        qp_puts(w, i ? "x" : " ");
        qp_put_u64(w, t->shape[i]);
    }
}

void qp_put_records(struct qp_writer *w, const struct qp_tensor *const *tensors, size_t n)
{
    char scheme[QPLAN_SCHEME_TEXT];
    struct qp_writer record;
    qp_writer_init(&record);
    qp_json_open(w, '{');
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || tensors[i]->scheme != tensors[i - 1]->scheme) /* most share theirs */
            qplan_scheme_format(tensors[i]->scheme, scheme);
        record.n = 0;
        put_record(&record, tensors[i], scheme);
        qp_json_key_n(w, tensors[i]->name, tensors[i]->name_len);
        qp_json_put_string(w, record.data, record.n);
    }
    qp_json_close(w, '}');
    w->error = w->error ? w->error : record.error;
    qp_writer_free(&record);
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct reader {
    const struct qp_st *st;
    struct qp_arena *arena;
    struct qp_tensor *tensors;
    size_t n, cap;
    const struct qplan_scheme *scheme; /* of the last record: most share theirs */
    const char *calibrate;             /* of the last record */
    char subject[512 + 32];            /* of errors */
    struct qplan_error *err;
};

/* Text of a file: counted, for it may contain NULs. */
struct span {
    const char *text; /* NULL = nothing is left */
    size_t n;
};

/* Cuts the next word off a text; false when none is left. */
static bool next_word(struct span *rest, char separator, struct span *word)
{
    if (!rest->text)
        return false;
    const char *end = memchr(rest->text, separator, rest->n);
    *word = (struct span){rest->text, end ? (size_t)(end - rest->text) : rest->n};
    *rest = end ? (struct span){end + 1, rest->n - word->n - 1} : (struct span){NULL, 0};
    return true;
}

/* "4096x11007" to extents: two or more, and such a tensor has elements. */
static bool parse_shape(struct span text, uint64_t shape[QPLAN_MAX_RANK], unsigned *rank)
{
    struct span extent;
    uint64_t elems;
    for (*rank = 0; next_word(&text, 'x', &extent); ++*rank) {
        if (*rank == QPLAN_MAX_RANK || !qp_parse_u64_n(extent.text, extent.n, &shape[*rank]))
            return false;
    }
    return *rank >= 2 && qp_shape_elements(shape, *rank, &elems) && elems > 0;
}

/* A scheme in its canonical form, with an axis that is not negative. */
static bool parse_scheme(struct span text, struct qplan_scheme *out)
{
    char given[QPLAN_SCHEME_TEXT], canonical[QPLAN_SCHEME_TEXT];
    if (text.n >= sizeof given)
        return false;
    memcpy(given, text.text, text.n);
    given[text.n] = '\0';
    if (qplan_scheme_parse(out, given, NULL) != QPLAN_OK || out->axis < 0)
        return false;
    (void)qplan_scheme_format(out, canonical);
    return qp_text_is(text.text, text.n, canonical);
}

/* What a record says, before it is kept. */
struct record {
    struct span text; /* of the scheme: most records share theirs with the one before */
    struct qplan_scheme scheme;
    struct span calibrate;
    enum qplan_storage storage;
    unsigned rank;
    uint64_t shape[QPLAN_MAX_RANK];
};

static bool parse_record(const char *text, size_t n, struct record *out)
{
    enum { SCHEME, CALIBRATE, SOURCE, SHAPE, WORDS };
    struct span rest = {text, n}, words[WORDS];
    struct qplan_scheme resolved;
    unsigned n_words = 0;
    while (n_words < WORDS && next_word(&rest, ' ', &words[n_words]))
        n_words++;
    if (memchr(text, '\0', n) || n_words < WORDS || rest.text)
        return false;
    const struct span *scheme = &words[SCHEME], *source = &words[SOURCE];
    const bool as_before = out->text.text && qp_compare_text(out->text.text, out->text.n,
                                                             scheme->text, scheme->n) == 0;
    if (!as_before && !parse_scheme(*scheme, &out->scheme))
        return false;
    out->text = *scheme;
    out->calibrate = words[CALIBRATE];
    return qp_storage_find(source->text, source->n, &out->storage) &&
           qp_storage_row(out->storage)->is_source &&
           parse_shape(words[SHAPE], out->shape, &out->rank) &&
           qp_scheme_resolve(&out->scheme, out->rank, &resolved);
}

static enum qplan_status add_tensor(struct reader *r, const struct qp_json_token *key,
                                    const struct record *record)
{
    const struct span *calibrate = &record->calibrate;
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        struct qp_tensor *grown = qp_realloc(r->tensors, cap, sizeof *grown);
        if (!grown)
            return qp_fail_memory(r->err, r->st->file.shown, cap * sizeof *grown);
        r->tensors = grown;
        r->cap = cap;
    }
    if (!r->scheme || !qp_scheme_equal(r->scheme, &record->scheme))
        r->scheme = qp_arena_copy(r->arena, &record->scheme, 1, sizeof record->scheme);
    if (!r->calibrate || !qp_text_is(calibrate->text, calibrate->n, r->calibrate))
        r->calibrate = qp_arena_join(r->arena, calibrate->text, calibrate->n, "");
    const struct qp_tensor t = {
        .name = key->text,
        .name_len = (uint32_t)key->n,
        .shape = qp_arena_copy(r->arena, record->shape, record->rank, sizeof *record->shape),
        .rank = (uint8_t)record->rank,
        .storage = (uint8_t)record->storage,
        .scheme = r->scheme,
        .calibrate = qp_text_is(calibrate->text, calibrate->n, unknown) ? NULL : r->calibrate,
    };
    if (!t.shape || !t.scheme || !r->calibrate)
        return qp_fail_memory(r->err, r->st->file.shown, sizeof record->shape);
    r->tensors[r->n++] = t;
    return QPLAN_OK;
}

static enum qplan_status read_record(struct reader *r, const struct qp_json_token *key,
                                     const struct qp_json_token *value, struct record *record)
{
    char name[QP_QUOTED], found[QP_QUOTED];
    if (value->type == QP_JSON_STRING && parse_record(value->text, value->n, record))
        return add_tensor(r, key, record);
    (void)qp_fail(r->err, QPLAN_ERR_INVALID, r->subject,
                  "not a record at %s: expected \"SCHEME CALIBRATOR DTYPE SHAPE\", found %s",
                  qp_quote(name, key->text, key->n),
                  value->type == QP_JSON_STRING ? qp_quote(found, value->text, value->n)
                                                : qp_json_type_name(value->type));
    return QPLAN_ERR_INVALID;
}

static enum qplan_status read_object(struct reader *r, char *text, size_t n)
{
    struct qp_json json;
    struct qp_json_token key, value;
    struct record record = {.text = {NULL, 0}};
    qp_json_init(&json, text, n, 0, 2, r->subject);
    QP_TRY(qp_json_next(&json, &key, r->err));
    if (key.type != QP_JSON_OBJECT)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->subject, "expected an object, found %s",
                       qp_json_type_name(key.type));
    for (;;) {
        QP_TRY(qp_json_next(&json, &key, r->err));
        if (key.type != QP_JSON_KEY)
            break;
        QP_TRY(qp_json_next(&json, &value, r->err));
        QP_TRY(read_record(r, &key, &value, &record));
    }
    return qp_json_next(&json, &value, r->err);
}

static enum qplan_status missing(const struct qp_st *st, const char *key, struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown, "metadata %s is missing", key);
}

/* The value of one of our keys is one that this revision writes: the first, or a second. */
static enum qplan_status check_value(const struct qp_st *st, const char *key, const char *first,
                                     const char *second, const char *what, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    const struct qp_st_pair *pair = qp_st_metadata(st, key);
    if (!pair)
        return missing(st, key, err);
    if (qp_text_is(pair->value, pair->value_len, first) ||
        (second && qp_text_is(pair->value, pair->value_len, second)))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown, "%s: expected %s %s%s%s, found %s", what,
                   key, first, second ? " or " : "", second ? second : "",
                   qp_quote(quoted, pair->value, pair->value_len));
}

/* Keys that begin as ours do are ours: others would be claims that nothing checks. */
static enum qplan_status check_keys(const struct qp_st *st, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < st->n_metadata; i++) {
        const struct qp_st_pair *pair = &st->metadata[i];
        if (qp_owns_key(pair) && !qp_text_is(pair->key, pair->key_len, QP_LAYOUT_KEY) &&
            !qp_text_is(pair->key, pair->key_len, QP_NUMERICS_KEY) &&
            !qp_text_is(pair->key, pair->key_len, QP_TENSORS_KEY) && !qp_is_making_key(pair))
            return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                           "unknown metadata key: expected " QP_LAYOUT_KEY ", " QP_NUMERICS_KEY
                           ", " QP_TENSORS_KEY " or one of how it was made, found %s",
                           qp_quote(quoted, pair->key, pair->key_len));
    }
    return QPLAN_OK;
}

bool qp_has_records(const struct qp_listing *listing)
{
    for (size_t i = 0; i < listing->n_files; i++) {
        if (qp_st_metadata(&listing->files[i], QP_LAYOUT_KEY) ||
            qp_st_metadata(&listing->files[i], QP_TENSORS_KEY))
            return true;
    }
    return false;
}

bool qp_has_own_keys(const struct qp_listing *listing)
{
    for (size_t i = 0; i < listing->n_files; i++) {
        for (size_t k = 0; k < listing->files[i].n_metadata; k++) {
            if (qp_owns_key(&listing->files[i].metadata[k]))
                return true;
        }
    }
    return false;
}

enum qplan_status qp_read_records(const struct qp_st *st, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    *tensors = NULL;
    *n = 0;
    QP_TRY(check_value(st, QP_LAYOUT_KEY, "1", "2", "layout of a newer qplan", err));
    const struct qp_st_pair *records = qp_st_metadata(st, QP_TENSORS_KEY);
    if (!records)
        return missing(st, QP_TENSORS_KEY, err);
    QP_TRY(check_value(st, QP_NUMERICS_KEY, QP_NUMERICS, NULL, "made by another revision", err));
    QP_TRY(check_keys(st, err));
    struct reader r = {.st = st, .arena = arena, .err = err};
    (void)snprintf(r.subject, sizeof r.subject, "%s: metadata " QP_TENSORS_KEY, st->file.shown);
    /* It is decoded in place, and the names of the tensors are in it. */
    char *text = qp_arena_join(arena, records->value, records->value_len, "");
    if (!text)
        return qp_fail_memory(err, st->file.shown, records->value_len);
    enum qplan_status status = read_object(&r, text, records->value_len);
    if (status != QPLAN_OK) {
        qp_free(r.tensors);
        return status;
    }
    *tensors = r.tensors;
    *n = r.n;
    return QPLAN_OK;
}

/* Whether a file names this layout. */
static bool has_layout(const struct qp_st *st, const char *layout)
{
    const struct qp_st_pair *pair = qp_st_metadata(st, QP_LAYOUT_KEY);
    return pair && qp_text_is(pair->value, pair->value_len, layout);
}

enum qplan_status qp_check_layouts(const struct qp_listing *listing,
                                   const struct qp_tensor *tensors, size_t n,
                                   struct qplan_error *err)
{
    const struct qp_st *with_1 = NULL, *with_2 = NULL;
    char subject[512];
    for (size_t i = 0; i < listing->n_files; i++) {
        const struct qp_st *st = &listing->files[i];
        with_1 = !with_1 && has_layout(st, "1") ? st : with_1;
        with_2 = !with_2 && has_layout(st, "2") ? st : with_2;
    }
    if (with_1 && with_2)
        return qp_fail(err, QPLAN_ERR_INVALID, with_1->file.shown,
                       QP_LAYOUT_KEY " differs between shards: expected 2 as in %s, found 1",
                       with_2->file.shown);
    for (size_t i = 0; with_1 && i < n; i++) {
        const struct qplan_scheme *scheme = tensors[i].scheme;
        if (qp_needs_layout_2(&tensors[i]))
            return qp_fail(
                err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, tensors[i].entry),
                "not in layout 1: expected codes of 4 or 8 bits by minmax, or " QP_LAYOUT_KEY
                " 2, found %s%s%s by %s",
                qplan_dtype_name(scheme->dtype), scheme->bias ? " with a bias" : "",
                has_small_scales(scheme) ? " with scales of one byte" : "",
                tensors[i].calibrate ? tensors[i].calibrate : "another tool");
    }
    return QPLAN_OK;
}
