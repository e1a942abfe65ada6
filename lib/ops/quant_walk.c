/*
 * quant_walk.c - a chunk of elements tile by tile, its parameters in working precision, and codes
 * in and out of a tensor. The same tiles and kernels that checkpoints are quantized with.
 */
#include "quant.h"

#include "lib/base/carve.h"
#include "lib/base/check.h"
#include "lib/model/sets.h"
#include "lib/store/place.h"

#include <string.h>

/* ---- Buffers ----------------------------------------------------------------------------------
 */

static struct qp_quant_worker carve(struct qp_carve *carve)
{
    struct qp_quant_worker w = {.n_sets = 0};
    for (int i = 0; i < 2; i++)
        w.elems[i] = qp_take(carve, QP_OP_CHUNK * sizeof(double));
    w.codes = qp_take(carve, QP_OP_CHUNK);
    w.bytes = qp_take(carve, QP_OP_CHUNK);
    w.scale = qp_take(carve, QP_OP_CHUNK * sizeof(double));
    w.zero = qp_take(carve, QP_OP_CHUNK * sizeof(int32_t));
    w.stored = qp_take(carve, QP_OP_CHUNK * sizeof(double));
    w.narrow = qp_take(carve, QP_OP_CHUNK * sizeof(double));
    w.wide = qp_take(carve, QP_OP_CHUNK * sizeof(double));
    return w;
}

static uint64_t worker_bytes(void)
{
    struct qp_carve count = {0};
    (void)carve(&count);
    return count.used;
}

uint64_t qp_quant_workspace(const struct qplan_op *op)
{
    return op->n_workers * worker_bytes();
}

struct qp_quant_worker qp_quant_worker(const struct qp_op_call *call, unsigned worker)
{
    struct qp_carve block = {.block = call->workspace + worker * worker_bytes()};
    return carve(&block);
}

/* ---- Units ------------------------------------------------------------------------------------
 */

uint64_t qp_quant_units(const struct qp_quant *quant)
{
    return qp_div_up(quant->geometry.sets.n_elems, QP_QUANT_UNIT);
}

/* Units begin at multiples of their size or, where bytes have more than a code, where one begins.
 */
static uint64_t cut(const struct qp_quant *quant, uint64_t elem)
{
    const struct qp_sets *sets = &quant->geometry.sets;
    if (elem >= sets->n_elems)
        return sets->n_elems;
    return quant->packed ? elem - elem % sets->last_len % QP_QUANT_GRAIN : elem;
}

void qp_quant_unit(const struct qp_quant *quant, uint64_t u, uint64_t *begin, uint64_t *end)
{
    *begin = cut(quant, u * QP_QUANT_UNIT);
    *end = cut(quant, (u + 1) * QP_QUANT_UNIT);
}

/* ---- Parameters -------------------------------------------------------------------------------
 */

const struct qp_work_kernels *qp_quant_work(const struct qplan_op *op)
{
    return qp_source_kernels(op->work, op->isa)->work;
}

void qp_quant_load_zero(enum qplan_storage dtype, size_t n, const void *stored, int32_t *out)
{
    if (dtype == QPLAN_STORAGE_I32) {
        memcpy(out, stored, n * sizeof *out);
    } else if (dtype == QPLAN_STORAGE_I8) {
        for (size_t i = 0; i < n; i++)
            out[i] = (int32_t)((const int8_t *)stored)[i];
    } else {
        for (size_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)stored)[i];
    }
}

/* Zero points that are floats, rounded and clamped to the codes. */
static const int32_t *float_zeros(const struct qp_op_call *call, const struct qp_quant_worker *w,
                                  uint64_t set, size_t n)
{
    const struct qp_quant *quant = call->op->state;
    const enum qplan_dtype dtype = qp_op_float(qp_op_tensor(call->op, "zero_point")->dtype);
    const void *from = qp_view_get(qp_op_view(call, "zero_point"), set, n, w->narrow);
    if (dtype != call->op->work) {
        qp_quant_work(call->op)->load(dtype, n, from, w->wide);
        from = w->wide;
    }
    qp_quant_affine(call->op)->round_zero(n, from, quant->zero_min, quant->zero_max, w->zero);
    return w->zero;
}

int32_t qp_quant_absent_zero(const struct qp_quant *quant)
{
    const int32_t least = quant->float_zero ? quant->zero_min : 0;
    const int32_t most = quant->float_zero ? quant->zero_max : 0;
    return least > 0 ? least : most < 0 ? most : 0;
}

