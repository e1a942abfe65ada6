/*
 * offsets.c - a job over the values of all tensors whose scales have scales. It keeps one exact sum
 * for each of them: an order does not matter to it.
 */
#include "offsets.h"

#include "job.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/exact.h"
#include "lib/model/dtype.h"
#include "source_values.h"

struct item {
    const struct qp_plan_tensor *tensor;
    struct qp_exact sum; /* of the largest sizes of its sets */
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    const struct qplan_plan *plan;
    struct item *items; /* in the order of names */
    size_t n_items;
    struct qp_flat flat;
};

/* Layouts that have such scales have groups of no fewer elements. */
#define LEAST_GROUP 32

struct buffers {
    void *tile;
    float *lo, *hi; /* of sets; such tensors are computed in f32 */
    struct qp_exact *sum;
    struct qp_value_room values;
};

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

/* ---- Sums --------------------------------------------------------------------------------------
 */

static void carve(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                  void *buffers)
{
    const struct engine *e = (const struct engine *)job;
    struct buffers *b = buffers;
    const size_t n_sets = tile_bytes / sizeof(double) / LEAST_GROUP;
    b->tile = qp_take(carve, tile_bytes + QP_IO_SPARE);
    b->lo = qp_take(carve, n_sets * sizeof *b->lo);
    b->hi = qp_take(carve, n_sets * sizeof *b->hi);
    b->sum = qp_take(carve, sizeof *b->sum);
    if (e->plan->checkpoint->is_decoded)
        qp_values_carve(carve, tile_bytes, &b->values);
}

/* Units of whole blocks, as ranges that are decoded begin with one, and of whole groups: the
 * lengths of both are powers of two. */
static uint64_t length(const void *ctx, size_t item, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct qp_plan_tensor *t = e->items[item].tensor;
    const uint64_t whole = qp_max_u64(QP_BLOCK, t->result.scheme->group);
    uint64_t n;
    (void)qp_shape_elements(t->source->shape, t->source->rank, &n); /* known not to overflow */
    *unit_length = e->job.tile_bytes / sizeof(double) / whole * whole;
    return n;
}

static enum qplan_status see(struct engine *e, const struct qp_flat_unit *unit, struct buffers *b,
                             struct qplan_error *err)
{
    struct item *item = &e->items[unit->item];
    const struct qp_tensor *source = item->tensor->source;
    const struct qp_source_kernels *k = qp_source_kernels(
        qp_storage_row((enum qplan_storage)source->storage)->dtype, e->job.run->isa);
    const struct qp_values values = {&e->plan->checkpoint->source, source, e->job.run->isa,
                                     &b->values};
    const size_t n = (size_t)unit->n, group = (size_t)item->tensor->result.scheme->group;
    const struct qp_tile tile = {.rows = 1, .cols = n, .band_rows = 1, .col_width = group};
    const size_t n_sets = qp_tile_sets(&tile);
    void *src = qp_source_room(values.source, source->entry, unit->pos * k->elem_bytes, b->tile);
    QP_TRY(qp_values_read(&values, unit->pos, unit->n, src, err));
    for (size_t i = 0; i < n_sets; i++)
        b->lo[i] = b->hi[i] = 0;
    (void)k->range(&tile, src, b->lo, b->hi); /* the pass that makes codes judges the others */
    *b->sum = (struct qp_exact){.n_added = 0};
    for (size_t i = 0; i < n_sets; i++)
        qp_exact_add(b->sum, (double)(-b->lo[i] > b->hi[i] ? -b->lo[i] : b->hi[i]));
    (void)pthread_mutex_lock(&e->job.lock);
    qp_exact_merge(&item->sum, b->sum);
    (void)pthread_mutex_unlock(&e->job.lock);
    qp_job_advance(&e->job, unit->n * k->elem_bytes);
    return QPLAN_OK;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit unit;
    if (!qp_flat_claim(job, &e->flat, &unit))
        return false;
    if (see(e, &unit, buffers, err) != QPLAN_OK)
        qp_job_fail(job, unit.number, err);
    return true;
}

