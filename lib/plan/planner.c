/*
 * planner.c - decides what becomes of every tensor. Works on the header alone: all that can fail
 * for a name, a shape or a type fails here, before a byte of data is read.
 */
#include "plan.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/base/glob.h"
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
    const size_t n = checkpoint->n_tensors;
    *out = NULL;
    struct qplan_plan *plan = qp_alloc(1, sizeof *plan);
    if (!plan)
        return qp_fail_memory(err, "plan", sizeof *plan);
    plan->checkpoint = checkpoint;
    plan->format = qp_format_find("qplan");
    plan->tensors = qp_alloc(n, sizeof *plan->tensors);
    if (!plan->tensors) {
        qplan_plan_free(plan);
        return qp_fail_memory(err, "plan", n * sizeof *plan->tensors);
    }
    plan->n_tensors = n;
    for (size_t i = 0; i < n; i++)
        plan->tensors[i] = (struct qp_plan_tensor){.source = &checkpoint->tensors[i],
                                                   .result = checkpoint->tensors[i]};
    *out = plan;
    return QPLAN_OK;
}

void qplan_plan_free(struct qplan_plan *plan)
{
    if (!plan)
        return;
    qp_free(plan->tensors);
    qp_news_free(&plan->news);
    qp_free(plan->outputs);
    qp_free(plan->parts);
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

enum qplan_status qp_plan_check_source(const struct qplan_checkpoint *checkpoint,
                                       struct qplan_error *err)
{
    const struct qp_listing *listing = &checkpoint->source.listing;
    if (checkpoint->format) {
        qp_fail(err, QPLAN_ERR_INVALID, listing->shown,
                "already quantized: expected a plain checkpoint, found " QP_LAYOUT_KEY
                " in its metadata");
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

static bool divides(const struct qp_plan_tensor *t)
{
    const struct qplan_scheme *scheme = t->result.scheme;
    return scheme->granularity != QPLAN_PER_GROUP ||
           t->source->shape[t->source->rank - 1] % scheme->group == 0;
}

static void keep(struct qp_plan_tensor *t, const char *rule, const char *reason)
{
    t->calibrator = NULL;
    t->result.scheme = NULL;
    t->rule = rule;
    t->reason = reason;
}

#define LISTED 20

/* Tensors that share a fault: the first LISTED are named in the message, the rest counted. */
struct fault_list {
    struct qplan_error *err;
    size_t n;
};

static void add_fault(struct fault_list *list, const struct qp_tensor *t)
{
    char quoted[QP_QUOTED], shape[256];
    if (list->n++ < LISTED)
        qp_fail_more(list->err, "%s%s %s", list->n > 1 ? ", " : "",
                     qp_quote(quoted, t->name, t->name_len),
                     qp_format_list(shape, sizeof shape, t->shape, t->rank));
}

static void end_faults(const struct fault_list *list)
{
    if (list->n > LISTED)
        qp_fail_more(list->err, " and %zu more", list->n - LISTED);
}

static enum qplan_status check_axes(struct qplan_plan *plan, struct qplan_error *err)
{
    struct fault_list list = {.err = err};
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
        add_fault(&list, t->source);
    }
    end_faults(&list);
    return list.n ? QPLAN_ERR_INVALID : QPLAN_OK;
}

static enum qplan_status check_groups(struct qplan_plan *plan, struct qplan_error *err)
{
    struct fault_list list = {.err = err};
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || divides(t) || plan->indivisible == QPLAN_INDIVISIBLE_RAGGED)
            continue;
        if (plan->indivisible == QPLAN_INDIVISIBLE_KEEP) {
            keep(t, t->rule, "indivisible");
            continue;
        }
        if (list.n == 0)
            qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                    "group size %" PRIu64 " does not divide the last axis of: ",
                    t->result.scheme->group);
        add_fault(&list, t->source);
    }
    end_faults(&list);
    if (list.n == 0)
        return QPLAN_OK;
    qp_advise(err, QPLAN_ADVICE_INDIVISIBLE);
    return QPLAN_ERR_INVALID;
}

