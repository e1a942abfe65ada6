/*
 * weigh.c - the importance of columns for the tensors of a plan.
 */
#include "faults.h"
#include "plan.h"

#include "lib/importance/importance.h"

bool qp_is_weighed(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) && t->calibrator->weighted && !t->calibrator->rounds;
}

static bool takes_weights(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) && t->calibrator->takes_weights;
}

enum qplan_status qp_plan_weigh_tensor(struct qp_plan_tensor *t,
                                       const struct qp_importance *importance,
                                       struct qp_arena *arena, struct qplan_error *err)
{
    const struct qp_tensor *source = t->source;
    const uint64_t n = source->shape[source->rank - 1];
    QP_TRY(qp_importance_of(importance, source->name, n, arena, &t->importance, &t->importance_unit,
                            err));
    t->has_importance = t->importance != NULL;
    uint64_t alike = 0;
    while (t->importance && alike < n && !(t->importance[alike] < 1)) /* the largest is 1 */
        alike++;
    if (alike == n)
        t->importance = NULL;
    return QPLAN_OK;
}

/* The calibrator that says in its name that errors are weighted; most tensors share theirs. */
static enum qplan_status name_weighted(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                       const struct qp_calibrator **plain,
                                       const struct qp_calibrator **weighted,
                                       struct qplan_error *err)
{
    if (*plain != t->calibrator)
        *weighted = qp_calibrator_weigh(t->calibrator, &plan->arena);
    *plain = t->calibrator;
    t->calibrator = *weighted;
    return *weighted ? QPLAN_OK : qp_fail_memory(err, "plan", sizeof **weighted);
}

/* Adds the tensors that no file knows to a list. */
static void list_missing(const struct qplan_plan *plan, struct qp_faults *faults)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (takes_weights(&plan->tensors[i]) && !plan->tensors[i].has_importance)
            qp_faults_add(faults, plan->tensors[i].source);
    }
}

/* How many of these were never used while importance was collected. */
static size_t count_unused(const struct qplan_plan *plan, const struct qp_importance *importance)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        n += takes_weights(t) && !t->has_importance &&
             qp_importance_names(importance, t->source->name);
    }
    return n;
}

static enum qplan_status warn_missing(struct qplan_plan *plan,
                                      const struct qp_importance *importance, size_t n,
                                      struct qplan_error *err)
{
    const char *path = plan->checkpoint->source.path;
    const size_t n_unused = count_unused(plan, importance);
    struct qplan_error list;
    struct qp_faults faults = {.err = &list};
    qp_fail(&list, QPLAN_ERR_INVALID, path,
            "no importance is known of %zu tensor%s, whose errors are not weighted", n,
            n == 1 ? "" : "s");
    if (n_unused > 0)
        qp_fail_more(&list, ", as %zu of them %s never used while it was collected", n_unused,
                     n_unused == 1 ? "was" : "were");
    qp_fail_more(&list, ": ");
    list_missing(plan, &faults);
    (void)qp_faults_end(&faults);
    return qp_warn(&plan->warnings, &plan->arena, "importance-missing", path, list.message, err);
}

static enum qplan_status fail_missing(const struct qplan_plan *plan, struct qplan_error *err)
{
    struct qp_faults faults = {.err = err};
    qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
            "no importance is known of: ");
    list_missing(plan, &faults);
    return qp_faults_end(&faults);
}

static enum qplan_status weigh_tensors(struct qplan_plan *plan,
                                       const struct qp_importance *importance, bool required,
                                       struct qplan_error *err)
{
    const struct qp_calibrator *plain = NULL, *weighted = NULL;
    size_t n_missing = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (!takes_weights(t))
            continue;
        QP_TRY(qp_plan_weigh_tensor(t, importance, &plan->arena, err));
        if (t->has_importance)
            QP_TRY(name_weighted(plan, t, &plain, &weighted, err));
        else
            n_missing++;
    }
    if (n_missing == 0)
        return QPLAN_OK;
    return required ? fail_missing(plan, err) : warn_missing(plan, importance, n_missing, err);
}

