/*
 * reading.c - the quantized tensors of a checkpoint, whatever its layout: what records in its
 * metadata or its config.json claim, and the stored tensors that must be there for each claim.
 *
 * One reader for all layouts: a layout only says which tensors there are and what their parts are
 * called; that they are there, with the type, shape and constant bytes that they should have, is
 * proven here.
 */
#include "record.h"

#include "build.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "modules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct qp_listing *listing;
    const struct qp_format *format;
    struct qp_arena *arena;
    struct qp_arena scratch; /* what is wanted of the parts of one tensor */
    bool recorded;
    const struct qplan_entry *last; /* the part that was found last: the next is mostly behind it */
    struct qplan_error *err;
};

/* ---- Parts -------------------------------------------------------------------------------------
 */

static const struct qplan_entry *find_entry(struct reader *r, const struct qplan_entry *wanted)
{
    const struct qp_listing *listing = r->listing;
    const size_t i = r->last ? (size_t)(r->last - listing->entries) + 1 : 0;
    const struct qplan_entry *next = i < listing->n_entries ? &listing->entries[i] : NULL;
    if (!next || qp_compare_text(next->name, next->name_len, wanted->name, wanted->name_len) != 0)
        next = qp_listing_find(listing, wanted->name, wanted->name_len);
    r->last = next ? next : r->last;
    return next;
}

/* Whether the words of a constant are another tool's: the description of the tensor has read them.
 */
static bool has_own_words(const struct reader *r, const struct qp_part *part)
{
    return part->is_text && !r->recorded;
}

static bool is_as_wanted(const struct reader *r, const struct qplan_entry *found,
                         const struct qp_part *part)
{
    const struct qplan_entry *wanted = part->entry;
    return found->storage == wanted->storage &&
           (has_own_words(r, part) ||
            qp_same_shape(found->shape, found->rank, wanted->shape, wanted->rank));
}

/*
 * Whether a layout stores such tensors, and takes their scheme as it is; *scheme is what it makes
 * of it. The text of a symmetric scheme does not say whether there is a bias: the layout does.
 */
static bool stores(const struct qp_format *format, const struct qp_tensor *t,
                   struct qplan_scheme *scheme)
{
    const struct qp_format_options options = {.activations = QPLAN_ACTIVATIONS_NONE};
    *scheme = *t->scheme;
    if ((format->rank != 0 && t->rank != format->rank) ||
        qp_format_fit(format, scheme, (enum qplan_storage)t->storage, &options))
        return false;
    struct qplan_scheme told = *scheme;
    told.bias = told.asymmetric ? told.bias : t->scheme->bias;
    return qp_scheme_equal(&told, t->scheme);
}

static enum qplan_status check_stored(const struct reader *r, struct qp_tensor *t)
{
    char quoted[QP_QUOTED], text[QPLAN_SCHEME_TEXT];
    struct qplan_scheme scheme;
    if (!stores(r->format, t, &scheme)) {
        (void)qplan_scheme_format(t->scheme, text);
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                       "%s: the layout %s stores no tensor of %u axes as %s",
                       qp_quote(quoted, t->name, t->name_len), r->format->name, t->rank, text);
    }
    if (scheme.bias != t->scheme->bias)
        t->scheme = qp_arena_copy(r->arena, &scheme, 1, sizeof scheme);
    return t->scheme ? QPLAN_OK : qp_fail_memory(r->err, r->listing->shown, sizeof scheme);
}

/* The parts that a tensor should have in a variant, and what there is under their names. */
struct wanted {
    unsigned n, n_found, n_right;
    struct qp_part parts[QP_MOST_PARTS + QP_MOST_INPUTS];
    struct qplan_entry entries[QP_MOST_PARTS];
    const struct qplan_entry *found[QP_MOST_PARTS];
};

static enum qplan_status want(struct reader *r, const struct qp_format *format,
                              const struct qp_tensor *t, struct wanted *w)
{
    qp_arena_clear(&r->scratch);
    *w = (struct wanted){.n = 0};
    w->n = format->parts(t, &r->scratch, w->parts, w->entries);
    if (w->n == 0)
        return qp_fail_memory(r->err, r->listing->shown, t->name_len);
    for (unsigned i = 0; i < w->n; i++) {
        w->found[i] = find_entry(r, w->parts[i].entry);
        w->n_found += w->found[i] != NULL;
        w->n_right += w->found[i] && is_as_wanted(r, w->found[i], &w->parts[i]);
    }
    return QPLAN_OK;
}

