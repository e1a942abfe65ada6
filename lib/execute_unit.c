/*
 * execute_unit.c - doing one unit of a plan: bytes of the source in a tile, kernels, bytes of the
 * output. Nothing here decides what comes next.
 */
#include "execute_unit.h"

#include "base/dtype.h"
#include "execute.h"
#include "transfer.h"

#include <inttypes.h>
#include <string.h>

/* All that the steps of a unit need to know. */
struct task {
    const struct qp_unit_context *context;
    const struct qp_unit *unit;
    const struct qp_unit_buffers *b;
    const struct qp_st *st; /* of the source */
    const struct qp_source_kernels *kernels;
    struct qp_sets sets;
    struct qp_piece piece;
    struct qp_code_rule rule;
    struct qplan_error *err;
};

static void prepare(struct task *task)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    task->kernels = qp_source_kernels(row->dtype, task->context->job->run->isa);
    task->rule = qp_code_rule(&t->scheme);
    /* Under this policy a value that is not finite has ended the job before any code is made. */
    task->rule.bounded = task->context->plan->nonfinite == QPLAN_NONFINITE_ERROR;
    qp_sets_make(&task->sets, &t->scheme, t->source->shape, t->source->rank);
    qp_piece_at(&task->sets, &task->unit->strip, task->unit->piece, &task->piece);
}

static enum qplan_status write_at(const struct task *task, unsigned part, uint64_t off,
                                  const void *bytes, size_t n)
{
    const struct qplan_entry *entry = &task->unit->tensor->outputs[part];
    return qp_out_write(task->context->out, task->context->plan->header_bytes + entry->begin + off,
                        bytes, n, task->err);
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

static enum qplan_status read_tile(struct task *task)
{
    return qp_read_piece(task->st, task->unit->tensor->source, &task->sets, &task->piece,
                         task->kernels->elem_bytes, task->b->tile, task->err);
}

static enum qplan_status find_ranges(struct task *task)
{
    const struct qp_unit_buffers *b = task->b;
    size_t n = qp_tile_sets(&task->piece.tile) * task->kernels->work_bytes;
    memset(b->lo, 0, n);
    memset(b->hi, 0, n);
    uint64_t others = task->kernels->range(&task->piece.tile, b->tile, b->lo, b->hi);
    if (others == 0 || task->context->plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return QPLAN_OK;
    return qp_fail_nonfinite(task->st, task->unit->tensor->source, b->tile,
                             task->context->job->tile_bytes, task->err);
}

static enum qplan_status fail_scale(const struct task *task, uint64_t set)
{
    char subject[512];
    const struct qp_plan_tensor *t = task->unit->tensor;
    qp_fail(task->err, QPLAN_ERR_VALUE, qp_st_subject(subject, task->st, t->source),
            "the scale of set %" PRIu64 " is too large for %s", set,
            qplan_dtype_name(t->scheme.scale_dtype));
    if (t->scheme.scale_dtype == QPLAN_F32)
        qp_hint(task->err, "--exclude keeps the tensor as it is");
    else
        qp_hint(task->err, "--scale-dtype f32 takes larger scales");
    return QPLAN_ERR_VALUE;
}

static enum qplan_status write_zeros(struct task *task, size_t n, const int32_t *zero)
{
    uint8_t *stored = task->b->stored;
    if (task->unit->tensor->n_outputs <= QP_ZERO_POINT)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++)
        stored[i] = (uint8_t)zero[i];
    return write_at(task, QP_ZERO_POINT, task->unit->strip.set, stored, n);
}

/* Finds and writes scale and zero point of the n sets of a strip. */
static enum qplan_status find_params(struct task *task, size_t n, const void *lo, const void *hi,
                                     void *scale, int32_t *zero)
{
    const struct qp_work_kernels *work = task->kernels->work;
    const enum qplan_dtype dtype = task->rule.scale_dtype;
    const size_t size = qp_float_bytes(dtype);
    size_t good = work->params(&task->rule, n, lo, hi, scale, zero);
    if (good < n)
        return fail_scale(task, task->unit->strip.set + good);
    work->store(dtype, n, scale, task->b->stored);
    QP_TRY(write_at(task, QP_SCALE, task->unit->strip.set * size, task->b->stored, n * size));
    return write_zeros(task, n, zero);
}

static enum qplan_status write_codes(struct task *task, const void *scale, const int32_t *zero)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const struct qp_code_form form = qp_code_form(&t->scheme, task->context->job->run->isa);
    uint64_t off = task->context->plan->header_bytes + t->outputs[QP_CODES].begin;
    task->kernels->quantize(&task->piece.tile, task->b->tile, &task->rule, scale, zero,
                            task->b->codes);
    return qp_write_codes(task->context->out, off, &task->sets, &task->piece, &form, task->b->codes,
                          task->err);
}

