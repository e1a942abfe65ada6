/*
 * grid_sample_backward.c - the gradients of a grid sample by its image and by its grid.
 *
 * Every sum has one owner. For dinput that is a band of pixels of a block of channels: the unit
 * looks at all points of its batch in ascending order and adds the taps that fall into the band.
 * For dgrid it is a slice of the points of a batch, to which channels are added in ascending order.
 * So the order of terms is the same for any number of workers, bands and slices.
 */
#include "families.h"
#include "grid.h"
#include "grid_device.h"

#include "lib/base/check.h"

#include <string.h>

struct job {
    struct qp_grid_run run;
    const struct qp_view *to; /* dinput or dgrid */
    bool accumulate;
    uint64_t n_parts, part; /* bands of a plane or slices of a batch, and their length */
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    const struct qp_op_tensor *points = qp_op_tensor(op, "grid");
    const bool dinput = qp_op_number(op, "need_dinput"), dgrid = qp_op_number(op, "need_dgrid");
    uint64_t shape[QP_GRID_AXES + 2];
    if (!dinput && !dgrid)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "need_dgrid", err,
                                "no gradient is needed: expected need_dinput or need_dgrid");
    QP_TRY(qp_grid_check(op, err));
    QP_TRY(qp_op_check_same_dtype(op, "dout", "input", err));
    const unsigned rank = qp_grid_output_shape(op, shape);
    QP_TRY(qp_op_check_shape(op, "dout", shape, rank, "that of the output", err));
    if (dinput)
        QP_TRY(qp_op_make_output(op, "dinput", op->key, input->shape, input->rank, err));
    if (dgrid)
        QP_TRY(qp_op_make_output(op, "dgrid", op->key, points->shape, points->rank, err));
    return QPLAN_OK;
}

static bool has(const struct qplan_op *op, const char *output)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, output);
    return tensor && tensor->n_elems > 0;
}

static uint64_t workspace(const struct qplan_op *op)
{
    const uint64_t dinput = has(op, "dinput") ? qp_grid_workspace(op, QP_GRID_DINPUT) : 0;
    const uint64_t dgrid = has(op, "dgrid") ? qp_grid_workspace(op, QP_GRID_DGRID) : 0;
    return qp_max_u64(dinput, dgrid);
}

/* ---- Both -------------------------------------------------------------------------------------
 */

/* Rounds n sums, with the old values as the last terms, and brings them to the output. */
static void put_sums(struct job *job, uint64_t at, size_t n, double *hi, double *lo, void *buffer)
{
    const struct qp_sum_kernels *sums = job->run.sums;
    if (job->accumulate)
        sums->add(n, qp_view_get(job->to, at, n, buffer), hi, lo);
    void *room = qp_view_room(job->to, at, n, buffer);
    const uint64_t overflow = sums->finish(n, hi, lo, room);
    qp_view_put(job->to, at, n, room);
    if (overflow)
        (void)atomic_fetch_add(&job->run.overflow, overflow);
}

static void clear_sums(const struct job *job, const struct qp_grid_worker *w, uint64_t n)
{
    memset(w->sums_hi, 0, n * sizeof *w->sums_hi);
    if (job->run.sums->keeps_errors)
        memset(w->sums_lo, 0, n * sizeof *w->sums_lo);
}

/* Cuts n into parts that fit, and into enough of them for the team where units are few. */
static void cut(struct job *job, uint64_t n, uint64_t most, uint64_t n_units)
{
    const uint64_t team = qp_div_up(job->run.call->op->n_workers, qp_max_u64(n_units, 1));
    job->part = qp_div_up(n, qp_max_u64(qp_div_up(n, most), team));
    job->n_parts = qp_div_up(n, job->part);
}

/* ---- dinput -----------------------------------------------------------------------------------
 */

