/*
 * checkpoint.c - an open checkpoint: stored tensors become tensors. Reads headers, and no data but
 * the few constants that layouts keep beside codes.
 */
#include "checkpoint.h"

#include "formats/record.h"
#include "kernels/dtypes/f32/f32.h"
#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/text.h"
#include "lib/calibrate/calibrate.h"
#include "lib/model/dtype.h"

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
    static const char *const names[] = {[QP_CODES] = "codes",
                                        [QP_SCALE] = "scales",
                                        [QP_ZERO] = "zero points",
                                        [QP_BIAS] = "biases",
                                        [QP_FACTOR] = "factor",
                                        [QP_CONSTANT] = "constants",
                                        [QP_INDEX] = "groups of columns"};
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
    struct qp_calibrator calibrator;
    const bool is_known = qp_calibrator_recorded(t->calibrate, t->scheme, &calibrator);
    (void)qp_checkpoint_subject(subject, c, t);
    if (!is_known && qp_is_recipe(t->calibrate))
        return qp_fail(err, QPLAN_ERR_INVALID, subject, "%s makes no codes of %s", t->calibrate,
                       qplan_dtype_name(t->scheme->dtype));
    if (is_known && t->scheme->nested && !qp_calibrator_nests(&calibrator))
        return qp_fail(err, QPLAN_ERR_INVALID, subject, "%s makes no scales that have scales",
                       t->calibrate);
    if (t->calibrate && !is_known)
        return qp_fail_name(err, QPLAN_ERR_INVALID, subject, "unknown calibrator", t->calibrate,
                            qplan_calibrator_name);
    if (is_known &&
        !qp_calibrator_takes(&calibrator, qp_storage_row((enum qplan_storage)t->storage)->dtype))
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "%s is not for this type: expected F32, F16 or BF16, found %s", t->calibrate,
                       qplan_storage_name((enum qplan_storage)t->storage));
    return QPLAN_OK;
}

/* Zero points that are all the same are stored for all such tensors or for none. */
static enum qplan_status check_zeros(const struct qp_listing *listing, const struct quantized *q,
                                     struct qplan_error *err)
{
    char subject[512];
    const struct qp_tensor *with = NULL, *without = NULL;
    for (size_t i = 0; i < q->n; i++) {
        const struct qp_tensor *t = &q->list[i];
        if (t->scheme->asymmetric || t->scheme->bias ||
            qp_code_rule(t->scheme).kind != QP_CODES_LINEAR)
            continue;
        with = qp_tensor_part(t, QP_ZERO) ? t : with;
        without = qp_tensor_part(t, QP_ZERO) ? without : t;
    }
    if (!with || !without)
        return QPLAN_OK;
    char name[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, without->entry),
                   "has no zero points: expected those of all symmetric tensors or of none, found "
                   "those of %s",
                   qp_quote(name, with->name, with->name_len));
}

/* The factor of a tensor's scales is a number that they can be multiplied with, or divided by. */
static enum qplan_status read_factor(const struct qp_listing *listing, struct qp_tensor *t,
                                     struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(t, QP_FACTOR);
    unsigned char bytes[sizeof(float)];
    char subject[512], found[QP_F64_TEXT];
    if (!part)
        return QPLAN_OK;
    QP_TRY(listing->read(listing, part->entry, 0, bytes, sizeof bytes, err));
    t->factor = qp_load_f32(bytes);
    if (t->factor > 0 && t->factor <= FLT_MAX)
        return QPLAN_OK;
    qp_format_f64(found, (double)t->factor);
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, part->entry),
                   "bad factor: expected a finite number above 0, found %s", found);
}

/* The numbers for the inputs of a layer are such that these can be divided by them. */
static enum qplan_status check_inputs(const struct qp_listing *listing, const struct qp_tensor *t,
                                      struct qplan_error *err)
{
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    char subject[512], found[QP_F64_TEXT];
    unsigned char bytes[sizeof(float)];
    float value;
    for (unsigned i = 0; i < t->n_parts; i++) {
        const struct qplan_entry *entry = t->parts[i].entry;
        const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)entry->storage);
        if (!t->parts[i].is_input || !row->is_source)
            continue;
        QP_TRY(listing->read(listing, entry, 0, bytes, row->bits / 8, err));
        f32->load(row->dtype, 1, bytes, &value);
        if (value > 0 && value <= FLT_MAX)
            continue;
        qp_format_f64(found, (double)value);
        return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry),
                       "bad scale of inputs: expected a finite number above 0, found %s", found);
    }
    return QPLAN_OK;
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
    QP_TRY(qp_format_read(listing, &c->arena, &c->format, &q->list, &q->n, err));
    if (!c->format)
        return QPLAN_OK;
    for (size_t i = 0; i < q->n; i++) {
        QP_TRY(claim_parts(listing, q, &q->list[i], err));
        QP_TRY(check_calibrator(c, &q->list[i], err));
        QP_TRY(read_factor(listing, &q->list[i], err));
        QP_TRY(check_inputs(listing, &q->list[i], err));
    }
    if (c->format->may_omit_zeros)
        QP_TRY(check_zeros(listing, q, err));
    QP_TRY(qp_check_layouts(listing, q->list, q->n, err));
    QP_TRY(qp_read_making(listing, &c->arena, &c->making, err));
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

