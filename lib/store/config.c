/*
 * config.c - reading config.json, and changing what it says of a quantization.
 */
#include "config.h"

#include "lib/base/alloc.h"
#include "lib/base/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The members at the top that describe a quantization, for whichever engine. */
static const char *const described[] = {"quantization_config", "quantization", NULL};

/* ---- Reading ---------------------------------------------------------------------------------
 */

static enum qplan_status read_text(struct qp_config *config, const struct qp_file *file,
                                   struct qplan_error *err)
{
    if (file->size > QP_MOST_CONFIG_BYTES)
        return qp_fail(err, QPLAN_ERR_INVALID, file->shown, "too large: expected at most %u bytes",
                       QP_MOST_CONFIG_BYTES);
    config->n_bytes = (size_t)file->size;
    config->mode = file->mode;
    config->text = qp_alloc(config->n_bytes + 1, 1);
    if (!config->text)
        return qp_fail_memory(err, file->shown, config->n_bytes);
    return qp_file_read(file, 0, config->text, config->n_bytes, err);
}

static enum qplan_status refuse_key(const struct qp_config *config, const char *key,
                                    struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, config->shown,
                   "expected each key once, found %s twice, at byte %zu",
                   qp_quote(quoted, key, strlen(key)), (size_t)(key - config->tree.text) - 1);
}

/* By text, then by place: both point into one text. */
static int by_key(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const int order = strcmp(x, y);
    return order != 0 ? order : (x > y) - (x < y);
}

/* Readers of JSON differ in which of two equal keys counts. keys has room for all members. */
static enum qplan_status check_object(const struct qp_config *config, const char **keys,
                                      const struct qp_tree_value *object, struct qplan_error *err)
{
    const struct qp_tree_value *value = qp_tree_first(object);
    for (uint32_t i = 0; i < object->n; i++, value = qp_tree_next(value))
        keys[i] = qp_tree_key(&config->tree, value);
    qsort(keys, object->n, sizeof *keys, by_key);
    for (uint32_t i = 1; i < object->n; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return refuse_key(config, keys[i], err);
    }
    return QPLAN_OK;
}

/* No object of a description has a key twice. */
static enum qplan_status check_description(const struct qp_config *config,
                                           const struct qp_tree_value *description,
                                           struct qplan_error *err)
{
    enum qplan_status status = QPLAN_OK;
    const char **keys = qp_alloc(description->span, sizeof *keys);
    if (!keys)
        return qp_fail_memory(err, config->shown, description->span * sizeof *keys);
    for (uint32_t i = 0; status == QPLAN_OK && i < description->span; i++) {
        if (qp_tree_is_object(&description[i]) && description[i].n > 1)
            status = check_object(config, keys, &description[i], err);
    }
    qp_free(keys);
    return status;
}

static enum qplan_status check_members(const struct qp_config *config, struct qplan_error *err)
{
    const struct qp_tree *tree = &config->tree;
    if (!qp_tree_is_object(tree->values))
        return qp_fail(err, QPLAN_ERR_INVALID, config->shown, "expected an object");
    for (size_t i = 0; described[i]; i++) {
        const struct qp_tree_value *first = qp_tree_member(tree, tree->values, described[i]);
        const struct qp_tree_value *value = qp_tree_first(tree->values);
        for (uint32_t k = 0; first && k < tree->values->n; k++, value = qp_tree_next(value)) {
            if (value != first && strcmp(qp_tree_key(tree, value), described[i]) == 0)
                return refuse_key(config, qp_tree_key(tree, value), err);
        }
        if (first)
            QP_TRY(check_description(config, first, err));
    }
    return QPLAN_OK;
}

static enum qplan_status read_file(struct qp_config *config, const char *path,
                                   struct qplan_error *err)
{
    struct qp_file file;
    (void)qp_escape(config->shown, sizeof config->shown, path, strlen(path));
    QP_TRY(qp_file_open(&file, path, err));
    enum qplan_status status = read_text(config, &file, err);
    qp_file_close(&file);
    config->tree = (struct qp_tree){
        .name = config->shown, .err = err, .max_depth = QP_JSON_MAX_DEPTH, .any_numbers = true};
    if (status == QPLAN_OK)
        status = qp_tree_read(&config->tree, config->text, config->n_bytes);
    config->tree.err = NULL; /* it is the caller's, and only for now */
    return status == QPLAN_OK ? check_members(config, err) : status;
}

enum qplan_status qp_config_read(struct qp_config **out, const char *folder, const char *name,
                                 struct qplan_error *err)
{
    struct qp_writer path;
    struct stat st;
    *out = NULL;
    qp_writer_init(&path);
    qp_puts(&path, folder);
    qp_puts(&path, "/");
    qp_puts(&path, name);
    qp_put(&path, "", 1);
    enum qplan_status status = qp_writer_finish(&path, folder, err);
    if (status == QPLAN_OK && stat(path.data, &st) == 0 && S_ISREG(st.st_mode)) {
        struct qp_config *config = qp_alloc(1, sizeof *config);
        status = config ? read_file(config, path.data, err)
                        : qp_fail_memory(err, folder, sizeof *config);
        if (status == QPLAN_OK)
            *out = config;
        else
            qp_config_free(config);
    }
    qp_writer_free(&path);
    return status;
}

