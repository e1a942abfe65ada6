/*
 * measure.c - comparing a file with its source, in flat order.
 *
 * A unit is a fixed number of elements, a multiple of QP_BLOCK. Workers compute units in any order;
 * their results wait in a ring and are taken in ascending order: so the sums, and which offender is
 * the first, are the same for any number of workers and any tile size, and no worker waits for a
 * slower one unless the ring is full.
 */
#include "compare.h"

#include "lib/base/alloc.h"
#include "lib/model/dtype.h"
#include "lib/run/decode.h"
#include "lib/run/job.h"
#include "lib/store/hold.h"

#include <string.h>

/* Results that may wait for that of a unit before them. */
#define RING 32

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    struct qp_pair *pairs;
    struct qp_compare compare;
    struct qp_flat flat;
    struct slot *ring; /* the result of unit u is in slot u % n_slots */
    uint64_t n_slots;
    uint64_t turn;       /* the unit whose result is taken next */
    bool decodes_turned; /* a source is decoded from codes that go down its columns */
};

struct slot {
    bool taken;
    struct qp_compare_unit unit;
    struct qp_finding found;
    struct qp_block *blocks;
};

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* Elements of a piece, in whole blocks: 8 bytes each at the most. */
static size_t piece_elems(size_t tile_bytes)
{
    const size_t n = tile_bytes / sizeof(double);
    return n - n % QP_BLOCK;
}

/* Bytes of a worker for turned parts; a unit has as many pieces as it can hold. */
static size_t hold_bytes(const struct engine *e, size_t tile_bytes)
{
    return e->compare.holds ? qp_job_hold_bytes(&e->job, tile_bytes) : 0;
}

static size_t unit_blocks(const struct engine *e, size_t tile_bytes)
{
    const size_t held = QP_HELD_ELEMS(hold_bytes(e, tile_bytes)), piece = piece_elems(tile_bytes);
    return (held > piece ? held : piece) / QP_BLOCK;
}

/* Bytes of a kept tensor: as many again come from the other file. */
static size_t kept_bytes(size_t tile_bytes)
{
    return tile_bytes / 4;
}

static size_t window_sets(size_t tile_bytes)
{
    return tile_bytes / 64;
}

_Static_assert(sizeof(struct qp_compare_buffers) <= sizeof(union qp_any_buffers),
               "the buffers fit");

/* What there is on a device too. */
static void carve_common(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                         struct qp_compare_buffers *b)
{
    const struct engine *e = (const struct engine *)job;
    b->source = qp_take(carve, tile_bytes + QP_IO_SPARE);
    b->blocks = qp_take(carve, unit_blocks(e, tile_bytes) * sizeof *b->blocks);
    b->hold = qp_take(carve, hold_bytes(e, tile_bytes));
    if (e->compare.decodes)
        qp_values_carve(carve, tile_bytes, &b->values);
    if (e->decodes_turned)
        qp_values_carve_hold(carve, tile_bytes, &b->values);
}

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                          void *buffers)
{
    struct qp_compare_buffers *b = buffers;
    size_t n = piece_elems(tile_bytes), n_sets = window_sets(tile_bytes);
    carve_common(carve, tile_bytes, job, b);
    b->block = qp_take(carve, QP_BLOCK * sizeof(double));
    b->codes = qp_take(carve, QP_DECODE_ROOM(n));
    b->window.scale = qp_take(carve, n_sets * sizeof(double));
    b->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->window.stored = qp_take(carve, QP_PART_ROOM(n_sets, sizeof(float)));
    b->state = qp_take(carve, n_sets * QP_MOST_STATE_BYTES);
    b->scale = qp_take(carve, n_sets * sizeof(double));
    b->zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->bound = qp_take(carve, n_sets * sizeof(double));
}

static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes,
                                 const struct qp_job *job, void *buffers)
{
    struct qp_compare_buffers *b = buffers;
    carve_common(carve, tile_bytes, job, b);
    qp_flat_carve(carve, tile_bytes, &b->flat);
}

static void attach_lane(void *buffers, struct qp_lane *lane)
{
    ((struct qp_compare_buffers *)buffers)->flat.lane = lane;
}

