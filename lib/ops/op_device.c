/*
 * op_device.c - an operator on a device: whether the device can do it, where its arguments lie in
 * device memory, and the run. It knows no operator; rows do.
 *
 * A run copies the inputs in, queues the launches of the row, copies everything that was made to
 * the workspace, waits, and has some of it done again by the CPU. Only then are outputs written, so
 * no failure of a device leaves one half done.
 */
#include "op_device.h"

#include "lib/base/check.h"
#include "lib/device/lane.h"

#include <inttypes.h>
#include <string.h>

/* ---- Layout -----------------------------------------------------------------------------------
 */

/* Offsets are 32 bits wide, and every part begins at a multiple of 64. */
#define MOST_BYTES ((uint64_t)UINT32_MAX / 64 * 64)

static uint64_t tensor_bytes(const struct qp_op_tensor *tensor)
{
    return tensor->n_elems * (qplan_storage_bits(tensor->dtype) / 8);
}

static void place_arguments(struct qplan_op *op, uint64_t *end, bool written)
{
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        const struct qp_op_tensor *tensor = &op->tensors[i];
        if (written ? tensor->written : tensor->read && !tensor->written)
            op->block.at[i] = qp_block_place(end, tensor_bytes(tensor));
    }
}

/*
 * Tensors have at most 2^58 elements of 8 bytes, so nothing overflows. Offsets mean nothing where
 * the block is larger than MOST_BYTES: that is refused.
 */
static void lay_out(struct qplan_op *op, const struct qp_op_kernel *kernel)
{
    uint64_t end = 0;
    op->block =
        (struct qp_op_block){.status = qp_block_place(&end, QK_OP_STATUS * sizeof(uint32_t))};
    place_arguments(op, &end, true);
    op->block.made_bytes = end;
    place_arguments(op, &end, false);
    if (end <= MOST_BYTES)
        op->block.scratch = qp_block_place(&end, kernel->scratch ? kernel->scratch(op) : 0);
    op->block.n_bytes = end;
}

/* ---- Whether a device can do it ---------------------------------------------------------------
 */

bool qp_op_device_has(const struct qp_gpu *gpu, const struct qp_op_kernel *kernel,
                      enum qplan_dtype work)
{
    const bool sums = kernel->class != QP_OP_ELEMENTWISE && kernel->class != QP_OP_COPY;
    const bool wide = sums || (kernel->class == QP_OP_ELEMENTWISE && work == QPLAN_F64);
    return gpu->info.has_fp64 || !wide;
}

/* The first kernel for devices that takes the problem. */
static const struct qp_op_kernel *find_kernel(const struct qplan_op *op)
{
    for (size_t i = 0; i < op->row->n_kernels; i++) {
        const struct qp_op_kernel *kernel = &op->row->kernels[i];
        if (qp_op_is_for_devices(kernel) && (kernel->keys & QP_BIT(op->key)) &&
            (!kernel->takes || kernel->takes(op)))
            return kernel;
    }
    return NULL;
}

static enum qplan_status check_memory(const struct qplan_op *op, const struct qplan_device *device,
                                      struct qplan_error *err)
{
    uint64_t most = qp_min_u64(device->memory_bytes, MOST_BYTES);
    if (device->gpu->info.block_bytes)
        most = qp_min_u64(most, device->gpu->info.block_bytes);
    if (op->block.n_bytes <= most)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_DEVICE, device->gpu->info.label,
                   "%s needs one block of %" PRIu64
                   " bytes of device memory: expected at most %" PRIu64 " (%s)",
                   op->row->info.name, op->block.n_bytes, most, device->gpu->info.name);
}

struct wanted {
    const struct qplan_op *op;
    const struct qp_op_kernel *kernel;
};

/* What a device has to be and to show before this op may use it. */
static enum qplan_status prove(struct qplan_device *device, const void *what,
                               struct qplan_error *err)
{
    const struct wanted *wanted = what;
    const struct qplan_op *op = wanted->op;
    if (!qp_op_device_has(device->gpu, wanted->kernel, op->work))
        return qp_device_fail_fp64(device, op->row->info.name, err);
    QP_TRY(check_memory(op, device, err));
    return device->proving ? QPLAN_OK : qp_op_prove(device, op->row, wanted->kernel, op->key, err);
}

/* ---- Which device -----------------------------------------------------------------------------
 */

/* The device that a preference means; NULL: none. */
static enum qplan_status find_device(struct qplan_op *op,
                                     const struct qplan_op_preference *preference,
                                     struct qplan_device **out, struct qplan_error *err)
{
    const enum qplan_backend backend = preference->backend;
    const char *name = qplan_backend_name(backend);
    *out = backend == QPLAN_BACKEND_CPU ? NULL : preference->device;
    if (backend == QPLAN_BACKEND_ANY || backend == QPLAN_BACKEND_CPU)
        return QPLAN_OK;
    if (!name)
        return qp_fail(err, QPLAN_ERR_DEVICE, op->row->info.name, "no backend has the number %d",
                       (int)backend);
    if (!*out) {
        QP_TRY(qplan_device_open(&op->own, name, 0, err));
        *out = op->own;
    }
    if ((*out)->backend != backend)
        return qp_fail(err, QPLAN_ERR_DEVICE, op->row->info.name,
                       "the device is of another backend: expected %s, found %s", name,
                       qplan_backend_name((*out)->backend));
    return QPLAN_OK;
}

