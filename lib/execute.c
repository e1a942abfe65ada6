/*
 * execute.c - running a plan.
 *
 * Workers claim units in file order and do each alone: read, ranges, parameters, codes, write, in
 * buffers of their own that never grow. A strip that does not fit a tile becomes two rows of units:
 * first those that find its ranges, then those that write its codes, which wait for the parameters.
 * The bytes written do not depend on who does which unit, nor on the size of a tile.
 */
#include "execute.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/pool.h"
#include "job.h"
#include "transfer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum kind { COPY, WHOLE, RANGES, CODES };

/* The parameters of a strip that is read twice, shared by its units. */
struct slot {
    void *lo, *hi, *scale;
    int32_t *zero;
    uint64_t ranges_left, codes_left; /* units that have not ended */
    bool ready;                       /* scale and zero are final */
};

struct unit {
    uint64_t number;
    enum kind kind;
    const struct qp_plan_tensor *tensor;
    struct qp_strip strip;
    uint64_t piece;    /* of the strip */
    uint64_t off, n;   /* COPY: bytes of the tensor */
    struct slot *slot; /* RANGES, CODES */
};

/* Where the next unit comes from. */
struct cursor {
    size_t tensor; /* in order[] */
    bool inside;   /* the strip or copy position below belongs to that tensor */
    uint64_t copied, band, col;
    struct qp_strip strip;
    enum kind kind;
    uint64_t piece;
    uint64_t number;
    unsigned n_slots_used;
    struct slot *slot;
};

struct engine {
    struct qp_job job;
    const struct qplan_plan *plan;
    const struct qp_st *st;
    const struct qp_out *out;
    const struct qp_plan_tensor **order; /* tensors with bytes, in file order */
    size_t n_order;
    struct qp_sets sets; /* of the cursor's tensor */
    struct qp_limits limits;
    struct cursor cursor;
    struct slot slots[2]; /* one being finished while the next begins */
};

/* The buffers of one worker. */
struct buffers {
    void *tile;
    uint8_t *codes;
    void *lo, *hi, *scale;
    int32_t *zero;
    void *stored; /* scales or zero points as they are written */
};

/* ---- Memory ------------------------------------------------------------------------------------
 */

static uint64_t sets_of_tile(size_t tile_bytes)
{
    return tile_bytes / 64;
}

/* Counted as if every worker had slots: simpler, and never too little. */
static uint64_t worker_bytes(size_t tile_bytes)
{
    uint64_t set_bytes = 3 * sizeof(double) + sizeof(int32_t);
    return tile_bytes + tile_bytes / 2 + sets_of_tile(tile_bytes) * (3 * set_bytes + 4);
}

static bool alloc_sets(size_t n, void **lo, void **hi, void **scale, int32_t **zero)
{
    *lo = qp_alloc_buffer(n * sizeof(double));
    *hi = qp_alloc_buffer(n * sizeof(double));
    *scale = qp_alloc_buffer(n * sizeof(double));
    *zero = qp_alloc_buffer(n * sizeof(int32_t));
    return *lo && *hi && *scale && *zero;
}

static bool alloc_buffers(struct buffers *b, size_t tile_bytes)
{
    size_t n_sets = (size_t)sets_of_tile(tile_bytes);
    b->tile = qp_alloc_buffer(tile_bytes);
    b->codes = qp_alloc_buffer(tile_bytes / 2);
    b->stored = qp_alloc_buffer(n_sets * 4);
    return alloc_sets(n_sets, &b->lo, &b->hi, &b->scale, &b->zero) && b->tile && b->codes &&
           b->stored;
}

static void free_buffers(struct buffers *b)
{
    qp_free(b->tile);
    qp_free(b->codes);
    qp_free(b->lo);
    qp_free(b->hi);
    qp_free(b->scale);
    qp_free(b->zero);
    qp_free(b->stored);
}

/* ---- The next unit ------------------------------------------------------------------------------
 */

static bool is_packed(const struct qp_plan_tensor *t)
{
    return qplan_dtype_bits(t->scheme.dtype) == 4;
}

static size_t elem_bytes(const struct qp_plan_tensor *t)
{
    return qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
}

static void enter_strip(struct engine *e, const struct qp_plan_tensor *t)
{
    struct cursor *c = &e->cursor;
    qp_strip_at(&e->sets, &e->limits, elem_bytes(t), is_packed(t), c->band, c->col, &c->strip);
    c->piece = 0;
    c->kind = c->strip.n_pieces == 1 ? WHOLE : RANGES;
    if (c->kind == RANGES)
        c->slot = &e->slots[c->n_slots_used++ % 2];
}

