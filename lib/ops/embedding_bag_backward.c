/*
 * embedding_bag_backward.c - the gradient of the table of an embedding bag.
 *
 * Sum and mean are table_gradient.c, maxima max_gradient.c.
 */
#include "families.h"

#include "table_gradient.h"

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

/* ---- The row ----------------------------------------------------------------------------------
 */

#define MAX_KERNEL(ISA)                                                                            \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_SUM,        \
        .takes = is_max, .workspace = qp_max_gradient_workspace, .validate = validate_max,         \
        .run = qp_max_gradient_run                                                                 \
    }

static const struct qp_op_kernel kernels[] = {
    QP_TABLE_KERNELS(is_sum),
    MAX_KERNEL(QPLAN_ISA_AVX2),
    MAX_KERNEL(QPLAN_ISA_SCALAR),
    QP_TABLE_DEVICE(is_sum),
    {QP_ROWS_DEVICE(QP_OP_SUM, is_max, validate_max, qp_max_device_launch),
     .scratch = qp_max_device_scratch},
};

/* Bags by offsets, with places behind the last one, and by rows; some of them empty. */
static const char *const examples[] = {
    "num_embeddings=40 padding_idx=3; dout 21,13 any; indices 90 index 40; offsets 21 offset 90",
    ("num_embeddings=9 mode=mean scale_grad_by_freq=true include_last_offset=true accumulate=true; "
     "dout 69,16 finite; indices:I64 300 index 9; offsets:I64 70 offset 200; dweight 9,16 finite"),
    "num_embeddings=300 mode=mean index_policy=skip; dout 200,3 any; indices 200,5 index 333",
    ("num_embeddings=9 mode=max padding_idx=3; dout 50,13 any; indices 50,2 index 9; "
     "max_indices 50,13 index 9"),
    ("num_embeddings=700 mode=max accumulate=true; dout 210,48 any; indices 600 index 700; "
     "offsets 210 offset 600; max_indices 210,48 index 700; dweight 700,48 any"),
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
    QP_OP_LIST(examples, examples),
    .state_bytes = sizeof(struct qp_table_gradient),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding_bag_backward[] = {&row, NULL};
