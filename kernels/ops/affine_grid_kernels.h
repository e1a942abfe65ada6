/*
 * affine_grid_kernels.h - the points of an affine grid: base points of a regular grid times a
 * matrix.
 *
 * Everything is computed in f64, one IEEE operation at a time, and rounded once by the caller. A
 * point has n_axes numbers, x first; the matrix has n_axes rows of n_axes + 1 numbers, the last of
 * which is the shift.
 */
#ifndef QP_KERNELS_OPS_AFFINE_GRID_H
#define QP_KERNELS_OPS_AFFINE_GRID_H

#include "sum.h"

#define QP_AFFINE_AXES 3

/* Where the i-th of so many points is between -1 and 1: at centres of cells, or on the ends. */
static inline double qp_affine_base(uint64_t i, uint64_t size, bool align_corners)
{
    if (!align_corners)
        return (double)(2 * i + 1) / (double)size - 1;
    return size == 1 ? 0 : (double)(2 * i) / (double)(size - 1) - 1;
}

/* A row of the matrix times (x, y, 1) or (x, y, z, 1); rest has y and z. */
static inline double qp_affine_point(unsigned n_axes, const double *theta, double x,
                                     const double *rest)
{
    double sum = theta[0] * x + theta[1] * rest[0];
    if (n_axes == QP_AFFINE_AXES)
        sum += theta[2] * rest[1];
    return sum + theta[n_axes];
}

/* One row of points: those with the same y and z, at n bases x. */
struct qp_affine_row {
    unsigned n_axes;
    size_t n;
    const double *x;
    double rest[QP_AFFINE_AXES - 1];
};

/* The bases of n points from first on. */
void qp_affine_bases(uint64_t first, size_t n, uint64_t size, bool align_corners, double *out);

/* The points of a row, n_axes numbers each. */
void qp_affine_points(const struct qp_affine_row *row, const double *theta, double *out);

/*
 * Adds dout * (x, y, 1) or dout * (x, y, z, 1) of each point of a row to the sums of the matrix, in
 * ascending order. dout is in working precision; errors are kept for f64.
 */
void qp_affine_add(const struct qp_affine_row *row, enum qplan_dtype work, const void *dout,
                   struct qp_sum *sums);

#endif
