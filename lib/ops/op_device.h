/*
 * op_device.h - operators on devices: what a kernel of a row sees of a run, and the proofs.
 *
 * The arguments of a problem lie in one block of device memory, contiguous, each at the offset that
 * op->block has. A kernel queues launches on it and nothing more: copies, strides, counts and what
 * to do after a failure are the same for all (op_device.c).
 */
#ifndef QP_OP_DEVICE_H
#define QP_OP_DEVICE_H

#include "kernels/gpu/qk_ops.h"
#include "lib/device/device.h"
#include "op.h"

struct qp_op_run {
    struct qp_op_call *call;
    struct qp_lane *lane;
    uint32_t status[QK_OP_STATUS]; /* as it came back, for .finish */
};

/*
 * Queues a kernel with its arguments. group_size is what suits it: no result depends on that.
 * Nothing is queued for 0 groups.
 */
enum qplan_status qp_op_launch(struct qp_op_run *run, const struct qp_launch *launch,
                               struct qplan_error *err);

/* Where an argument is in the block. */
static inline uint32_t qp_op_at(const struct qp_op_run *run, const char *argument)
{
    return run->call->op->block.at[qp_op_place(run->call->op, argument)];
}

/* ---- Trust ------------------------------------------------------------------------------------
 */

/*
 * Runs the examples of a row that its kernel takes with a key, on the device and by the scalar
 * kernels, unless the device has done that before. DEVICE if a bit of a result differs.
 */
enum qplan_status qp_op_prove(struct qplan_device *device, const struct qp_op_row *row,
                              const struct qp_op_kernel *kernel, enum qplan_storage key,
                              struct qplan_error *err);

/*
 * The same for every kernel and key that the device has. category: of the operators, NULL = all;
 * group_size: of every launch, 0 = as in use.
 */
enum qplan_status qp_op_prove_all(struct qp_gpu *gpu, const char *category, uint32_t group_size,
                                  struct qplan_error *err);

/*
 * Does the first unit of a device's work, and then one in a thousand, again with the scalar kernel,
 * and compares with what is in the workspace of the call (op_check.c). DEVICE if a bit differs.
 */
enum qplan_status qp_op_check_made(const struct qp_op_call *call, struct qplan_error *err);

/* DEVICE: the device does not compute as the CPU does. */
enum qplan_status qp_op_fail_differs(const struct qplan_op *op, struct qplan_error *err);

/* Whether a device has what a kernel computes with. */
bool qp_op_device_has(const struct qp_gpu *gpu, const struct qp_op_kernel *kernel,
                      enum qplan_dtype work);

#endif
