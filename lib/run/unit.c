/*
 * unit.c - doing one unit of a plan, step by step.
 */
#include "unit.h"

#include "strips.h"
#include "units.h"

static enum qplan_status do_whole(struct qp_task *task)
{
    struct qp_strips strips;
    qp_strips_begin(&strips, task, task->unit);
    QP_TRY(qp_strips_quantize(&strips, NULL));
    return qp_task_flush(task);
}

/* Adds the ranges of a piece to the strip's; true for the last piece, which has them all. */
static bool merge_ranges(struct qp_task *task)
{
    struct qp_slot *slot = task->unit->slot;
    size_t size = task->kernels->work_bytes, first = (size_t)task->piece.first_set;
    (void)pthread_mutex_lock(&task->context->job->lock);
    task->kernels->work->merge(qp_tile_sets(&task->piece.tile), (char *)slot->lo + first * size,
                               (char *)slot->hi + first * size, task->b->lo, task->b->hi);
    bool is_last = --slot->ranges_left == 0;
    (void)pthread_mutex_unlock(&task->context->job->lock);
    return is_last;
}

static enum qplan_status do_ranges(struct qp_task *task)
{
    struct qp_job *job = task->context->job;
    struct qp_slot *slot = task->unit->slot;
    QP_TRY(qp_task_read(task));
    QP_TRY(qp_task_ranges(task));
    if (!merge_ranges(task))
        return QPLAN_OK;
    const size_t n = (size_t)task->unit->strip.n_sets;
    QP_TRY(qp_task_params(task, n, slot->lo, slot->hi, slot->scale, slot->zero));
    QP_TRY(qp_task_write_zeros(task, n, slot->zero));
    QP_TRY(qp_task_flush(task));
    (void)pthread_mutex_lock(&job->lock);
    slot->ready = true;
    (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
    return QPLAN_OK;
}

static enum qplan_status do_codes(struct qp_task *task)
{
    struct qp_job *job = task->context->job;
    struct qp_slot *slot = task->unit->slot;
    size_t first = (size_t)task->piece.first_set;
    QP_TRY(qp_task_read(task));
    QP_TRY(qp_task_write_codes(task, (const char *)slot->scale + first * task->kernels->work_bytes,
                               slot->zero + first));
    (void)pthread_mutex_lock(&job->lock);
    if (--slot->codes_left == 0)
        (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
    return QPLAN_OK;
}

/*
 * Plain reads and writes: copy_file_range gained nothing on tmpfs and ext4, and file systems that
 * share blocks could not, because a kept tensor begins elsewhere in its block than it did. Nor did
 * setting aside the space of the output first.
 */
enum qplan_status qp_copy_range(const struct qp_st *from, uint64_t from_off,
                                const struct qp_out *out, uint64_t to_off, uint64_t n, void *buffer,
                                struct qplan_error *err)
{
    void *bytes = qp_io_room(buffer, from_off, to_off);
    QP_TRY(qp_file_read(&from->file, from_off, bytes, (size_t)n, err));
    return qp_out_write(out, to_off, bytes, (size_t)n, err);
}

static enum qplan_status do_copy(struct qp_task *task)
{
    const struct qp_unit *unit = task->unit;
    return qp_copy_range(task->st, task->st->header_bytes + unit->tensor->source->begin + unit->off,
                         task->context->out,
                         task->context->plan->header_bytes + unit->tensor->outputs[QP_CODES].begin +
                             unit->off,
                         unit->n, task->b->tile, task->err);
}

enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              struct qp_unit_buffers *buffers, struct qplan_error *err)
{
    struct qp_task task = {.context = context,
                           .unit = unit,
                           .b = buffers,
                           .st = &context->plan->checkpoint->st,
                           .err = err};
    if (unit->kind == QP_UNIT_BATCH)
        return qp_batch_run(&task);
    if (unit->kind == QP_UNIT_COPY)
        return do_copy(&task);
    if (unit->kind == QP_UNIT_WHOLE)
        return do_whole(&task);
    qp_task_prepare(&task, unit->tensor);
    qp_piece_at(&task.sets, &unit->strip, unit->piece, &task.piece);
    return unit->kind == QP_UNIT_RANGES ? do_ranges(&task) : do_codes(&task);
}

uint64_t qp_unit_bytes(const struct qp_unit *unit)
{
    if (unit->kind == QP_UNIT_COPY || unit->kind == QP_UNIT_WHOLE)
        return unit->n;
    if (unit->kind == QP_UNIT_BATCH)
        return unit->batch[unit->n_batch - 1]->source->end - unit->batch[0]->source->begin;
    const struct qp_strip *strip = &unit->strip;
    uint64_t bits = qplan_storage_bits((enum qplan_storage)unit->tensor->source->storage);
    uint64_t bytes = strip->n_rows * strip->n_cols * (bits / 8);
    /* A share of the strip; the last piece takes what the division left. */
    uint64_t passes = 2 * strip->n_pieces;
    bool is_last = unit->kind == QP_UNIT_CODES && unit->piece + 1 == strip->n_pieces;
    return is_last ? bytes - bytes / passes * (passes - 1) : bytes / passes;
}
