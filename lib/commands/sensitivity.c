/*
 * sensitivity.c - measures candidates: a plan for each, as if all tensors had it, and one job over
 * the tensors of all of these plans, in the order of the source. A tensor is thus read for all
 * candidates while the system still has it in memory.
 */
#include "sensitivity.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/device/device.h"
#include "lib/plan/family.h"
#include "lib/plan/faults.h"
#include "lib/plan/select.h"
#include "lib/run/units.h"

#include <stdlib.h>
#include <string.h>

/* ---- Candidates --------------------------------------------------------------------------------
 */

static enum qplan_status fail_candidate(struct qplan_error *err, const char *what, const char *text)
{
    char quoted[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_USAGE, "candidates", "%s: %s", what,
                   qp_quote(quoted, text, strlen(text)));
}

static bool is_same(const struct qp_candidate *a, const struct qp_candidate *b)
{
    return a->is_keep == b->is_keep && (a->is_keep || qp_scheme_equal(&a->scheme, &b->scheme));
}

static enum qplan_status add_candidate(struct qplan_sensitivity *s, const char *text, size_t n,
                                       struct qplan_error *err)
{
    struct qp_candidate *list =
        qp_arena_grow(&s->arena, s->candidates, s->n_candidates, sizeof *list);
    char *copy = qp_arena_join(&s->arena, text, n, "");
    struct qplan_error why;
    if (!list || !copy)
        return qp_fail_memory(err, "candidates", n + sizeof *list);
    s->candidates = list;
    struct qp_candidate *c = &list[s->n_candidates];
    *c = (struct qp_candidate){.text = copy, .is_keep = strcmp(copy, "keep") == 0};
    if (!c->is_keep && qplan_scheme_parse(&c->scheme, copy, &why) != QPLAN_OK)
        return qp_fail(err, QPLAN_ERR_USAGE, "candidates", "%s", why.message);
    c->is_wide = c->is_keep || qplan_dtype_bits(c->scheme.dtype) >= 8;
    for (size_t i = 0; i < s->n_candidates; i++) {
        if (is_same(&list[i], c))
            return fail_candidate(err, "a candidate is given twice", copy);
    }
    s->n_candidates++;
    return QPLAN_OK;
}

static enum qplan_status read_candidates(struct qplan_sensitivity *s, struct qplan_error *err)
{
    const char *text = s->budget->candidates, *all = text;
    size_t n_schemes = 0;
    for (bool more = true; more; text++) {
        const size_t n = strcspn(text, ",");
        QP_TRY(add_candidate(s, text, n, err));
        n_schemes += !s->candidates[s->n_candidates - 1].is_keep;
        text += n;
        more = *text == ',';
    }
    return n_schemes > 0 ? QPLAN_OK : fail_candidate(err, "expected a scheme, found", all);
}

/* Where config.json can say only one scheme, there is no choice but between it and keeping. */
static enum qplan_status check_layout(const struct qplan_sensitivity *s, struct qplan_error *err)
{
    const struct qp_format *format = s->first->format;
    size_t n_schemes = 0;
    for (size_t i = 0; i < s->n_candidates; i++)
        n_schemes += !s->candidates[i].is_keep;
    if (format->has_one_scheme && n_schemes > 1)
        return qp_fail(err, QPLAN_ERR_USAGE, "candidates",
                       "the layout %s stores one scheme for all tensors: expected one scheme and "
                       "keep, found %zu schemes",
                       format->name, n_schemes);
    return QPLAN_OK;
}

static enum qplan_status make_plans(struct qplan_sensitivity *s, struct qplan_error *err)
{
    for (size_t i = 0; i < s->n_candidates; i++) {
        struct qp_candidate *c = &s->candidates[i];
        struct qplan_plan_options options = *s->options;
        options.scheme = c->scheme;
        if (options.indivisible == QPLAN_INDIVISIBLE_ERROR) /* other candidates may fit */
            options.indivisible = QPLAN_INDIVISIBLE_KEEP;
        if (c->is_keep)
            continue;
        QP_TRY(qplan_plan_make(&c->plan, s->checkpoint, &options, err));
        if (!s->first)
            s->first = c->plan;
        QP_TRY(check_layout(s, err));
    }
    return QPLAN_OK;
}

