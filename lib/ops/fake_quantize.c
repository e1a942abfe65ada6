/*
 * fake_quantize.c - fake_quantize_G: data as it would be after codes and back.
 */
#include "families.h"
#include "quant_device.h"

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    return qp_quant_check_floats(op, "output", err);
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

#define KERNEL(ISA, KEYS, TAKES, RUN)                                                              \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = (KEYS), .class = QP_OP_ELEMENTWISE,    \
        .takes = (TAKES), .workspace = qp_quant_workspace, .validate = qp_quant_validate_all,      \
        .run = (RUN)                                                                               \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX2, QP_FP_BITS, qp_quant_takes_integers, run),
    KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_takes_integers, run),
    KERNEL(QPLAN_ISA_AVX512, QP_QUANT_VECTOR_BITS, qp_quant_takes_values, qp_quant_run_values),
    KERNEL(QPLAN_ISA_AVX2, QP_QUANT_VECTOR_BITS, qp_quant_takes_values, qp_quant_run_values),
    KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_takes_values, qp_quant_run_values),
    QP_QUANT_DEVICE(QP_FP_BITS, qp_quant_validate_all, launch),
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " q_min=-9 q_max=7 nonfinite=saturate; input " X " any; scale " P                       \
           " scale; zero_point " P " zero",                                                        \
        VALUED(FIELDS, "f8e4m3", X, P) VALUED(FIELDS, "f8e5m2", X, P)                              \
            VALUED(FIELDS, "f4e2m1", X, P) VALUED(FIELDS, "nf4", X, P)
#define VALUED(FIELDS, TYPE, X, P)                                                                 \
    FIELDS " code_dtype=" TYPE " nonfinite=saturate; input " X " any; scale " P " scale",

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {QP_FIELDS_##G QP_FIELDS_CODE,          \
                                                            QP_FIELD_NONFINITE};                   \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        QP_ARGUMENT_DATA("input"),                                                                 \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_ZERO_POINT(P),                                                                 \
        QP_ARGUMENT_RESULT("output"),                                                              \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "fake_quantize_" #G,                                                      \
                 .category = "quantize",                                                           \
                 .summary = "data as codes would give it back",                                    \
                 .formula = "output = scale * (clamp(rne(input / scale) + zero_point, q_min, "     \
                            "q_max) - zero_point); codes of floats and nf4: scale * the value "    \
                            "nearest to input / scale, as quantize has it",                        \
                 .oracle = "torch fake_quantize_per_tensor_affine and "                            \
                           "fake_quantize_per_channel_affine: equal but where "                    \
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

const struct qp_op_row *const qp_ops_fake_quantize[] = QP_GRANULARITY_ROWS;
