/*
 * products_avx2.c - the loops of products for AVX2.
 */
#include "products.h"

#if defined(__AVX2__)

#define ISA          QPLAN_ISA_AVX2
#define VECTOR_BYTES 32
#define PRODUCTS     qp_avx2_products
#include "products.inc.h"

#else /* another architecture */

const struct qp_product_kernels qp_avx2_products = {.isa = QPLAN_ISA_AVX2};

#endif
