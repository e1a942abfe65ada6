/*
 * fitting_source.c - from a quantized file to a source that fits it.
 */
#include "fitting_source.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS (2 * MOST_LINES)
#define MOST_BYTES   ((uint64_t)1 << 20)

struct source {
    const struct description *d;
    const struct qplan_checkpoint *file;
    const struct bytes *bytes; /* of the file */
    struct bytes nudge;
    struct qplan_entry entries[MOST_TENSORS], *order[MOST_TENSORS];
    struct bytes data[MOST_TENSORS]; /* by the order in which entries were added */
    struct qp_st_pair pairs[MOST_TENSORS];
    size_t n, n_pairs;
};

/* ---- Tensors ----------------------------------------------------------------------------------
 */

/* The bytes that the description chooses errors by. */
static void read_nudge(struct source *s)
{
    bytes_add(&s->nudge, NULL, strlen(s->d->nudge) / 2);
    if (s->nudge.n > 0)
        describe_data(s->d->nudge, (unsigned char *)s->nudge.data, s->nudge.n);
}

/* A byte as -0.512 to 0.508 of a step: around the bound, on both sides. */
static double nudge_at(const struct source *s, uint64_t i)
{
    return s->nudge.n ? (int8_t)s->nudge.data[i % s->nudge.n] / 250.0 : 0;
}

/*
 * How far the source is from a decoded value, in steps. The least and the largest code stand for
 * the ends of the range that minmax makes the parameters from, so that a set with both has the
 * parameters that it must have: codes of a symmetric scheme reach half a step beyond the range on
 * one side and miss it by that on the other.
 */
static double steps_off(const struct source *s, const struct plain_tensor *t, int code, uint64_t i)
{
    const struct qplan_scheme *scheme = t->tensor->scheme;
    if (code != t->q_min && code != t->q_max)
        return nudge_at(s, i);
    return scheme->asymmetric || scheme->narrow ? 0 : 0.5;
}

static void decode(const struct source *s, const struct qp_tensor *tensor, struct bytes *out)
{
    struct plain_tensor t;
    plain_open(&t, s->file, s->bytes, tensor);
    bytes_add(out, NULL, (size_t)(t.n * t.source->n_bytes));
    for (uint64_t i = 0; i < t.n; i++) {
        const struct plain_element e = plain_at(&t, i);
        const double x = plain_decode(&t, &e, e.code) + e.scale * steps_off(s, &t, e.code, i);
        plain_put(t.source, out->data, i, plain_round(t.source, x));
    }
}

/* Names are compared up to a NUL, so that "k" stands for "k\\u0000evil" too. */
static bool is_lacking(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->d->lacks.n; i++) {
        if (strcmp(s->d->lacks.items[i].key, name) == 0)
            return true;
    }
    return false;
}

static bool is_replaced(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->d->sources.n; i++) {
        if (strcmp(s->d->sources.items[i].name, name) == 0)
            return true;
    }
    return false;
}

static void add_fitting(struct source *s, const struct qp_tensor *tensor)
{
    const struct qp_st *st = &s->file->source.files[0];
    s->entries[s->n] = (struct qplan_entry){.name = tensor->name,
                                            .name_len = tensor->name_len,
                                            .shape = tensor->shape,
                                            .rank = tensor->rank,
                                            .storage = tensor->storage};
    if (tensor->scheme)
        decode(s, tensor, &s->data[s->n]);
    else
        bytes_add(&s->data[s->n], s->bytes->data + st->header_bytes + tensor->entry->begin,
                  (size_t)(tensor->entry->end - tensor->entry->begin));
    s->n++;
}

static bool add_described(struct source *s, const struct described_tensor *t)
{
    uint64_t n_bytes;
    int storage = QPLAN_STORAGE_COUNT;
    while (storage-- > 0 && strcmp(qplan_storage_name((enum qplan_storage)storage), t->dtype) != 0)
        continue;
    if (storage < 0 || !describe_bytes(t->dtype, t->shape, t->rank, &n_bytes))
        return false;
    s->entries[s->n] = (struct qplan_entry){.name = t->name,
                                            .name_len = (uint32_t)strlen(t->name),
                                            .shape = t->shape,
                                            .rank = (uint8_t)t->rank,
                                            .storage = (uint8_t)storage};
    bytes_add(&s->data[s->n], NULL, (size_t)n_bytes);
    if (n_bytes > 0)
        describe_data(t->data, (unsigned char *)s->data[s->n].data, (size_t)n_bytes);
    s->n++;
    return true;
}

static bool add_tensors(struct source *s)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < s->file->n_tensors && s->n < MOST_LINES; i++) {
        const struct qp_tensor *tensor = &s->file->tensors[i];
        if (is_lacking(s, tensor->name) || is_replaced(s, tensor->name))
            continue;
        add_fitting(s, tensor);
        n_bytes += s->data[s->n - 1].n;
        if (n_bytes > MOST_BYTES)
            return false;
    }
    for (size_t i = 0; i < s->d->sources.n; i++) {
        if (!add_described(s, &s->d->sources.items[i]))
            return false;
    }
    return true;
}

/* ---- Metadata ---------------------------------------------------------------------------------
 */

static void add_pairs(struct source *s)
{
    const struct qp_st *st = &s->file->source.files[0];
    for (size_t i = 0; i < st->n_metadata && s->n_pairs < MOST_LINES; i++) {
        const struct qp_st_pair *pair = &st->metadata[i];
        const bool is_own = pair->key_len >= 6 && memcmp(pair->key, "qplan.", 6) == 0;
        if (!is_own && !is_lacking(s, pair->key))
            s->pairs[s->n_pairs++] = *pair;
    }
    for (size_t i = 0; i < s->d->hints.n; i++) {
        const struct described_pair *pair = &s->d->hints.items[i];
        s->pairs[s->n_pairs++] = (struct qp_st_pair){
            pair->key, pair->value, (uint32_t)strlen(pair->key), (uint32_t)strlen(pair->value)};
    }
}

/* ---- The file ---------------------------------------------------------------------------------
 */

static bool put_file(struct source *s, struct bytes *out)
{
    struct qp_st_new made;
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = &s->entries[i];
    if (qp_st_make(&made, s->order, s->n, s->pairs, s->n_pairs, "source", NULL) != QPLAN_OK)
        return false;
    bytes_add(out, made.header, made.header_bytes);
    qp_free(made.header);
    for (size_t i = 0; i < s->n; i++) {
        const struct bytes *data = &s->data[s->order[i] - s->entries];
        bytes_add(out, data->data, data->n);
    }
    return true;
}

bool fitting_source(const struct description *d, const struct qplan_checkpoint *file,
                    const struct bytes *bytes, struct bytes *out)
{
    struct source *s = calloc(1, sizeof *s);
    promise(s, "memory");
    s->d = d;
    s->file = file;
    s->bytes = bytes;
    *out = (struct bytes){NULL, 0};
    read_nudge(s);
    add_pairs(s);
    const bool made = add_tensors(s) && put_file(s, out);
    for (size_t i = 0; i < s->n; i++)
        free(s->data[i].data);
    free(s->nudge.data);
    free(s);
    return made;
}