static void enter_tensor(struct engine *e, const struct qp_plan_tensor *t)
{
    struct cursor *c = &e->cursor;
    c->inside = true;
    c->copied = c->band = c->col = 0;
    c->kind = COPY;
    if (!t->quantize)
        return;
    qp_sets_make(&e->sets, &t->scheme, t->source->shape, t->source->rank);
    e->limits.elems = e->job.tile_bytes / elem_bytes(t);
    e->limits.sets = sets_of_tile(e->job.tile_bytes);
    enter_strip(e, t);
}

static void leave_tensor(struct cursor *c)
{
    c->inside = false;
    c->tensor++;
}

/* Behind the piece just handed out: the next piece, pass, strip or tensor. */
static void advance_piece(struct engine *e, const struct qp_plan_tensor *t)
{
    struct cursor *c = &e->cursor;
    if (++c->piece < c->strip.n_pieces)
        return;
    c->piece = 0;
    if (c->kind == RANGES)
        c->kind = CODES;
    else if (qp_strip_next(&e->sets, &c->strip, &c->band, &c->col))
        enter_strip(e, t);
    else
        leave_tensor(c);
}

/* Whether the unit at the cursor may start; if not, somebody will signal a change. */
static bool may_start(struct cursor *c)
{
    if (c->kind == RANGES && c->piece == 0)
        return c->slot->ranges_left == 0 && c->slot->codes_left == 0;
    return c->kind != CODES || c->slot->ready;
}

static void open_slot(struct slot *slot, const struct qp_strip *strip)
{
    slot->ranges_left = slot->codes_left = strip->n_pieces;
    slot->ready = false;
    memset(slot->lo, 0, (size_t)strip->n_sets * sizeof(double));
    memset(slot->hi, 0, (size_t)strip->n_sets * sizeof(double));
}

static void take_unit(struct engine *e, const struct qp_plan_tensor *t, struct unit *unit)
{
    struct cursor *c = &e->cursor;
    *unit = (struct unit){.number = c->number++, .kind = c->kind, .tensor = t};
    if (c->kind == COPY) {
        uint64_t n_bytes = t->source->end - t->source->begin;
        unit->off = c->copied;
        unit->n = qp_min_u64(n_bytes - c->copied, e->job.tile_bytes);
        c->copied += unit->n;
        if (c->copied == n_bytes)
            leave_tensor(c);
        return;
    }
    unit->strip = c->strip;
    unit->piece = c->piece;
    unit->slot = c->slot;
    if (c->kind == RANGES && c->piece == 0)
        open_slot(c->slot, &c->strip);
    advance_piece(e, t);
}

/* Waits until the next unit may start and takes it; false when there is none or the job stops. */
static bool claim(struct engine *e, struct unit *unit)
{
    struct cursor *c = &e->cursor;
    bool found = false;
    (void)pthread_mutex_lock(&e->job.lock);
    while (!qp_job_stopping(&e->job) && c->tensor < e->n_order) {
        const struct qp_plan_tensor *t = e->order[c->tensor];
        if (!c->inside)
            enter_tensor(e, t);
        if (may_start(c)) {
            take_unit(e, t, unit);
            found = true;
            break;
        }
        (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    }
    (void)pthread_mutex_unlock(&e->job.lock);
    return found;
}

/* ---- Doing a unit
 * -------------------------------------------------------------------------------- */

/* All that the steps of a unit need to know. */
struct task {
    struct engine *e;
    const struct unit *unit;
    const struct buffers *b;
    const struct qp_source_kernels *kernels;
    struct qp_sets sets;
    struct qp_piece piece;
    struct qp_code_rule rule;
    struct qplan_error *err;
};

static void prepare_task(struct task *task)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    task->kernels = qp_source_kernels(row->dtype, task->e->job.run->isa);
    qp_sets_make(&task->sets, &t->scheme, t->source->shape, t->source->rank);
    qp_piece_at(&task->sets, &task->unit->strip, task->unit->piece, &task->piece);
    qp_scheme_range(&t->scheme, &task->rule.q_min, &task->rule.q_max);
    task->rule.asymmetric = t->scheme.asymmetric;
    task->rule.is_signed = qplan_dtype_is_signed(t->scheme.dtype);
    task->rule.scale_dtype = t->scheme.scale_dtype;
}

static enum qplan_status read_tile(struct task *task)
{
    return qp_read_piece(task->e->st, task->unit->tensor->source, &task->sets, &task->piece,
                         task->kernels->elem_bytes, task->b->tile, task->err);
}

