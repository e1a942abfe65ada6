/*
 * ldlq_factor.h - the factor of a Hessian that codes are rounded by.
 *
 * Of the columns of a block, taken with the largest diagonal first, and of equal ones in their
 * order, H = M M^T with M upper triangular, after damp times the mean of the whole diagonal was
 * added to the diagonal. The factor N has N_jk = M_jk / M_kk above the diagonal. Sums are made in
 * f64 with one fixed order for each element, so that teams and instruction sets give the same bits.
 */
#ifndef QP_RUN_LDLQ_FACTOR_H
#define QP_RUN_LDLQ_FACTOR_H

#include "kernels/search/products.h"
#include "lib/importance/hessian.h"

struct qp_ldlq_factor {
    struct qp_hessian hessian; /* that it was made of */
    uint64_t n_blocks, block;
    uint64_t places;       /* of a block: its columns, and some more to a whole panel */
    uint32_t *order;       /* the column at each place of each block; UINT32_MAX = none */
    float *panels;         /* N of each block, QP_PANEL columns behind each other */
    uint64_t block_floats; /* of panels */
    double damp;           /* that made the Hessian positive */
};

/* The panel with the places from QP_PANEL * i on has QP_PANEL * (i + 1) rows of QP_PANEL numbers.
 */
static inline const float *qp_ldlq_panel(const struct qp_ldlq_factor *f, uint64_t block, uint64_t i)
{
    return f->panels + block * f->block_floats + i * (i + 1) / 2 * QP_PANEL * QP_PANEL;
}

/* Bytes that stay in memory, and bytes that making a factor needs at its peak; UINT64_MAX = too
 * many. */
uint64_t qp_ldlq_factor_bytes(const struct qp_hessian *hessian);
uint64_t qp_ldlq_peak_bytes(const struct qp_hessian *hessian);

/*
 * Reads a Hessian and makes its factor, with a damp ten times as large each time that a pivot is
 * not above 0. INVALID for numbers that cannot be, or if no damp helps; MEMORY.
 */
enum qplan_status qp_ldlq_factor_make(struct qp_ldlq_factor *factor,
                                      const struct qp_hessian *hessian, double damp,
                                      const struct qplan_run *run, struct qplan_error *err);
void qp_ldlq_factor_free(struct qp_ldlq_factor *factor);

#endif
