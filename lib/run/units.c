/*
 * units.c - running a plan: the order of work.
 *
 * Workers claim units in file order and do each alone: read, calibrate, codes, write, in buffers of
 * their own that never grow. A strip that does not fit a tile becomes a row of units for each pass
 * of the calibrator, and one more for its codes; a pass waits for what the one before it has found.
 * The bytes written do not depend on who does which unit, nor on the size of a tile.
 */
#include "units.h"

#include "constants.h"
#include "engine.h"
#include "factors.h"
#include "ldlq_tensors.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "offsets.h"

#include <stdlib.h>
#include <string.h>

/*
 * A piece is read once from memory and then used twice, for ranges and for codes: this many bytes,
 * and the codes beside them, stay in the second-level cache of any current core.
 */
#define CACHED_BYTES ((size_t)256 << 10)

/* ---- The next unit -----------------------------------------------------------------------------
 */

/* How much is done at once: on the CPU what stays in its cache, on a device what fits. */
static size_t piece_bytes(const struct qp_engine *e)
{
    const size_t tile_bytes = e->job.tile_bytes;
    return e->context.device || tile_bytes < CACHED_BYTES ? tile_bytes : CACHED_BYTES;
}

static void enter_strip(struct qp_engine *e, const struct qp_plan_tensor *t)
{
    struct qp_cursor *c = &e->cursor;
    qp_strip_at(&e->sets, &e->limits, qp_source_elem_bytes(t), e->grain, c->band, c->col,
                &c->strip);
    c->piece = 0;
    c->pass = 0;
    c->kind = c->strip.n_pieces == 1 ? QP_UNIT_WHOLE : QP_UNIT_PIECE;
    if (c->kind == QP_UNIT_PIECE)
        c->slot = &e->slots[c->n_slots_used++ % 2];
}

static void enter_tensor(struct qp_engine *e, const struct qp_plan_tensor *t)
{
    struct qp_cursor *c = &e->cursor;
    c->inside = true;
    c->copied = c->band = c->col = 0;
    c->kind = QP_UNIT_COPY;
    if (!qp_is_quantized(t))
        return;
    const size_t tile_bytes = e->job.tile_bytes, elem_bytes = qp_source_elem_bytes(t);
    const struct qp_part *codes = qp_tensor_part(&t->result, QP_CODES);
    const uint64_t apart = e->context.device ? tile_bytes : qp_min_u64(tile_bytes, QP_APART_BYTES);
    qp_tensor_sets(&e->sets, &t->result);
    e->grain = qp_unit_grain(&e->context, t);
    e->limits =
        (struct qp_limits){.elems = tile_bytes / elem_bytes,
                           .sets = qp_sets_of_tile(tile_bytes),
                           .pieced = t->calibrator->large_state ? qp_engine_large_sets(e, t) : 0,
                           .apart = apart / elem_bytes,
                           .cached = piece_bytes(e) / elem_bytes,
                           .together = t->result.scheme->nested ? QP_NESTED_SETS : 1,
                           .tall = qp_engine_tall_rows(e, t)};
    if (qp_is_read_turned(t))
        e->limits.cached = e->limits.elems;
    else if (qp_part_is_turned(codes))
        e->limits.cached = e->limits.apart;
    e->hold_rows = e->holds ? qp_hold_rows(&t->result, qp_job_hold_bytes(&e->job, tile_bytes)) : 0;
    enter_strip(e, t);
}

static void leave_tensor(struct qp_cursor *c)
{
    c->inside = false;
    c->tensor++;
}

/* Behind the piece just handed out: the next piece, pass, strip or tensor. */
static void advance_piece(struct qp_engine *e, const struct qp_plan_tensor *t)
{
    struct qp_cursor *c = &e->cursor;
    if (++c->piece < c->strip.n_pieces)
        return;
    c->piece = 0;
    if (c->kind == QP_UNIT_PIECE && c->pass + 1 < qp_passes(t, e->context.roles))
        c->pass++;
    else if (qp_strip_next(&e->sets, &c->strip, &c->band, &c->col))
        enter_strip(e, t);
    else
        leave_tensor(c);
}

/* Whether the unit at the cursor may start; if not, somebody will signal a change. */
static bool may_start(const struct qp_cursor *c)
{
    if (c->kind != QP_UNIT_PIECE)
        return true;
    if (c->pass == 0)
        return c->piece > 0 || c->slot->pieces_left == 0; /* its last strip is done */
    return c->slot->passes_done >= c->pass;
}

static void open_slot(struct qp_slot *slot, const struct qp_strip *strip,
                      const struct qp_calibrator *calibrator)
{
    slot->passes_done = 0;
    slot->n_merged = 0;
    slot->pieces_left = strip->n_pieces;
    memset(slot->state, 0, (size_t)strip->n_sets * calibrator->state_bytes);
}

static void take_copy(struct qp_engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
    const uint64_t n_bytes = qp_tensor_bytes(t->source);
    unit->off = c->copied;
    unit->n = qp_min_u64(n_bytes - c->copied, qp_min_u64(e->job.tile_bytes, CACHED_BYTES));
    c->copied += unit->n;
    if (c->copied == n_bytes)
        leave_tensor(c);
}

