/*
 * bags.c - bags of indices: shapes, the check of every offset, and which places a bag has.
 */
#include "bags.h"

#include <inttypes.h>

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check_offsets(const struct qplan_op *op, struct qp_bags *bags,
                                       struct qplan_error *err)
{
    const uint64_t n = qp_op_tensor(op, "offsets")->n_elems;
    QP_TRY(qp_op_check_rank(op, "indices", 1, err));
    QP_TRY(qp_op_check_rank(op, "offsets", 1, err));
    QP_TRY(qp_op_check_same_dtype(op, "offsets", "indices", err));
    if (bags->has_end && n == 0)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "offsets", err,
                                 "too short: expected at least 1 with include_last_offset, "
                                 "found 0");
    bags->n_bags = n - bags->has_end;
    return QPLAN_OK;
}

enum qplan_status qp_bags_check(const struct qplan_op *op, struct qp_bags *out,
                                struct qplan_error *err)
{
    const struct qp_op_tensor *indices = qp_op_tensor(op, "indices");
    *out = (struct qp_bags){.n_indices = indices->n_elems,
                            .has_offsets = qp_op_tensor(op, "offsets"),
                            .has_end = qp_op_number(op, "include_last_offset")};
    if (out->has_offsets)
        return check_offsets(op, out, err);
    if (indices->rank == 1)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "offsets", err,
                                 "missing: with indices of rank 1 they say where bags begin, "
                                 "found no such tensor");
    QP_TRY(qp_op_check_rank(op, "indices", 2, err));
    if (out->has_end)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "include_last_offset", err,
                                "there are no offsets: expected false, found true");
    out->n_bags = indices->shape[0];
    out->per_bag = indices->shape[1];
    return QPLAN_OK;
}

/* ---- Values -----------------------------------------------------------------------------------
 */

struct offsets_check {
    uint64_t n_indices;
    int64_t last;
    bool bad;
    uint64_t place;
    int64_t least, found; /* of the first bad one */
};

static void check_one(void *ctx, uint64_t place, int64_t offset)
{
    struct offsets_check *check = ctx;
    const int64_t most = place == 0 ? 0 : (int64_t)check->n_indices;
    if (check->bad)
        return;
    check->bad = offset < check->last || offset > most;
    check->place = place;
    check->least = check->last;
    check->found = check->last = offset;
}

enum qplan_status qp_bags_validate(const struct qp_op_call *call, const struct qp_bags *bags,
                                   struct qplan_error *err)
{
    if (!bags->has_offsets)
        return QPLAN_OK;
    const struct qp_indices offsets = qp_indices_of(call, "offsets");
    struct offsets_check check = {.n_indices = bags->n_indices};
    qp_index_each(&offsets, 0, offsets.view->n_elems, check_one, &check);
    if (!check.bad)
        return QPLAN_OK;
    if (check.place == 0)
        return qp_op_fail_value(call->op, "offsets", 0, err,
                                "the first bag begins elsewhere: expected 0, found %" PRId64,
                                check.found);
    return qp_op_fail_value(call->op, "offsets", check.place, err,
                            "out of order or range: expected at least %" PRId64
                            ", the one before, and at most %" PRIu64
                            ", the number of indices, found %" PRId64,
                            check.least, bags->n_indices, check.found);
}

/* ---- Bags -------------------------------------------------------------------------------------
 */

struct qp_bag qp_bag_at(const struct qp_bags *bags, const struct qp_indices *offsets, uint64_t b)
{
    if (!bags->has_offsets)
        return (struct qp_bag){b * bags->per_bag, (b + 1) * bags->per_bag};
    const bool ends = b + 1 < bags->n_bags + bags->has_end;
    return (struct qp_bag){(uint64_t)qp_index_at(offsets, b),
                           ends ? (uint64_t)qp_index_at(offsets, b + 1) : bags->n_indices};
}

uint64_t qp_bags_end(const struct qp_bags *bags, const struct qp_indices *offsets)
{
    return bags->n_bags ? qp_bag_at(bags, offsets, bags->n_bags - 1).end : 0;
}
