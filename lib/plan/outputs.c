/*
 * outputs.c - from decisions to bytes: the stored tensors of the output, their order and offsets,
 * the metadata and the measured headers. So the size of the output is exact before any data is
 * read.
 */
#include "plan.h"

#include "formats/record.h"
#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

void qp_put_stem(struct qp_writer *w, const struct qp_source *source)
{
    const char *path = source->is_folder ? source->folder.name : source->path;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name), n_suffix = strlen(QP_CHECKPOINT_SUFFIX);
    if (!source->is_folder && n > n_suffix &&
        strcmp(name + n - n_suffix, QP_CHECKPOINT_SUFFIX) == 0)
        n -= n_suffix;
    qp_put(w, name, n);
}

/* ---- Stored tensors ----------------------------------------------------------------------------
 */

/* Room for the stored tensors of all tensors: of a quantized one as many as any layout makes. */
static enum qplan_status make_room(struct qplan_plan *plan, struct qplan_error *err)
{
    const size_t n_parts = plan->n_quantized * QP_MOST_PARTS;
    const size_t n = plan->n_tensors - plan->n_quantized + n_parts;
    plan->outputs = qp_alloc(n, sizeof *plan->outputs);
    plan->parts = qp_alloc(n_parts, sizeof *plan->parts);
    return plan->outputs && plan->parts ? QPLAN_OK
                                        : qp_fail_memory(err, "plan", n * sizeof *plan->outputs);
}

/* Adds the stored tensors of one tensor, and its parts at *parts; false when out of memory. */
static bool add_outputs(struct qplan_plan *plan, struct qp_plan_tensor *t, struct qp_part **parts)
{
    struct qplan_entry *entries = plan->outputs + plan->n_outputs;
    t->result.entry = entries;
    if (!qp_is_quantized(t)) {
        *entries = *t->source->entry;
        plan->n_outputs++;
        return true;
    }
    t->result.calibrate = t->calibrator->name;
    t->result.n_parts =
        (uint8_t)plan->format->parts(&t->result, &plan->options, &plan->arena, *parts, entries);
    t->result.parts = *parts;
    for (unsigned i = 0; i < t->result.n_parts; i++)
        entries[i].file = t->source->entry->file; /* what becomes of a tensor stays in its shard */
    *parts += t->result.n_parts;
    plan->n_outputs += t->result.n_parts;
    return t->result.n_parts > 0;
}

static enum qplan_status make_outputs(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(make_room(plan, err));
    struct qp_part *parts = plan->parts;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (!add_outputs(plan, &plan->tensors[i], &parts))
            return qp_fail_memory(err, "plan", plan->tensors[i].source->name_len);
    }
    return QPLAN_OK;
}

/*
 * A part must not take the name of a tensor that the source has, nor may one that is left out: a
 * reader would take that tensor for it.
 */
static enum qplan_status check_name(const struct qplan_plan *plan, const struct qp_plan_tensor *t,
                                    const struct qplan_entry *part, struct qplan_error *err)
{
    const struct qp_listing *listing = &plan->checkpoint->source.listing;
    char subject[512], name[QP_QUOTED], quoted[QP_QUOTED];
    if (part->name_len > QP_ST_MAX_NAME)
        return qp_fail(err, QPLAN_ERR_INVALID,
                       qp_checkpoint_subject(subject, plan->checkpoint, t->source),
                       "name too long for its sidecars: expected at most %u bytes, found %u",
                       QP_ST_MAX_NAME, part->name_len);
    const struct qplan_entry *other = part->name == t->source->name
                                          ? t->source->entry
                                          : qp_listing_find(listing, part->name, part->name_len);
    if (!other || other == t->source->entry)
        return QPLAN_OK;
    qp_fail(err, QPLAN_ERR_INVALID, listing->shown,
            "name collision: %s, a sidecar of %s, is already a tensor of the source",
            qp_quote(quoted, part->name, part->name_len),
            qp_quote(name, t->source->name, t->source->name_len));
    qp_advise(err, QPLAN_ADVICE_EXCLUDE_ONE);
    return QPLAN_ERR_INVALID;
}

