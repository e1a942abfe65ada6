/*
 * op_check.c - a second look at what a device has made of a problem: the scalar kernel does some
 * units of it again. What it would write is compared with what the device made, in the workspace;
 * the caller's outputs are read, where they are added to, and never written.
 */
#include "op_device.h"

#include "lib/base/check.h"

/* The scalar kernel that takes the problem. Every row has one. */
static const struct qp_op_kernel *find_scalar(const struct qplan_op *op)
{
    const struct qp_op_kernel *kernel = op->row->kernels;
    while (kernel->backend != QPLAN_BACKEND_CPU || kernel->isa != QPLAN_ISA_SCALAR ||
           kernel->unordered || !(kernel->keys & QP_BIT(op->key)) ||
           (kernel->takes && !kernel->takes(op)))
        kernel++;
    return kernel;
}

/* The op of the CPU, with one thread, that does the units which a device has to show. */
static struct qplan_op make_again(const struct qplan_op *op)
{
    struct qplan_op again = *op;
    again.kernel = find_scalar(op);
    again.isa = QPLAN_ISA_SCALAR;
    again.n_workers = 1;
    again.max_workspace -= qp_min_u64(again.max_workspace, op->block.made_bytes + 64);
    again.checked = op->device;
    again.device = NULL;
    return again;
}

uint64_t qp_op_check_bytes(const struct qplan_op *op)
{
    const struct qplan_op again = make_again(op);
    const uint64_t n = again.kernel->workspace ? again.kernel->workspace(&again) : 0;
    return op->block.made_bytes + n;
}

/* Outputs that are not inputs too are what the device made, also to be read. */
static void compare_view(struct qp_view *view, const struct qp_op_tensor *tensor, char *made,
                         bool *differs)
{
    const size_t elem_bytes = view->elem_bytes;
    if (!tensor->read)
        qp_view_make(view, made, elem_bytes, &tensor->n_elems, NULL, 1);
    view->made = made;
    view->differs = differs;
}

enum qplan_status qp_op_check_made(const struct qp_op_call *call, struct qplan_error *err)
{
    const struct qplan_op *op = call->op;
    const struct qplan_op again = make_again(op);
    struct qp_op_call second = *call;
    bool differs = false;
    second.op = &again;
    second.workspace = call->workspace + op->block.made_bytes;
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        if (op->tensors[i].written)
            compare_view(&second.views[i], &op->tensors[i], call->workspace + op->block.at[i],
                         &differs);
    }
    again.kernel->run(&second);
    return differs ? qp_op_fail_wrong(op, err) : QPLAN_OK;
}
