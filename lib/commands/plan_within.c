/*
 * plan_within.c - a plan that keeps to a target, by a table of what candidates make of tensors.
 */
#include "sensitivity.h"

#include "lib/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Plans -------------------------------------------------------------------------------------
 */

/* "target-bpw:4.5", as plans and reports name it. */
static const char *rule_of(const struct qplan_budget *budget, char out[64])
{
    char number[QP_F64_TEXT];
    if (budget->target_bytes) {
        (void)snprintf(out, 64, "target-size:%" PRIu64, budget->target_bytes);
        return out;
    }
    (void)qp_format_f64(number, budget->target_bpw);
    (void)snprintf(out, 64, "target-bpw:%s", number);
    return out;
}

/* What becomes of a tensor that no candidate fits: what its own plan says. */
static struct qp_chosen as_first(const struct qplan_sensitivity *s, size_t tensor)
{
    const struct qp_plan_tensor *t = &s->first->tensors[tensor];
    return (struct qp_chosen){.reason = t->reason ? t->reason : "indivisible",
                              .unfit = t->unfit ? t->unfit : t->source};
}

enum qplan_status qp_sensitivity_plan(const struct qplan_sensitivity *s, const size_t *option,
                                      struct qplan_plan **out, struct qplan_error *err)
{
    const size_t n = s->first->n_tensors;
    struct qp_chosen *chosen = qp_alloc(n, sizeof *chosen);
    struct qplan_plan_options options = *s->options;
    char rule[64];
    *out = NULL;
    if (!chosen)
        return qp_fail_memory(err, "plan", n * sizeof *chosen);
    (void)rule_of(s->budget, rule);
    for (size_t i = 0; i < n; i++) {
        if (s->group[i] == QP_NO_GROUP) {
            chosen[i] = as_first(s, i);
            continue;
        }
        const struct qp_candidate *c = &s->candidates[option[s->group[i]]];
        chosen[i] = (struct qp_chosen){.scheme = c->is_keep ? NULL : &c->scheme,
                                       .rule = rule,
                                       .reason = c->is_keep ? "rule keep" : NULL};
    }
    for (size_t i = 0; i < s->n_candidates; i++) {
        if (!s->candidates[i].is_keep)
            options.scheme = s->candidates[i].scheme; /* until another takes its place */
    }
    const enum qplan_status status = qp_plan_make_as(out, s->checkpoint, &options, chosen, err);
    qp_free(chosen);
    return status;
}

/* ---- Targets -----------------------------------------------------------------------------------
 */

static double bpw_of(const struct qplan_sensitivity *s, uint64_t data_bytes)
{
    return s->n_elems ? 8 * (double)data_bytes / (double)s->n_elems : 0;
}

/* Bytes that tensors may have: at most so many bits for an element. */
static uint64_t data_target(const struct qplan_sensitivity *s)
{
    const double most = s->budget->target_bpw * (double)s->n_elems / 8;
    uint64_t bytes = most < 0x1p63 ? (uint64_t)most : UINT64_C(1) << 63;
    while (bytes > 0 && bpw_of(s, bytes) > s->budget->target_bpw) /* it was rounded up */
        bytes--;
    return bytes;
}

static struct qp_budget budget_of(const struct qplan_sensitivity *s, uint64_t data_bytes)
{
    return (struct qp_budget){.n_items = s->n_groups,
                              .n_options = s->n_candidates,
                              .options = s->of_groups,
                              .is_first = s->is_first,
                              .bytes =
                                  data_bytes > s->fixed_bytes ? data_bytes - s->fixed_bytes : 0};
}

/* Makes the plan with the smallest candidates, in room for a choice. */
static enum qplan_status make_least(const struct qplan_sensitivity *s, size_t *option,
                                    struct qplan_plan **out, struct qplan_error *err)
{
    const struct qp_budget budget = budget_of(s, 0);
    struct qp_budget_choice choice = {.option = option};
    QP_TRY(qp_budget_choose(&budget, &choice, err));
    return qp_sensitivity_plan(s, option, out, err);
}

