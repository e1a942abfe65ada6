/*
 * kernel_table.c - finds the best kernel: lists of rows, best level first. Nothing is decided
 * anywhere else.
 */
#include "cpu/rows.h"

static const struct qp_source_kernels *const *const levels[] = {
    qp_scalar_rows,
};

const struct qp_source_kernels *qp_source_kernels(enum qplan_dtype dtype, enum qplan_isa isa)
{
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        for (const struct qp_source_kernels *const *row = levels[i]; *row; row++) {
            if ((*row)->dtype == dtype && (*row)->isa <= isa)
                return *row;
        }
    }
    return NULL;
}
