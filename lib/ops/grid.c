/*
 * grid.c - the problem of a grid sample, and what its workers have in memory.
 */
#include "grid.h"

#include "lib/base/carve.h"
#include "lib/base/check.h"

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check_image(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_grid *grid = op->state;
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    const unsigned n_axes = grid->rule.n_axes;
    static const char *const names[] = {"W", "H", "D"};
    QP_TRY(qp_op_check_rank(op, "input", n_axes + 2, err));
    grid->n_batch = input->shape[0];
    grid->n_channels = input->shape[1];
    grid->n_pixels = 1;
    for (unsigned i = 0; i < QP_GRID_AXES; i++)
        grid->rule.size[i] = i < n_axes ? (int64_t)input->shape[n_axes + 1 - i] : 1;
    for (unsigned i = n_axes; i-- > 0;) {
        if (grid->rule.size[i] == 0)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "input", err,
                                     "an image without pixels: expected %s above 0, found 0",
                                     names[i]);
    }
    if (input->n_elems > 0) {
        grid->n_pixels = input->n_elems / grid->n_batch / grid->n_channels;
        return QPLAN_OK;
    }
    for (unsigned i = 0; i < n_axes;
         i++) { /* no batch or channel: the product is not known small */
        if (!qp_mul_u64(grid->n_pixels, (uint64_t)grid->rule.size[i], &grid->n_pixels) ||
            grid->n_pixels > QP_OP_MAX_ELEMS)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "input", err,
                                     "too large: expected at most 2^58 pixels in a plane");
    }
    return QPLAN_OK;
}

static enum qplan_status check_points(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_grid *grid = op->state;
    const struct qp_op_tensor *points = qp_op_tensor(op, "grid");
    const unsigned n_axes = grid->rule.n_axes;
    uint64_t shape[QP_GRID_AXES + 2];
    QP_TRY(qp_op_check_same_dtype(op, "grid", "input", err));
    QP_TRY(qp_op_check_rank(op, "grid", n_axes + 2, err));
    shape[0] = grid->n_batch;
    grid->n_points = 1;
    for (unsigned i = 1; i <= n_axes; i++) {
        shape[i] = points->shape[i];
        if (!qp_mul_u64(grid->n_points, shape[i], &grid->n_points) ||
            grid->n_points > QP_OP_MAX_ELEMS)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "grid", err,
                                     "too large: expected at most 2^58 points");
    }
    shape[n_axes + 1] = n_axes;
    return qp_op_check_shape(op, "grid", shape, n_axes + 2,
                             n_axes == 2 ? "the batch of input, and (x, y) last"
                                         : "the batch of input, and (x, y, z) last",
                             err);
}

enum qplan_status qp_grid_check(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_grid *grid = op->state;
    grid->rule.n_axes = (unsigned)op->row->variant;
    grid->rule.mode = (enum qp_grid_mode)qp_op_number(op, "mode");
    grid->rule.padding = (enum qp_grid_padding)qp_op_number(op, "padding_mode");
    grid->rule.align_corners = qp_op_number(op, "align_corners");
    if (grid->rule.mode == QP_GRID_BICUBIC && grid->rule.n_axes != 2)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "mode", err,
                                "not in 3-D: expected bilinear or nearest, found bicubic");
    QP_TRY(check_image(op, err));
    return check_points(op, err);
}

unsigned qp_grid_output_shape(const struct qplan_op *op, uint64_t *shape)
{
    const struct qp_grid *grid = op->state;
    const struct qp_op_tensor *points = qp_op_tensor(op, "grid");
    shape[0] = grid->n_batch;
    shape[1] = grid->n_channels;
    for (unsigned i = 0; i < grid->rule.n_axes; i++)
        shape[i + 2] = points->shape[i + 1];
    return grid->rule.n_axes + 2;
}

/* ---- Blocks -----------------------------------------------------------------------------------
 */

static unsigned width_of(uint64_t n_lanes)
{
    if (n_lanes > 4)
        return 8;
    return n_lanes > 1 ? 4 : 1;
}

