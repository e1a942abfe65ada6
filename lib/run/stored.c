/*
 * stored.c - reading stored scales and zero points.
 */
#include "stored.h"

/* A symmetric tensor may come without zero points: all are 0, or the midpoint of unsigned codes. */
static int32_t default_zero(const struct qp_tensor *tensor)
{
    const struct qp_code_rule rule = qp_code_rule(tensor->scheme);
    return rule.type->is_signed ? 0 : (rule.q_max + 1) / 2;
}

enum qplan_status qp_read_scales(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_SCALE);
    const void *stored;
    QP_TRY(qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, NULL, err));
    work->load(tensor->scheme->scale_dtype, n, stored, window->scale);
    return QPLAN_OK;
}

enum qplan_status qp_read_zeros(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_ZERO);
    const void *stored = NULL;
    if (!part) {
        for (size_t i = 0; i < n; i++)
            window->zero[i] = default_zero(tensor);
        return QPLAN_OK;
    }
    QP_TRY(qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, NULL, err));
    for (size_t i = 0; i < n; i++)
        window->zero[i] =
            part->place->is_signed ? ((const int8_t *)stored)[i] : ((const uint8_t *)stored)[i];
    return QPLAN_OK;
}

enum qplan_status qp_read_params(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    QP_TRY(qp_read_scales(source, tensor, work, set, n, window, err));
    return qp_read_zeros(source, tensor, set, n, window, err);
}

void qp_stored_bounds(const struct qp_work_kernels *work, size_t n, const void *scale,
                      const struct qp_code_type *type, double *bound)
{
    const bool is_f64 = work->work == QPLAN_F64;
    work->bounds(n, scale, type, bound);
    for (size_t i = 0; i < n; i++) {
        if (is_f64 ? ((const double *)scale)[i] < 0 : ((const float *)scale)[i] < 0)
            bound[i] = -1;
    }
}
