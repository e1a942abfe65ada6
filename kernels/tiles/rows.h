/*
 * rows.h - the row lists of the instruction set levels, each ended by NULL. kernels/table.c joins
 * them.
 */
#ifndef QP_CPU_ROWS_H
#define QP_CPU_ROWS_H

#include "kernels/kernel.h"

extern const struct qp_source_kernels *const qp_avx512_sources[];
extern const struct qp_source_kernels *const qp_avx2_sources[];
extern const struct qp_source_kernels *const qp_scalar_sources[];

extern const struct qp_quantizer *const qp_avx512_quantizers[];
extern const struct qp_quantizer *const qp_avx2_quantizers[];
extern const struct qp_quantizer *const qp_scalar_quantizers[];

extern const struct qp_code_kernels qp_avx2_codes; /* without kernels on another architecture */
extern const struct qp_code_kernels qp_scalar_codes;

#endif
