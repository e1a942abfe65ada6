/*
 * op_fields.c - the fields of a problem, read and checked by the table of the operator: names,
 * types, defaults and ranges. What concerns two fields, or a tensor, is the row's.
 */
#include "op.h"

#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Finding ----------------------------------------------------------------------------------
 */

static size_t find_field(const struct qplan_op_info *info, const char *name)
{
    size_t i = 0;
    while (i < info->n_fields && strcmp(info->fields[i].name, name) != 0)
        i++;
    return i;
}

const struct qp_op_value *qp_op_value(const struct qplan_op *op, const char *field)
{
    static const struct qp_op_value nothing = {.none = true};
    size_t i = find_field(&op->row->info, field);
    return i < op->row->info.n_fields ? &op->values[i] : &nothing;
}

int64_t qp_op_number(const struct qplan_op *op, const char *field)
{
    return qp_op_value(op, field)->number;
}

/* The words of a list a|b|c one by one: the length of the one at *words, which moves on; 0 = end.
 */
static size_t next_word(const char **words, const char **word)
{
    if (!*words)
        return 0;
    size_t n = strcspn(*words, "|");
    *word = *words;
    *words = (*words)[n] ? *words + n + 1 : NULL;
    return n;
}

/* The place of text in a list of names, or -1. */
static int64_t find_word(const char *words, const char *text)
{
    const char *word;
    int64_t place = 0;
    for (size_t n; (n = next_word(&words, &word)) > 0; place++) {
        if (n == strlen(text) && memcmp(word, text, n) == 0)
            return place;
    }
    return -1;
}

bool qp_op_is(const struct qplan_op *op, const char *field, const char *word)
{
    size_t i = find_field(&op->row->info, field);
    return i < op->row->info.n_fields && !op->values[i].none &&
           op->values[i].number == find_word(op->row->info.fields[i].names, word);
}

enum qplan_dtype qp_op_dtype(const struct qplan_op *op, const char *field)
{
    size_t i = find_field(&op->row->info, field);
    const char *words = op->row->info.fields[i].names, *word = "";
    char name[16];
    enum qplan_dtype dtype = QPLAN_DTYPE_COUNT;
    size_t n = 0;
    for (int64_t place = 0; place <= op->values[i].number; place++)
        n = next_word(&words, &word);
    (void)snprintf(name, sizeof name, "%.*s", (int)n, word);
    (void)qplan_dtype_parse(name, &dtype);
    return dtype;
}

/* ---- Reading one value ------------------------------------------------------------------------
 */

