/*
 * products.h - sums of products that rounding by a Hessian is made of: of a triangular factor with
 * itself, and of a factor with the errors of codes.
 *
 * Every element has its terms subtracted one by one, in ascending order, each product and each
 * difference rounded. Elements are independent of each other, so lanes, blocks and threads change
 * no bit.
 */
#ifndef QP_KERNELS_PRODUCTS_H
#define QP_KERNELS_PRODUCTS_H

#include "kernels/kernel.h"

/* Columns that are made together. */
#define QP_PANEL 4

/* Rows come in multiples of this. */
#define QP_PRODUCT_ROWS 32

/*
 * Columns of n_rows elements, each `stride` behind the one before; all at multiples of 64 bytes. Of
 * b, the k-th row begins at k * b_stride and has QP_PANEL elements.
 */
struct qp_product_kernels {
    enum qplan_isa isa;

    /*
     * Subtracts a[k] * b[k][j] for k = 0 .. n_terms - 1 from each c[j], element by element: a has
     * n_terms columns, c QP_PANEL of them.
     */
    void (*subtract_f32)(size_t n_terms, size_t n_rows, size_t stride, const float *a,
                         const float *b, size_t b_stride, float *c);
    void (*subtract_f64)(size_t n_terms, size_t n_rows, size_t stride, const double *a,
                         const double *b, size_t b_stride, double *c);
};

/* The best kernels at a level. */
const struct qp_product_kernels *qp_product_kernels(enum qplan_isa isa);

extern const struct qp_product_kernels qp_scalar_products, qp_avx2_products, qp_avx512_products;

#endif
