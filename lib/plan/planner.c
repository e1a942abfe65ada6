/*
 * planner.c - makes a plan: decisions, checked against shapes and the layout. Works on the header
 * alone: all that can fail for a name, a shape or a type fails here, before a byte of data is read.
 */
#include "choose.h"
#include "family.h"
#include "faults.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <string.h>

const char *qp_unquantizable(const struct qp_tensor *tensor)
{
    if (qp_tensor_bytes(tensor) == 0)
        return "empty";
    if (tensor->rank < 2)
        return tensor->rank == 0 ? "rank 0" : "rank 1";
    return qp_storage_row((enum qplan_storage)tensor->storage)->is_source ? NULL : "not a float";
}

/* ---- Making and freeing ------------------------------------------------------------------------
 */

enum qplan_status qp_plan_new(struct qplan_plan **out, const struct qplan_checkpoint *checkpoint,
                              struct qplan_error *err)
{
    struct qplan_plan *plan = qp_alloc(1, sizeof *plan);
    *out = plan;
    if (!plan)
        return qp_fail_memory(err, "plan", sizeof *plan);
    plan->checkpoint = checkpoint;
    plan->format = qp_format_find("qplan");
    return QPLAN_OK;
}

enum qplan_status qp_plan_take_tensors(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_format *format = plan->format;
    const struct qp_arrangement wish = {.split = plan->experts == QPLAN_EXPERTS_SPLIT,
                                        .stack = format->stacks_experts,
                                        .unstack = format->loaded_by && !format->stacks_experts,
                                        .engines = format->loaded_by != NULL};
    QP_TRY(qp_arrange(&plan->sources, plan->checkpoint, &wish, err));
    const size_t n = plan->sources.n;
    plan->tensors = qp_alloc(n, sizeof *plan->tensors);
    if (!plan->tensors)
        return qp_fail_memory(err, "plan", n * sizeof *plan->tensors);
    plan->n_tensors = n;
    for (size_t i = 0; i < n; i++)
        plan->tensors[i] = (struct qp_plan_tensor){.source = &plan->sources.list[i],
                                                   .result = plan->sources.list[i]};
    return QPLAN_OK;
}

struct qp_plan_tensor *qp_plan_find(const struct qplan_plan *plan, const char *name, size_t n)
{
    const struct qp_tensor *found = qp_arranged_find(&plan->sources, name, n);
    return found ? &plan->tensors[found - plan->sources.list] : NULL;
}

void qplan_plan_free(struct qplan_plan *plan)
{
    if (!plan)
        return;
    qp_free(plan->tensors);
    qp_arranged_free(&plan->sources);
    qp_news_free(&plan->news);
    qp_free(plan->outputs);
    qp_free(plan->parts);
    qp_hessians_close(&plan->hessians);
    qp_arena_free(&plan->arena);
    qp_free(plan);
}

enum qplan_status qp_plan_set_scheme(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                     const struct qplan_scheme *scheme, struct qplan_error *err)
{
    if (!plan->last_scheme || !qp_scheme_equal(plan->last_scheme, scheme))
        plan->last_scheme = qp_arena_copy(&plan->arena, scheme, 1, sizeof *scheme);
    t->result.scheme = plan->last_scheme;
    return plan->last_scheme ? QPLAN_OK : qp_fail_memory(err, "plan", sizeof *scheme);
}

void qp_plan_keep(struct qp_plan_tensor *t, const char *rule, const char *reason)
{
    t->calibrator = NULL;
    t->result.scheme = NULL;
    t->rule = rule;
    t->reason = reason;
}

enum qplan_status qp_plan_check_source(const struct qplan_checkpoint *checkpoint,
                                       struct qplan_error *err)
{
    const struct qp_listing *listing = &checkpoint->source.listing;
    if (checkpoint->is_decoded) /* no other quantized tensor passed when it was opened */
        return QPLAN_OK;
    if (checkpoint->format) {
        qp_fail(err, QPLAN_ERR_INVALID, listing->shown,
                "already quantized: expected a plain checkpoint, found %s%s",
                qp_has_records(listing) ? QP_LAYOUT_KEY " in its " : "a quantization in its ",
                qp_has_records(listing) ? "metadata"
                : listing->described    ? checkpoint->format->described_in
                                        : "config.json");
        qp_advise(err, QPLAN_ADVICE_DEQUANTIZE);
        return QPLAN_ERR_INVALID;
    }
    const struct qplan_entry *found;
    QP_TRY(qp_find_quantized(listing, NULL, &found, err));
    if (!found)
        return QPLAN_OK;
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, found),
                   "already quantized: expected a plain checkpoint, found a tensor that belongs to "
                   "quantized weights");
}