/* Results of a band, which begins at a pixel of the block's planes. */
static void finish_band(struct job *job, struct qp_grid_worker *w,
                        const struct qp_grid_block *block, uint64_t begin, uint64_t n)
{
    const bool errors = job->run.sums->keeps_errors;
    for (uint64_t done = 0; done < n; done += QP_GRID_TILE) {
        const size_t part = (size_t)qp_min_u64(QP_GRID_TILE, n - done);
        const size_t at = (size_t)done * block->width;
        qp_grid_separate(block->width, part, w->sums_hi + at, w->hi, QP_GRID_TILE);
        if (errors)
            qp_grid_separate(block->width, part, w->sums_lo + at, w->lo, QP_GRID_TILE);
        for (unsigned k = 0; k < block->n_lanes; k++)
            put_sums(job, (block->plane + k) * job->run.grid->n_pixels + begin + done, part,
                     w->hi + (size_t)k * QP_GRID_TILE, w->lo + (size_t)k * QP_GRID_TILE, w->raw);
    }
}

static void dinput_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_grid_run *run = &job->run;
    const struct qp_grid *grid = run->grid;
    struct qp_grid_worker *w = &run->workers[worker];
    const uint64_t n_blocks = qp_grid_n_blocks(grid), step = run->layout.tap_points;
    const uint64_t batch = u / (n_blocks * job->n_parts), begin = u % job->n_parts * job->part;
    const struct qp_grid_block block = qp_grid_block(grid, batch, u / job->n_parts % n_blocks);
    const uint64_t n_band = qp_min_u64(job->part, grid->n_pixels - begin);
    const struct qp_grid_band band = {(int64_t)begin, (int64_t)n_band, w->sums_hi, w->sums_lo};
    clear_sums(job, w, n_band * block.width);
    for (uint64_t first = 0; first < grid->n_points; first += step) {
        const size_t n = (size_t)qp_min_u64(step, grid->n_points - first);
        qp_grid_hold(run, w, batch, first, n);
        for (size_t i = 0; i < n; i += QP_GRID_TILE) {
            const size_t part = (size_t)qp_min_u64(QP_GRID_TILE, n - i);
            const struct qp_grid_taps taps = qp_grid_taps_at(run, w, i);
            const void *dout = qp_grid_dout(run, w, &block, first + i, part);
            run->kernels->scatter(block.width, part, &taps, dout, &band);
        }
    }
    finish_band(job, w, &block, begin, n_band);
}

static void run_dinput(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_grid *grid = op->state;
    struct job job = {.to = qp_op_view(call, "dinput"),
                      .accumulate = qp_op_number(op, "accumulate")};
    const uint64_t n_blocks = grid->n_batch * qp_grid_n_blocks(grid);
    qp_grid_begin(&job.run, call, QP_GRID_DINPUT);
    cut(&job, grid->n_pixels, job.run.layout.band_pixels, n_blocks);
    qp_op_units(op, n_blocks * job.n_parts, dinput_unit, &job);
    call->counts.overflow += job.run.overflow;
}

/* ---- dgrid ------------------------------------------------------------------------------------
 */

/* Adds the terms of a block to the sums of n points, whose taps are held. */
static void add_block(const struct job *job, struct qp_grid_worker *w,
                      const struct qp_grid_block *block, const void *image, uint64_t first,
                      size_t n, uint64_t at)
{
    const struct qp_grid_run *run = &job->run;
    const unsigned n_axes = run->grid->rule.n_axes;
    const size_t tile = qp_grid_tile(run);
    for (size_t i = 0; i < n; i += tile) {
        const size_t part = (size_t)qp_min_u64(tile, n - i);
        const uint64_t sum = (at + i) * n_axes;
        struct qp_grid_taps taps = qp_grid_taps_at(run, w, i);
        const void *pixels = qp_grid_pixels(run, w, block, image, part, &taps);
        const struct qp_grid_slopes slopes = {
            .n = part,
            .n_lanes = block->n_lanes,
            .taps = &taps,
            .image = pixels,
            .dout = qp_grid_dout(run, w, block, first + i, part),
            .hi = w->sums_hi + sum,
            .lo = run->sums->keeps_errors ? w->sums_lo + sum : NULL,
        };
        run->kernels->slopes(block->width, n_axes, &slopes);
    }
}

