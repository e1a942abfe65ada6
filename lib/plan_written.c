/*
 * plan_written.c - the file that a plan has written, as a checkpoint that a report can be made of.
 *
 * The header of that file is known to be, byte for byte, the plan's: so nothing is parsed again. It
 * holds the tensors as people think of them; of sidecars it has no entries. Never reads data.
 */
#include "plan.h"

#include "base/alloc.h"

struct qp_native_tensor qp_plan_native(const struct qp_plan_tensor *planned)
{
    const bool has_zeros = planned->n_outputs > QP_ZERO_POINT;
    return (struct qp_native_tensor){
        .part = {&planned->outputs[QP_CODES], &planned->outputs[QP_SCALE],
                 has_zeros ? &planned->outputs[QP_ZERO_POINT] : NULL},
        .scheme = planned->scheme,
        .calibrate = planned->calibrate,
        .source = (enum qplan_storage)planned->source->storage,
        .shape = planned->source->shape,
        .rank = planned->source->rank,
    };
}

static enum qplan_status fill(struct qplan_checkpoint *c, const struct qplan_plan *plan,
                              struct qplan_error *err)
{
    c->st.entries = qp_alloc(plan->n_tensors, sizeof *c->st.entries);
    c->native = qp_alloc(plan->n_quantized, sizeof *c->native);
    if (!c->st.entries || !c->native)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *c->st.entries);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qplan_entry *entry = &c->st.entries[c->st.n_entries++];
        *entry = plan->tensors[i].outputs[QP_CODES];
        if (!plan->tensors[i].quantize)
            continue;
        struct qp_native_tensor *t = &c->native[c->n_native++];
        *t = qp_plan_native(&plan->tensors[i]);
        t->part[QP_CODES] = entry;
    }
    return QPLAN_OK;
}

enum qplan_status qp_plan_written(struct qplan_checkpoint **out, const struct qplan_plan *plan,
                                  bool tensors, int fd, const char *path, struct qplan_error *err)
{
    *out = NULL;
    struct qplan_checkpoint *c = qp_alloc(1, sizeof *c);
    if (!c)
        return qp_fail_memory(err, "checkpoint", sizeof *c);
    c->st.header_bytes = plan->header_bytes;
    c->st.data_bytes = plan->data_bytes;
    c->is_native = true;
    enum qplan_status status = qp_file_wrap(&c->st.file, fd, path, err);
    if (status == QPLAN_OK && tensors)
        status = fill(c, plan, err);
    if (status != QPLAN_OK) {
        qplan_checkpoint_close(c);
        return status;
    }
    *out = c;
    return QPLAN_OK;
}
