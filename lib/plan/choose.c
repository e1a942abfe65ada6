/*
 * choose.c - decides what becomes of each tensor by what is asked, before shapes and the layout
 * have their say.
 */
#include "choose.h"
#include "faults.h"

#include "lib/base/glob.h"

#include <stdio.h>

/* ---- What is asked -----------------------------------------------------------------------------
 */

static const char *const words[] = {
    [QP_EXCLUDE] = "exclude", [QP_INCLUDE] = "include", [QP_LINE] = "rules"};

enum qplan_status qp_chooser_add(struct qp_chooser *chooser, const struct qp_choice *choice,
                                 struct qp_arena *arena, struct qplan_error *err)
{
    const size_t n = strlen(choice->glob);
    char begin[16];
    QP_TRY(qp_glob_check(choice->glob, err));
    (void)snprintf(begin, sizeof begin, "%s:", words[choice->kind]);
    struct qp_choice *choices =
        qp_arena_grow(arena, chooser->choices, chooser->n_choices, sizeof *choices);
    char *rule = qp_arena_join(arena, begin, strlen(begin), choice->glob);
    if (!choices || !rule)
        return qp_fail_memory(err, words[choice->kind], n + sizeof *choices);
    chooser->choices = choices;
    choices[chooser->n_choices] = *choice;
    choices[chooser->n_choices++].rule = rule;
    return QPLAN_OK;
}

static enum qplan_status add_patterns(struct qp_chooser *chooser, enum qp_choice_kind kind,
                                      const char *const *globs, size_t n, struct qp_arena *arena,
                                      struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct qp_choice choice = {.kind = kind, .glob = globs[i]};
        QP_TRY(qp_chooser_add(chooser, &choice, arena, err));
    }
    return QPLAN_OK;
}

static const char *usual_method(const struct qplan_plan_options *options)
{
    return options->calibrate ? options->calibrate : options->hessian ? "ldlq" : "minmax";
}

enum qplan_status qp_chooser_make(struct qp_chooser *chooser,
                                  const struct qplan_plan_options *options,
                                  const struct qp_format *format, const struct qp_listing *listing,
                                  struct qp_arena *arena, struct qplan_error *err)
{
    *chooser = (struct qp_chooser){
        .n_includes = options->n_include,
        .has_rules = options->rules != NULL,
        .selection = qp_selection_of(options->select, format),
        .format = format,
        .is_conv1d = qp_is_model_type(listing, QP_CONV1D_TYPES),
        .scheme = &options->scheme,
    };
    QP_TRY(qp_calibrator_make(usual_method(options), arena, &chooser->calibrator, err));
    if (!chooser->calibrator)
        return qp_fail_name(err, QPLAN_ERR_USAGE, "calibrate", "unknown method", options->calibrate,
                            qplan_calibrator_name);
    QP_TRY(add_patterns(chooser, QP_EXCLUDE, options->exclude, options->n_exclude, arena, err));
    QP_TRY(add_patterns(chooser, QP_INCLUDE, options->include, options->n_include, arena, err));
    return chooser->has_rules ? qp_rules_read(chooser, options, arena, err) : QPLAN_OK;
}

static bool is_all(const struct qp_chooser *chooser)
{
    return chooser->selection == qp_selection_of(QPLAN_SELECT_ALL, chooser->format);
}

/* ---- One tensor --------------------------------------------------------------------------------
 */

/* Why a tensor is kept, whatever patterns say of it; NULL = it need not be. */
struct unfit {
    const char *always;   /* it cannot be quantized */
    const char *selected; /* the selection keeps it; where there are lines, it is not asked */
};

/* Whether a tensor is one that a choice, which matches it, is meant for. */
static bool is_meant(const struct qp_choice *choice, const struct unfit *unfit)
{
    if (choice->kind == QP_INCLUDE)
        return !unfit->always && !unfit->selected;
    return !choice->scheme || !unfit->always;
}

static void quantize(struct qp_plan_tensor *t, const struct qplan_scheme *scheme,
                     const struct qp_calibrator *calibrator, const char *rule)
{
    t->result.scheme = scheme; /* until it is resolved */
    t->calibrator = calibrator;
    t->rule = rule;
}