/* ---- Decisions against shapes ------------------------------------------------------------------
 */

static void keep_unfit(struct qp_plan_tensor *t, const char *reason)
{
    qp_plan_keep(t, t->rule, reason);
    t->unfit = t->source;
}

static enum qplan_status check_axes(struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_faults list = {.err = err};
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        struct qplan_scheme resolved;
        if (!qp_is_quantized(t))
            continue;
        if (qp_scheme_resolve(t->result.scheme, t->source->rank, &resolved)) {
            QP_TRY(qp_plan_set_scheme(plan, t, &resolved, err));
            continue;
        }
        if (list.n == 0)
            qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                    "axis %d does not exist in: ", t->result.scheme->axis);
        qp_faults_add(&list, t->source);
    }
    return qp_faults_end(&list);
}

static enum qplan_status check_groups(struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_faults list = {.err = err};
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || !qp_has_ragged_groups(&t->result) ||
            plan->indivisible == QPLAN_INDIVISIBLE_RAGGED)
            continue;
        if (plan->indivisible == QPLAN_INDIVISIBLE_KEEP) {
            keep_unfit(t, "indivisible");
            continue;
        }
        if (list.n == 0)
            qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                    "group size %" PRIu64 " does not divide the last axis of: ",
                    t->result.scheme->group);
        qp_faults_add(&list, t->source);
    }
    if (list.n > 0)
        qp_advise(err,
                  plan->format->has_ragged_groups ? QPLAN_ADVICE_INDIVISIBLE : QPLAN_ADVICE_KEEP);
    return qp_faults_end(&list);
}

/* What a scheme leaves open is set by the layout. */
static enum qplan_status fit_scheme(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                    struct qplan_error *err)
{
    const struct qp_format *format = plan->format;
    const enum qplan_status status = plan->is_document ? QPLAN_ERR_INVALID : QPLAN_ERR_USAGE;
    struct qplan_scheme scheme = *t->result.scheme;
    char text[QPLAN_SCHEME_TEXT], quoted[QP_QUOTED];
    const char *instead =
        qp_format_fit(format, &scheme, (enum qplan_storage)t->source->storage, &plan->options);
    if (!instead)
        return qp_plan_set_scheme(plan, t, &scheme, err);
    (void)qplan_scheme_format(t->result.scheme, text);
    return qp_fail(err, status, "scheme", "%s cannot be stored by %s for %s: expected %s", text,
                   format->name, qp_quote(quoted, t->source->name, t->source->name_len), instead);
}

/* Why the layout cannot store a tensor, or NULL. */
static const char *misfit(const struct qp_format *format, const struct qp_tensor *t)
{
    if (format->rank && t->rank != format->rank)
        return "not 2-D";
    return format->misfit ? format->misfit(t) : NULL;
}

/* Decisions as the layout stores them: what it cannot store is kept, with its reason. */
static enum qplan_status fit_layout(struct qplan_plan *plan, struct qplan_error *err)
{
    char subject[512];
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t))
            continue;
        QP_TRY(fit_scheme(plan, t, err));
        t->result.is_flat = plan->format->is_flat;
        t->result.variant = (uint8_t)plan->format->variant(&t->result, &plan->options);
        const char *reason = misfit(plan->format, &t->result);
        if (reason && plan->is_edited)
            return qp_fail(
                err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, plan->checkpoint, t->source),
                "the plan quantizes it, which %s cannot: %s", plan->format->name, reason);
        if (reason)
            keep_unfit(t, reason);
    }
    return QPLAN_OK;
}

