/*
 * native_read.c - the native layout, reading side: records back to tensors, every claim proven
 * against the header; and noticing files that some tool has quantized already.
 */
#include "native.h"

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool qp_native_is(const struct qp_st *st)
{
    return qp_st_metadata(st, QP_NATIVE_LAYOUT_KEY) != NULL;
}

/* ---- One record ------------------------------------------------------------------------------ */

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

/* "4096x11007" to a shape, which stays NULL when out of memory; false if malformed. */
static bool parse_shape(char *text, struct qp_labels *labels, struct qp_native_tensor *t)
{
    uint64_t shape[QPLAN_MAX_RANK], elems;
    unsigned rank = 0;
    for (char *part = text; part; rank++) {
        char *x = strchr(part, 'x');
        if (x)
            *x = '\0';
        if (rank == QPLAN_MAX_RANK || !qp_parse_u64(part, &shape[rank]))
            return false;
        part = x ? x + 1 : NULL;
    }
    if (!qp_shape_elements(shape, rank, &elems) || elems == 0)
        return false;
    t->shape = qp_labels_shape(labels, shape, rank);
    t->rank = rank;
    return true;
}

#define MAX_CALIBRATE 31 /* bytes of the name of a calibrator */

/* Scheme and calibrator of the last record: most are alike. */
struct last_scheme {
    char text[QPLAN_SCHEME_TEXT]; /* "" = none */
    struct qplan_scheme scheme;
    const char *calibrate; /* NULL = none */
};

static bool parse_scheme(const char *text, struct last_scheme *last)
{
    if (text[0] && strcmp(text, last->text) == 0)
        return true;
    last->text[0] = '\0';
    if (qplan_scheme_parse(&last->scheme, text, NULL) != QPLAN_OK)
        return false;
    if (strlen(text) < sizeof last->text)
        memcpy(last->text, text, strlen(text) + 1);
    return true;
}

/* The name of a calibrator, or NULL when out of memory. */
static const char *keep_calibrate(const char *text, struct qp_labels *labels,
                                  struct last_scheme *last)
{
    if (!last->calibrate || strcmp(text, last->calibrate) != 0)
        last->calibrate = qp_arena_join(&labels->arena, text, strlen(text), "");
    return last->calibrate;
}

/* The text of a record is taken apart in place. */
static bool parse_record(char *text, struct qp_labels *labels, struct last_scheme *last,
                         struct qp_native_tensor *t)
{
    char *scheme = next_word(&text), *calibrate = next_word(&text);
    char *source = next_word(&text), *shape = next_word(&text);
    if (!shape || text || strlen(calibrate) > MAX_CALIBRATE)
        return false;
    t->calibrate = keep_calibrate(calibrate, labels, last);
    return parse_scheme(scheme, last) && qp_storage_find(source, strlen(source), &t->source) &&
           qp_storage_row(t->source)->is_source && parse_shape(shape, labels, t) &&
           qp_scheme_resolve(&last->scheme, t->rank, &t->scheme) &&
           (t->scheme.granularity != QPLAN_PER_BLOCK || t->rank >= 2);
}

/* ---- The tensors that a record speaks of ----------------------------------------------------- */

static bool same_tensor(const struct qplan_entry *found, const struct qplan_entry *wanted)
{
    return found->storage == wanted->storage &&
           qp_same_shape(found->shape, found->rank, wanted->shape, wanted->rank);
}

static enum qplan_status find_part(const struct qp_st *st, const struct qplan_entry *wanted,
                                   bool optional, const struct qplan_entry **out,
                                   struct qplan_error *err)
{
    char subject[512];
    *out = qp_st_find(st, wanted->name, wanted->name_len);
    if (*out ? same_tensor(*out, wanted) : optional)
        return QPLAN_OK;
    (void)qp_st_subject(subject, st, wanted);
    if (!*out)
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "recorded in " QP_NATIVE_TENSORS_KEY " but not in the file");
    return qp_fail(err, QPLAN_ERR_INVALID, subject,
                   "type and shape are not those of its record: expected %s of rank %u, found "
                   "%s of rank %u or other extents",
                   qplan_storage_name((enum qplan_storage)wanted->storage), wanted->rank,
                   qplan_storage_name((enum qplan_storage)(*out)->storage), (*out)->rank);
}

