/*
 * lanes_avx2.h - the vocabulary of affine.inc.h for AVX2 with F16C: 8 lanes of f32, 4 of f64. Each
 * word gives the bits that lanes_plain.inc.h gives; masks are lanes of ones or zeros.
 */
#ifndef QP_KERNELS_OPS_LANES_AVX2_H
#define QP_KERNELS_OPS_LANES_AVX2_H

#include "kernels/tiles/simd_avx2.h"

#include <math.h>
#include <stdbool.h>

/* ---- Both precisions ---------------------------------------------------------------------------
 */

/* T: the lanes, I: the suffix of the instructions, W: of one lane, ALL: every bit of a movemask. */
#define QP_LANES(V, T, I, W, MAX, ALL)                                                             \
    typedef T V##_lanes;                                                                           \
    typedef T V##_mask;                                                                            \
                                                                                                   \
    static inline T V##_set(W x)                                                                   \
    {                                                                                              \
        return _mm256_set1_##I(x);                                                                 \
    }                                                                                              \
    static inline T V##_load(const W *p)                                                           \
    {                                                                                              \
        return _mm256_loadu_##I(p);                                                                \
    }                                                                                              \
    static inline T V##_sub(T a, T b)                                                              \
    {                                                                                              \
        return _mm256_sub_##I(a, b);                                                               \
    }                                                                                              \
    static inline T V##_mul(T a, T b)                                                              \
    {                                                                                              \
        return _mm256_mul_##I(a, b);                                                               \
    }                                                                                              \
    static inline T V##_div(T a, T b)                                                              \
    {                                                                                              \
        return _mm256_div_##I(a, b);                                                               \
    }                                                                                              \
    /* Adding 0 makes a negative zero positive. */                                                 \
    static inline T V##_rne(T x)                                                                   \
    {                                                                                              \
        const T near = _mm256_round_##I(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);         \
        return _mm256_add_##I(near, _mm256_setzero_##I());                                         \
    }                                                                                              \
    static inline T V##_clamp(T x, T least, T most)                                                \
    {                                                                                              \
        return _mm256_min_##I(most, _mm256_max_##I(least, x));                                     \
    }                                                                                              \
    static inline T V##_clip(T x)                                                                  \
    {                                                                                              \
        return V##_clamp(x, V##_set(-(MAX)), V##_set(MAX));                                        \
    }                                                                                              \
    static inline T V##_within(T x, T least, T most)                                               \
    {                                                                                              \
        return _mm256_and_##I(_mm256_cmp_##I(x, least, _CMP_GE_OQ),                                \
                              _mm256_cmp_##I(x, most, _CMP_LE_OQ));                                \
    }                                                                                              \
    static inline T V##_is_number(T x)                                                             \
    {                                                                                              \
        return _mm256_cmp_##I(x, x, _CMP_ORD_Q);                                                   \
    }                                                                                              \
    static inline T V##_keep(T mask, T x)                                                          \
    {                                                                                              \
        return _mm256_and_##I(mask, x);                                                            \
    }                                                                                              \
    static inline bool V##_any_not(T mask)                                                         \
    {                                                                                              \
        return _mm256_movemask_##I(mask) != (ALL);                                                 \
    }                                                                                              \
    static inline T V##_one_nan(T x)                                                               \
    {                                                                                              \
        return _mm256_blendv_##I(V##_set((W)NAN), x, V##_is_number(x));                            \
    }                                                                                              \
    static inline unsigned V##_count_large(T x, W half_way, T from)                                \
    {                                                                                              \
        const T sign = V##_set((W)-0.0);                                                           \
        const T large = _mm256_cmp_##I(_mm256_andnot_##I(sign, x), V##_set(half_way), _CMP_GE_OQ); \
        if (_mm256_movemask_##I(large) == 0) /* nearly always */                                   \
            return 0;                                                                              \
        const T finite = _mm256_cmp_##I(_mm256_andnot_##I(sign, from), V##_set(MAX), _CMP_LE_OQ);  \
        return (unsigned)__builtin_popcount(                                                       \
            (unsigned)_mm256_movemask_##I(_mm256_and_##I(large, finite)));                         \
    }

QP_LANES(f32x8, __m256, ps, float, 0x1.fffffep127f, 255)
QP_LANES(f64x4, __m256d, pd, double, 0x1.fffffffffffffp1023, 15)

#undef QP_LANES

static inline __m256 f32x8_load_ints(const int32_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline __m256d f64x4_load_ints(const int32_t *p)
{
    return _mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)p));
}