/* ---- Offsets -----------------------------------------------------------------------------------
 */

static float offset_of(const struct item *item)
{
    struct qp_sets sets;
    qp_tensor_sets(&sets, &item->tensor->result);
    const float mean = (float)(qp_exact_value(&item->sum) / (double)sets.n_sets);
    return mean > 0 ? mean : 0x1p-149f;
}

static enum qplan_status run_job(struct engine *e, float *offsets, const struct qplan_run *run,
                                 struct qplan_error *err)
{
    static const struct qp_job_ops ops = {
        .buffers_size = sizeof(struct buffers), .carve = carve, .step = step};
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < e->n_items; i++)
        n_bytes += qp_tensor_bytes(e->items[i].tensor->source);
    e->flat = (struct qp_flat){.ctx = e, .n_items = e->n_items, .length = length};
    QP_TRY(qp_job_run(&e->job, &ops, run, n_bytes, err));
    for (size_t i = 0; i < e->n_items; i++)
        offsets[e->items[i].tensor - e->plan->tensors] = offset_of(&e->items[i]);
    return QPLAN_OK;
}

static bool has_offset(const struct qp_plan_tensor *t)
{
    return qp_is_quantized(t) && t->result.scheme->nested;
}

static size_t count_offsets(const struct qplan_plan *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++)
        n += has_offset(&plan->tensors[i]);
    return n;
}

static enum qplan_status find(struct engine *e, float *offsets, const struct qplan_run *run,
                              struct qplan_error *err)
{
    for (size_t i = 0; i < e->plan->n_tensors; i++) {
        if (has_offset(&e->plan->tensors[i]))
            e->items[e->n_items++].tensor = &e->plan->tensors[i];
    }
    return run_job(e, offsets, run, err);
}

enum qplan_status qp_find_offsets(float **offsets, const struct qplan_plan *plan,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    const size_t n = count_offsets(plan);
    *offsets = NULL;
    if (n == 0)
        return QPLAN_OK;
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "offsets", sizeof *e);
    e->plan = plan;
    e->items = qp_alloc(n, sizeof *e->items);
    *offsets = qp_alloc(plan->n_tensors, sizeof **offsets);
    const enum qplan_status status = e->items && *offsets
                                         ? find(e, *offsets, run, err)
                                         : qp_fail_memory(err, "offsets", n * sizeof *e->items);
    qp_free(e->items);
    qp_free(e);
    if (status != QPLAN_OK) {
        qp_free(*offsets);
        *offsets = NULL;
    }
    return status;
}

/* ---- Writing -----------------------------------------------------------------------------------
 */

/* The layout makes the text again, now with the offset: parts are in the same order. */
static enum qplan_status write_text(const struct qplan_plan *plan, const struct qp_tensor *result,
                                    float offset, const struct qp_outs *outs,
                                    struct qplan_error *err)
{
    struct qp_arena arena = {0};
    struct qp_part parts[QP_MOST_PARTS];
    struct qplan_entry entries[QP_MOST_PARTS];
    struct qp_tensor with_offset = *result;
    with_offset.offset = offset;
    const unsigned n = plan->format->parts(&with_offset, &arena, parts, entries);
    enum qplan_status status = n > 0 ? QPLAN_OK : qp_fail_memory(err, "offsets", sizeof parts);
    for (unsigned i = 0; i < n && status == QPLAN_OK; i++) {
        const struct qplan_entry *entry = result->parts[i].entry;
        if (parts[i].is_text)
            status = qp_outs_write(outs, entry, 0, parts[i].bytes,
                                   (size_t)(entry->end - entry->begin), err);
    }
    qp_arena_free(&arena);
    return status;
}

enum qplan_status qp_write_offsets(const float *offsets, const struct qplan_plan *plan,
                                   const struct qp_outs *outs, struct qplan_error *err)
{
    for (size_t i = 0; offsets && i < plan->n_tensors; i++) {
        if (has_offset(&plan->tensors[i]))
            QP_TRY(write_text(plan, &plan->tensors[i].result, offsets[i], outs, err));
    }
    return QPLAN_OK;
}
