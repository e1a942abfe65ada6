/*
 * grid_device.h - grid samples and their gradients on devices: launches, device memory besides the
 * arguments, and the examples that a device is proven on.
 */
#ifndef QP_OPS_GRID_DEVICE_H
#define QP_OPS_GRID_DEVICE_H

#include "op_device.h"

enum qplan_status qp_grid_launch_sample(struct qp_op_run *run, struct qplan_error *err);
enum qplan_status qp_grid_launch_backward(struct qp_op_run *run, struct qplan_error *err);

/* Lists of taps, for as many batches at a time as fit into a limit of their own; at least one. */
uint64_t qp_grid_lists_bytes(const struct qplan_op *op);

/*
 * Problems of every mode and padding, E(fields, kind of the numbers of points): points in and
 * around the image, and ones that may be anything.
 */
#define QP_GRID_EXAMPLES(E, MODE, PADDING)                                                         \
    E("mode=" MODE " padding_mode=" PADDING " align_corners=false", "grid")                        \
    E("mode=" MODE " padding_mode=" PADDING " align_corners=true", "any")

#define QP_GRID_EXAMPLES_OF(E, MODE)                                                               \
    QP_GRID_EXAMPLES(E, MODE, "zeros")                                                             \
    QP_GRID_EXAMPLES(E, MODE, "border")                                                            \
    QP_GRID_EXAMPLES(E, MODE, "reflection")

#define QP_GRID_EXAMPLES_2(E)                                                                      \
    QP_GRID_EXAMPLES_OF(E, "bilinear")                                                             \
    QP_GRID_EXAMPLES_OF(E, "nearest")                                                              \
    QP_GRID_EXAMPLES_OF(E, "bicubic")

#define QP_GRID_EXAMPLES_3(E)                                                                      \
    QP_GRID_EXAMPLES_OF(E, "bilinear")                                                             \
    QP_GRID_EXAMPLES_OF(E, "nearest")

/* Shapes of the image, the grid and the output: of channels that are odd, and of more than one tile
 * and one block of channels. */
#define QP_GRID_SMALL_IN_2   "2,3,5,7"
#define QP_GRID_SMALL_GRID_2 "2,4,9,2"
#define QP_GRID_SMALL_OUT_2  "2,3,4,9"
#define QP_GRID_LARGE_IN_2   "2,18,19,17"
#define QP_GRID_LARGE_GRID_2 "2,3,101,2"
#define QP_GRID_LARGE_OUT_2  "2,18,3,101"
#define QP_GRID_SMALL_IN_3   "2,3,3,4,5"
#define QP_GRID_SMALL_GRID_3 "2,2,3,6,3"
#define QP_GRID_SMALL_OUT_3  "2,3,2,3,6"
#define QP_GRID_LARGE_IN_3   "2,18,5,8,8"
#define QP_GRID_LARGE_GRID_3 "2,3,5,20,3"
#define QP_GRID_LARGE_OUT_3  "2,18,3,5,20"

#endif