static enum qplan_status check_parts(const struct qplan_plan *plan, const struct qp_plan_tensor *t,
                                     const struct qp_part *parts, unsigned n,
                                     struct qplan_error *err)
{
    for (unsigned i = 0; i < n; i++)
        QP_TRY(check_name(plan, t, parts[i].entry, err));
    return QPLAN_OK;
}

/* The names of all parts that the layout could give a tensor, also of those that it leaves out. */
static enum qplan_status check_all_parts(const struct qplan_plan *plan,
                                         const struct qp_plan_tensor *t, struct qp_arena *scratch,
                                         struct qplan_error *err)
{
    static const struct qp_format_options all = {QPLAN_ZERO_POINT_ALWAYS};
    struct qp_part parts[QP_MOST_PARTS];
    struct qplan_entry entries[QP_MOST_PARTS];
    if (plan->options.zero_point == all.zero_point)
        return check_parts(plan, t, t->result.parts, t->result.n_parts, err);
    qp_arena_clear(scratch);
    const unsigned n = plan->format->parts(&t->result, &all, scratch, parts, entries);
    return n ? check_parts(plan, t, parts, n, err)
             : qp_fail_memory(err, "plan", t->source->name_len);
}

static enum qplan_status check_lengths(const struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        for (unsigned k = 0; k < t->result.n_parts; k++) {
            if (t->result.parts[k].entry->name_len > QP_ST_MAX_NAME)
                return check_name(plan, t, t->result.parts[k].entry, err);
        }
    }
    return QPLAN_OK;
}

static enum qplan_status check_names(const struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_arena scratch = {NULL};
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; status == QPLAN_OK && i < plan->n_tensors; i++) {
        if (qp_is_quantized(&plan->tensors[i]))
            status = check_all_parts(plan, &plan->tensors[i], &scratch, err);
    }
    qp_arena_free(&scratch);
    return status;
}

/* ---- Metadata ----------------------------------------------------------------------------------
 */

/* What the metadata of files are made of. */
struct metadata {
    const struct qplan_plan *plan;
    const struct qp_tensor **quantized; /* room for all tensors */
    struct qp_st_pair *pairs;           /* room for those of any file */
    struct qp_writer records;           /* of the file at hand */
};

/* The records of the tensors of one file. */
static enum qplan_status put_records(struct metadata *m, size_t file, struct qplan_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < m->plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &m->plan->tensors[i];
        if (qp_is_quantized(t) && t->result.entry->file == file)
            m->quantized[n++] = &t->result;
    }
    m->records.n = 0;
    qp_put_records(&m->records, m->quantized, n);
    return qp_writer_finish(&m->records, "plan", err);
}

static int by_key(const void *a, const void *b)
{
    const struct qp_st_pair *x = a, *y = b;
    return qp_compare_text(x->key, x->key_len, y->key, y->key_len);
}

/* The source's pairs without those that are ours, and ours, in key order; returns how many. */
static size_t join_metadata(const struct qp_st *st, const struct qp_writer *records,
                            struct qp_st_pair *pairs)
{
    size_t n = 0;
    for (size_t i = 0; i < st->n_metadata; i++) {
        const struct qp_st_pair *pair = &st->metadata[i];
        if (!qp_owns_key(pair) && !qp_is_format(pair))
            pairs[n++] = *pair;
    }
    qp_own_pairs(records->data, records->n, pairs + n);
    n += QP_OWN_PAIRS;
    qsort(pairs, n, sizeof *pairs, by_key);
    return n;
}

static enum qplan_status metadata_of(void *ctx, size_t file, const struct qp_st_pair **pairs,
                                     size_t *n, struct qplan_error *err)
{
    struct metadata *m = ctx;
    QP_TRY(put_records(m, file, err));
    *n = join_metadata(&m->plan->checkpoint->source.files[file], &m->records, m->pairs);
    *pairs = m->pairs;
    return QPLAN_OK;
}