/* Files that name no tensor at all are of another model. */
static enum qplan_status check_names(const struct qplan_plan *plan,
                                     const struct qp_importance *importance,
                                     const struct qplan_plan_options *options,
                                     struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_importance_names(importance, plan->tensors[i].source->name))
            return QPLAN_OK;
    }
    return qp_fail(err, QPLAN_ERR_INVALID, options->importance[0],
                   "not the importance of this model: it names none of its tensors");
}

/* Where every tensor is rounded by its Hessian, the files have no use. */
static enum qplan_status check_use(struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (takes_weights(&plan->tensors[i]))
            return QPLAN_OK;
    }
    return plan->n_quantized > 0
               ? qp_warn(&plan->warnings, &plan->arena, "importance-unused",
                         plan->checkpoint->source.path,
                         "a Hessian is known of every tensor: importance weighs none", err)
               : QPLAN_OK;
}

/* What the output will say of the files. */
static enum qplan_status keep_digests(struct qplan_plan *plan,
                                      const struct qp_importance *importance,
                                      struct qplan_error *err)
{
    const struct qp_digests *read = &importance->digests;
    struct qp_digest *list = qp_arena_copy(&plan->arena, read->list, read->n, sizeof *list);
    if (!list)
        return qp_fail_memory(err, "plan", read->n * sizeof *list);
    plan->making.importance = (struct qp_digests){list, read->n};
    return QPLAN_OK;
}

enum qplan_status qp_plan_weigh(struct qplan_plan *plan, const struct qplan_plan_options *options,
                                struct qplan_error *err)
{
    struct qp_importance importance = {.cancel = plan->cancel};
    bool is_wanted = plan->n_quantized == 0 || options->hessian; /* which may take its place */
    for (size_t i = 0; i < plan->n_tensors; i++)
        is_wanted |= takes_weights(&plan->tensors[i]);
    if (!is_wanted)
        return qp_fail(err, QPLAN_ERR_USAGE, "importance",
                       "no tensor is calibrated by a method that weighs errors: expected mse");
    enum qplan_status status =
        qp_importance_read(&importance, options->importance, options->n_importance, NULL, err);
    if (status == QPLAN_OK)
        status = check_names(plan, &importance, options, err);
    if (status == QPLAN_OK)
        status = weigh_tensors(plan, &importance, options->importance_required, err);
    if (status == QPLAN_OK)
        status = check_use(plan, err);
    if (status == QPLAN_OK)
        status = keep_digests(plan, &importance, err);
    qp_importance_free(&importance);
    return status;
}

static enum qplan_status weigh_documented(struct qplan_plan *plan,
                                          const struct qp_importance *importance,
                                          struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_is_weighed(&plan->tensors[i]))
            QP_TRY(qp_plan_weigh_tensor(&plan->tensors[i], importance, &plan->arena, err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_plan_weigh_document(struct qplan_plan *plan, const char *const *paths,
                                         size_t n, struct qplan_error *err)
{
    struct qp_importance importance = {.cancel = plan->cancel};
    bool is_wanted = false;
    if (n == 0)
        return QPLAN_OK;
    for (size_t i = 0; i < plan->n_tensors; i++)
        is_wanted |= qp_is_weighed(&plan->tensors[i]);
    if (!is_wanted)
        return qp_fail(err, QPLAN_ERR_INVALID, "importance",
                       "no tensor of the plan is calibrated by it: expected +importance behind "
                       "a method");
    enum qplan_status status =
        qp_importance_read(&importance, paths, n, &plan->making.importance, err);
    if (status == QPLAN_OK)
        status = weigh_documented(plan, &importance, err);
    if (status == QPLAN_OK)
        status = keep_digests(plan, &importance, err);
    qp_importance_free(&importance);
    return status;
}

enum qplan_status qp_plan_check_weights(const struct qplan_plan *plan, struct qplan_error *err)
{
    char subject[512];
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t) || !t->calibrator->weighted || t->has_importance)
            continue;
        const bool rounds = t->calibrator->rounds;
        qp_fail(err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, plan->checkpoint, t->source),
                "%s needs the %s of its columns, which no file tells", t->calibrator->name,
                rounds ? "Hessian" : "importance");
        qp_advise(err, rounds ? QPLAN_ADVICE_HESSIAN : QPLAN_ADVICE_IMPORTANCE);
        return QPLAN_ERR_INVALID;
    }
    return QPLAN_OK;
}