static bool is_plain(const struct qplan_checkpoint *c, const struct quantized *q, size_t k)
{
    const struct qp_listing *listing = &c->source.listing;
    return !q->owner[k] && !(c->format && c->format->is_note &&
                             c->format->is_note(listing, &listing->entries[k], q->list, q->n));
}

/* Merges stored tensors that belong to nothing else with the quantized ones: both are in order. */
static enum qplan_status merge_tensors(struct qplan_checkpoint *c, const struct quantized *q,
                                       struct qplan_error *err)
{
    const struct qp_listing *listing = &c->source.listing;
    size_t n_plain = 0, i = 0;
    for (size_t k = 0; k < listing->n_entries; k++)
        n_plain += is_plain(c, q, k);
    c->n_quantized = q->n;
    c->tensors = qp_alloc(n_plain + q->n, sizeof *c->tensors);
    if (!c->tensors)
        return qp_fail_memory(err, listing->shown, (n_plain + q->n) * sizeof *c->tensors);
    for (size_t k = 0; k < listing->n_entries; k++) {
        const struct qplan_entry *entry = &listing->entries[k];
        if (!is_plain(c, q, k))
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
    return qp_tensors_find(checkpoint->tensors, checkpoint->n_tensors, name, n);
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

/* ---- Seen as a plain checkpoint ----------------------------------------------------------------
 */

/* The type of the values that decoders of a tensor's layout give. */
static enum qplan_storage decoded_storage(const struct qp_tensor *t)
{
    const enum qplan_dtype dtype = qp_decoder_dtype(t);
    const bool is_narrow = dtype != QPLAN_F32 || t->storage == QPLAN_STORAGE_F64;
    return t->rounds && is_narrow ? qp_dtype_storage(dtype) : (enum qplan_storage)t->storage;
}

/* The stored tensor that a decoded one would be, where its codes begin. */
static enum qplan_status decoded_entry(const struct qplan_checkpoint *c, const struct qp_tensor *t,
                                       struct qplan_entry *entry, struct qplan_error *err)
{
    const enum qplan_storage storage = decoded_storage(t);
    char subject[512];
    uint64_t n;
    *entry = (struct qplan_entry){.name = t->name,
                                  .name_len = t->name_len,
                                  .shape = t->shape,
                                  .rank = t->rank,
                                  .storage = (uint8_t)storage,
                                  .file = t->entry->file,
                                  .begin = t->entry->begin};
    const bool fits = qp_shape_elements(t->shape, t->rank, &n) &&
                      qp_mul_u64(n, qplan_storage_bits(storage) / 8, &n) &&
                      qp_add_u64(entry->begin, n, &entry->end);
    return fits ? QPLAN_OK
                : qp_fail(err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, c, t),
                          "too large to be decoded");
}

enum qplan_status qplan_checkpoint_decode(struct qplan_checkpoint *checkpoint,
                                          struct qplan_error *err)
{
    struct qplan_checkpoint *c = checkpoint;
    const size_t n = c->n_quantized;
    if (c->is_decoded || n == 0)
        return QPLAN_OK;
    struct qp_tensor *encoded = qp_arena_alloc(&c->arena, n, sizeof *encoded);
    struct qplan_entry *entries = qp_arena_alloc(&c->arena, n, sizeof *entries);
    if (!encoded || !entries)
        return qp_fail_memory(err, c->source.listing.shown, n * sizeof *encoded);
    for (size_t i = 0, k = 0; i < c->n_tensors; i++) {
        if (!c->tensors[i].scheme)
            continue;
        encoded[k] = c->tensors[i];
        QP_TRY(decoded_entry(c, &encoded[k], &entries[k], err));
        c->tensors[i] = plain_tensor(&entries[k]);
        c->tensors[i].encoded = &encoded[k++];
    }
    c->is_decoded = true;
    return QPLAN_OK;
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

bool qplan_checkpoint_is_decoded(const struct qplan_checkpoint *checkpoint)
{
    return checkpoint->is_decoded;
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
