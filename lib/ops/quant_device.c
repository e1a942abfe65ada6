/*
 * quant_device.c - the launches of the quantize family: the state of a problem as arguments of the
 * device text (kernels/gpu/qk_affine_args.h).
 */
#include "quant_device.h"

#include "kernels/gpu/qk_affine_args.h"
#include "lib/base/check.h"
#include "lib/device/code_values.h"

#include <string.h>

/* Threads of a group, each of which does eight elements at a time where it can. */
#define GROUP_SIZE 256

/* ---- Arguments --------------------------------------------------------------------------------
 */

static qk_u32 float_kind(enum qplan_storage storage)
{
    switch (qp_op_float(storage)) {
    case QPLAN_F16:
        return QK_FLOAT_F16;
    case QPLAN_BF16:
        return QK_FLOAT_BF16;
    case QPLAN_F64:
        return QK_FLOAT_F64;
    default:
        return QK_FLOAT_F32;
    }
}

static void set_geometry(struct qk_affine_args *a, const struct qp_sets *sets)
{
    /* The block holds every element, so their numbers fit. */
    a->n_elems = (qk_u32)sets->n_elems;
    a->n_sets = (qk_u32)sets->n_sets;
    a->row_len = (qk_u32)sets->row_len;
    a->col_width = (qk_u32)sets->col_width;
    a->n_cols = (qk_u32)sets->n_cols;
    a->band_rows = (qk_u32)sets->band_rows;
    a->period_rows = (qk_u32)sets->period_rows;
    a->period_bands = (qk_u32)sets->period_bands;
    a->wide = a->n_sets == 1 || (a->row_len % 8 == 0 && a->col_width % 8 == 0);
}

static void set_codes(struct qk_affine_args *a, const struct qp_quant *quant)
{
    const struct qp_sets *sets = &quant->geometry.sets;
    a->bits = quant->rule.type ? quant->rule.type->bits : 8;
    a->is_signed = quant->rule.type && quant->rule.type->is_signed;
    a->n_bytes = a->n_elems;
    a->wide_codes = a->wide;
    if (!quant->packed || a->n_elems == 0)
        return;
    a->last_len = (qk_u32)sets->last_len;
    a->row_bytes = (qk_u32)qp_place_line_bytes(&quant->place, sets->last_len);
    a->n_bytes = a->n_elems / a->last_len * a->row_bytes;
    a->wide_codes = a->wide && a->last_len * a->bits % 8 == 0;
}

/* Where the parameters are and what they are stored as. */
static void set_params(struct qk_affine_args *a, const struct qp_op_run *run)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_quant *quant = op->state;
    const struct qp_op_tensor *zero = qp_op_tensor(op, "zero_point");
    a->q_min = quant->rule.q_min;
    a->q_max = quant->rule.q_max;
    a->scale = qp_op_at(run, "scale");
    a->scale_kind = float_kind(qp_op_tensor(op, "scale")->dtype);
    a->no_zero = qp_quant_absent_zero(quant);
    a->zero_kind = QK_ZERO_NONE;
    if (!zero)
        return;
    a->zero = qp_op_at(run, "zero_point");
    a->zero_kind = quant->float_zero                  ? QK_ZERO_FLOAT
                   : zero->dtype == QPLAN_STORAGE_I32 ? QK_ZERO_I32
                   : zero->dtype == QPLAN_STORAGE_I8  ? QK_ZERO_I8
                                                      : QK_ZERO_U8;
}

static struct qk_affine_args make_args(const struct qp_op_run *run)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_quant *quant = op->state;
    struct qk_affine_args a = {.status = op->block.status,
                               .count = qp_op_is(op, "nonfinite", "saturate")};
    set_geometry(&a, &quant->geometry.sets);
    set_codes(&a, quant);
    if (quant->rule.type)
        a.v = qp_device_values(&quant->rule);
    a.v.book = op->block.scratch;
    set_params(&a, run);
    return a;
}

