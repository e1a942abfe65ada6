/*
 * quant_device.c - the launches of the quantize family: the state of a problem as arguments of the
 * device text (kernels/gpu/qk_affine_args.h).
 */
#include "quant_device.h"

#include "../../kernels/gpu/qk_affine_args.h"
#include "../base/check.h"

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
    set_params(&a, run);
    return a;
}

/* ---- Floats -----------------------------------------------------------------------------------
 */

#define STEPS(dtype)                                                                               \
    {                                                                                              \
        qk_fake_##dtype##_id, qk_fake_backward_##dtype##_id, qk_quantize_backward_##dtype##_id,    \
            qk_dequantize_backward_##dtype##_id                                                    \
    }

enum qplan_status qp_quant_launch_floats(struct qp_op_run *run, enum qp_quant_step step,
                                         const char *output, struct qplan_error *err)
{
    static const enum qk_kernel kernels[][4] = {[QK_FLOAT_F32] = STEPS(f32),
                                                [QK_FLOAT_F16] = STEPS(f16),
                                                [QK_FLOAT_BF16] = STEPS(bf16),
                                                [QK_FLOAT_F64] = STEPS(f64)};
    const struct qplan_op *op = run->call->op;
    struct qk_affine_args a = make_args(run);
    const char *x = qp_op_tensor(op, "input") ? "input" : "dout";
    a.input = qp_op_at(run, x);
    a.dout = qp_op_at(run, qp_op_tensor(op, "dout") ? "dout" : x);
    a.output = qp_op_at(run, output);
    const struct qp_launch launch = {kernels[float_kind(op->key)][step],
                                     (uint32_t)qp_div_up(a.n_elems, QK_AFFINE_CHUNK), GROUP_SIZE,
                                     &a, sizeof a};
    return qp_op_launch(run, &launch, err);
}
