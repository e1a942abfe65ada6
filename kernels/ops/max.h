/*
 * max.h - the largest of many rows, column by column, and which row it came from.
 */
#ifndef QP_KERNELS_OPS_MAX_H
#define QP_KERNELS_OPS_MAX_H

#include "../kernel.h"

/*
 * Where src[i] > best[i], for n columns: best[i] becomes the bits of src[i], and where[i] row. So
 * the first of equals stays, and nothing replaces a NaN.
 */
typedef void (*qp_max_fn)(size_t n, const void *src, int64_t row, void *best, int64_t *where);

/* The function for a float dtype. */
qp_max_fn qp_max_kernel(enum qplan_dtype dtype);

#endif