static enum qplan_status refuse_part(const struct reader *r, const struct wanted *w, unsigned i,
                                     unsigned file)
{
    const struct qplan_entry *wanted = w->parts[i].entry, *found = w->found[i];
    char subject[512], expected[256], other[256];
    (void)qp_st_subject(subject, &r->listing->files[found ? found->file : file], wanted);
    if (!found)
        return qp_fail(r->err, QPLAN_ERR_INVALID, subject,
                       r->recorded ? "recorded in " QP_TENSORS_KEY " but not in the file"
                                   : "part of a quantized tensor, but not in the checkpoint");
    return qp_fail(r->err, QPLAN_ERR_INVALID, subject,
                   "type and shape are not those of its %s: expected %s %s, found %s %s",
                   r->recorded ? "record" : "tensor",
                   qplan_storage_name((enum qplan_storage)wanted->storage),
                   qp_format_list(expected, sizeof expected, wanted->shape, wanted->rank),
                   qplan_storage_name((enum qplan_storage)found->storage),
                   qp_format_list(other, sizeof other, found->shape, found->rank));
}

/* The bytes of a constant are those that the layout gives it, a page at a time. */
static enum qplan_status check_constant(const struct reader *r, const struct qp_part *part)
{
    const struct qplan_entry *entry = part->entry;
    const uint64_t n_bytes = entry->end - entry->begin;
    char found[4096], subject[512];
    for (uint64_t off = 0; off < n_bytes; off += sizeof found) {
        const size_t n = n_bytes - off < sizeof found ? (size_t)(n_bytes - off) : sizeof found;
        QP_TRY(r->listing->read(r->listing, entry, off, found, n, r->err));
        if (memcmp(found, (const char *)part->bytes + off, n) != 0)
            return qp_fail(r->err, QPLAN_ERR_INVALID,
                           qp_listing_subject(subject, r->listing, entry),
                           "its values are not those that the tensor gives it");
    }
    return QPLAN_OK;
}

#define PAGE 1024 /* values of an index */

/*
 * The set of each column is one that there is. Where it is the one that the scheme has, as in all
 * that qplan writes, the index is a constant.
 */
static enum qplan_status check_index(const struct reader *r, const struct qp_tensor *t,
                                     struct qp_part *part)
{
    const uint64_t n = part->matrix.cols, n_sets = qp_row_sets(t->scheme, t->shape).cols;
    const uint64_t width = t->scheme->granularity == QPLAN_PER_GROUP ? t->scheme->group : n;
    int32_t found[PAGE];
    char subject[512];
    bool is_usual = true;
    for (uint64_t at = 0; at < n; at += PAGE) {
        const size_t n_here = (size_t)qp_min_u64(PAGE, n - at);
        QP_TRY(r->listing->read(r->listing, part->entry, at * sizeof *found, found,
                                n_here * sizeof *found, r->err));
        for (size_t i = 0; i < n_here; i++) {
            const uint64_t usual = (at + i) / width;
            const bool is_set = found[i] >= 0 && (uint64_t)found[i] < n_sets;
            is_usual &= is_set && (uint64_t)found[i] == usual;
            if (is_usual || (is_set && !r->recorded))
                continue;
            (void)qp_listing_subject(subject, r->listing, part->entry);
            return r->recorded ? qp_fail(r->err, QPLAN_ERR_INVALID, subject,
                                         "group of column %" PRIu64 ": expected %" PRIu64
                                         ", found %" PRId32,
                                         at + i, usual, found[i])
                               : qp_fail(r->err, QPLAN_ERR_INVALID, subject,
                                         "group of column %" PRIu64 ": expected 0 to %" PRIu64
                                         ", found %" PRId32,
                                         at + i, n_sets - 1, found[i]);
        }
    }
    part->role = is_usual ? QP_CONSTANT : QP_INDEX;
    return QPLAN_OK;
}

