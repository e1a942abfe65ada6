/*
 * tops.h - the largest element, unsigned, of each of eight vectors of AVX2. Halves of two vectors
 * meet in one, then quarters of four, then eighths of eight.
 */
#ifndef QP_TOPS_H
#define QP_TOPS_H

#include <immintrin.h>

/* The 32-bit lanes of even and of odd number, of a and b in turn, within halves. */
static inline __m256i even_lanes(__m256i a, __m256i b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

static inline __m256i odd_lanes(__m256i a, __m256i b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}

static inline void store_tops16(unsigned char *p, const __m256i a[8])
{
    __m256i half[4], quarter[2];
    for (int i = 0; i < 4; i++)
        half[i] = _mm256_max_epu16(_mm256_permute2x128_si256(a[2 * i], a[2 * i + 1], 0x20),
                                   _mm256_permute2x128_si256(a[2 * i], a[2 * i + 1], 0x31));
    for (int i = 0; i < 2; i++)
        quarter[i] = _mm256_max_epu16(_mm256_unpacklo_epi64(half[2 * i], half[2 * i + 1]),
                                      _mm256_unpackhi_epi64(half[2 * i], half[2 * i + 1]));
    __m256i eighth =
        _mm256_max_epu16(even_lanes(quarter[0], quarter[1]), odd_lanes(quarter[0], quarter[1]));
    __m256i top = _mm256_max_epu16(_mm256_srli_epi32(eighth, 16),
                                   _mm256_and_si256(eighth, _mm256_set1_epi32(0xffff)));
    /* Of the vectors 0 2 4 6 in one half, 1 3 5 7 in the other. */
    __m128i even = _mm256_castsi256_si128(top), odd = _mm256_extracti128_si256(top, 1);
    _mm_storeu_si128((__m128i *)p, _mm_or_si128(even, _mm_slli_epi32(odd, 16)));
}

static inline void store_tops32(unsigned char *p, const __m256i a[8])
{
    __m256i half[4], quarter[2];
    for (int i = 0; i < 4; i++)
        half[i] = _mm256_max_epu32(_mm256_permute2x128_si256(a[2 * i], a[2 * i + 1], 0x20),
                                   _mm256_permute2x128_si256(a[2 * i], a[2 * i + 1], 0x31));
    for (int i = 0; i < 2; i++)
        quarter[i] = _mm256_max_epu32(_mm256_unpacklo_epi64(half[2 * i], half[2 * i + 1]),
                                      _mm256_unpackhi_epi64(half[2 * i], half[2 * i + 1]));
    __m256i top =
        _mm256_max_epu32(even_lanes(quarter[0], quarter[1]), odd_lanes(quarter[0], quarter[1]));
    __m128i even = _mm256_castsi256_si128(top), odd = _mm256_extracti128_si256(top, 1);
    _mm_storeu_si128((__m128i *)p, _mm_unpacklo_epi32(even, odd));
    _mm_storeu_si128((__m128i *)(p + 16), _mm_unpackhi_epi32(even, odd));
}

#endif