static size_t most_pairs(const struct qp_source *source)
{
    size_t most = 0;
    for (size_t i = 0; i < source->listing.n_files; i++)
        most = source->files[i].n_metadata > most ? source->files[i].n_metadata : most;
    return most;
}

static enum qplan_status make_files(struct qplan_plan *plan, struct qplan_error *err)
{
    const size_t n_pairs = most_pairs(&plan->checkpoint->source) + QP_OWN_PAIRS;
    struct qplan_entry **outputs = qp_alloc(plan->n_outputs, sizeof *outputs);
    struct metadata m = {.plan = plan,
                         .quantized = qp_alloc(plan->n_tensors, sizeof *m.quantized),
                         .pairs = qp_alloc(n_pairs, sizeof *m.pairs)};
    enum qplan_status status = QPLAN_OK;
    qp_writer_init(&m.records);
    if (outputs && m.quantized && m.pairs) {
        for (size_t i = 0; i < plan->n_outputs; i++)
            outputs[i] = &plan->outputs[i];
        status = qp_news_make(&plan->news, outputs, plan->n_outputs, metadata_of, &m, err);
    } else {
        status = qp_fail_memory(err, "plan", plan->n_outputs * sizeof *outputs);
    }
    qp_writer_free(&m.records);
    qp_free(m.pairs);
    qp_free(m.quantized);
    qp_free(outputs);
    return status;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

static enum qplan_status add_warnings(struct qplan_plan *plan, struct qplan_error *err)
{
    const char *path = plan->checkpoint->source.path;
    if (plan->n_quantized == 0)
        QP_TRY(qp_warn(&plan->warnings, &plan->arena, "nothing-quantized", path,
                       "no tensor is quantized: the output is a copy", err));
    bool is_long = false;
    for (size_t i = 0; i < plan->news.n_files; i++)
        is_long |= plan->news.files[i].header_bytes - 8 > QP_ST_WARN_HEADER;
    if (is_long)
        QP_TRY(qp_warn(
            &plan->warnings, &plan->arena, "header-over-25MB", path,
            "the header of the output passes 25,000,000 bytes, which some readers refuse", err));
    const struct qp_warnings *found = &plan->checkpoint->source.warnings;
    for (size_t i = 0; i < found->n; i++)
        QP_TRY(qp_warn(&plan->warnings, &plan->arena, found->list[i].code, found->list[i].subject,
                       found->list[i].message, err));
    return qp_side_warn(&plan->side, path, &plan->warnings, &plan->arena, err);
}

enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(
        qp_news_name(&plan->news, &plan->checkpoint->source, plan->output_name, &plan->arena, err));
    QP_TRY(make_outputs(plan, err));
    QP_TRY(check_lengths(plan, err));
    if (plan->options.zero_point != QPLAN_ZERO_POINT_ALWAYS) /* then some parts are left out */
        QP_TRY(check_names(plan, err));
    const enum qplan_status status = make_files(plan, err);
    if (status == QPLAN_ERR_INVALID) /* the parts of a tensor explain two equal names better */
        QP_TRY(check_names(plan, err));
    QP_TRY(status);
    return add_warnings(plan, err);
}

/* ---- What a plan says --------------------------------------------------------------------------
 */

const char *qplan_plan_output_name(const struct qplan_plan *plan)
{
    return plan->output_name;
}

uint64_t qplan_plan_output_bytes(const struct qplan_plan *plan)
{
    return qp_news_bytes(&plan->news);
}

size_t qplan_plan_warning_count(const struct qplan_plan *plan)
{
    return plan->warnings.n;
}

const char *qplan_plan_warning(const struct qplan_plan *plan, size_t i)
{
    return i < plan->warnings.n ? plan->warnings.list[i].text : NULL;
}
