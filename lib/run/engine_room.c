/*
 * engine_room.c - the buffers of workers, and how large a tile must and should be.
 *
 * All are taken before the first unit: they never grow.
 */
#include "engine.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

/*
 * A band of several rows is best read and written whole, even if it leaves the second-level cache:
 * some of its columns at a time are as many reads and writes as it has rows, most of them of parts
 * of a page. Tiles grow up to BAND_BYTES for a band. Of a larger one they hold QP_APART_BYTES, some
 * columns.
 */
#define BAND_BYTES ((uint64_t)8 << 20)

/* Where values are turned, tiles grow up to this, and hold as many rows as fit. */
#define TURNED_BYTES ((size_t)8 << 20)

bool qp_is_read_turned(const struct qp_plan_tensor *t)
{
    return qp_is_turned(t->source) || qp_values_need_hold(t->source);
}

/* There is room for the parameters of a set for so many bytes of a tile. */
#define SET_BYTES 64

size_t qp_sets_of_tile(size_t tile_bytes)
{
    return tile_bytes / SET_BYTES;
}

static size_t state_room(const struct qp_engine *e, size_t tile_bytes)
{
    return (size_t)qp_max_u64(qp_sets_of_tile(tile_bytes) * e->state_bytes, e->large_states);
}

_Static_assert(sizeof(struct qp_unit_buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                          void *buffers)
{
    const struct qp_engine *e = (const struct qp_engine *)job;
    struct qp_unit_buffers *b = buffers;
    size_t n_sets = qp_sets_of_tile(tile_bytes);
    b->lane = NULL;
    b->made = NULL;
    b->n_sets = n_sets;
    b->tile = qp_take(carve, tile_bytes + QP_IO_SPARE);
    /* Elements have 2 bytes or more. */
    b->codes = qp_take(carve, tile_bytes / 2 + QP_IO_SPARE);
    b->image = qp_take(carve, QP_IMAGE_ROOM(tile_bytes / 2, 1));
    b->state = qp_take(carve, state_room(e, tile_bytes));
    b->known = qp_take(carve, n_sets * e->known_bytes);
    b->scale = qp_take(carve, n_sets * sizeof(double));
    b->zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->stored = qp_take(carve, n_sets * sizeof(float));
    for (int i = 0; i < QP_JOINS; i++) {
        /* The codes of a piece of small tensors, and their zero points. */
        b->joined[i] = (struct qp_joined){.cap = tile_bytes / 8 + n_sets};
        b->joined[i].data = qp_take(carve, b->joined[i].cap);
    }
    if (e->holds)
        b->hold = qp_take(carve, qp_job_hold_bytes(job, tile_bytes));
    if (e->context.plan->checkpoint->is_decoded)
        qp_values_carve(carve, tile_bytes, &b->values);
    if (e->decodes_turned)
        qp_values_carve_hold(carve, tile_bytes, &b->values);
    if (!e->context.errors)
        return;
    b->decoded = qp_take(carve, 2 * tile_bytes); /* 2 bytes become 4, 8 are 8 */
    b->error = qp_take(carve, sizeof *b->error);
}

/* A device has its results in a buffer of their own, so that the CPU can make some of them again.
 */
static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes,
                                 const struct qp_job *job, void *buffers)
{
    struct qp_unit_buffers *b = buffers;
    carve_buffers(carve, tile_bytes, job, buffers);
    b->made = qp_take(carve, qp_device_made_bytes(tile_bytes));
}

static void carve_slots(struct qp_carve *carve, size_t tile_bytes, struct qp_job *job)
{
    struct qp_engine *e = (struct qp_engine *)job;
    size_t n_sets = qp_sets_of_tile(tile_bytes);
    for (int i = 0; i < 2; i++) {
        struct qp_slot *slot = &e->slots[i];
        slot->state = qp_take(carve, state_room(e, tile_bytes));
        slot->known = qp_take(carve, n_sets * e->known_bytes);
        slot->scale = qp_take(carve, n_sets * sizeof(double));
        slot->zero = qp_take(carve, n_sets * sizeof(int32_t));
    }
}

static void attach_lane(void *buffers, struct qp_lane *lane)
{
    ((struct qp_unit_buffers *)buffers)->lane = lane;
}

uint64_t qp_engine_tall_rows(const struct qp_engine *e, const struct qp_plan_tensor *t)
{
    return qp_writes(&e->context) ? qp_tall_rows(&t->result) : 0;
}

