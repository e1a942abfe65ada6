/*
 * fake_quantize_learnable_backward.c - the gradients of fake quantize with respect to its data, its
 * scales and its zero points.
 *
 * The last two are sums over a set in ascending order of the flat index. A unit owns whole sets: as
 * many bands as make a chunk, or some columns of one band. So each sum has one owner, who adds its
 * terms in order and stores it, and the bits do not depend on the number of workers. A set that is
 * a whole tensor has one worker: its additions wait for each other in any case.
 */
#include "families.h"
#include "quant_device.h"

#include "lib/base/check.h"
#include "lib/model/sets.h"

#include <stdatomic.h>
#include <string.h>

/* Elements of a row that a unit takes at least: fewer would cost more to find than to add. */
#define LEAST_COLS 64

struct job {
    struct qp_op_call *call;
    const struct qp_affine_kernels *kernels;
    const struct qp_view *dout, *input, *dinput, *dscale, *dzero;
    enum qplan_dtype stored; /* of the sums */
    double factor;
    uint64_t unit_cols, unit_bands; /* sets side by side in a unit, and bands */
    atomic_uint_fast64_t overflow;
};

/* The buffers of a worker: those of the walk, and the sums of a unit. */
struct buffers {
    struct qp_quant_worker walk;
    struct qp_affine_sums sums;
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    const struct qp_op_geometry *geometry = &((struct qp_quant *)op->state)->geometry;
    QP_TRY(qp_quant_check_learnable(op, "dinput", err));
    const enum qplan_storage scale = qp_op_tensor(op, "scale")->dtype;
    QP_TRY(qp_op_make_output(op, "dscale", scale, geometry->shape, geometry->rank, err));
    return qp_op_make_output(op, "dzero_point", scale, geometry->shape, geometry->rank, err);
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

#define SUM_BYTES    (QP_OP_CHUNK * sizeof(struct qp_sum))
#define WORKER_BYTES (2 * SUM_BYTES)

static uint64_t workspace(const struct qplan_op *op)
{
    return qp_quant_workspace(op) + op->n_workers * WORKER_BYTES;
}

static struct buffers buffers_of(const struct qp_op_call *call, unsigned worker)
{
    char *sums = call->workspace + qp_quant_workspace(call->op) + worker * WORKER_BYTES;
    return (struct buffers){
        .walk = qp_quant_worker(call, worker),
        .sums = {(struct qp_sum *)(void *)sums, (struct qp_sum *)(void *)(sums + SUM_BYTES)}};
}

/* ---- The work ---------------------------------------------------------------------------------
 */

/* Elements [begin, end), of which no more than a chunk is looked at together; set: of the sums. */
static void learn(struct job *job, struct buffers *b, uint64_t begin, uint64_t end, uint64_t set)
{
    const struct qp_quant *quant = job->call->op->state;
    const size_t size = job->dout->elem_bytes;
    struct qp_quant_tile t;
    for (uint64_t chunk = begin; chunk < end; chunk += QP_OP_CHUNK) {
        const size_t n = (size_t)qp_min_u64(QP_OP_CHUNK, end - chunk);
        const char *x = qp_view_get(job->input, chunk, n, b->walk.elems[0]);
        const char *dout = qp_view_get(job->dout, chunk, n, b->walk.elems[1]);
        char *out = qp_view_room(job->dinput, chunk, n, b->walk.elems[0]);
        for (size_t at = 0; at < n; at += t.n) {
            qp_quant_next(job->call, &b->walk, chunk + at, chunk + n, &t);
            const struct qp_affine affine = qp_quant_affine_tile(quant, &t);
            const size_t first = (size_t)(b->walk.first - set);
            const struct qp_affine_sums sums = {b->sums.scale + first, b->sums.zero + first};
            job->kernels->learn(&affine, dout + at * size, x + at * size, out + at * size, &sums);
        }
        qp_view_put(job->dinput, chunk, n, out);
    }
}

/* Multiplies n sums by the factor and stores them, rounded once. */
static void store(struct job *job, const struct qp_view *view, const struct qp_sum *sums,
                  uint64_t set, size_t n, struct qp_quant_worker *w)
{
    double *value = w->elems[1];
    uint64_t overflow = 0;
    for (size_t i = 0; i < n; i++) {
        const double sum = qp_sum_value(&sums[i]);
        value[i] = sum * job->factor;
        overflow += isfinite(sum) && isinf(value[i]);
    }
    void *room = qp_view_room(view, set, n, w->elems[0]);
    overflow += qp_store_gradient(job->stored, n, value, room);
    qp_view_put(view, set, n, room);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

static void clear_sums(struct buffers *b, size_t n)
{
    memset(b->sums.scale, 0, n * sizeof *b->sums.scale);
    memset(b->sums.zero, 0, n * sizeof *b->sums.zero);
}

static void store_sums(struct job *job, struct buffers *b, uint64_t set, size_t n)
{
    store(job, job->dscale, b->sums.scale, set, n, &b->walk);
    store(job, job->dzero, b->sums.zero, set, n, &b->walk);
}

/* Whole bands are one range of elements; of some columns each row is one. */
static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_sets *sets = &((const struct qp_quant *)job->call->op->state)->geometry.sets;
    struct buffers b = buffers_of(job->call, worker);
    const uint64_t across = qp_div_up(sets->n_cols, job->unit_cols);
    const uint64_t band = u / across * job->unit_bands, col = u % across * job->unit_cols;
    const uint64_t bands = qp_min_u64(job->unit_bands, sets->n_bands - band);
    const uint64_t cols = qp_min_u64(job->unit_cols, sets->n_cols - col);
    const uint64_t set = band * sets->n_cols + col, last = band + bands - 1;
    const uint64_t row = qp_band_row(sets, band);
    const uint64_t end = qp_band_row(sets, last) + qp_band_rows(sets, last);
    const uint64_t left = col * sets->col_width;
    const uint64_t right = qp_min_u64(left + cols * sets->col_width, sets->row_len);
    clear_sums(&b, (size_t)(bands * cols));
    if (across == 1)
        learn(job, &b, row * sets->row_len, end * sets->row_len, set);
    for (uint64_t r = row; across > 1 && r < end; r++)
        learn(job, &b, r * sets->row_len + left, r * sets->row_len + right, set);
    store_sums(job, &b, set, (size_t)(bands * cols));
}

/* Sums over nothing are 0, and are written. */
static void zero_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    struct buffers b = buffers_of(job->call, worker);
    const size_t n = qp_op_chunk(job->dscale->n_elems, u);
    clear_sums(&b, n);
    store_sums(job, &b, u * QP_OP_CHUNK, n);
}

