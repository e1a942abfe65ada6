/*
 * checkpoint.c - an open checkpoint: stored tensors become tensors. Reads headers only, never data.
 */
#include "checkpoint.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/calibrate/calibrate.h"

/* ---- Tensors -----------------------------------------------------------------------------------
 */

/* Quantized tensors as their layout has read them, and which stored tensors belong to them. */
struct quantized {
    struct qp_tensor *list; /* in name order */
    size_t n;
    const struct qp_tensor **owner; /* by stored tensor; NULL = it is a tensor of its own */
};

static const char *role_name(enum qp_role role)
{
    static const char *const names[] = {
        [QP_CODES] = "codes", [QP_SCALE] = "scales", [QP_ZERO] = "zero points"};
    return names[role];
}

/* A stored tensor that is a part of two tensors, or of one in two roles. */
static enum qplan_status claimed_twice(const struct qp_listing *listing,
                                       const struct qp_tensor *owner, const struct qp_tensor *t,
                                       const struct qp_part *part, struct qplan_error *err)
{
    char subject[512], first[QP_QUOTED], second[QP_QUOTED];
    const struct qp_part *before = owner->parts;
    while (before->entry != part->entry)
        before++;
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, part->entry),
                   "claimed twice: expected a part of one quantized tensor, found the %s of %s and "
                   "the %s of %s",
                   role_name(before->role), qp_quote(first, owner->name, owner->name_len),
                   role_name(part->role), qp_quote(second, t->name, t->name_len));
}

static enum qplan_status claim_parts(const struct qp_listing *listing, struct quantized *q,
                                     const struct qp_tensor *t, struct qplan_error *err)
{
    for (unsigned k = 0; k < t->n_parts; k++) {
        const struct qp_tensor **owner = &q->owner[t->parts[k].entry - listing->entries];
        if (*owner)
            return claimed_twice(listing, *owner, t, &t->parts[k], err);
        *owner = t;
    }
    return QPLAN_OK;
}

/* What may be proven of a tensor follows from its calibrator. */
static enum qplan_status check_calibrator(const struct qplan_checkpoint *c,
                                          const struct qp_tensor *t, struct qplan_error *err)
{
    char subject[512];
    return qp_calibrator_find(t->calibrate)
               ? QPLAN_OK
               : qp_fail_name(err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, c, t),
                              "unknown calibrator", t->calibrate, qplan_calibrator_name);
}

/* No weights that some tool has quantized pass for tensors of their own. */
static enum qplan_status check_others(const struct qp_listing *listing, const struct quantized *q,
                                      struct qplan_error *err)
{
    const struct qplan_entry *found;
    char subject[512];
    QP_TRY(qp_find_quantized(listing, q->owner, &found, err));
    return found ? qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, found),
                           "belongs to quantized weights that nothing in the file speaks of")
                 : QPLAN_OK;
}

/* Whatever the layout: each stored tensor is one part of one tensor, or a tensor of its own. */
static enum qplan_status read_quantized(struct qplan_checkpoint *c, struct quantized *q,
                                        struct qplan_error *err)
{
    const struct qp_listing *listing = &c->source.listing;
    q->owner = qp_alloc(listing->n_entries, sizeof *q->owner);
    if (!q->owner)
        return qp_fail_memory(err, listing->shown, listing->n_entries * sizeof *q->owner);
    c->format = qp_format_of(listing);
    if (!c->format)
        return QPLAN_OK;
    QP_TRY(c->format->read(listing, &c->arena, &q->list, &q->n, err));
    for (size_t i = 0; i < q->n; i++) {
        QP_TRY(claim_parts(listing, q, &q->list[i], err));
        QP_TRY(check_calibrator(c, &q->list[i], err));
    }
    return check_others(listing, q, err);
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
        n_plain += !q->owner[k];
    c->n_quantized = q->n;
    c->tensors = qp_alloc(n_plain + q->n, sizeof *c->tensors);
    if (!c->tensors)
        return qp_fail_memory(err, listing->shown, (n_plain + q->n) * sizeof *c->tensors);
    for (size_t k = 0; k < listing->n_entries; k++) {
        const struct qplan_entry *entry = &listing->entries[k];
        if (q->owner[k])
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
    qp_free(q.owner);
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

bool qplan_checkpoint_is_folder(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->source.is_folder;
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

const char *qplan_checkpoint_metadata(const struct qplan_checkpoint *checkpoint, const char *key,
                                      size_t *n_bytes)
{
    const struct qp_st_pair *pair = qp_st_metadata(&checkpoint->source.files[0], key);
    if (n_bytes)
        *n_bytes = pair ? pair->value_len : 0;
    return pair ? pair->value : NULL;
}
