/*
 * index.h - what operators with indices share: fields, reading, and the check of every index
 * against the number of rows, before anything is written.
 */
#ifndef QP_OPS_INDEX_H
#define QP_OPS_INDEX_H

#include "op.h"

#define QP_FIELD_PADDING_IDX                                                                       \
    {                                                                                              \
        .name = "padding_idx", .type = QPLAN_FIELD_INT, .fallback = "none", .least = -INT64_MAX,   \
        .most = INT64_MAX, .names = "none",                                                        \
        .about = "the row that gets no gradient; negative counts from the end"                     \
    }
#define QP_FIELD_INDEX_POLICY                                                                      \
    {                                                                                              \
        .name = "index_policy", .type = QPLAN_FIELD_NAME, .fallback = "error",                     \
        .names = "error|skip", .about = "refuse indices outside 0..V-1, or skip and count them"    \
    }
#define QP_ARGUMENT_INDICES(SHAPE)                                                                 \
    {                                                                                              \
        .name = "indices", .direction = QPLAN_OP_IN, .dtypes = "I32|I64", .shape = (SHAPE)         \
    }

/* The value of padding_idx for so many rows, or -1; INVALID if there is no such row. */
enum qplan_status qp_index_padding(const struct qplan_op *op, uint64_t n_rows, int64_t *out,
                                   struct qplan_error *err);

/* An argument of I32 or I64 numbers. */
struct qp_indices {
    const struct qp_view *view;
    bool is_i64;
};
struct qp_indices qp_indices_of(const struct qp_op_call *call, const char *argument);

/* The one at a flat index. */
int64_t qp_index_at(const struct qp_indices *indices, uint64_t at);

/* Calls with the value of each of n from at on, in ascending order. */
typedef void (*qp_index_fn)(void *ctx, uint64_t place, int64_t index);
void qp_index_each(const struct qp_indices *indices, uint64_t at, uint64_t n, qp_index_fn visit,
                   void *ctx);

/* Whether an index is that of a row. */
static inline bool qp_index_ok(int64_t index, uint64_t n_rows)
{
    return index >= 0 && (uint64_t)index < n_rows;
}

/* VALUE for the first index of no row or, where index_policy is skip, their number in the counts.
 */
enum qplan_status qp_index_validate(struct qp_op_call *call, const char *argument, uint64_t n_rows,
                                    struct qplan_error *err);

/* VALUE for an element of an argument that is outside least .. most. */
enum qplan_status qp_index_check_range(const struct qp_op_call *call, const char *argument,
                                       int64_t least, int64_t most, struct qplan_error *err);

#endif
