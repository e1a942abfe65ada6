/*
 * row_sums.h - rows that are sums of rows: each row of a target is the sum of the rows of a source
 * that its list names, in the order of the list. The guarantee S rests on this file alone.
 */
#ifndef QP_OPS_ROW_SUMS_H
#define QP_OPS_ROW_SUMS_H

#include "op.h"

/* In a list: counts as a term, but there is nothing to add. */
#define QP_NO_ROW UINT64_MAX

struct qp_row_lists {
    uint64_t *start; /* one more than the target has rows: where the list of a row begins */
    uint64_t *list;  /* rows of the source, one list behind the other */
};

struct qp_row_sums {
    const struct qp_view *source, *target;
    uint64_t n_rows, row_len; /* of the target */
    struct qp_row_lists lists;
    const double *divisors; /* of the terms, by row of the source; NULL = none */
    bool by_count;          /* each sum is divided by the length of its list */
    bool accumulate;        /* what the target has is the last term */
    char *workers;          /* op->n_workers times QP_ROW_SUMS_BYTES, aligned to 64 */
};

/* Columns that a worker sums at a time: long runs to read, and sums that the first cache holds. */
#define QP_ROW_SUMS_COLS  2048
#define QP_ROW_SUMS_BYTES (3 * QP_ROW_SUMS_COLS * sizeof(double))

/* Makes all rows of the target. Returns how many finite results became infinite. */
uint64_t qp_row_sums_run(const struct qplan_op *op, const struct qp_row_sums *sums);

#endif
