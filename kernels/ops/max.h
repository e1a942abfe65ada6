/*
 * max.h - the largest of many rows, column by column, and which of them it was.
 */
#ifndef QP_KERNELS_OPS_MAX_H
#define QP_KERNELS_OPS_MAX_H

#include "kernels/kernel.h"

/* Rows are numbered from 1 to this; the numbers are as wide as the elements. */
#define QP_MAX_ROWS 0xffff

/*
 * Where src[i] > best[i], for n columns: best[i] becomes the bits of src[i], and numbers[i] number.
 * So the first of equals stays, and nothing replaces a NaN.
 */
typedef void (*qp_max_fn)(size_t n, const void *src, uint16_t number, void *best, void *numbers);

/* The function for a float dtype. */
qp_max_fn qp_max_kernel(enum qplan_dtype dtype);

#endif
