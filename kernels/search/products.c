/*
 * products.c - the loops of products for any CPU, and which level is taken.
 */
#include "products.h"

#define ISA          QPLAN_ISA_SCALAR
#define VECTOR_BYTES 16
#define PRODUCTS     qp_scalar_products
#include "products.inc.h"

const struct qp_product_kernels *qp_product_kernels(enum qplan_isa isa)
{
    static const struct qp_product_kernels *const levels[] = {&qp_avx512_products,
                                                              &qp_avx2_products};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i]->subtract_f32 && levels[i]->isa <= isa)
            return levels[i];
    }
    return &qp_scalar_products;
}