/* ---- Sizes -------------------------------------------------------------------------------------
 */

static uint64_t output_bytes(const struct qp_plan_tensor *t)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < qp_plan_n_outputs(t); i++)
        n += qp_plan_output(t, i)->end - qp_plan_output(t, i)->begin;
    return n;
}

/* Whether options ask to quantize a tensor, and some candidate fits it. */
static bool is_fit(const struct qplan_sensitivity *s, size_t tensor)
{
    bool found = false;
    for (size_t i = 0; i < s->n_candidates; i++)
        found |= qp_cell_at(s, tensor, i)->is_there;
    return found;
}

static enum qplan_status size_tensors(struct qplan_sensitivity *s, struct qplan_error *err)
{
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct qp_candidate *c = &s->candidates[i];
        if (c->plan && c->plan->n_quantized == 0)
            return qp_fail(err, QPLAN_ERR_INVALID, s->checkpoint->source.listing.shown,
                           "the candidate %s fits no tensor", c->text);
        for (size_t k = 0; c->plan && k < s->first->n_tensors; k++) {
            const struct qp_plan_tensor *t = &c->plan->tensors[k];
            if (qp_is_quantized(t))
                *qp_cell_at(s, k, i) = (struct qp_cell){.bytes = output_bytes(t), .is_there = true};
        }
    }
    for (size_t k = 0; k < s->first->n_tensors; k++) {
        const struct qp_tensor *source = s->first->tensors[k].source;
        uint64_t n = 0;
        (void)qp_shape_elements(source->shape, source->rank, &n); /* known not to overflow */
        s->n_elems += n;
        for (size_t i = 0; i < s->n_candidates && is_fit(s, k); i++) {
            if (s->candidates[i].is_keep)
                *qp_cell_at(s, k, i) =
                    (struct qp_cell){.bytes = qp_tensor_bytes(source), .is_there = true};
        }
    }
    return QPLAN_OK;
}

/* ---- Groups ------------------------------------------------------------------------------------
 */

struct member {
    struct qp_kin kin;
    bool has_kin;
    size_t tensor;
};

/* Families behind each other; what belongs to none is alone. */
static int by_family(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = x->has_kin - y->has_kin;
    if (order == 0 && x->has_kin)
        order = qp_compare_kin(&x->kin, &y->kin);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static bool is_joined(const struct member *a, const struct member *b)
{
    return a->has_kin && b->has_kin && qp_compare_kin(&a->kin, &b->kin) == 0;
}

/* Gives the group of some tensors the candidates that fit all of them; false if there is none. */
static bool open_group(struct qplan_sensitivity *s, const struct member *members, size_t n)
{
    struct qp_option *options = &s->of_groups[s->n_groups * s->n_candidates];
    bool found = false;
    s->is_first[s->n_groups] = false;
    for (size_t i = 0; i < s->n_candidates; i++) {
        options[i] = (struct qp_option){.is_there = true, .is_wide = s->candidates[i].is_wide};
        for (size_t k = 0; k < n; k++) {
            const struct qp_cell *cell = qp_cell_at(s, members[k].tensor, i);
            options[i].is_there &= cell->is_there;
            options[i].bytes += cell->bytes;
        }
        found |= options[i].is_there && !s->candidates[i].is_keep;
    }
    for (size_t k = 0; found && k < n; k++) {
        s->group[members[k].tensor] = s->n_groups;
        s->is_first[s->n_groups] |=
            qp_is_table_or_head(s->first->tensors[members[k].tensor].source);
    }
    s->n_groups += found;
    return found;
}

static void open_groups(struct qplan_sensitivity *s, struct member *members)
{
    size_t n = 0;
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        s->group[i] = QP_NO_GROUP;
        if (!is_fit(s, i))
            continue;
        members[n].tensor = i;
        members[n].has_kin = qp_find_kin(s->first->tensors[i].source, &members[n].kin);
        n++;
    }
    qsort(members, n, sizeof *members, by_family);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && is_joined(&members[i], &members[end]);)
            end++;
        (void)open_group(s, members + i, end - i);
    }
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        if (s->group[i] == QP_NO_GROUP)
            s->fixed_bytes += qp_tensor_bytes(s->first->tensors[i].source);
    }
}

