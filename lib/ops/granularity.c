/*
 * granularity.c - fields and shape to sets. All granularities become the picture of bands and
 * columns that the kernels know: a group along an inner axis is a block of one column.
 */
#include "granularity.h"

#include "lib/base/check.h"

#include <inttypes.h>
#include <string.h>

struct problem {
    const struct qplan_op *op;
    const uint64_t *shape;
    unsigned rank;
    uint64_t n_elems;
    struct qp_op_geometry *out;
    struct qplan_error *err;
};

static uint64_t product(const uint64_t *shape, unsigned n)
{
    uint64_t n_elems = 1;
    for (unsigned i = 0; i < n; i++)
        n_elems *= shape[i];
    return n_elems;
}

/* The parameters have the shape of the data but for what the caller changes. */
static void copy_shape(const struct problem *p)
{
    p->out->rank = p->rank;
    memcpy(p->out->shape, p->shape, p->rank * sizeof p->shape[0]);
}

static void one_set(const struct problem *p)
{
    p->out->rank = 1;
    p->out->shape[0] = 1;
}

static void make_sets(const struct problem *p, const struct qplan_scheme *scheme,
                      const uint64_t *shape, unsigned rank)
{
    if (p->n_elems > 0)
        qp_sets_make(&p->out->sets, scheme, shape, rank);
}

static enum qplan_status find_axis(const struct problem *p, unsigned *axis)
{
    const int64_t given = qp_op_number(p->op, "axis"), rank = (int64_t)p->rank;
    const int64_t at = given < 0 ? given + rank : given;
    if (at < 0 || at >= rank)
        return qp_op_fail_field(p->op, QPLAN_ERR_INVALID, "axis", p->err,
                                "no such axis: expected %" PRId64 " to %" PRId64
                                " for rank %u, found %" PRId64,
                                -rank, rank - 1, p->rank, given);
    *axis = (unsigned)at;
    return QPLAN_OK;
}

/* A step that does not divide its extent needs the field ragged. */
static enum qplan_status check_divides(const struct problem *p, const char *field, uint64_t extent,
                                       unsigned axis)
{
    const uint64_t step = (uint64_t)qp_op_number(p->op, field);
    if (extent % step == 0 || qp_op_number(p->op, "ragged"))
        return QPLAN_OK;
    (void)qp_op_fail_field(p->op, QPLAN_ERR_INVALID, field, p->err,
                           "does not divide axis %u: expected a divisor of %" PRIu64
                           ", found %" PRIu64,
                           axis, extent, step);
    qp_hint(p->err, "ragged=true makes the last one smaller");
    return QPLAN_ERR_INVALID;
}

/* ---- The five ---------------------------------------------------------------------------------
 */

static enum qplan_status per_tensor(const struct problem *p)
{
    const struct qplan_scheme scheme = {.granularity = QPLAN_PER_TENSOR};
    one_set(p);
    make_sets(p, &scheme, &p->n_elems, 1);
    return QPLAN_OK;
}

static enum qplan_status per_channel(const struct problem *p)
{
    unsigned axis;
    QP_TRY(find_axis(p, &axis));
    const struct qplan_scheme scheme = {.granularity = QPLAN_PER_CHANNEL, .axis = (int32_t)axis};
    p->out->rank = 1;
    p->out->shape[0] = p->shape[axis];
    make_sets(p, &scheme, p->shape, p->rank);
    return QPLAN_OK;
}

static enum qplan_status per_group(const struct problem *p)
{
    const uint64_t group = (uint64_t)qp_op_number(p->op, "group_size");
    unsigned axis;
    QP_TRY(find_axis(p, &axis));
    QP_TRY(check_divides(p, "group_size", p->shape[axis], axis));
    const uint64_t inner = product(p->shape + axis + 1, p->rank - axis - 1);
    const uint64_t matrix[] = {product(p->shape, axis), p->shape[axis], inner};
    const struct qplan_scheme groups = {.granularity = QPLAN_PER_GROUP, .group = group};
    const struct qplan_scheme blocks = {
        .granularity = QPLAN_PER_BLOCK, .block_rows = group, .block_cols = 1};
    make_sets(p, inner == 1 ? &groups : &blocks, matrix, inner == 1 ? 2 : 3);
    copy_shape(p);
    p->out->shape[axis] = qp_div_up(p->shape[axis], group);
    return QPLAN_OK;
}