/* Whether a tensor is better done together with its neighbours: it must fit in one strip a period.
 */
static bool is_small(const struct qp_engine *e, const struct qp_plan_tensor *t)
{
    struct qp_sets sets;
    if (!qp_writes(&e->context) || !qp_is_verbatim(t->source) ||
        qp_tensor_bytes(t->source) > qp_min_u64(e->job.tile_bytes, CACHED_BYTES) / 8)
        return false;
    if (!qp_is_quantized(t))
        return true;
    qp_tensor_sets(&sets, &t->result);
    return sets.n_sets <= qp_sets_of_tile(e->job.tile_bytes);
}

/*
 * What one worker does piece by piece, so that workers are in different parts of the files and
 * parameters are written together. Towards the end less, so that they end at the same time.
 */
#define UNIT_BYTES ((uint64_t)8 << 20)

static uint64_t unit_bytes(const struct qp_engine *e)
{
    const uint64_t left = e->job.total_bytes - e->claimed_bytes;
    return qp_min_u64(UNIT_BYTES, left / (4 * e->job.n_workers));
}

/* Takes as many small tensors as fill some pieces; false if there are not even two. */
static bool take_batch(struct qp_engine *e, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
    const uint64_t piece = qp_min_u64(e->job.tile_bytes, CACHED_BYTES);
    const uint64_t most = qp_max_u64(unit_bytes(e), piece);
    uint64_t n_bytes = 0;
    size_t end = c->tensor;
    while (end < e->n_order && is_small(e, e->order[end]) &&
           (end == c->tensor || qp_source_follows(qp_source_entry(e->order[end - 1]),
                                                  qp_source_entry(e->order[end])))) {
        n_bytes += qp_tensor_bytes(e->order[end]->source);
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

static uint64_t strip_bytes(const struct qp_strip *strip, const struct qp_plan_tensor *t)
{
    return strip->n_rows * strip->n_cols * qp_source_elem_bytes(t);
}

static void take_strips(struct qp_engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
    const uint64_t most = unit_bytes(e);
    do {
        unit->n += strip_bytes(&c->strip, t);
        unit->n_strips++;
        advance_piece(e, t);
    } while (c->inside && c->kind == QP_UNIT_WHOLE && unit->n < most);
}

/*
 * Strips of whole rows whose turned parts are held: as many as there is room for, since fewer make
 * shorter runs. Workers still end at about the same time: towards the end all of them together have
 * HELD_LAST, but none less than HELD_LEAST.
 */
#define HELD_LAST  ((uint64_t)32 << 20)
#define HELD_LEAST ((uint64_t)8 << 20)

static void take_held(struct qp_engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
    const uint64_t n_cols = qp_tensor_part(&t->result, QP_CODES)->matrix.cols;
    const uint64_t row_bytes = n_cols * qp_source_elem_bytes(t);
    const uint64_t left = e->job.total_bytes - e->claimed_bytes;
    const uint64_t last = qp_max_u64(HELD_LAST / e->job.n_workers, HELD_LEAST);
    const uint64_t most = qp_max_u64(left / (2 * e->job.n_workers), last);
    do {
        unit->n += strip_bytes(&c->strip, t);
        unit->n_strips++;
        advance_piece(e, t);
    } while (c->inside && c->kind == QP_UNIT_WHOLE && unit->n < most &&
             unit->n + strip_bytes(&c->strip, t) <= e->hold_rows * row_bytes);
    unit->held_row = (unit->strip.row * e->sets.row_len + unit->strip.col) / n_cols;
    unit->held_rows = unit->n / row_bytes;
}

/* Whether the strip at the cursor has whole rows, and there is room to hold them. */
static bool is_held(const struct qp_engine *e, const struct qp_plan_tensor *t)
{
    const struct qp_strip *strip = &e->cursor.strip;
    const uint64_t n_cols = qp_tensor_part(&t->result, QP_CODES)->matrix.cols;
    const uint64_t n = strip->n_rows * strip->n_cols;
    return n <= e->hold_rows * n_cols && n % n_cols == 0 && strip->col % n_cols == 0;
}

static void take_unit(struct qp_engine *e, const struct qp_plan_tensor *t, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
    *unit = (struct qp_unit){.number = c->number++, .kind = c->kind, .tensor = t};
    if (c->kind == QP_UNIT_COPY) {
        take_copy(e, t, unit);
        return;
    }
    unit->limits = e->limits;
    unit->strip = c->strip;
    if (c->kind == QP_UNIT_WHOLE) {
        (is_held(e, t) ? take_held : take_strips)(e, t, unit);
        return;
    }
    unit->piece = c->piece;
    unit->pass = c->pass;
    unit->slot = c->slot;
    if (c->pass == 0 && c->piece == 0)
        open_slot(c->slot, &c->strip, t->calibrator);
    advance_piece(e, t);
}

/* Waits until the next unit may start and takes it; false when there is none or the job stops. */
static bool claim(struct qp_engine *e, struct qp_unit *unit)
{
    struct qp_cursor *c = &e->cursor;
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
        e->claimed_bytes += qp_unit_bytes(unit, e->context.roles);
    (void)pthread_mutex_unlock(&e->job.lock);
    return found;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct qp_engine *e = (struct qp_engine *)job;
    struct qp_unit unit;
    if (!claim(e, &unit))
        return false;
    if (qp_unit_run(&e->context, &unit, buffers, err) == QPLAN_OK)
        qp_job_advance(job, qp_unit_bytes(&unit, e->context.roles));
    else
        qp_job_fail(job, unit.number, err);
    return true;
}

/* ---- The whole job -----------------------------------------------------------------------------
 */

static int by_place(const void *a, const void *b)
{
    const struct qplan_entry *x = qp_source_entry(*(const struct qp_plan_tensor *const *)a);
    const struct qplan_entry *y = qp_source_entry(*(const struct qp_plan_tensor *const *)b);
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static enum qplan_status order_tensors(struct qp_engine *e, const struct qplan_plan *plan,
                                       uint64_t *n_bytes, struct qplan_error *err)
{
    e->order = qp_alloc(plan->n_tensors, sizeof *e->order);
    e->state_bytes = QP_MOST_STATE_BYTES; /* devices want as much */
    if (!e->order)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *e->order);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (qp_tensor_bytes(plan->tensors[i].source) > 0)
            e->order[e->n_order++] = &plan->tensors[i];
        *n_bytes += qp_tensor_bytes(plan->tensors[i].source);
        qp_engine_want(e, &plan->tensors[i]);
    }
    if (e->n_order > 0)
        qsort(e->order, e->n_order, sizeof *e->order, by_place);
    return QPLAN_OK;
}

/* All but the memory of an engine whose context says what for. */
static enum qplan_status run_engine(struct qp_engine *e, const struct qplan_run *run,
                                    struct qp_run_notes *notes, struct qplan_error *err)
{
    const struct qplan_plan *plan = e->context.plan;
    const struct qp_outs *outs = e->context.outs;
    uint64_t total_bytes = 0;
    float *factors = NULL, *offsets = NULL;
    const bool writes_all = e->context.roles == QP_ALL_ROLES;
    enum qplan_status status = order_tensors(e, plan, &total_bytes, err);
    struct qp_job_ops ops = qp_engine_room(e);
    ops.step = step;
    if (status == QPLAN_OK && writes_all)
        status = qp_ldlq_check(plan, run, err);
    if (status == QPLAN_OK && e->context.roles != QP_SETS)
        status = qp_find_factors(&factors, plan, NULL, run, err);
    if (status == QPLAN_OK && e->context.roles != QP_SETS)
        status = qp_find_offsets(&offsets, plan, run, err);
    e->context.job = &e->job;
    e->context.factors = factors;
    e->context.offsets = offsets;
    if (status == QPLAN_OK && outs)
        status = qp_write_factors(factors, plan, outs, err);
    if (status == QPLAN_OK && outs)
        status = qp_write_offsets(offsets, plan, outs, err);
    if (status == QPLAN_OK && writes_all)
        status = qp_write_constants(plan, outs, err);
    if (status == QPLAN_OK)
        status = qp_job_run(&e->job, &ops, run, total_bytes, err);
    if (status == QPLAN_OK && writes_all)
        status = qp_ldlq_run(plan, outs, factors, run, notes, err);
    qp_free(factors);
    qp_free(offsets);
    qp_free(e->order);
    return status;
}

/* Runs what a context says; notes are wanted where something is written, else NULL. */
static enum qplan_status run_context(const struct qp_unit_context *context,
                                     const struct qplan_run *run, struct qp_run_notes *notes,
                                     struct qplan_error *err)
{
    struct qp_engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->context = *context;
    const enum qplan_status status = run_engine(e, run, notes, err);
    if (notes)
        notes->fewer_threads = e->job.n_ran != e->job.n_workers;
    qp_free(e);
    return status;
}

enum qplan_status qp_run_units(const struct qplan_plan *plan, const struct qp_outs *outs,
                               enum qp_roles roles, const struct qplan_run *run,
                               struct qp_run_notes *notes, struct qplan_error *err)
{
    const struct qp_unit_context context = {
        .plan = plan, .outs = outs, .device = qp_device_of(run), .roles = roles};
    return run_context(&context, run, notes, err);
}

enum qplan_status qp_measure_units(const struct qplan_plan *plan, struct qp_exact *errors,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_unit_context context = {.plan = plan, .roles = QP_ERRORS, .errors = errors};
    return run_context(&context, run, NULL, err);
}

enum qplan_status qp_find_sets(const struct qplan_plan *plan, qp_sets_fn take, void *ctx,
                               const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_unit_context context = {
        .plan = plan, .roles = QP_SETS, .take = take, .take_ctx = ctx};
    return run_context(&context, run, NULL, err);
}
