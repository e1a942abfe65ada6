/*
 * strips.c - the steps of a unit: bytes of the source in a tile, kernels, bytes of the
 * output. Nothing here decides what comes next.
 */
#include "strips.h"

#include "lib/model/dtype.h"
#include "on_device.h"
#include "units.h"

#include <inttypes.h>
#include <string.h>

void qp_task_prepare(struct qp_task *task, const struct qp_plan_tensor *t)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    task->kernels = qp_source_kernels(row->dtype, task->context->job->run->isa);
    task->rule = qp_code_rule(&t->scheme);
    task->quantizer = qp_quantizer(row->dtype, task->rule.type->kind, task->context->job->run->isa);
    task->form = qp_code_form(&t->scheme, task->context->job->run->isa);
    /* Under this policy a value that is not finite has ended the job before any code is made. */
    task->rule.bounded = task->context->plan->nonfinite == QPLAN_NONFINITE_ERROR;
    qp_sets_make(&task->sets, &t->scheme, t->source->shape, t->source->rank);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static enum qplan_status flush_joined(const struct qp_task *task, struct qp_joined *joined)
{
    size_t n = joined->n;
    joined->n = 0;
    return qp_out_write(task->context->out, joined->off, joined->data, n, task->err);
}

/* Room for n bytes behind what is joined; what they do not follow, or leave no room, goes first. */
static enum qplan_status join_room(const struct qp_task *task, struct qp_joined *joined,
                                   uint64_t off, size_t n)
{
    if (off != joined->off + joined->n || n > joined->cap - joined->n)
        QP_TRY(flush_joined(task, joined));
    if (joined->n == 0)
        joined->off = off;
    return QPLAN_OK;
}

static enum qplan_status join(const struct qp_task *task, struct qp_joined *joined, uint64_t off,
                              const void *bytes, size_t n)
{
    QP_TRY(join_room(task, joined, off, n));
    if (n > joined->cap)
        return qp_out_write(task->context->out, off, bytes, n, task->err);
    memcpy(joined->data + joined->n, bytes, n);
    joined->n += n;
    return QPLAN_OK;
}

/* Where bytes of an output tensor wait for what follows them in the file. */
static enum qp_joined_kind joined_kind(const struct qp_unit *unit, unsigned part)
{
    if (!unit->tensor->quantize)
        return QP_JOIN_KEPT;
    if (part == QP_SCALE)
        return QP_JOIN_SCALES;
    /* Behind the codes of a small tensor come its zero points, then the codes of the next. */
    return part == QP_ZERO_POINT && !unit->batch ? QP_JOIN_ZEROS : QP_JOIN_CODES;
}

enum qplan_status qp_task_write(const struct qp_task *task, unsigned part, uint64_t off,
                                const void *bytes, size_t n)
{
    const struct qp_unit *unit = task->unit;
    uint64_t at = task->context->plan->header_bytes + unit->tensor->outputs[part].begin + off;
    return join(task, &task->b->joined[joined_kind(unit, part)], at, bytes, n);
}