/* ---- Arithmetic --------------------------------------------------------------------------------
 */

/* The calibrators that have scales above 0 alone. */
static enum qplan_status use_positive(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_calibrator *last = NULL, *varied = NULL; /* most tensors share theirs */
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || t->result.scheme->asymmetric || !t->calibrator->either_sign)
            continue;
        if (t->calibrator != last)
            varied = qp_calibrator_positive(t->calibrator, &plan->arena);
        last = t->calibrator;
        t->calibrator = varied;
        if (!varied)
            return qp_fail_memory(err, "plan", sizeof *varied);
    }
    return QPLAN_OK;
}

/* Rounding by a Hessian works in f32. */
static enum qplan_status check_rounded(const struct qplan_plan *plan, struct qplan_error *err)
{
    char subject[512];
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (qp_is_quantized(t) && t->calibrator->rounds && t->source->storage == QPLAN_STORAGE_F64)
            return qp_fail(err, QPLAN_ERR_INVALID,
                           qp_checkpoint_subject(subject, plan->checkpoint, t->source),
                           "%s is not for this type: expected F32, F16 or BF16, found F64",
                           t->calibrator->name);
    }
    return QPLAN_OK;
}

/* The recipe of the layout's tool takes the place of the calibrator. */
static enum qplan_status use_recipe(const struct qplan_plan *plan, struct qp_plan_tensor *t,
                                    struct qplan_error *err)
{
    const enum qplan_status fault = plan->is_document ? QPLAN_ERR_INVALID : QPLAN_ERR_USAGE;
    const enum qplan_storage storage = (enum qplan_storage)t->source->storage;
    const struct qp_calibrator *recipe = qp_recipe_find(plan->format->recipe, t->result.scheme);
    char subject[512], scheme[QPLAN_SCHEME_TEXT];
    if (!recipe) {
        qplan_scheme_format(t->result.scheme, scheme);
        return qp_fail(err, fault, "scheme", "arithmetic reference of %s makes no codes of %s%s",
                       plan->format->name, scheme,
                       t->result.scheme->nested
                           ? ": the mean that its library takes is not the same on every machine"
                           : "");
    }
    if (strcmp(recipe->method, t->calibrator->name) != 0)
        return qp_fail(err, fault, "calibrate", "arithmetic reference has minmax alone, found %s",
                       t->calibrator->method);
    if (!qp_calibrator_takes(recipe, qp_storage_row(storage)->dtype))
        return qp_fail(err, QPLAN_ERR_INVALID,
                       qp_checkpoint_subject(subject, plan->checkpoint, t->source),
                       "arithmetic reference is not for this type: expected F32, F16 or BF16, "
                       "found %s",
                       qplan_storage_name(storage));
    t->calibrator = recipe;
    return QPLAN_OK;
}

/* Methods that are not for all schemes. */
static enum qplan_status check_methods(const struct qplan_plan *plan, struct qplan_error *err)
{
    const enum qplan_status fault = plan->is_document ? QPLAN_ERR_INVALID : QPLAN_ERR_USAGE;
    char scheme[QPLAN_SCHEME_TEXT];
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || !t->calibrator->makes || t->calibrator->makes(t->result.scheme))
            continue;
        qplan_scheme_format(t->result.scheme, scheme);
        return qp_fail(err, fault, "calibrate",
                       "%s is for integers with scales of f32, f16 or bf16, found %s",
                       t->calibrator->method, scheme);
    }
    return QPLAN_OK;
}

/* Scales that have scales are largest sizes, whose mean is known before any is chosen. */
static enum qplan_status check_nested(const struct qplan_plan *plan, struct qplan_error *err)
{
    const enum qplan_status fault = plan->is_document ? QPLAN_ERR_INVALID : QPLAN_ERR_USAGE;
    char scheme[QPLAN_SCHEME_TEXT];
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || !t->result.scheme->nested || qp_calibrator_nests(t->calibrator))
            continue;
        qplan_scheme_format(t->result.scheme, scheme);
        return qp_fail(err, fault, "calibrate", "%s has minmax alone, found %s", scheme,
                       t->calibrator->method);
    }
    return QPLAN_OK;
}

