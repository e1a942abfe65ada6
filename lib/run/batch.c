/*
 * batch.c - a unit of many small tensors that follow each other: one read for some of them,
 * and one write of what they become.
 */
#include "strips.h"

/* A tensor of a batch: small enough that every strip is whole bands, one behind the other. */
static void begin_small(struct qp_strips *s, const struct qp_task *batch,
                        const struct qp_plan_tensor *t)
{
    const struct qp_job *job = batch->context->job;
    const size_t elem_bytes = qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
    const uint64_t n_elems = job->tile_bytes / elem_bytes;
    const struct qp_unit unit = {.kind = QP_UNIT_WHOLE,
                                 .tensor = t,
                                 .batch = batch->unit->batch,
                                 .limits = {n_elems, job->tile_bytes / 64, n_elems, n_elems},
                                 .n_strips = UINT64_MAX};
    qp_strips_begin(s, batch, &unit);
    qp_strips_set(s, 0, 0);
}

static enum qplan_status quantize_small(const struct qp_task *batch, const struct qp_plan_tensor *t,
                                        const char *bytes)
{
    struct qp_strips strips;
    begin_small(&strips, batch, t);
    return qp_strips_quantize(&strips, bytes);
}

static enum qplan_status keep_small(const struct qp_task *batch, const struct qp_plan_tensor *t,
                                    const char *bytes)
{
    const struct qp_unit unit = {.kind = QP_UNIT_COPY, .tensor = t, .batch = batch->unit->batch};
    struct qp_task task = *batch;
    task.unit = &unit;
    return qp_task_write(&task, 0, 0, bytes, (size_t)(t->source->end - t->source->begin));
}

/* Tensors follow each other without a hole in the source, so one read gets n of them. */
static enum qplan_status do_tensors(struct qp_task *task,
                                    const struct qp_plan_tensor *const *tensors, size_t n)
{
    const uint64_t begin = tensors[0]->source->begin, end = tensors[n - 1]->source->end;
    const uint64_t off = task->st->header_bytes + begin;
    char *tile = qp_io_room(task->b->tile, off, off);
    QP_TRY(qp_file_read(&task->st->file, off, tile, (size_t)(end - begin), task->err));
    for (size_t i = 0; i < n; i++) {
        const struct qp_plan_tensor *t = tensors[i];
        const char *bytes = tile + (t->source->begin - begin);
        QP_TRY((t->quantize ? quantize_small : keep_small)(task, t, bytes));
    }
    return QPLAN_OK;
}

enum qplan_status qp_batch_run(struct qp_task *task)
{
    const struct qp_unit *unit = task->unit;
    size_t first = 0;
    for (size_t i = 0; i < unit->n_batch; i++) {
        const bool is_last = i + 1 == unit->n_batch;
        const uint64_t begin = unit->batch[first]->source->begin;
        if (is_last || unit->batch[i + 1]->source->end - begin > unit->n) {
            QP_TRY(do_tensors(task, unit->batch + first, i + 1 - first));
            first = i + 1;
        }
    }
    return qp_task_flush(task);
}
