/*
 * embedding.c - embedding: rows of a table by index, copied bit for bit.
 */
#include "families.h"
#include "rows_device.h"

#include "lib/base/check.h"

#include <string.h>

struct job {
    struct qp_indices indices;
    const struct qp_view *weight, *output;
    uint64_t n_rows, row_len;
    uint64_t step; /* indices of a unit */
};

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    const struct qp_op_tensor *weight = qp_op_tensor(op, "weight");
    const struct qp_op_tensor *indices = qp_op_tensor(op, "indices");
    uint64_t shape[QPLAN_MAX_RANK + 1];
    int64_t padding; /* legal or not; the row is copied as it is stored */
    QP_TRY(qp_op_check_rank(op, "weight", 2, err));
    QP_TRY(qp_index_padding(op, weight->shape[0], &padding, err));
    if (indices->rank == QPLAN_MAX_RANK)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "indices", err,
                                 "rank too high: expected at most %d, found %u", QPLAN_MAX_RANK - 1,
                                 indices->rank);
    memcpy(shape, indices->shape, indices->rank * sizeof shape[0]);
    shape[indices->rank] = weight->shape[1];
    return qp_op_make_output(op, "output", weight->dtype, shape, indices->rank + 1, err);
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    return qp_index_validate(call, "indices", qp_op_tensor(call->op, "weight")->shape[0], err);
}

/* ---- The work ---------------------------------------------------------------------------------
 */

/* Elements that a gathered piece of a row has room for. */
#define PIECE 512

static void copy_row(const struct job *job, uint64_t from, uint64_t to)
{
    const size_t row_len = (size_t)job->row_len;
    const void *direct = qp_view_at(job->weight, from, row_len);
    double buffer[PIECE];
    if (direct) {
        qp_view_put(job->output, to, row_len, direct);
        return;
    }
    for (size_t col = 0; col < row_len; col += PIECE) {
        const size_t n = (size_t)qp_min_u64(PIECE, row_len - col);
        qp_view_put(job->output, to + col, n, qp_view_get(job->weight, from + col, n, buffer));
    }
}

static void visit(void *ctx, uint64_t place, int64_t index)
{
    const struct job *job = ctx;
    if (qp_index_ok(index, job->n_rows))
        copy_row(job, (uint64_t)index * job->row_len, place * job->row_len);
    else
        qp_view_zero(job->output, place * job->row_len, job->row_len);
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const uint64_t begin = u * job->step, n_indices = job->indices.view->n_elems;
    (void)worker;
    qp_index_each(&job->indices, begin, qp_min_u64(job->step, n_indices - begin), visit, job);
}

static void run(struct qp_op_call *call)
{
    const struct qp_op_tensor *weight = qp_op_tensor(call->op, "weight");
    struct job job = {.weight = qp_op_view(call, "weight"),
                      .output = qp_op_view(call, "output"),
                      .n_rows = weight->shape[0],
                      .row_len = weight->shape[1],
                      .indices = qp_indices_of(call, "indices")};
    job.step = qp_max_u64(QP_OP_CHUNK / job.row_len, 1);
    qp_op_units(call->op, qp_div_up(job.indices.view->n_elems, job.step), unit, &job);
}

/* The row of the padding is copied like any other. */
static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_op_tensor *weight = qp_op_tensor(op, "weight");
    const struct qp_rows_table table = {weight->shape[0], weight->shape[1], -1};
    const struct qp_bags bags = {.n_indices = qp_op_tensor(op, "indices")->n_elems};
    struct qk_rows_args a = qp_rows_args(run, &bags, &table);
    a.source = qp_op_at(run, "weight");
    a.target = qp_op_at(run, "output");
    return qp_rows_launch_copy(run, &a, err);
}

/* ---- The row ----------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    {.backend = QPLAN_BACKEND_CPU,
     .isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_COPY,
     .validate = validate,
     .run = run},
    {QP_ROWS_DEVICE(QP_OP_COPY, NULL, validate, launch)},
};

/* Rows of whole units of 16, 4 and 2 bytes, for some dtypes at least. */
static const char *const examples[] = {
    "index_policy=skip; weight 9,8 any; indices 3,100 index 11",
    "padding_idx=2; weight 5,600 any; indices:I64 13 index 5",
    "index_policy=skip; weight 31,2 any; indices:I64 2,2,7 index 40",
    "; weight 7,3 any; indices 1500 index 7",
    "; weight 3,1 any; indices - index 3",
};

static const struct qplan_op_field_info fields[] = {QP_FIELD_PADDING_IDX, QP_FIELD_INDEX_POLICY};

static const struct qplan_op_argument_info arguments[] = {
    {.name = "weight", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[V,D]"},
    QP_ARGUMENT_INDICES("[I...]"),
    {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = "[I...,D]"},
};

static const struct qp_op_row row = {
    .info = {.name = "embedding",
             .category = "embedding",
             .summary = "rows of a table by index",
             .formula =
                 "output[n] = weight[indices[n]]; the padding row as stored, a skipped row 0",
             .oracle = "torch F.embedding: the same bits",
             QP_OP_LIST(fields, fields),
             QP_OP_LIST(arguments, arguments)},
    QP_OP_LIST(kernels, kernels),
    QP_OP_LIST(examples, examples),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding[] = {&row, NULL};
