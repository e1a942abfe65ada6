/*
 * batch.c - a unit of many small tensors that follow each other: one read for some of them, and one
 * write of what they become.
 */
#include "strips.h"

/* A tensor of a batch: small enough that every strip is whole bands, one behind the other. */
static enum qplan_status quantize_small(const struct qp_worker *batch,
                                        const struct qp_plan_tensor *t, const char *bytes)
{
    const size_t tile_bytes = batch->context->job->tile_bytes;
    const uint64_t n_elems = tile_bytes / qp_source_elem_bytes(t);
    const struct qp_unit unit = {
        .kind = QP_UNIT_WHOLE,
        .tensor = t,
        .batch = batch->unit->batch,
        .limits = {.elems = n_elems, .sets = tile_bytes / 64, .apart = n_elems, .cached = n_elems},
        .n_strips = UINT64_MAX};
    return qp_quantize_strips(batch, &unit, bytes);
}

static enum qplan_status keep_small(const struct qp_worker *batch, const struct qp_plan_tensor *t,
                                    const char *bytes)
{
    struct qp_worker w = *batch;
    return qp_worker_write(&w, QP_JOIN_KEPT, t->result.entry, 0, bytes,
                           (size_t)qp_tensor_bytes(t->source));
}

/* Tensors follow each other without a hole in the source, so one read gets n of them. */
static enum qplan_status do_tensors(struct qp_worker *w,
                                    const struct qp_plan_tensor *const *tensors, size_t n)
{
    const struct qp_source *source = &w->context->plan->checkpoint->source;
    const struct qplan_entry *first = qp_source_entry(tensors[0]);
    const uint64_t n_bytes = qp_source_entry(tensors[n - 1])->end - first->begin;
    char *tile = qp_source_room(source, first, 0, w->b->tile);
    QP_TRY(qp_source_read(source, first, 0, tile, (size_t)n_bytes, w->err));
    for (size_t i = 0; i < n; i++) {
        const char *bytes = tile + (qp_source_entry(tensors[i])->begin - first->begin);
        QP_TRY((qp_is_quantized(tensors[i]) ? quantize_small : keep_small)(w, tensors[i], bytes));
    }
    return QPLAN_OK;
}

enum qplan_status qp_run_batch(struct qp_worker *w)
{
    const struct qp_unit *unit = w->unit;
    size_t first = 0;
    for (size_t i = 0; i < unit->n_batch; i++) {
        const bool is_last = i + 1 == unit->n_batch;
        const uint64_t begin = qp_source_entry(unit->batch[first])->begin;
        if (is_last || qp_source_entry(unit->batch[i + 1])->end - begin > unit->n) {
            QP_TRY(do_tensors(w, unit->batch + first, i + 1 - first));
            first = i + 1;
        }
    }
    return qp_worker_flush(w);
}