/* The scales of n sets: where they are if they are in working precision, else in the window. */
static const void *scales(const struct qp_op_call *call, const struct qp_quant_worker *w,
                          uint64_t set, size_t n)
{
    const struct qp_view *view = qp_op_view(call, "scale");
    const enum qplan_dtype dtype = qp_op_float(qp_op_tensor(call->op, "scale")->dtype);
    const void *stored = qp_view_get(view, set, n, w->stored);
    if (dtype == call->op->work)
        return stored;
    qp_quant_work(call->op)->load(dtype, n, stored, w->scale);
    return w->scale;
}

static const int32_t *zeros(const struct qp_op_call *call, const struct qp_quant_worker *w,
                            uint64_t set, size_t n)
{
    const struct qp_quant *quant = call->op->state;
    const struct qp_op_tensor *tensor = qp_op_tensor(call->op, "zero_point");
    if (!tensor) {
        for (size_t i = 0; i < n; i++)
            w->zero[i] = qp_quant_absent_zero(quant);
        return w->zero;
    }
    if (quant->float_zero)
        return float_zeros(call, w, set, n);
    const struct qp_view *view = qp_op_view(call, "zero_point");
    if (tensor->dtype == QPLAN_STORAGE_I32)
        return qp_view_get(view, set, n, w->zero);
    qp_quant_load_zero(tensor->dtype, n, qp_view_get(view, set, n, w->narrow), w->zero);
    return w->zero;
}

void qp_quant_next(const struct qp_op_call *call, struct qp_quant_worker *w, uint64_t elem,
                   uint64_t end, struct qp_quant_tile *tile)
{
    const struct qp_quant *quant = call->op->state;
    uint64_t set;
    tile->n = (size_t)qp_tile_at(&quant->geometry.sets, elem, end, QP_OP_CHUNK, &tile->tile, &set);
    const size_t n_sets = qp_tile_sets(&tile->tile);
    if (set != w->first || n_sets > w->n_sets) {
        w->at_scale = scales(call, w, set, n_sets);
        w->at_zero = zeros(call, w, set, n_sets);
        w->first = set;
        w->n_sets = n_sets;
    }
    tile->scale = w->at_scale;
    tile->zero = w->at_zero;
}

/* ---- Codes ------------------------------------------------------------------------------------
 */

/* The codes [elem, elem + n), as a range of the matrix of rows along the last axis. */
static struct qp_flat_range codes_at(const struct qp_quant *quant, uint64_t elem, size_t n)
{
    const struct qp_sets *sets = &quant->geometry.sets;
    return (struct qp_flat_range){{sets->n_elems / sets->last_len, sets->last_len}, elem, n};
}

const uint8_t *qp_quant_get_codes(const struct qp_op_call *call, const struct qp_view *view,
                                  struct qp_quant_worker *w, uint64_t elem, size_t n)
{
    const struct qp_quant *quant = call->op->state;
    const struct qp_flat_range range = codes_at(quant, elem, n);
    const struct qp_place_run run = qp_flat_run(&quant->place, &range);
    const uint8_t *bytes = qp_view_get(view, run.off, (size_t)run.n_bytes, w->bytes);
    if (!quant->packed)
        return bytes;
    (void)qp_flat_get(&quant->place, &range, call->op->isa, bytes, w->codes);
    return w->codes;
}

uint8_t *qp_quant_code_room(const struct qp_op_call *call, const struct qp_view *view,
                            struct qp_quant_worker *w, uint64_t elem, size_t n)
{
    const struct qp_quant *quant = call->op->state;
    return quant->packed ? w->codes : qp_view_room(view, elem, n, w->codes);
}

void qp_quant_put_codes(const struct qp_op_call *call, const struct qp_view *view,
                        struct qp_quant_worker *w, uint64_t elem, size_t n, const uint8_t *codes)
{
    const struct qp_quant *quant = call->op->state;
    const struct qp_flat_range range = codes_at(quant, elem, n);
    const struct qp_place_run run = qp_flat_run(&quant->place, &range);
    const size_t n_bytes = (size_t)run.n_bytes;
    if (quant->packed) {
        uint8_t *room = qp_view_room(view, run.off, n_bytes, w->bytes);
        qp_flat_put(&quant->place, &range, call->op->isa, codes, room);
        codes = room;
    }
    qp_view_put(view, run.off, n_bytes, codes);
}
