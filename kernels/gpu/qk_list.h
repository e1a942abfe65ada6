/*
 * qk_list.h - every kernel of the device text, by name. The host finds kernels by these rows, and
 * the tests walk them: a kernel that is not listed cannot be launched.
 *
 * X(name) for all devices, Y(name) for those with 64-bit floats.
 */
#ifndef QK_LIST_H
#define QK_LIST_H

#define QK_KERNELS(X, Y)                                                                           \
    QK_SOURCE_KERNELS(X, f32)                                                                      \
    QK_SOURCE_KERNELS(X, f16)                                                                      \
    QK_SOURCE_KERNELS(X, bf16)                                                                     \
    QK_SOURCE_KERNELS(Y, f64)                                                                      \
    QK_WORK_KERNELS(X, f32)                                                                        \
    QK_WORK_KERNELS(Y, f64)

/* In the order of enum qk_source_kernel and qk_work_kernel. */
#define QK_SOURCE_KERNELS(X, dtype)                                                                \
    X(qk_range_sets_##dtype)                                                                       \
    X(qk_range_lanes_##dtype)                                                                      \
    X(qk_codes_##dtype)                                                                            \
    X(qk_fused_##dtype)

#define QK_WORK_KERNELS(X, dtype)                                                                  \
    X(qk_merge_in_##dtype)                                                                         \
    X(qk_params_in_##dtype)

#endif