/* The bytes of all files of that plan. */
static enum qplan_status find_least(const struct qplan_sensitivity *s, uint64_t *bytes,
                                    struct qplan_error *err)
{
    size_t *option = qp_alloc(s->n_groups, sizeof *option);
    struct qplan_plan *plan = NULL;
    const enum qplan_status status =
        option ? make_least(s, option, &plan, err)
               : qp_fail_memory(err, "plan", s->n_groups * sizeof *option);
    qp_free(option);
    if (status != QPLAN_OK)
        return status;
    *bytes = qplan_plan_output_bytes(plan);
    qplan_plan_free(plan);
    return QPLAN_OK;
}

enum qplan_status qp_sensitivity_check(const struct qplan_sensitivity *s, struct qplan_error *err)
{
    const char *shown = s->checkpoint->source.listing.shown;
    const struct qplan_budget *budget = s->budget;
    const struct qp_budget least = budget_of(s, 0);
    const uint64_t least_data = s->fixed_bytes + qp_budget_least(&least);
    char asked[QP_F64_TEXT], found[QP_F64_TEXT];
    if (budget->target_bpw > 0 && least_data > data_target(s)) {
        (void)qp_format_f64(asked, budget->target_bpw);
        (void)qp_format_f64(found, bpw_of(s, least_data));
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "the target of %s bits per weight cannot be reached: the candidates give at "
                       "least %s",
                       asked, found);
    }
    if (budget->target_bytes == 0)
        return QPLAN_OK;
    uint64_t bytes = 0;
    QP_TRY(find_least(s, &bytes, err));
    if (bytes > budget->target_bytes)
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "the target of %" PRIu64 " bytes cannot be reached: the candidates give at "
                       "least %" PRIu64,
                       budget->target_bytes, bytes);
    return QPLAN_OK;
}

/* ---- The choice --------------------------------------------------------------------------------
 */

/* Makes the plan of options if it keeps to the size of files that is asked for; else NULL. */
static enum qplan_status make_fitting(const struct qplan_sensitivity *s, const size_t *option,
                                      struct qplan_plan **out, uint64_t *bytes,
                                      struct qplan_error *err)
{
    QP_TRY(qp_sensitivity_plan(s, option, out, err));
    *bytes = qplan_plan_output_bytes(*out);
    if (*bytes <= s->budget->target_bytes)
        return QPLAN_OK;
    qplan_plan_free(*out);
    *out = NULL;
    return QPLAN_OK;
}

/*
 * Chooses for a size of files. Headers depend on the choice, if by few bytes: a plan that is too
 * large by some leaves as many less for the next one, down to the least, which is known to fit.
 */
static enum qplan_status choose_mix(const struct qplan_sensitivity *s,
                                    struct qp_budget_choice *choice, struct qplan_plan **out,
                                    struct qplan_error *err)
{
    uint64_t data = s->budget->target_bytes, bytes;
    for (;;) {
        const struct qp_budget budget = budget_of(s, data);
        QP_TRY(qp_budget_choose(&budget, choice, err));
        QP_TRY(make_fitting(s, choice->option, out, &bytes, err));
        if (*out)
            return QPLAN_OK;
        const uint64_t excess = bytes - s->budget->target_bytes;
        data -= excess < data ? excess : data;
    }
}

/* Whether the layout can store these options: most hold no model of which every tensor is kept. */
static bool is_storable(const struct qplan_sensitivity *s, const size_t *option)
{
    bool found = !s->first->format->fit;
    for (size_t i = 0; i < s->n_groups; i++)
        found |= !s->candidates[option[i]].is_keep;
    return found;
}

/* The best plan with one candidate, by the size of its files; it takes the place of a worse mix. */
static enum qplan_status choose_size(const struct qplan_sensitivity *s,
                                     struct qp_budget_choice *choice, struct qplan_plan **out,
                                     struct qplan_error *err)
{
    const struct qp_budget budget = budget_of(s, 0);
    struct qplan_plan *plan;
    uint64_t bytes;
    QP_TRY(choose_mix(s, choice, out, err));
    choice->uniform = s->n_candidates;
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct qp_mix mix = qp_budget_uniform(&budget, i, choice->option);
        if (!is_storable(s, choice->option) ||
            (choice->uniform < s->n_candidates && mix.error >= choice->of_uniform.error))
            continue;
        QP_TRY(make_fitting(s, choice->option, &plan, &bytes, err));
        if (!plan)
            continue;
        choice->uniform = i;
        choice->of_uniform = mix;
        if (mix.error < choice->mix.error) {
            struct qplan_plan *worse = *out;
            *out = plan;
            plan = worse;
            choice->mix = mix;
            choice->raised = false;
            choice->bound = choice->bound < mix.error ? choice->bound : mix.error;
        }
        qplan_plan_free(plan);
    }
    return QPLAN_OK;
}

