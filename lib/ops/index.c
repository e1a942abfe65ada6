/*
 * index.c - indices in and checked. Serial: they are few beside the rows that they name.
 */
#include "index.h"

#include "lib/base/check.h"

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

/* ---- Reading ----------------------------------------------------------------------------------
 */

struct qp_indices qp_indices_of(const struct qp_op_call *call, const char *argument)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(call->op, argument);
    return (struct qp_indices){.view = qp_op_view(call, argument),
                               .is_i64 = tensor && tensor->dtype == QPLAN_STORAGE_I64};
}

/* Indices that are read at a time, at most. */
#define STEP 256

static void load(const struct qp_indices *indices, uint64_t at, size_t n, int64_t *out)
{
    int64_t gathered[STEP];
    const void *from = qp_view_get(indices->view, at, n, gathered);
    if (indices->is_i64) {
        memcpy(out, from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = ((const int32_t *)from)[i];
}

int64_t qp_index_at(const struct qp_indices *indices, uint64_t at)
{
    int64_t value;
    load(indices, at, 1, &value);
    return value;
}

void qp_index_each(const struct qp_indices *indices, uint64_t at, uint64_t n, qp_index_fn visit,
                   void *ctx)
{
    int64_t values[STEP];
    for (const uint64_t end = at + n; at < end; at += STEP) {
        const size_t part = (size_t)qp_min_u64(STEP, end - at);
        load(indices, at, part, values);
        for (size_t i = 0; i < part; i++)
            visit(ctx, at + i, values[i]);
    }
}

/* ---- Checking ---------------------------------------------------------------------------------
 */

/* Counts what is outside, and keeps the first. */
struct range_check {
    int64_t least, most;
    uint64_t n_bad, first;
    int64_t found;
};

static void check_one(void *ctx, uint64_t place, int64_t index)
{
    struct range_check *check = ctx;
    if (index >= check->least && index <= check->most)
        return;
    if (check->n_bad++ == 0) {
        check->first = place;
        check->found = index;
    }
}

static struct range_check check_all(const struct qp_op_call *call, const char *argument,
                                    int64_t least, int64_t most)
{
    const struct qp_indices indices = qp_indices_of(call, argument);
    struct range_check check = {.least = least, .most = most};
    qp_index_each(&indices, 0, indices.view->n_elems, check_one, &check);
    return check;
}

enum qplan_status qp_index_check_range(const struct qp_op_call *call, const char *argument,
                                       int64_t least, int64_t most, struct qplan_error *err)
{
    const struct range_check check = check_all(call, argument, least, most);
    if (check.n_bad == 0)
        return QPLAN_OK;
    return qp_op_fail_value(call->op, argument, check.first, err,
                            "out of range: expected %" PRId64 " to %" PRId64 ", found %" PRId64,
                            least, most, check.found);
}

enum qplan_status qp_index_validate(struct qp_op_call *call, const char *argument, uint64_t n_rows,
                                    struct qplan_error *err)
{
    const struct range_check check = check_all(call, argument, 0, (int64_t)n_rows - 1);
    if (check.n_bad > 0 && !qp_op_is(call->op, "index_policy", "skip"))
        return qp_op_fail_value(call->op, argument, check.first, err,
                                "no such row: expected at least 0 and below %" PRIu64
                                ", found %" PRId64,
                                n_rows, check.found);
    call->counts.skipped = check.n_bad;
    return QPLAN_OK;
}
