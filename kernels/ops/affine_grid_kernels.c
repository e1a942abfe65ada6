/*
 * affine_grid_kernels.c - the loops over the points of an affine grid.
 */
#include "affine_grid_kernels.h"

void qp_affine_bases(uint64_t first, size_t n, uint64_t size, bool align_corners, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = qp_affine_base(first + i, size, align_corners);
}

/* The number of axes is a constant in each copy. */
static inline void points(const struct qp_affine_row *row, const unsigned n_axes,
                          const double *theta, double *restrict out)
{
    for (size_t i = 0; i < row->n; i++) {
        for (unsigned a = 0; a < n_axes; a++)
            out[i * n_axes + a] =
                qp_affine_point(n_axes, theta + (size_t)a * (n_axes + 1), row->x[i], row->rest);
    }
}

void qp_affine_points(const struct qp_affine_row *row, const double *theta, double *out)
{
    if (row->n_axes == 2)
        points(row, 2, theta, out);
    else
        points(row, 3, theta, out);
}

static inline void add_one(struct qp_sum *sum, bool errors, double term)
{
    if (errors)
        qp_sum_add(sum, term);
    else
        sum->hi += term;
}

static inline void add(const struct qp_affine_row *row, const unsigned n_axes, const bool errors,
                       const void *dout, struct qp_sum *to)
{
    struct qp_sum sums[QP_AFFINE_AXES * (QP_AFFINE_AXES + 1)];
    const size_t n_sums = (size_t)n_axes * (n_axes + 1);
    for (size_t s = 0; s < n_sums; s++)
        sums[s] = to[s];
    for (size_t i = 0; i < row->n; i++) {
        for (unsigned a = 0; a < n_axes; a++) {
            const size_t at = i * n_axes + a;
            const double d = errors ? ((const double *)dout)[at] : ((const float *)dout)[at];
            struct qp_sum *sum = &sums[a * (n_axes + 1)];
            add_one(&sum[0], errors, d * row->x[i]);
            for (unsigned k = 1; k < n_axes; k++)
                add_one(&sum[k], errors, d * row->rest[k - 1]);
            add_one(&sum[n_axes], errors, d);
        }
    }
    for (size_t s = 0; s < n_sums; s++)
        to[s] = sums[s];
}

void qp_affine_add(const struct qp_affine_row *row, enum qplan_dtype work, const void *dout,
                   struct qp_sum *sums)
{
    const bool errors = work == QPLAN_F64;
    if (row->n_axes == 2 && errors)
        add(row, 2, true, dout, sums);
    else if (row->n_axes == 2)
        add(row, 2, false, dout, sums);
    else if (errors)
        add(row, 3, true, dout, sums);
    else
        add(row, 3, false, dout, sums);
}