/*
 * How many sets a unit has. Sets that are small make a chunk together. Large sets side by side lie
 * in rows: few units make long runs of them, so there are only some for each worker.
 */
static void size_units(struct job *job, const struct qp_sets *sets)
{
    const unsigned n_workers = job->call->op->n_workers;
    const uint64_t set_elems = sets->band_rows * sets->col_width;
    const uint64_t band_elems = sets->band_rows * sets->row_len;
    const uint64_t least = qp_div_up(LEAST_COLS, sets->col_width);
    const uint64_t share = sets->n_cols / (n_workers > 1 ? n_workers * 4 : 1);
    const uint64_t cols = qp_max_u64(qp_max_u64(QP_OP_CHUNK / set_elems, least), share);
    job->unit_cols = qp_min_u64(qp_min_u64(cols, QP_OP_CHUNK), sets->n_cols);
    job->unit_bands = 1;
    if (job->unit_cols == sets->n_cols)
        job->unit_bands = qp_max_u64(QP_OP_CHUNK / band_elems, 1);
}

static void run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_sets *sets = &((const struct qp_quant *)op->state)->geometry.sets;
    struct job job = {.call = call,
                      .kernels = qp_quant_affine(op),
                      .dout = qp_op_view(call, "dout"),
                      .input = qp_op_view(call, "input"),
                      .dinput = qp_op_view(call, "dinput"),
                      .dscale = qp_op_view(call, "dscale"),
                      .dzero = qp_op_view(call, "dzero_point"),
                      .stored = qp_op_float(qp_op_tensor(op, "dscale")->dtype),
                      .factor = qp_op_value(op, "grad_factor")->real};
    if (sets->n_elems == 0) {
        qp_op_units(op, qp_op_chunks(job.dscale->n_elems), zero_unit, &job);
        return;
    }
    size_units(&job, sets);
    const uint64_t across = qp_div_up(sets->n_cols, job.unit_cols);
    qp_op_units(op, across * qp_div_up(sets->n_bands, job.unit_bands), unit, &job);
    call->counts.overflow = job.overflow;
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

#define KERNEL(ISA)                                                                                \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_SUM,        \
        .workspace = workspace, .validate = qp_quant_validate, .run = run                          \
    }
static const struct qp_op_kernel kernels[] = {KERNEL(QPLAN_ISA_AVX2),
                                              KERNEL(QPLAN_ISA_SCALAR),
                                              {.isa = QPLAN_ISA_SCALAR,
                                               .keys = QP_FP_BITS,
                                               .class = QP_OP_SUM,
                                               .workspace = qp_quant_workspace,
                                               .validate = qp_quant_validate,
                                               .launch = qp_quant_launch_learn}};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " q_min=-9 q_max=7 grad_factor=0.75; dout " X " finite; input " X " any; scale " P      \
           " scale; zero_point " P " zero",

#define ARGUMENT_SUM(NAME, P)                                                                      \
    {                                                                                              \
        .name = (NAME), .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = (P)                   \
    }
#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {                                       \
        QP_FIELDS_##G QP_FIELDS_INTEGER,                                                           \
        {.name = "grad_factor",                                                                    \
         .type = QPLAN_FIELD_REAL,                                                                 \
         .fallback = "1",                                                                          \
         .about = "what the sums are multiplied by"}};                                             \
    static const struct qplan_op_argument_info arguments_##G[] =                                   \
        {                                                                                          \
            QP_ARGUMENT_DATA("dout"),       QP_ARGUMENT_DATA("input"),                             \
            QP_ARGUMENT_SCALE(QP_FP, P),    QP_ARGUMENT_FLOAT_ZERO_POINT(P),                       \
            QP_ARGUMENT_RESULT("dinput"),   ARGUMENT_SUM("dscale", P),                             \
            ARGUMENT_SUM("dzero_point", P),                                                        \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "fake_quantize_learnable_" #G "_backward",                                \
                 .category = "quantize",                                                           \
                 .summary = "gradients of fake quantize for data, scales and zero points",         \
                 .formula =                                                                        \
                     "z = clamp(rne(zero_point), q_min, q_max); u = rne(input / scale) + z; "      \
                     "dinput = q_min <= u <= q_max ? dout : 0; dscale = grad_factor * sum of "     \
                     "dout * {clamp(u) - z - input / scale inside, q_min - z below, q_max - z "    \
                     "above}; dzero_point = grad_factor * sum of {0 inside, -dout * scale "        \
                     "outside}; NaN data adds nothing",                                            \
                 .oracle =                                                                         \
                     "torch autograd of _fake_quantize_learnable_*_affine: the same terms but "    \
                     "where its mask, which adds before it rounds, differs, and for a zero point " \
                     "of .5, which it rounds up per tensor; sums to 1e-6 of the largest (f32)",    \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_fake_quantize_learnable_backward[] = QP_GRANULARITY_ROWS;
