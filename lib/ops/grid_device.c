/*
 * grid_device.c - the launches of grid samples: the state of a problem as arguments of the device
 * text (kernels/gpu/qk_grid_args.h).
 */
#include "grid_device.h"
#include "grid.h"

#include "kernels/gpu/qk_grid_args.h"
#include "lib/base/check.h"
#include "lib/device/lane.h"

#include <string.h>

/* Threads of a group, each of which does a point or pixel at a time. */
#define GROUP_SIZE 256

/* The kernels of a dtype. */
enum step { SAMPLE, SLOPES, TAPS, GATHER };

#define STEPS(dtype)                                                                               \
    {                                                                                              \
        qk_sample_grid_##dtype##_id, qk_slopes_grid_##dtype##_id, qk_taps_grid_##dtype##_id,       \
            qk_gather_grid_##dtype##_id                                                            \
    }

static enum qk_kernel kernel_of(const struct qplan_op *op, enum step step)
{
    static const enum qk_kernel kernels[][4] = {[QPLAN_F32] = STEPS(f32),
                                                [QPLAN_F16] = STEPS(f16),
                                                [QPLAN_BF16] = STEPS(bf16),
                                                [QPLAN_F64] = STEPS(f64)};
    return kernels[qp_op_float(op->key)][step];
}

/* ---- Arguments --------------------------------------------------------------------------------
 */

static qk_u64 bits_of(double x)
{
    qk_u64 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* f64 has every number of f32. */
#define AXIS(A)                                                                                    \
    {                                                                                              \
        bits_of((double)(A).extent), bits_of((double)(A).last), bits_of((double)(A).low),          \
            bits_of((double)(A).high), bits_of((double)(A).span), bits_of((double)(A).slope)       \
    }

/* An image without channels may be larger than any block; nobody reads it, so it may be small. */
static int64_t size_of(const struct qp_grid *grid, unsigned i)
{
    return grid->n_channels > 0 ? grid->rule.size[i] : 1;
}

static struct qk_grid_axis make_axis(const struct qplan_op *op, unsigned i)
{
    const struct qp_grid *grid = op->state;
    const bool align_corners = grid->rule.align_corners;
    const struct qp_grid_axis_f64 wide = qp_grid_axis_f64(size_of(grid, i), align_corners);
    const struct qp_grid_axis_f32 narrow = qp_grid_axis_f32(size_of(grid, i), align_corners);
    const struct qk_grid_axis f64 = AXIS(wide), f32 = AXIS(narrow);
    return op->work == QPLAN_F64 ? f64 : f32;
}

/* Modes and paddings have their numbers. */
_Static_assert(QP_GRID_BILINEAR == QK_GRID_BILINEAR && QP_GRID_NEAREST == QK_GRID_NEAREST &&
                   QP_GRID_BICUBIC == QK_GRID_BICUBIC && QP_GRID_ZEROS == QK_GRID_ZEROS &&
                   QP_GRID_BORDER == QK_GRID_BORDER && QP_GRID_REFLECTION == QK_GRID_REFLECTION,
               "modes and paddings");

/* The block holds every element of what is read and made, so the numbers of these fit. */
static struct qk_grid_args make_args(const struct qp_op_run *run, const char *output)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_grid *grid = op->state;
    const struct qp_grid_rule *rule = &grid->rule;
    const bool nearest = rule->mode == QP_GRID_NEAREST;
    struct qk_grid_args a = {.x = make_axis(op, 0),
                             .y = make_axis(op, 1),
                             .z = make_axis(op, 2),
                             .width = (qk_u32)size_of(grid, 0),
                             .height = (qk_u32)size_of(grid, 1),
                             .mode = rule->mode,
                             .padding = rule->padding,
                             .align_corners = rule->align_corners,
                             .n_axes = rule->n_axes,
                             .slot_bits = nearest                         ? 0
                                          : rule->mode == QP_GRID_BICUBIC ? 2
                                                                          : 1,
                             .n_taps = qp_grid_max_taps(rule),
                             .flat = nearest || grid->n_channels == 0,
                             .n_channels = (qk_u32)grid->n_channels,
                             .n_points = (qk_u32)grid->n_points,
                             .n_pixels = (qk_u32)grid->n_pixels};
    a.status = op->block.status;
    a.input = qp_op_at(run, "input");
    a.points = qp_op_at(run, "grid");
    a.output = qp_op_at(run, output);
    return a;
}

/* What a launch is over: points or pixels, blocks of channels, batches. */
struct extent {
    uint64_t n, n_blocks, n_batch;
};

/* A group for each tile, block and batch. */
static enum qplan_status launch(struct qp_op_run *run, enum qk_kernel kernel,
                                struct qk_grid_args *a, struct extent e, struct qplan_error *err)
{
    a->n_tiles = (qk_u32)qp_div_up(e.n, QK_GRID_TILE);
    a->n_blocks = (qk_u32)e.n_blocks;
    const uint64_t groups = a->n_tiles * e.n_blocks * e.n_batch;
    const struct qp_launch what = {kernel, (uint32_t)groups, GROUP_SIZE, a, sizeof *a};
    return qp_lane_launch(run->lane, &what, err);
}

static uint64_t n_blocks_of(const struct qp_grid *grid)
{
    return qp_div_up(grid->n_channels, QK_GRID_BLOCK);
}