static enum qplan_status find_ranges(struct task *task)
{
    const struct buffers *b = task->b;
    size_t n = qp_tile_sets(&task->piece.tile) * task->kernels->work_bytes;
    memset(b->lo, 0, n);
    memset(b->hi, 0, n);
    uint64_t others = task->kernels->range(&task->piece.tile, b->tile, b->lo, b->hi);
    if (others == 0 || task->e->plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return QPLAN_OK;
    return qp_fail_nonfinite(task->e->st, task->unit->tensor->source, b->tile,
                             task->e->job.tile_bytes, task->err);
}

static enum qplan_status fail_scale(const struct task *task, uint64_t set)
{
    char subject[512];
    const struct qp_plan_tensor *t = task->unit->tensor;
    qp_fail(task->err, QPLAN_ERR_VALUE, qp_st_subject(subject, task->e->st, t->source),
            "the scale of set %" PRIu64 " is too large for %s", set,
            qplan_dtype_name(t->scheme.scale_dtype));
    if (t->scheme.scale_dtype == QPLAN_F32)
        qp_hint(task->err, "--exclude keeps the tensor as it is");
    else
        qp_hint(task->err, "--scale-dtype f32");
    return QPLAN_ERR_VALUE;
}

/* Scale and zero point of n sets of the strip from ranges; the scales are written. */
static enum qplan_status find_params(struct task *task, size_t n, const void *lo, const void *hi,
                                     void *scale, int32_t *zero)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    const struct qp_work_kernels *work = task->kernels->work;
    uint64_t first = task->unit->strip.set;
    size_t good = work->params(&task->rule, n, lo, hi, scale, zero);
    if (good < n)
        return fail_scale(task, first + good);
    size_t bytes = qp_float_bytes(t->scheme.scale_dtype);
    work->store(t->scheme.scale_dtype, n, scale, task->b->stored);
    return qp_out_write(task->e->out,
                        task->e->plan->header_bytes + t->outputs[QP_SCALE].begin + first * bytes,
                        task->b->stored, n * bytes, task->err);
}

static enum qplan_status write_zeros(struct task *task, size_t n, const int32_t *zero)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    uint8_t *stored = task->b->stored;
    if (t->n_outputs <= QP_ZERO_POINT)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++)
        stored[i] = (uint8_t)zero[i];
    uint64_t off = t->outputs[QP_ZERO_POINT].begin + task->unit->strip.set;
    return qp_out_write(task->e->out, task->e->plan->header_bytes + off, stored, n, task->err);
}

static enum qplan_status write_codes(struct task *task, const void *scale, const int32_t *zero)
{
    const struct qp_plan_tensor *t = task->unit->tensor;
    task->kernels->quantize(&task->piece.tile, task->b->tile, &task->rule, scale, zero,
                            task->b->codes);
    return qp_write_codes(task->e->out, task->e->plan->header_bytes + t->outputs[QP_CODES].begin,
                          &task->sets, &task->piece, is_packed(t), task->b->codes, task->err);
}

static enum qplan_status do_whole(struct task *task)
{
    const struct buffers *b = task->b;
    size_t n = (size_t)task->unit->strip.n_sets;
    QP_TRY(read_tile(task));
    QP_TRY(find_ranges(task));
    QP_TRY(find_params(task, n, b->lo, b->hi, b->scale, b->zero));
    QP_TRY(write_zeros(task, n, b->zero));
    return write_codes(task, b->scale, b->zero);
}

/* Adds the ranges of a piece to the strip's; true for the last piece, which has them all. */
static bool merge_ranges(struct task *task)
{
    struct slot *slot = task->unit->slot;
    size_t size = task->kernels->work_bytes, first = (size_t)task->piece.first_set;
    (void)pthread_mutex_lock(&task->e->job.lock);
    task->kernels->work->merge(qp_tile_sets(&task->piece.tile), (char *)slot->lo + first * size,
                               (char *)slot->hi + first * size, task->b->lo, task->b->hi);
    bool is_last = --slot->ranges_left == 0;
    (void)pthread_mutex_unlock(&task->e->job.lock);
    return is_last;
}

static void announce(struct engine *e, bool *flag)
{
    (void)pthread_mutex_lock(&e->job.lock);
    *flag = true;
    (void)pthread_cond_broadcast(&e->job.changed);
    (void)pthread_mutex_unlock(&e->job.lock);
}

static enum qplan_status do_ranges(struct task *task)
{
    struct slot *slot = task->unit->slot;
    size_t n = (size_t)task->unit->strip.n_sets;
    QP_TRY(read_tile(task));
    QP_TRY(find_ranges(task));
    if (!merge_ranges(task))
        return QPLAN_OK;
    QP_TRY(find_params(task, n, slot->lo, slot->hi, slot->scale, slot->zero));
    QP_TRY(write_zeros(task, n, slot->zero));
    announce(task->e, &slot->ready);
    return QPLAN_OK;
}

