/*
 * weights.c - what errors in the columns of tensors count, for measuring them.
 */
#include "recompute.h"

#include "lib/plan/plan.h"

/* The importance of a tensor, or the diagonal of its Hessian, as a plan would have it. */
static enum qplan_status weigh(struct qp_plan_tensor *t, bool by_hessian,
                               const struct qp_made_with *with, struct qp_arena *arena,
                               struct qplan_error *err)
{
    if (t->has_importance)
        return QPLAN_OK;
    if (by_hessian)
        return with->hessians ? qp_plan_round_tensor(t, with->hessians, arena, err) : QPLAN_OK;
    return with->importance ? qp_plan_weigh_tensor(t, with->importance, arena, err) : QPLAN_OK;
}

static enum qplan_status find_one(struct qp_plan_tensor *t, const struct qp_pair *pair,
                                  const struct qplan_plan *plan, const struct qp_made_with *with,
                                  struct qp_arena *arena, struct qplan_error *err)
{
    const struct qp_tensor *file = pair->file;
    struct qp_calibrator made;
    const struct qp_plan_tensor *planned =
        plan ? qp_plan_find(plan, file->name, file->name_len) : NULL;
    *t = planned ? *planned : (struct qp_plan_tensor){.source = pair->source};
    if (plan)
        return QPLAN_OK;
    const bool is_rounded =
        qp_calibrator_recorded(file->calibrate, file->scheme, &made) && made.rounds;
    QP_TRY(weigh(t, is_rounded, with, arena, err));
    return weigh(t, !is_rounded, with, arena, err);
}

enum qplan_status qp_find_weights(struct qp_pair *pairs, size_t n, const struct qplan_plan *plan,
                                  const struct qp_made_with *with, struct qp_arena *arena,
                                  struct qplan_error *err)
{
    struct qp_plan_tensor t;
    for (size_t i = 0; i < n; i++) {
        if (!pairs[i].file->scheme)
            continue;
        QP_TRY(find_one(&t, &pairs[i], plan, with, arena, err));
        if (!t.has_importance)
            continue;
        const struct qp_tensor *source = pairs[i].source;
        const struct qp_weights weights = {
            .columns = {.of = t.importance, .n = source->shape[source->rank - 1]},
            .unit = t.importance_unit};
        pairs[i].weights = qp_arena_copy(arena, &weights, 1, sizeof weights);
        if (!pairs[i].weights)
            return qp_fail_memory(err, "report", sizeof weights);
    }
    return QPLAN_OK;
}