static inline void f32x8_store_ints(int32_t *p, __m256 x)
{
    _mm256_storeu_si256((__m256i *)p, _mm256_cvtps_epi32(x));
}

static inline void f64x4_store_ints(int32_t *p, __m256d x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtpd_epi32(x));
}

/* ---- Terms -------------------------------------------------------------------------------------
 */

static inline void f64x4_scale_terms(__m256d dout, __m256d x, __m256d scale, __m256d steps,
                                     __m256d inside, __m256d number, double *terms)
{
    const __m256d quotient = _mm256_div_pd(x, scale);
    const __m256d factor = _mm256_blendv_pd(steps, _mm256_sub_pd(steps, quotient), inside);
    _mm256_storeu_pd(terms, _mm256_and_pd(number, _mm256_mul_pd(dout, factor)));
}

static inline void f64x4_zero_terms(__m256d dout, __m256d scale, __m256d inside, __m256d number,
                                    double *terms)
{
    const __m256d product = _mm256_mul_pd(dout, scale);
    const __m256d term = _mm256_xor_pd(product, _mm256_set1_pd(-0.0));
    _mm256_storeu_pd(terms, _mm256_and_pd(_mm256_andnot_pd(inside, number), term));
}

/* The lower or upper half of 8 lanes as f64, exactly; and of a mask. */
static inline __m256d f32x8_half(__m256 x, int upper)
{
    return _mm256_cvtps_pd(upper ? _mm256_extractf128_ps(x, 1) : _mm256_castps256_ps128(x));
}

static inline __m256d f32x8_half_mask(__m256 mask, int upper)
{
    const __m256i bits = _mm256_castps_si256(mask);
    return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(upper ? _mm256_extracti128_si256(bits, 1)
                                                           : _mm256_castsi256_si128(bits)));
}

static inline void f32x8_scale_terms(__m256 dout, __m256 x, __m256 scale, __m256 steps,
                                     __m256 inside, __m256 number, double *terms)
{
    for (int k = 0; k < 2; k++)
        f64x4_scale_terms(f32x8_half(dout, k), f32x8_half(x, k), f32x8_half(scale, k),
                          f32x8_half(steps, k), f32x8_half_mask(inside, k),
                          f32x8_half_mask(number, k), terms + (size_t)k * 4);
}

static inline void f32x8_zero_terms(__m256 dout, __m256 scale, __m256 inside, __m256 number,
                                    double *terms)
{
    for (int k = 0; k < 2; k++)
        f64x4_zero_terms(f32x8_half(dout, k), f32x8_half(scale, k), f32x8_half_mask(inside, k),
                         f32x8_half_mask(number, k), terms + (size_t)k * 4);
}

/* ---- Elements ----------------------------------------------------------------------------------
 */

static inline void v_gradient_f32(unsigned char *p, vf x)
{
    _mm256_storeu_ps((float *)(void *)p, x);
}

static inline void v_gradient_f16(unsigned char *p, vf x)
{
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline void v_gradient_bf16(unsigned char *p, vf x)
{
    v_round_bf16(p, x);
}

static inline void v_keep_32(unsigned char *p, const unsigned char *from, vf mask)
{
    const vf bits = _mm256_loadu_ps((const float *)(const void *)from);
    _mm256_storeu_ps((float *)(void *)p, _mm256_and_ps(mask, bits));
}

/* The mask of 16-bit elements is the saturated one of 32-bit lanes. */
static inline void v_keep_16(unsigned char *p, const unsigned char *from, vf mask)
{
    const vi wide = _mm256_castps_si256(mask);
    const __m128i half =
        _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128((__m128i *)p, _mm_and_si128(half, _mm_loadu_si128((const __m128i *)from)));
}

static inline __m256d v_load_f64(const unsigned char *p)
{
    return _mm256_loadu_pd((const double *)(const void *)p);
}

static inline void v_store_f64(unsigned char *p, __m256d x)
{
    _mm256_storeu_pd((double *)(void *)p, x);
}

static inline void v_keep_64(unsigned char *p, const unsigned char *from, __m256d mask)
{
    v_store_f64(p, _mm256_and_pd(mask, v_load_f64(from)));
}

#endif
