/*
 * table.c - finds the best kernel: lists of rows, best level first. Nothing is decided
 * anywhere else.
 */
#include "kernels/tiles/rows.h"

static const struct qp_source_kernels *const *const levels[] = {
    qp_avx512_rows,
    qp_avx2_rows,
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

const struct qp_code_kernels *qp_code_kernels(enum qplan_isa isa)
{
    static const struct qp_code_kernels *const rows[] = {&qp_avx2_codes};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i]->pack4 && rows[i]->isa <= isa)
            return rows[i];
    }
    return &qp_scalar_codes;
}

enum qplan_isa qplan_isa_used(enum qplan_isa limit)
{
    return qp_source_kernels(QPLAN_BF16, limit)->isa;
}
