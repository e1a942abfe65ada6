/*
 * op_example.h - the problems of rows that devices are proven on, with their memory.
 */
#ifndef QP_OP_EXAMPLE_H
#define QP_OP_EXAMPLE_H

#include "op.h"

#define QP_EXAMPLE_TEXT 320

/* Inputs first; whoever runs it puts outputs behind them. */
struct qp_op_example {
    char text[QP_EXAMPLE_TEXT];
    struct qplan_op_field fields[QP_OP_MAX_FIELDS];
    struct qplan_tensor tensors[2 * QP_OP_MAX_ARGUMENTS];
    int64_t shapes[QP_OP_MAX_ARGUMENTS][QPLAN_MAX_RANK];
    size_t n_fields, n_inputs, n_tensors;
    struct qplan_op_counts counts;
};

/* Reads an example of a row into one that is all 0, with the dtypes of a key. */
enum qplan_status qp_op_read_example(struct qp_op_example *p, const struct qp_op_row *row,
                                     const char *example, enum qplan_storage key,
                                     struct qplan_error *err);

/* The problem, for qplan_op_select. */
struct qplan_op_desc qp_op_example_desc(const struct qp_op_example *p, const struct qp_op_row *row);

/* Runs an op that was selected for the problem; its outputs are put behind the inputs. */
enum qplan_status qp_op_run_example(struct qp_op_example *p, const struct qplan_op *op,
                                    struct qplan_error *err);

/* Whether two runs of one problem gave the same outputs and counts. */
bool qp_op_same_results(const struct qp_op_example *a, const struct qp_op_example *b);

/* Frees the tensors from a place on. */
void qp_op_free_tensors(struct qp_op_example *p, size_t from);

/* INTERNAL: "its examples have ...". */
enum qplan_status qp_op_fail_example(const struct qp_op_row *row, const char *what,
                                     struct qplan_error *err);

#endif
