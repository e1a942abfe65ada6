/*
 * quant.c - the shared part of the quantize family that needs no data: dtypes, shapes, ranges.
 */
#include "quant.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <string.h>

static struct qp_quant *state(const struct qplan_op *op)
{
    return op->state;
}

enum qplan_status qp_quant_check(struct qplan_op *op, const uint64_t *shape, unsigned rank,
                                 struct qplan_error *err)
{
    struct qp_op_geometry *geometry = &state(op)->geometry;
    QP_TRY(qp_op_geometry(op, shape, rank, geometry, err));
    QP_TRY(qp_op_check_params_shape(op, "scale", geometry, err));
    if (qp_op_tensor(op, "zero_point"))
        return qp_op_check_params_shape(op, "zero_point", geometry, err);
    return QPLAN_OK;
}

enum qplan_status qp_quant_check_scale_dtype(const struct qplan_op *op, enum qplan_storage data,
                                             struct qplan_error *err)
{
    const struct qp_op_tensor *scale = qp_op_tensor(op, "scale");
    if (scale->dtype != QPLAN_STORAGE_F64 || data == QPLAN_STORAGE_F64)
        return QPLAN_OK;
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "scale", err,
                             "wrong dtype: expected F32, F16 or BF16 with %s data, found F64",
                             qplan_storage_name(data));
}

enum qplan_status qp_quant_set_code(struct qplan_op *op, const char *field, enum qplan_dtype code,
                                    struct qplan_error *err)
{
    struct qp_quant *quant = state(op);
    const struct qp_op_tensor *zero = qp_op_tensor(op, "zero_point");
    quant->rule.type = qp_code_type(code);
    if (!quant->rule.type)
        return qp_op_fail_field(op, QPLAN_ERR_UNSUPPORTED, field, err,
                                "no kernel for these codes: expected a type of at most 8 bits, "
                                "found %s",
                                qplan_dtype_name(code));
    quant->code = code;
    quant->rule.kind = quant->rule.type->kind;
    quant->packed = quant->rule.type->bits < 8;
    quant->place = qp_row_place(quant->rule.type->bits, quant->rule.type->is_signed);
    if (qp_quant_is_valued(quant) && zero && zero->read)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "zero_point", err,
                                 "%s codes have none: expected no such tensor",
                                 qplan_dtype_name(code));
    return QPLAN_OK;
}

/* The values of such codes are what they are: nothing is left out of them. */
static enum qplan_status set_values(struct qplan_op *op, struct qplan_error *err)
{
    static const char *const ends[] = {"q_min", "q_max"};
    struct qp_quant *quant = state(op);
    for (size_t i = 0; i < QP_COUNT(ends); i++) {
        const struct qp_op_value *end = qp_op_value(op, ends[i]);
        if (end->given)
            return qp_op_fail_field(op, QPLAN_ERR_INVALID, ends[i], err,
                                    "%s codes are no integers: expected none, found %" PRId64,
                                    qplan_dtype_name(quant->code), end->number);
    }
    quant->rule.q_max = (int32_t)quant->rule.type->largest;
    quant->rule.q_min = -quant->rule.q_max;
    quant->zero_min = quant->zero_max = 0;
    return QPLAN_OK;
}

/* Sets the range of codes from q_min and q_max, or these where they are not given. */
static enum qplan_status set_range(struct qplan_op *op, int32_t q_min, int32_t q_max,
                                   struct qplan_error *err)
{
    struct qp_quant *quant = state(op);
    const struct qp_op_value *least = qp_op_value(op, "q_min"), *most = qp_op_value(op, "q_max");
    quant->rule.q_min = least->given ? (int32_t)least->number : q_min;
    quant->rule.q_max = most->given ? (int32_t)most->number : q_max;
    quant->zero_min = quant->rule.q_min;
    quant->zero_max = quant->rule.q_max;
    if (quant->rule.q_max < quant->rule.q_min)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "q_max", err,
                                "below q_min: expected at least %" PRId32 ", found %" PRId32,
                                quant->rule.q_min, quant->rule.q_max);
    return QPLAN_OK;
}

/* Those of the type that is named. */
static enum qplan_status set_code_range(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_quant *quant = state(op);
    int32_t q_min, q_max;
    if (qp_quant_is_valued(quant))
        return set_values(op, err);
    (void)qplan_dtype_range(quant->code, &q_min, &q_max);
    QP_TRY(set_range(op, q_min, q_max, err));
    if (quant->rule.q_min >= q_min && quant->rule.q_max <= q_max)
        return QPLAN_OK;
    return qp_op_fail_field(op, QPLAN_ERR_INVALID, quant->rule.q_min < q_min ? "q_min" : "q_max",
                            err, "outside %s: expected %" PRId32 " to %" PRId32 ", found %" PRId32,
                            qplan_dtype_name(quant->code), q_min, q_max,
                            quant->rule.q_min < q_min ? quant->rule.q_min : quant->rule.q_max);
}

/* The shape that codes of data of this shape are stored in. */
static void code_shape(const struct qp_quant *quant, const uint64_t *shape, unsigned rank,
                       uint64_t *out)
{
    memcpy(out, shape, rank * sizeof shape[0]);
    if (quant->packed && rank > 0)
        out[rank - 1] = qp_place_line_bytes(&quant->place, shape[rank - 1]);
}

bool qp_quant_takes_values(const struct qplan_op *op)
{
    return qp_quant_is_valued(state(op));
}

bool qp_quant_takes_integers(const struct qplan_op *op)
{
    return !qp_quant_is_valued(state(op));
}

/* ---- Checks of whole families -----------------------------------------------------------------
 */

enum qplan_status qp_quant_check_codes(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_quant *quant = state(op);
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    uint64_t shape[QPLAN_MAX_RANK];
    QP_TRY(qp_quant_set_code(op, "output_dtype", qp_op_dtype(op, "output_dtype"), err));
    QP_TRY(set_code_range(op, err));
    code_shape(quant, input->shape, input->rank, shape);
    return qp_op_make_output(op, "output", qp_dtype_storage(quant->code), shape, input->rank, err);
}

enum qplan_status qp_quant_check_floats(struct qplan_op *op, const char *output,
                                        struct qplan_error *err)
{
    const struct qp_op_tensor *dout = qp_op_tensor(op, "dout"), *input = qp_op_tensor(op, "input");
    const struct qp_op_tensor *data = dout ? dout : input;
    if (dout && input) {
        QP_TRY(qp_op_check_same_dtype(op, "input", "dout", err));
        QP_TRY(qp_op_check_shape(op, "input", dout->shape, dout->rank, "that of dout", err));
    }
    QP_TRY(qp_quant_check(op, data->shape, data->rank, err));
    QP_TRY(qp_quant_check_scale_dtype(op, data->dtype, err));
    if (qp_op_value(op, "code_dtype")->given) {
        QP_TRY(qp_quant_set_code(op, "code_dtype", qp_op_dtype(op, "code_dtype"), err));
        QP_TRY(set_code_range(op, err));
    } else {
        QP_TRY(set_range(op, -128, 127, err));
    }
    return qp_op_make_output(op, output, data->dtype, data->shape, data->rank, err);
}

enum qplan_status qp_quant_check_learnable(struct qplan_op *op, const char *output,
                                           struct qplan_error *err)
{
    state(op)->float_zero = true;
    if (qp_op_tensor(op, "zero_point"))
        QP_TRY(qp_op_check_same_dtype(op, "zero_point", "scale", err));
    return qp_quant_check_floats(op, output, err);
}