static bool read_int(const char *text, int64_t *out)
{
    uint64_t magnitude;
    bool negative = *text == '-';
    if (!qp_parse_u64(text + negative, &magnitude) || magnitude > INT64_MAX)
        return false;
    *out = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* Reads text as a value of the field's type. */
static bool read_text(const struct qplan_op_field_info *field, const char *text,
                      struct qp_op_value *out)
{
    enum qplan_dtype dtype;
    switch (field->type) {
    case QPLAN_FIELD_INT:
        out->none = field->names && strcmp(text, field->names) == 0;
        return out->none || read_int(text, &out->number);
    case QPLAN_FIELD_BOOL:
        out->number = find_word("false|true", text);
        return out->number >= 0;
    case QPLAN_FIELD_REAL:
        return qp_parse_f64(text, &out->real);
    case QPLAN_FIELD_NAME:
        out->number = find_word(field->names, text);
        if (out->number < 0 && qplan_dtype_parse(text, &dtype)) /* which may have two names */
            out->number = find_word(field->names, qplan_dtype_name(dtype));
        return out->number >= 0;
    }
    return false;
}

/* "a whole number or none", "true or false", "int8, uint8 or int4". Returns out. */
static const char *expectation(const struct qplan_op_field_info *field, char *out, size_t n_out)
{
    static const char *const kinds[] = {
        [QPLAN_FIELD_INT] = "a whole number",
        [QPLAN_FIELD_BOOL] = "true or false",
        [QPLAN_FIELD_REAL] = "a finite decimal number",
    };
    if (field->type != QPLAN_FIELD_NAME) {
        (void)snprintf(out, n_out, "%s%s%s", kinds[field->type], field->names ? " or " : "",
                       field->names ? field->names : "");
        return out;
    }
    const char *words = field->names, *word;
    size_t used = 0;
    for (size_t n; used < n_out && (n = next_word(&words, &word)) > 0;) {
        const char *joint = !words ? "" : strchr(words, '|') ? ", " : " or ";
        used += (size_t)snprintf(out + used, n_out - used, "%.*s%s", (int)n, word, joint);
    }
    return out;
}

static enum qplan_status fail_text(const struct qplan_op *op,
                                   const struct qplan_op_field_info *field, const char *text,
                                   struct qplan_error *err)
{
    char expected[256], quoted[QP_QUOTED];
    return qp_op_fail_field(op, QPLAN_ERR_USAGE, field->name, err, "expected %s, found %s",
                            expectation(field, expected, sizeof expected),
                            qp_quote(quoted, text, strlen(text)));
}

static enum qplan_status read_value(const struct qplan_op *op,
                                    const struct qplan_op_field_info *field,
                                    const struct qplan_op_field *given, struct qp_op_value *out,
                                    struct qplan_error *err)
{
    *out = (struct qp_op_value){.given = true, .number = given->number, .real = given->real};
    if (given->text && !read_text(field, given->text, out))
        return fail_text(op, field, given->text, err);
    if (!given->text && field->type == QPLAN_FIELD_NAME)
        return fail_text(op, field, "a number", err);
    if (!given->text && field->type == QPLAN_FIELD_BOOL)
        out->number = given->number != 0;
    if (field->type == QPLAN_FIELD_INT && !out->none &&
        (out->number < field->least || out->number > field->most))
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, field->name, err,
                                "out of range: expected %" PRId64 " to %" PRId64 ", found %" PRId64,
                                field->least, field->most, out->number);
    if (field->type == QPLAN_FIELD_REAL && !(out->real - out->real == 0))
        return fail_text(op, field, out->real > 0 ? "inf" : out->real < 0 ? "-inf" : "nan", err);
    return QPLAN_OK;
}

/* ---- All fields -------------------------------------------------------------------------------
 */

static enum qplan_status fail_unknown(const struct qplan_op *op, const char *name,
                                      struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    char quoted[QP_QUOTED];
    (void)qp_fail(err, QPLAN_ERR_USAGE, info->name,
                  "unknown field %s: ", qp_quote(quoted, name, strlen(name)));
    if (info->n_fields == 0)
        qp_fail_more(err, "this operator has none");
    for (size_t i = 0; i < info->n_fields; i++)
        qp_fail_more(err, "%s%s", i ? ", " : "expected one of ", info->fields[i].name);
    return QPLAN_ERR_USAGE;
}

/* Fields that were not given: their default, nothing, or a refusal. */
static enum qplan_status read_defaults(struct qplan_op *op, struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    for (size_t i = 0; i < info->n_fields; i++) {
        const struct qplan_op_field_info *field = &info->fields[i];
        if (op->values[i].given)
            continue;
        if (!field->fallback)
            return qp_op_fail_field(op, QPLAN_ERR_USAGE, field->name, err,
                                    "required: expected a value, found none");
        op->values[i] = (struct qp_op_value){.none = field->fallback[0] == '('};
        if (field->fallback[0] != '(' && !read_text(field, field->fallback, &op->values[i]))
            return qp_op_fail_field(op, QPLAN_ERR_INTERNAL, field->name, err,
                                    "the table has a default that does not parse");
    }
    return QPLAN_OK;
}

enum qplan_status qp_op_read_fields(struct qplan_op *op, const struct qplan_op_desc *desc,
                                    struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    for (size_t i = 0; i < desc->n_fields; i++) {
        const struct qplan_op_field *given = &desc->fields[i];
        size_t place = find_field(info, given->name);
        if (place == info->n_fields)
            return fail_unknown(op, given->name, err);
        if (op->values[place].given)
            return qp_op_fail_field(op, QPLAN_ERR_USAGE, given->name, err, "given more than once");
        QP_TRY(read_value(op, &info->fields[place], given, &op->values[place], err));
    }
    return read_defaults(op, err);
}
