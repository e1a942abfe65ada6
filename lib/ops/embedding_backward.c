/*
 * embedding_backward.c - the gradient of an embedding table: for each row the sum of the gradients
 * of the places that used it.
 *
 * A stable counting sort gives each row its list of places in ascending order. A worker owns some
 * columns of some rows and adds in that order, so no two workers write to one sum and the bits do
 * not depend on their number.
 */
#include "families.h"
#include "index.h"

#include "../../kernels/ops/sum.h"
#include "../base/check.h"
#include "../job.h"

#include <stdatomic.h>
#include <string.h>

/* What one unit is: columns that share a cache line or more, and a few rows. */
#define UNIT_COLS 1024
#define UNIT_ROWS 16

struct state {
    uint64_t n_rows, row_len, n_indices;
    int64_t padding;
    bool by_frequency;
};

/* All buffers: the lists of the rows, and the sums of each worker. */
struct buffers {
    uint64_t *start; /* n_rows + 1: where the list of a row begins */
    uint64_t *place; /* n_indices: the lists, one behind the other */
    char *workers;
};

struct job {
    const struct qp_op_call *call;
    const struct state *state;
    const struct qp_sum_kernels *sums;
    struct buffers buffers;
    const struct qp_view *dout, *dweight;
    bool accumulate;
    atomic_uint_fast64_t overflow;
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct state *state = op->state;
    const struct qp_op_tensor *dout = qp_op_tensor(op, "dout");
    const struct qp_op_tensor *indices = qp_op_tensor(op, "indices");
    if (dout->rank == 0)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "dout", err,
                                 "wrong rank: expected at least 1, found 0");
    QP_TRY(qp_op_check_shape(op, "indices", dout->shape, dout->rank - 1,
                             "that of dout without its last extent", err));
    state->n_rows = (uint64_t)qp_op_number(op, "num_embeddings");
    state->row_len = dout->shape[dout->rank - 1];
    state->n_indices = indices->n_elems;
    state->by_frequency = qp_op_number(op, "scale_grad_by_freq");
    QP_TRY(qp_index_padding(op, state->n_rows, &state->padding, err));
    const uint64_t shape[] = {state->n_rows, state->row_len};
    return qp_op_make_output(op, "dweight", dout->dtype, shape, 2, err);
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    const struct state *state = call->op->state;
    return qp_index_validate(call, "indices", state->n_rows, err);
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

#define COLUMN_BYTES (UNIT_COLS * sizeof(double))
#define WORKER_BYTES (3 * COLUMN_BYTES)

static struct buffers carve(const struct qplan_op *op, struct qp_carve *carve)
{
    const struct state *state = op->state;
    struct buffers b;
    b.start = qp_take(carve, (state->n_rows + 1) * sizeof *b.start);
    b.place = qp_take(carve, state->n_indices * sizeof *b.place);
    b.workers = qp_take(carve, op->n_workers * WORKER_BYTES);
    return b;
}

static uint64_t workspace(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    if (qp_op_tensor(op, "dweight")->n_elems > 0)
        (void)carve(op, &count);
    return count.used;
}

/* ---- Lists of places --------------------------------------------------------------------------
 */

static bool counts(const struct state *state, int64_t index)
{
    return qp_index_ok(index, state->n_rows) && index != state->padding;
}

/* Calls for each index that counts, in ascending order of its place. */
static void each_index(const struct job *job, void (*visit)(const struct job *, uint64_t, uint64_t))
{
    const struct state *state = job->state;
    int64_t index[QP_INDEX_STEP];
    for (uint64_t at = 0; at < state->n_indices; at += QP_INDEX_STEP) {
        const size_t n = (size_t)qp_min_u64(QP_INDEX_STEP, state->n_indices - at);
        qp_index_load(job->call, "indices", at, n, index);
        for (size_t i = 0; i < n; i++) {
            if (counts(state, index[i]))
                visit(job, (uint64_t)index[i], at + i);
        }
    }
}

static void count_one(const struct job *job, uint64_t row, uint64_t place)
{
    (void)place;
    job->buffers.start[row]++;
}

static void list_one(const struct job *job, uint64_t row, uint64_t place)
{
    job->buffers.place[job->buffers.start[row]++] = place;
}

/* Counts, adds up, and fills: afterwards start[row] is the end of a list, so it moves up by one. */
static void make_lists(const struct job *job)
{
    uint64_t *start = job->buffers.start, total = 0;
    const uint64_t n_rows = job->state->n_rows;
    memset(start, 0, (n_rows + 1) * sizeof *start);
    each_index(job, count_one);
    for (uint64_t row = 0; row <= n_rows; row++) {
        const uint64_t n = start[row];
        start[row] = total;
        total += n;
    }
    each_index(job, list_one);
    memmove(start + 1, start, n_rows * sizeof *start);
    start[0] = 0;
}

