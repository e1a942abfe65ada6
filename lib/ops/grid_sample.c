/*
 * grid_sample.c - grid_sample_2d and grid_sample_3d: an image read at the points of a grid.
 *
 * A unit is a block of channels of one batch or, where there are fewer of those than workers, some
 * of its points. Every value depends on its point and plane alone.
 */
#include "families.h"
#include "grid.h"
#include "grid_device.h"

#include "lib/base/check.h"

struct job {
    struct qp_grid_run run;
    const struct qp_view *output;
    uint64_t n_slices, slice;
};

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    uint64_t shape[QP_GRID_AXES + 2];
    QP_TRY(qp_grid_check(op, err));
    const unsigned rank = qp_grid_output_shape(op, shape);
    return qp_op_make_output(op, "output", op->key, shape, rank, err);
}

static uint64_t workspace(const struct qplan_op *op)
{
    return qp_op_tensor(op, "output")->n_elems > 0 ? qp_grid_workspace(op, QP_GRID_SAMPLE) : 0;
}

/* ---- The work ---------------------------------------------------------------------------------
 */

/* Rounds a tile of a block and brings it to the output. */
static void put_tile(struct job *job, const struct qp_grid_block *block, uint64_t first, size_t n,
                     struct qp_grid_worker *w)
{
    const struct qp_grid *grid = job->run.grid;
    uint64_t overflow = 0;
    for (unsigned k = 0; k < block->n_lanes; k++) {
        const uint64_t at = (block->plane + k) * grid->n_points + first;
        void *room = qp_view_room(job->output, at, n, w->raw);
        overflow += job->run.sums->finish(n, w->hi + (size_t)k * QP_GRID_TILE, w->lo, room);
        qp_view_put(job->output, at, n, room);
    }
    if (overflow)
        (void)atomic_fetch_add(&job->run.overflow, overflow);
}

static void sample_points(struct job *job, const struct qp_grid_block *block, const void *image,
                          uint64_t first, size_t n, struct qp_grid_worker *w)
{
    const struct qp_grid_run *run = &job->run;
    const size_t tile = qp_grid_tile(run);
    for (size_t i = 0; i < n; i += tile) {
        const size_t part = (size_t)qp_min_u64(tile, n - i);
        struct qp_grid_taps taps = qp_grid_taps_at(run, w, i);
        const void *pixels = qp_grid_pixels(run, w, block, image, part, &taps);
        run->kernels->sample(block->width, part, &taps, pixels, w->hi, QP_GRID_TILE);
        put_tile(job, block, first + i, part, w);
    }
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_grid *grid = job->run.grid;
    struct qp_grid_worker *w = &job->run.workers[worker];
    const uint64_t n_blocks = qp_grid_n_blocks(grid), step = job->run.layout.tap_points;
    const uint64_t batch = u / (n_blocks * job->n_slices), s = u / n_blocks % job->n_slices;
    const struct qp_grid_block block = qp_grid_block(grid, batch, u % n_blocks);
    const void *image = qp_grid_image(&job->run, w, &block);
    const uint64_t end = qp_min_u64((s + 1) * job->slice, grid->n_points);
    for (uint64_t first = s * job->slice; first < end; first += step) {
        const size_t n = (size_t)qp_min_u64(step, end - first);
        qp_grid_hold(&job->run, w, batch, first, n);
        sample_points(job, &block, image, first, n, w);
    }
}

static void run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_grid *grid = op->state;
    const uint64_t n_blocks = grid->n_batch * qp_grid_n_blocks(grid);
    struct job job = {.output = qp_op_view(call, "output")};
    qp_grid_begin(&job.run, call, QP_GRID_SAMPLE);
    for (unsigned i = 0; i < op->n_workers; i++) { /* what is rounded has no errors apart */
        for (size_t p = 0; p < QP_GRID_TILE; p++)
            job.run.workers[i].lo[p] = 0;
    }
    job.slice = qp_div_up(grid->n_points, qp_max_u64(qp_div_up(op->n_workers, n_blocks), 1));
    job.n_slices = qp_div_up(grid->n_points, job.slice);
    qp_op_units(op, n_blocks * job.n_slices, unit, &job);
    call->counts.overflow = job.run.overflow;
}

/* ---- The rows ---------------------------------------------------------------------------------
 */

#define KERNEL(ISA)                                                                                \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_TAPS,       \
        .workspace = workspace, .run = run                                                         \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX2),
    KERNEL(QPLAN_ISA_SCALAR),
    {.isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_TAPS,
     .launch = qp_grid_launch_sample},
};

#define EXAMPLE(FIELDS, INPUT, GRID, KIND) FIELDS "; input " INPUT " any; grid " GRID " " KIND,
#define EXAMPLE_2(FIELDS, KIND)            EXAMPLE(FIELDS, QP_GRID_SMALL_IN_2, QP_GRID_SMALL_GRID_2, KIND)
#define EXAMPLE_3(FIELDS, KIND)            EXAMPLE(FIELDS, QP_GRID_SMALL_IN_3, QP_GRID_SMALL_GRID_3, KIND)

static const char *const examples_2d[] = {
    QP_GRID_EXAMPLES_2(EXAMPLE_2) EXAMPLE("", QP_GRID_LARGE_IN_2, QP_GRID_LARGE_GRID_2, "grid")};
static const char *const examples_3d[] = {
    QP_GRID_EXAMPLES_3(EXAMPLE_3) EXAMPLE("", QP_GRID_LARGE_IN_3, QP_GRID_LARGE_GRID_3, "grid")};

static const struct qplan_op_field_info fields[] = {QP_GRID_FIELDS};

#define ARGUMENTS(INPUT, GRID, OUTPUT)                                                             \
    {                                                                                              \
        {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = (INPUT)},            \
            {.name = "grid", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = (GRID)},          \
        {                                                                                          \
            .name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = (OUTPUT)        \
        }                                                                                          \
    }

static const struct qplan_op_argument_info arguments_2d[] =
    ARGUMENTS("[N,C,H,W]", "[N,OH,OW,2]", "[N,C,OH,OW]");
static const struct qplan_op_argument_info arguments_3d[] =
    ARGUMENTS("[N,C,D,H,W]", "[N,OD,OH,OW,3]", "[N,C,OD,OH,OW]");

#define ROW(DIMS)                                                                                  \
    {                                                                                              \
        .info = {.name = "grid_sample_" #DIMS "d",                                                 \
                 .category = "grid",                                                               \
                 .summary = "a " #DIMS "-D image read at the points of a grid",                    \
                 .formula = "output[n,c,p] = sum of weight * pixel over the taps of grid[n,p] in " \
                            "raster order, in f64; 0 where a coordinate is not finite",            \
                 .oracle = "torch F.grid_sample computed in f64: f32 to 5e-6, f64 to 1e-12 of "    \
                           "the largest; nearest: the same bits off ties",                         \
                 QP_OP_LIST(fields, fields),                                                       \
                 QP_OP_LIST(arguments, arguments_##DIMS##d)},                                      \
        .variant = (DIMS), QP_OP_LIST(kernels, kernels), QP_OP_LIST(examples, examples_##DIMS##d), \
        .state_bytes = sizeof(struct qp_grid), .check = check                                      \
    }

static const struct qp_op_row row_2d = ROW(2), row_3d = ROW(3);

const struct qp_op_row *const qp_ops_grid_sample[] = {&row_2d, &row_3d, NULL};
