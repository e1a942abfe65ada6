/*
 * execute_unit.c - doing one unit of a plan: bytes of the source in a tile, kernels, bytes of the
 * output. Nothing here decides what comes next.
 */
#include "execute_unit.h"

#include "base/dtype.h"
#include "execute.h"
#include "execute_device.h"
#include "transfer.h"

#include <inttypes.h>
#include <string.h>

/* All that the steps of a unit need to know. */
struct task {
    const struct qp_unit_context *context;
    const struct qp_unit *unit;
    struct qp_unit_buffers *b;
    const void *src;        /* the elements of the piece */
    const struct qp_st *st; /* of the source */
    const struct qp_source_kernels *kernels;
    struct qp_sets sets;
    struct qp_piece piece;
    struct qp_code_rule rule;
    struct qp_code_form form;
    struct qplan_error *err;
};

static void prepare(struct task *task, const struct qp_plan_tensor *t)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    task->kernels = qp_source_kernels(row->dtype, task->context->job->run->isa);
    task->rule = qp_code_rule(&t->scheme);
    task->form = qp_code_form(&t->scheme, task->context->job->run->isa);
    /* Under this policy a value that is not finite has ended the job before any code is made. */
    task->rule.bounded = task->context->plan->nonfinite == QPLAN_NONFINITE_ERROR;
    qp_sets_make(&task->sets, &t->scheme, t->source->shape, t->source->rank);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static enum qplan_status flush_joined(const struct task *task, struct qp_joined *joined)
{
    size_t n = joined->n;
    joined->n = 0;
    return qp_out_write(task->context->out, joined->off, joined->data, n, task->err);
}

/* Room for n bytes behind what is joined; what they do not follow, or leave no room, goes first. */
static enum qplan_status join_room(const struct task *task, struct qp_joined *joined, uint64_t off,
                                   size_t n)
{
    if (off != joined->off + joined->n || n > joined->cap - joined->n)
        QP_TRY(flush_joined(task, joined));
    if (joined->n == 0)
        joined->off = off;
    return QPLAN_OK;
}

