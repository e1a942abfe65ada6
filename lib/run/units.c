/*
 * units.c - running a plan: the order of work.
 *
 * Workers claim units in file order and do each alone: read, ranges, parameters, codes, write, in
 * buffers of their own that never grow. A strip that does not fit a tile becomes two rows of units:
 * first those that find its ranges, then those that write its codes, which wait for the parameters.
 * The bytes written do not depend on who does which unit, nor on the size of a tile.
 */
#include "units.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

/*
 * A piece is read once from memory and then used twice, for ranges and for codes: this many bytes,
 * and the codes beside them, stay in the second-level cache of any current core.
 */
#define CACHED_BYTES ((size_t)256 << 10)

/*
 * A band of several rows is best read and written whole, even if it leaves that cache: some of its
 * columns at a time are as many reads and writes as it has rows, most of them of parts of a page.
 * Tiles grow up to BAND_BYTES for a band. Of a larger one they hold APART_BYTES, some columns.
 */
#define BAND_BYTES  ((uint64_t)8 << 20)
#define APART_BYTES ((size_t)1 << 20)

/* Where the next unit comes from. */
struct cursor {
    size_t tensor; /* in order[] */
    bool inside;   /* what follows belongs to that tensor */
    uint64_t copied, band, col;
    struct qp_strip strip;
    enum qp_unit_kind kind;
    uint64_t piece;
    uint64_t number;
    unsigned n_slots_used;
    struct qp_slot *slot;
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_unit_context context;
    const struct qp_plan_tensor **order; /* tensors with bytes, in file order */
    size_t n_order;
    struct qp_sets sets; /* of the cursor's tensor */
    struct qp_limits limits;
    struct cursor cursor;
    uint64_t claimed_bytes;  /* of the source */
    struct qp_slot slots[2]; /* one being finished while the next begins */
};

/* ---- Memory ------------------------------------------------------------------------------------
 */

static size_t sets_of_tile(size_t tile_bytes)
{
    return tile_bytes / 64;
}

_Static_assert(sizeof(struct qp_unit_buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct qp_unit_buffers *b = buffers;
    size_t n_sets = sets_of_tile(tile_bytes);
    b->lane = NULL;
    b->made = NULL;
    b->tile = qp_take(carve, tile_bytes + QP_IO_SPARE);
    /* Elements have 2 bytes or more. */
    b->codes = qp_take(carve, tile_bytes / 2 + QP_IO_SPARE);
    b->lo = qp_take(carve, n_sets * sizeof(double));
    b->hi = qp_take(carve, n_sets * sizeof(double));
    b->scale = qp_take(carve, n_sets * sizeof(double));
    b->zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->stored = qp_take(carve, n_sets * sizeof(float));
    for (int i = 0; i < QP_JOINS; i++) {
        /* The codes of a piece of small tensors, and their zero points. */
        b->joined[i] = (struct qp_joined){.cap = tile_bytes / 8 + n_sets};
        b->joined[i].data = qp_take(carve, b->joined[i].cap);
    }
}

/* A device has its results in a buffer of their own, so that the CPU can make some of them again.
 */
static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct qp_unit_buffers *b = buffers;
    carve_buffers(carve, tile_bytes, buffers);
    b->made = qp_take(carve, qp_device_made_bytes(tile_bytes));
}

static void carve_slots(struct qp_carve *carve, size_t tile_bytes, struct qp_job *job)
{
    struct engine *e = (struct engine *)job;
    size_t n_sets = sets_of_tile(tile_bytes);
    for (int i = 0; i < 2; i++) {
        struct qp_slot *slot = &e->slots[i];
        slot->lo = qp_take(carve, n_sets * sizeof(double));
        slot->hi = qp_take(carve, n_sets * sizeof(double));
        slot->scale = qp_take(carve, n_sets * sizeof(double));
        slot->zero = qp_take(carve, n_sets * sizeof(int32_t));
    }
}

static void attach_lane(void *buffers, struct qp_lane *lane)
{
    ((struct qp_unit_buffers *)buffers)->lane = lane;
}

/* ---- The next unit -----------------------------------------------------------------------------
 */

/* How much is done at once: on the CPU what stays in its cache, on a device what fits. */
static size_t piece_bytes(const struct engine *e)
{
    const size_t tile_bytes = e->job.tile_bytes;
    return e->context.device || tile_bytes < CACHED_BYTES ? tile_bytes : CACHED_BYTES;
}

static void enter_strip(struct engine *e, const struct qp_plan_tensor *t)
{
    struct cursor *c = &e->cursor;
    qp_strip_at(&e->sets, &e->limits,
                qplan_storage_bits((enum qplan_storage)t->source->storage) / 8,
                qplan_dtype_bits(t->scheme.dtype) == 4, c->band, c->col, &c->strip);
    c->piece = 0;
    c->kind = c->strip.n_pieces == 1 ? QP_UNIT_WHOLE : QP_UNIT_RANGES;
    if (c->kind == QP_UNIT_RANGES)
        c->slot = &e->slots[c->n_slots_used++ % 2];
}

