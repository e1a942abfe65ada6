/*
 * rows.h - the row lists of the instruction set levels, each ended by NULL. kernel_table.c joins
 * them.
 */
#ifndef QP_CPU_ROWS_H
#define QP_CPU_ROWS_H

#include "../kernel.h"

extern const struct qp_source_kernels *const qp_scalar_rows[];

#endif