/* Of what one candidate alone gives within the bytes: the best that the layout can store. */
static void find_uniform(const struct qplan_sensitivity *s, const struct qp_budget *budget,
                         struct qp_budget_choice *choice)
{
    choice->uniform = s->n_candidates;
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct qp_mix mix = qp_budget_uniform(budget, i, choice->option);
        if (mix.bytes > budget->bytes || !is_storable(s, choice->option) ||
            (choice->uniform < s->n_candidates && mix.error >= choice->of_uniform.error))
            continue;
        choice->uniform = i;
        choice->of_uniform = mix;
    }
}

static enum qplan_status choose(const struct qplan_sensitivity *s, struct qp_budget_choice *choice,
                                struct qplan_plan **out, struct qplan_error *err)
{
    if (s->budget->target_bytes)
        return choose_size(s, choice, out, err);
    const struct qp_budget budget = budget_of(s, data_target(s));
    QP_TRY(qp_budget_choose(&budget, choice, err));
    QP_TRY(qp_sensitivity_plan(s, choice->option, out, err));
    find_uniform(s, &budget, choice); /* the options have done their work */
    return QPLAN_OK;
}

/* The plan of one candidate that the chosen one is shown beside. */
static enum qplan_status add_uniform(const struct qplan_sensitivity *s,
                                     const struct qp_budget_choice *choice,
                                     struct qplan_budget_facts *facts, struct qplan_error *err)
{
    const struct qp_budget budget = budget_of(s, 0);
    struct qplan_plan *plan;
    if (choice->uniform == s->n_candidates)
        return QPLAN_OK;
    (void)qp_budget_uniform(&budget, choice->uniform, choice->option);
    QP_TRY(qp_sensitivity_plan(s, choice->option, &plan, err));
    const struct qp_candidate *c = &s->candidates[choice->uniform];
    (void)snprintf(facts->uniform, sizeof facts->uniform, "%s", c->text);
    facts->uniform_bytes = qplan_plan_output_bytes(plan);
    facts->uniform_error = choice->of_uniform.error;
    qplan_plan_free(plan);
    return QPLAN_OK;
}

static enum qplan_status make_within(const struct qplan_sensitivity *s, size_t *option,
                                     struct qplan_plan **out, struct qplan_budget_facts *facts,
                                     struct qplan_error *err)
{
    struct qp_budget_choice choice = {.option = option};
    QP_TRY(choose(s, &choice, out, err));
    facts->bytes = qplan_plan_output_bytes(*out);
    facts->bpw = bpw_of(s, qp_news_data_bytes(&(*out)->news));
    facts->error = choice.mix.error;
    facts->bound = choice.bound;
    facts->raised = choice.raised;
    return add_uniform(s, &choice, facts, err);
}

enum qplan_status qplan_plan_make_within(struct qplan_plan **out, const struct qplan_sensitivity *s,
                                         struct qplan_budget_facts *facts, struct qplan_error *err)
{
    *out = NULL;
    *facts = (struct qplan_budget_facts){.bytes = 0};
    if (!s->budget->target_bytes && !(s->budget->target_bpw > 0))
        return qp_fail(err, QPLAN_ERR_USAGE, "target", "expected a size or bits per weight");
    size_t *option = qp_alloc(s->n_groups, sizeof *option);
    const enum qplan_status status =
        option ? make_within(s, option, out, facts, err)
               : qp_fail_memory(err, "plan", s->n_groups * sizeof *option);
    qp_free(option);
    if (status != QPLAN_OK) {
        qplan_plan_free(*out);
        *out = NULL;
    }
    return status;
}