enum qplan_status qp_task_flush(const struct qp_task *task)
{
    for (int i = 0; i < QP_JOINS; i++)
        QP_TRY(flush_joined(task, &task->b->joined[i]));
    return QPLAN_OK;
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

enum qplan_status qp_task_read(struct qp_task *task)
{
    const struct qplan_entry *source = task->unit->tensor->source;
    const size_t elem_bytes = task->kernels->elem_bytes;
    const uint64_t elem = task->piece.row * task->sets.row_len + task->piece.col;
    const uint64_t off = task->st->header_bytes + source->begin + elem * elem_bytes;
    void *tile = qp_io_room(task->b->tile, off, off);
    task->src = tile;
    return qp_read_piece(task->st, source, &task->sets, &task->piece, elem_bytes, tile, task->err);
}

static struct qp_device_step device_step(const struct qp_task *task)
{
    return (struct qp_device_step){task->context->device, task->b,
                                   qp_device_work(task->unit->tensor, &task->sets, &task->piece),
                                   task->src};
}

/* The ranges of the tile, in the buffers of the worker; *others are not finite. */
static enum qplan_status compute_ranges(const struct qp_task *task, uint64_t *others)
{
    const struct qp_unit_buffers *b = task->b;
    const size_t n = qp_tile_sets(&task->piece.tile) * task->kernels->work_bytes;
    if (!b->lane) {
        memset(b->lo, 0, n);
        memset(b->hi, 0, n);
        *others = task->kernels->range(&task->piece.tile, task->src, b->lo, b->hi);
        return QPLAN_OK;
    }
    const struct qp_device_step step = device_step(task);
    struct qp_device_made made;
    QP_TRY(qp_step_ranges(&step, &made, task->err));
    memcpy(b->lo, made.lo, n);
    memcpy(b->hi, made.hi, n);
    *others = made.nonfinite;
    return QPLAN_OK;
}

/* Values that are not finite end the job, where the plan says so. */
static enum qplan_status judge_nonfinite(const struct qp_task *task, uint64_t others)
{
    if (others == 0 || task->context->plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return QPLAN_OK;
    return qp_fail_nonfinite(task->st, task->unit->tensor->source, task->b->tile,
                             task->context->job->tile_bytes, task->err);
}

enum qplan_status qp_task_ranges(const struct qp_task *task)
{
    uint64_t others;
    QP_TRY(compute_ranges(task, &others));
    return judge_nonfinite(task, others);
}

static enum qplan_status fail_scale(const struct qp_task *task, uint64_t set)
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

enum qplan_status qp_task_write_zeros(struct qp_task *task, size_t n, const int32_t *zero)
{
    uint8_t *stored = task->b->stored;
    if (task->unit->tensor->n_outputs <= QP_ZERO_POINT)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++)
        stored[i] = (uint8_t)zero[i];
    return qp_task_write(task, QP_ZERO_POINT, task->unit->strip.set, stored, n);
}

enum qplan_status qp_task_write_scales(const struct qp_task *task, size_t n, const void *scale)
{
    const enum qplan_dtype dtype = task->rule.scale_dtype;
    const size_t size = qp_float_bytes(dtype);
    task->kernels->work->store(dtype, n, scale, task->b->stored);
    return qp_task_write(task, QP_SCALE, task->unit->strip.set * size, task->b->stored, n * size);
}

enum qplan_status qp_task_params(struct qp_task *task, size_t n, const void *lo, const void *hi,
                                 void *scale, int32_t *zero)
{
    size_t good = task->quantizer->params(&task->rule, n, lo, hi, scale, zero);
    return good < n ? fail_scale(task, task->unit->strip.set + good)
                    : qp_task_write_scales(task, n, scale);
}

/* Codes that a device made: they are as the file has them. */
static enum qplan_status write_made_codes(const struct qp_task *task,
                                          const struct qp_device_made *made)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const uint64_t elem = task->piece.row * task->sets.row_len;
    if (task->unit->batch)
        return qp_task_write(task, QP_CODES, qp_code_offset(&task->sets, task->form.packed, elem),
                             made->codes, (size_t)(task->piece.n_rows * made->row_bytes));
    return qp_write_code_rows(
        task->context->out, task->context->plan->header_bytes + t->outputs[QP_CODES].begin,
        &task->sets, &task->piece, task->form.packed, made->codes, made->row_bytes, task->err);
}