static void carve_ring(struct qp_carve *carve, size_t tile_bytes, struct qp_job *job)
{
    struct engine *e = (struct engine *)job;
    const size_t n_blocks = unit_blocks(e, tile_bytes);
    const size_t n_slots =
        e->compare.holds && job->n_workers < RING / 2 ? 2 * job->n_workers : RING;
    struct slot *ring = qp_take(carve, n_slots * sizeof *ring);
    struct qp_block *blocks = qp_take(carve, n_slots * n_blocks * sizeof *blocks);
    for (size_t i = 0; ring && i < n_slots; i++)
        ring[i] = (struct slot){.blocks = blocks + i * n_blocks};
    e->ring = ring;
    e->n_slots = n_slots;
    e->compare.piece_elems = piece_elems(tile_bytes);
    e->compare.window_sets = window_sets(tile_bytes);
    e->compare.source_bytes = tile_bytes;
}

/* Where values are turned, many rows are read at once. Elements have mostly 2 bytes. */
#define TURNED_BYTES ((size_t)32 << 20)

/* Where codes are, pieces of more rows than is usual have longer runs in what is held. */
#define HELD_BYTES ((size_t)2 << 20)

static size_t turned_bytes(const struct qp_job *job)
{
    const struct engine *e = (const struct engine *)job;
    for (size_t i = 0; i < e->flat.n_items; i++) {
        if (e->pairs[i].file->scheme && qp_is_turned(e->pairs[i].source))
            return qp_job_turned_wish(job, TURNED_BYTES);
    }
    if (e->decodes_turned)
        return qp_job_turned_wish(job, TURNED_BYTES);
    return e->compare.holds ? HELD_BYTES : 0;
}

/* In what the units of a pair count: elements, or bytes of a kept tensor. */
static uint64_t pair_length(const void *ctx, size_t i, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct qp_pair *pair = &e->pairs[i];
    const bool quantized = pair->file->scheme != NULL;
    *unit_length = quantized ? qp_hold_elems(pair->file, hold_bytes(e, e->job.tile_bytes),
                                             e->compare.piece_elems)
                             : kept_bytes(e->job.tile_bytes);
    return quantized ? qp_entry_elements(pair->source->entry) : qp_tensor_bytes(pair->source);
}

/* ---- Results in order --------------------------------------------------------------------------
 */

static void add_block(struct qp_measure *total, const struct qp_block *block, uint64_t elem)
{
    qp_wide_add(&total->sums, &block->sums);
    qp_weighted_add(&total->weighted, block->weighted);
    if (block->max_abs > total->max_abs) {
        total->max_abs = block->max_abs;
        total->max_at = elem + block->max_at;
    }
}

static void add_finding(const struct qp_compare_unit *unit, const struct qp_finding *found,
                        const struct qp_block *blocks)
{
    struct qp_measure *total = &unit->pair->result;
    const struct qp_measure *part = &found->part;
    for (size_t i = 0; i < found->n_blocks; i++)
        add_block(total, &blocks[i], unit->elem + i * QP_BLOCK);
    if (total->offences == 0 && part->offences) {
        total->first = part->first;
        total->x = part->x;
        total->y = part->y;
        total->bound = part->bound;
    }
    total->offences += part->offences;
    total->clipped += part->clipped;
    total->nonfinite += part->nonfinite;
    total->bad_fill += part->bad_fill;
    total->sets_same += part->sets_same;
    total->most = part->most > total->most ? part->most : total->most;
    total->max_clip = part->max_clip > total->max_clip ? part->max_clip : total->max_clip;
}

/* Takes the results whose turn it is; says whether there were any. */
static bool take_results(struct engine *e)
{
    const uint64_t before = e->turn;
    struct slot *slot = &e->ring[e->turn % e->n_slots];
    while (slot->taken) {
        add_finding(&slot->unit, &slot->found, slot->blocks);
        slot->taken = false;
        slot = &e->ring[++e->turn % e->n_slots];
    }
    return e->turn != before;
}