void qp_config_free(struct qp_config *config)
{
    if (!config)
        return;
    qp_tree_free(&config->tree);
    qp_free(config->text);
    qp_free(config);
}

/* ---- Editing ---------------------------------------------------------------------------------
 */

/* A member at the top of the object: from its key to behind its value. */
struct member {
    size_t begin, end;
    bool is_described; /* it describes a quantization */
};

/* The next member of an object whose first bracket has been read; found is false at its end. */
static enum qplan_status next_member(struct qp_json *json, struct member *member, bool *found,
                                     struct qplan_error *err)
{
    struct qp_json_token token;
    QP_TRY(qp_json_next(json, &token, err));
    *found = token.type == QP_JSON_KEY;
    *member = (struct member){.begin = (size_t)token.at};
    if (!*found)
        return QPLAN_OK;
    for (size_t i = 0; described[i]; i++)
        member->is_described |= qp_text_is(token.text, token.n, described[i]);
    const unsigned depth = json->depth;
    do
        QP_TRY(qp_json_next(json, &token, err));
    while (json->depth > depth);
    member->end = json->pos;
    return QPLAN_OK;
}

struct edit {
    struct qp_writer *w;
    const char *const *keys; /* of the new members, or NULL */
    const char *value;
    size_t n_value;
    const char *blank; /* the white space before the first member of the text */
    size_t n_blank;
    size_t n_written; /* members */
};

/* A new line, indented as deep as the members of the text and some levels more. */
static void put_line(const struct edit *e, unsigned more)
{
    const char *line = memrchr(e->blank, '\n', e->n_blank);
    const size_t n_indent = e->n_blank - (size_t)(line + 1 - e->blank);
    qp_put(e->w, e->blank, e->n_blank);
    while (more-- > 0)
        qp_put(e->w, line + 1, n_indent);
}

/* The value with lines of its own, where the text has such. */
static void put_lines(const struct edit *e)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < e->n_value; i++) {
        const char c = e->value[i];
        const bool closes = !in_string && (c == '}' || c == ']');
        const bool is_empty = closes && strchr("{[", e->value[i - 1]);
        depth -= closes;
        if (closes && !is_empty)
            put_line(e, depth);
        qp_put(e->w, &c, 1);
        if (c == '"')
            in_string = !in_string;
        else if (in_string && c == '\\')
            qp_put(e->w, &e->value[++i], 1);
        else if (!in_string && (c == '{' || c == '[') && !strchr("}]", e->value[i + 1]))
            put_line(e, ++depth);
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && c == ',')
            put_line(e, depth);
        else if (!in_string && c == ':')
            qp_puts(e->w, " ");
    }
}

static void put_new_members(struct edit *e)
{
    const bool has_lines = memchr(e->blank, '\n', e->n_blank) != NULL;
    for (; e->keys && *e->keys; e->keys++) {
        qp_puts(e->w, e->n_written++ ? "," : "");
        qp_put(e->w, e->blank, e->n_blank);
        qp_puts(e->w, "\"");
        qp_puts(e->w, *e->keys);
        qp_puts(e->w, "\": ");
        if (has_lines)
            put_lines(e);
        else
            qp_put(e->w, e->value, e->n_value);
    }
}

/* Copies members that stay with what was before each, and puts the new ones where the old were. */
static enum qplan_status edit_members(struct edit *e, const struct qp_config *config,
                                      struct qp_json *json, struct qplan_error *err)
{
    const char *text = config->text;
    size_t at = json->pos; /* behind the first bracket, then behind the member before */
    struct member m;
    bool found;
    qp_put(e->w, text, at);
    e->blank = text + at;
    QP_TRY(next_member(json, &m, &found, err));
    e->n_blank = found ? m.begin - at : 0;
    while (found) {
        if (m.is_described) {
            put_new_members(e);
        } else {
            const bool is_first = e->n_written++ == 0;
            qp_put(e->w, is_first ? e->blank : text + at, is_first ? e->n_blank : m.begin - at);
            qp_put(e->w, text + m.begin, m.end - m.begin);
        }
        at = m.end;
        QP_TRY(next_member(json, &m, &found, err));
    }
    put_new_members(e);
    qp_put(e->w, text + at, config->n_bytes - at);
    return QPLAN_OK;
}

enum qplan_status qp_config_edit(struct qp_writer *w, const struct qp_config *config,
                                 const char *const *keys, const char *value, size_t n_value,
                                 struct qplan_error *err)
{
    struct edit e = {.w = w, .keys = keys, .value = value, .n_value = n_value};
    struct qp_json json;
    struct qp_json_token bracket;
    char *copy = qp_strndup(config->text, config->n_bytes); /* strings are decoded in place */
    if (!copy)
        return qp_fail_memory(err, config->shown, config->n_bytes);
    qp_json_init(&json, copy, config->n_bytes, 0, QP_JSON_MAX_DEPTH, config->shown);
    enum qplan_status status = qp_json_next(&json, &bracket, err);
    if (status == QPLAN_OK)
        status = edit_members(&e, config, &json, err);
    qp_free(copy);
    return status == QPLAN_OK ? qp_writer_finish(w, config->shown, err) : status;
}