static void enter_tensor(struct engine *e, const struct qp_plan_tensor *t)
{
    struct cursor *c = &e->cursor;
    c->inside = true;
    c->copied = c->band = c->col = 0;
    c->kind = QP_UNIT_COPY;
    if (!t->quantize)
        return;
    qp_sets_make(&e->sets, &t->scheme, t->source->shape, t->source->rank);
    const size_t elem_bytes = qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
    e->limits.elems = e->job.tile_bytes / elem_bytes;
    e->limits.apart =
        (e->context.device ? e->job.tile_bytes : qp_min_u64(e->job.tile_bytes, APART_BYTES)) /
        elem_bytes;
    e->limits.cached = piece_bytes(e) / elem_bytes;
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
    if (c->kind == QP_UNIT_RANGES)
        c->kind = QP_UNIT_CODES;
    else if (qp_strip_next(&e->sets, &c->strip, &c->band, &c->col))
        enter_strip(e, t);
    else
        leave_tensor(c);
}

/* Whether the unit at the cursor may start; if not, somebody will signal a change. */
static bool may_start(const struct cursor *c)
{
    if (c->kind == QP_UNIT_RANGES && c->piece == 0)
        return c->slot->ranges_left == 0 && c->slot->codes_left == 0;
    return c->kind != QP_UNIT_CODES || c->slot->ready;
}

static void open_slot(struct qp_slot *slot, const struct qp_strip *strip)
{
    slot->ranges_left = slot->codes_left = strip->n_pieces;
    slot->ready = false;
    memset(slot->lo, 0, (size_t)strip->n_sets * sizeof(double));
    memset(slot->hi, 0, (size_t)strip->n_sets * sizeof(double));
}

static void take_copy(struct engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct cursor *c = &e->cursor;
    uint64_t n_bytes = t->source->end - t->source->begin;
    unit->off = c->copied;
    unit->n = qp_min_u64(n_bytes - c->copied, qp_min_u64(e->job.tile_bytes, CACHED_BYTES));
    c->copied += unit->n;
    if (c->copied == n_bytes)
        leave_tensor(c);
}

/* Whether a tensor is better done together with its neighbours: it must fit in one strip a period.
 */
static bool is_small(const struct engine *e, const struct qp_plan_tensor *t)
{
    struct qp_sets sets;
    if (t->source->end - t->source->begin > qp_min_u64(e->job.tile_bytes, CACHED_BYTES) / 8)
        return false;
    if (!t->quantize)
        return true;
    qp_sets_make(&sets, &t->scheme, t->source->shape, t->source->rank);
    return sets.n_sets <= sets_of_tile(e->job.tile_bytes);
}

/*
 * What one worker does piece by piece, so that workers are in different parts of the files and
 * parameters are written together. Towards the end less, so that they end at the same time.
 */
#define UNIT_BYTES ((uint64_t)8 << 20)

static uint64_t unit_bytes(const struct engine *e)
{
    const uint64_t left = e->job.total_bytes - e->claimed_bytes;
    return qp_min_u64(UNIT_BYTES, left / (4 * e->job.n_workers));
}

/* Takes as many small tensors as fill some pieces; false if there are not even two. */
static bool take_batch(struct engine *e, struct qp_unit *unit)
{
    struct cursor *c = &e->cursor;
    const uint64_t piece = qp_min_u64(e->job.tile_bytes, CACHED_BYTES);
    const uint64_t most = qp_max_u64(unit_bytes(e), piece);
    uint64_t n_bytes = 0;
    size_t end = c->tensor;
    while (end < e->n_order && is_small(e, e->order[end])) {
        n_bytes += e->order[end]->source->end - e->order[end]->source->begin;
        if (n_bytes > most)
            break;
        end++;
    }
    if (end - c->tensor < 2)
        return false;
    *unit = (struct qp_unit){.number = c->number++,
                             .kind = QP_UNIT_BATCH,
                             .n = piece,
                             .batch = &e->order[c->tensor],
                             .n_batch = end - c->tensor};
    c->tensor = end;
    return true;
}

static void take_strips(struct engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct cursor *c = &e->cursor;
    const uint64_t elem_bytes = qplan_storage_bits((enum qplan_storage)t->source->storage) / 8;
    const uint64_t most = unit_bytes(e);
    do {
        unit->n += c->strip.n_rows * c->strip.n_cols * elem_bytes;
        unit->n_strips++;
        advance_piece(e, t);
    } while (c->inside && c->kind == QP_UNIT_WHOLE && unit->n < most);
}

