/*
 * qk_list.h - every program of the device text and every kernel of a program, by name. The host
 * finds kernels by these rows, and the tests walk them: a kernel that is not listed cannot be
 * launched.
 *
 * A program is compiled when one of its kernels is first launched. P(program): its text is
 * qk_<program>_program.h, its list QK_<program>_KERNELS. X(name) is a kernel for all devices,
 * Y(name) one for those with 64-bit floats.
 */
#ifndef QK_LIST_H
#define QK_LIST_H

#define QK_PROGRAMS(P) P(tiles) P(affine) P(rows) P(grid)

/* All kernels, program by program. */
#define QK_KERNELS(X, Y)                                                                           \
    QK_tiles_KERNELS(X, Y) QK_affine_KERNELS(X, Y) QK_rows_KERNELS(X, Y) QK_grid_KERNELS(X, Y)

/* ---- tiles: what the checkpoint pipeline runs ------------------------------------------------ */

#define QK_tiles_KERNELS(X, Y)                                                                     \
    QK_SOURCE_KERNELS(X, f32)                                                                      \
    QK_SOURCE_KERNELS(X, f16)                                                                      \
    QK_SOURCE_KERNELS(X, bf16)                                                                     \
    QK_SOURCE_KERNELS(Y, f64)                                                                      \
    QK_WORK_KERNELS(X, f32)                                                                        \
    QK_WORK_KERNELS(Y, f64)                                                                        \
    Y(qk_measure_f32)                                                                              \
    Y(qk_measure_f16)                                                                              \
    Y(qk_measure_bf16)                                                                             \
    Y(qk_measure_f64)

/* In the order of enum qk_source_kernel and qk_work_kernel. */
#define QK_SOURCE_KERNELS(X, dtype)                                                                \
    X(qk_range_sets_##dtype)                                                                       \
    X(qk_range_lanes_##dtype)                                                                      \
    X(qk_codes_##dtype)                                                                            \
    X(qk_fused_##dtype)

#define QK_WORK_KERNELS(X, dtype)                                                                  \
    X(qk_merge_in_##dtype)                                                                         \
    X(qk_params_in_##dtype)                                                                        \
    X(qk_decode_in_##dtype)

/* ---- affine: the operators of the quantize family -------------------------------------------- */

#define QK_affine_KERNELS(X, Y)                                                                    \
    QK_AFFINE_KERNELS(X, f32)                                                                      \
    QK_AFFINE_KERNELS(X, f16)                                                                      \
    QK_AFFINE_KERNELS(X, bf16)                                                                     \
    QK_AFFINE_KERNELS(Y, f64)                                                                      \
    QK_LEARN_KERNELS(Y, f32)                                                                       \
    QK_LEARN_KERNELS(Y, f16)                                                                       \
    QK_LEARN_KERNELS(Y, bf16)                                                                      \
    QK_LEARN_KERNELS(Y, f64)                                                                       \
    QK_AFFINE_WORK_KERNELS(X, f32)                                                                 \
    QK_AFFINE_WORK_KERNELS(Y, f64)

#define QK_AFFINE_KERNELS(X, dtype)                                                                \
    X(qk_fake_op_##dtype)                                                                          \
    X(qk_fake_backward_op_##dtype)                                                                 \
    X(qk_quantize_backward_op_##dtype)                                                             \
    X(qk_dequantize_backward_op_##dtype)                                                           \
    X(qk_encode_op_##dtype)                                                                        \
    X(qk_range_sets_op_##dtype)                                                                    \
    X(qk_range_lanes_op_##dtype)

#define QK_LEARN_KERNELS(X, dtype)                                                                 \
    X(qk_learn_sets_op_##dtype)                                                                    \
    X(qk_learn_lanes_op_##dtype)

#define QK_AFFINE_WORK_KERNELS(X, dtype)                                                           \
    X(qk_decode_op_in_##dtype)                                                                     \
    X(qk_params_op_in_##dtype)

/* ---- rows: embeddings and bags --------------------------------------------------------------- */

#define QK_rows_KERNELS(X, Y)                                                                      \
    X(qk_gather_u16)                                                                               \
    X(qk_gather_u32)                                                                               \
    X(qk_gather_x4)                                                                                \
    X(qk_bag_max_f32)                                                                              \
    X(qk_bag_max_f16)                                                                              \
    X(qk_bag_max_bf16)                                                                             \
    X(qk_bag_max_f64)                                                                              \
    QK_ROW_SUM_KERNELS(Y, f32)                                                                     \
    QK_ROW_SUM_KERNELS(Y, f16)                                                                     \
    QK_ROW_SUM_KERNELS(Y, bf16)                                                                    \
    QK_ROW_SUM_KERNELS(Y, f64)

#define QK_ROW_SUM_KERNELS(X, dtype)                                                               \
    X(qk_bag_sum_##dtype)                                                                          \
    X(qk_table_sum_##dtype)                                                                        \
    X(qk_max_gradient_##dtype)

/* ---- grid: the operators of the grid family -------------------------------------------------- */

#define QK_grid_KERNELS(X, Y)                                                                      \
    QK_GRID_KERNELS(Y, f32)                                                                        \
    QK_GRID_KERNELS(Y, f16)                                                                        \
    QK_GRID_KERNELS(Y, bf16)                                                                       \
    QK_GRID_KERNELS(Y, f64)                                                                        \
    Y(qk_clear_grid)                                                                               \
    Y(qk_place_grid)                                                                               \
    Y(qk_order_grid)

#define QK_GRID_KERNELS(X, dtype)                                                                  \
    X(qk_sample_grid_##dtype)                                                                      \
    X(qk_slopes_grid_##dtype)                                                                      \
    X(qk_taps_grid_##dtype)                                                                        \
    X(qk_gather_grid_##dtype)                                                                      \
    X(qk_points_grid_##dtype)                                                                      \
    X(qk_sums_grid_##dtype)

#endif
