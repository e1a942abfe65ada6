/*
 * simd_avx2_floats.h - the words of simd_avx2.h for codes of floats and tables, which includes it.
 */
#ifndef QP_SIMD_AVX2_FLOATS_H
#define QP_SIMD_AVX2_FLOATS_H

#include "simd_avx2.h"

static inline vi v_bits(vf x)
{
    return _mm256_castps_si256(x);
}

static inline vf v_of_bits(vi bits)
{
    return _mm256_castsi256_ps(bits);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

static inline vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

/* Shifted to the right, without a sign. */
static inline vi vi_right(vi a, unsigned n)
{
    return _mm256_srli_epi32(a, (int)n);
}

/* Stores V_CODES integers from 0 to 255. */
static inline void v_store_bytes(uint8_t *codes, const vi q[4])
{
    v_store_packed(codes, _mm256_packus_epi16(vh_narrow(q[0], q[1]), vh_narrow(q[2], q[3])));
}

/* Such integers below the bit of a sign, and that bit where other integers are below 0. */
static inline void v_store_signed(uint8_t *codes, const vi q[4], const vi of[4], vi sign)
{
    vi bytes = _mm256_packus_epi16(vh_narrow(q[0], q[1]), vh_narrow(q[2], q[3]));
    vi signs = _mm256_packs_epi16(vh_narrow(of[0], of[1]), vh_narrow(of[2], of[3]));
    vi negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), signs);
    v_store_packed(codes, _mm256_or_si256(bytes, _mm256_and_si256(negative, sign)));
}

static inline vi vi_load_bytes(const uint8_t *codes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)codes));
}

/* The f16 of each byte: its bits `left` further up under the mask, and bit 15 from `sign` below. */
static inline vf v_load_halves(const uint8_t *codes, unsigned left, unsigned mask, unsigned sign)
{
    __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)codes));
    __m128i size = _mm_and_si128(_mm_slli_epi16(wide, (int)left), _mm_set1_epi16((int16_t)mask));
    __m128i signs = _mm_and_si128(_mm_slli_epi16(wide, (int)sign), _mm_set1_epi16(INT16_MIN));
    return _mm256_cvtph_ps(_mm_or_si128(size, signs));
}

/* 16 numbers to pick from by index, and 8 of them. */
struct v_table {
    vf low, high;
};

static inline struct v_table v_table_of(const float *numbers)
{
    return (struct v_table){v_load(numbers), v_load(numbers + 8)};
}

static inline vf v_pick8(const struct v_table *table, vi index)
{
    return _mm256_permutevar8x32_ps(table->low, index);
}

static inline vf v_pick16(const struct v_table *table, vi index)
{
    vf low = _mm256_permutevar8x32_ps(table->low, index);
    vf high = _mm256_permutevar8x32_ps(table->high, index);
    return _mm256_blendv_ps(low, high, v_of_bits(_mm256_slli_epi32(index, 28)));
}

/* 2 a + 1 in lanes where x is above a limit, elsewhere 2 a. */
static inline vi vi_twice_above(vi a, vf x, vf limit)
{
    vi above = v_bits(_mm256_cmp_ps(x, limit, _CMP_GT_OQ));
    return _mm256_sub_epi32(_mm256_add_epi32(a, a), above);
}

#endif
