/*
 * op_bind.c - buffers against a problem: dtype, shape, strides, sizes, alignment and overlap. After
 * it every element of every view may be touched. Never looks at a value.
 */
#include "op.h"

#include "lib/base/check.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <string.h>

/* The bytes that a tensor spans: where, and how many. */
struct span {
    uintptr_t begin;
    uint64_t n_bytes;
};

/* ---- One tensor -------------------------------------------------------------------------------
 */

/* Bytes from the first element to the end of the last; false if that overflows. */
static bool extent_bytes(const struct qp_op_tensor *tensor, const int64_t *stride,
                         uint64_t elem_bytes, uint64_t *out)
{
    uint64_t n = 1, step;
    if (tensor->n_elems == 0) {
        *out = 0;
        return true;
    }
    if (!stride)
        return qp_mul_u64(tensor->n_elems, elem_bytes, out);
    for (unsigned i = 0; i < tensor->rank; i++) {
        if (!qp_mul_u64(tensor->shape[i] - 1, (uint64_t)stride[i], &step) ||
            !qp_add_u64(n, step, &n))
            return false;
    }
    return qp_mul_u64(n, elem_bytes, out) && *out <= INT64_MAX;
}

/*
 * Whether no two elements share memory: taking the axes by stride, each step must pass everything
 * that the smaller ones reach. Layouts that interleave in stranger ways are refused too. The span
 * is known to fit, so nothing here overflows.
 */
static bool is_injective(const struct qp_op_tensor *tensor, const int64_t *stride)
{
    bool used[QPLAN_MAX_RANK] = {false};
    uint64_t reach = 0;
    for (unsigned n = 0; stride && n < tensor->rank; n++) {
        unsigned least = QPLAN_MAX_RANK;
        for (unsigned i = 0; i < tensor->rank; i++) {
            if (!used[i] && (least == QPLAN_MAX_RANK || stride[i] < stride[least]))
                least = i;
        }
        used[least] = true;
        if (tensor->shape[least] <= 1)
            continue;
        if ((uint64_t)stride[least] <= reach)
            return false;
        reach += (tensor->shape[least] - 1) * (uint64_t)stride[least];
    }
    return true;
}

static enum qplan_status check_strides(const struct qplan_op *op, const struct qplan_tensor *given,
                                       struct qplan_error *err)
{
    for (unsigned i = 0; given->stride && i < given->rank; i++) {
        if (given->stride[i] < 0)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, given->name, err,
                                     "negative stride: expected at least 0, found %" PRId64
                                     " on axis %u",
                                     given->stride[i], i);
    }
    return QPLAN_OK;
}

static enum qplan_status check_buffer(const struct qplan_op *op, const struct qplan_tensor *given,
                                      const struct qp_op_tensor *tensor, struct span *span,
                                      struct qplan_error *err)
{
    const unsigned elem_bytes = qplan_storage_bits(tensor->dtype) / 8;
    if (!extent_bytes(tensor, given->stride, elem_bytes, &span->n_bytes))
        return qp_op_fail_tensor(op, QPLAN_ERR_BUFFER, given->name, err,
                                 "strides that no buffer can hold");
    if (span->n_bytes > given->n_bytes)
        return qp_op_fail_tensor(op, QPLAN_ERR_BUFFER, given->name, err,
                                 "buffer too short: expected %" PRIu64 " bytes, found %" PRIu64,
                                 span->n_bytes, given->n_bytes);
    if (span->n_bytes > 0 && !given->data)
        return qp_op_fail_tensor(op, QPLAN_ERR_BUFFER, given->name, err,
                                 "no buffer: expected %" PRIu64 " bytes, found NULL",
                                 span->n_bytes);
    span->begin = (uintptr_t)given->data;
    if (span->begin % elem_bytes != 0)
        return qp_op_fail_tensor(op, QPLAN_ERR_MISALIGNED, given->name, err,
                                 "misaligned: expected an address that %u divides, found %" PRIuPTR,
                                 elem_bytes, span->begin);
    return QPLAN_OK;
}

