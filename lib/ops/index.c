/*
 * index.c - indices in and checked. Serial: they are few beside the rows that they name.
 */
#include "index.h"

#include "../base/check.h"

#include <inttypes.h>
#include <string.h>

enum qplan_status qp_index_padding(const struct qplan_op *op, uint64_t n_rows, int64_t *out,
                                   struct qplan_error *err)
{
    const struct qp_op_value *given = qp_op_value(op, "padding_idx");
    const int64_t rows = (int64_t)n_rows;
    *out = -1;
    if (given->none)
        return QPLAN_OK;
    if (given->number < -rows || given->number >= rows)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "padding_idx", err,
                                "no such row: expected one of %" PRIu64 " rows or none, found "
                                "%" PRId64,
                                n_rows, given->number);
    *out = given->number < 0 ? given->number + rows : given->number;
    return QPLAN_OK;
}

void qp_index_load(const struct qp_op_call *call, const char *argument, uint64_t at, size_t n,
                   int64_t *out)
{
    const struct qp_view *view = qp_op_view(call, argument);
    int64_t gathered[QP_INDEX_STEP];
    const void *from = qp_view_get(view, at, n, gathered);
    if (qp_op_tensor(call->op, argument)->dtype == QPLAN_STORAGE_I64) {
        memcpy(out, from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = ((const int32_t *)from)[i];
}

enum qplan_status qp_index_validate(struct qp_op_call *call, const char *argument, uint64_t n_rows,
                                    struct qplan_error *err)
{
    const uint64_t n_elems = qp_op_tensor(call->op, argument)->n_elems;
    const bool skip = qp_op_is(call->op, "index_policy", "skip");
    int64_t index[QP_INDEX_STEP];
    for (uint64_t at = 0; at < n_elems; at += QP_INDEX_STEP) {
        const size_t n = (size_t)qp_min_u64(QP_INDEX_STEP, n_elems - at);
        qp_index_load(call, argument, at, n, index);
        for (size_t i = 0; i < n; i++) {
            if (qp_index_ok(index[i], n_rows))
                continue;
            if (!skip)
                return qp_op_fail_value(call->op, argument, at + i, err,
                                        "no such row: expected at least 0 and below %" PRIu64
                                        ", found %" PRId64,
                                        n_rows, index[i]);
            call->counts.skipped++;
        }
    }
    return QPLAN_OK;
}
