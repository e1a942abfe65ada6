/*
 * self_test.c - everything that a device computes, proven at once, and the list of devices with it.
 * Only here are both known, tiles and operators.
 */
#include "op_device.h"

#include "lib/device/prove.h"

enum qplan_status qp_self_test(struct qp_gpu *gpu, struct qplan_error *err)
{
    struct qplan_device device = {
        .backend = gpu->backend->id, .memory_bytes = gpu->info.memory_bytes / 2, .gpu = gpu};
    QP_TRY(qp_device_prove_all_rows(&device, err));
    return qp_op_prove_all(&device, NULL, err);
}

enum qplan_status qplan_devices_write_json(bool self_test, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err)
{
    return qp_devices_write(true, self_test ? qp_self_test : NULL, write, ctx, err);
}

enum qplan_status qplan_devices_write_text(bool self_test, qplan_write_fn write, void *ctx,
                                           struct qplan_error *err)
{
    return qp_devices_write(false, self_test ? qp_self_test : NULL, write, ctx, err);
}