/* Zero points of inputs are integers, and all else is of a float type of at most 32 bits. */
static enum qplan_status check_input(const struct reader *r, const struct qplan_entry *entry)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)entry->storage);
    const bool is_zero = qp_name_ends(entry->name, entry->name_len, "_zero_point");
    char subject[512];
    if (is_zero ? row->is_integer : row->is_source && row->bits <= 32)
        return QPLAN_OK;
    return qp_fail(r->err, QPLAN_ERR_INVALID, qp_listing_subject(subject, r->listing, entry),
                   "not a number for the inputs of its layer: expected %s, found %s",
                   is_zero ? "an integer" : "F32, F16 or BF16", row->name);
}

/*
 * Adds the numbers by which engines quantize the inputs of the tensor's layer: without its codes
 * they say nothing, and so they go where these go.
 */
static enum qplan_status add_inputs(const struct reader *r, const struct qp_tensor *t,
                                    struct wanted *w)
{
    const struct qp_span module = qp_module_of(t); /* such layouts store nothing else */
    const char *const *suffix = r->recorded ? NULL : r->format->inputs;
    for (; suffix && *suffix; suffix++) {
        const struct qplan_entry *entry =
            qp_listing_sibling(r->listing, module.text, module.n, *suffix);
        if (!entry || (entry->rank != 0 && (entry->rank != 1 || entry->shape[0] != 1)))
            continue;
        QP_TRY(check_input(r, entry));
        w->parts[w->n++] = (struct qp_part){.role = QP_CONSTANT, .is_input = true, .entry = entry};
    }
    return QPLAN_OK;
}

/*
 * Proves the parts of a tensor: of the variant that its description has, else of that whose names
 * are all there, else of the first.
 */
static enum qplan_status find_parts(struct reader *r, struct qp_tensor *t, unsigned file)
{
    const struct qplan_entry *last = r->last;
    const unsigned n_variants = r->format->n_variants, first = t->variant;
    struct wanted w;
    for (unsigned i = 0; i <= n_variants + 1; i++) {
        t->variant = (uint8_t)(i == 0 || i > n_variants ? first : i - 1);
        r->last = last;
        QP_TRY(want(r, r->format, t, &w));
        if (w.n_found == w.n)
            break;
    }
    for (unsigned i = 0; i < w.n; i++) {
        if (!w.found[i] || !is_as_wanted(r, w.found[i], &w.parts[i]))
            return refuse_part(r, &w, i, file);
        w.parts[i].entry = w.found[i];
        if (w.parts[i].role == QP_CONSTANT && !has_own_words(r, &w.parts[i]))
            QP_TRY(check_constant(r, &w.parts[i]));
        if (w.parts[i].role == QP_INDEX)
            QP_TRY(check_index(r, t, &w.parts[i]));
        w.parts[i].bytes = NULL; /* it is in the scratch arena */
    }
    QP_TRY(add_inputs(r, t, &w));
    t->n_parts = (uint8_t)w.n;
    t->rounds = r->format->rounds;
    t->has_dtype = r->format->has_dtype && r->format->has_dtype(t->scheme);
    t->is_flat = r->format->is_flat;
    t->entry = w.parts[0].entry;
    t->parts = qp_arena_copy(r->arena, w.parts, w.n, sizeof *w.parts);
    return t->parts ? QPLAN_OK : qp_fail_memory(r->err, r->listing->shown, sizeof w.parts);
}

/* ---- Records -----------------------------------------------------------------------------------
 */

/*
 * The layout of a file without a config.json that has records: of those that store the tensor of a
 * record in parts whose names are all there, the one with the most parts, then with the most that
 * are as they should be, and of those one that is a file.
 */
static enum qplan_status format_of_record(struct reader *r, const struct qp_tensor *recorded)
{
    struct qp_tensor t = *recorded;
    const struct qp_format *format;
    struct qplan_scheme scheme;
    unsigned best = 0;
    struct wanted w;
    for (size_t i = 0; (format = qp_format_at(i)) != NULL; i++) {
        for (unsigned variant = 0; variant < format->n_variants; variant++) {
            t.variant = (uint8_t)variant;
            if (!stores(format, recorded, &scheme))
                continue;
            t.scheme = &scheme;
            QP_TRY(want(r, format, &t, &w));
            const unsigned worth = 2 * (w.n * (QP_MOST_PARTS + 1) + w.n_right) + !format->is_folder;
            if (w.n_found == w.n && worth > best) {
                best = worth;
                r->format = format;
            }
        }
    }
    return QPLAN_OK;
}