struct reader {
    const struct qp_st *st;
    struct qp_labels *labels;
    struct qp_labels scratch; /* for one record */
    struct last_scheme last;
    struct qp_native_tensor *tensors;
    size_t n, cap;
};

static enum qplan_status find_parts(struct reader *r, const char *name, size_t n_name,
                                    struct qp_native_tensor *t, struct qplan_error *err)
{
    const struct qplan_entry source = {.name = name,
                                       .name_len = (uint32_t)n_name,
                                       .storage = (uint8_t)t->source,
                                       .shape = t->shape,
                                       .rank = (uint8_t)t->rank};
    struct qplan_entry wanted[QP_NATIVE_PARTS];
    qp_labels_clear(&r->scratch);
    if (qp_native_outputs(&source, &t->scheme, QPLAN_ZERO_POINT_ALWAYS, &r->scratch, wanted) == 0)
        return qp_fail_memory(err, r->st->file.shown, n_name);
    for (unsigned part = 0; part < QP_NATIVE_PARTS; part++) {
        bool optional = part == QP_ZERO_POINT && !t->scheme.asymmetric;
        QP_TRY(find_part(r->st, &wanted[part], optional, &t->part[part], err));
    }
    return QPLAN_OK;
}

/* ---- All records ------------------------------------------------------------------------------
 */

static enum qplan_status bad_records(const struct reader *r, struct qplan_error *err,
                                     const char *what, const char *name, size_t n_name)
{
    char quoted[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, r->st->file.shown,
                   "metadata " QP_NATIVE_TENSORS_KEY ": %s at %s", what,
                   qp_quote(quoted, name, n_name));
}

static enum qplan_status add_tensor(struct reader *r, const struct qp_json_token *key,
                                    struct qp_json_token *value, struct qplan_error *err)
{
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        struct qp_native_tensor *grown = qp_realloc(r->tensors, cap, sizeof *grown);
        if (!grown)
            return qp_fail_memory(err, r->st->file.shown, cap * sizeof *grown);
        r->tensors = grown;
        r->cap = cap;
    }
    struct qp_native_tensor *t = &r->tensors[r->n];
    *t = (struct qp_native_tensor){0};
    if (value->type != QP_JSON_STRING || !parse_record(value->text, r->labels, &r->last, t))
        return bad_records(r, err, "not a record \"SCHEME CALIBRATOR DTYPE SHAPE\"", key->text,
                           key->n);
    if (!t->shape || !t->calibrate)
        return qp_fail_memory(err, r->st->file.shown, t->rank * sizeof *t->shape);
    QP_TRY(find_parts(r, key->text, key->n, t, err));
    r->n++;
    return QPLAN_OK;
}

static enum qplan_status read_records(struct reader *r, char *text, size_t n,
                                      struct qplan_error *err)
{
    struct qp_json json;
    struct qp_json_token key, value;
    qp_json_init(&json, text, n, 0, 2, "metadata " QP_NATIVE_TENSORS_KEY);
    QP_TRY(qp_json_next(&json, &key, err));
    if (key.type != QP_JSON_OBJECT)
        return bad_records(r, err, "not an object", "", 0);
    for (;;) {
        QP_TRY(qp_json_next(&json, &key, err));
        if (key.type != QP_JSON_KEY)
            break;
        QP_TRY(qp_json_next(&json, &value, err));
        QP_TRY(add_tensor(r, &key, &value, err));
    }
    return qp_json_next(&json, &value, err);
}

static int by_name(const void *a, const void *b)
{
    const struct qp_native_tensor *x = a, *y = b;
    /* The codes carry the name; entries are in name order, so their addresses are too. */
    return (x->part[QP_CODES] > y->part[QP_CODES]) - (x->part[QP_CODES] < y->part[QP_CODES]);
}

static enum qplan_status sort_records(struct reader *r, struct qplan_error *err)
{
    if (r->n)
        qsort(r->tensors, r->n, sizeof *r->tensors, by_name);
    for (size_t i = 1; i < r->n; i++) {
        const struct qplan_entry *codes = r->tensors[i].part[QP_CODES];
        if (codes == r->tensors[i - 1].part[QP_CODES])
            return bad_records(r, err, "two records", codes->name, codes->name_len);
    }
    return QPLAN_OK;
}

