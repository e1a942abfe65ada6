/*
 * recompute.c - running the plan that a file says it was made by, against its source, with outs
 * that compare.
 */
#include "recompute.h"

#include "lib/base/alloc.h"
#include "lib/model/dtype.h"
#include "lib/plan/plan.h"
#include "lib/run/factors.h"
#include "lib/run/units.h"
#include "window.h"

#include <pthread.h>
#include <string.h>

struct comparison {
    const struct qp_source *file;
    struct qp_wrong **wrong; /* by stored tensor: that of its pair; NULL = it may differ */
    struct qp_arena arena;   /* of calibrators */
    const char *last_name;   /* of a record; most tensors share theirs */
    const struct qplan_scheme *last_scheme; /* that it is for */
    const struct qp_calibrator *last;
    struct qp_pair **near; /* those that cannot be computed again */
    size_t n_near;
    pthread_mutex_t lock;
};

/* ---- What differs ------------------------------------------------------------------------------
 */

/* Of all differences of a tensor that in the earliest stored one counts, and there the first. */
static bool is_earlier(const struct qp_wrong *wrong, const struct qplan_entry *entry, uint64_t elem)
{
    if (wrong->n_bytes == 0)
        return true;
    return wrong->entry == entry ? elem < wrong->elem : entry < wrong->entry;
}

static void differ(void *ctx, const struct qp_difference *d)
{
    struct comparison *c = ctx;
    const size_t i = (size_t)(d->entry - c->file->listing.entries);
    struct qp_wrong *wrong = c->wrong[i];
    const size_t size = qplan_storage_bits((enum qplan_storage)d->entry->storage) / 8;
    const uint64_t elem = (d->off + d->first) / size;
    if (!wrong)
        return;
    (void)pthread_mutex_lock(&c->lock);
    if (is_earlier(wrong, d->entry, elem)) {
        wrong->entry = d->entry;
        wrong->elem = elem;
        memcpy(wrong->computed, d->bytes + (elem * size - d->off), size);
    }
    wrong->n_bytes += d->n_wrong;
    (void)pthread_mutex_unlock(&c->lock);
}

/* ---- The plan that the file says it was made by ------------------------------------------------
 */

static bool has_factor(const struct qp_tensor *t)
{
    return t->scheme && qp_tensor_part(t, QP_FACTOR);
}

/* Whether the parameters of all sets were computed in passing, and are the stored ones. */
static bool has_right_sets(const struct qp_pair *pair)
{
    struct qp_sets sets;
    qp_tensor_sets(&sets, pair->file);
    return pair->result.sets_same == sets.n_sets;
}

/* Finds the calibrator of a pair: then it is c->last, or that is NULL. MEMORY. */
static enum qplan_status find_calibrator(struct comparison *c, const struct qp_pair *pair,
                                         struct qplan_error *err)
{
    const char *name = pair->file->scheme ? pair->file->calibrate : NULL;
    struct qp_calibrator recorded;
    if (c->last && name && strcmp(name, c->last_name) == 0 &&
        qp_scheme_equal(pair->file->scheme, c->last_scheme))
        return QPLAN_OK;
    c->last_name = name;
    c->last_scheme = pair->file->scheme;
    c->last = NULL;
    if (!qp_calibrator_recorded(name, pair->file->scheme, &recorded))
        return QPLAN_OK;
    c->last = qp_arena_copy(&c->arena, &recorded, 1, sizeof recorded);
    return c->last ? QPLAN_OK : qp_fail_memory(err, "proof", sizeof recorded);
}

static bool is_open(const struct comparison *c, const struct qp_pair *pair, bool exact)
{
    if (!c->last)
        return pair->file->scheme != NULL;
    return exact || pair->file->scheme->nested || !has_right_sets(pair) ||
           (has_factor(pair->file) && !pair->result.factor_same);
}

/* Whether codes that are not the nearest ones, or any where all are asked for, are to be computed.
 */