/* Appends the tensors of one file, with their parts. */
static enum qplan_status read_file(struct reader *r, unsigned file, struct qp_tensor **tensors,
                                   size_t *n)
{
    const struct qp_st *st = &r->listing->files[file];
    struct qp_tensor *more;
    size_t n_more;
    QP_TRY(qp_read_records(st, r->arena, &more, &n_more, r->err));
    enum qplan_status status = QPLAN_OK;
    if (!r->format && n_more > 0)
        status = format_of_record(r, &more[0]);
    if (!r->format)
        r->format = qp_format_find("qplan");
    for (size_t i = 0; status == QPLAN_OK && i < n_more; i++) {
        status = check_stored(r, &more[i]);
        if (status == QPLAN_OK && r->format->recall)
            status = r->format->recall(r->listing, &more[i], r->err);
        if (status == QPLAN_OK)
            status = find_parts(r, &more[i], file);
    }
    struct qp_tensor *grown =
        status == QPLAN_OK ? qp_realloc(*tensors, *n + n_more, sizeof *grown) : NULL;
    if (grown) {
        if (n_more > 0)
            memcpy(grown + *n, more, n_more * sizeof *more);
        *tensors = grown;
        *n += n_more;
    } else if (status == QPLAN_OK) {
        status = qp_fail_memory(r->err, st->file.shown, (*n + n_more) * sizeof *grown);
    }
    qp_free(more);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct qp_tensor *x = a, *y = b;
    return qp_compare_text(x->name, x->name_len, y->name, y->name_len);
}

static void sort_tensors(struct qp_tensor *tensors, size_t n)
{
    if (n > 0)
        qsort(tensors, n, sizeof *tensors, by_name);
}

static enum qplan_status read_recorded(struct reader *r, struct qp_tensor **tensors, size_t *n)
{
    char quoted[QP_QUOTED];
    for (unsigned i = 0; i < r->listing->n_files; i++)
        QP_TRY(read_file(r, i, tensors, n));
    sort_tensors(*tensors, *n);
    for (size_t i = 1; i < *n; i++) {
        const struct qp_tensor *t = &(*tensors)[i];
        if (by_name(t - 1, t) == 0)
            return qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                           "metadata " QP_TENSORS_KEY ": two records at %s",
                           qp_quote(quoted, t->name, t->name_len));
    }
    return QPLAN_OK;
}

/* ---- Descriptions ------------------------------------------------------------------------------
 */

static enum qplan_status read_described(struct reader *r, struct qp_tensor **tensors, size_t *n)
{
    QP_TRY(r->format->describe(r->listing, r->arena, tensors, n, r->err));
    sort_tensors(*tensors, *n);
    for (size_t i = 0; i < *n; i++)
        QP_TRY(find_parts(r, &(*tensors)[i], 0));
    return QPLAN_OK;
}

/* The scheme of a tensor, with groups that are as long as the rows of a matrix taken for its rows:
 * nothing that is stored tells which they are. */
static struct qplan_scheme scheme_in_rows(const struct qp_format *format, const struct qp_tensor *t)
{
    struct qplan_scheme scheme = *t->scheme;
    if (!format->is_flat && t->rank == 2 && scheme.granularity == QPLAN_PER_GROUP &&
        scheme.group >= t->shape[1]) {
        scheme.granularity = QPLAN_PER_CHANNEL;
        scheme.group = 0;
        scheme.axis = 0;
    }
    return scheme;
}

/* A tensor that has a record and nothing more, or lacks one. */
static enum qplan_status refuse_single(const struct reader *r, const struct qp_tensor *t,
                                       bool is_recorded)
{
    char quoted[QP_QUOTED];
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                   is_recorded ? "%s is recorded in " QP_TENSORS_KEY
                                 " but not quantized by config.json"
                               : "%s is quantized, but not recorded in " QP_TENSORS_KEY,
                   qp_quote(quoted, t->name, t->name_len));
}

