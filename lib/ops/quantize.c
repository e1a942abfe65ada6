/*
 * quantize.c - quantize_G: codes of data with scales and zero points that are given.
 */
#include "families.h"
#include "quant_device.h"

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    QP_TRY(qp_quant_check(op, input->shape, input->rank, err));
    QP_TRY(qp_quant_check_scale_dtype(op, input->dtype, err));
    return qp_quant_check_codes(op, err);
}

static void run(struct qp_op_call *call)
{
    const struct qp_quant *quant = call->op->state;
    qp_quant_run_codes(call, &quant->rule);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static const struct qp_op_kernel kernels[] = {
    QP_QUANT_KERNEL(QPLAN_ISA_AVX512, QP_QUANT_VECTOR_BITS, qp_quant_validate_all, run),
    QP_QUANT_KERNEL(QPLAN_ISA_AVX2, QP_QUANT_VECTOR_BITS, qp_quant_validate_all, run),
    QP_QUANT_KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS, qp_quant_validate_all, run),
    QP_QUANT_DEVICE(QP_FP_BITS, qp_quant_validate_all, qp_quant_launch_codes),
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " nonfinite=saturate; input " X " any; scale " P " scale; zero_point " P " zero",       \
        FIELDS " output_dtype=uint4 q_max=14 nonfinite=saturate; input " X " any; scale " P        \
               " scale; zero_point:I8 " P " zero",                                                 \
        VALUED(FIELDS, "f8e4m3", X, P) VALUED(FIELDS, "f8e5m2", X, P)                              \
            VALUED(FIELDS, "f4e2m1", X, P) VALUED(FIELDS, "nf4", X, P) FIELDS                      \
        " output_dtype=int3 nonfinite=saturate; input " X " any; scale " P " scale",
#define VALUED(FIELDS, TYPE, X, P)                                                                 \
    FIELDS " output_dtype=" TYPE " nonfinite=saturate; input " X " any; scale " P " scale",
#define DENSE(TYPE)                                                                                \
    "output_dtype=" TYPE " nonfinite=saturate; input 5,167 any; scale 1 scale",                    \
        "output_dtype=" TYPE " nonfinite=saturate; input 35,168 any; scale 1 scale",
#define MORE_per_tensor DENSE("int2") DENSE("uint3") DENSE("int5") DENSE("uint6") DENSE("int7")
#define MORE_per_channel
#define MORE_per_group
#define MORE_per_token
#define MORE_per_block

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {                                       \
        QP_FIELDS_##G QP_FIELD_OUTPUT_CODE,                                                        \
        QP_FIELD_Q("q_min", "(that of output_dtype)"),                                             \
        QP_FIELD_Q("q_max", "(that of output_dtype)"),                                             \
        QP_FIELD_NONFINITE,                                                                        \
    };                                                                                             \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[X]"},              \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_ZERO_POINT(P),                                                                 \
        {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_CODE_STORAGES, .shape = "[X]"}, \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, MORE_##G)                                                        \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "quantize_" #G,                                                           \
                 .category = "quantize",                                                           \
                 .summary = "codes of data, with given scales and zero points",                    \
                 .formula = "output = clamp(rne(input / scale) + zero_point, q_min, q_max); "      \
                            "codes of floats and nf4: the nearest value to input / scale, half "   \
                            "to even, of nf4 to the lower one, and at an end the last one",        \
                 .oracle = "torch fake_quantize_per_channel_affine on one channel per element: "   \
                           "equal codes but where rne(x * (1 / s)) differs and for "               \
                           "|x / s| >= 2^63; codes of floats: ml_dtypes, clamped",                 \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_quantize[] = QP_GRANULARITY_ROWS;
