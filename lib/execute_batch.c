/*
 * execute_batch.c - a unit of many small tensors that follow each other: one read for some of them,
 * and one write of what they become.
 */
#include "execute_task.h"

#include <string.h>

/* Whether the sets of b follow those of a in both files, as if they were of one tensor. */
static bool sets_go_on(const struct qp_plan_tensor *a, const struct qp_plan_tensor *b)
{
    return qp_plan_alike(a, b) && b->source->begin == a->source->end &&
           b->outputs[QP_SCALE].begin == a->outputs[QP_SCALE].end;
}

/* How many of n tensors, from that of the task on, do so in one row. A device takes one by one. */
static size_t count_joined(const struct qp_task *task, const struct qp_plan_tensor *const *tensors,
                           size_t n)
{
    const uint64_t most = task->unit->limits.sets / task->sets.n_sets;
    const bool can_join = !task->b->lane && qp_sets_are_flat(&task->sets) &&
                          task->unit->strip.n_sets == task->sets.n_sets;
    size_t joined = 1;
    while (can_join && joined < n && joined < most &&
           sets_go_on(tensors[joined - 1], tensors[joined]))
        joined++;
    return joined;
}

/* Their ranges and parameters at once; false where there is something to say of one of them. */
static bool join_params(const struct qp_task *task, size_t n_tensors, const char *bytes)
{
    const struct qp_unit_buffers *b = task->b;
    const size_t n = n_tensors * (size_t)task->sets.n_sets;
    const struct qp_tile all = {.rows = 1,
                                .cols = n_tensors * (size_t)task->sets.n_elems,
                                .band_rows = 1,
                                .col_width = (size_t)task->sets.col_width};
    memset(b->lo, 0, n * task->kernels->work_bytes);
    memset(b->hi, 0, n * task->kernels->work_bytes);
    return task->kernels->range(&all, bytes, b->lo, b->hi) == 0 &&
           task->kernels->work->params(&task->rule, n, b->lo, b->hi, b->scale, b->zero) == n;
}

/* Tensors that join_params has done: their scales, which follow each other, then all else of each.
 */
static enum qplan_status write_joined(struct qp_strips *s,
                                      const struct qp_plan_tensor *const *tensors, size_t n,
                                      const char *bytes)
{
    struct qp_task *task = &s->task;
    const struct qp_unit_buffers *b = task->b;
    const size_t n_sets = (size_t)task->sets.n_sets, work_bytes = task->kernels->work_bytes;
    const size_t n_bytes = (size_t)task->sets.n_elems * task->kernels->elem_bytes;
    QP_TRY(qp_task_write_scales(task, n * n_sets, b->scale));
    for (size_t i = 0; i < n; i++) {
        const int32_t *zero = b->zero + i * n_sets;
        s->unit.tensor = tensors[i];
        task->src = bytes + i * n_bytes;
        QP_TRY(qp_task_write_codes(task, (const char *)b->scale + i * n_sets * work_bytes, zero));
        QP_TRY(qp_task_write_zeros(task, n_sets, zero));
    }
    return QPLAN_OK;
}

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

/* The first of n tensors, or as many as are joined to it: *n_done. */
static enum qplan_status quantize_small(const struct qp_task *batch,
                                        const struct qp_plan_tensor *const *tensors, size_t n,
                                        const char *bytes, size_t *n_done)
{
    const uint64_t begin = tensors[0]->source->begin;
    struct qp_strips strips;
    begin_small(&strips, batch, tensors[0]);
    *n_done = count_joined(&strips.task, tensors, n);
    if (*n_done > 1 && join_params(&strips.task, *n_done, bytes))
        return write_joined(&strips, tensors, *n_done, bytes);
    for (size_t i = 0; i < *n_done; i++) {
        if (i > 0)
            begin_small(&strips, batch, tensors[i]);
        QP_TRY(qp_strips_quantize(&strips, bytes + (tensors[i]->source->begin - begin)));
    }
    return QPLAN_OK;
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
    for (size_t i = 0, done = 1; i < n; i += done) {
        const struct qp_plan_tensor *t = tensors[i];
        const char *bytes = tile + (t->source->begin - begin);
        if (t->quantize) {
            QP_TRY(quantize_small(task, tensors + i, n - i, bytes, &done));
        } else {
            QP_TRY(keep_small(task, t, bytes));
            done = 1;
        }
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