struct qp_grid_block qp_grid_block(const struct qp_grid *grid, uint64_t batch, uint64_t i)
{
    const uint64_t channel = i * QP_GRID_LANES, left = grid->n_channels - channel;
    struct qp_grid_block block = {.plane = batch * grid->n_channels + channel,
                                  .n_lanes = (unsigned)qp_min_u64(left, QP_GRID_LANES)};
    block.width = width_of(block.n_lanes);
    return block;
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

/* Sizes that do not depend on the layout. */
struct sizes {
    size_t elem, work; /* bytes of an element, stored and in working precision */
    size_t width;      /* of the widest block */
    size_t weights;    /* numbers of a tap */
    size_t sum;        /* bytes of one sum */
    size_t sums_of_point;
    uint64_t tap_bytes; /* of a point */
};

static struct sizes sizes_of(const struct qplan_op *op, enum qp_grid_pass pass)
{
    const struct qp_grid *grid = op->state;
    struct sizes s = {.elem = qp_float_bytes(qp_op_float(op->key)),
                      .work = op->work == QPLAN_F64 ? 8 : 4,
                      .width = width_of(grid->n_channels),
                      .weights = pass == QP_GRID_DGRID ? grid->rule.n_axes : 1,
                      .sum = (op->work == QPLAN_F64 ? 2 : 1) * sizeof(double),
                      .sums_of_point = grid->rule.n_axes};
    const size_t tap = 2 * sizeof(int64_t) + s.weights * s.work;
    s.tap_bytes = sizeof(uint32_t) + qp_grid_max_taps(&grid->rule) * tap;
    return s;
}

static void take_taps(const struct qplan_op *op, const struct sizes *s, uint64_t n,
                      struct qp_carve *carve, struct qp_grid_taps *taps)
{
    const struct qp_grid *grid = op->state;
    const uint64_t n_taps = n * qp_grid_max_taps(&grid->rule);
    taps->stride = (size_t)n;
    taps->count = qp_take(carve, n * sizeof *taps->count);
    taps->place = qp_take(carve, n_taps * sizeof *taps->place);
    taps->weight = qp_take(carve, n_taps * s->weights * s->work);
}

static void take_worker(const struct qplan_op *op, enum qp_grid_pass pass,
                        const struct qp_grid_layout *layout, struct qp_carve *carve,
                        struct qp_grid_worker *w)
{
    const struct qp_grid *grid = op->state;
    const struct sizes s = sizes_of(op, pass);
    const uint64_t stage = (uint64_t)QP_GRID_STAGE * s.width;
    const uint64_t pixels = layout->dense ? grid->n_pixels : QP_GRID_STAGE;
    const uint64_t n_sums = pass == QP_GRID_DINPUT ? layout->band_pixels * s.width
                                                   : layout->slice_points * s.sums_of_point;
    *w = (struct qp_grid_worker){.taps.slopes = pass == QP_GRID_DGRID};
    take_taps(op, &s, layout->tap_points, carve, &w->taps);
    w->raw = qp_take(carve, stage * s.elem);
    w->work = qp_take(carve, stage * s.work);
    w->hi = qp_take(carve, (uint64_t)QP_GRID_LANES * QP_GRID_TILE * sizeof(double));
    w->lo = qp_take(carve, (uint64_t)QP_GRID_LANES * QP_GRID_TILE * sizeof(double));
    if (pass != QP_GRID_DINPUT) {
        w->image = qp_take(carve, pixels * s.width * s.work);
        w->place =
            qp_take(carve, layout->dense ? 0
                                         : layout->tap_points * qp_grid_max_taps(&grid->rule) *
                                               sizeof *w->place);
    }
    if (pass == QP_GRID_DGRID)
        w->factor = qp_take(carve, n_sums * s.work);
    if (pass != QP_GRID_SAMPLE) {
        w->dout = qp_take(carve, (uint64_t)QP_GRID_TILE * s.width * s.work);
        w->sums_hi = qp_take(carve, n_sums * sizeof(double));
        w->sums_lo = qp_take(carve, s.sum > sizeof(double) ? n_sums * sizeof(double) : 0);
    }
}

/* ---- Layouts ----------------------------------------------------------------------------------
 */

/* Without a limit all workers together take no more than this; nor more for taps than that. */
#define SOFT_LIMIT (UINT64_C(2) << 30)
#define TAPS_LIMIT (UINT64_C(8) << 20)

/* What a worker may have beyond the least. */
static uint64_t room_beyond(const struct qplan_op *op, enum qp_grid_pass pass,
                            const struct qp_grid_layout *least)
{
    const uint64_t limit = qp_min_u64(op->max_workspace, SOFT_LIMIT) / op->n_workers;
    struct qp_carve count = {.used = 1024}; /* what is aligned again, and the worker itself */
    struct qp_grid_worker w;
    take_worker(op, pass, least, &count, &w);
    return limit > count.used ? limit - count.used : 0;
}

/* Grows n up to most where each costs so many bytes. */
static uint64_t grow(uint64_t n, uint64_t most, uint64_t bytes, uint64_t *room)
{
    const uint64_t more = qp_min_u64(most - qp_min_u64(n, most), *room / bytes);
    *room -= more * bytes;
    return n + more;
}

/* Whole planes are worth it unless the points touch few of their pixels. */
static bool wants_dense(const struct qp_grid *grid, uint64_t n_points)
{
    return n_points * qp_grid_max_taps(&grid->rule) >= grid->n_pixels / 16;
}

static struct qp_grid_layout layout_of(const struct qplan_op *op, enum qp_grid_pass pass)
{
    const struct qp_grid *grid = op->state;
    const struct sizes s = sizes_of(op, pass);
    struct qp_grid_layout l = {
        .tap_points = qp_min_u64(grid->n_points, QP_GRID_TILE),
        .band_pixels = pass == QP_GRID_DINPUT ? qp_min_u64(grid->n_pixels, QP_GRID_STAGE) : 0,
        .slice_points = pass == QP_GRID_DGRID ? qp_min_u64(grid->n_points, QP_GRID_TILE) : 0,
    };
    uint64_t room = room_beyond(op, pass, &l);
    if (pass == QP_GRID_DINPUT)
        l.band_pixels = grow(l.band_pixels, grid->n_pixels, s.width * s.sum, &room);
    if (pass == QP_GRID_DGRID)
        l.slice_points =
            grow(l.slice_points, grid->n_points, s.sums_of_point * (s.sum + s.work), &room);
    if (pass != QP_GRID_DINPUT &&
        wants_dense(grid, pass == QP_GRID_DGRID ? l.slice_points : grid->n_points))
        l.dense = grid->n_pixels <= room / (s.width * s.work);
    if (l.dense)
        room -= grid->n_pixels * s.width * s.work;
    room = qp_min_u64(room, TAPS_LIMIT);
    const uint64_t taps = grow(l.tap_points, grid->n_points, s.tap_bytes, &room);
    if (taps == grid->n_points) /* some would be made anew for each block, so all can be */
        l.tap_points = taps;
    return l;
}

static void take_all(const struct qplan_op *op, enum qp_grid_pass pass,
                     const struct qp_grid_layout *layout, struct qp_carve *carve,
                     struct qp_grid_worker **workers)
{
    *workers = qp_take(carve, op->n_workers * sizeof **workers);
    for (unsigned i = 0; i < op->n_workers; i++) {
        struct qp_grid_worker counted;
        take_worker(op, pass, layout, carve, *workers ? &(*workers)[i] : &counted);
    }
}

uint64_t qp_grid_workspace(const struct qplan_op *op, enum qp_grid_pass pass)
{
    const struct qp_grid_layout layout = layout_of(op, pass);
    struct qp_carve count = {0};
    struct qp_grid_worker *workers;
    take_all(op, pass, &layout, &count, &workers);
    return count.used;
}

void qp_grid_begin(struct qp_grid_run *run, const struct qp_op_call *call, enum qp_grid_pass pass)
{
    const struct qplan_op *op = call->op;
    const enum qplan_dtype dtype = qp_op_float(op->key);
    struct qp_carve block = {.block = call->workspace};
    *run = (struct qp_grid_run){.call = call,
                                .grid = op->state,
                                .dtype = dtype,
                                .work_bytes = op->work == QPLAN_F64 ? 8 : 4,
                                .kernels = qp_grid_kernels(op->work, op->isa),
                                .sums = qp_sum_kernels(dtype, op->isa),
                                .decode = qp_source_kernels(dtype, op->isa)->work,
                                .input = qp_op_view(call, "input"),
                                .points = qp_op_view(call, "grid"),
                                .dout = qp_op_view(call, "dout"),
                                .pass = pass,
                                .layout = layout_of(op, pass)};
    take_all(op, pass, &run->layout, &block, &run->workers);
}