/* ---- Units -------------------------------------------------------------------------------------
 */

static enum qplan_status do_whole(struct task *task)
{
    const struct qp_unit_buffers *b = task->b;
    size_t n = (size_t)task->unit->strip.n_sets;
    QP_TRY(read_tile(task));
    QP_TRY(find_ranges(task));
    QP_TRY(find_params(task, n, b->lo, b->hi, b->scale, b->zero));
    return write_codes(task, b->scale, b->zero);
}

/* Adds the ranges of a piece to the strip's; true for the last piece, which has them all. */
static bool merge_ranges(struct task *task)
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

static enum qplan_status do_ranges(struct task *task)
{
    struct qp_job *job = task->context->job;
    struct qp_slot *slot = task->unit->slot;
    QP_TRY(read_tile(task));
    QP_TRY(find_ranges(task));
    if (!merge_ranges(task))
        return QPLAN_OK;
    QP_TRY(find_params(task, (size_t)task->unit->strip.n_sets, slot->lo, slot->hi, slot->scale,
                       slot->zero));
    (void)pthread_mutex_lock(&job->lock);
    slot->ready = true;
    (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
    return QPLAN_OK;
}

static enum qplan_status do_codes(struct task *task)
{
    struct qp_job *job = task->context->job;
    struct qp_slot *slot = task->unit->slot;
    size_t first = (size_t)task->piece.first_set;
    QP_TRY(read_tile(task));
    QP_TRY(write_codes(task, (const char *)slot->scale + first * task->kernels->work_bytes,
                       slot->zero + first));
    (void)pthread_mutex_lock(&job->lock);
    if (--slot->codes_left == 0)
        (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
    return QPLAN_OK;
}

enum qplan_status qp_copy_range(const struct qp_st *from, uint64_t from_off,
                                const struct qp_out *out, uint64_t to_off, uint64_t n, void *buffer,
                                struct qplan_error *err)
{
    QP_TRY(qp_file_read(&from->file, from_off, buffer, (size_t)n, err));
    return qp_out_write(out, to_off, buffer, (size_t)n, err);
}

static enum qplan_status do_copy(struct task *task)
{
    const struct qp_unit *unit = task->unit;
    return qp_copy_range(task->st, task->st->header_bytes + unit->tensor->source->begin + unit->off,
                         task->context->out,
                         task->context->plan->header_bytes + unit->tensor->outputs[QP_CODES].begin +
                             unit->off,
                         unit->n, task->b->tile, task->err);
}

enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              const struct qp_unit_buffers *buffers, struct qplan_error *err)
{
    struct task task = {.context = context,
                        .unit = unit,
                        .b = buffers,
                        .st = &context->plan->checkpoint->st,
                        .err = err};
    if (unit->kind == QP_UNIT_COPY)
        return do_copy(&task);
    prepare(&task);
    if (unit->kind == QP_UNIT_WHOLE)
        return do_whole(&task);
    return unit->kind == QP_UNIT_RANGES ? do_ranges(&task) : do_codes(&task);
}

uint64_t qp_unit_bytes(const struct qp_unit *unit)
{
    if (unit->kind == QP_UNIT_COPY)
        return unit->n;
    const struct qp_strip *strip = &unit->strip;
    uint64_t bits = qplan_storage_bits((enum qplan_storage)unit->tensor->source->storage);
    uint64_t bytes = strip->n_rows * strip->n_cols * (bits / 8);
    if (unit->kind == QP_UNIT_WHOLE)
        return bytes;
    /* A share of the strip; the last piece takes what the division left. */
    uint64_t passes = 2 * strip->n_pieces;
    bool is_last = unit->kind == QP_UNIT_CODES && unit->piece + 1 == strip->n_pieces;
    return is_last ? bytes - bytes / passes * (passes - 1) : bytes / passes;
}