static enum qplan_status check_versions(const struct qp_st *st, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    const struct qp_st_pair *layout = qp_st_metadata(st, QP_NATIVE_LAYOUT_KEY);
    if (strcmp(layout->value, QP_NATIVE_LAYOUT) != 0)
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "layout of a newer qplan: expected " QP_NATIVE_LAYOUT_KEY " 1, found %s",
                       qp_quote(quoted, layout->value, layout->value_len));
    if (!qp_st_metadata(st, QP_NATIVE_TENSORS_KEY))
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "metadata " QP_NATIVE_TENSORS_KEY " is missing");
    return QPLAN_OK;
}

enum qplan_status qp_native_read(const struct qp_st *st, struct qp_labels *labels,
                                 struct qp_native_tensor **tensors, size_t *n,
                                 struct qplan_error *err)
{
    *tensors = NULL;
    *n = 0;
    QP_TRY(check_versions(st, err));
    const struct qp_st_pair *records = qp_st_metadata(st, QP_NATIVE_TENSORS_KEY);
    struct reader r = {.st = st, .labels = labels};
    char *text = qp_strndup(records->value, records->value_len);
    if (!text)
        return qp_fail_memory(err, st->file.shown, records->value_len);
    enum qplan_status status = read_records(&r, text, records->value_len, err);
    if (status == QPLAN_OK)
        status = sort_records(&r, err);
    qp_free(text);
    qp_labels_free(&r.scratch);
    if (status != QPLAN_OK) {
        qp_free(r.tensors);
        return status;
    }
    *tensors = r.tensors;
    *n = r.n;
    return QPLAN_OK;
}

/* ---- Files that were quantized by some tool ---------------------------------------------------
 */

struct suffix {
    const char *text;
    size_t n;
};

#define SUFFIX(text)                                                                               \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

/* Looks at the last byte first: of most names it settles it. */
static inline bool ends_with(const struct qplan_entry *entry, const struct suffix *s)
{
    const char *end = entry->name + entry->name_len;
    return entry->name_len >= s->n && end[-1] == s->text[s->n - 1] &&
           memcmp(end - s->n, s->text, s->n) == 0;
}

/* Whether the tensor called like the entry, with its suffix replaced, holds codes. */
static bool has_codes(const struct qp_st *st, const struct qplan_entry *entry,
                      const struct suffix *suffix, const char *replacement, struct qp_writer *name)
{
    name->n = 0;
    qp_put(name, entry->name, entry->name_len - suffix->n);
    qp_puts(name, replacement);
    const struct qplan_entry *codes = name->error ? NULL : qp_st_find(st, name->data, name->n);
    if (!codes)
        return false;
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)codes->storage);
    return row->is_integer || row->is_f8;
}

/* Whether the entry belongs to quantized weights, by its name and by what stands beside it. */
static bool is_quantized(const struct qp_st *st, const struct qplan_entry *entry,
                         struct qp_writer *name)
{
    static const struct suffix whole[] = {SUFFIX(".qweight"), SUFFIX("weight_packed")};
    static const struct suffix scales[] = {SUFFIX("_scale"), SUFFIX(".scales"),
                                           SUFFIX("_scale_inv"), SUFFIX(".absmax")};
    for (size_t k = 0; k < sizeof whole / sizeof whole[0]; k++) {
        if (ends_with(entry, &whole[k]))
            return true;
    }
    for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
        if (ends_with(entry, &scales[k]) && (has_codes(st, entry, &scales[k], "", name) ||
                                             has_codes(st, entry, &scales[k], ".weight", name)))
            return true;
    }
    return false;
}

enum qplan_status qp_find_quantized(const struct qp_st *st, const struct qplan_entry **found,
                                    struct qplan_error *err)
{
    struct qp_writer name;
    qp_writer_init(&name);
    *found = NULL;
    for (size_t i = 0; i < st->n_entries && !*found; i++) {
        if (is_quantized(st, &st->entries[i], &name))
            *found = &st->entries[i];
    }
    enum qplan_status status = qp_writer_finish(&name, st->file.shown, err);
    qp_writer_free(&name);
    return status;
}
