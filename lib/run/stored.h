/*
 * stored.h - the scales, zero points and codes of a file, back in memory. INVALID names the stored
 * tensor and what is in it that no quantizer writes: a scale that is no finite number above 0, a
 * zero point that is no code or not the one of a symmetric scheme, a code outside a narrow range.
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

/* The scales alone, and the zero points alone. */
enum qplan_status qp_read_scales(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err);
enum qplan_status qp_read_zeros(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err);

/*
 * The codes of n elements from elem on, one byte each, in room for QP_PART_ROOM(n, 1). bad_fill, if
 * not NULL, grows by the lines whose filling bits are not 0.
 */
enum qplan_status qp_read_codes(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t elem, size_t n, enum qplan_isa isa, void *room,
                                const uint8_t **codes, uint64_t *bad_fill, struct qplan_error *err);

#endif
