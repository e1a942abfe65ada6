/*
 * shard_index.c - reading the index of a folder:
 *
 *     {"metadata": {"total_size": 16060522496}, "weight_map": {"a.weight":
 * "model-00001-of-00004.safetensors"}}
 *
 * The index is as hostile as any other file: names of shards must be plain file names, so that none
 * leads out of the folder.
 */
#include "shard_index.h"

#include "lib/base/alloc.h"
#include "lib/base/io.h"
#include "lib/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values that are skipped may be nested a little. */
#define MOST_DEPTH 8

struct reader {
    struct qp_folder *folder;
    struct qp_json json;
    size_t cap; /* of the map */
    char shown[512];
    bool has_map;
    struct qplan_error *err;
};

/* ---- Names of shards ---------------------------------------------------------------------------
 */

#define MOST_NAME 255

static bool is_plain_name(const char *name, size_t n)
{
    const bool dots = (n == 1 && name[0] == '.') || (n == 2 && memcmp(name, "..", 2) == 0);
    return n > 0 && n <= MOST_NAME && !dots && !memchr(name, '/', n) && !memchr(name, '\\', n) &&
           !memchr(name, '\0', n);
}

static enum qplan_status bad_name(const struct reader *r, const struct qp_json_token *key,
                                  const struct qp_json_token *value)
{
    char tensor[QP_QUOTED], name[QP_QUOTED];
    (void)qp_fail_at(r->err, QPLAN_ERR_INVALID, r->shown, value->at,
                     "weight_map: the shard of %s must be a plain file name: found %s",
                     qp_quote(tensor, key->text, key->n), qp_quote(name, value->text, value->n));
    qp_hint(r->err, "the shards of a checkpoint are in the folder of its index");
    return QPLAN_ERR_INVALID;
}

/* Where a name is among those in order, or where it belongs. */
static size_t place_of(const struct qp_folder *f, const char *name, bool *found)
{
    size_t low = 0, high = f->n_files;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, f->names[middle]);
        *found = order == 0;
        if (*found)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    *found = false;
    return low;
}

/* Puts a name that is new in its place; the shards of tensors before move with those behind it. */
static enum qplan_status insert_name(struct reader *r, size_t at, const char *name)
{
    struct qp_folder *f = r->folder;
    char **names = qp_arena_grow(&f->arena, f->names, f->n_files, sizeof *names);
    if (!names)
        return qp_fail_memory(r->err, r->shown, sizeof *names);
    if (f->n_files == QP_MOST_SHARDS)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->shown, "too many shards: expected at most %u",
                       QP_MOST_SHARDS);
    memmove(names + at + 1, names + at, (f->n_files - at) * sizeof *names);
    names[at] = (char *)name;
    f->names = names;
    f->n_files++;
    return QPLAN_OK;
}

/* ---- The map -----------------------------------------------------------------------------------
 */

static enum qplan_status add_tensor(struct reader *r, const struct qp_json_token *key,
                                    const struct qp_json_token *value)
{
    struct qp_folder *f = r->folder;
    bool found;
    if (!is_plain_name(value->text, value->n))
        return bad_name(r, key, value);
    const size_t at = place_of(f, value->text, &found);
    if (!found)
        QP_TRY(insert_name(r, at, value->text));
    if (f->n_map == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 1024;
        struct qp_mapped *map = qp_realloc(f->map, cap, sizeof *map);
        if (!map)
            return qp_fail_memory(r->err, r->shown, cap * sizeof *map);
        f->map = map;
        r->cap = cap;
    }
    f->map[f->n_map++] = (struct qp_mapped){key->text, key->n, value->text, 0};
    return QPLAN_OK;
}

static enum qplan_status wrong_type(const struct reader *r, const char *what,
                                    enum qp_json_type wanted, const struct qp_json_token *found)
{
    return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->shown, found->at, "%s: expected %s, found %s",
                      what, qp_json_type_name(wanted), qp_json_type_name(found->type));
}

static enum qplan_status read_map(struct reader *r)
{
    struct qp_json_token key, value;
    QP_TRY(qp_json_next(&r->json, &value, r->err));
    if (value.type != QP_JSON_OBJECT)
        return wrong_type(r, "weight_map", QP_JSON_OBJECT, &value);
    if (r->has_map)
        return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->shown, value.at,
                          "weight_map: found for the second time");
    r->has_map = true;
    for (;;) {
        QP_TRY(qp_json_next(&r->json, &key, r->err));
        if (key.type != QP_JSON_KEY)
            return QPLAN_OK;
        QP_TRY(qp_json_next(&r->json, &value, r->err));
        if (value.type != QP_JSON_STRING)
            return wrong_type(r, "the shard of a tensor in weight_map", QP_JSON_STRING, &value);
        QP_TRY(add_tensor(r, &key, &value));
    }
}

/* ---- Everything else ---------------------------------------------------------------------------
 */

/* Skips the rest of a value that began with this token. */
static enum qplan_status skip_value(struct reader *r, const struct qp_json_token *first)
{
    struct qp_json_token token = *first;
    unsigned depth = 0;
    for (;;) {
        depth += token.type == QP_JSON_OBJECT || token.type == QP_JSON_ARRAY;
        depth -= token.type == QP_JSON_OBJECT_END || token.type == QP_JSON_ARRAY_END;
        if (depth == 0 && token.type != QP_JSON_KEY)
            return QPLAN_OK;
        QP_TRY(qp_json_next(&r->json, &token, r->err));
    }
}

