/*
 * settings.c - what is asked of a layout besides schemes: not every layout leaves it open.
 */
#include "plan.h"

#include <string.h>

/* The setting that the layout does not have, and what the layout says instead; NULL if none. */
static const char *find_misfit(const struct qplan_plan *plan, const char **setting)
{
    const struct qp_format *format = plan->format;
    const struct qp_format_options *options = &plan->options;
    *setting = "format";
    if (format->is_read_only)
        return "is only read, never written";
    *setting = "zero_point";
    if (options->zero_point != QPLAN_ZERO_POINT_USUAL && !format->may_omit_zeros)
        return "says itself which zero points are stored";
    *setting = "activations";
    if (options->activations == QPLAN_ACTIVATIONS_NONE && format->is_always_active)
        return "has engines quantize activations: expected dynamic, found none";
    if (options->activations != QPLAN_ACTIVATIONS_USUAL && !format->has_activations &&
        !format->is_always_active)
        return "says nothing of activations";
    *setting = "indivisible";
    if (plan->indivisible == QPLAN_INDIVISIBLE_RAGGED && !format->has_ragged_groups)
        return "has no ragged groups: expected error or keep";
    *setting = "arithmetic";
    return options->arithmetic == QPLAN_ARITHMETIC_REFERENCE && !format->recipe
               ? "has no tool to follow: expected qplan, found reference"
               : NULL;
}

enum qplan_status qp_plan_check_settings(const struct qplan_plan *plan, const char *document,
                                         struct qplan_error *err)
{
    const enum qplan_status fault = document ? QPLAN_ERR_INVALID : QPLAN_ERR_USAGE;
    const char *setting, *misfit = find_misfit(plan, &setting);
    const char *subject = document ? document : setting;
    const char *where = document ? setting : "", *colon = document ? ": " : "";
    if (misfit)
        return qp_fail(err, fault, subject, "%s%sthe layout %s %s", where, colon,
                       plan->format->name, misfit);
    if (plan->options.arithmetic == QPLAN_ARITHMETIC_REFERENCE &&
        plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return qp_fail(err, fault, subject,
                       "%s%sreference has no codes for values that are not finite: expected "
                       "nonfinite error, found saturate",
                       where, colon);
    return QPLAN_OK;
}

enum qplan_status qp_plan_add_copy(struct qplan_plan *plan, const char *pattern,
                                   struct qplan_error *err)
{
    char **copy = qp_arena_grow(&plan->arena, plan->copy, plan->n_copy, sizeof *copy);
    char *text = copy ? qp_arena_join(&plan->arena, pattern, strlen(pattern), "") : NULL;
    if (!text)
        return qp_fail_memory(err, "plan", strlen(pattern));
    copy[plan->n_copy++] = text;
    plan->copy = copy;
    return QPLAN_OK;
}
