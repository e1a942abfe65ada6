/*
 * round.c - the Hessians by which tensors of a plan are rounded.
 */
#include "faults.h"
#include "plan.h"

bool qp_is_rounded(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) && t->calibrator->rounds;
}

/* The diagonal is the importance of columns, relative to the largest; NULL if all are alike. */
static void weigh(struct qp_plan_tensor *t, float *diagonal)
{
    const uint64_t n = t->hessian->columns;
    float most = 0;
    uint64_t alike = 0;
    for (uint64_t i = 0; i < n; i++)
        most = diagonal[i] > most ? diagonal[i] : most;
    for (uint64_t i = 0; i < n; i++)
        alike += diagonal[i] == most;
    for (uint64_t i = 0; alike < n && i < n; i++)
        diagonal[i] = (float)((double)diagonal[i] / (double)most);
    t->importance = alike < n ? diagonal : NULL;
    t->importance_unit = most > 0 ? (double)most : 1;
    t->has_importance = true;
}

enum qplan_status qp_plan_round_tensor(struct qp_plan_tensor *t, const struct qp_hessians *hessians,
                                       struct qp_arena *arena, struct qplan_error *err)
{
    const uint64_t n = t->source->shape[t->source->rank - 1];
    struct qp_hessian found;
    QP_TRY(qp_hessian_find(hessians, t->source->name, n, &found, err));
    if (!found.entry)
        return QPLAN_OK;
    t->hessian = qp_arena_copy(arena, &found, 1, sizeof found);
    if (!t->hessian)
        return qp_fail_memory(err, "Hessian", sizeof found);
    float *diagonal = qp_arena_alloc(arena, n, sizeof *diagonal);
    if (!diagonal)
        return qp_fail_memory(err, "Hessian", n * sizeof *diagonal);
    QP_TRY(qp_hessian_diagonal(t->hessian, diagonal, err));
    weigh(t, diagonal);
    return QPLAN_OK;
}

/* ---- Tensors without one -----------------------------------------------------------------------
 */

/* The least weighted error where importance may be known, else what is usual. */
static enum qplan_status use_other(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                   bool has_importance, struct qplan_error *err)
{
    const bool is_positive = plan->positive_scales && !t->result.scheme->asymmetric;
    t->calibrator = has_importance ? &qp_calibrate_mse[0] : &qp_calibrate_minmax;
    if (is_positive && t->calibrator->either_sign)
        t->calibrator = qp_calibrator_positive(t->calibrator, &plan->arena);
    return t->calibrator ? QPLAN_OK : qp_fail_memory(err, "plan", sizeof *t->calibrator);
}

static size_t count_missing(const struct qplan_plan *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++)
        n += qp_is_rounded(&plan->tensors[i]) && !plan->tensors[i].hessian;
    return n;
}

/* Adds the tensors without one to a list. */
static void list_missing(const struct qplan_plan *plan, struct qp_faults *faults)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_is_rounded(&plan->tensors[i]) && !plan->tensors[i].hessian)
            qp_faults_add(faults, plan->tensors[i].source);
    }
}

static enum qplan_status warn_missing(struct qplan_plan *plan, size_t n, bool has_importance,
                                      struct qplan_error *err)
{
    const char *path = plan->checkpoint->source.path;
    const struct qp_calibrator *other =
        has_importance ? &qp_calibrate_mse[0] : &qp_calibrate_minmax;
    struct qplan_error list;
    struct qp_faults faults = {.err = &list};
    qp_fail(&list, QPLAN_ERR_INVALID, path,
            "no Hessian is known of %zu tensor%s, rounded to the nearest codes by %s: ", n,
            n == 1 ? "" : "s", other->name);
    list_missing(plan, &faults);
    (void)qp_faults_end(&faults);
    return qp_warn(&plan->warnings, &plan->arena, "hessian-missing", path, list.message, err);
}

static enum qplan_status fail_missing(const struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_faults faults = {.err = err};
    qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
            "no Hessian is known of: ");
    list_missing(plan, &faults);
    return qp_faults_end(&faults);
}

/* ---- All tensors -------------------------------------------------------------------------------
 */

static enum qplan_status find_all(struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_is_rounded(&plan->tensors[i]))
            QP_TRY(qp_plan_round_tensor(&plan->tensors[i], &plan->hessians, &plan->arena, err));
    }
    return QPLAN_OK;
}

static enum qplan_status replace_missing(struct qplan_plan *plan, bool has_importance,
                                         struct qplan_error *err)
{
    const size_t n = count_missing(plan);
    if (n > 0)
        QP_TRY(warn_missing(plan, n, has_importance, err));
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (qp_is_rounded(t) && !t->hessian)
            QP_TRY(use_other(plan, t, has_importance, err));
    }
    return QPLAN_OK;
}

static bool is_any_rounded(const struct qplan_plan *plan)
{
    bool found = false;
    for (size_t i = 0; i < plan->n_tensors && !found; i++)
        found = qp_is_rounded(&plan->tensors[i]);
    return found;
}

/* A file that names no tensor at all is of another model. */
static enum qplan_status check_names(const struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_hessians_name(&plan->hessians, plan->tensors[i].source->name))
            return QPLAN_OK;
    }
    return qp_fail(err, QPLAN_ERR_INVALID, plan->hessians.source.listing.shown,
                   "not the Hessians of this model: it names none of its tensors");
}

/* Opens the file, which is the one that the plan names if it names one. */
static enum qplan_status take_file(struct qplan_plan *plan, const char *path,
                                   struct qplan_error *err)
{
    struct qp_digests found;
    plan->hessians.cancel = plan->cancel;
    QP_TRY(qp_hessians_open(&plan->hessians, path, err));
    QP_TRY(qp_hessians_digest(&plan->hessians, &plan->making.hessians, &plan->arena, &found, err));
    plan->making.hessians = found;
    return find_all(plan, err);
}

enum qplan_status qp_plan_round(struct qplan_plan *plan, const struct qplan_plan_options *options,
                                struct qplan_error *err)
{
    const bool is_wanted = is_any_rounded(plan);
    if (options->hessian && !is_wanted && plan->n_quantized > 0)
        return qp_fail(err, QPLAN_ERR_USAGE, "hessian",
                       "nothing is quantized by a method that rounds by it: expected ldlq");
    if (!is_wanted)
        return QPLAN_OK;
    if (!options->hessian) {
        qp_fail(err, QPLAN_ERR_USAGE, "calibrate",
                "ldlq rounds by the Hessians of a file: expected one, found none");
        qp_advise(err, QPLAN_ADVICE_HESSIAN);
        return QPLAN_ERR_USAGE;
    }
    QP_TRY(
        qp_plan_take_damp(&plan->making, options->hessian_damp, &plan->making.hessian_damp, err));
    QP_TRY(take_file(plan, options->hessian, err));
    QP_TRY(check_names(plan, err));
    if (options->importance_required && count_missing(plan) > 0)
        return fail_missing(plan, err);
    return replace_missing(plan, options->n_importance > 0, err);
}

enum qplan_status qp_plan_round_document(struct qplan_plan *plan, const char *path, double damp,
                                         struct qplan_error *err)
{
    if (!path)
        return QPLAN_OK;
    if (!is_any_rounded(plan))
        return qp_fail(err, QPLAN_ERR_INVALID, "hessian",
                       "no tensor of the plan is calibrated by it: expected ldlq");
    QP_TRY(qp_plan_take_damp(&plan->making, damp, &plan->making.hessian_damp, err));
    return take_file(plan, path, err);
}