/* The total as it is written, whatever it is: it is compared and never trusted. */
static enum qplan_status keep_total(struct reader *r, const struct qp_json_token *value)
{
    const bool has_text = value->type == QP_JSON_NUMBER || value->type == QP_JSON_STRING;
    const char *text = has_text ? value->text : qp_json_type_name(value->type);
    r->folder->total =
        qp_arena_join(&r->folder->arena, text, has_text ? value->n : strlen(text), "");
    return r->folder->total ? skip_value(r, value) : qp_fail_memory(r->err, r->shown, value->n);
}

static bool is_key(const struct qp_json_token *token, const char *name)
{
    return token->n == strlen(name) && memcmp(token->text, name, token->n) == 0;
}

static enum qplan_status read_metadata(struct reader *r)
{
    struct qp_json_token key, value;
    QP_TRY(qp_json_next(&r->json, &value, r->err));
    if (value.type != QP_JSON_OBJECT)
        return skip_value(r, &value);
    for (;;) {
        QP_TRY(qp_json_next(&r->json, &key, r->err));
        if (key.type != QP_JSON_KEY)
            return QPLAN_OK;
        QP_TRY(qp_json_next(&r->json, &value, r->err));
        QP_TRY((is_key(&key, "total_size") ? keep_total : skip_value)(r, &value));
    }
}

static enum qplan_status read_document(struct reader *r)
{
    struct qp_json_token key, value;
    QP_TRY(qp_json_next(&r->json, &value, r->err));
    if (value.type != QP_JSON_OBJECT)
        return wrong_type(r, "the index", QP_JSON_OBJECT, &value);
    for (;;) {
        QP_TRY(qp_json_next(&r->json, &key, r->err));
        if (key.type != QP_JSON_KEY)
            break;
        if (is_key(&key, "weight_map")) {
            QP_TRY(read_map(r));
        } else if (is_key(&key, "metadata")) {
            QP_TRY(read_metadata(r));
        } else {
            QP_TRY(qp_json_next(&r->json, &value, r->err));
            QP_TRY(skip_value(r, &value));
        }
    }
    QP_TRY(qp_json_next(&r->json, &value, r->err));
    if (!r->has_map || r->folder->n_map == 0)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->shown,
                       "no tensor in the index: expected a weight_map with a shard for each");
    return QPLAN_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
    const struct qp_mapped *x = a, *y = b;
    return qp_compare_text(x->name, x->n, y->name, y->n);
}

/* Puts the map in order, with the number of each shard now that all are known. */
static enum qplan_status order_map(struct reader *r)
{
    struct qp_folder *f = r->folder;
    char quoted[QP_QUOTED];
    bool found;
    for (size_t i = 0; i < f->n_map; i++)
        f->map[i].shard = place_of(f, f->map[i].file, &found);
    qsort(f->map, f->n_map, sizeof *f->map, by_name);
    for (size_t i = 1; i < f->n_map; i++) {
        if (by_name(&f->map[i - 1], &f->map[i]) == 0)
            return qp_fail(r->err, QPLAN_ERR_INVALID, r->shown, "weight_map: %s is listed twice",
                           qp_quote(quoted, f->map[i].name, f->map[i].n));
    }
    return QPLAN_OK;
}

static enum qplan_status read_text(struct reader *r, const char *path)
{
    struct qp_file file;
    QP_TRY(qp_file_open(&file, path, r->err));
    enum qplan_status status = QPLAN_OK;
    const size_t n = (size_t)file.size;
    if (file.size > QP_MOST_INDEX_BYTES)
        status = qp_fail(r->err, QPLAN_ERR_INVALID, r->shown,
                         "the index is too long: expected at most %u bytes, found %" PRIu64,
                         QP_MOST_INDEX_BYTES, file.size);
    if (status == QPLAN_OK) {
        r->folder->text = qp_alloc(n + 1, 1);
        status = r->folder->text ? qp_file_read(&file, 0, r->folder->text, n, r->err)
                                 : qp_fail_memory(r->err, r->shown, n);
    }
    qp_file_close(&file);
    qp_json_init(&r->json, r->folder->text, n, 0, MOST_DEPTH, r->shown);
    return status;
}

enum qplan_status qp_index_read(struct qp_folder *folder, struct qplan_error *err)
{
    struct reader r = {.folder = folder, .err = err};
    const char *path = qp_path_in(&folder->arena, folder->path, folder->index);
    if (!path)
        return qp_fail_memory(err, folder->path, strlen(folder->index));
    (void)qp_escape(r.shown, sizeof r.shown, path, strlen(path));
    QP_TRY(read_text(&r, path));
    QP_TRY(read_document(&r));
    return order_map(&r);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void put_quoted(struct qp_writer *w, const char *text, size_t n)
{
    struct qp_writer value;
    qp_writer_init(&value);
    qp_json_put_string(&value, text, n);
    qp_put(w, value.data, value.n);
    w->error = w->error ? w->error : value.error;
    qp_writer_free(&value);
}

void qp_index_put(struct qp_writer *w, const struct qp_listing *listing, char *const *names,
                  uint64_t n_bytes)
{
    qp_printf(w, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", n_bytes);
    qp_puts(w, "  \"weight_map\": {");
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        qp_puts(w, i ? ",\n    " : "\n    ");
        put_quoted(w, entry->name, entry->name_len);
        qp_puts(w, ": ");
        put_quoted(w, names[entry->file], strlen(names[entry->file]));
    }
    qp_puts(w, "\n  }\n}\n");
}