/* What a record says of a tensor is what an engine takes from config.json and the shapes. */
static enum qplan_status compare_tensor(const struct reader *r, const struct qp_tensor *recorded,
                                        const struct qp_tensor *described)
{
    char quoted[QP_QUOTED], expected[QPLAN_SCHEME_TEXT], found[QPLAN_SCHEME_TEXT];
    (void)qp_quote(quoted, recorded->name, recorded->name_len);
    if (!qp_same_shape(recorded->shape, recorded->rank, described->shape, described->rank))
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                       "the record of %s has another shape than its parts", quoted);
    const struct qplan_scheme ours = scheme_in_rows(r->format, recorded);
    const struct qplan_scheme theirs = scheme_in_rows(r->format, described);
    if (qp_scheme_told(&ours, &theirs, r->format->has_open_symmetry))
        return QPLAN_OK;
    (void)qplan_scheme_format(described->scheme, expected);
    (void)qplan_scheme_format(recorded->scheme, found);
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                   "the record of %s is not what config.json says: expected %s, found %s", quoted,
                   expected, found);
}

static enum qplan_status compare(struct reader *r, const struct qp_tensor *recorded,
                                 size_t n_recorded)
{
    struct qp_tensor *described = NULL;
    size_t n = 0;
    enum qplan_status status = r->format->describe(r->listing, r->arena, &described, &n, r->err);
    if (status == QPLAN_OK)
        sort_tensors(described, n);
    for (size_t i = 0; status == QPLAN_OK && (i < n || i < n_recorded); i++) {
        const int order = i >= n ? -1 : i >= n_recorded ? 1 : by_name(&recorded[i], &described[i]);
        if (order != 0)
            status = refuse_single(r, order < 0 ? &recorded[i] : &described[i], order < 0);
        else
            status = compare_tensor(r, &recorded[i], &described[i]);
    }
    qp_free(described);
    return status;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

const struct qp_format *qp_format_of_config(const struct qp_listing *listing)
{
    const struct qp_format *format;
    for (size_t i = 0; (format = qp_format_at(i)) != NULL; i++) {
        if (format->is && format->is(listing))
            return format;
    }
    return NULL;
}

/* Of a checkpoint in two layouts engines would see the one that they look for. */
static enum qplan_status check_single(const struct reader *r)
{
    const struct qp_format *format, *first = r->format;
    for (size_t i = 0; first && (format = qp_format_at(i)) != NULL; i++) {
        if (format != first && format->is && format->is(r->listing))
            return qp_fail(r->err, QPLAN_ERR_INVALID,
                           r->listing->config ? r->listing->config->name : r->listing->shown,
                           "two layouts: expected one, found %s and %s", first->name, format->name);
    }
    return QPLAN_OK;
}

/* Records of a layout of folders need the config.json by which engines see it. */
static enum qplan_status check_config(const struct reader *r)
{
    if (!r->format->is_folder || (!r->listing->config && !r->listing->is_folder))
        return QPLAN_OK;
    return r->listing->config
               ? qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->config->name,
                         "does not say that the checkpoint has the layout of its records, %s",
                         r->format->name)
               : qp_fail(r->err, QPLAN_ERR_INVALID, r->listing->shown,
                         "config.json is missing, by which engines see the layout of its "
                         "records, %s",
                         r->format->name);
}

static enum qplan_status read_tensors(struct reader *r, struct qp_tensor **tensors, size_t *n)
{
    r->format = qp_format_of_config(r->listing);
    QP_TRY(check_single(r));
    /* Of a quantized checkpoint any key of ours is a claim, and one alone is not all of it. */
    r->recorded = qp_has_records(r->listing) || (r->format && qp_has_own_keys(r->listing));
    if (!r->recorded)
        return r->format ? read_described(r, tensors, n) : QPLAN_OK;
    const bool told_by_config = r->format != NULL;
    QP_TRY(read_recorded(r, tensors, n));
    return told_by_config ? compare(r, *tensors, *n) : check_config(r);
}

enum qplan_status qp_format_read(const struct qp_listing *listing, struct qp_arena *arena,
                                 const struct qp_format **format, struct qp_tensor **tensors,
                                 size_t *n, struct qplan_error *err)
{
    struct reader r = {.listing = listing, .arena = arena, .err = err};
    *tensors = NULL;
    *n = 0;
    const enum qplan_status status = read_tensors(&r, tensors, n);
    qp_arena_free(&r.scratch);
    *format = r.format;
    if (status != QPLAN_OK) {
        qp_free(*tensors);
        *tensors = NULL;
        *n = 0;
    }
    return status;
}