/* n sums times the factors of their points: one product, after which no error is kept. */
static void scale_sums(const struct job *job, size_t at, size_t n, struct qp_grid_worker *w)
{
    const bool errors = job->run.sums->keeps_errors;
    for (size_t i = 0; i < n; i++) {
        const double f = errors ? ((const double *)(void *)w->factor)[at + i]
                                : (double)((const float *)(void *)w->factor)[at + i];
        const struct qp_sum sum = {w->sums_hi[at + i], errors ? w->sums_lo[at + i] : 0};
        w->hi[i] = f * qp_sum_value(&sum);
        w->lo[i] = 0;
    }
}

/* Results of a slice of n numbers, the first of which is at the given place of dgrid. */
static void finish_slice(struct job *job, struct qp_grid_worker *w, uint64_t to, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += QP_GRID_STAGE) {
        const size_t part = (size_t)qp_min_u64(QP_GRID_STAGE, n - at);
        scale_sums(job, (size_t)at, part, w);
        put_sums(job, to + at, part, w->hi, w->lo, w->raw);
    }
}

static void dgrid_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_grid_run *run = &job->run;
    const struct qp_grid *grid = run->grid;
    struct qp_grid_worker *w = &run->workers[worker];
    const uint64_t batch = u / job->n_parts, begin = u % job->n_parts * job->part;
    const uint64_t n_slice = qp_min_u64(job->part, grid->n_points - begin);
    const uint64_t n_blocks = grid->rule.mode == QP_GRID_NEAREST ? 0 : qp_grid_n_blocks(grid);
    const uint64_t step = run->layout.tap_points, n_sums = n_slice * grid->rule.n_axes;
    w->slice = begin;
    clear_sums(job, w, n_sums);
    memset(w->factor, 0, n_sums * run->work_bytes); /* for sums that no block adds to */
    for (uint64_t b = 0; b < n_blocks; b++) {
        const struct qp_grid_block block = qp_grid_block(grid, batch, b);
        const void *image = qp_grid_image(run, w, &block);
        for (uint64_t at = 0; at < n_slice; at += step) {
            const size_t n = (size_t)qp_min_u64(step, n_slice - at);
            qp_grid_hold(run, w, batch, begin + at, n);
            add_block(job, w, &block, image, begin + at, n, at);
        }
    }
    finish_slice(job, w, (batch * grid->n_points + begin) * grid->rule.n_axes, n_sums);
}

static void run_dgrid(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_grid *grid = op->state;
    struct job job = {.to = qp_op_view(call, "dgrid"),
                      .accumulate = qp_op_number(op, "accumulate")};
    qp_grid_begin(&job.run, call, QP_GRID_DGRID);
    cut(&job, grid->n_points, job.run.layout.slice_points, grid->n_batch);
    qp_op_units(op, grid->n_batch * job.n_parts, dgrid_unit, &job);
    call->counts.overflow += job.run.overflow;
}

static void run(struct qp_op_call *call)
{
    if (has(call->op, "dinput"))
        run_dinput(call);
    if (has(call->op, "dgrid"))
        run_dgrid(call);
}

/* ---- The rows ---------------------------------------------------------------------------------
 */

#define KERNEL(ISA)                                                                                \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_TAP_SUM,    \
        .workspace = workspace, .run = run                                                         \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX2),
    KERNEL(QPLAN_ISA_SCALAR),
    {.isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_TAP_SUM,
     .scratch = qp_grid_lists_bytes,
     .launch = qp_grid_launch_backward},
};

