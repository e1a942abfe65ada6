/*
 * checkpoint.c - an open checkpoint: stored tensors become tensors. Reads headers only, never data.
 */
#include "checkpoint.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

/* ---- Tensors -----------------------------------------------------------------------------------
 */

/* Quantized tensors as their layout has read them, and which stored tensors belong to them. */
struct quantized {
    struct qp_tensor *list; /* in name order */
    size_t n;
    bool *is_part; /* by stored tensor */
};

static enum qplan_status read_quantized(struct qplan_checkpoint *c, struct quantized *q,
                                        struct qplan_error *err)
{
    const struct qp_listing *listing = &c->source.listing;
    q->is_part = qp_alloc(listing->n_entries, sizeof *q->is_part);
    if (!q->is_part)
        return qp_fail_memory(err, listing->shown, listing->n_entries);
    c->format = qp_format_of(listing);
    if (!c->format)
        return QPLAN_OK;
    QP_TRY(c->format->read(listing, &c->arena, &q->list, &q->n, err));
    for (size_t i = 0; i < q->n; i++) {
        for (unsigned k = 0; k < q->list[i].n_parts; k++)
            q->is_part[q->list[i].parts[k].entry - listing->entries] = true;
    }
    return QPLAN_OK;
}

static struct qp_tensor plain_tensor(const struct qplan_entry *entry)
{
    return (struct qp_tensor){
        .name = entry->name,
        .name_len = entry->name_len,
        .shape = entry->shape,
        .rank = entry->rank,
        .storage = entry->storage,
        .entry = entry,
    };
}

/* Merges stored tensors that belong to nothing else with the quantized ones: both are in order. */
static enum qplan_status merge_tensors(struct qplan_checkpoint *c, const struct quantized *q,
                                       struct qplan_error *err)
{
    const struct qp_listing *listing = &c->source.listing;
    size_t n_plain = 0, i = 0;
    for (size_t k = 0; k < listing->n_entries; k++)
        n_plain += !q->is_part[k];
    c->n_quantized = q->n;
    c->tensors = qp_alloc(n_plain + q->n, sizeof *c->tensors);
    if (!c->tensors)
        return qp_fail_memory(err, listing->shown, (n_plain + q->n) * sizeof *c->tensors);
    for (size_t k = 0; k < listing->n_entries; k++) {
        const struct qplan_entry *entry = &listing->entries[k];
        if (q->is_part[k])
            continue;
        while (i < q->n && qp_compare_text(q->list[i].name, q->list[i].name_len, entry->name,
                                           entry->name_len) < 0)
            c->tensors[c->n_tensors++] = q->list[i++];
        c->tensors[c->n_tensors++] = plain_tensor(entry);
    }
    while (i < q->n)
        c->tensors[c->n_tensors++] = q->list[i++];
    return QPLAN_OK;
}

enum qplan_status qp_checkpoint_make(struct qplan_checkpoint **out, struct qp_source *source,
                                     struct qplan_error *err)
{
    *out = NULL;
    struct qplan_checkpoint *c = qp_alloc(1, sizeof *c);
    if (!c) {
        qp_source_close(source);
        return qp_fail_memory(err, "checkpoint", sizeof *c);
    }
    c->source = *source;
    struct quantized q = {.list = NULL};
    enum qplan_status status = read_quantized(c, &q, err);
    if (status == QPLAN_OK)
        status = merge_tensors(c, &q, err);
    qp_free(q.list);
    qp_free(q.is_part);
    if (status != QPLAN_OK) {
        qplan_checkpoint_close(c);
        return status;
    }
    *out = c;
    return QPLAN_OK;
}

const struct qp_tensor *qp_checkpoint_find(const struct qplan_checkpoint *checkpoint,
                                           const char *name, size_t n)
{
    size_t low = 0, high = checkpoint->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct qp_tensor *t = &checkpoint->tensors[middle];
        const int order = qp_compare_text(name, n, t->name, t->name_len);
        if (order == 0)
            return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *qp_checkpoint_subject(char out[512], const struct qplan_checkpoint *checkpoint,
                                  const struct qp_tensor *tensor)
{
    const struct qplan_entry named = {
        .name = tensor->name, .name_len = tensor->name_len, .file = tensor->entry->file};
    return qp_listing_subject(out, &checkpoint->source.listing, &named);
}

uint64_t qp_role_bytes(const struct qp_tensor *tensor, enum qp_role role)
{
    const struct qp_part *part = qp_tensor_part(tensor, role);
    return part ? part->entry->end - part->entry->begin : 0;
}

uint64_t qp_tensor_bytes(const struct qp_tensor *tensor)
{
    uint64_t n_bytes = 0;
    if (!tensor->scheme)
        return tensor->entry->end - tensor->entry->begin;
    for (unsigned i = 0; i < tensor->n_parts; i++)
        n_bytes += tensor->parts[i].entry->end - tensor->parts[i].entry->begin;
    return n_bytes;
}

/* ---- The public object -------------------------------------------------------------------------
 */

enum qplan_status qplan_checkpoint_open(struct qplan_checkpoint **out, const char *path,
                                        struct qplan_error *err)
{
    struct qp_source source;
    *out = NULL;
    QP_TRY(qp_source_open(&source, path, err));
    return qp_checkpoint_make(out, &source, err);
}

void qplan_checkpoint_close(struct qplan_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    qp_source_close(&checkpoint->source);
    qp_free(checkpoint->tensors);
    qp_arena_free(&checkpoint->arena);
    qp_free(checkpoint);
}

const char *qplan_checkpoint_path(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->source.path;
}

uint64_t qplan_checkpoint_bytes(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->source.n_bytes;
}

size_t qplan_checkpoint_count(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->source.listing.n_entries;
}

const struct qplan_entry *qplan_checkpoint_entry(const struct qplan_checkpoint *checkpoint,
                                                 size_t i)
{
    const struct qp_listing *listing = &checkpoint->source.listing;
    return i < listing->n_entries ? &listing->entries[i] : NULL;
}

const char *qplan_checkpoint_metadata(const struct qplan_checkpoint *checkpoint, const char *key)
{
    const struct qp_st_pair *pair = qp_st_metadata(&checkpoint->source.files[0], key);
    return pair ? pair->value : NULL;
}