/* The first choice of each kind that matches; marks every one that does. */
static void match(struct qp_chooser *chooser, const struct qp_tensor *t, const struct unfit *unfit,
                  const struct qp_choice *first[])
{
    for (size_t i = 0; i < chooser->n_choices; i++) {
        struct qp_choice *choice = &chooser->choices[i];
        if (!qp_glob_match(choice->glob, t->name, t->name_len))
            continue;
        choice->used |= is_meant(choice, unfit);
        if (!first[choice->kind])
            first[choice->kind] = choice;
    }
}

/* False if there are lines and none decides about a tensor that could be quantized. */
static bool decide(struct qp_chooser *chooser, struct qp_plan_tensor *t)
{
    const struct qp_choice *first[QP_LINE + 1] = {NULL};
    const struct qp_selection *selection = chooser->selection;
    struct unfit unfit = {.always = qp_unquantizable(t->source)};
    if (!unfit.always && !chooser->has_rules)
        unfit.selected = selection->keeps(t->source, chooser->format, chooser->is_conv1d);
    match(chooser, t->source, &unfit, first);
    const struct qp_choice *line = first[QP_LINE], *included = first[QP_INCLUDE];
    const char *rule = line ? line->rule : included ? included->rule : selection->rule;
    if (qp_tensor_bytes(t->source) == 0)
        qp_plan_keep(t, NULL, "empty");
    else if (first[QP_EXCLUDE])
        qp_plan_keep(t, first[QP_EXCLUDE]->rule, "excluded");
    else if (chooser->n_includes && !included)
        qp_plan_keep(t, "include", "not selected");
    else if (line && !line->scheme)
        qp_plan_keep(t, rule, "rule keep");
    else if (unfit.always)
        qp_plan_keep(t, rule, unfit.always);
    else if (unfit.selected)
        qp_plan_keep(t, selection->rule, unfit.selected);
    else if (line)
        quantize(t, line->scheme, line->calibrator, rule);
    else if (!chooser->has_rules)
        quantize(t, chooser->scheme, chooser->calibrator, rule);
    else
        return false;
    return true;
}

/* ---- All tensors -------------------------------------------------------------------------------
 */

static enum qplan_status fail_unused(const struct qp_chooser *chooser,
                                     const struct qp_choice *choice, const char *shown,
                                     struct qplan_error *err)
{
    const bool is_narrowed = choice->kind == QP_INCLUDE && !chooser->has_rules && !is_all(chooser);
    char quoted[QP_QUOTED], where[48];
    (void)qp_quote(quoted, choice->glob, strlen(choice->glob));
    if (choice->kind == QP_LINE)
        (void)snprintf(where, sizeof where, "line %zu:", choice->line);
    else
        (void)snprintf(where, sizeof where, "%s", words[choice->kind]);
    qp_fail(err, QPLAN_ERR_INVALID, choice->kind == QP_LINE ? chooser->rules_name : shown,
            "%s pattern %s matches no tensor", where, quoted);
    if (is_narrowed) {
        qp_fail_more(err, " that %s quantizes", chooser->selection->rule);
        qp_advise(err, QPLAN_ADVICE_SELECT);
    } else if (choice->kind == QP_INCLUDE || choice->scheme) {
        qp_fail_more(err, " that can be quantized");
    }
    return QPLAN_ERR_INVALID;
}

static enum qplan_status choose_all(struct qp_chooser *chooser, struct qplan_plan *plan,
                                    struct qplan_error *err)
{
    struct qp_faults faults = {.err = err};
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (decide(chooser, t))
            continue;
        if (faults.n == 0)
            qp_fail(err, QPLAN_ERR_INVALID, chooser->rules_name, "no line matches: ");
        qp_faults_add(&faults, t->source);
    }
    QP_TRY(qp_faults_end(&faults));
    for (size_t i = 0; i < chooser->n_choices; i++) {
        if (!chooser->choices[i].used)
            return fail_unused(chooser, &chooser->choices[i],
                               plan->checkpoint->source.listing.shown, err);
    }
    return QPLAN_OK;
}

enum qplan_status qp_choose(struct qplan_plan *plan, const struct qplan_plan_options *options,
                            struct qplan_error *err)
{
    struct qp_chooser chooser;
    QP_TRY(qp_chooser_make(&chooser, options, plan->format, &plan->checkpoint->source.listing,
                           &plan->arena, err));
    plan->may_divide = plan->format->may_divide && is_all(&chooser);
    return choose_all(&chooser, plan, err);
}
