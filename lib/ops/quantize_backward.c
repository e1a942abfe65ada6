/*
 * quantize_backward.c - quantize_G_backward: the gradient of codes, straight through where the code
 * was not clamped.
 */
#include "families.h"
#include "quant_device.h"

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    return qp_quant_check_floats(op, "dinput", err);
}

static void run(struct qp_op_call *call)
{
    const struct qp_affine_kernels *kernels = qp_quant_affine(call->op);
    qp_quant_run_floats(call,
                        qp_quant_takes_values(call->op) ? kernels->quantize_backward_values
                                                        : kernels->quantize_backward,
                        "dinput");
}

static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    return qp_quant_launch_floats(run, QP_QUANT_QUANTIZE_BACKWARD, "dinput", err);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    QP_QUANT_KERNEL(QPLAN_ISA_AVX2, QP_FP_BITS, qp_quant_validate, run),
    QP_QUANT_KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_validate, run),
    QP_QUANT_DEVICE(QP_FP_BITS, qp_quant_validate, launch),
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " q_min=-9 q_max=7; dout " X " any; input " X " any; scale " P " scale; zero_point " P  \
           " zero",                                                                                \
        FIELDS " code_dtype=f8e4m3; dout " X " any; input " X " any; scale " P " scale",           \
        FIELDS " code_dtype=nf4; dout " X " any; input " X " any; scale " P " scale",

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {QP_FIELDS_##G QP_FIELDS_CODE};         \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        QP_ARGUMENT_DATA("dout"),  QP_ARGUMENT_DATA("input"),    QP_ARGUMENT_SCALE(QP_FP, P),      \
        QP_ARGUMENT_ZERO_POINT(P), QP_ARGUMENT_RESULT("dinput"),                                   \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info =                                                                                    \
            {.name = "quantize_" #G "_backward",                                                   \
             .category = "quantize",                                                               \
             .summary = "gradient through codes: straight where they were not clamped",            \
             .formula =                                                                            \
                 "u = rne(input / scale) + zero_point; dinput = q_min <= u <= q_max ? "            \
                 "dout / scale : 0; codes of floats and nf4: u = input / scale, q_min and q_max "  \
                 "their ends; NaN data: 0",                                                        \
             .oracle = "torch fake quantize autograd divided by the scale: the same bits "         \
                       "where the masks agree and dout is finite; torch multiplies by the "        \
                       "mask, so NaN leaks",                                                       \
             QP_OP_LIST(fields, fields_##G),                                                       \
             QP_OP_LIST(arguments, arguments_##G)},                                                \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_quantize_backward[] = QP_GRANULARITY_ROWS;