static enum qplan_status join(const struct task *task, struct qp_joined *joined, uint64_t off,
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

/* Bytes of an output tensor, together with what follows. */
static enum qplan_status write_at(const struct task *task, unsigned part, uint64_t off,
                                  const void *bytes, size_t n)
{
    const struct qp_unit *unit = task->unit;
    uint64_t at = task->context->plan->header_bytes + unit->tensor->outputs[part].begin + off;
    return join(task, &task->b->joined[joined_kind(unit, part)], at, bytes, n);
}

static enum qplan_status flush_all(const struct task *task)
{
    for (int i = 0; i < QP_JOINS; i++)
        QP_TRY(flush_joined(task, &task->b->joined[i]));
    return QPLAN_OK;
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

static enum qplan_status read_tile(struct task *task)
{
    const struct qplan_entry *source = task->unit->tensor->source;
    const size_t elem_bytes = task->kernels->elem_bytes;
    const uint64_t elem = task->piece.row * task->sets.row_len + task->piece.col;
    const uint64_t off = task->st->header_bytes + source->begin + elem * elem_bytes;
    void *tile = qp_io_room(task->b->tile, off, off);
    task->src = tile;
    return qp_read_piece(task->st, source, &task->sets, &task->piece, elem_bytes, tile, task->err);
}

static struct qp_device_step device_step(const struct task *task)
{
    return (struct qp_device_step){task->context->device, task->b,
                                   qp_device_work(task->unit->tensor, &task->sets, &task->piece),
                                   task->src};
}

/* The ranges of the tile, in the buffers of the worker; *others are not finite. */
static enum qplan_status compute_ranges(const struct task *task, uint64_t *others)
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
static enum qplan_status judge_nonfinite(const struct task *task, uint64_t others)
{
    if (others == 0 || task->context->plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return QPLAN_OK;
    return qp_fail_nonfinite(task->st, task->unit->tensor->source, task->b->tile,
                             task->context->job->tile_bytes, task->err);
}

static enum qplan_status find_ranges(const struct task *task)
{
    uint64_t others;
    QP_TRY(compute_ranges(task, &others));
    return judge_nonfinite(task, others);
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

static enum qplan_status write_scales(const struct task *task, size_t n, const void *scale)
{
    const enum qplan_dtype dtype = task->rule.scale_dtype;
    const size_t size = qp_float_bytes(dtype);
    task->kernels->work->store(dtype, n, scale, task->b->stored);
    return write_at(task, QP_SCALE, task->unit->strip.set * size, task->b->stored, n * size);
}

/* Finds scale and zero point of the n sets of a strip, and writes the scales. */
static enum qplan_status find_params(struct task *task, size_t n, const void *lo, const void *hi,
                                     void *scale, int32_t *zero)
{
    size_t good = task->kernels->work->params(&task->rule, n, lo, hi, scale, zero);
    return good < n ? fail_scale(task, task->unit->strip.set + good) : write_scales(task, n, scale);
}

/* Codes that a device made: they are as the file has them. */
static enum qplan_status write_made_codes(const struct task *task,
                                          const struct qp_device_made *made)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const uint64_t elem = task->piece.row * task->sets.row_len;
    if (task->unit->batch)
        return write_at(task, QP_CODES, qp_code_offset(&task->sets, task->form.packed, elem),
                        made->codes, (size_t)(task->piece.n_rows * made->row_bytes));
    return qp_write_code_rows(
        task->context->out, task->context->plan->header_bytes + t->outputs[QP_CODES].begin,
        &task->sets, &task->piece, task->form.packed, made->codes, made->row_bytes, task->err);
}

static enum qplan_status write_codes(struct task *task, const void *scale, const int32_t *zero)
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
    task->kernels->quantize(&task->piece.tile, task->src, &task->rule, scale, zero, codes);
    if (joined) {
        joined->n += qp_pack_codes(&task->sets, &task->form, elem, n, codes);
        return QPLAN_OK;
    }
    return qp_write_codes(task->context->out, off, &task->sets, &task->piece, &task->form, codes,
                          task->err);
}

/* ---- Units -------------------------------------------------------------------------------------
 */

/* A strip on a device: one way there and one way back. */
static enum qplan_status quantize_on_device(const struct task *task)
{
    const struct qp_device_step step = device_step(task);
    const struct qp_strip *strip = &task->unit->strip;
    const size_t size = qp_float_bytes(task->rule.scale_dtype), n = (size_t)strip->n_sets;
    struct qp_device_made made;
    QP_TRY(qp_step_quantize(&step, &made, task->err));
    QP_TRY(judge_nonfinite(task, made.nonfinite));
    if (made.bad_set != UINT64_MAX)
        return fail_scale(task, strip->set + made.bad_set);
    QP_TRY(write_at(task, QP_SCALE, strip->set * size, made.stored_scale, n * size));
    QP_TRY(write_made_codes(task, &made));
    if (task->unit->tensor->n_outputs <= QP_ZERO_POINT)
        return QPLAN_OK;
    return write_at(task, QP_ZERO_POINT, strip->set, made.stored_zero, n);
}

/* A strip whose elements are in memory. */
static enum qplan_status quantize_strip(struct task *task)
{
    const struct qp_unit_buffers *b = task->b;
    size_t n = (size_t)task->unit->strip.n_sets;
    if (b->lane)
        return quantize_on_device(task);
    QP_TRY(find_ranges(task));
    QP_TRY(find_params(task, n, b->lo, b->hi, b->scale, b->zero));
    QP_TRY(write_codes(task, b->scale, b->zero));
    return write_zeros(task, n, b->zero); /* in the file they follow the codes */
}

/* A unit whose strips are done one after the other, and where its task is. */
struct strips {
    struct task task;
    struct qp_unit unit; /* with the strip at hand */
};

static void begin_strips(struct strips *s, const struct task *from, const struct qp_unit *unit)
{
    s->task = *from;
    s->unit = *unit;
    s->task.unit = &s->unit;
    prepare(&s->task, unit->tensor);
}

static void next_strip(struct strips *s, uint64_t band, uint64_t col)
{
    struct task *task = &s->task;
    qp_strip_at(&task->sets, &s->unit.limits, task->kernels->elem_bytes, task->form.packed, band,
                col, &s->unit.strip);
    qp_piece_at(&task->sets, &s->unit.strip, 0, &task->piece);
}

/*
 * Their elements are in memory, behind each other from bytes on, or are read for each strip where
 * bytes is NULL.
 */
static enum qplan_status quantize_strips(struct strips *s, const char *bytes)
{
    struct task *task = &s->task;
    const size_t elem_bytes = task->kernels->elem_bytes;
    uint64_t band = s->unit.strip.band, col = s->unit.strip.col;
    bool more = true;
    for (uint64_t i = 0; i < s->unit.n_strips && more; i++) {
        next_strip(s, band, col);
        if (bytes)
            task->src = bytes + task->piece.row * task->sets.row_len * elem_bytes;
        else
            QP_TRY(read_tile(task));
        QP_TRY(quantize_strip(task));
        more = qp_strip_next(&task->sets, &s->unit.strip, &band, &col);
    }
    return QPLAN_OK;
}

static enum qplan_status do_whole(struct task *task)
{
    struct strips strips;
    begin_strips(&strips, task, task->unit);
    QP_TRY(quantize_strips(&strips, NULL));
    return flush_all(task);
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
    const size_t n = (size_t)task->unit->strip.n_sets;
    QP_TRY(find_params(task, n, slot->lo, slot->hi, slot->scale, slot->zero));
    QP_TRY(write_zeros(task, n, slot->zero));
    QP_TRY(flush_all(task));
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

static enum qplan_status do_copy(struct task *task)
{
    const struct qp_unit *unit = task->unit;
    return qp_copy_range(task->st, task->st->header_bytes + unit->tensor->source->begin + unit->off,
                         task->context->out,
                         task->context->plan->header_bytes + unit->tensor->outputs[QP_CODES].begin +
                             unit->off,
                         unit->n, task->b->tile, task->err);
}

/* Whether the sets of b follow those of a in both files, as if they were of one tensor. */
static bool sets_go_on(const struct qp_plan_tensor *a, const struct qp_plan_tensor *b)
{
    return b->quantize && b->source->begin == a->source->end &&
           b->outputs[QP_SCALE].begin == a->outputs[QP_SCALE].end && qp_plan_alike(a, b);
}

/* How many of n tensors, from that of the task on, do so in one row. A device takes one by one. */
static size_t count_joined(const struct task *task, const struct qp_plan_tensor *const *tensors,
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
static bool join_params(const struct task *task, size_t n_tensors, const char *bytes)
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
static enum qplan_status write_joined(struct strips *s, const struct qp_plan_tensor *const *tensors,
                                      size_t n, const char *bytes)
{
    struct task *task = &s->task;
    const struct qp_unit_buffers *b = task->b;
    const size_t n_sets = (size_t)task->sets.n_sets, work_bytes = task->kernels->work_bytes;
    const size_t n_bytes = (size_t)task->sets.n_elems * task->kernels->elem_bytes;
    QP_TRY(write_scales(task, n * n_sets, b->scale));
    for (size_t i = 0; i < n; i++) {
        const int32_t *zero = b->zero + i * n_sets;
        s->unit.tensor = tensors[i];
        task->src = bytes + i * n_bytes;
        QP_TRY(write_codes(task, (const char *)b->scale + i * n_sets * work_bytes, zero));
        QP_TRY(write_zeros(task, n_sets, zero));
    }
    return QPLAN_OK;
}

/* A tensor of a batch: small enough that every strip is whole bands, one behind the other. */
static void begin_small(struct strips *s, const struct task *batch, const struct qp_plan_tensor *t)
{
    const struct qp_job *job = batch->context->job;
    const size_t elem_bytes = qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
    const uint64_t n_elems = job->tile_bytes / elem_bytes;
    const struct qp_unit unit = {.kind = QP_UNIT_WHOLE,
                                 .tensor = t,
                                 .batch = batch->unit->batch,
                                 .limits = {n_elems, job->tile_bytes / 64, n_elems},
                                 .n_strips = UINT64_MAX};
    begin_strips(s, batch, &unit);
    next_strip(s, 0, 0);
}

/* The first of n tensors, or as many as are joined to it: *n_done. */
static enum qplan_status quantize_small(const struct task *batch,
                                        const struct qp_plan_tensor *const *tensors, size_t n,
                                        const char *bytes, size_t *n_done)
{
    const uint64_t begin = tensors[0]->source->begin;
    struct strips strips;
    begin_small(&strips, batch, tensors[0]);
    *n_done = count_joined(&strips.task, tensors, n);
    if (*n_done > 1 && join_params(&strips.task, *n_done, bytes))
        return write_joined(&strips, tensors, *n_done, bytes);
    for (size_t i = 0; i < *n_done; i++) {
        begin_small(&strips, batch, tensors[i]);
        QP_TRY(quantize_strips(&strips, bytes + (tensors[i]->source->begin - begin)));
    }
    return QPLAN_OK;
}

static enum qplan_status keep_small(const struct task *batch, const struct qp_plan_tensor *t,
                                    const char *bytes)
{
    const struct qp_unit unit = {.kind = QP_UNIT_COPY, .tensor = t, .batch = batch->unit->batch};
    struct task task = *batch;
    task.unit = &unit;
    return write_at(&task, 0, 0, bytes, (size_t)(t->source->end - t->source->begin));
}

/* Tensors follow each other without a hole in the source, so one read gets n of them. */
static enum qplan_status do_tensors(struct task *task, const struct qp_plan_tensor *const *tensors,
                                    size_t n)
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

static enum qplan_status do_batch(struct task *task)
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
    return flush_all(task);
}

enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              struct qp_unit_buffers *buffers, struct qplan_error *err)
{
    struct task task = {.context = context,
                        .unit = unit,
                        .b = buffers,
                        .st = &context->plan->checkpoint->st,
                        .err = err};
    if (unit->kind == QP_UNIT_BATCH)
        return do_batch(&task);
    if (unit->kind == QP_UNIT_COPY)
        return do_copy(&task);
    if (unit->kind == QP_UNIT_WHOLE)
        return do_whole(&task);
    prepare(&task, unit->tensor);
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