/* ---- Sums -------------------------------------------------------------------------------------
 */

/* n columns of one row from col on. */
static void sum_row(struct job *job, uint64_t row, uint64_t col, size_t n, char *buffers)
{
    const struct qp_sum_kernels *sums = job->sums;
    const uint64_t row_len = job->state->row_len, at = row * row_len + col;
    double *hi = (double *)(void *)buffers;
    double *lo = sums->keeps_errors ? (double *)(void *)(buffers + COLUMN_BYTES) : NULL;
    void *elems = buffers + 2 * COLUMN_BYTES;
    const uint64_t *list = job->buffers.place + job->buffers.start[row];
    const uint64_t n_list = job->buffers.start[row + 1] - job->buffers.start[row];
    memset(buffers, 0, 2 * COLUMN_BYTES);
    for (uint64_t i = 0; i < n_list; i++)
        sums->add(n, qp_view_get(job->dout, list[i] * row_len + col, n, elems), hi, lo);
    if (job->state->by_frequency && n_list > 1)
        sums->divide(n, (double)n_list, hi, lo);
    if (job->accumulate)
        sums->add(n, qp_view_get(job->dweight, at, n, elems), hi, lo);
    void *room = qp_view_room(job->dweight, at, n, elems);
    const uint64_t overflow = sums->finish(n, hi, lo, room);
    qp_view_put(job->dweight, at, n, room);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const uint64_t across = qp_div_up(job->state->row_len, UNIT_COLS);
    const uint64_t col = u % across * UNIT_COLS, row = u / across * UNIT_ROWS;
    const size_t n = (size_t)qp_min_u64(UNIT_COLS, job->state->row_len - col);
    const uint64_t end = qp_min_u64(row + UNIT_ROWS, job->state->n_rows);
    for (uint64_t r = row; r < end; r++)
        sum_row(job, r, col, n, job->buffers.workers + worker * WORKER_BYTES);
}

static void run(struct qp_op_call *call)
{
    const struct state *state = call->op->state;
    struct qp_carve block = {.block = call->workspace};
    struct job job = {.call = call,
                      .state = state,
                      .sums = qp_sum_kernels(qp_op_float(call->op->key), call->op->isa),
                      .buffers = carve(call->op, &block),
                      .dout = qp_op_view(call, "dout"),
                      .dweight = qp_op_view(call, "dweight"),
                      .accumulate = qp_op_number(call->op, "accumulate")};
    make_lists(&job);
    qp_op_units(call->op,
                qp_div_up(state->row_len, UNIT_COLS) * qp_div_up(state->n_rows, UNIT_ROWS), unit,
                &job);
    call->counts.overflow = job.overflow;
}

/* ---- The row ----------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    {.backend = QPLAN_BACKEND_CPU,
     .isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_SUM,
     .workspace = workspace,
     .validate = validate,
     .run = run},
};

static const struct qplan_op_field_info fields[] = {
    {.name = "num_embeddings",
     .type = QPLAN_FIELD_INT,
     .least = 0,
     .most = (int64_t)QP_OP_MAX_ELEMS,
     .about = "V, the rows of the table"},
    QP_FIELD_PADDING_IDX,
    {.name = "scale_grad_by_freq",
     .type = QPLAN_FIELD_BOOL,
     .fallback = "false",
     .about = "divide each sum by the number of its terms"},
    QP_FIELD_INDEX_POLICY,
    QP_FIELD_ACCUMULATE,
};

static const struct qplan_op_argument_info arguments[] = {
    {.name = "dout", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[I...,D]"},
    QP_ARGUMENT_INDICES("[I...]"),
    {.name = "dweight", .direction = QPLAN_OP_UPDATE, .dtypes = QP_FP, .shape = "[V,D]"},
};

static const struct qp_op_row row = {
    .info = {.name = "embedding_backward",
             .category = "embedding",
             .summary = "the gradient of an embedding table",
             .formula = "dweight[v] = sum of dout[n] over ascending n with indices[n] = v, the "
                        "padding row 0; / their number if scale_grad_by_freq; + dweight if "
                        "accumulate",
             .oracle = "torch autograd, which adds in the dtype of the gradient: f64 to 1 ulp a "
                       "term, f32 to 1e-5; f16 and bf16 are closer to exact here",
             QP_OP_LIST(fields, fields),
             QP_OP_LIST(arguments, arguments)},
    QP_OP_LIST(kernels, kernels),
    .state_bytes = sizeof(struct state),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding_backward[] = {&row, NULL};
