/*
 * granularity.h - the five granularities of the quantize family: their fields, the shape of their
 * parameters, and the picture of bands and columns (lib/model/sets.h) that each makes of a shape.
 *
 * A family has five rows that differ in the granularity alone:
 *
 *     #define ROW(G, VARIANT, SHAPE)                                                          \
 *         static const struct qplan_op_field_info fields_##G[] = {QP_FIELDS_##G ...};          \
 *         ...
 *     QP_EACH_GRANULARITY(ROW)
 */
#ifndef QP_OPS_GRANULARITY_H
#define QP_OPS_GRANULARITY_H

#include "lib/model/sets.h"
#include "op.h"

enum qp_op_granularity {
    QP_OP_PER_TENSOR,
    QP_OP_PER_CHANNEL,
    QP_OP_PER_GROUP,
    QP_OP_PER_TOKEN,
    QP_OP_PER_BLOCK
};

/* Suffix, value for qp_op_row.variant, and the shape of scale and zero_point in words. */
#define QP_EACH_GRANULARITY(ROW)                                                                   \
    ROW(per_tensor, QP_OP_PER_TENSOR, "[1]")                                                       \
    ROW(per_channel, QP_OP_PER_CHANNEL, "[X[axis]]")                                               \
    ROW(per_group, QP_OP_PER_GROUP, "[X with X[axis] / group_size, rounded up]")                   \
    ROW(per_token, QP_OP_PER_TOKEN, "[X without its last extent]")                                 \
    ROW(per_block, QP_OP_PER_BLOCK, "[X, the last two divided by the block, rounded up]")

#define QP_MAX_EXTENT (INT64_C(1) << 58)

#define QP_FIELD_AXIS(DEFAULT)                                                                     \
    {                                                                                              \
        .name = "axis", .type = QPLAN_FIELD_INT, .fallback = (DEFAULT), .least = -QPLAN_MAX_RANK,  \
        .most = QPLAN_MAX_RANK - 1, .about = "negative counts from the end"                        \
    }
#define QP_FIELD_EXTENT(NAME, ABOUT)                                                               \
    {                                                                                              \
        .name = (NAME), .type = QPLAN_FIELD_INT, .least = 1, .most = QP_MAX_EXTENT,                \
        .about = (ABOUT)                                                                           \
    }
#define QP_FIELD_RAGGED                                                                            \
    {                                                                                              \
        .name = "ragged", .type = QPLAN_FIELD_BOOL, .fallback = "false",                           \
        .about = "let the last one of a row be smaller"                                            \
    }

/* The fields of each, with a comma behind each. */
#define QP_FIELDS_per_tensor
#define QP_FIELDS_per_channel QP_FIELD_AXIS("0"),
#define QP_FIELDS_per_group                                                                        \
    QP_FIELD_EXTENT("group_size", "elements of a group"), QP_FIELD_AXIS("-1"), QP_FIELD_RAGGED,
#define QP_FIELDS_per_token
#define QP_FIELDS_per_block                                                                        \
    QP_FIELD_EXTENT("block_rows", "rows of a block"),                                              \
        QP_FIELD_EXTENT("block_cols", "columns of a block"), QP_FIELD_RAGGED,

/* The shape of the parameters, and the sets of a tensor that has elements. */
struct qp_op_geometry {
    uint64_t shape[QPLAN_MAX_RANK];
    unsigned rank;
    struct qp_sets sets; /* n_elems = 0: the tensor is empty and the rest is not set */
};

/* What the fields of the row's granularity mean for data of this shape. INVALID if they do not fit.
 */
enum qplan_status qp_op_geometry(const struct qplan_op *op, const uint64_t *shape, unsigned rank,
                                 struct qp_op_geometry *out, struct qplan_error *err);

/* INVALID unless the argument has the shape of the parameters, or an accepted spelling of it. */
enum qplan_status qp_op_check_params_shape(const struct qplan_op *op, const char *argument,
                                           const struct qp_op_geometry *geometry,
                                           struct qplan_error *err);

#endif