enum qplan_status qp_op_take_device(struct qplan_op *op,
                                    const struct qplan_op_preference *preference,
                                    struct qplan_error *err)
{
    struct qplan_device *device;
    struct wanted wanted = {op, find_kernel(op)};
    if (op->row->on_host)
        return QPLAN_OK;
    QP_TRY(find_device(op, preference, &device, err));
    if (!device || device->backend == QPLAN_BACKEND_CPU)
        return QPLAN_OK;
    if (!wanted.kernel && device->backend == QPLAN_BACKEND_ANY)
        return QPLAN_OK;
    if (!wanted.kernel)
        return qp_fail(err, QPLAN_ERR_DEVICE, op->row->info.name,
                       "no kernel for devices takes this problem");
    if (device->proving && !qp_op_device_has(device->gpu, wanted.kernel, op->work))
        return QPLAN_OK; /* an example of another kernel than the one that is proven */
    lay_out(op, wanted.kernel);
    const struct qp_device_wish wish = {op->block.n_bytes, prove, &wanted};
    if (device->proving) /* an example: the device is there, and nobody asks whether it pays */
        QP_TRY(prove(device, &wanted, err));
    else
        QP_TRY(qp_device_use(device, &wish, preference->threads, err));
    op->device = device->proving || device->used ? device : NULL;
    return QPLAN_OK;
}

/* ---- Copies -----------------------------------------------------------------------------------
 */

/* What a strided input passes through, at most so much at a time. */
#define GATHER_BYTES ((uint64_t)1 << 20)

uint64_t qp_op_staging_bytes(const struct qplan_op *op)
{
    uint64_t most = 0;
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        if (op->tensors[i].read)
            most = qp_max_u64(most, tensor_bytes(&op->tensors[i]));
    }
    return op->block.made_bytes + qp_min_u64(qp_div_up(most, 64) * 64, GATHER_BYTES);
}

/* Elements that are not neighbours go through the buffer, which is free again after each part. */
static enum qplan_status gather(struct qp_op_run *run, const struct qp_view *view, uint32_t to,
                                struct qplan_error *err)
{
    char *buffer = run->call->workspace + run->call->op->block.made_bytes;
    const uint64_t step = GATHER_BYTES / view->elem_bytes;
    for (uint64_t at = 0; at < view->n_elems; at += step) {
        const size_t n = (size_t)qp_min_u64(step, view->n_elems - at);
        QP_TRY(qp_lane_copy_in(run->lane, to + at * view->elem_bytes, n * view->elem_bytes,
                               qp_view_get(view, at, n, buffer), err));
        QP_TRY(qp_lane_wait(run->lane, err));
    }
    return QPLAN_OK;
}

static enum qplan_status copy_in(struct qp_op_run *run, struct qplan_error *err)
{
    static const uint32_t status[QK_OP_STATUS] = {[QK_OP_FIRST_BAD] = QK_OP_NONE};
    const struct qplan_op *op = run->call->op;
    QP_TRY(qp_lane_copy_in(run->lane, op->block.status, sizeof status, status, err));
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        const struct qp_view *view = &run->call->views[i];
        if (!op->tensors[i].read || view->n_elems == 0)
            continue;
        const void *direct = qp_view_at(view, 0, (size_t)view->n_elems);
        QP_TRY(direct ? qp_lane_copy_in(run->lane, op->block.at[i],
                                        view->n_elems * view->elem_bytes, direct, err)
                      : gather(run, view, op->block.at[i], err));
    }
    return QPLAN_OK;
}

static void write_outputs(struct qp_op_run *run)
{
    const struct qplan_op *op = run->call->op;
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        const struct qp_view *view = &run->call->views[i];
        if (op->tensors[i].written)
            qp_view_put(view, 0, (size_t)view->n_elems, run->call->workspace + op->block.at[i]);
    }
}

/* ---- The run ----------------------------------------------------------------------------------
 */

static enum qplan_status compute(struct qp_op_run *run, struct qplan_error *err)
{
    struct qp_op_call *call = run->call;
    const struct qp_op_block *block = &call->op->block;
    QP_TRY(copy_in(run, err));
    QP_TRY(call->op->kernel->launch(run, err));
    QP_TRY(qp_lane_copy_out(run->lane, 0, block->made_bytes, call->workspace, err));
    QP_TRY(qp_lane_wait(run->lane, err));
    memcpy(run->status, call->workspace + block->status, sizeof run->status);
    call->counts.nonfinite += run->status[QK_OP_NONFINITE];
    call->counts.skipped += run->status[QK_OP_SKIPPED];
    call->counts.overflow += run->status[QK_OP_OVERFLOW];
    if (call->op->kernel->finish)
        QP_TRY(call->op->kernel->finish(run, err));
    if (call->op->device->proving)
        return QPLAN_OK;
    QP_TRY(qp_device_check_trust(call->op->device, err));
    return qp_op_check_made(call, err);
}

enum qplan_status qp_op_run_on_device(struct qp_op_call *call, struct qplan_error *err)
{
    struct qp_gpu *gpu = call->op->device->gpu;
    struct qp_op_run run = {.call = call};
    QP_TRY(gpu->backend->alloc(&run.lane, gpu, call->op->block.n_bytes, err));
    const enum qplan_status status = qp_lane_settle(run.lane, compute(&run, err));
    if (status == QPLAN_OK)
        write_outputs(&run);
    gpu->backend->free(run.lane);
    return status;
}
