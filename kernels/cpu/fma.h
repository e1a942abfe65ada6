/*
 * fma.h - the only place of fused multiply-add. It is used where the product is exact: then one
 * rounding and two give the same bits, and the kernels without it agree.
 */
#ifndef QP_FMA_H
#define QP_FMA_H

#include <immintrin.h>

/*
 * sum + a * b for f64 lanes that hold f32 values. Their significands have 24 bits, so the product
 * has 48 and fits the 53 of f64; its exponent is far from either end.
 */
static inline __m256d v_add_exact(__m256d sum, __m256d a, __m256d b)
{
    return _mm256_fmadd_pd(a, b, sum);
}

#if defined(__AVX512F__)
static inline __m512d v_add_exact_512(__m512d sum, __m512d a, __m512d b)
{
    return _mm512_fmadd_pd(a, b, sum);
}
#endif

#endif