enum qplan_status qp_grid_launch_sample(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_grid *grid = op->state;
    struct qk_grid_args a = make_args(run, "output");
    const struct extent all = {grid->n_points, n_blocks_of(grid), grid->n_batch};
    return launch(run, kernel_of(op, SAMPLE), &a, all, err);
}

/* ---- The gradient of the image ----------------------------------------------------------------
 */

/* What the lists of more than one batch may take. */
#define LISTS_BYTES ((uint64_t)64 << 20)

/* Where the lists of n_batches are, from the scratch on. */
struct lists {
    uint64_t n_batches;
    uint64_t counts, ends, list, weights, n_bytes;
};

static bool has(const struct qplan_op *op, const char *output)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, output);
    return tensor && tensor->n_elems > 0;
}

static uint64_t take(struct lists *lists, uint64_t n, uint64_t size)
{
    const uint64_t at = lists->n_bytes;
    lists->n_bytes += qp_div_up(n * size, 64) * 64;
    return at;
}

/* dinput and dout are in a block below 4 GiB and not empty, or there are no points: no overflow. */
static struct lists lay_out(const struct qplan_op *op)
{
    const struct qp_grid *grid = op->state;
    const uint64_t n_taps = grid->n_points * qp_grid_max_taps(&grid->rule);
    const uint64_t weight = op->work == QPLAN_F64 ? 8 : 4;
    const uint64_t batch_bytes = grid->n_pixels * 8 + n_taps * (4 + weight);
    struct lists lists = {0};
    lists.n_batches = qp_min_u64(qp_max_u64(LISTS_BYTES / batch_bytes, 1), grid->n_batch);
    lists.counts = take(&lists, lists.n_batches * grid->n_pixels + 1, 4);
    lists.ends = take(&lists, lists.n_batches * grid->n_pixels, 4);
    lists.list = take(&lists, lists.n_batches * n_taps, 4);
    lists.weights = take(&lists, lists.n_batches * n_taps, weight);
    return lists;
}

uint64_t qp_grid_lists_bytes(const struct qplan_op *op)
{
    return has(op, "dinput") ? lay_out(op).n_bytes : 0;
}

/* A step over all lists and the word behind their counts, so many to a group. */
static enum qplan_status launch_lists(struct qp_op_run *run, enum qk_kernel kernel,
                                      const struct qk_grid_args *a, qk_u32 part,
                                      struct qplan_error *err)
{
    const uint64_t groups = qp_div_up((uint64_t)a->n_lists + 1, part);
    const struct qp_launch what = {kernel, (uint32_t)groups, GROUP_SIZE, a, sizeof *a};
    return qp_lane_launch(run->lane, &what, err);
}

/* The lists of n batches, and the sums over them. */
static enum qplan_status launch_round(struct qp_op_run *run, struct qk_grid_args *a, uint64_t n,
                                      struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_grid *grid = op->state;
    const struct extent points = {grid->n_points, 1, n};
    const struct extent pixels = {grid->n_pixels, n_blocks_of(grid), n};
    const enum qk_kernel taps = kernel_of(op, TAPS);
    a->n_lists = (qk_u32)(n * grid->n_pixels);
    QP_TRY(launch_lists(run, qk_clear_grid_id, a, QK_GRID_CHUNK, err));
    a->fill = 0;
    QP_TRY(launch(run, taps, a, points, err));
    QP_TRY(launch_lists(run, qk_place_grid_id, a, QK_GRID_CHUNK, err));
    a->fill = 1;
    QP_TRY(launch(run, taps, a, points, err));
    QP_TRY(launch_lists(run, qk_order_grid_id, a, QK_GRID_TILE, err));
    return launch(run, kernel_of(op, GATHER), a, pixels, err);
}

static enum qplan_status launch_dinput(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_grid *grid = op->state;
    const struct lists lists = lay_out(op);
    struct qk_grid_args a = make_args(run, "dinput");
    a.dout = qp_op_at(run, "dout");
    a.accumulate = qp_op_number(op, "accumulate") != 0;
    a.counts = op->block.scratch + (qk_u32)lists.counts;
    a.ends = op->block.scratch + (qk_u32)lists.ends;
    a.list = op->block.scratch + (qk_u32)lists.list;
    a.weights = op->block.scratch + (qk_u32)lists.weights;
    for (uint64_t first = 0; first < grid->n_batch; first += lists.n_batches) {
        a.first_batch = (qk_u32)first;
        QP_TRY(launch_round(run, &a, qp_min_u64(lists.n_batches, grid->n_batch - first), err));
    }
    return QPLAN_OK;
}

/* ---- Both gradients ---------------------------------------------------------------------------
 */

static enum qplan_status launch_dgrid(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_grid *grid = op->state;
    struct qk_grid_args a = make_args(run, "dgrid");
    a.dout = qp_op_at(run, "dout");
    a.accumulate = qp_op_number(op, "accumulate") != 0;
    const struct extent points = {grid->n_points, 1, grid->n_batch};
    return launch(run, kernel_of(op, SLOPES), &a, points, err);
}

enum qplan_status qp_grid_launch_backward(struct qp_op_run *run, struct qplan_error *err)
{
    if (has(run->call->op, "dinput"))
        QP_TRY(launch_dinput(run, err));
    if (has(run->call->op, "dgrid"))
        QP_TRY(launch_dgrid(run, err));
    return QPLAN_OK;
}
