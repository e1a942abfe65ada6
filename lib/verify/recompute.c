/*
 * recompute.c - running the plan that a file says it was made by, against its source, with outs
 * that compare.
 */
#include "recompute.h"

#include "lib/base/alloc.h"
#include "lib/plan/plan.h"
#include "lib/run/units.h"

#include <pthread.h>
#include <string.h>

struct comparison {
    const struct qp_source *file;
    struct qp_wrong **wrong; /* by stored tensor: that of the pair that it belongs to */
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
    struct qp_wrong *wrong = c->wrong[d->entry - c->file->listing.entries];
    const size_t size = qplan_storage_bits((enum qplan_storage)d->entry->storage) / 8;
    const uint64_t elem = (d->off + d->first) / size;
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

static bool is_open(const struct qp_pair *pair, bool exact)
{
    struct qp_sets sets;
    if (!pair->file->scheme || !qp_pair_calibrator(pair))
        return false;
    qp_sets_make(&sets, pair->file->scheme, pair->file->shape, pair->file->rank);
    return exact || pair->result.sets_same < sets.n_sets;
}

/* Adds what a pair was made by, and where its differences go. */
static void add_pair(struct qplan_plan *plan, const struct comparison *c, struct qp_pair *pair)
{
    plan->tensors[plan->n_tensors++] = (struct qp_plan_tensor){
        .source = pair->source, .calibrator = qp_pair_calibrator(pair), .result = *pair->file};
    for (unsigned i = 0; i < pair->file->n_parts; i++)
        c->wrong[pair->file->parts[i].entry - c->file->listing.entries] = &pair->result.wrong;
}

static enum qplan_status run_plan(const struct qplan_plan *plan, struct comparison *c, bool exact,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_outs outs = qp_outs_compare(c->file, differ, c);
    struct qplan_run on_cpu = run ? *run : (struct qplan_run){.threads = 0};
    bool all_threads;
    on_cpu.device = NULL;
    if (plan->n_tensors == 0)
        return QPLAN_OK;
    return qp_run_units(plan, &outs, exact ? QP_ALL_ROLES : QP_PARAMETERS, &on_cpu, &all_threads,
                        err);
}

enum qplan_status qp_recompute_pairs(struct qp_pair *pairs, size_t n,
                                     const struct qplan_checkpoint *file,
                                     const struct qplan_checkpoint *source, bool exact,
                                     const struct qplan_run *run, struct qplan_error *err)
{
    struct comparison c = {.file = &file->source, .lock = PTHREAD_MUTEX_INITIALIZER};
    /* What is not finite is brought to a code: where it was refused there is no such value. */
    struct qplan_plan plan = {.checkpoint = source, .nonfinite = QPLAN_NONFINITE_SATURATE};
    const size_t n_entries = file->source.listing.n_entries;
    enum qplan_status status = QPLAN_OK;
    plan.tensors = qp_alloc(n, sizeof *plan.tensors);
    c.wrong = qp_alloc(n_entries, sizeof *c.wrong);
    if (!plan.tensors || !c.wrong)
        status = qp_fail_memory(err, "proof", n * sizeof *plan.tensors);
    for (size_t i = 0; i < n && status == QPLAN_OK; i++) {
        if (is_open(&pairs[i], exact))
            add_pair(&plan, &c, &pairs[i]);
    }
    if (status == QPLAN_OK)
        status = run_plan(&plan, &c, exact, run, err);
    qp_free(plan.tensors);
    qp_free(c.wrong);
    return status;
}
