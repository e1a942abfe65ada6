/*
 * stored.h - the scales and zero points of a file, back in working precision.
 */
#ifndef QP_JOB_STORED_H
#define QP_JOB_STORED_H

#include "kernels/kernel.h"
#include "lib/store/parts.h"

/* Scale and zero point of consecutive sets of a tensor, in working precision. */
struct qp_param_window {
    void *scale;
    int32_t *zero;
    void *stored; /* room for QP_PART_ROOM of as many values of 4 bytes */
};

enum qplan_status qp_read_params(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err);

/*
 * The errors that are allowed in n sets of stored scales, with codes of this type. The layout has
 * no scale below 0: it is none, and its bound is -1.
 */
void qp_stored_bounds(const struct qp_work_kernels *work, size_t n, const void *scale,
                      const struct qp_code_type *type, double *bound);

/* The scales alone, and the zero points alone. */
enum qplan_status qp_read_scales(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err);
enum qplan_status qp_read_zeros(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err);

#endif
