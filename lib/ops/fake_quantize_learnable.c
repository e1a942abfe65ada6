/*
 * fake_quantize_learnable.c - fake_quantize_learnable_G: fake quantize with zero points that are
 * trained, so they are floats.
 */
#include "families.h"
#include "quant_device.h"

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    return qp_quant_check_learnable(op, "output", err);
}

static void run(struct qp_op_call *call)
{
    qp_quant_run_floats(call, qp_quant_affine(call->op)->fake, "output");
}

static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    return qp_quant_launch_floats(run, QP_QUANT_FAKE, "output", err);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    QP_QUANT_KERNEL(QPLAN_ISA_AVX2, QP_FP_BITS, qp_quant_validate_all, run),
    QP_QUANT_KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_validate_all, run),
    QP_QUANT_DEVICE(QP_FP_BITS, qp_quant_validate_all, launch),
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " q_min=-9 q_max=7 nonfinite=saturate; input " X " any; scale " P                       \
           " scale; zero_point " P " zero",

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {QP_FIELDS_##G QP_FIELDS_INTEGER,       \
                                                            QP_FIELD_NONFINITE};                   \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        QP_ARGUMENT_DATA("input"),                                                                 \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_FLOAT_ZERO_POINT(P),                                                           \
        QP_ARGUMENT_RESULT("output"),                                                              \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "fake_quantize_learnable_" #G,                                            \
                 .category = "quantize",                                                           \
                 .summary = "fake quantize with a zero point of floats",                           \
                 .formula = "z = clamp(rne(zero_point), q_min, q_max); output = scale * "          \
                            "(clamp(rne(input / scale) + z, q_min, q_max) - z)",                   \
                 .oracle = "torch _fake_quantize_learnable_*_affine: equal but where "             \
                           "rne(x * (1 / s)) differs and for |x / s| >= 2^63",                     \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_fake_quantize_learnable[] = QP_GRANULARITY_ROWS;