static bool needs_codes(const struct qplan_plan *plan, bool exact)
{
    for (size_t i = 0; i < plan->n_tensors; i++)
        exact |= !plan->tensors[i].calibrator->nearest;
    return exact;
}

static struct qp_plan_tensor plan_tensor(const struct comparison *c, const struct qp_pair *pair)
{
    return (struct qp_plan_tensor){
        .source = pair->source, .calibrator = c->last, .result = *pair->file};
}

/* Takes what a tensor was made with besides its source; says whether all of it is known. */
static enum qplan_status take_data(const struct comparison *c, const struct qp_made_with *with,
                                   struct qplan_plan *plan, struct qp_plan_tensor *t, bool *known,
                                   struct qplan_error *err)
{
    *known = c->last && c->last->from_source;
    if (!c->last || *known)
        return QPLAN_OK;
    if (c->last->rounds && with->hessians)
        QP_TRY(qp_plan_round_tensor(t, with->hessians, &plan->arena, err));
    else if (!c->last->rounds && with->importance)
        QP_TRY(qp_plan_weigh_tensor(t, with->importance, &plan->arena, err));
    *known = t->has_importance;
    return QPLAN_OK;
}

/* Adds what a pair was made by, and where its differences go; or it can only be judged. */
static enum qplan_status add_pair(struct qplan_plan *plan, struct comparison *c,
                                  const struct qp_made_with *with, struct qp_pair *pair,
                                  struct qplan_error *err)
{
    struct qp_plan_tensor t = plan_tensor(c, pair);
    QP_TRY(take_data(c, with, plan, &t, &pair->computed, err));
    if (!pair->computed) {
        if (pair->result.max_abs > 0) /* else nothing is lost by them */
            c->near[c->n_near++] = pair;
        return QPLAN_OK;
    }
    t.calibrator = c->last;
    plan->tensors[plan->n_tensors++] = t;
    for (unsigned i = 0; i < pair->file->n_parts; i++) {
        const size_t at = (size_t)(pair->file->parts[i].entry - c->file->listing.entries);
        c->wrong[at] = &pair->result.wrong;
    }
    return QPLAN_OK;
}

/* The job is the CPU's. */
static struct qplan_run on_cpu(const struct qplan_run *run)
{
    struct qplan_run made = run ? *run : (struct qplan_run){.threads = 0};
    made.device = NULL;
    return made;
}

static enum qplan_status run_plan(const struct qplan_plan *plan, struct comparison *c, bool exact,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_outs outs = qp_outs_compare(c->file, differ, c);
    struct qp_run_notes notes = {.fewer_threads = false};
    if (plan->n_tensors == 0)
        return QPLAN_OK;
    const enum qplan_status status = qp_run_units(
        plan, &outs, needs_codes(plan, exact) ? QP_ALL_ROLES : QP_PARAMETERS, run, &notes, err);
    qp_run_notes_free(&notes);
    return status;
}

/* ---- Factors -----------------------------------------------------------------------------------
 */

/* Tensors of the file that have a factor. */
static size_t count_factors(const struct qplan_checkpoint *file)
{
    size_t n = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        n += has_factor(&file->tensors[i]);
    return n;
}

/*
 * Compares the factors of all pairs with those that follow from values seen in passing. Where some
 * were not seen, all are left open.
 */
