/*
 * fma.h - the only place of fused multiply-add. It is used where the product is exact, so that one
 * rounding and two give the same bits, and for quotients that are rounded to integers next. Either
 * way the kernels without it agree.
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

/*
 * x * (hi + lo), hi + lo being 1 / s: so near to x / s that both become the same integer, as
 * kernels/README.md shows.
 */
static inline __m256 v_times_parts(__m256 x, __m256 hi, __m256 lo)
{
    return _mm256_fmadd_ps(x, hi, _mm256_mul_ps(x, lo));
}

/* 1 - a * b, exact where b is 1 / a, rounded: it needs as many bits as either has. */
static inline __m256 v_left_of_one(__m256 a, __m256 b)
{
    return _mm256_fnmadd_ps(a, b, _mm256_set1_ps(1));
}

#if defined(__AVX512F__)
static inline __m512 v_left_of_one_512(__m512 a, __m512 b)
{
    return _mm512_fnmadd_ps(a, b, _mm512_set1_ps(1));
}

static inline __m512 v_times_parts_512(__m512 x, __m512 hi, __m512 lo)
{
    return _mm512_fmadd_ps(x, hi, _mm512_mul_ps(x, lo));
}

static inline __m512d v_add_exact_512(__m512d sum, __m512d a, __m512d b)
{
    return _mm512_fmadd_pd(a, b, sum);
}
#endif

#endif