static void take_unit(struct engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct cursor *c = &e->cursor;
    *unit = (struct qp_unit){.number = c->number++, .kind = c->kind, .tensor = t};
    if (c->kind == QP_UNIT_COPY) {
        take_copy(e, t, unit);
        return;
    }
    unit->limits = e->limits;
    unit->strip = c->strip;
    if (c->kind == QP_UNIT_WHOLE) {
        take_strips(e, t, unit);
        return;
    }
    unit->piece = c->piece;
    unit->slot = c->slot;
    if (c->kind == QP_UNIT_RANGES && c->piece == 0)
        open_slot(c->slot, &c->strip);
    advance_piece(e, t);
}

/* Waits until the next unit may start and takes it; false when there is none or the job stops. */
static bool claim(struct engine *e, struct qp_unit *unit)
{
    struct cursor *c = &e->cursor;
    bool found = false;
    (void)pthread_mutex_lock(&e->job.lock);
    while (!found && !qp_job_stopping(&e->job) && c->tensor < e->n_order) {
        const struct qp_plan_tensor *t = e->order[c->tensor];
        found = !c->inside && take_batch(e, unit);
        if (found)
            break;
        if (!c->inside)
            enter_tensor(e, t);
        found = may_start(c);
        if (found)
            take_unit(e, t, unit);
        else
            (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    }
    if (found)
        e->claimed_bytes += qp_unit_bytes(unit);
    (void)pthread_mutex_unlock(&e->job.lock);
    return found;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_unit unit;
    if (!claim(e, &unit))
        return false;
    if (qp_unit_run(&e->context, &unit, buffers, err) == QPLAN_OK)
        qp_job_advance(job, qp_unit_bytes(&unit));
    else
        qp_job_fail(job, unit.number, err);
    return true;
}

/* ---- The whole job -----------------------------------------------------------------------------
 */

static int by_offset(const void *a, const void *b)
{
    const struct qp_plan_tensor *x = *(const struct qp_plan_tensor *const *)a;
    const struct qp_plan_tensor *y = *(const struct qp_plan_tensor *const *)b;
    return (x->source->begin > y->source->begin) - (x->source->begin < y->source->begin);
}

static enum qplan_status order_tensors(struct engine *e, const struct qplan_plan *plan,
                                       struct qplan_error *err)
{
    e->order = qp_alloc(plan->n_tensors, sizeof *e->order);
    if (!e->order)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *e->order);
    uint64_t end = 0;
    bool in_order = true; /* as they are if the file has them in the order of their names */
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qplan_entry *source = plan->tensors[i].source;
        if (source->begin == source->end)
            continue;
        e->order[e->n_order++] = &plan->tensors[i];
        in_order = in_order && source->begin >= end;
        end = source->end;
    }
    if (!in_order)
        qsort(e->order, e->n_order, sizeof *e->order, by_offset);
    return QPLAN_OK;
}

/* The bytes of the largest band that a tile may grow for; a tensor of one band is no reason. */
static size_t largest_band(const struct qp_job *job)
{
    const struct engine *e = (const struct engine *)job;
    uint64_t largest = 0;
    for (size_t i = 0; i < e->n_order; i++) {
        const struct qp_plan_tensor *t = e->order[i];
        struct qp_sets sets;
        if (!t->quantize || t->source->end - t->source->begin <= APART_BYTES)
            continue;
        qp_sets_make(&sets, &t->scheme, t->source->shape, t->source->rank);
        const uint64_t rows = qp_min_u64(sets.band_rows, sets.period_rows);
        const uint64_t elem_bytes = (t->source->end - t->source->begin) / sets.n_elems;
        const uint64_t n_bytes = rows * sets.row_len * elem_bytes; /* not above the tensor's */
        if (sets.n_bands > 1 && n_bytes <= BAND_BYTES)
            largest = qp_max_u64(largest, n_bytes);
    }
    return (size_t)largest;
}

enum qplan_status qp_execute(const struct qplan_plan *plan, const struct qp_out *out,
                             const struct qplan_run *run, bool *all_threads,
                             struct qplan_error *err)
{
    static const struct qp_job_ops on_cpu = {.buffers_size = sizeof(struct qp_unit_buffers),
                                             .carve = carve_buffers,
                                             .carve_shared = carve_slots,
                                             .tile_wish = largest_band,
                                             .step = step};
    static const struct qp_job_ops on_device = {.buffers_size = sizeof(struct qp_unit_buffers),
                                                .carve = carve_device_buffers,
                                                .carve_shared = carve_slots,
                                                .device_bytes = qp_device_block_bytes,
                                                .attach = attach_lane,
                                                .step = step};
    struct qplan_device *device = qp_device_of(run);
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->context = (struct qp_unit_context){&e->job, plan, out, device};
    enum qplan_status status = order_tensors(e, plan, err);
    if (status == QPLAN_OK)
        status = qp_job_run(&e->job, device ? &on_device : &on_cpu, run,
                            plan->checkpoint->st.data_bytes, err);
    *all_threads = e->job.n_ran == e->job.n_workers;
    qp_free(e->order);
    qp_free(e);
    return status;
}
