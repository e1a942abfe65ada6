/*
 * outputs.c - from decisions to bytes: the stored tensors of the output, their order and offsets,
 * the metadata and the measured headers. So the size of the output is exact before any data is
 * read.
 */
#include "plan.h"
#include "select.h"

#include "formats/experts.h"
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

char *qp_plan_mixed_name(struct qplan_plan *plan)
{
    const struct qp_source *source = &plan->checkpoint->source;
    struct qp_writer w;
    qp_writer_init(&w);
    qp_put_stem(&w, source);
    qp_puts(&w, source->is_folder ? "-quantized" : ".quantized" QP_CHECKPOINT_SUFFIX);
    char *name = w.error ? NULL : qp_arena_join(&plan->arena, w.data, w.n, "");
    qp_writer_free(&w);
    return name;
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
    t->result.rounds = plan->format->rounds;
    t->result.has_dtype = plan->format->has_dtype && plan->format->has_dtype(t->result.scheme);
    t->result.n_parts = (uint8_t)plan->format->parts(&t->result, &plan->arena, *parts, entries);
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
    const struct qp_plan_tensor *other =
        part->name == t->source->name ? t : qp_plan_find(plan, part->name, part->name_len);
    if (!other || other == t)
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

/* The names of all parts that the layout could give a tensor, in whatever variant. */
static enum qplan_status check_all_parts(const struct qplan_plan *plan,
                                         const struct qp_plan_tensor *t, struct qp_arena *scratch,
                                         struct qplan_error *err)
{
    struct qp_part parts[QP_MOST_PARTS];
    struct qplan_entry entries[QP_MOST_PARTS];
    struct qp_tensor other = t->result;
    for (unsigned variant = 0; variant < plan->format->n_variants; variant++) {
        other.variant = (uint8_t)variant;
        qp_arena_clear(scratch);
        const unsigned n = plan->format->parts(&other, scratch, parts, entries);
        if (n == 0)
            return qp_fail_memory(err, "plan", t->source->name_len);
        QP_TRY(check_parts(plan, t, parts, n, err));
    }
    return QPLAN_OK;
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
    bool is_layout_2;
    const struct qp_tensor **quantized; /* room for all tensors */
    struct qp_st_pair *pairs;           /* room for those of any file */
    struct qp_writer records;           /* of the file at hand */
    struct qp_st_pair making[QP_MAKING_PAIRS];
    size_t n_making;
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
    const int order = qp_compare_text(x->key, x->key_len, y->key, y->key_len);
    return order ? order : qp_compare_text(x->value, x->value_len, y->value, y->value_len);
}

/* Adds the pairs of a file of the source that go into an output. */
static size_t add_pairs(struct qp_st_pair *pairs, size_t n, const struct qp_st *st)
{
    for (size_t i = 0; i < st->n_metadata; i++) {
        const struct qp_st_pair *pair = &st->metadata[i];
        if (qp_is_handed_on(pair) && !qp_is_format(pair))
            pairs[n++] = *pair;
    }
    return n;
}

/*
 * The source's pairs, of the same shard or, where shards are cut anew, of all, each key once, and
 * ours, in key order; returns how many.
 */
static size_t join_metadata(const struct metadata *m, size_t file)
{
    const struct qp_source *source = &m->plan->checkpoint->source;
    struct qp_st_pair *pairs = m->pairs;
    size_t n = 0, n_kept = 1;
    for (size_t i = 0; i < source->listing.n_files; i++) {
        if (m->plan->max_shard || i == file)
            n = add_pairs(pairs, n, &source->files[i]);
    }
    qp_own_pairs(m->is_layout_2, m->records.data, m->records.n, pairs + n);
    n += QP_OWN_PAIRS;
    memcpy(pairs + n, m->making, m->n_making * sizeof *pairs);
    n += m->n_making;
    qsort(pairs, n, sizeof *pairs, by_key);
    for (size_t i = 1; i < n; i++) {
        const struct qp_st_pair *last = &pairs[n_kept - 1];
        if (qp_compare_text(last->key, last->key_len, pairs[i].key, pairs[i].key_len) != 0)
            pairs[n_kept++] = pairs[i];
    }
    return n_kept;
}

static enum qplan_status metadata_of(void *ctx, size_t file, const struct qp_st_pair **pairs,
                                     size_t *n, struct qplan_error *err)
{
    struct metadata *m = ctx;
    QP_TRY(put_records(m, file, err));
    *n = join_metadata(m, file);
    *pairs = m->pairs;
    return QPLAN_OK;
}

static bool is_layout_2(const struct qplan_plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (qp_is_quantized(t) && qp_needs_layout_2(&t->result))
            return true;
    }
    return false;
}