/*
 * Of sets whose states are large a strip in pieces has as many as have so many bytes, but columns
 * are cut no finer than words of codes are, and rows no finer than words that go down them.
 */
#define LARGE_BYTES ((uint64_t)2 << 20)

uint64_t qp_engine_large_sets(const struct qp_engine *e, const struct qp_plan_tensor *t)
{
    const uint64_t cut = qp_max_u64(qp_unit_grain(&e->context, t), qp_engine_tall_rows(e, t));
    return qp_max_u64(LARGE_BYTES / t->calibrator->state_bytes, cut);
}

/* Makes room for what the calibrator of a tensor keeps of each set. */
static void want_states(struct qp_engine *e, const struct qp_plan_tensor *t)
{
    const struct qp_calibrator *calibrator = t->calibrator;
    struct qp_sets sets;
    qp_tensor_sets(&sets, &t->result);
    if (calibrator->large_state) {
        const uint64_t n_sets = qp_min_u64(sets.n_sets, qp_engine_large_sets(e, t));
        e->large_states = (size_t)qp_max_u64(e->large_states, n_sets * calibrator->state_bytes);
    } else if (calibrator->state_bytes > e->state_bytes) {
        e->state_bytes = calibrator->state_bytes;
    }
    if (calibrator->known_bytes > e->known_bytes)
        e->known_bytes = calibrator->known_bytes;
}

void qp_engine_want(struct qp_engine *e, const struct qp_plan_tensor *t)
{
    if (!qp_is_quantized(t))
        return;
    if (qp_writes(&e->context))
        e->holds |= qp_part_is_turned(qp_tensor_part(&t->result, QP_CODES));
    e->decodes_turned |= qp_values_need_hold(t->source);
    want_states(e, t);
}

/* The bytes of a tile that holds the rows of any tensor that must be cut together. */
static size_t tallest_rows(const struct qp_job *job)
{
    const struct qp_engine *e = (const struct qp_engine *)job;
    uint64_t most = 0;
    for (size_t i = 0; i < e->n_order; i++) {
        const struct qp_plan_tensor *t = e->order[i];
        struct qp_sets sets;
        if (!qp_is_quantized(t))
            continue;
        const uint64_t tall = qp_engine_tall_rows(e, t);
        qp_tensor_sets(&sets, &t->result);
        if (tall > 1 && sets.n_bands > 1)
            most = qp_max_u64(most, tall * qp_max_u64(sets.row_len * qp_source_elem_bytes(t),
                                                      sets.n_cols * SET_BYTES));
    }
    return (size_t)most;
}

/* The bytes of the largest band that a tile may grow for; a tensor of one band is no reason. */
static size_t largest_band(const struct qp_job *job)
{
    const struct qp_engine *e = (const struct qp_engine *)job;
    uint64_t largest = 0;
    for (size_t i = 0; i < e->n_order; i++) {
        const struct qp_plan_tensor *t = e->order[i];
        struct qp_sets sets;
        if (!qp_is_quantized(t) || qp_tensor_bytes(t->source) <= QP_APART_BYTES)
            continue;
        qp_tensor_sets(&sets, &t->result);
        const uint64_t rows = qp_min_u64(sets.band_rows, sets.period_rows);
        const uint64_t n_bytes =
            rows * sets.row_len * qp_source_elem_bytes(t); /* not above its own */
        if (sets.n_bands > 1 && n_bytes <= BAND_BYTES)
            largest = qp_max_u64(largest, n_bytes);
        if (qp_is_read_turned(t))
            largest = qp_max_u64(largest, qp_min_u64(qp_tensor_bytes(t->source),
                                                     qp_job_turned_wish(job, TURNED_BYTES)));
    }
    return (size_t)qp_max_u64(largest, e->holds ? job->tile_least + QP_HOLD_TILE : 0);
}

struct qp_job_ops qp_engine_room(const struct qp_engine *e)
{
    struct qp_job_ops ops = {.buffers_size = sizeof(struct qp_unit_buffers),
                             .carve = carve_buffers,
                             .carve_shared = carve_slots,
                             .tile_least = tallest_rows,
                             .tile_wish = largest_band};
    if (e->context.device) {
        ops.carve = carve_device_buffers;
        ops.tile_wish = NULL;
        ops.device_bytes = qp_device_block_bytes;
        ops.attach = attach_lane;
    }
    return ops;
}
