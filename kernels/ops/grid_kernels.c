/*
 * grid_kernels.c - the scalar loops of grid sampling: the specification.
 */
#include "grid_kernels.h"

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

/* The width is a constant in each copy. */
static inline void separate(const unsigned width, size_t n, const double *restrict from,
                            double *restrict to, size_t n_to)
{
    for (size_t i = 0; i < n; i++) {
        for (unsigned k = 0; k < width; k++)
            to[k * n_to + i] = from[i * width + k];
    }
}

void qp_grid_separate(unsigned width, size_t n, const double *from, double *to, size_t n_to)
{
    if (width == 8)
        separate(8, n, from, to, n_to);
    else if (width == 4)
        separate(4, n, from, to, n_to);
    else
        memcpy(to, from, n * sizeof *to);
}
