/*
 * sum.h - deterministic sums: many columns side by side, terms added one row at a time.
 *
 * The order of the terms is the caller's, always ascending by flat index; nothing here reorders
 * them. f32, f16 and bf16 terms are added in f64, each addition one IEEE operation. f64 terms are
 * added in f64 with the rounding errors kept apart: TwoSum (Knuth) gives the exact error of each
 * addition, and the errors are summed in a second f64, which is added at the end. A result is
 * rounded once to its dtype, to infinity where it is too large; NaN is stored as the quiet NaN with
 * sign and payload 0, so that bits do not depend on which NaN an instruction set hands on.
 *
 * A sum is a column of two arrays, hi and lo; lo is NULL where errors are not kept.
 */
#ifndef QP_KERNELS_OPS_SUM_H
#define QP_KERNELS_OPS_SUM_H

#include "kernels/kernel.h"

#include <math.h>

/* ---- One sum ----------------------------------------------------------------------------------
 */

/* The sum of f64 terms with its errors. */
struct qp_sum {
    double hi, lo;
};

/* hi + x and, in lo, what that lost: exact unless it overflows. */
static inline void qp_sum_add(struct qp_sum *sum, double x)
{
    const double total = sum->hi + x, part = total - sum->hi;
    sum->lo += (sum->hi - (total - part)) + (x - part);
    sum->hi = total;
}

/* With an infinity or NaN among the terms the errors are NaN and mean nothing. */
static inline double qp_sum_value(const struct qp_sum *sum)
{
    return isfinite(sum->hi) ? sum->hi + sum->lo : sum->hi;
}

/* ---- Columns of sums --------------------------------------------------------------------------
 */

/* The kernels for terms of one float dtype. */
struct qp_sum_kernels {
    enum qplan_dtype dtype;
    enum qplan_isa isa;
    bool keeps_errors; /* needs lo */

    /* hi[i], lo[i] += src[i], for n columns. */
    void (*add)(size_t n, const void *src, double *hi, double *lo);

    /* Adds several rows of terms, the first one first. */
    void (*add_rows)(size_t n, size_t n_rows, const void *const *rows, double *hi, double *lo);

    /* Adds the quotients src[i] / divisor, each rounded to f64. */
    void (*add_over)(size_t n, const void *src, double divisor, double *hi, double *lo);

    /* Adds terms of f64 that are made, not stored. */
    void (*add_f64)(size_t n, const double *terms, double *hi, double *lo);

    /* Divides the value of each sum; one rounding, after which lo is 0. */
    void (*divide)(size_t n, double divisor, double *hi, double *lo);

    /* Rounds n sums to their dtype; returns how many finite ones became infinite. */
    uint64_t (*finish)(size_t n, const double *hi, const double *lo, void *dst);
};

/* The best kernels for a dtype at a level; every level gives the same bits. */
const struct qp_sum_kernels *qp_sum_kernels(enum qplan_dtype dtype, enum qplan_isa isa);

/* The scalar ones, which are the specification; and the list of those of AVX2, ending with NULL. */
extern const struct qp_sum_kernels qp_sum_f64, qp_sum_f32, qp_sum_f16, qp_sum_bf16;
extern const struct qp_sum_kernels *const qp_sum_avx2_rows[];

/*
 * Stores n results of f64 as a gradient: nearest even, infinite where too large, one NaN. Returns
 * how many finite ones became infinite.
 */
uint64_t qp_store_gradient(enum qplan_dtype dtype, size_t n, const double *x, void *dst);

#endif