/* What the layout cannot store is kept, with the layout's reason. */
static void keep_misfits(struct qplan_plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors && plan->format->misfit; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        const char *reason = qp_is_quantized(t) ? plan->format->misfit(&t->result) : NULL;
        if (reason)
            keep(t, t->rule, reason);
    }
}

enum qplan_status qp_plan_check(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(check_axes(plan, err));
    QP_TRY(check_groups(plan, err));
    keep_misfits(plan);
    plan->n_quantized = 0;
    for (size_t i = 0; i < plan->n_tensors; i++)
        plan->n_quantized += qp_is_quantized(&plan->tensors[i]);
    return QPLAN_OK;
}

/* ---- Decisions ---------------------------------------------------------------------------------
 */

/* The patterns of one option, and whether each has matched a tensor that it is meant for. */
struct patterns {
    const char *option;
    const char *const *list;
    size_t n;
    const char **rules; /* "include:GLOB" in the plan's arena */
    bool *used;
};

static enum qplan_status prepare_patterns(struct patterns *p, struct qp_arena *arena,
                                          struct qplan_error *err)
{
    p->rules = qp_arena_alloc(arena, p->n, sizeof *p->rules);
    p->used = qp_arena_alloc(arena, p->n, sizeof *p->used);
    if (!p->rules || !p->used)
        return qp_fail_memory(err, p->option, p->n * sizeof *p->rules);
    for (size_t i = 0; i < p->n; i++) {
        QP_TRY(qp_glob_check(p->list[i], err));
        char *prefix = qp_arena_join(arena, p->option, strlen(p->option), ":");
        p->rules[i] = prefix ? qp_arena_join(arena, prefix, strlen(prefix), p->list[i]) : NULL;
        if (!p->rules[i])
            return qp_fail_memory(err, p->option, strlen(p->list[i]));
    }
    return QPLAN_OK;
}

/* The rule of the first pattern that matches; marks every one that does. */
static const char *match_patterns(struct patterns *p, const struct qp_tensor *t, bool counts)
{
    const char *rule = NULL;
    for (size_t i = 0; i < p->n; i++) {
        if (!qp_glob_match(p->list[i], t->name, t->name_len))
            continue;
        p->used[i] |= counts;
        if (!rule)
            rule = p->rules[i];
    }
    return rule;
}

static enum qplan_status check_patterns(const struct patterns *p, const char *what,
                                        const char *subject, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < p->n; i++) {
        if (!p->used[i])
            return qp_fail(err, QPLAN_ERR_INVALID, subject, "%s pattern %s matches no %s",
                           p->option, qp_quote(quoted, p->list[i], strlen(p->list[i])), what);
    }
    return QPLAN_OK;
}

static void decide(struct qp_plan_tensor *t, const struct qplan_plan_options *options,
                   const struct qp_calibrator *calibrator, struct patterns *include,
                   struct patterns *exclude)
{
    const char *unfit = qp_unquantizable(t->source);
    const char *excluded = match_patterns(exclude, t->source, true);
    const char *included = match_patterns(include, t->source, !unfit);
    const char *rule = include->n ? included : "select:all";
    if (qp_tensor_bytes(t->source) == 0) {
        keep(t, NULL, "empty");
    } else if (excluded) {
        keep(t, excluded, "excluded");
    } else if (!rule) {
        keep(t, "include", "not selected");
    } else if (unfit) {
        keep(t, rule, unfit);
    } else {
        t->result.scheme = &options->scheme; /* until it is resolved */
        t->calibrator = calibrator;
        t->rule = rule;
    }
}

