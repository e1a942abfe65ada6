/*
 * dequantize_backward.c - dequantize_G_backward: the gradient of numbers with respect to their
 * codes.
 */
#include "families.h"
#include "quant_device.h"

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    const enum qplan_storage data = qp_op_tensor(op, "dout")->dtype;
    op->correctly_rounded = qp_op_float(data) == op->work;
    return qp_quant_check_floats(op, "dinput", err);
}

static void run(struct qp_op_call *call)
{
    qp_quant_run_floats(call, qp_quant_affine(call->op)->dequantize_backward, "dinput");
}

static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    return qp_quant_launch_floats(run, QP_QUANT_DEQUANTIZE_BACKWARD, "dinput", err);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    QP_QUANT_KERNEL(QPLAN_ISA_AVX2, QP_FP_BITS, qp_quant_validate, run),
    QP_QUANT_KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_validate, run),
    QP_QUANT_DEVICE(QP_FP_BITS, qp_quant_validate, launch),
};

#define EXAMPLE(FIELDS, X, P) FIELDS "; dout " X " any; scale " P " scale",

/* Some granularities have no field, and an array must have an element: one more ends each. */
#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {QP_FIELDS_##G{.name = NULL}};          \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        QP_ARGUMENT_DATA("dout"),                                                                  \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_RESULT("dinput"),                                                              \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "dequantize_" #G "_backward",                                             \
                 .category = "quantize",                                                           \
                 .summary = "gradient of numbers with respect to their codes",                     \
                 .formula = "dinput = dout * scale",                                               \
                 .oracle = "torch multiplication: the same bits",                                  \
                 .fields = fields_##G,                                                             \
                 .n_fields = QP_COUNT(fields_##G) - 1,                                             \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_dequantize_backward[] = QP_GRANULARITY_ROWS;