/* Pairs of all files of the source: more than any file of the output has. */
static size_t all_pairs(const struct qp_source *source)
{
    size_t n = 0;
    for (size_t i = 0; i < source->listing.n_files; i++)
        n += source->files[i].n_metadata;
    return n;
}

static enum qplan_status make_files(struct qplan_plan *plan, struct qplan_error *err)
{
    const size_t n_pairs = all_pairs(&plan->checkpoint->source) + QP_OWN_PAIRS + QP_MAKING_PAIRS;
    struct qplan_entry **outputs = qp_alloc(plan->n_outputs, sizeof *outputs);
    struct metadata m = {.plan = plan,
                         .is_layout_2 = is_layout_2(plan),
                         .quantized = qp_alloc(plan->n_tensors, sizeof *m.quantized),
                         .pairs = qp_alloc(n_pairs, sizeof *m.pairs)};
    enum qplan_status status = QPLAN_OK;
    qp_writer_init(&m.records);
    if (outputs && m.quantized && m.pairs) {
        status = qp_making_pairs(&plan->making, &plan->arena, m.making, &m.n_making, err);
        for (size_t i = 0; i < plan->n_outputs; i++)
            outputs[i] = &plan->outputs[i];
        if (status == QPLAN_OK)
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

/* ---- config.json -------------------------------------------------------------------------------
 */

/* The value that the layout gives config.json for these tensors. */
static enum qplan_status put_value(struct qp_writer *w, const struct qplan_plan *plan,
                                   struct qplan_error *err)
{
    const struct qp_tensor **tensors = qp_alloc(plan->n_tensors, sizeof *tensors);
    if (!tensors)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *tensors);
    for (size_t i = 0; i < plan->n_tensors; i++)
        tensors[i] = &plan->tensors[i].result;
    const struct qp_outline outline = {tensors, plan->n_tensors, &plan->options};
    plan->format->config(w, &outline);
    qp_free(tensors);
    return qp_writer_finish(w, "plan", err);
}

static enum qplan_status make_config(struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_writer value;
    if (!plan->format->config)
        return plan->checkpoint->is_decoded
                   ? qp_side_edit_config(&plan->side, &plan->checkpoint->source, NULL, NULL,
                                         &plan->arena, err)
                   : QPLAN_OK;
    qp_writer_init(&value);
    enum qplan_status status = put_value(&value, plan, err);
    if (status == QPLAN_OK)
        status = qp_side_edit_config(&plan->side, &plan->checkpoint->source,
                                     plan->format->config_keys, &value, &plan->arena, err);
    qp_writer_free(&value);
    return status;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

/* Where config.json can say only one scheme, all tensors have it. */
static enum qplan_status check_schemes(const struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_tensor *first = NULL;
    char one[QPLAN_SCHEME_TEXT], other[QPLAN_SCHEME_TEXT], a[QP_QUOTED], b[QP_QUOTED];
    for (size_t i = 0; plan->format->has_one_scheme && i < plan->n_tensors; i++) {
        const struct qp_tensor *t = &plan->tensors[i].result;
        first = first || !t->scheme ? first : t;
        if (!t->scheme || qp_scheme_equal(t->scheme, first->scheme))
            continue;
        (void)qplan_scheme_format(first->scheme, one);
        (void)qplan_scheme_format(t->scheme, other);
        return qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                       "the layout %s stores one scheme for all tensors: found %s for %s and %s "
                       "for %s",
                       plan->format->name, one, qp_quote(a, first->name, first->name_len), other,
                       qp_quote(b, t->name, t->name_len));
    }
    return QPLAN_OK;
}

static enum qplan_status refuse_model(const struct qplan_plan *plan, const struct qp_tensor *t,
                                      const char *reason, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, plan->checkpoint, t),
                   "the layout %s cannot hold this model: %s", plan->format->name, reason);
}