/* Waits while the ring has no room, unless the job stops. */
static void hand_in(struct engine *e, const struct qp_compare_unit *unit,
                    const struct qp_finding *found, const struct qp_block *blocks)
{
    (void)pthread_mutex_lock(&e->job.lock);
    while (unit->number - e->turn >= e->n_slots && !qp_job_stopping(&e->job))
        (void)pthread_cond_wait(&e->job.changed, &e->job.lock);
    if (unit->number - e->turn < e->n_slots) {
        struct slot *slot = &e->ring[unit->number % e->n_slots];
        *slot = (struct slot){true, *unit, *found, slot->blocks};
        memcpy(slot->blocks, blocks, found->n_blocks * sizeof *blocks);
        if (take_results(e))
            (void)pthread_cond_broadcast(&e->job.changed);
    }
    (void)pthread_mutex_unlock(&e->job.lock);
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    const struct qp_compare_buffers *b = buffers;
    struct qp_flat_unit claimed;
    struct qp_finding found;
    if (!qp_flat_claim(job, &e->flat, &claimed))
        return false;
    struct qp_compare_unit unit = {.number = claimed.number,
                                   .pair = &e->pairs[claimed.item],
                                   .elem = claimed.pos,
                                   .n = claimed.n};
    (void)pthread_mutex_lock(&job->lock);
    unit.largest = unit.pair->result.max_abs;
    (void)pthread_mutex_unlock(&job->lock);
    if (qp_compare_do(&e->compare, &unit, b, &found, err) != QPLAN_OK) {
        qp_job_fail(job, unit.number, err);
        return true;
    }
    hand_in(e, &unit, &found, b->blocks);
    const uint64_t bits = unit.pair->file->scheme
                              ? qplan_storage_bits((enum qplan_storage)unit.pair->source->storage)
                              : 8;
    qp_job_advance(job, unit.n * bits / 8);
    return true;
}

static uint64_t total_bytes(const struct qp_pair *pairs, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += qp_tensor_bytes(pairs[i].source);
    return total;
}

static void add_needs(struct qp_device_need *need, const struct qp_pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct qp_tensor *t = pairs[i].file;
        if (!t->scheme)
            continue;
        const struct qp_device_row row = {.kind = QP_KIND_MEASURE,
                                          .dtype =
                                              qp_storage_row((enum qplan_storage)t->storage)->dtype,
                                          .scheme = *t->scheme};
        qp_need_add(need, &row, qp_role_bytes(t, QP_CODES) + qp_tensor_bytes(pairs[i].source),
                    t->name, t->name_len);
    }
}

static enum qplan_status take_device(struct engine *e, size_t n, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    if (!run || !qp_device_wanted(run->device))
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++) {
        const struct qp_tensor *t = e->pairs[i].file;
        if (t->scheme &&
            (qp_decode_rounds(t) || t->scheme->bias || qp_code_type(t->scheme->dtype)->only_read))
            return QPLAN_OK; /* devices judge values before they are rounded, or biased */
        if (e->pairs[i].weights)
            return QPLAN_OK; /* nor do they weigh errors */
    }
    add_needs(&need, e->pairs, n);
    QP_TRY(qp_device_take(run->device, &need, run->threads, err));
    e->compare.device = qp_device_of(run);
    return QPLAN_OK;
}

enum qplan_status qp_measure_pairs(struct qp_pair *pairs, size_t n, const struct qp_source *file,
                                   const struct qp_source *source, bool recompute,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    static const struct qp_job_ops on_cpu = {.buffers_size = sizeof(struct qp_compare_buffers),
                                             .carve = carve_buffers,
                                             .carve_shared = carve_ring,
                                             .tile_wish = turned_bytes,
                                             .step = step};
    static const struct qp_job_ops on_device = {.buffers_size = sizeof(struct qp_compare_buffers),
                                                .carve = carve_device_buffers,
                                                .carve_shared = carve_ring,
                                                .device_bytes = qp_flat_block_bytes,
                                                .attach = attach_lane,
                                                .step = step};
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->pairs = pairs;
    e->compare.file = file;
    e->compare.source = source;
    e->compare.isa = run ? run->isa : QPLAN_ISA_BEST;
    e->compare.recompute = recompute;
    e->flat = (struct qp_flat){.ctx = e, .n_items = n, .length = pair_length};
    for (size_t i = 0; i < n; i++) {
        pairs[i].result = (struct qp_measure){
            .max_abs = -1, .weight_unit = pairs[i].weights ? pairs[i].weights->unit : 0};
        e->compare.decodes |= !qp_is_verbatim(pairs[i].source);
        e->decodes_turned |= qp_values_need_hold(pairs[i].source);
        e->compare.holds |=
            pairs[i].file->scheme && qp_part_is_turned(qp_tensor_part(pairs[i].file, QP_CODES));
    }
    enum qplan_status status = take_device(e, n, run, err);
    if (status == QPLAN_OK)
        status = qp_job_run(&e->job, e->compare.device ? &on_device : &on_cpu, run,
                            total_bytes(pairs, n), err);
    qp_free(e);
    return status;
}