static enum qplan_status use_variants(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(check_rounded(plan, err));
    QP_TRY(check_methods(plan, err));
    QP_TRY(check_nested(plan, err));
    if (plan->positive_scales)
        QP_TRY(use_positive(plan, err));
    if (plan->options.arithmetic == QPLAN_ARITHMETIC_QPLAN)
        return QPLAN_OK;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_is_quantized(&plan->tensors[i]))
            QP_TRY(use_recipe(plan, &plan->tensors[i], err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_plan_check(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(check_axes(plan, err));
    QP_TRY(fit_layout(plan, err));
    QP_TRY(check_groups(plan, err));
    if (!plan->may_divide)
        QP_TRY(qp_families_agree(plan, err));
    QP_TRY(use_variants(plan, err));
    plan->n_quantized = 0;
    for (size_t i = 0; i < plan->n_tensors; i++)
        plan->n_quantized += qp_is_quantized(&plan->tensors[i]);
    return QPLAN_OK;
}

/* ---- The name of the output --------------------------------------------------------------------
 */

/* The parts of a scheme that differ from what is usual for its type, each behind a dash. */
static enum qplan_status put_parts(struct qp_writer *w, const struct qplan_scheme *scheme,
                                   bool is_native, struct qplan_error *err)
{
    struct qplan_scheme plain, sets = *scheme, usual = *scheme;
    char text[QPLAN_SCHEME_TEXT], usual_text[QPLAN_SCHEME_TEXT];
    QP_TRY(qplan_scheme_default(&plain, scheme->dtype, err));
    sets.asymmetric = plain.asymmetric;
    sets.bias = sets.narrow = sets.nested = false;
    sets.scale_dtype = plain.scale_dtype;
    qplan_scheme_format(&sets, text);
    qplan_scheme_format(&plain, usual_text);
    *strchr(text, ':') = '-';
    qp_puts(w, strcmp(strchr(text, '-') + 1, strchr(usual_text, ':') + 1) == 0
                   ? qplan_dtype_name(scheme->dtype)
                   : text);
    if (is_native)
        qplan_scheme_usual(&usual);
    else
        usual.asymmetric = plain.asymmetric;
    if (scheme->bias && scheme->asymmetric)
        qp_puts(w, "-bias");
    else if (scheme->asymmetric != usual.asymmetric)
        qp_puts(w, scheme->asymmetric ? "-asym" : "-sym");
    qp_puts(w, scheme->narrow ? "-narrow" : "");
    if (scheme->scale_dtype != usual.scale_dtype) {
        qp_puts(w, "-");
        qp_puts(w, qplan_dtype_name(scheme->scale_dtype));
    }
    qp_puts(w, scheme->nested ? "-double" : "");
    return QPLAN_OK;
}

/*
 * STEM.DTYPE[-GRAN][-asym|-sym|-bias][-narrow][-SCALEDTYPE][-double].safetensors, of a folder
 * STEM-DTYPE..., in a layout other than the native one with its name before the type and without
 * the type of scales, which is the layout's; what is usual is left out. A tag stands for all of
 * that, and "quantized" for schemes that differ from tensor to tensor.
 */
static enum qplan_status name_output(struct qplan_plan *plan,
                                     const struct qplan_plan_options *options, bool is_mixed,
                                     struct qplan_error *err)
{
    const bool is_folder = plan->checkpoint->source.is_folder;
    const bool is_native = plan->format == qp_format_find("qplan");
    struct qp_writer w;
    qp_writer_init(&w);
    qp_put_stem(&w, &plan->checkpoint->source);
    qp_puts(&w, is_folder ? "-" : ".");
    if (!options->tag && !is_native) {
        qp_puts(&w, plan->format->name);
        qp_puts(&w, "-");
    }
    enum qplan_status status = QPLAN_OK;
    if (options->tag || is_mixed)
        qp_puts(&w, options->tag ? options->tag : "quantized");
    else
        status = put_parts(&w, &options->scheme, is_native, err);
    qp_puts(&w, is_folder ? "" : QP_CHECKPOINT_SUFFIX);
    plan->output_name = w.error ? NULL : qp_arena_join(&plan->arena, w.data, w.n, "");
    qp_writer_free(&w);
    if (status != QPLAN_OK || plan->output_name)
        return status;
    return qp_fail_memory(err, "plan", QPLAN_SCHEME_TEXT);
}

static enum qplan_status choose_format(struct qplan_plan *plan,
                                       const struct qplan_plan_options *options,
                                       struct qplan_error *err)
{
    if (options->format)
        plan->format = qp_format_find(options->format);
    if (!plan->format)
        return qp_fail_name(err, QPLAN_ERR_USAGE, "format", "unknown layout", options->format,
                            qplan_format_name);
    return qp_plan_check_settings(plan, NULL, err);
}

/* What was chosen takes the place of what the options ask for. */
static enum qplan_status take_chosen(struct qplan_plan *plan, const struct qp_chosen *chosen,
                                     struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        const struct qp_chosen *row = &chosen[i];
        if (!qp_is_quantized(t))
            continue;
        if (row->rule) {
            t->rule = qp_arena_join(&plan->arena, row->rule, strlen(row->rule), "");
            if (!t->rule)
                return qp_fail_memory(err, "plan", strlen(row->rule));
        }
        if (!row->scheme)
            qp_plan_keep(t, t->rule, row->reason);
        else
            QP_TRY(qp_plan_set_scheme(plan, t, row->scheme, err));
        t->unfit = row->unfit;
    }
    return QPLAN_OK;
}

enum qplan_status qplan_plan_make(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_plan_options *options, struct qplan_error *err)
{
    return qp_plan_make_as(out, checkpoint, options, NULL, err);
}

enum qplan_status qp_plan_make_as(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_plan_options *options,
                                  const struct qp_chosen *chosen, struct qplan_error *err)
{
    *out = NULL;
    struct qplan_plan *plan;
    if (!qp_scheme_is_sound(&options->scheme))
        return qp_fail(
            err, QPLAN_ERR_USAGE, "scheme",
            "its parts do not go together: expected a bias with unsigned codes, a narrow "
            "range with signed ones, floats and tables symmetric, scales of scales with tables");
    QP_TRY(qp_plan_check_source(checkpoint, err));
    QP_TRY(qp_plan_new(&plan, checkpoint, err));
    plan->cancel = options->cancel;
    plan->indivisible = options->indivisible;
    plan->nonfinite = options->nonfinite;
    plan->positive_scales = options->positive_scales;
    plan->options.zero_point = options->zero_point;
    plan->options.activations = options->activations;
    plan->options.arithmetic = options->arithmetic;
    plan->experts = options->experts;
    plan->max_shard = options->max_shard_bytes;
    plan->is_document = options->rules != NULL; /* which has the schemes */
    enum qplan_status status = choose_format(plan, options, err);
    for (size_t i = 0; status == QPLAN_OK && i < options->n_copy; i++)
        status = qp_plan_add_copy(plan, options->copy[i], err);
    if (status == QPLAN_OK)
        status = qp_plan_take_tensors(plan, err);
    if (status == QPLAN_OK)
        status = qp_choose(plan, options, err);
    if (status == QPLAN_OK)
        status = qp_plan_keep_small(plan, options, err);
    if (status == QPLAN_OK && chosen)
        status = take_chosen(plan, chosen, err);
    if (status == QPLAN_OK)
        status = qp_plan_check(plan, err);
    if (status == QPLAN_OK)
        status = qp_plan_round(plan, options, err);
    if (status == QPLAN_OK && options->n_importance)
        status = qp_plan_weigh(plan, options, err);
    if (status == QPLAN_OK)
        qp_plan_settle_making(plan);
    if (status == QPLAN_OK)
        status = name_output(plan, options, options->rules || chosen, err);
    if (status == QPLAN_OK)
        status = qp_side_find(&plan->side, &checkpoint->source, plan->copy, plan->n_copy,
                              &plan->arena, err);
    if (status == QPLAN_OK)
        status = qp_plan_layout(plan, err);
    if (status != QPLAN_OK) {
        qplan_plan_free(plan);
        return status;
    }
    *out = plan;
    return QPLAN_OK;
}
