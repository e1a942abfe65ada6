/*
 * bags.h - bags of indices: which places of the indices belong together. Bag b is the places from
 * offsets[b] up to the next offset or, without offsets, row b of indices [B,L].
 */
#ifndef QP_OPS_BAGS_H
#define QP_OPS_BAGS_H

#include "index.h"

#define QP_FIELD_BAG_MODE                                                                          \
    {                                                                                              \
        .name = "mode", .type = QPLAN_FIELD_NAME, .fallback = "sum", .names = "sum|mean|max",      \
        .about = "what a bag makes of its rows"                                                    \
    }
#define QP_FIELD_LAST_OFFSET                                                                       \
    {                                                                                              \
        .name = "include_last_offset", .type = QPLAN_FIELD_BOOL, .fallback = "false",              \
        .about = "offsets has one more: where the last bag ends"                                   \
    }
#define QP_ARGUMENT_OFFSETS                                                                        \
    {                                                                                              \
        .name = "offsets", .direction = QPLAN_OP_IN, .optional = true, .dtypes = "I32|I64",        \
        .shape = "[B] or [B+1]"                                                                    \
    }

struct qp_bags {
    uint64_t n_bags, n_indices;
    uint64_t per_bag; /* without offsets */
    bool has_offsets;
    bool has_end; /* include_last_offset */
};

/* The places begin .. end - 1. */
struct qp_bag {
    uint64_t begin, end;
};

/* The bags of a problem from the shapes of its indices and offsets, or INVALID. */
enum qplan_status qp_bags_check(const struct qplan_op *op, struct qp_bags *out,
                                struct qplan_error *err);

/* VALUE unless the offsets begin at 0, do not decrease and stay within the indices. */
enum qplan_status qp_bags_validate(const struct qp_op_call *call, const struct qp_bags *bags,
                                   struct qplan_error *err);

/* One bag; offsets is that argument, of no use where there are none. */
struct qp_bag qp_bag_at(const struct qp_bags *bags, const struct qp_indices *offsets, uint64_t b);

/* Where the last bag ends: what follows belongs to none. */
uint64_t qp_bags_end(const struct qp_bags *bags, const struct qp_indices *offsets);

#endif
