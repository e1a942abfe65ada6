/*
 * quantize.c - quantize_G: codes of data with scales and zero points that are given.
 */
#include "families.h"
#include "quant.h"

#include "../base/dtype.h"

#include <inttypes.h>
#include <stdatomic.h>

struct job {
    struct qp_op_call *call;
    const struct qp_source_kernels *source;
    const struct qp_view *input, *output;
    bool count; /* elements that are not finite */
    atomic_uint_fast64_t nonfinite;
};

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_quant *quant = op->state;
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    uint64_t shape[QPLAN_MAX_RANK];
    int32_t q_min, q_max;
    QP_TRY(qp_quant_check(op, input->shape, input->rank, err));
    QP_TRY(qp_quant_check_scale_dtype(op, input->dtype, err));
    QP_TRY(qp_quant_set_code(op, "output_dtype", qp_op_dtype(op, "output_dtype"), err));
    (void)qplan_dtype_range(quant->code, &q_min, &q_max);
    QP_TRY(qp_quant_set_range(op, q_min, q_max, err));
    if (quant->rule.q_min < q_min || quant->rule.q_max > q_max)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID,
                                quant->rule.q_min < q_min ? "q_min" : "q_max", err,
                                "outside %s: expected %" PRId32 " to %" PRId32 ", found %" PRId32,
                                qplan_dtype_name(quant->code), q_min, q_max,
                                quant->rule.q_min < q_min ? quant->rule.q_min : quant->rule.q_max);
    qp_quant_code_shape(quant, input->shape, input->rank, shape);
    return qp_op_make_output(op, "output", qp_dtype_storage(quant->code), shape, input->rank, err);
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    QP_TRY(qp_quant_validate_params(call, err));
    if (qp_op_is(call->op, "nonfinite", "error"))
        return qp_quant_validate_finite(call, "input", err);
    return QPLAN_OK;
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_quant *quant = job->call->op->state;
    struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    uint64_t begin, end;
    qp_quant_unit(quant, u, &begin, &end);
    const size_t n = (size_t)(end - begin), size = job->source->elem_bytes;
    const char *src = qp_view_get(job->input, begin, n, w.elems[0]);
    uint8_t *codes = qp_quant_code_room(job->call, job->output, &w, begin, n);
    struct qp_quant_tile t;
    if (job->count)
        (void)atomic_fetch_add(&job->nonfinite, qp_quant_nonfinite(job->source, src, n));
    for (size_t at = 0; at < n; at += t.n) {
        qp_quant_next(job->call, &w, begin + at, end, &t);
        job->source->quantize(&t.tile, src + at * size, &quant->rule, t.scale, t.zero, codes + at);
    }
    qp_quant_put_codes(job->call, job->output, &w, begin, n, codes);
}

static void run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    struct job job = {.call = call,
                      .source = qp_source_kernels(qp_op_float(op->key), op->isa),
                      .input = qp_op_view(call, "input"),
                      .output = qp_op_view(call, "output"),
                      .count = qp_op_is(op, "nonfinite", "saturate")};
    qp_op_units(op, qp_quant_units(op->state), unit, &job);
    call->counts.nonfinite = job.nonfinite;
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

#define KERNEL(ISA, KEYS)                                                                          \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = (KEYS), .class = QP_OP_ELEMENTWISE,    \
        .workspace = qp_quant_workspace, .validate = validate, .run = run                          \
    }

/* f64 has no vector kernels. */
static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX2, QP_FP_BITS & ~QP_BIT(QPLAN_STORAGE_F64)),
    KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS),
};

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {                                       \
        QP_FIELDS_##G{.name = "output_dtype",                                                      \
                      .type = QPLAN_FIELD_NAME,                                                    \
                      .fallback = "int8",                                                          \
                      .names = QP_CODE_NAMES,                                                      \
                      .about = "of the codes; 4-bit ones are U8, two in a byte"},                  \
        QP_FIELD_Q("q_min", "(that of output_dtype)"),                                             \
        QP_FIELD_Q("q_max", "(that of output_dtype)"),                                             \
        QP_FIELD_NONFINITE,                                                                        \
    };                                                                                             \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[X]"},              \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_ZERO_POINT(P),                                                                 \
        {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = "I8|U8", .shape = "[X]"},          \
    };                                                                                             \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "quantize_" #G,                                                           \
                 .category = "quantize",                                                           \
                 .summary = "codes of data, with given scales and zero points",                    \
                 .formula = "output = clamp(rne(input / scale) + zero_point, q_min, q_max)",       \
                 .oracle = "torch fake_quantize_per_channel_affine on one channel per element: "   \
                           "equal codes but where rne(x * (1 / s)) differs and for "               \
                           "|x / s| >= 2^63",                                                      \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_quantize[] = {
    &row_per_tensor, &row_per_channel, &row_per_group, &row_per_token, &row_per_block, NULL,
};