static enum qplan_status decide_all(struct qplan_plan *plan,
                                    const struct qplan_plan_options *options,
                                    struct qplan_error *err)
{
    const char *shown = plan->checkpoint->source.listing.shown;
    const struct qp_calibrator *calibrator =
        qp_calibrator_find(options->calibrate ? options->calibrate : "minmax");
    struct patterns include = {"include", options->include, options->n_include, NULL, NULL};
    struct patterns exclude = {"exclude", options->exclude, options->n_exclude, NULL, NULL};
    if (!calibrator)
        return qp_fail_name(err, QPLAN_ERR_USAGE, "calibrate", "unknown method", options->calibrate,
                            qplan_calibrator_name);
    QP_TRY(prepare_patterns(&include, &plan->arena, err));
    QP_TRY(prepare_patterns(&exclude, &plan->arena, err));
    for (size_t i = 0; i < plan->n_tensors; i++)
        decide(&plan->tensors[i], options, calibrator, &include, &exclude);
    QP_TRY(check_patterns(&exclude, "tensor", shown, err));
    QP_TRY(check_patterns(&include, "tensor that can be quantized", shown, err));
    return qp_plan_check(plan, err);
}

/* ---- The name of the output --------------------------------------------------------------------
 */

/*
 * STEM.DTYPE[-GRAN][-asym|-sym][-narrow].safetensors, of a folder STEM-DTYPE...; what is the
 * default is left out.
 */
static enum qplan_status name_output(struct qplan_plan *plan, const struct qplan_scheme *scheme,
                                     struct qplan_error *err)
{
    struct qplan_scheme plain = *scheme, usual;
    char text[QPLAN_SCHEME_TEXT];
    plain.scale_dtype = QPLAN_F32;
    QP_TRY(qplan_scheme_default(&usual, scheme->dtype, err));
    usual.asymmetric = scheme->asymmetric;
    usual.narrow = scheme->narrow;
    qplan_scheme_format(&plain, text);
    /* "int4:g128:asym": the second part is the granularity, dropped where it is the default. */
    char *first = strchr(text, ':'), *second = strchr(first + 1, ':');
    if (qp_scheme_equal(&plain, &usual))
        memmove(first, second ? second : first + strlen(first),
                strlen(second ? second : first + strlen(first)) + 1);
    for (char *colon = text; (colon = strchr(colon, ':')) != NULL;)
        *colon = '-';
    struct qp_writer w;
    qp_writer_init(&w);
    qp_put_stem(&w, &plan->checkpoint->source);
    qp_printf(&w, plan->checkpoint->source.is_folder ? "-%s" : ".%s" QP_CHECKPOINT_SUFFIX, text);
    plan->output_name = w.error ? NULL : qp_arena_join(&plan->arena, w.data, w.n, "");
    qp_writer_free(&w);
    return plan->output_name ? QPLAN_OK : qp_fail_memory(err, "plan", QPLAN_SCHEME_TEXT);
}

static enum qplan_status choose_format(struct qplan_plan *plan, const char *name,
                                       struct qplan_error *err)
{
    if (name)
        plan->format = qp_format_find(name);
    return plan->format ? QPLAN_OK
                        : qp_fail_name(err, QPLAN_ERR_USAGE, "format", "unknown layout", name,
                                       qplan_format_name);
}

enum qplan_status qplan_plan_make(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_plan_options *options, struct qplan_error *err)
{
    *out = NULL;
    struct qplan_plan *plan;
    QP_TRY(qp_plan_check_source(checkpoint, err));
    QP_TRY(qp_plan_new(&plan, checkpoint, err));
    plan->indivisible = options->indivisible;
    plan->nonfinite = options->nonfinite;
    plan->options.zero_point = options->zero_point;
    enum qplan_status status = choose_format(plan, options->format, err);
    if (status == QPLAN_OK)
        status = decide_all(plan, options, err);
    if (status == QPLAN_OK)
        status = name_output(plan, &options->scheme, err);
    if (status == QPLAN_OK)
        status = qp_side_find(&plan->side, &checkpoint->source, options->copy, options->n_copy,
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
