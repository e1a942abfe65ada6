/*
 * grid_avx2.c - the same loops, compiled for AVX2: lanes are vectors, and no operation changes.
 */
#include "grid_kernels.h"

#if defined(__AVX2__)
#define ISA QPLAN_ISA_AVX2
#include "grid_rows.inc.h"

const struct qp_grid_kernels *const qp_grid_avx2_rows[2] = {&kernels_f32, &kernels_f64};
#else
const struct qp_grid_kernels *const qp_grid_avx2_rows[2] = {NULL, NULL};
#endif
