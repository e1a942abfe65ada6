/*
 * embedding_bag_backward.c - the gradient of the table of an embedding bag.
 *
 * Sum and mean are table_gradient.c. Of a maximum each element has a row of its own to go to: a
 * worker owns some rows and a few columns, walks the bags in ascending order and adds what is its.
 */
#include "families.h"

#include "../../kernels/ops/sum.h"
#include "../base/check.h"
#include "table_gradient.h"

#include <stdatomic.h>
#include <string.h>

/* ---- The problem ------------------------------------------------------------------------------
 */

static bool is_max(const struct qplan_op *op)
{
    return qp_op_is(op, "mode", "max");
}

static bool is_sum(const struct qplan_op *op)
{
    return !is_max(op);
}

/* max_indices and scale_grad_by_freq fit some modes only. */
static enum qplan_status check_mode(const struct qplan_op *op, struct qplan_error *err)
{
    const struct qp_op_tensor *dout = qp_op_tensor(op, "dout");
    const bool given = qp_op_tensor(op, "max_indices");
    if (is_sum(op) && given)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "max_indices", err,
                                 "not of this mode: expected it with mode max only");
    if (is_sum(op))
        return QPLAN_OK;
    if (qp_op_number(op, "scale_grad_by_freq"))
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "scale_grad_by_freq", err,
                                "a maximum is not divided: expected false with mode max, found "
                                "true");
    if (!given)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "max_indices", err,
                                 "missing: with mode max it is an input, found no such tensor");
    return qp_op_check_shape(op, "max_indices", dout->shape, 2, "that of dout", err);
}

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_table_gradient *state = op->state;
    QP_TRY(qp_op_check_rank(op, "dout", 2, err));
    QP_TRY(qp_bags_check(op, &state->bags, err));
    state->row_len = qp_op_tensor(op, "dout")->shape[1];
    state->mean = qp_op_is(op, "mode", "mean");
    const uint64_t shape[] = {state->bags.n_bags, state->row_len};
    QP_TRY(qp_op_check_shape(op, "dout", shape, 2, "a row for each bag", err));
    QP_TRY(check_mode(op, err));
    return qp_table_gradient_check(op, state, err);
}

static enum qplan_status validate_max(struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_table_gradient *state = call->op->state;
    QP_TRY(qp_table_gradient_validate(call, err));
    return qp_index_check_range(call, "max_indices", -1, (int64_t)state->n_rows - 1, err);
}

/* ---- Maxima -----------------------------------------------------------------------------------
 */

/* What a unit is: a line of the cache wide, and sums that fit the second one. */
#define UNIT_COLS 16
#define UNIT_ROWS 4096

struct job {
    const struct qp_table_gradient *state;
    const struct qp_sum_kernels *sums;
    const struct qp_view *dout, *max_indices, *dweight;
    bool accumulate;
    char *workers;
    uint64_t worker_bytes, across;
    atomic_uint_fast64_t overflow;
};

/* One unit: its sums have UNIT_COLS columns, of which n are used. */
struct piece {
    uint64_t row, n_rows, col;
    size_t n;
    double *hi, *lo; /* lo NULL = no errors are kept */
};

static uint64_t worker_bytes(const struct qplan_op *op)
{
    const struct qp_table_gradient *state = op->state;
    const uint64_t n_sums = qp_min_u64(state->n_rows, UNIT_ROWS) * UNIT_COLS;
    return n_sums * sizeof(double) * (op->key == QPLAN_STORAGE_F64 ? 2 : 1);
}

static uint64_t workspace_max(const struct qplan_op *op)
{
    return qp_op_tensor(op, "dweight")->n_elems > 0 ? op->n_workers * worker_bytes(op) : 0;
}

/* The gradients of one bag whose maxima came from the rows of a piece. */
static void add_bag(const struct job *job, const struct piece *piece, uint64_t bag)
{
    const uint64_t at = bag * job->state->row_len + piece->col;
    const size_t elem_bytes = job->dout->elem_bytes;
    int64_t where_buffer[UNIT_COLS];
    double dout_buffer[UNIT_COLS];
    const int64_t *where = qp_view_get(job->max_indices, at, piece->n, where_buffer);
    const char *dout = qp_view_get(job->dout, at, piece->n, dout_buffer);
    for (size_t i = 0; i < piece->n; i++) {
        const uint64_t row = (uint64_t)where[i] - piece->row; /* wraps for rows before it */
        if (where[i] < 0 || row >= piece->n_rows || where[i] == job->state->padding)
            continue;
        const uint64_t sum = row * UNIT_COLS + i;
        job->sums->add(1, dout + i * elem_bytes, piece->hi + sum,
                       piece->lo ? piece->lo + sum : NULL);
    }
}