/* Tensors that are asked for, and that no candidate fits: as --indivisible says, but kept if some
 * candidate is to keep. */
static enum qplan_status check_unfit(const struct qplan_sensitivity *s, struct qplan_error *err)
{
    struct qp_faults list = {.err = err};
    for (size_t i = 0; i < s->n_candidates; i++) {
        if (s->candidates[i].is_keep)
            return QPLAN_OK;
    }
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        const struct qp_plan_tensor *t = &s->first->tensors[i];
        const bool is_asked = is_fit(s, i) || (t->reason && strcmp(t->reason, "indivisible") == 0);
        if (s->group[i] != QP_NO_GROUP || !is_asked ||
            s->options->indivisible != QPLAN_INDIVISIBLE_ERROR)
            continue;
        if (list.n == 0)
            qp_fail(err, QPLAN_ERR_INVALID, s->checkpoint->source.listing.shown,
                    "no candidate fits: ");
        qp_faults_add(&list, t->source);
    }
    if (list.n > 0)
        qp_advise(err, QPLAN_ADVICE_INDIVISIBLE);
    return qp_faults_end(&list);
}

static enum qplan_status fill_table(struct qplan_sensitivity *s, struct member *members,
                                    struct qplan_error *err)
{
    QP_TRY(size_tensors(s, err));
    open_groups(s, members);
    return check_unfit(s, err);
}

static enum qplan_status make_table(struct qplan_sensitivity *s, struct qplan_error *err)
{
    const size_t n = s->first->n_tensors, n_cells = n * s->n_candidates;
    struct member *members = qp_alloc(n, sizeof *members);
    s->cells = qp_alloc(n_cells, sizeof *s->cells);
    s->group = qp_alloc(n, sizeof *s->group);
    s->of_groups = qp_alloc(n_cells, sizeof *s->of_groups);
    s->is_first = qp_alloc(n, sizeof *s->is_first);
    const enum qplan_status status =
        members && s->cells && s->group && s->of_groups && s->is_first
            ? fill_table(s, members, err)
            : qp_fail_memory(err, "candidates", n_cells * sizeof *s->cells);
    qp_free(members);
    return status;
}

/* ---- Errors ------------------------------------------------------------------------------------
 */

/* What a unit of a tensor's errors counts; of one without importance as much as the mean of all. */
static double weight_of(const struct qp_plan_tensor *t, double mean)
{
    return t->has_importance ? t->importance_unit : mean;
}

/* The mean importance of columns, over tensors where it is known; 1 if it is of none. */
static double mean_importance(const struct qplan_plan *plan)
{
    double total = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        const uint64_t n = t->has_importance ? t->source->shape[t->source->rank - 1] : 0;
        double sum = t->importance ? 0 : (double)n;
        for (uint64_t k = 0; t->importance && k < n; k++)
            sum += (double)t->importance[k];
        if (n == 0)
            continue;
        total += t->importance_unit * (sum / (double)n);
        n_known++;
    }
    return n_known ? total / (double)n_known : 1;
}

/* The cells that are measured, in the order of the job's tensors. */
static size_t list_cells(const struct qplan_sensitivity *s, struct qp_plan_tensor *tensors,
                         struct qp_cell **cells)
{
    size_t n = 0;
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        for (size_t k = 0; k < s->n_candidates; k++) {
            const struct qplan_plan *plan = s->candidates[k].plan;
            if (!plan || !qp_is_quantized(&plan->tensors[i]) || s->group[i] == QP_NO_GROUP)
                continue;
            tensors[n] = plan->tensors[i];
            cells[n++] = qp_cell_at(s, i, k);
        }
    }
    return n;
}

static void sum_groups(struct qplan_sensitivity *s)
{
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        for (size_t k = 0; k < s->n_candidates && s->group[i] != QP_NO_GROUP; k++)
            s->of_groups[s->group[i] * s->n_candidates + k].error += qp_cell_at(s, i, k)->error;
    }
}

