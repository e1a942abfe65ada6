/*
 * dequantize.c - dequantize_G: numbers of codes.
 */
#include "families.h"
#include "quant_device.h"

#include "lib/model/dtype.h"

#include <inttypes.h>
#include <string.h>

/* The state of a row. */
struct dequantize {
    struct qp_quant quant; /* first, as quant.h asks */
    enum qplan_dtype output;
};

struct job {
    const struct qp_op_call *call;
    const struct qp_work_kernels *work;
    const struct qp_quantizer *quantizer;
    enum qplan_dtype dtype; /* of the output */
    const struct qp_view *input, *output;
};

/* ---- The problem ------------------------------------------------------------------------------
 */

/* The codes of a storage type, unless others are named. */
static enum qplan_dtype code_of(enum qplan_storage stored)
{
    switch (stored) {
    case QPLAN_STORAGE_I8:
        return QPLAN_INT8;
    case QPLAN_STORAGE_F8_E4M3:
        return QPLAN_F8E4M3;
    case QPLAN_STORAGE_F8_E5M2:
        return QPLAN_F8E5M2;
    default:
        return QPLAN_UINT8;
    }
}

static enum qplan_status find_code(struct qplan_op *op, struct qplan_error *err)
{
    const enum qplan_storage stored = qp_op_tensor(op, "input")->dtype;
    enum qplan_dtype code = code_of(stored);
    if (qp_op_value(op, "input_dtype")->given)
        code = qp_op_dtype(op, "input_dtype");
    QP_TRY(qp_quant_set_code(op, "input_dtype", code, err));
    if (qp_dtype_storage(code) == stored)
        return QPLAN_OK;
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "input", err,
                             "wrong dtype: expected %s for %s codes, found %s",
                             qplan_storage_name(qp_dtype_storage(code)), qplan_dtype_name(code),
                             qplan_storage_name(stored));
}

/* The last extent of the codes: given, or all that the bytes hold. */
static enum qplan_status find_row_len(const struct qplan_op *op, uint64_t *shape, unsigned rank,
                                      struct qplan_error *err)
{
    const struct qp_quant *quant = op->state;
    const struct qp_op_value *given = qp_op_value(op, "row_len");
    const uint64_t bits = quant->place.bits, bytes = rank > 0 ? shape[rank - 1] : 1;
    uint64_t most = bytes, least = bytes;
    if (quant->packed && rank > 0) { /* less than a byte is left over */
        most = bytes * 8 / bits;
        least = bytes ? (bytes - 1) * 8 / bits + 1 : 0;
    }
    const uint64_t row_len = given->given ? (uint64_t)given->number : most;
    if (row_len < least || row_len > most)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "row_len", err,
                                "does not fit the input: expected %" PRIu64 " to %" PRIu64
                                ", found %" PRIu64,
                                least, most, row_len);
    if (rank > 0)
        shape[rank - 1] = row_len;
    return QPLAN_OK;
}

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct dequantize *state = op->state;
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    const enum qplan_storage scale = qp_op_tensor(op, "scale")->dtype;
    uint64_t shape[QPLAN_MAX_RANK];
    memcpy(shape, input->shape, sizeof shape);
    QP_TRY(find_code(op, err));
    QP_TRY(find_row_len(op, shape, input->rank, err));
    QP_TRY(qp_quant_check(op, shape, input->rank, err));
    state->quant.zero_min = -QP_QUANT_LIMIT;
    state->quant.zero_max = QP_QUANT_LIMIT;
    state->output = qp_op_value(op, "output_dtype")->given ? qp_op_dtype(op, "output_dtype")
                                                           : qp_op_float(scale);
    op->work = scale == QPLAN_STORAGE_F64 || state->output == QPLAN_F64 ? QPLAN_F64 : QPLAN_F32;
    op->key = qp_dtype_storage(op->work);
    op->correctly_rounded = state->output == op->work;
    return qp_op_make_output(op, "output", qp_dtype_storage(state->output), shape, input->rank,
                             err);
}

/* ---- The work ---------------------------------------------------------------------------------
 */

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    QP_TRY(qp_quant_validate_params(call, err));
    return qp_quant_validate_codes(call, err);
}

/* Decodes to the output itself where that is in working precision, else through a buffer. */
static void unit(void *ctx, unsigned worker, uint64_t u)
{
    const struct job *job = ctx;
    const struct qp_quant *quant = job->call->op->state;
    struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    uint64_t begin, end;
    qp_quant_unit(quant, u, &begin, &end);
    const size_t n = (size_t)(end - begin), size = job->work->work_bytes;
    const uint8_t *codes = qp_quant_get_codes(job->call, job->input, &w, begin, n);
    void *room = qp_view_room(job->output, begin, n, w.elems[0]);
    char *y = job->dtype == job->work->work ? room : w.elems[1];
    struct qp_quant_tile t;
    for (size_t at = 0; at < n; at += t.n) {
        qp_quant_next(job->call, &w, begin + at, end, &t);
        job->quantizer->dequantize(&t.tile, codes + at, &quant->rule, t.scale, t.zero,
                                   y + at * size);
    }
    if (y != room)
        job->work->store(job->dtype, n, y, room);
    qp_view_put(job->output, begin, n, room);
}

