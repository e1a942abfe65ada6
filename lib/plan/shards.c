/*
 * shards.c - cutting the output of a folder anew: tensors in the order of the source, as many in a
 * file as a size allows; a tensor and its parts stay together.
 */
#include "plan.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <inttypes.h>
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct qplan_entry *x = (*(struct qp_plan_tensor *const *)a)->source->entry;
    const struct qplan_entry *y = (*(struct qp_plan_tensor *const *)b)->source->entry;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x > y) - (x < y);
}

/* Bytes of all that becomes of a tensor; its stored tensors have no offsets yet. */
static uint64_t output_bytes(const struct qp_plan_tensor *t)
{
    uint64_t total = 0, n_bytes;
    for (unsigned i = 0; i < qp_plan_n_outputs(t); i++) {
        const struct qplan_entry *entry = qp_plan_output(t, i);
        (void)qp_storage_bytes((enum qplan_storage)entry->storage, qp_entry_elements(entry),
                               &n_bytes); /* known to fit: fewer than those of the source */
        total += n_bytes;
    }
    return total;
}

static void put_into(struct qplan_plan *plan, struct qp_plan_tensor *t, size_t file)
{
    for (unsigned i = 0; i < qp_plan_n_outputs(t); i++) {
        const size_t k = (size_t)(qp_plan_output(t, i) - plan->outputs);
        plan->outputs[k].file = (uint16_t)file;
    }
}

static enum qplan_status too_many(const struct qplan_plan *plan, struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                   "shards of %" PRIu64 " bytes would be more than %u: expected a larger size",
                   plan->max_shard, QP_MOST_SHARDS);
}

enum qplan_status qp_plan_cut_shards(struct qplan_plan *plan, size_t *n_files,
                                     struct qplan_error *err)
{
    struct qp_plan_tensor **order = qp_alloc(plan->n_tensors, sizeof(struct qp_plan_tensor *));
    uint64_t n_bytes = 0;
    size_t file = 0;
    if (!order)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof(struct qp_plan_tensor *));
    for (size_t i = 0; i < plan->n_tensors; i++)
        order[i] = &plan->tensors[i];
    if (plan->n_tensors > 0)
        qsort(order, plan->n_tensors, sizeof(struct qp_plan_tensor *), by_place);
    for (size_t i = 0; i < plan->n_tensors && file < QP_MOST_SHARDS; i++) {
        const uint64_t more = output_bytes(order[i]);
        if (n_bytes > 0 && more > plan->max_shard - qp_min_u64(n_bytes, plan->max_shard)) {
            file++;
            n_bytes = 0;
        }
        n_bytes += more;
        put_into(plan, order[i], file);
    }
    qp_free(order);
    *n_files = file + 1;
    return file < QP_MOST_SHARDS ? QPLAN_OK : too_many(plan, err);
}