static enum qplan_status judge_factors(struct comparison *c, struct qp_pair *pairs, size_t n,
                                       struct qplan_plan *plan, size_t n_factors,
                                       struct qplan_error *err)
{
    double *most = qp_alloc(n, sizeof *most);
    enum qplan_status status = QPLAN_OK;
    float *factors = NULL;
    bool known = true;
    if (!most)
        return qp_fail_memory(err, "proof", n * sizeof *most);
    for (size_t i = 0; i < n && known; i++) {
        if (!has_factor(pairs[i].file))
            continue;
        status = find_calibrator(c, &pairs[i], err);
        known = status == QPLAN_OK && c->last && c->last->from_source && has_right_sets(&pairs[i]);
        if (!known)
            break;
        most[plan->n_tensors] = pairs[i].result.most;
        plan->tensors[plan->n_tensors++] = plan_tensor(c, &pairs[i]);
    }
    known &= !plan->format->has_shared_factors || plan->n_tensors == n_factors;
    if (known) /* one that is impossible is found again, and told, where it is not compared only */
        status = qp_find_factors(&factors, plan, most, NULL, err);
    for (size_t i = 0, k = 0; factors && i < n; i++) {
        if (has_factor(pairs[i].file))
            pairs[i].result.factor_same = factors[k++] == pairs[i].file->factor;
    }
    plan->n_tensors = 0;
    qp_free(factors);
    qp_free(most);
    return status == QPLAN_ERR_VALUE ? QPLAN_OK : status;
}

/* Adds the tensors of the file that may share a factor with one of the plan, to be seen alone. */
static void add_seen(struct qplan_plan *plan, const struct comparison *c,
                     const struct qplan_checkpoint *file)
{
    for (size_t i = 0; plan->format->has_shared_factors && i < file->n_tensors; i++) {
        const struct qp_tensor *t = &file->tensors[i];
        if (!has_factor(t) || c->wrong[t->entry - c->file->listing.entries])
            continue;
        const struct qp_tensor *source = qp_checkpoint_find(plan->checkpoint, t->name, t->name_len);
        const struct qp_calibrator *recipe =
            t->calibrate ? qp_recipe_find(t->calibrate, t->scheme) : NULL;
        if (source && qp_storage_row((enum qplan_storage)source->storage)->is_source)
            plan->tensors[plan->n_tensors + plan->n_seen++] =
                (struct qp_plan_tensor){.source = source,
                                        .calibrator = recipe ? recipe : &qp_calibrate_minmax,
                                        .result = *t};
    }
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

enum qplan_status qp_recompute_pairs(struct qp_pair *pairs, size_t n,
                                     const struct qplan_checkpoint *file,
                                     const struct qplan_checkpoint *source, bool exact,
                                     const struct qp_made_with *with, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct comparison c = {.file = &file->source, .lock = PTHREAD_MUTEX_INITIALIZER};
    /* What is not finite is brought to a code: where it was refused there is no such value. */
    struct qplan_plan plan = {.checkpoint = source,
                              .format = file->format,
                              .nonfinite = QPLAN_NONFINITE_SATURATE,
                              .making.hessian_damp = with->hessian_damp};
    const size_t n_entries = file->source.listing.n_entries, n_factors = count_factors(file);
    const struct qplan_run cpu = on_cpu(run);
    enum qplan_status status = QPLAN_OK;
    plan.tensors = qp_alloc(n + n_factors, sizeof *plan.tensors);
    c.wrong = qp_alloc(n_entries, sizeof *c.wrong);
    c.near = qp_alloc(n, sizeof *c.near);
    if (!plan.tensors || !c.wrong || !c.near)
        status = qp_fail_memory(err, "proof", (n + n_factors) * sizeof *plan.tensors);
    if (status == QPLAN_OK && n_factors > 0 && !exact)
        status = judge_factors(&c, pairs, n, &plan, n_factors, err);
    for (size_t i = 0; i < n && status == QPLAN_OK; i++) {
        status = find_calibrator(&c, &pairs[i], err);
        if (status == QPLAN_OK && is_open(&c, &pairs[i], exact))
            status = add_pair(&plan, &c, with, &pairs[i], err);
    }
    if (status == QPLAN_OK && n_factors > 0)
        add_seen(&plan, &c, file);
    if (status == QPLAN_OK)
        status = run_plan(&plan, &c, exact, &cpu, err);
    if (status == QPLAN_OK)
        status = qp_judge_windows(c.near, c.n_near, file, source, &cpu, err);
    qp_free(plan.tensors);
    qp_arena_free(&plan.arena);
    qp_free(c.wrong);
    qp_free(c.near);
    qp_arena_free(&c.arena);
    return status;
}