static enum qplan_status per_token(const struct problem *p)
{
    if (p->rank == 0)
        return qp_op_fail_tensor(p->op, QPLAN_ERR_INVALID, p->op->row->info.arguments[0].name,
                                 p->err, "wrong rank: expected at least 1, found 0");
    const uint64_t matrix[] = {product(p->shape, p->rank - 1), p->shape[p->rank - 1]};
    const struct qplan_scheme scheme = {.granularity = QPLAN_PER_GROUP, .group = matrix[1]};
    make_sets(p, &scheme, matrix, 2);
    copy_shape(p);
    p->out->rank--;
    if (p->out->rank == 0)
        one_set(p);
    return QPLAN_OK;
}

static enum qplan_status per_block(const struct problem *p)
{
    if (p->rank < 2)
        return qp_op_fail_tensor(p->op, QPLAN_ERR_INVALID, p->op->row->info.arguments[0].name,
                                 p->err, "wrong rank: expected at least 2, found %u", p->rank);
    const unsigned rows = p->rank - 2, cols = p->rank - 1;
    const struct qplan_scheme scheme = {
        .granularity = QPLAN_PER_BLOCK,
        .block_rows = (uint64_t)qp_op_number(p->op, "block_rows"),
        .block_cols = (uint64_t)qp_op_number(p->op, "block_cols"),
    };
    QP_TRY(check_divides(p, "block_rows", p->shape[rows], rows));
    QP_TRY(check_divides(p, "block_cols", p->shape[cols], cols));
    make_sets(p, &scheme, p->shape, p->rank);
    copy_shape(p);
    p->out->shape[rows] = qp_div_up(p->shape[rows], scheme.block_rows);
    p->out->shape[cols] = qp_div_up(p->shape[cols], scheme.block_cols);
    return QPLAN_OK;
}

enum qplan_status qp_op_geometry(const struct qplan_op *op, const uint64_t *shape, unsigned rank,
                                 struct qp_op_geometry *out, struct qplan_error *err)
{
    static enum qplan_status (*const makers[])(const struct problem *) = {
        [QP_OP_PER_TENSOR] = per_tensor, [QP_OP_PER_CHANNEL] = per_channel,
        [QP_OP_PER_GROUP] = per_group,   [QP_OP_PER_TOKEN] = per_token,
        [QP_OP_PER_BLOCK] = per_block,
    };
    const struct problem p = {op, shape, rank, product(shape, rank), out, err};
    *out = (struct qp_op_geometry){0};
    QP_TRY(makers[op->row->variant](&p));
    /* What rows of packed codes are padded to is an extent of the data, not of the picture. */
    out->sets.last_len = rank ? shape[rank - 1] : 1;
    return QPLAN_OK;
}

/* per_tensor accepts rank 0 for [1], per_token a last extent of 1 more. */
enum qplan_status qp_op_check_params_shape(const struct qplan_op *op, const char *argument,
                                           const struct qp_op_geometry *geometry,
                                           struct qplan_error *err)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, argument);
    uint64_t shape[QPLAN_MAX_RANK + 1];
    unsigned rank = geometry->rank;
    memcpy(shape, geometry->shape, rank * sizeof shape[0]);
    if (op->row->variant == QP_OP_PER_TENSOR && tensor->rank == 0)
        rank = 0;
    if (op->row->variant == QP_OP_PER_TOKEN && tensor->rank == rank + 1)
        shape[rank++] = 1;
    return qp_op_check_shape(op, argument, shape, rank, "by the granularity", err);
}
