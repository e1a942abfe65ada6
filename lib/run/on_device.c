/*
 * on_device.c - the steps of a unit on a device. Nothing here reads or writes a file.
 */
#include "on_device.h"

#include "lib/model/dtype.h"

static struct qp_device_scratch scratch_of(const struct qp_unit_buffers *b)
{
    return (struct qp_device_scratch){b->state,  (char *)b->state + b->n_sets * sizeof(double),
                                      b->scale,  b->zero,
                                      b->stored, b->codes};
}

struct qp_device_work qp_device_work(const struct qp_plan_tensor *t,
                                     const struct qp_code_rule *rule, const struct qp_sets *sets,
                                     const struct qp_piece *piece)
{
    return (struct qp_device_work){
        .dtype = qp_storage_row((enum qplan_storage)t->source->storage)->dtype,
        .tile = piece->tile,
        .rule = *rule,
        .packed = qp_part_is_nibbles(qp_tensor_part(&t->result, QP_CODES)),
        .last_len = sets->last_len,
        /* Rows of the matrix begin rows of codes. */
        .phase = piece->col % sets->last_len,
    };
}

enum qplan_status qp_step_quantize(const struct qp_device_step *step, struct qp_device_made *made,
                                   struct qplan_error *err)
{
    const struct qp_unit_buffers *b = step->b;
    const struct qp_device_scratch scratch = scratch_of(b);
    QP_TRY(qp_device_quantize(b->lane, &step->work, step->src, b->made, made, err));
    if (!qp_device_is_checked(step->device))
        return QPLAN_OK;
    return qp_device_check_quantized(step->device, &step->work, step->src, made, &scratch, err);
}

enum qplan_status qp_step_ranges(const struct qp_device_step *step, struct qp_device_made *made,
                                 struct qplan_error *err)
{
    const struct qp_unit_buffers *b = step->b;
    const struct qp_device_scratch scratch = scratch_of(b);
    QP_TRY(qp_device_ranges(b->lane, &step->work, step->src, b->made, made, err));
    if (!qp_device_is_checked(step->device))
        return QPLAN_OK;
    return qp_device_check_ranges(step->device, &step->work, step->src, made, &scratch, err);
}

enum qplan_status qp_step_codes(const struct qp_device_step *step, const void *scale,
                                const int32_t *zero, struct qp_device_made *made,
                                struct qplan_error *err)
{
    const struct qp_unit_buffers *b = step->b;
    const struct qp_device_scratch scratch = scratch_of(b);
    QP_TRY(qp_device_codes(b->lane, &step->work, step->src, scale, zero, b->made, made, err));
    if (!qp_device_is_checked(step->device))
        return QPLAN_OK;
    return qp_device_check_codes(step->device, &step->work, step->src, scale, zero, made, &scratch,
                                 err);
}