static enum qplan_status do_codes(struct task *task)
{
    struct slot *slot = task->unit->slot;
    struct qp_job *job = &task->e->job;
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

static enum qplan_status do_unit(struct task *task)
{
    const struct unit *unit = task->unit;
    const struct engine *e = task->e;
    if (unit->kind == COPY)
        return qp_copy_range(e->st, e->st->header_bytes + unit->tensor->source->begin + unit->off,
                             e->out,
                             e->plan->header_bytes + unit->tensor->outputs[0].begin + unit->off,
                             unit->n, task->b->tile, task->err);
    prepare_task(task);
    return unit->kind == WHOLE    ? do_whole(task)
           : unit->kind == RANGES ? do_ranges(task)
                                  : do_codes(task);
}

/* For progress: a byte that is read twice counts half each time. */
static uint64_t done_bytes(const struct task *task)
{
    const struct unit *unit = task->unit;
    if (unit->kind == COPY)
        return unit->n;
    uint64_t n = task->piece.n_rows * task->piece.n_cols * task->kernels->elem_bytes;
    return unit->kind == WHOLE ? n : unit->kind == RANGES ? n / 2 : n - n / 2;
}

static void work(void *ctx, unsigned worker)
{
    struct engine *e = ctx;
    struct buffers buffers = {0};
    struct qplan_error err;
    struct unit unit;
    (void)worker;
    if (!alloc_buffers(&buffers, e->job.tile_bytes)) {
        (void)qp_fail_memory(&err, "buffers", worker_bytes(e->job.tile_bytes));
        qp_job_fail(&e->job, 0, &err);
    }
    while (claim(e, &unit)) {
        struct task task = {.e = e, .unit = &unit, .b = &buffers, .err = &err};
        if (do_unit(&task) != QPLAN_OK)
            qp_job_fail(&e->job, unit.number, &err);
        else
            qp_job_advance(&e->job, done_bytes(&task));
    }
    free_buffers(&buffers);
}

/* ---- The whole job
 * ------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct qp_plan_tensor *x = *(const struct qp_plan_tensor *const *)a;
    const struct qp_plan_tensor *y = *(const struct qp_plan_tensor *const *)b;
    return (x->source->begin > y->source->begin) - (x->source->begin < y->source->begin);
}

static enum qplan_status order_tensors(struct engine *e, struct qplan_error *err)
{
    const struct qplan_plan *plan = e->plan;
    e->order = qp_alloc(plan->n_tensors, sizeof *e->order);
    if (!e->order)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *e->order);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (plan->tensors[i].source->begin < plan->tensors[i].source->end)
            e->order[e->n_order++] = &plan->tensors[i];
    }
    if (e->n_order)
        qsort(e->order, e->n_order, sizeof *e->order, by_offset);
    return QPLAN_OK;
}

static enum qplan_status alloc_slots(struct engine *e, struct qplan_error *err)
{
    size_t n = (size_t)sets_of_tile(e->job.tile_bytes);
    for (int i = 0; i < 2; i++) {
        struct slot *s = &e->slots[i];
        if (!alloc_sets(n, &s->lo, &s->hi, &s->scale, &s->zero))
            return qp_fail_memory(err, "buffers", n * sizeof(double));
    }
    return QPLAN_OK;
}

static void free_engine(struct engine *e)
{
    for (int i = 0; i < 2; i++) {
        qp_free(e->slots[i].lo);
        qp_free(e->slots[i].hi);
        qp_free(e->slots[i].scale);
        qp_free(e->slots[i].zero);
    }
    qp_free(e->order);
    qp_job_destroy(&e->job);
    qp_free(e);
}

enum qplan_status qp_execute(const struct qplan_plan *plan, const struct qp_out *out,
                             const struct qplan_run *run, struct qplan_error *err)
{
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    enum qplan_status status =
        qp_job_init(&e->job, run, worker_bytes, plan->checkpoint->st.data_bytes, err);
    if (status != QPLAN_OK) {
        qp_free(e);
        return status;
    }
    e->plan = plan;
    e->st = &plan->checkpoint->st;
    e->out = out;
    status = order_tensors(e, err);
    if (status == QPLAN_OK)
        status = alloc_slots(e, err);
    if (status == QPLAN_OK) {
        (void)qp_team_run(e->job.n_workers, work, e);
        status = qp_job_result(&e->job, err);
    }
    free_engine(e);
    return status;
}