enum qplan_status qp_task_write_codes(struct qp_task *task, const void *scale, const int32_t *zero)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const uint64_t off = task->context->plan->header_bytes + t->outputs[QP_CODES].begin;
    const uint64_t elem = task->piece.row * task->sets.row_len + task->piece.col;
    const uint64_t at = off + qp_code_offset(&task->sets, task->form.packed, elem);
    const size_t n = (size_t)(task->piece.n_rows * task->piece.n_cols);
    if (task->b->lane) {
        const struct qp_device_step step = device_step(task);
        struct qp_device_made made;
        QP_TRY(qp_step_codes(&step, scale, zero, &made, task->err));
        return write_made_codes(task, &made);
    }
    struct qp_joined *joined = task->unit->batch ? &task->b->joined[QP_JOIN_CODES] : NULL;
    if (joined)
        QP_TRY(join_room(task, joined, at, n));
    uint8_t *codes =
        joined ? (uint8_t *)joined->data + joined->n : qp_io_room(task->b->codes, at, at);
    task->quantizer->quantize(&task->piece.tile, task->src, &task->rule, scale, zero, codes);
    if (joined) {
        joined->n += qp_pack_codes(&task->sets, &task->form, elem, n, codes);
        return QPLAN_OK;
    }
    return qp_write_codes(task->context->out, off, &task->sets, &task->piece, &task->form, codes,
                          task->err);
}

/* ---- Strips ------------------------------------------------------------------------------------
 */

/* A strip on a device: one way there and one way back. */
static enum qplan_status quantize_on_device(const struct qp_task *task)
{
    const struct qp_device_step step = device_step(task);
    const struct qp_strip *strip = &task->unit->strip;
    const size_t size = qp_float_bytes(task->rule.scale_dtype), n = (size_t)strip->n_sets;
    struct qp_device_made made;
    QP_TRY(qp_step_quantize(&step, &made, task->err));
    QP_TRY(judge_nonfinite(task, made.nonfinite));
    if (made.bad_set != UINT64_MAX)
        return fail_scale(task, strip->set + made.bad_set);
    QP_TRY(qp_task_write(task, QP_SCALE, strip->set * size, made.stored_scale, n * size));
    QP_TRY(write_made_codes(task, &made));
    if (task->unit->tensor->n_outputs <= QP_ZERO_POINT)
        return QPLAN_OK;
    return qp_task_write(task, QP_ZERO_POINT, strip->set, made.stored_zero, n);
}

/* A strip whose elements are in memory. */
static enum qplan_status quantize_strip(struct qp_task *task)
{
    const struct qp_unit_buffers *b = task->b;
    size_t n = (size_t)task->unit->strip.n_sets;
    if (b->lane)
        return quantize_on_device(task);
    QP_TRY(qp_task_ranges(task));
    QP_TRY(qp_task_params(task, n, b->lo, b->hi, b->scale, b->zero));
    QP_TRY(qp_task_write_codes(task, b->scale, b->zero));
    return qp_task_write_zeros(task, n, b->zero); /* in the file they follow the codes */
}

void qp_strips_begin(struct qp_strips *s, const struct qp_task *from, const struct qp_unit *unit)
{
    s->task = *from;
    s->unit = *unit;
    s->task.unit = &s->unit;
    qp_task_prepare(&s->task, unit->tensor);
}

void qp_strips_set(struct qp_strips *s, uint64_t band, uint64_t col)
{
    struct qp_task *task = &s->task;
    qp_strip_at(&task->sets, &s->unit.limits, task->kernels->elem_bytes, task->form.packed, band,
                col, &s->unit.strip);
    qp_piece_at(&task->sets, &s->unit.strip, 0, &task->piece);
}

enum qplan_status qp_strips_quantize(struct qp_strips *s, const char *bytes)
{
    struct qp_task *task = &s->task;
    const size_t elem_bytes = task->kernels->elem_bytes;
    uint64_t band = s->unit.strip.band, col = s->unit.strip.col;
    bool more = true;
    for (uint64_t i = 0; i < s->unit.n_strips && more; i++) {
        qp_strips_set(s, band, col);
        if (bytes)
            task->src = bytes + task->piece.row * task->sets.row_len * elem_bytes;
        else
            QP_TRY(qp_task_read(task));
        QP_TRY(quantize_strip(task));
        more = qp_strip_next(&task->sets, &s->unit.strip, &band, &col);
    }
    return QPLAN_OK;
}
