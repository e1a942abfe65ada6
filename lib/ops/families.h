/*
 * families.h - every file of lib/ops that has rows, once: FAMILY(name) stands for the list
 * qp_ops_name in name.c, which ends with NULL. The order is that of `qplan op list`.
 */
#ifndef QP_OPS_FAMILIES_H
#define QP_OPS_FAMILIES_H

#include "op.h"

#define QP_OP_FAMILIES(FAMILY)                                                                     \
    FAMILY(quantize)                                                                               \
    FAMILY(quantize_backward)                                                                      \
    FAMILY(dequantize)                                                                             \
    FAMILY(dequantize_backward)                                                                    \
    FAMILY(fake_quantize)                                                                          \
    FAMILY(fake_quantize_backward)                                                                 \
    FAMILY(fake_quantize_learnable)                                                                \
    FAMILY(fake_quantize_learnable_backward)                                                       \
    FAMILY(dynamic_quantize)                                                                       \
    FAMILY(embedding)                                                                              \
    FAMILY(embedding_backward)                                                                     \
    FAMILY(embedding_bag)                                                                          \
    FAMILY(embedding_bag_backward)                                                                 \
    FAMILY(grid_sample)                                                                            \
    FAMILY(grid_sample_backward)                                                                   \
    FAMILY(affine_grid)                                                                            \
    FAMILY(params_from_statistics)

#define QP_OP_DECLARE(name) extern const struct qp_op_row *const qp_ops_##name[];
QP_OP_FAMILIES(QP_OP_DECLARE)
#undef QP_OP_DECLARE

#endif
