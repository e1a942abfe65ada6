/*
 * stored.h - the scales, zero points and codes of a file, back in memory. INVALID names the stored
 * tensor and what is in it that no quantizer writes: a scale that is no finite number above 0, a
 * bias that is not finite, a zero point that is no code or not the one of a symmetric scheme, a
 * code outside a narrow range.
 */
#ifndef QP_JOB_STORED_H
#define QP_JOB_STORED_H

#include "kernels/kernel.h"
#include "lib/store/parts.h"

/*
 * Scale and zero point of consecutive sets of a tensor, in working precision: the scale as it is
 * stored, be it a step or the value of the largest code (kernels/codes/largest.h); where the scheme
 * has a bias, that takes the place of the zero point, as kernels/codes/biased.h has it.
 */
struct qp_param_window {
    void *scale;
    int32_t *zero;
    void *stored; /* room for QP_PART_ROOM of as many values of 4 bytes */
};

/*
 * The sets of a tensor as its parameters are read: those of its scheme, or, where an index says in
 * any way which column belongs to which, each column of a row as a set of its own.
 */
void qp_stored_sets(struct qp_sets *sets, const struct qp_tensor *tensor);

/*
 * Whether scales of a tensor may be below 0. Codes that begin at a bias may count down from it:
 * other tools write such scales, and recipes that follow them. Of symmetric codes the calibrator
 * decides. All other scales are above 0.
 */
bool qp_may_be_negative(const struct qp_tensor *tensor);

/* Whether the bytes of codes can be such that no quantizer writes. */
bool qp_has_other_codes(const struct qplan_scheme *scheme);

/* The rule that a tensor which was read has its codes by, with its factor. */
struct qp_code_rule qp_stored_rule(const struct qp_tensor *tensor);

/* The bounds of n sets, which of a scale that may be 0 is 0: all of its codes stand for that. */
void qp_stored_bounds(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                      const void *scale, const int32_t *zero, double *bound);

/* The parameters of such sets. */
enum qplan_status qp_read_params(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err);

/* The scales alone, and the zero points or biases alone, of sets as they are stored. */
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