static enum qplan_status check_form(const struct qplan_op *op, const struct qplan_tensor *given,
                                    const struct qp_op_tensor *tensor, struct qplan_error *err)
{
    uint64_t shape[QPLAN_MAX_RANK];
    bool same = given->rank == tensor->rank;
    for (unsigned i = 0; same && i < given->rank; i++) {
        shape[i] = (uint64_t)given->shape[i];
        same = given->shape[i] >= 0 && shape[i] == tensor->shape[i];
    }
    const char *name = qplan_storage_name(given->dtype);
    if (given->dtype != tensor->dtype)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, given->name, err,
                                 "not the dtype that was selected: expected %s, found %s",
                                 qplan_storage_name(tensor->dtype), name ? name : "none");
    char wanted[256];
    if (!same)
        return qp_op_fail_tensor(
            op, QPLAN_ERR_INVALID, given->name, err,
            "not the shape that was selected: expected %s, found another",
            qp_format_list(wanted, sizeof wanted, tensor->shape, tensor->rank));
    return QPLAN_OK;
}

/* ---- All of them ------------------------------------------------------------------------------
 */

/* An output that is the very tensor, element for element, of an input that allows it. */
static bool is_in_place(const struct qplan_op *op, const struct qp_view *views, size_t in,
                        size_t out)
{
    const struct qp_view *a = &views[in], *b = &views[out];
    bool same = op->row->info.arguments[in].in_place && a->data == b->data && a->rank == b->rank &&
                op->tensors[in].dtype == op->tensors[out].dtype;
    for (unsigned i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
    return same;
}

static bool overlap(const struct span *a, const struct span *b)
{
    return a->n_bytes > 0 && b->n_bytes > 0 && a->begin < b->begin + b->n_bytes &&
           b->begin < a->begin + a->n_bytes;
}

static enum qplan_status check_overlap(const struct qplan_op *op, const struct qp_view *views,
                                       const struct span *spans, struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    for (size_t out = 0; out < info->n_arguments; out++) {
        for (size_t other = 0; op->tensors[out].written && other < info->n_arguments; other++) {
            const struct qp_op_tensor *tensor = &op->tensors[other];
            if (other == out || !(tensor->read || tensor->written) ||
                !overlap(&spans[out], &spans[other]))
                continue;
            if (!tensor->written && is_in_place(op, views, other, out))
                continue;
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, info->arguments[out].name, err,
                                     "overlaps '%s' in memory: expected buffers of their own",
                                     info->arguments[other].name);
        }
    }
    return QPLAN_OK;
}

static enum qplan_status bind_tensor(const struct qplan_op *op, const struct qplan_tensor *given,
                                     bool *bound, struct qp_view *views, struct span *spans,
                                     struct qplan_error *err)
{
    const size_t place = qp_op_place(op, given->name);
    const struct qp_op_tensor *tensor = &op->tensors[place];
    char quoted[QP_QUOTED];
    if (place == op->row->info.n_arguments)
        return qp_fail(err, QPLAN_ERR_INVALID, op->row->info.name, "unknown tensor %s",
                       qp_quote(quoted, given->name, strlen(given->name)));
    if (!tensor->read && !tensor->written) {
        if (!given->data)
            return QPLAN_OK;
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, given->name, err,
                                 "not part of the problem that was selected");
    }
    if (bound[place])
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, given->name, err, "given more than once");
    bound[place] = true;
    QP_TRY(check_form(op, given, tensor, err));
    QP_TRY(check_strides(op, given, err));
    QP_TRY(check_buffer(op, given, tensor, &spans[place], err));
    if (tensor->written && tensor->n_elems > 0 && !is_injective(tensor, given->stride))
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, given->name, err,
                                 "an output overlaps itself: expected strides that keep its "
                                 "elements apart");
    qp_view_make(&views[place], given->data, qplan_storage_bits(tensor->dtype) / 8, tensor->shape,
                 given->stride, tensor->rank);
    return QPLAN_OK;
}

enum qplan_status qp_op_bind(const struct qplan_op *op, const struct qplan_op_args *args,
                             struct qp_view *views, struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    struct span spans[QP_OP_MAX_ARGUMENTS] = {{0}};
    bool bound[QP_OP_MAX_ARGUMENTS] = {false};
    for (size_t i = 0; i < args->n_tensors; i++)
        QP_TRY(bind_tensor(op, &args->tensors[i], bound, views, spans, err));
    for (size_t i = 0; i < info->n_arguments; i++) {
        if ((op->tensors[i].read || op->tensors[i].written) && !bound[i])
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, info->arguments[i].name, err,
                                     "missing: expected a tensor of that name, found none");
    }
    return check_overlap(op, views, spans, err);
}
