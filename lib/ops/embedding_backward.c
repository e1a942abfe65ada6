/*
 * embedding_backward.c - the gradient of an embedding table: for each row the sum of the gradients
 * of the places that used it.
 */
#include "families.h"
#include "table_gradient.h"

/* Every index is a bag of its own, and dout has its gradient. */
static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_table_gradient *state = op->state;
    const struct qp_op_tensor *dout = qp_op_tensor(op, "dout");
    if (dout->rank == 0)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "dout", err,
                                 "wrong rank: expected at least 1, found 0");
    QP_TRY(qp_op_check_shape(op, "indices", dout->shape, dout->rank - 1,
                             "that of dout without its last extent", err));
    const uint64_t n = qp_op_tensor(op, "indices")->n_elems;
    state->bags = (struct qp_bags){.n_bags = n, .n_indices = n, .per_bag = 1};
    state->row_len = dout->shape[dout->rank - 1];
    return qp_table_gradient_check(op, state, err);
}

/* ---- The row ----------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {QP_TABLE_KERNELS(NULL), QP_TABLE_DEVICE(NULL)};

/* Rows with no, one and many terms; rows of whole octets and not. */
static const char *const examples[] = {
    "num_embeddings=40 padding_idx=3; dout 300,13 finite; indices 300 index 40",
    "num_embeddings=150 scale_grad_by_freq=true; dout 5,60,16 any; indices:I64 5,60 index 150",
    ("num_embeddings=600 index_policy=skip accumulate=true; dout 500,8 any; indices 500 index 700; "
     "dweight 600,8 any"),
};

static const struct qplan_op_field_info fields[] = {
    QP_FIELD_NUM_EMBEDDINGS,
    QP_FIELD_PADDING_IDX,
    QP_FIELD_BY_FREQUENCY("divide each sum by the number of its terms"),
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
    QP_OP_LIST(examples, examples),
    .state_bytes = sizeof(struct qp_table_gradient),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding_backward[] = {&row, NULL};