static void run(struct qp_op_call *call)
{
    const struct dequantize *state = call->op->state;
    struct job job = {.call = call,
                      .work = qp_quant_work(call->op),
                      .quantizer =
                          qp_quantizer(call->op->work, state->quant.rule.type->kind, call->op->isa),
                      .dtype = state->output,
                      .input = qp_op_view(call, "input"),
                      .output = qp_op_view(call, "output")};
    qp_op_units(call->op, qp_quant_units(&state->quant), unit, &job);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

/* The key is the working precision. */
static const struct qp_op_kernel kernels[] = {
    QP_QUANT_KERNEL(QPLAN_ISA_AVX512, QP_BIT(QPLAN_STORAGE_F32), validate, run),
    QP_QUANT_KERNEL(QPLAN_ISA_AVX2, QP_BIT(QPLAN_STORAGE_F32), validate, run),
    QP_QUANT_KERNEL(QPLAN_ISA_SCALAR, QP_BIT(QPLAN_STORAGE_F32) | QP_BIT(QPLAN_STORAGE_F64),
                    validate, run),
    QP_QUANT_DEVICE(QP_BIT(QPLAN_STORAGE_F32) | QP_BIT(QPLAN_STORAGE_F64), validate,
                    qp_quant_launch_decode),
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS "; input " X " byte; scale " P " scale; zero_point " P " zero",                         \
        FIELDS " output_dtype=f16; input:U8 " X " byte; scale " P " scale; zero_point:U8 " P       \
               " zero",

/* Of rows that begin a byte each, and of codes that stand for values. */
#define PACKED(FIELDS, X, P)                                                                       \
    FIELDS " input_dtype=int4; input:U8 " X " byte; scale " P " scale; zero_point " P " zero",
#define VALUED(FIELDS, X, HALF, P)                                                                 \
    FIELDS "; input:F8_E4M3 " X " float 126; scale " P " scale",                                   \
        FIELDS " output_dtype=f16; input:F8_E5M2 " X " float 123; scale " P " scale",              \
        FIELDS " input_dtype=f4e2m1; input:U8 " HALF " byte; scale " P " scale",                   \
        FIELDS " input_dtype=nf4; input:U8 " HALF " byte; scale " P " scale",
#define DENSE(TYPE) "input_dtype=" TYPE "; input:U8 3,63 byte; scale 1 scale; zero_point 1 zero",
#define PACKED_per_tensor                                                                          \
    PACKED("row_len=9", "7,5", "1")                                                                \
    VALUED("", "3,2731", "3,2731", "1")                                                            \
    DENSE("int2") DENSE("uint3") DENSE("int5") DENSE("uint6") DENSE("int7")
#define PACKED_per_channel                                                                         \
    PACKED("axis=1 row_len=9", "3,7,5", "7")                                                       \
    VALUED("axis=0", "5,1000", "5,500", "5")                                                       \
    "axis=0 input_dtype=int3; input:U8 9,24 byte; scale 9 scale; zero_point 9 zero",
#define PACKED_per_group                                                                           \
    PACKED("group_size=5 ragged=true row_len=17", "3,9", "3,4")                                    \
    PACKED("group_size=32", "35,64", "35,4")                                                       \
    VALUED("group_size=5 ragged=true", "3,18", "3,9", "3,4")                                       \
    VALUED("group_size=32", "35,128", "35,64", "35,4")
#define PACKED_per_token                                                                           \
    PACKED("row_len=7", "13,3,4", "13,3")                                                          \
    VALUED("", "9,1000", "9,500", "9")
#define PACKED_per_block                                                                           \
    PACKED("block_rows=3 block_cols=5 ragged=true row_len=11", "2,7,6", "2,3,3")                   \
    VALUED("block_rows=3 block_cols=5 ragged=true", "2,7,12", "2,7,6", "2,3,3")

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {                                       \
        QP_FIELDS_##G{.name = "input_dtype",                                                       \
                      .type = QPLAN_FIELD_NAME,                                                    \
                      .fallback = "(int8, uint8, f8e4m3 or f8e5m2, as the input is stored)",       \
                      .names = QP_CODE_NAMES,                                                      \
                      .about = "of the codes; those of fewer than 8 bits must be named"},          \
        {.name = "output_dtype",                                                                   \
         .type = QPLAN_FIELD_NAME,                                                                 \
         .fallback = "(that of scale)",                                                            \
         .names = "f32|f64|f16|bf16",                                                              \
         .about = "of the result"},                                                                \
        {.name = "row_len",                                                                        \
         .type = QPLAN_FIELD_INT,                                                                  \
         .fallback = "(all that the bytes hold)",                                                  \
         .least = 0,                                                                               \
         .most = QP_MAX_EXTENT,                                                                    \
         .about = "last extent of codes of fewer than 8 bits, where bytes have room for more"},    \
    };                                                                                             \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_CODE_STORAGES, .shape = "[X]"},   \
        QP_ARGUMENT_SCALE(QP_FP, P),                                                               \
        QP_ARGUMENT_ZERO_POINT(P),                                                                 \
        {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = "[X]"},            \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, PACKED_##G)                                                      \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "dequantize_" #G,                                                         \
                 .category = "quantize",                                                           \
                 .summary = "numbers of codes",                                                    \
                 .formula = "output = scale * (input - zero_point), clipped to the finite range; " \
                            "codes of floats and nf4: output = scale * value",                     \
                 .oracle = "torch quantized_decomposed.dequantize_* and Tensor.dequantize() with " \
                           "an f32 scale: the same bits; codes of floats: ml_dtypes",              \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct dequantize),                                                  \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_dequantize[] = QP_GRANULARITY_ROWS;
