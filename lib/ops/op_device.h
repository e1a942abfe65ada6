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

/* Does so for every kernel and key that the device has. category: of the operators, NULL = all. */
enum qplan_status qp_op_prove_all(struct qplan_device *device, const char *category,
                                  struct qplan_error *err);

/*
 * Proves everything that a device computes: all operators, and tiles and ranges of checkpoints
 * (self_test.c).
 */
enum qplan_status qp_self_test(struct qp_gpu *gpu, struct qplan_error *err);

/*
 * Does the first unit of a device's work, and then one in a thousand, again with the scalar kernel,
 * and compares with what is in the workspace of the call (op_check.c). DEVICE if a bit differs.
 */
enum qplan_status qp_op_check_made(const struct qp_op_call *call, struct qplan_error *err);

/* DEVICE: what the op's device made is wrong. */
static inline enum qplan_status qp_op_fail_wrong(const struct qplan_op *op, struct qplan_error *err)
{
    return qp_device_fail_wrong(op->device, op->row->info.name, qplan_storage_name(op->key), err);
}

/* Whether a device has what a kernel computes with. */
bool qp_op_device_has(const struct qp_gpu *gpu, const struct qp_op_kernel *kernel,
                      enum qplan_dtype work);

#endif
