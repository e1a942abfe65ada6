/*
 * row_sums.c - owner-computes: a worker owns some columns of some rows and adds their terms in the
 * order of the lists, so no two workers write to one sum and the bits do not depend on their
 * number. Lists are the caller's.
 */
#include "row_sums.h"

#include "kernels/ops/sum.h"
#include "lib/base/check.h"

#include <stdatomic.h>
#include <string.h>

/* Rows of a unit, at most: enough that claiming one costs little. */
#define UNIT_ROWS 16

#define COLUMN_BYTES (QP_ROW_SUMS_COLS * sizeof(double))

struct job {
    const struct qp_row_sums *what;
    const struct qp_sum_kernels *kernels;
    uint64_t across; /* units side by side */
    uint64_t unit_rows;
    atomic_uint_fast64_t overflow;
};

/* The sums of some columns. */
struct sums {
    double *hi, *lo; /* lo NULL = no errors are kept */
    void *elems;     /* room for a row that is not contiguous */
};

/* Rows that are added together, which keeps their sums in registers and many reads under way. */
#define GROUP 8

/* A group of terms of one row, n columns from col on; elems has room for one that is gathered. */
static void add_group(const struct job *job, const uint64_t *list, size_t n_list, uint64_t col,
                      size_t n, const struct sums *sums)
{
    const struct qp_row_sums *what = job->what;
    const void *rows[GROUP];
    size_t n_rows = 0;
    for (size_t i = 0; i < n_list; i++) {
        if (list[i] == QP_NO_ROW)
            continue;
        const uint64_t at = list[i] * what->row_len + col;
        const double divisor = what->divisors ? what->divisors[list[i]] : 1;
        const void *direct = divisor > 1 ? NULL : qp_view_at(what->source, at, n);
        if (direct) {
            rows[n_rows++] = direct;
            continue;
        }
        /* In their order: those before it come first. */
        job->kernels->add_rows(n, n_rows, rows, sums->hi, sums->lo);
        n_rows = 0;
        job->kernels->add_over(n, qp_view_get(what->source, at, n, sums->elems), divisor, sums->hi,
                               sums->lo);
    }
    job->kernels->add_rows(n, n_rows, rows, sums->hi, sums->lo);
}

/* n columns of one row that has terms. */
static void sum_row(struct job *job, uint64_t row, uint64_t col, size_t n, char *buffers)
{
    const struct qp_row_sums *what = job->what;
    const struct qp_sum_kernels *kernels = job->kernels;
    const uint64_t begin = what->lists.start[row], n_list = what->lists.start[row + 1] - begin;
    const uint64_t at = row * what->row_len + col;
    struct sums sums = {.hi = (double *)(void *)buffers, .elems = buffers + 2 * COLUMN_BYTES};
    if (kernels->keeps_errors)
        sums.lo = (double *)(void *)(buffers + COLUMN_BYTES);
    memset(sums.hi, 0, n * sizeof *sums.hi);
    if (sums.lo)
        memset(sums.lo, 0, n * sizeof *sums.lo);
    for (uint64_t i = 0; i < n_list; i += GROUP)
        add_group(job, what->lists.list + begin + i, (size_t)qp_min_u64(GROUP, n_list - i), col, n,
                  &sums);
    if (what->by_count && n_list > 1)
        kernels->divide(n, (double)n_list, sums.hi, sums.lo);
    if (what->accumulate)
        kernels->add(n, qp_view_get(what->target, at, n, sums.elems), sums.hi, sums.lo);
    void *room = qp_view_room(what->target, at, n, sums.elems);
    const uint64_t overflow = kernels->finish(n, sums.hi, sums.lo, room);
    qp_view_put(what->target, at, n, room);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

/* A row without terms is 0 or stays as it is, to the bit. */
static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_row_sums *what = job->what;
    const uint64_t col = u % job->across * QP_ROW_SUMS_COLS;
    const uint64_t row = u / job->across * job->unit_rows;
    const size_t n = (size_t)qp_min_u64(QP_ROW_SUMS_COLS, what->row_len - col);
    const uint64_t end = qp_min_u64(row + job->unit_rows, what->n_rows);
    for (uint64_t r = row; r < end; r++) {
        if (what->lists.start[r] < what->lists.start[r + 1])
            sum_row(job, r, col, n, what->workers + worker * QP_ROW_SUMS_BYTES);
        else if (what->accumulate)
            qp_view_keep(what->target, r * what->row_len + col, n);
        else
            qp_view_zero(what->target, r * what->row_len + col, n);
    }
}

uint64_t qp_row_sums_run(const struct qplan_op *op, const struct qp_row_sums *sums)
{
    struct job job = {.what = sums,
                      .kernels = qp_sum_kernels(qp_op_float(op->key), op->isa),
                      .across = qp_div_up(sums->row_len, QP_ROW_SUMS_COLS)};
    /* Few rows are spread over all workers. */
    const uint64_t shares = qp_div_up(sums->n_rows * job.across, UINT64_C(4) * op->n_workers);
    job.unit_rows = qp_max_u64(qp_min_u64(shares, UNIT_ROWS), 1);
    qp_op_units(op, job.across * qp_div_up(sums->n_rows, job.unit_rows), unit, &job);
    return job.overflow;
}