static void store_piece(struct job *job, const struct piece *piece)
{
    double buffer[UNIT_COLS];
    uint64_t overflow = 0;
    for (uint64_t r = 0; r < piece->n_rows; r++) {
        const uint64_t at = (piece->row + r) * job->state->row_len + piece->col;
        double *hi = piece->hi + r * UNIT_COLS, *lo = piece->lo ? piece->lo + r * UNIT_COLS : NULL;
        if (job->accumulate)
            job->sums->add(piece->n, qp_view_get(job->dweight, at, piece->n, buffer), hi, lo);
        void *room = qp_view_room(job->dweight, at, piece->n, buffer);
        overflow += job->sums->finish(piece->n, hi, lo, room);
        qp_view_put(job->dweight, at, piece->n, room);
    }
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_table_gradient *state = job->state;
    struct piece piece = {.row = u / job->across * UNIT_ROWS, .col = u % job->across * UNIT_COLS};
    piece.n_rows = qp_min_u64(UNIT_ROWS, state->n_rows - piece.row);
    piece.n = (size_t)qp_min_u64(UNIT_COLS, state->row_len - piece.col);
    piece.hi = (double *)(void *)(job->workers + worker * job->worker_bytes);
    if (job->sums->keeps_errors)
        piece.lo = piece.hi + job->worker_bytes / sizeof(double) / 2;
    memset(piece.hi, 0, job->worker_bytes);
    for (uint64_t bag = 0; bag < state->bags.n_bags; bag++)
        add_bag(job, &piece, bag);
    store_piece(job, &piece);
}

static void run_max(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_table_gradient *state = op->state;
    struct job job = {.state = state,
                      .sums = qp_sum_kernels(qp_op_float(op->key), op->isa),
                      .dout = qp_op_view(call, "dout"),
                      .max_indices = qp_op_view(call, "max_indices"),
                      .dweight = qp_op_view(call, "dweight"),
                      .accumulate = qp_op_number(op, "accumulate"),
                      .workers = call->workspace,
                      .worker_bytes = worker_bytes(op),
                      .across = qp_div_up(state->row_len, UNIT_COLS)};
    qp_op_units(op, job.across * qp_div_up(state->n_rows, UNIT_ROWS), unit, &job);
    call->counts.overflow = job.overflow;
}

/* ---- The row ----------------------------------------------------------------------------------
 */

#define MAX_KERNEL(ISA)                                                                            \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_SUM,        \
        .takes = is_max, .workspace = workspace_max, .validate = validate_max, .run = run_max      \
    }

static const struct qp_op_kernel kernels[] = {
    QP_TABLE_KERNELS(is_sum),
    MAX_KERNEL(QPLAN_ISA_AVX2),
    MAX_KERNEL(QPLAN_ISA_SCALAR),
};

static const struct qplan_op_field_info fields[] = {
    QP_FIELD_NUM_EMBEDDINGS,
    QP_FIELD_BAG_MODE,
    QP_FIELD_PADDING_IDX,
    QP_FIELD_LAST_OFFSET,
    QP_FIELD_BY_FREQUENCY("divide each sum by the number of times that its row is in indices"),
    QP_FIELD_INDEX_POLICY,
    QP_FIELD_ACCUMULATE,
};

static const struct qplan_op_argument_info arguments[] = {
    {.name = "dout", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[B,D]"},
    QP_ARGUMENT_INDICES("[N] with offsets, or [B,L]"),
    QP_ARGUMENT_OFFSETS,
    {.name = "max_indices",
     .direction = QPLAN_OP_IN,
     .optional = true,
     .dtypes = "I64",
     .shape = "[B,D]"},
    {.name = "dweight", .direction = QPLAN_OP_UPDATE, .dtypes = QP_FP, .shape = "[V,D]"},
};

static const struct qp_op_row row = {
    .info = {.name = "embedding_bag_backward",
             .category = "embedding",
             .summary = "the gradient of the table of an embedding bag",
             .formula = "dweight[v] = sum over ascending n with indices[n] = v, n in bag b, of "
                        "dout[b], mean: dout[b] / size of b, the padding row 0; / count of v in "
                        "indices if scale_grad_by_freq; max: dweight[v,d] = sum of dout[b,d] over "
                        "ascending b with max_indices[b,d] = v; + dweight if accumulate",
             .oracle = "torch autograd, f64 to 1 ulp a term, f32 to 1e-5; under "
                       "scale_grad_by_freq it divides by counts of other rows",
             QP_OP_LIST(fields, fields),
             QP_OP_LIST(arguments, arguments)},
    QP_OP_LIST(kernels, kernels),
    .state_bytes = sizeof(struct qp_table_gradient),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding_bag_backward[] = {&row, NULL};
