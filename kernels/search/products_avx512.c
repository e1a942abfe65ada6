/*
 * products_avx512.c - the loops of products for AVX-512.
 */
#include "products.h"

#if defined(__AVX512BW__)

#define ISA          QPLAN_ISA_AVX512
#define VECTOR_BYTES 64
#define PRODUCTS     qp_avx512_products
#include "products.inc.h"

#else /* another architecture */

const struct qp_product_kernels qp_avx512_products = {.isa = QPLAN_ISA_AVX512};

#endif
