/*
 * json_tree.c - a JSON text as a tree of values.
 */
#include "json_tree.h"

#include "alloc.h"
#include "check.h"

#include <stdio.h>
#include <string.h>

#define USUAL_DEPTH 8
#define MAX_VALUES  (((size_t)1 << 28) - 1) /* what span can count */

/* A plan has more bytes than this for each value, so that its values are allocated at once. */
#define BYTES_A_VALUE 12

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* Makes room for cap values. */
static enum qplan_status grow(struct qp_tree *tree, size_t cap)
{
    if (tree->cap == MAX_VALUES)
        return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name,
                       "too many values: expected %zu at most", MAX_VALUES);
    cap = (size_t)qp_min_u64(MAX_VALUES, cap);
    struct qp_tree_value *values = qp_realloc(tree->values, cap, sizeof *values);
    if (!values)
        return qp_fail_memory(tree->err, tree->name, cap * sizeof *values);
    tree->values = values;
    tree->cap = cap;
    return QPLAN_OK;
}

/* Where the text of a key or a string is. */
static enum qplan_status place_text(const struct qp_tree *tree, const struct qp_json_token *token,
                                    uint32_t *out)
{
    if (memchr(token->text, 0, token->n))
        return qp_fail_at(tree->err, QPLAN_ERR_INVALID, tree->name, token->at,
                          "a string contains U+0000");
    *out = (uint32_t)(token->text - tree->text);
    return QPLAN_OK;
}

static enum qplan_status add_value(struct qp_tree *tree, const struct qp_json_token *token,
                                   uint32_t key)
{
    bool too_large;
    if (tree->n_values == tree->cap)
        QP_TRY(grow(tree, tree->cap + tree->cap / 2));
    struct qp_tree_value *value = &tree->values[tree->n_values++];
    *value = (struct qp_tree_value){.key = key, .span = 1, .type = (uint32_t)token->type & 15};
    if (token->type == QP_JSON_STRING)
        return place_text(tree, token, &value->at);
    if (token->type != QP_JSON_NUMBER || qp_json_u64(token, &value->number, &too_large))
        return QPLAN_OK;
    if (!tree->any_numbers)
        return qp_fail_at(tree->err, QPLAN_ERR_INVALID, tree->name, token->at,
                          "not a number of a plan: expected a whole number up to 2^63-1");
    value->type = QP_TREE_LITERAL;
    value->at = (uint32_t)(token->text - tree->text);
    value->n = (uint32_t)token->n;
    return QPLAN_OK;
}

/* While an object or an array is open, its .at is the place of the one around it. */
static enum qplan_status read_values(struct qp_tree *tree, struct qp_json *json)
{
    struct qp_json_token token;
    uint32_t inner = 0; /* the innermost that is open */
    uint32_t key = 0;
    for (;;) {
        QP_TRY(qp_json_next(json, &token, tree->err));
        if (token.type == QP_JSON_END)
            return QPLAN_OK;
        if (token.type == QP_JSON_KEY) {
            QP_TRY(place_text(tree, &token, &key));
        } else if (token.type == QP_JSON_OBJECT_END || token.type == QP_JSON_ARRAY_END) {
            struct qp_tree_value *closed = &tree->values[inner];
            closed->span = (uint32_t)(tree->n_values - inner) & MAX_VALUES;
            inner = closed->at;
        } else {
            if (tree->n_values > 0)
                tree->values[inner].n++;
            QP_TRY(add_value(tree, &token, key));
            if (token.type == QP_JSON_OBJECT || token.type == QP_JSON_ARRAY) {
                tree->values[tree->n_values - 1].at = inner;
                inner = (uint32_t)tree->n_values - 1;
            }
        }
    }
}

enum qplan_status qp_tree_read(struct qp_tree *tree, const char *text, size_t n_bytes)
{
    struct qp_json json;
    if (n_bytes > UINT32_MAX)
        return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name, "larger than 4 GiB");
    tree->text = qp_strndup(text, n_bytes);
    if (!tree->text)
        return qp_fail_memory(tree->err, tree->name, n_bytes);
    QP_TRY(grow(tree, n_bytes / BYTES_A_VALUE + 64));
    qp_json_init(&json, tree->text, n_bytes, 0, tree->max_depth ? tree->max_depth : USUAL_DEPTH,
                 tree->name);
    return read_values(tree, &json);
}

void qp_tree_free(struct qp_tree *tree)
{
    qp_free(tree->text);
    qp_free(tree->values);
}

/* ---- Walking -----------------------------------------------------------------------------------
 */

static bool is(const struct qp_tree_value *value, enum qp_json_type type)
{
    return value && value->type == (uint32_t)type;
}

enum qplan_status qp_tree_members(const struct qp_tree *tree, const struct qp_tree_value *object,
                                  const char *where, const char *const *keys,
                                  const struct qp_tree_value *out[QP_TREE_MAX_KEYS])
{
    for (size_t i = 0; keys[i]; i++)
        out[i] = NULL;
    if (!is(object, QP_JSON_OBJECT))
        return qp_tree_bad(tree, where, "an object", NULL);
    const struct qp_tree_value *value = qp_tree_first(object);
    for (uint32_t k = 0; k < object->n; k++, value = qp_tree_next(value)) {
        const char *key = qp_tree_key(tree, value);
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return qp_tree_bad(tree, where, "no unknown key", key);
        if (out[i])
            return qp_tree_bad(tree, where, "each key once", key);
        out[i] = value;
    }
    return QPLAN_OK;
}

