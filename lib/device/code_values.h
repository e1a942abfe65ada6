/*
 * code_values.h - what the codes of a rule stand for, as kernels on devices are told: numbers in
 * their arguments, and a table in the block.
 */
#ifndef QP_DEVICE_CODE_VALUES_H
#define QP_DEVICE_CODE_VALUES_H

#include "kernels/codes/floats.h"
#include "kernels/gpu/qk_args.h"
#include "lane.h"

_Static_assert(QK_CODES_LINEAR == QP_CODES_LINEAR && QK_CODES_BIASED == QP_CODES_BIASED &&
                   QK_CODES_FLOAT == QP_CODES_FLOAT && QK_CODES_BOOK == QP_CODES_BOOK,
               "one list of kinds");

#define QP_BOOK_BYTES (QK_BOOK_SIZE * sizeof(float))

/* All but the place of a table, which is the caller's to choose. */
static inline struct qk_values qp_device_values(const struct qp_code_rule *rule)
{
    const struct qp_code_type *type = rule->type;
    return (struct qk_values){.kind = rule->kind,
                              .sign = type->grid.sign,
                              .man_bits = type->grid.man_bits,
                              .least_exp = type->grid.least_exp,
                              .largest = qp_bits_f32((float)type->largest),
                              .end = qp_bits_f32((float)qp_code_end(rule))};
}

/* Queues the copy of the table of a rule that has one. */
static inline enum qplan_status qp_device_copy_book(struct qp_lane *lane,
                                                    const struct qp_code_rule *rule, qk_u32 to,
                                                    struct qplan_error *err)
{
    return rule->kind == QP_CODES_BOOK
               ? qp_lane_copy_in(lane, to, QP_BOOK_BYTES, rule->type->book, err)
               : QPLAN_OK;
}

#endif
