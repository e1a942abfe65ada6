/*
 * stored.c - reading stored scales and zero points.
 */
#include "stored.h"

/* A symmetric tensor may come without zero points: all are 0, or the midpoint of unsigned codes. */
static int32_t default_zero(const struct qp_native_tensor *tensor)
{
    struct qp_code_rule rule = qp_code_rule(&tensor->scheme);
    return rule.type->is_signed ? 0 : (rule.q_max + 1) / 2;
}

static enum qplan_status read_scales(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                     const struct qp_work_kernels *work, uint64_t set, size_t n,
                                     const struct qp_param_window *window, struct qplan_error *err)
{
    const enum qplan_dtype dtype = tensor->scheme.scale_dtype;
    const size_t size = qp_float_bytes(dtype);
    uint64_t off = st->header_bytes + tensor->part[QP_SCALE]->begin + set * size;
    QP_TRY(qp_file_read(&st->file, off, window->stored, n * size, err));
    work->load(dtype, n, window->stored, window->scale);
    return QPLAN_OK;
}

enum qplan_status qp_read_zeros(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err)
{
    const bool is_signed = qplan_dtype_is_signed(tensor->scheme.dtype);
    const struct qplan_entry *zeros = tensor->part[QP_ZERO_POINT];
    const uint8_t *stored = window->stored;
    if (zeros)
        QP_TRY(
            qp_file_read(&st->file, st->header_bytes + zeros->begin + set, window->stored, n, err));
    for (size_t i = 0; i < n; i++)
        window->zero[i] = !zeros ? default_zero(tensor) : is_signed ? (int8_t)stored[i] : stored[i];
    return QPLAN_OK;
}

enum qplan_status qp_read_params(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    QP_TRY(read_scales(st, tensor, work, set, n, window, err));
    return qp_read_zeros(st, tensor, set, n, window, err);
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