const struct qp_tree_value *qp_tree_member(const struct qp_tree *tree,
                                           const struct qp_tree_value *object, const char *key)
{
    if (!is(object, QP_JSON_OBJECT))
        return NULL;
    const struct qp_tree_value *value = qp_tree_first(object);
    for (uint32_t k = 0; k < object->n; k++, value = qp_tree_next(value)) {
        if (strcmp(qp_tree_key(tree, value), key) == 0)
            return value;
    }
    return NULL;
}

/* ---- Questions ---------------------------------------------------------------------------------
 */

bool qp_tree_is_null(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_NULL);
}

bool qp_tree_is_object(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_OBJECT);
}

bool qp_tree_is_true(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_TRUE);
}

bool qp_tree_is_bool(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_TRUE) || is(value, QP_JSON_FALSE);
}

bool qp_tree_is_array(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_ARRAY);
}

bool qp_tree_is_number(const struct qp_tree_value *value, uint64_t number)
{
    return is(value, QP_JSON_NUMBER) && value->number == number;
}

static bool is_literal(const struct qp_tree_value *value)
{
    return value && value->type == QP_TREE_LITERAL;
}

bool qp_tree_is_literal(const struct qp_tree *tree, const struct qp_tree_value *value,
                        const char *text)
{
    return is_literal(value) && qp_text_is(tree->text + value->at, value->n, text);
}

uint64_t qp_tree_number(const struct qp_tree_value *value)
{
    return is(value, QP_JSON_NUMBER) ? value->number : 0;
}

const char *qp_tree_text(const struct qp_tree *tree, const struct qp_tree_value *value)
{
    return is(value, QP_JSON_STRING) ? tree->text + value->at : NULL;
}

bool qp_tree_is_string(const struct qp_tree *tree, const struct qp_tree_value *value,
                       const char *text)
{
    const char *found = qp_tree_text(tree, value);
    return found && strcmp(found, text) == 0;
}

bool qp_tree_is_shape(const struct qp_tree_value *value, const uint64_t *shape, unsigned rank)
{
    if (!is(value, QP_JSON_ARRAY) || value->n != rank)
        return false;
    const struct qp_tree_value *extent = qp_tree_first(value);
    for (unsigned i = 0; i < rank; i++, extent = qp_tree_next(extent)) {
        if (!qp_tree_is_number(extent, shape[i]))
            return false;
    }
    return true;
}

bool qp_tree_may_be_text(const struct qp_tree_value *value)
{
    return !value || is(value, QP_JSON_NULL) || is(value, QP_JSON_STRING);
}

enum qplan_status qp_tree_word(const struct qp_tree *tree, const struct qp_tree_value *value,
                               const char *what, const char *const *words, int *out)
{
    char expected[96] = "";
    for (int i = 0; words[i]; i++) {
        if (qp_tree_is_string(tree, value, words[i])) {
            *out = i;
            return QPLAN_OK;
        }
        size_t used = strlen(expected);
        (void)snprintf(expected + used, sizeof expected - used, "%s%s", i ? " or " : "", words[i]);
    }
    return qp_tree_bad(tree, what, expected, qp_tree_text(tree, value));
}

/* ---- Messages ----------------------------------------------------------------------------------
 */

/* What is inside an object or an array is not shown. */
static void put_value(struct qp_writer *w, const struct qp_tree *tree,
                      const struct qp_tree_value *value)
{
    if (is(value, QP_JSON_STRING)) {
        qp_json_put_str(w, qp_tree_text(tree, value));
    } else if (is(value, QP_JSON_NUMBER)) {
        qp_json_put_u64(w, value->number);
    } else if (is_literal(value)) {
        qp_json_put_raw(w, tree->text + value->at, value->n);
    } else {
        const char *type = qp_json_type_name((enum qp_json_type)value->type);
        qp_json_put_raw(w, type, strlen(type));
    }
}

/* An array is shown with its elements: it is the shape of a tensor. */
const char *qp_tree_show(char out[QP_QUOTED], const struct qp_tree *tree,
                         const struct qp_tree_value *value)
{
    struct qp_writer w;
    qp_writer_init(&w);
    if (is(value, QP_JSON_ARRAY)) {
        const struct qp_tree_value *element = qp_tree_first(value);
        qp_json_open(&w, '[');
        for (uint32_t i = 0; i < value->n; i++, element = qp_tree_next(element))
            put_value(&w, tree, element);
        qp_json_close(&w, ']');
    } else if (value) {
        put_value(&w, tree, value);
    }
    (void)qp_quote(out, w.n ? w.data : "", (size_t)qp_min_u64(w.n, 60));
    qp_writer_free(&w);
    return out;
}

enum qplan_status qp_tree_bad(const struct qp_tree *tree, const char *what, const char *expected,
                              const char *found)
{
    char quoted[QP_QUOTED];
    if (!found)
        return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name, "%s: expected %s", what, expected);
    return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name, "%s: expected %s, found %s", what,
                   expected, qp_quote(quoted, found, strlen(found)));
}
