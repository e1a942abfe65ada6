/*
 * rows_device.h - embeddings and bags on devices: the problem as arguments of the device text
 * (kernels/gpu/qk_rows_args.h), and its launches.
 */
#ifndef QP_OPS_ROWS_DEVICE_H
#define QP_OPS_ROWS_DEVICE_H

#include "bags.h"
#include "kernels/gpu/qk_rows_args.h"
#include "op_device.h"

/* A kernel for devices; values are checked as the CPU's kernels check them. */
#define QP_ROWS_DEVICE(CLASS, TAKES, VALIDATE, LAUNCH)                                             \
    .isa = QPLAN_ISA_SCALAR, .keys = QP_FP_BITS, .class = (CLASS), .takes = (TAKES),               \
    .validate = (VALIDATE), .launch = (LAUNCH)

/* The table that indices name rows of; padding -1 = every row counts. */
struct qp_rows_table {
    uint64_t n_rows, row_len;
    int64_t padding;
};

/* What the bags, their indices and the table say. Source, target and items are the caller's. */
struct qk_rows_args qp_rows_args(const struct qp_op_run *run, const struct qp_bags *bags,
                                 const struct qp_rows_table *table);

/* Queues a copy of rows by index, from a.source to a.target. */
enum qplan_status qp_rows_launch_copy(struct qp_op_run *run, const struct qk_rows_args *args,
                                      struct qplan_error *err);

/* Queues a kernel of the op's dtype over n_rows rows of the target, by octets. */
enum qp_rows_kernel { QP_ROWS_BAG_MAX, QP_ROWS_BAG_SUM, QP_ROWS_TABLE_SUM };
enum qplan_status qp_rows_launch(struct qp_op_run *run, enum qp_rows_kernel kernel,
                                 const struct qk_rows_args *args, uint64_t n_rows,
                                 struct qplan_error *err);

/* Queues the gradient of maxima; sums of all elements of the table have qp_rows_sums_bytes. */
uint64_t qp_rows_sums_bytes(const struct qplan_op *op, const struct qp_rows_table *table);
enum qplan_status qp_rows_launch_max_gradient(struct qp_op_run *run,
                                              const struct qk_rows_args *args,
                                              struct qplan_error *err);

#endif