#define EXAMPLE(FIELDS, SIZE, DIMS, KIND)                                                          \
    FIELDS "; dout " QP_GRID_##SIZE##_OUT_##DIMS " any; input " QP_GRID_##SIZE##_IN_##DIMS         \
        " any; grid " QP_GRID_##SIZE##_GRID_##DIMS " " KIND
#define EXAMPLE_2(FIELDS, KIND) EXAMPLE(FIELDS, SMALL, 2, KIND),
#define EXAMPLE_3(FIELDS, KIND) EXAMPLE(FIELDS, SMALL, 3, KIND),
#define ADDED(DIMS)                                                                                \
    EXAMPLE("accumulate=true", LARGE, DIMS, "grid")                                                \
    "; dinput " QP_GRID_LARGE_IN_##DIMS " any; dgrid " QP_GRID_LARGE_GRID_##DIMS " any"

static const char *const examples_2d[] = {QP_GRID_EXAMPLES_2(EXAMPLE_2) ADDED(2)};
static const char *const examples_3d[] = {QP_GRID_EXAMPLES_3(EXAMPLE_3) ADDED(3)};

static const struct qplan_op_field_info fields[] = {
    QP_GRID_FIELDS,
    {.name = "need_dinput",
     .type = QPLAN_FIELD_BOOL,
     .fallback = "true",
     .about = "whether the gradient of the image is an output"},
    {.name = "need_dgrid",
     .type = QPLAN_FIELD_BOOL,
     .fallback = "true",
     .about = "whether the gradient of the grid is an output"},
    QP_FIELD_ACCUMULATE,
};

#define ARGUMENTS(INPUT, GRID, OUTPUT)                                                             \
    {                                                                                              \
        {.name = "dout", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = (OUTPUT)},            \
            {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = (INPUT)},        \
            {.name = "grid", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = (GRID)},          \
            {.name = "dinput",                                                                     \
             .direction = QPLAN_OP_UPDATE,                                                         \
             .optional = true,                                                                     \
             .dtypes = QP_FP,                                                                      \
             .shape = (INPUT)},                                                                    \
        {                                                                                          \
            .name = "dgrid", .direction = QPLAN_OP_UPDATE, .optional = true, .dtypes = QP_FP,      \
            .shape = (GRID)                                                                        \
        }                                                                                          \
    }

static const struct qplan_op_argument_info arguments_2d[] =
    ARGUMENTS("[N,C,H,W]", "[N,OH,OW,2]", "[N,C,OH,OW]");
static const struct qplan_op_argument_info arguments_3d[] =
    ARGUMENTS("[N,C,D,H,W]", "[N,OD,OH,OW,3]", "[N,C,OD,OH,OW]");

#define ROW(DIMS)                                                                                  \
    {                                                                                              \
        .info = {.name = "grid_sample_" #DIMS "d_backward",                                        \
                 .category = "grid",                                                               \
                 .summary = "the gradients of grid_sample_" #DIMS "d by image and grid",           \
                 .formula = "dinput[n,c,q] = sum of weight * dout[n,c,p] over ascending p with a " \
                            "tap at q; dgrid[n,p] = its slope * sum of dout[n,c,p] * d output "    \
                            "over ascending c, 0 for nearest; + the old values if accumulate",     \
                 .oracle = "torch autograd computed in f64: f32 to 5e-6, f64 to 1e-12 of the "     \
                           "largest",                                                              \
                 QP_OP_LIST(fields, fields),                                                       \
                 QP_OP_LIST(arguments, arguments_##DIMS##d)},                                      \
        .variant = (DIMS), QP_OP_LIST(kernels, kernels), QP_OP_LIST(examples, examples_##DIMS##d), \
        .state_bytes = sizeof(struct qp_grid), .check = check                                      \
    }

static const struct qp_op_row row_2d = ROW(2), row_3d = ROW(3);

const struct qp_op_row *const qp_ops_grid_sample_backward[] = {&row_2d, &row_3d, NULL};