/* Stacks of experts have been divided, but for those of models whose single ones have no known
 * names. */
static enum qplan_status check_stacks(const struct qplan_plan *plan, struct qplan_error *err)
{
    if (!plan->format->loaded_by || plan->format->stacks_experts)
        return QPLAN_OK;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_tensor *t = plan->tensors[i].source;
        if (t->rank == 3 && strstr(t->name, QP_STACK_NAME))
            return refuse_model(plan, t,
                                "only mlx-lm loads stacks of experts, and the names of single ones "
                                "are not known for the model_type of config.json",
                                err);
    }
    return QPLAN_OK;
}

/* No tensor of the source tells that engines do not load such a model. */
static enum qplan_status check_model(const struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_listing *listing = &plan->checkpoint->source.listing;
    size_t begin, end;
    for (const struct qp_refusal *r = plan->format->refusals; r && r->pattern; r++) {
        if (r->types && !qp_is_model_type(listing, r->types))
            continue;
        const struct qp_tensor *found = NULL; /* a weight rather than what is beside it */
        for (size_t i = 0; i < plan->n_tensors; i++) {
            const struct qp_tensor *t = plan->tensors[i].source;
            if (qp_name_find(t->name, t->name_len, r->pattern, &begin, &end) &&
                (!found || (found->rank < 2 && t->rank >= 2)))
                found = t;
        }
        if (found)
            return refuse_model(plan, found, r->reason, err);
    }
    return check_stacks(plan, err);
}

/* What engines load is a folder with a config.json, and something in it is quantized. */
static enum qplan_status check_layout(const struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_source *source = &plan->checkpoint->source;
    const char *shown = source->listing.shown;
    if (plan->format->is_folder && !source->config) {
        qp_fail(err, QPLAN_ERR_INVALID, shown,
                "the layout %s needs a folder with a " QP_CONFIG_NAME ": found %s",
                plan->format->name, source->is_folder ? "none in this one" : "a file");
        qp_hint(err, source->is_folder
                         ? "put the config.json of the model beside its weights"
                         : "name the folder that has the config.json of the model beside it");
        return QPLAN_ERR_INVALID;
    }
    if (plan->format->is_file && source->is_folder) {
        qp_fail(err, QPLAN_ERR_INVALID, shown, "the layout %s is a file: found a folder",
                plan->format->name);
        qp_hint(err, "name the file of the model");
        return QPLAN_ERR_INVALID;
    }
    if (plan->max_shard && !source->is_folder)
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "only a folder is cut into shards: found a file");
    if (plan->n_copy && !source->is_folder)
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "only a folder has files to copy: found a file");
    if (plan->format->fit && plan->n_quantized == 0)
        return qp_plan_fail_kept(plan, err);
    QP_TRY(check_model(plan, err));
    return check_schemes(plan, err);
}

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
    QP_TRY(qp_plan_warn_small(plan, err));
    QP_TRY(qp_plan_warn_decoded(plan, err));
    QP_TRY(qp_plan_warn_few(plan, err));
    QP_TRY(qp_plan_warn_experts(plan, err));
    return qp_side_warn(&plan->side, path, &plan->warnings, &plan->arena, err);
}

enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(check_layout(plan, err));
    const struct qp_source *source = &plan->checkpoint->source;
    size_t n_files = source->listing.n_files;
    QP_TRY(make_outputs(plan, err));
    if (plan->max_shard)
        QP_TRY(qp_plan_cut_shards(plan, &n_files, err));
    QP_TRY(qp_news_name(&plan->news, source, n_files, plan->output_name, &plan->arena, err));
    QP_TRY(check_lengths(plan, err));
    if (plan->options.zero_point == QPLAN_ZERO_POINT_ASYMMETRIC) /* then some parts are left out */
        QP_TRY(check_names(plan, err));
    const enum qplan_status status = make_files(plan, err);
    if (status == QPLAN_ERR_INVALID) /* the parts of a tensor explain two equal names better */
        QP_TRY(check_names(plan, err));
    QP_TRY(status);
    QP_TRY(make_config(plan, err));
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
