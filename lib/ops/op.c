/*
 * op.c - the life of an operator: select, ask, run, free. It knows no operator; rows do.
 */
#include "op.h"

#include "lib/base/alloc.h"
#include "lib/base/pool.h"

#include <inttypes.h>

/* ---- Selecting --------------------------------------------------------------------------------
 */

/* Tensors of the descriptor that the check did not ask for: outputs that this problem lacks. */
static enum qplan_status check_wanted(const struct qplan_op *op, struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    for (size_t i = 0; i < info->n_arguments; i++) {
        const struct qp_op_tensor *tensor = &op->tensors[i];
        if (tensor->given && !tensor->read && !tensor->written)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, info->arguments[i].name, err,
                                     "with these fields there is no such output");
    }
    return QPLAN_OK;
}

static enum qplan_status prepare(struct qplan_op *op, const struct qplan_op_desc *desc,
                                 const struct qplan_op_preference *preference,
                                 struct qplan_error *err)
{
    QP_TRY(qp_op_read_fields(op, desc, err));
    QP_TRY(qp_op_read_tensors(op, desc, err));
    op->max_workspace = preference->max_workspace_bytes;
    op->key = op->tensors[0].dtype;
    op->work = qp_op_working(op->key);
    QP_TRY(op->row->check(op, err));
    QP_TRY(check_wanted(op, err));
    return qp_op_pick(op, preference, err);
}

enum qplan_status qplan_op_select(struct qplan_op **out, const struct qplan_op_desc *desc,
                                  const struct qplan_op_preference *preference,
                                  struct qplan_error *err)
{
    static const struct qplan_op_preference defaults = QPLAN_OP_PREFERENCE_DEFAULT;
    const struct qp_op_row *row;
    *out = NULL;
    QP_TRY(qp_op_find_row(desc->op, &row, err));
    struct qplan_op *op = qp_alloc(1, sizeof *op);
    if (op)
        op->state = qp_alloc(1, row->state_bytes);
    if (!op || !op->state) {
        qplan_op_free(op);
        return qp_fail_memory(err, row->info.name, sizeof *op + row->state_bytes);
    }
    op->row = row;
    enum qplan_status status = prepare(op, desc, preference ? preference : &defaults, err);
    if (status == QPLAN_OK)
        *out = op;
    else
        qplan_op_free(op);
    return status;
}

void qplan_op_free(struct qplan_op *op)
{
    if (!op)
        return;
    qplan_device_close(op->own);
    qp_free(op->state);
    qp_free(op);
}

/* ---- Asking -----------------------------------------------------------------------------------
 */

uint64_t qplan_op_workspace_size(const struct qplan_op *op)
{
    return op->workspace;
}

const struct qplan_op_sku *qplan_op_sku(const struct qplan_op *op)
{
    return &op->sku;
}

const struct qplan_op_guarantee *qplan_op_precision_guarantee(const struct qplan_op *op)
{
    return &op->sku.guarantee;
}

enum qplan_status qplan_op_can_implement(const struct qplan_op *op,
                                         const struct qplan_op_args *args, struct qplan_error *err)
{
    struct qp_view views[QP_OP_MAX_ARGUMENTS];
    return qp_op_bind(op, args, views, err);
}

/* ---- Running ----------------------------------------------------------------------------------
 */

static bool has_work(const struct qplan_op *op)
{
    for (size_t i = 0; i < op->row->info.n_arguments; i++) {
        if (op->tensors[i].written && op->tensors[i].n_elems > 0)
            return true;
    }
    return false;
}

/* Values are looked at in the same floating-point environment that the work has. */
static enum qplan_status validate_and_run(struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_op_kernel *kernel = call->op->kernel;
    enum qplan_status status = QPLAN_OK;
    fenv_t callers;
    qp_fenv_enter(&callers);
    if (kernel->validate)
        status = kernel->validate(call, err);
    if (status == QPLAN_OK && has_work(call->op)) {
        if (call->op->device)
            status = qp_op_run_on_device(call, err);
        else
            kernel->run(call);
    }
    qp_fenv_leave(&callers);
    return status;
}

static char *align64(void *workspace)
{
    uintptr_t past = (uintptr_t)workspace % 64;
    return (char *)workspace + (past ? 64 - past : 0);
}

enum qplan_status qplan_op_run(const struct qplan_op *op, struct qplan_stream *stream,
                               void *workspace, uint64_t n_bytes, const struct qplan_op_args *args,
                               struct qplan_error *err)
{
    struct qp_op_call call = {.op = op};
    if (stream)
        return qp_fail(err, QPLAN_ERR_INVALID, op->row->info.name,
                       "%s has no streams: expected NULL", qplan_backend_name(op->sku.backend));
    QP_TRY(qp_op_bind(op, args, call.views, err));
    if (op->workspace > 0 && (!workspace || n_bytes < op->workspace))
        return qp_fail(err, QPLAN_ERR_WORKSPACE, op->row->info.name,
                       "workspace too small: expected %" PRIu64 " bytes, found %" PRIu64,
                       op->workspace, workspace ? n_bytes : 0);
    call.workspace = op->workspace > 0 ? align64(workspace) : NULL;
    QP_TRY(validate_and_run(&call, err));
    if (args->counts)
        *args->counts = call.counts;
    return QPLAN_OK;
}
