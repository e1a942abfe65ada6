/*
 * affine_grid.c - affine_grid_2d and affine_grid_3d, which make the grid of a grid sample from a
 * matrix for each batch, and their gradients, which are sums over all points of a batch.
 */
#include "families.h"

#include "kernels/gpu/qk_grid_args.h"
#include "kernels/ops/affine_grid_kernels.h"
#include "lib/base/carve.h"
#include "lib/base/check.h"
#include "lib/device/lane.h"
#include "op_device.h"

#include <stdatomic.h>

/* Points that are worked on at once, of one row. */
#define STEP 512

#define MAX_THETA (QP_AFFINE_AXES * (QP_AFFINE_AXES + 1))

struct state {
    unsigned n_axes;
    bool align_corners;
    uint64_t n_batch, n_rows;      /* rows of points in a batch */
    uint64_t size[QP_AFFINE_AXES]; /* x, y, z; z is 1 in 2-D */
};

struct buffers {
    double *bases, *hi, *lo;
    char *raw, *work;
};

struct job {
    const struct qp_op_call *call;
    const struct state *state;
    const struct qp_sum_kernels *sums;
    const struct qp_work_kernels *decode;
    enum qplan_dtype dtype;
    const struct qp_view *from, *to;
    struct buffers *buffers;
    uint64_t step; /* rows of a unit */
    atomic_uint_fast64_t overflow;
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    static const char *const fields[] = {"out_w", "out_h", "out_d"};
    struct state *s = op->state;
    const unsigned n = op->row->variant == QP_AFFINE_AXES ? QP_AFFINE_AXES : 2;
    const bool backward = qp_op_place(op, "dout") == 0;
    const char *from = backward ? "dout" : "theta";
    const struct qp_op_tensor *input = qp_op_tensor(op, from);
    uint64_t points[QP_AFFINE_AXES + 2];
    QP_TRY(qp_op_check_rank(op, from, backward ? n + 2 : 3, err));
    *s = (struct state){.n_axes = n,
                        .align_corners = qp_op_number(op, "align_corners"),
                        .n_batch = input->shape[0],
                        .size = {1, 1, 1}};
    const uint64_t theta[] = {s->n_batch, n, n + 1};
    points[0] = s->n_batch;
    for (unsigned i = 0; i < n; i++) {
        s->size[i] = (uint64_t)qp_op_number(op, fields[i]);
        points[n - i] = s->size[i];
    }
    points[n + 1] = n;
    QP_TRY(qp_op_check_shape(op, from, backward ? points : theta, backward ? n + 2 : 3,
                             backward ? "with the extents of out_*" : "a matrix for each batch",
                             err));
    QP_TRY(backward ? qp_op_make_output(op, "dtheta", op->key, theta, 3, err)
                    : qp_op_make_output(op, "output", op->key, points, n + 2, err));
    s->n_rows = s->n_batch ? s->size[1] * s->size[2] : 0; /* no product that was not checked */
    return QPLAN_OK;
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

static struct buffers *carve(const struct qplan_op *op, struct qp_carve *carve)
{
    struct buffers *all = qp_take(carve, op->n_workers * sizeof *all);
    for (unsigned i = 0; i < op->n_workers; i++) {
        struct buffers b;
        b.bases = qp_take(carve, STEP * sizeof(double));
        b.hi = qp_take(carve, STEP * QP_AFFINE_AXES * sizeof(double));
        b.lo = qp_take(carve, STEP * QP_AFFINE_AXES * sizeof(double));
        b.raw = qp_take(carve, STEP * QP_AFFINE_AXES * sizeof(double));
        b.work = qp_take(carve, STEP * QP_AFFINE_AXES * sizeof(double));
        if (all)
            all[i] = b;
    }
    return all;
}

static uint64_t workspace(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    (void)carve(op, &count);
    return count.used;
}

static struct job begin(const struct qp_op_call *call, const char *from, const char *to)
{
    const struct qplan_op *op = call->op;
    const enum qplan_dtype dtype = qp_op_float(op->key);
    struct qp_carve block = {.block = call->workspace};
    struct job job = {.call = call,
                      .state = op->state,
                      .sums = qp_sum_kernels(dtype, op->isa),
                      .decode = qp_source_kernels(dtype, op->isa)->work,
                      .dtype = dtype,
                      .from = qp_op_view(call, from),
                      .to = qp_op_view(call, to),
                      .buffers = carve(op, &block)};
    return job;
}

/* n elements in working precision. */
static const void *get(const struct job *job, uint64_t at, size_t n, const struct buffers *b)
{
    const void *src = qp_view_get(job->from, at, n, b->raw);
    if (job->dtype == QPLAN_F32 || job->dtype == QPLAN_F64)
        return src;
    job->decode->load(job->dtype, n, src, b->work);
    return b->work;
}

static void put(struct job *job, uint64_t at, size_t n, const struct buffers *b)
{
    void *room = qp_view_room(job->to, at, n, b->raw);
    const uint64_t overflow = job->sums->finish(n, b->hi, b->lo, room);
    qp_view_put(job->to, at, n, room);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

/* The points of one row of a batch from the i-th on; returns how many they are, at most STEP. */
static size_t set_row(const struct state *s, uint64_t row, uint64_t i, const struct buffers *b,
                      struct qp_affine_row *out)
{
    const size_t n = (size_t)qp_min_u64(STEP, s->size[0] - i);
    *out = (struct qp_affine_row){
        .n_axes = s->n_axes,
        .n = n,
        .x = b->bases,
        .rest = {qp_affine_base(row % s->size[1], s->size[1], s->align_corners),
                 qp_affine_base(row / s->size[1], s->size[2], s->align_corners)}};
    qp_affine_bases(i, n, s->size[0], s->align_corners, b->bases);
    return n;
}

/* ---- Forward ----------------------------------------------------------------------------------
 */

static void load_theta(const struct job *job, uint64_t batch, const struct buffers *b, double *out)
{
    const size_t n = (size_t)job->state->n_axes * (job->state->n_axes + 1);
    const void *theta = get(job, batch * n, n, b);
    const bool wide = job->dtype == QPLAN_F64;
    for (size_t i = 0; i < n; i++)
        out[i] = wide ? ((const double *)theta)[i] : (double)((const float *)theta)[i];
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct state *s = job->state;
    const struct buffers *b = &job->buffers[worker];
    const uint64_t begin_row = u * job->step, n_rows = s->n_batch * s->n_rows;
    const uint64_t end = qp_min_u64(begin_row + job->step, n_rows);
    struct qp_affine_row row;
    double theta[MAX_THETA];
    for (uint64_t r = begin_row; r < end; r++) {
        if (r == begin_row || r % s->n_rows == 0)
            load_theta(job, r / s->n_rows, b, theta);
        for (uint64_t i = 0; i < s->size[0]; i += STEP) {
            const size_t n = set_row(s, r % s->n_rows, i, b, &row);
            qp_affine_points(&row, theta, b->hi);
            put(job, (r * s->size[0] + i) * s->n_axes, n * s->n_axes, b);
        }
    }
}

static void run(struct qp_op_call *call)
{
    struct job job = begin(call, "theta", "output");
    const struct state *s = job.state;
    for (unsigned i = 0; i < call->op->n_workers; i++) { /* what is rounded has no errors apart */
        for (size_t k = 0; k < (size_t)STEP * QP_AFFINE_AXES; k++)
            job.buffers[i].lo[k] = 0;
    }
    job.step = qp_max_u64(QP_OP_CHUNK / s->size[0], 1);
    qp_op_units(call->op, qp_div_up(s->n_batch * s->n_rows, job.step), unit, &job);
    call->counts.overflow = job.overflow;
}

/* ---- Backward ---------------------------------------------------------------------------------
 */

/* All sums of one batch. */
static void backward_unit(void *ctx, unsigned worker, uint64_t batch)
{
    struct job *job = ctx;
    const struct state *s = job->state;
    const struct buffers *b = &job->buffers[worker];
    const size_t n_sums = (size_t)s->n_axes * (s->n_axes + 1);
    struct qp_sum sums[MAX_THETA] = {{0}};
    struct qp_affine_row row;
    for (uint64_t r = 0; r < s->n_rows; r++) {
        for (uint64_t i = 0; i < s->size[0]; i += STEP) {
            const size_t n = set_row(s, r, i, b, &row);
            const uint64_t at = ((batch * s->n_rows + r) * s->size[0] + i) * s->n_axes;
            qp_affine_add(&row, job->call->op->work, get(job, at, n * s->n_axes, b), sums);
        }
    }
    for (size_t i = 0; i < n_sums; i++) {
        b->hi[i] = sums[i].hi;
        b->lo[i] = sums[i].lo;
    }
    put(job, batch * n_sums, n_sums, b);
}

static void run_backward(struct qp_op_call *call)
{
    struct job job = begin(call, "dout", "dtheta");
    qp_op_units(call->op, job.state->n_batch, backward_unit, &job);
    call->counts.overflow = job.overflow;
}

/* ---- On devices -------------------------------------------------------------------------------
 */

/* Threads of a group; of one that makes the terms of a tile and adds them up. */
#define GROUP_SIZE     256
#define SUM_GROUP_SIZE 128

#define STEPS(dtype)                                                                               \
    {                                                                                              \
        qk_points_grid_##dtype##_id, qk_sums_grid_##dtype##_id                                     \
    }

static enum qk_kernel kernel_of(const struct qplan_op *op, bool backward)
{
    static const enum qk_kernel ids[][2] = {[QPLAN_F32] = STEPS(f32),
                                            [QPLAN_F16] = STEPS(f16),
                                            [QPLAN_BF16] = STEPS(bf16),
                                            [QPLAN_F64] = STEPS(f64)};
    return ids[qp_op_float(op->key)][backward];
}

/* The block holds every point, so their numbers fit. */
static struct qk_affine_grid_args make_args(const struct qp_op_run *run, const char *from,
                                            const char *to)
{
    const struct qplan_op *op = run->call->op;
    const struct state *s = op->state;
    struct qk_affine_grid_args a = {.n_axes = s->n_axes,
                                    .align_corners = s->align_corners,
                                    .width = (qk_u32)s->size[0],
                                    .height = (qk_u32)s->size[1],
                                    .depth = (qk_u32)s->size[2],
                                    .n_points = (qk_u32)(s->n_rows * s->size[0]),
                                    .status = op->block.status,
                                    .input = qp_op_at(run, from),
                                    .output = qp_op_at(run, to)};
    a.n_tiles = (qk_u32)qp_div_up(a.n_points, QK_GRID_TILE);
    return a;
}

static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    const struct state *s = run->call->op->state;
    const struct qk_affine_grid_args a = make_args(run, "theta", "output");
    const struct qp_launch what = {kernel_of(run->call->op, false),
                                   (uint32_t)(s->n_batch * a.n_tiles), GROUP_SIZE, &a, sizeof a};
    return qp_lane_launch(run->lane, &what, err);
}

static enum qplan_status launch_backward(struct qp_op_run *run, struct qplan_error *err)
{
    const struct state *s = run->call->op->state;
    const struct qk_affine_grid_args a = make_args(run, "dout", "dtheta");
    const struct qp_launch what = {kernel_of(run->call->op, true), (uint32_t)s->n_batch,
                                   SUM_GROUP_SIZE, &a, sizeof a};
    return qp_lane_launch(run->lane, &what, err);
}

/* ---- The rows ---------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    {.backend = QPLAN_BACKEND_CPU,
     .isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_WIDE,
     .workspace = workspace,
     .run = run},
    {.isa = QPLAN_ISA_SCALAR, .keys = QP_FP_BITS, .class = QP_OP_WIDE, .launch = launch},
};

static const struct qp_op_kernel backward_kernels[] = {
    {.backend = QPLAN_BACKEND_CPU,
     .isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_SUM,
     .workspace = workspace,
     .run = run_backward},
    {.isa = QPLAN_ISA_SCALAR, .keys = QP_FP_BITS, .class = QP_OP_SUM, .launch = launch_backward},
};

/* Both ways to place the points, an extent of 1, and more than one tile. */
#define EXAMPLES_2(TENSORS)                                                                        \
    "out_h=5 out_w=7; " TENSORS("3", "5,7"),                                                       \
        "out_h=1 out_w=9 align_corners=true; " TENSORS("2", "1,9"),                                \
        "out_h=21 out_w=13 align_corners=true; " TENSORS("2", "21,13")
#define EXAMPLES_3(TENSORS)                                                                        \
    "out_d=2 out_h=5 out_w=7; " TENSORS("3", "2,5,7"),                                             \
        "out_d=3 out_h=1 out_w=4 align_corners=true; " TENSORS("2", "3,1,4"),                      \
        "out_d=4 out_h=9 out_w=8 align_corners=true; " TENSORS("2", "4,9,8")
#define THETA_2(N, POINTS) "theta " N ",2,3 any"
#define THETA_3(N, POINTS) "theta " N ",3,4 any"
#define DOUT_2(N, POINTS)  "dout " N "," POINTS ",2 any"
#define DOUT_3(N, POINTS)  "dout " N "," POINTS ",3 any"

static const char *const examples_2d[] = {EXAMPLES_2(THETA_2)};
static const char *const examples_3d[] = {EXAMPLES_3(THETA_3)};
static const char *const backward_examples_2d[] = {EXAMPLES_2(DOUT_2)};
static const char *const backward_examples_3d[] = {EXAMPLES_3(DOUT_3)};

#define FIELD_OUT(NAME, ABOUT)                                                                     \
    {                                                                                              \
        .name = (NAME), .type = QPLAN_FIELD_INT, .least = 1, .most = (int64_t)QP_OP_MAX_ELEMS,     \
        .about = (ABOUT)                                                                           \
    }
#define FIELD_ALIGN                                                                                \
    {                                                                                              \
        .name = "align_corners", .type = QPLAN_FIELD_BOOL, .fallback = "false",                    \
        .about = "the outer points are -1 and 1, not half a step inside"                           \
    }

static const struct qplan_op_field_info fields_2d[] = {
    FIELD_OUT("out_h", "points along y"), FIELD_OUT("out_w", "points along x"), FIELD_ALIGN};
static const struct qplan_op_field_info fields_3d[] = {
    FIELD_OUT("out_d", "points along z"), FIELD_OUT("out_h", "points along y"),
    FIELD_OUT("out_w", "points along x"), FIELD_ALIGN};

#define ARGUMENT(NAME, DIRECTION, SHAPE)                                                           \
    {                                                                                              \
        .name = (NAME), .direction = (DIRECTION), .dtypes = QP_FP, .shape = (SHAPE)                \
    }

static const struct qplan_op_argument_info arguments_2d[] = {
    ARGUMENT("theta", QPLAN_OP_IN, "[N,2,3]"), ARGUMENT("output", QPLAN_OP_OUT, "[N,OH,OW,2]")};
static const struct qplan_op_argument_info arguments_3d[] = {
    ARGUMENT("theta", QPLAN_OP_IN, "[N,3,4]"), ARGUMENT("output", QPLAN_OP_OUT, "[N,OD,OH,OW,3]")};
static const struct qplan_op_argument_info backward_arguments_2d[] = {
    ARGUMENT("dout", QPLAN_OP_IN, "[N,OH,OW,2]"), ARGUMENT("dtheta", QPLAN_OP_OUT, "[N,2,3]")};
static const struct qplan_op_argument_info backward_arguments_3d[] = {
    ARGUMENT("dout", QPLAN_OP_IN, "[N,OD,OH,OW,3]"), ARGUMENT("dtheta", QPLAN_OP_OUT, "[N,3,4]")};

#define ROW(DIMS)                                                                                  \
    {                                                                                              \
        .info = {.name = "affine_grid_" #DIMS "d",                                                 \
                 .category = "grid",                                                               \
                 .summary = "the points of a regular " #DIMS "-D grid times a matrix",             \
                 .formula =                                                                        \
                     "output[n,p] = theta[n] * (base of p, 1) in f64; the base is (2i+1)/O "       \
                     "- 1, with align_corners 2i/(O-1) - 1",                                       \
                 .oracle = "torch F.affine_grid: f32 to 3e-7, f64 to 1e-14 of the largest",        \
                 QP_OP_LIST(fields, fields_##DIMS##d),                                             \
                 QP_OP_LIST(arguments, arguments_##DIMS##d)},                                      \
        .variant = (DIMS), QP_OP_LIST(kernels, kernels), QP_OP_LIST(examples, examples_##DIMS##d), \
        .state_bytes = sizeof(struct state), .check = check                                        \
    }

#define BACKWARD_ROW(DIMS)                                                                         \
    {                                                                                              \
        .info = {.name = "affine_grid_" #DIMS "d_backward",                                        \
                 .category = "grid",                                                               \
                 .summary = "the gradient of affine_grid_" #DIMS "d by its matrix",                \
                 .formula = "dtheta[n] = sum of dout[n,p] * (base of p, 1) over ascending p",      \
                 .oracle = "torch autograd: f32 to 1e-6 of the largest",                           \
                 QP_OP_LIST(fields, fields_##DIMS##d),                                             \
                 QP_OP_LIST(arguments, backward_arguments_##DIMS##d)},                             \
        .variant = (DIMS), QP_OP_LIST(kernels, backward_kernels),                                  \
        QP_OP_LIST(examples, backward_examples_##DIMS##d), .state_bytes = sizeof(struct state),    \
        .check = check                                                                             \
    }

static const struct qp_op_row row_2d = ROW(2), row_3d = ROW(3);
static const struct qp_op_row backward_row_2d = BACKWARD_ROW(2), backward_row_3d = BACKWARD_ROW(3);

const struct qp_op_row *const qp_ops_affine_grid[] = {&row_2d, &backward_row_2d, &row_3d,
                                                      &backward_row_3d, NULL};
