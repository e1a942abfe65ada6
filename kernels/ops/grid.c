/*
 * grid.c - the scalar loops of grid sampling: the specification.
 */
#include "grid.h"

#define ISA QPLAN_ISA_SCALAR
#include "grid_rows.inc.h"

const struct qp_grid_kernels *qp_grid_kernels(enum qplan_dtype work, enum qplan_isa isa)
{
    const enum qplan_isa best = qp_isa_detect();
    const size_t row = work == QPLAN_F64;
    if (isa == QPLAN_ISA_BEST || isa > best)
        isa = best;
    if (isa >= QPLAN_ISA_AVX2 && qp_grid_avx2_rows[row])
        return qp_grid_avx2_rows[row];
    return row ? &kernels_f64 : &kernels_f32;
}
