/*
 * record.c - records of quantized tensors in the metadata, written and read:
 *
 *     "model.layers.0.mlp.up_proj.weight": "int4:g128 minmax BF16 4096x11008"
 *
 * SCHEME CALIBRATOR SOURCEDTYPE D0xD1, one blank between words. What a record says of stored
 * tensors is for the layout to prove.
 */
#include "record.h"

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <string.h>

bool qp_owns_key(const char *key)
{
    return strncmp(key, "qplan.", 6) == 0;
}

static struct qp_st_pair pair_of(const char *key, const char *value, size_t n_value)
{
    return (struct qp_st_pair){key, value, (uint32_t)strlen(key), (uint32_t)n_value};
}

void qp_own_pairs(const char *records, size_t n_records, struct qp_st_pair out[QP_OWN_PAIRS])
{
    out[0] = pair_of("format", "pt", 2);
    out[1] = pair_of(QP_LAYOUT_KEY, QP_LAYOUT, strlen(QP_LAYOUT));
    out[2] = pair_of(QP_NUMERICS_KEY, QP_NUMERICS, strlen(QP_NUMERICS));
    out[3] = pair_of(QP_TENSORS_KEY, records, n_records);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put_record(struct qp_writer *w, const struct qp_tensor *t, const char *scheme)
{
    qp_puts(w, scheme);
    qp_puts(w, " ");
    qp_puts(w, t->calibrate);
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
    struct qplan_error *err;
};

static enum qplan_status bad_record(const struct reader *r, const char *what, const char *name,
                                    size_t n_name)
{
    char quoted[QP_QUOTED];
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->st->file.shown,
                   "metadata " QP_TENSORS_KEY ": %s at %s", what, qp_quote(quoted, name, n_name));
}

/* Cuts the next word off a text that is split at blanks; NULL when none is left. */
static char *next_word(char **text)
{
    char *word = *text;
    if (!word)
        return NULL;
    char *blank = strchr(word, ' ');
    *text = blank ? blank + 1 : NULL;
    if (blank)
        *blank = '\0';
    return word;
}

/* "4096x11007" to extents; false if malformed, or if such a tensor would have no elements. */
static bool parse_shape(char *text, uint64_t shape[QPLAN_MAX_RANK], unsigned *rank)
{
    uint64_t elems;
    *rank = 0;
    for (char *part = text; part; ++*rank) {
        char *x = strchr(part, 'x');
        if (x)
            *x = '\0';
        if (*rank == QPLAN_MAX_RANK || !qp_parse_u64(part, &shape[*rank]))
            return false;
        part = x ? x + 1 : NULL;
    }
    return qp_shape_elements(shape, *rank, &elems) && elems > 0;
}

/* What a record says, before it is kept; the text of its scheme is that of the record before. */
struct record {
    const char *text; /* NULL = there is none yet */
    struct qplan_scheme given, scheme;
    const char *calibrate;
    enum qplan_storage storage;
    unsigned rank;
    uint64_t shape[QPLAN_MAX_RANK];
};

#define MAX_CALIBRATE 31 /* bytes of the name of a calibrator */

/* Takes the text of a record apart in place. */
static bool parse_record(char *text, struct record *out)
{
    const char *scheme = next_word(&text), *calibrate = next_word(&text);
    char *source = next_word(&text), *shape = next_word(&text);
    if (!shape || text || strlen(calibrate) > MAX_CALIBRATE)
        return false;
    out->calibrate = calibrate;
    if (out->text && strcmp(out->text, scheme) != 0) /* most records share theirs */
        out->text = NULL;
    if (!out->text && qplan_scheme_parse(&out->given, scheme, NULL) != QPLAN_OK)
        return false;
    out->text = scheme;
    return qp_storage_find(source, strlen(source), &out->storage) &&
           qp_storage_row(out->storage)->is_source && parse_shape(shape, out->shape, &out->rank) &&
           qp_scheme_resolve(&out->given, out->rank, &out->scheme);
}

static enum qplan_status add_tensor(struct reader *r, const struct qp_json_token *key,
                                    const struct record *record)
{
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
    const struct qp_tensor t = {
        .name = key->text,
        .name_len = (uint32_t)key->n,
        .shape = qp_arena_copy(r->arena, record->shape, record->rank, sizeof *record->shape),
        .rank = (uint8_t)record->rank,
        .storage = (uint8_t)record->storage,
        .scheme = r->scheme,
        .calibrate = record->calibrate,
    };
    if (!t.shape || !t.scheme)
        return qp_fail_memory(r->err, r->st->file.shown, sizeof record->shape);
    r->tensors[r->n++] = t;
    return QPLAN_OK;
}

static enum qplan_status read_object(struct reader *r, char *text, size_t n)
{
    struct qp_json json;
    struct qp_json_token key, value;
    struct record record = {.text = NULL};
    qp_json_init(&json, text, n, 0, 2, "metadata " QP_TENSORS_KEY);
    QP_TRY(qp_json_next(&json, &key, r->err));
    if (key.type != QP_JSON_OBJECT)
        return bad_record(r, "not an object", "", 0);
    for (;;) {
        QP_TRY(qp_json_next(&json, &key, r->err));
        if (key.type != QP_JSON_KEY)
            break;
        QP_TRY(qp_json_next(&json, &value, r->err));
        if (value.type != QP_JSON_STRING || !parse_record(value.text, &record))
            return bad_record(r, "not a record \"SCHEME CALIBRATOR DTYPE SHAPE\"", key.text, key.n);
        QP_TRY(add_tensor(r, &key, &record));
    }
    return qp_json_next(&json, &value, r->err);
}

static enum qplan_status check_versions(const struct qp_st *st, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    const struct qp_st_pair *layout = qp_st_metadata(st, QP_LAYOUT_KEY);
    if (layout && strcmp(layout->value, QP_LAYOUT) != 0)
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "layout of a newer qplan: expected " QP_LAYOUT_KEY " 1, found %s",
                       qp_quote(quoted, layout->value, layout->value_len));
    if (!qp_st_metadata(st, QP_TENSORS_KEY))
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "metadata " QP_TENSORS_KEY " is missing");
    return QPLAN_OK;
}

enum qplan_status qp_read_records(const struct qp_st *st, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    *tensors = NULL;
    *n = 0;
    QP_TRY(check_versions(st, err));
    const struct qp_st_pair *records = qp_st_metadata(st, QP_TENSORS_KEY);
    struct reader r = {.st = st, .arena = arena, .err = err};
    /* It is decoded in place, and the tensors' texts are in it. */
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