/* A launch whose groups do so many of n things each. */
static enum qplan_status launch(struct qp_op_run *run, enum qk_kernel kernel, uint64_t n,
                                uint32_t each, const struct qk_affine_args *a,
                                struct qplan_error *err)
{
    const struct qp_launch what = {kernel, (uint32_t)qp_div_up(n, each), GROUP_SIZE, a, sizeof *a};
    return qp_lane_launch(run->lane, &what, err);
}

uint64_t qp_quant_book_bytes(const struct qplan_op *op)
{
    const struct qp_quant *quant = op->state;
    return quant->rule.kind == QP_CODES_BOOK ? QP_BOOK_BYTES : 0;
}

/* The table of values, before any launch that reads it. */
static enum qplan_status copy_book(struct qp_op_run *run, const struct qk_affine_args *a,
                                   struct qplan_error *err)
{
    const struct qp_quant *quant = run->call->op->state;
    return qp_device_copy_book(run->lane, &quant->rule, a->v.book, err);
}

/* The kernels of a float dtype and of a working precision. */
static const struct dtype_row {
    enum qk_kernel steps[4]; /* by enum qp_quant_step */
    enum qk_kernel encode, range_sets, range_lanes, learn_sets, learn_lanes;
} dtype_rows[] = {
#define ROW(dtype)                                                                                 \
    {                                                                                              \
        {qk_fake_op_##dtype##_id, qk_fake_backward_op_##dtype##_id,                                \
         qk_quantize_backward_op_##dtype##_id, qk_dequantize_backward_op_##dtype##_id},            \
            qk_encode_op_##dtype##_id, qk_range_sets_op_##dtype##_id,                              \
            qk_range_lanes_op_##dtype##_id, qk_learn_sets_op_##dtype##_id,                         \
            qk_learn_lanes_op_##dtype##_id                                                         \
    }
    [QK_FLOAT_F32] = ROW(f32),
    [QK_FLOAT_F16] = ROW(f16),
    [QK_FLOAT_BF16] = ROW(bf16),
    [QK_FLOAT_F64] = ROW(f64),
#undef ROW
};

static const struct dtype_row *row_of(const struct qp_op_run *run)
{
    return &dtype_rows[float_kind(run->call->op->key)];
}

/* ---- Elements ---------------------------------------------------------------------------------
 */

enum qplan_status qp_quant_launch_floats(struct qp_op_run *run, enum qp_quant_step step,
                                         const char *output, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    struct qk_affine_args a = make_args(run);
    const char *x = qp_op_tensor(op, "input") ? "input" : "dout";
    a.input = qp_op_at(run, x);
    a.dout = qp_op_at(run, qp_op_tensor(op, "dout") ? "dout" : x);
    a.output = qp_op_at(run, output);
    QP_TRY(copy_book(run, &a, err));
    return launch(run, row_of(run)->steps[step], a.n_elems, QK_AFFINE_CHUNK, &a, err);
}

enum qplan_status qp_quant_launch_codes(struct qp_op_run *run, struct qplan_error *err)
{
    struct qk_affine_args a = make_args(run);
    a.input = qp_op_at(run, "input");
    a.output = qp_op_at(run, "output");
    QP_TRY(copy_book(run, &a, err));
    return launch(run, row_of(run)->encode, a.n_bytes, qk_code_chunk(&a), &a, err);
}

enum qplan_status qp_quant_launch_decode(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    struct qk_affine_args a = make_args(run);
    a.input = qp_op_at(run, "input");
    a.output = qp_op_at(run, "output");
    a.float_kind = float_kind(qp_op_tensor(op, "output")->dtype);
    QP_TRY(copy_book(run, &a, err));
    return launch(run, op->work == QPLAN_F64 ? qk_decode_op_in_f64_id : qk_decode_op_in_f32_id,
                  a.n_elems, QK_AFFINE_CHUNK, &a, err);
}

/* ---- Sets -------------------------------------------------------------------------------------
 */

/* Sets of so few elements, or of so few columns and many beside each other, have a thread each. */
#define SMALL_SET   64u
#define NARROW_COLS 8u

static bool is_narrow(const struct qk_affine_args *a)
{
    return (uint64_t)a->band_rows * a->col_width <= SMALL_SET ||
           (a->col_width < NARROW_COLS && a->n_sets >= QK_SET_BLOCK);
}

enum qplan_status qp_quant_launch_learn(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const double factor = qp_op_value(op, "grad_factor")->real;
    struct qk_affine_args a = make_args(run);
    uint64_t bits;
    memcpy(&bits, &factor, sizeof bits);
    a.factor_low = (qk_u32)bits;
    a.factor_high = (qk_u32)(bits >> 32);
    a.dout = qp_op_at(run, "dout");
    a.input = qp_op_at(run, "input");
    a.output = qp_op_at(run, "dinput");
    a.dscale = qp_op_at(run, "dscale");
    a.dzero = qp_op_at(run, "dzero_point");
    a.float_kind = a.scale_kind;
    a.n_sets = (qk_u32)qp_op_tensor(op, "dscale")->n_elems; /* also of data without elements */
    if (is_narrow(&a))
        return launch(run, row_of(run)->learn_lanes, a.n_sets, QK_SET_BLOCK, &a, err);
    return launch(run, row_of(run)->learn_sets, a.n_sets, 1, &a, err);
}

/* Elements of a set whose range is found at once. */
#define PART_ELEMS 16384u

static uint64_t parts_of(const struct qp_sets *sets)
{
    return qp_div_up(sets->band_rows * sets->col_width, PART_ELEMS);
}

/* The ranges of all parts: lo, then hi. */
static uint64_t range_bytes(const struct qplan_op *op)
{
    const struct qp_sets *sets = &((const struct qp_quant *)op->state)->geometry.sets;
    const uint64_t n = sets->n_sets * parts_of(sets), size = op->work == QPLAN_F64 ? 8 : 4;
    return 2 * qp_div_up(n * size, 64) * 64;
}

/* A table, if there is one, and behind it the ranges. */
uint64_t qp_quant_dynamic_bytes(const struct qplan_op *op)
{
    return qp_quant_book_bytes(op) + range_bytes(op);
}

static enum qplan_status launch_ranges(struct qp_op_run *run, const struct qk_affine_args *a,
                                       struct qplan_error *err)
{
    if (a->n_elems == 0)
        return QPLAN_OK;
    if (is_narrow(a))
        return launch(run, row_of(run)->range_lanes, qp_div_up(a->n_sets, QK_SET_BLOCK) * a->parts,
                      1, a, err);
    return launch(run, row_of(run)->range_sets, (uint64_t)a->n_sets * a->parts, 1, a, err);
}

enum qplan_status qp_quant_launch_dynamic(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_quant *quant = op->state;
    struct qk_affine_args a = make_args(run);
    a.input = qp_op_at(run, "input");
    a.output = qp_op_at(run, "output");
    a.asymmetric = quant->rule.asymmetric;
    a.parts = (qk_u32)parts_of(&quant->geometry.sets);
    a.part_len = PART_ELEMS;
    a.lo = op->block.scratch + (qk_u32)qp_quant_book_bytes(op);
    a.hi = a.lo + (qk_u32)(range_bytes(op) / 2);
    a.n_sets = (qk_u32)qp_op_tensor(op, "scale")->n_elems; /* also of data without elements */
    a.count = 0;                                           /* the ranges count */
    QP_TRY(copy_book(run, &a, err));
    QP_TRY(launch_ranges(run, &a, err));
    QP_TRY(launch(run, op->work == QPLAN_F64 ? qk_params_op_in_f64_id : qk_params_op_in_f32_id,
                  a.n_sets, QK_SET_BLOCK, &a, err));
    return launch(run, row_of(run)->encode, a.n_bytes, qk_code_chunk(&a), &a, err);
}
