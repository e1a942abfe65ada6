/*
 * table.c - finds the best kernel: lists of rows, best level first. Nothing is decided
 * anywhere else.
 */
#include "kernels/tiles/rows.h"

#define N_LEVELS 3

const struct qp_source_kernels *qp_source_kernels(enum qplan_dtype dtype, enum qplan_isa isa)
{
    static const struct qp_source_kernels *const *const levels[N_LEVELS] = {
        qp_avx512_sources, qp_avx2_sources, qp_scalar_sources};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < N_LEVELS; i++) {
        for (const struct qp_source_kernels *const *row = levels[i]; *row; row++) {
            if ((*row)->dtype == dtype && (*row)->isa <= isa)
                return *row;
        }
    }
    return NULL;
}

const struct qp_quantizer *qp_quantizer(enum qplan_dtype dtype, enum qp_code_kind kind,
                                        enum qplan_isa isa)
{
    static const struct qp_quantizer *const *const levels[N_LEVELS] = {
        qp_avx512_quantizers, qp_avx2_quantizers, qp_scalar_quantizers};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < N_LEVELS; i++) {
        for (const struct qp_quantizer *const *row = levels[i]; *row; row++) {
            if ((*row)->dtype == dtype && (*row)->kind == kind && (*row)->isa <= isa)
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