/* A plan of all cells, in room for all, and the job over it. */
static enum qplan_status measure_cells(struct qplan_sensitivity *s, struct qplan_plan *all,
                                       struct qp_cell **cells, struct qp_exact *errors,
                                       const struct qplan_run *run, struct qplan_error *err)
{
    all->n_tensors = list_cells(s, all->tensors, cells);
    QP_TRY(qp_measure_units(all, errors, run, err));
    const double mean = mean_importance(all);
    for (size_t i = 0; i < all->n_tensors; i++)
        cells[i]->error = qp_exact_value(&errors[i]) * weight_of(&all->tensors[i], mean);
    sum_groups(s);
    return QPLAN_OK;
}

static enum qplan_status measure(struct qplan_sensitivity *s, const struct qplan_run *run,
                                 struct qplan_error *err)
{
    const size_t n_cells = s->first->n_tensors * s->n_candidates;
    struct qplan_plan all = *s->first; /* its layout and settings */
    struct qp_cell **cells = qp_alloc(n_cells, sizeof(struct qp_cell *));
    struct qp_exact *errors = qp_alloc(n_cells, sizeof *errors);
    struct qplan_run on_cpu = run ? *run : (struct qplan_run){.threads = 0};
    on_cpu.device = NULL;
    all.tensors = qp_alloc(n_cells, sizeof *all.tensors);
    const enum qplan_status status =
        cells && errors && all.tensors
            ? measure_cells(s, &all, cells, errors, &on_cpu, err)
            : qp_fail_memory(err, "candidates", n_cells * sizeof *errors);
    qp_free(cells);
    qp_free(errors);
    qp_free(all.tensors);
    return status;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

void qplan_sensitivity_free(struct qplan_sensitivity *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_candidates; i++)
        qplan_plan_free(s->candidates[i].plan);
    qp_free(s->cells);
    qp_free(s->group);
    qp_free(s->of_groups);
    qp_free(s->is_first);
    qp_arena_free(&s->arena);
    qp_free(s);
}

static enum qplan_status make(struct qplan_sensitivity *s, const struct qplan_run *run,
                              struct qplan_error *err)
{
    QP_TRY(read_candidates(s, err));
    QP_TRY(make_plans(s, err));
    QP_TRY(make_table(s, err));
    QP_TRY(qp_sensitivity_check(s, err));
    /* The CPU measures, but a device that was named must be usable. */
    const struct qp_device_need nothing = {.n_rows = 0};
    if (run)
        QP_TRY(qp_device_take(run->device, &nothing, run->threads, err));
    const enum qplan_status status = measure(s, run, err);
    if (status != QPLAN_OK && status != QPLAN_ERR_VALUE)
        return status;
    QP_TRY(qp_source_unchanged(&s->checkpoint->source, err));
    return status;
}

enum qplan_status qplan_sensitivity_measure(struct qplan_sensitivity **out,
                                            const struct qplan_checkpoint *checkpoint,
                                            const struct qplan_plan_options *options,
                                            const struct qplan_budget *budget,
                                            const struct qplan_run *run, struct qplan_error *err)
{
    *out = NULL;
    if (budget->target_bytes > 0 && budget->target_bpw > 0)
        return qp_fail(err, QPLAN_ERR_USAGE, "target",
                       "expected a size or bits per weight, found both");
    if (options->rules || options->arithmetic != QPLAN_ARITHMETIC_QPLAN)
        return qp_fail(err, QPLAN_ERR_USAGE, "candidates", "cannot be combined with %s",
                       options->rules ? "rules" : "the arithmetic of other tools");
    struct qplan_sensitivity *s = qp_alloc(1, sizeof *s);
    if (!s)
        return qp_fail_memory(err, "candidates", sizeof *s);
    s->checkpoint = checkpoint;
    s->options = options;
    s->budget = budget;
    const enum qplan_status status = make(s, run, err);
    if (status != QPLAN_OK) {
        qplan_sensitivity_free(s);
        return status;
    }
    *out = s;
    return QPLAN_OK;
}
