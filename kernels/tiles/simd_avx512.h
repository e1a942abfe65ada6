/*
 * simd_avx512.h - the vector vocabulary for AVX-512 (F, BW, DQ and VL): 16 lanes of f32.
 *
 * Word for word that of simd_avx2.h, where each is explained. min and max return their second
 * operand if one is NaN, as there.
 */
#ifndef QP_SIMD_AVX512_H
#define QP_SIMD_AVX512_H

#include "fma.h"

#include <immintrin.h>
#include <stdint.h>

#define V_LANES 16

typedef __m512 vf;    /* f32 lanes */
typedef __m512i vi;   /* i32 lanes */
typedef __m512i vh;   /* twice as many 16-bit lanes */
typedef __m512d vd;   /* half as many f64 lanes */
typedef __mmask16 vm; /* yes or no for each lane: a bit */

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf v_left(vf s, vf y)
{
    return v_left_of_one_512(s, y);
}

static inline vf v_times(vf x, vf hi, vf lo)
{
    return v_times_parts_512(x, hi, lo);
}

static inline vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}

static inline float v_top(vf a)
{
    return _mm512_reduce_max_ps(a);
}

static inline vf v_finite_or_zero(vf a, int *all)
{
    vm mask = _mm512_cmp_ps_mask(v_abs(a), _mm512_set1_ps(0x1.fffffep127f), _CMP_LE_OQ);
    *all = mask == 0xffff;
    return _mm512_maskz_mov_ps(mask, a);
}

static inline vf v_where_equal(vf x, vf y, vf a, vf b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ), b, a);
}

static inline vf v_where_between(vf least, vf x, vf most, vf b)
{
    vm above = _mm512_cmp_ps_mask(x, least, _CMP_GT_OQ);
    return _mm512_mask_blend_ps(_mm512_mask_cmp_ps_mask(above, x, most, _CMP_LT_OQ), b, x);
}

static inline vf v_load_scaled(const double *p, double factor)
{
    const vd f = _mm512_set1_pd(factor);
    __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_loadu_pd(p), f));
    __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_loadu_pd(p + 8), f));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

static inline vm v_at_most(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}

static inline vm vm_and(vm a, vm b)
{
    return a & b;
}

static inline int vm_all(vm mask)
{
    return mask == 0xffff;
}

static inline unsigned vm_lanes(vm mask)
{
    return mask;
}

#define V_ALL 0xffffu

static inline vm v_equal(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline vi v_minus_rounded(int32_t base, vf x)
{
    return _mm512_sub_epi32(_mm512_set1_epi32(base), _mm512_cvtps_epi32(x));
}

/* ---- The bits of floats as integers ------------------------------------------------------------
 */

#define V_BYTES 64

typedef __m512i vb; /* V_BYTES of elements */

static inline vb vb_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vb vb_load(const unsigned char *p)
{
    return _mm512_loadu_si512(p);
}

static inline vb vb_load_part(const unsigned char *p, size_t n)
{
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
}

static inline void vb_store(unsigned char *p, vb x)
{
    _mm512_storeu_si512(p, x);
}

static inline vb vb16_max_u(vb a, vb b)
{
    return _mm512_max_epu16(a, b);
}

static inline vb vb16_max_s(vb a, vb b)
{
    return _mm512_max_epi16(a, b);
}

static inline vb vb32_max_u(vb a, vb b)
{
    return _mm512_max_epu32(a, b);
}

static inline vb vb32_max_s(vb a, vb b)
{
    return _mm512_max_epi32(a, b);
}

static inline uint32_t vb16_top_u(vb a)
{
    __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i quarter =
        _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
    return 0xffff ^ ((uint32_t)_mm_cvtsi128_si32(least) & 0xffff);
}

static inline uint32_t vb32_top_u(vb a)
{
    return _mm512_reduce_max_epu32(a);
}

static inline vb vb16_meet(vb a, vb b)
{
    return vb16_max_u(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

static inline vb vb32_meet(vb a, vb b)
{
    return vb32_max_u(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

static inline vb even32_of(vb a, vb b)
{
    return _mm512_castps_si512(
        _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88));
}

static inline vb odd32_of(vb a, vb b)
{
    return _mm512_castps_si512(
        _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd));
}

/*
 * Two vectors of sixteen, which become eighths: in lane i of the quarters of vector k are the tops
 * of a lower and an upper half, those of vector 8 k + 2 i, and then those of vector 8 k + 2 i + 1.
 */
#define EIGHTHS(max, a)                                                                            \
    for (int i = 0; i < 8; i++)                                                                    \
        (a)[i] = max(_mm512_shuffle_i32x4((a)[2 * i], (a)[2 * i + 1], 0x88),                       \
                     _mm512_shuffle_i32x4((a)[2 * i], (a)[2 * i + 1], 0xdd));                      \
    for (int i = 0; i < 4; i++)                                                                    \
        (a)[i] = max(_mm512_unpacklo_epi64((a)[2 * i], (a)[2 * i + 1]),                            \
                     _mm512_unpackhi_epi64((a)[2 * i], (a)[2 * i + 1]));                           \
    for (int i = 0; i < 2; i++)                                                                    \
        (a)[i] = max(even32_of((a)[2 * i], (a)[2 * i + 1]), odd32_of((a)[2 * i], (a)[2 * i + 1]));

static inline void vb16_store_tops(unsigned char *low, unsigned char *high, vb a[V_LANES])
{
    EIGHTHS(_mm512_max_epu16, a)
    /* Of each pair the larger one: those of a[0] in even places, those of a[1] in odd ones. */
    const __mmask32 odd = 0xaaaaaaaa;
    const vb pairs =
        _mm512_max_epu16(_mm512_mask_blend_epi16(odd, a[0], _mm512_slli_epi32(a[1], 16)),
                         _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(a[0], 16), a[1]));
    const vb tops = _mm512_permutexvar_epi16(
        _mm512_set_epi16(31, 15, 29, 13, 27, 11, 25, 9, 30, 14, 28, 12, 26, 10, 24, 8, /**/
                         23, 7, 21, 5, 19, 3, 17, 1, 22, 6, 20, 4, 18, 2, 16, 0),
        pairs);
    _mm256_storeu_si256((__m256i *)low, _mm512_castsi512_si256(tops));
    _mm256_storeu_si256((__m256i *)high, _mm512_extracti64x4_epi64(tops, 1));
}

static inline void vb32_store_tops(unsigned char *low, unsigned char *high, vb a[V_LANES])
{
    const vi first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    const vi second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    EIGHTHS(_mm512_max_epu32, a)
    _mm512_storeu_si512(low, _mm512_permutex2var_epi32(a[0], first, a[1]));
    _mm512_storeu_si512(high, _mm512_permutex2var_epi32(a[0], second, a[1]));
}

/* ---- Elements ----------------------------------------------------------------------------------
 */

static inline vf v_load_f32(const unsigned char *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf v_load_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline vf v_load_bf16(const unsigned char *p)
{
    vi wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void v_store_f32(unsigned char *p, vf x)
{
    const vf most = _mm512_set1_ps(0x1.fffffep127f), least = _mm512_set1_ps(-0x1.fffffep127f);
    _mm512_storeu_ps(p, v_max(least, v_min(most, x)));
}

static inline vi vi_round_bf16(vf x)
{
    vi bits = _mm512_castps_si512(x);
    vi odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

static inline vf v_near_bf16(vf x)
{
    const vi upper = _mm512_set1_epi32((int32_t)0xffff0000u);
    return _mm512_castsi512_ps(_mm512_and_si512(vi_round_bf16(x), upper));
}

static inline void v_round_bf16(unsigned char *p, vf x)
{
    __m256i upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32(vi_round_bf16(x), 16));
    _mm256_storeu_si256((__m256i *)p, upper);
}

static inline void v_store_bf16(unsigned char *p, vf x)
{
    const vf most = _mm512_set1_ps(0x1.fep127f), least = _mm512_set1_ps(-0x1.fep127f);
    v_round_bf16(p, v_max(least, v_min(most, x)));
}

static inline void v_store_f16(unsigned char *p, vf x)
{
    __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i sign = _mm256_and_si256(half, _mm256_set1_epi16((int16_t)0x8000));
    __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
    magnitude = _mm256_min_epi16(magnitude, _mm256_set1_epi16(0x7bff));
    _mm256_storeu_si256((__m256i *)p, _mm256_or_si256(magnitude, sign));
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

#define V_CODES (4 * V_LANES)

static inline vh vh_set(int16_t x)
{
    return _mm512_set1_epi16(x);
}

static inline vh vh_narrow(vi a, vi b)
{
    return _mm512_packs_epi32(a, b);
}

struct v_code_ends {
    vi least, steps;
};

static inline struct v_code_ends v_ends_of(int32_t q_min, int32_t q_max)
{
    return (struct v_code_ends){_mm512_set1_epi8((char)q_min),
                                _mm512_set1_epi8((char)(q_max - q_min))};
}

static inline vh v_round16(vf a, vf b)
{
    return vh_narrow(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
}

static inline vh v_steps16(vf a, vf b, vh above, int numbers)
{
    vh q = v_round16(a, b);
    if (!numbers)
        q = _mm512_maskz_mov_epi16(_mm512_cmpneq_epi16_mask(q, _mm512_set1_epi16(INT16_MIN)), q);
    return _mm512_add_epi16(q, above);
}

/* Packing works within quarters: groups of four bytes go back to their places. */
static inline void v_store_packed(uint8_t *codes, vi bytes)
{
    const vi places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(places, bytes));
}

static inline void v_store_codes(uint8_t *codes, const vf q[4], const vh above[2],
                                 const struct v_code_ends *ends, int numbers)
{
    vi bytes = _mm512_packus_epi16(v_steps16(q[0], q[1], above[0], numbers),
                                   v_steps16(q[2], q[3], above[1], numbers));
    v_store_packed(codes, _mm512_add_epi8(_mm512_min_epu8(bytes, ends->steps), ends->least));
}

static inline void v_store_steps(uint8_t *codes, const vf q[4])
{
    v_store_packed(codes, _mm512_packs_epi16(v_round16(q[0], q[1]), v_round16(q[2], q[3])));
}

static inline vf v_load_codes(const uint8_t *codes, int is_signed, vi zero)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)codes);
    vi wide = is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, zero));
}

static inline void vi_store(int32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

static inline vi vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- Codes of floats and tables ----------------------------------------------------------------
 */

static inline vi v_bits(vf x)
{
    return _mm512_castps_si512(x);
}

static inline vf v_of_bits(vi bits)
{
    return _mm512_castsi512_ps(bits);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

static inline vi vi_right(vi a, unsigned n)
{
    return _mm512_srli_epi32(a, n);
}

static inline void v_store_bytes(uint8_t *codes, const vi q[4])
{
    v_store_packed(codes, _mm512_packus_epi16(vh_narrow(q[0], q[1]), vh_narrow(q[2], q[3])));
}

static inline void v_store_signed(uint8_t *codes, const vi q[4], const vi of[4], vi sign)
{
    vi bytes = _mm512_packus_epi16(vh_narrow(q[0], q[1]), vh_narrow(q[2], q[3]));
    vi signs = _mm512_packs_epi16(vh_narrow(of[0], of[1]), vh_narrow(of[2], of[3]));
    vi negative = _mm512_movm_epi8(_mm512_movepi8_mask(signs));
    v_store_packed(codes, _mm512_or_si512(bytes, _mm512_and_si512(negative, sign)));
}

static inline vi vi_load_bytes(const uint8_t *codes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes));
}

static inline vf v_load_halves(const uint8_t *codes, unsigned left, unsigned mask, unsigned sign)
{
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)codes));
    __m256i size =
        _mm256_and_si256(_mm256_slli_epi16(wide, (int)left), _mm256_set1_epi16((int16_t)mask));
    __m256i signs =
        _mm256_and_si256(_mm256_slli_epi16(wide, (int)sign), _mm256_set1_epi16(INT16_MIN));
    return _mm512_cvtph_ps(_mm256_or_si256(size, signs));
}

struct v_table {
    vf all;
};

static inline struct v_table v_table_of(const float *numbers)
{
    return (struct v_table){v_load(numbers)};
}

static inline vf v_pick8(const struct v_table *table, vi index)
{
    return _mm512_permutexvar_ps(index, table->all);
}

static inline vf v_pick16(const struct v_table *table, vi index)
{
    return _mm512_permutexvar_ps(index, table->all);
}

static inline vi vi_twice_above(vi a, vf x, vf limit)
{
    vi twice = _mm512_add_epi32(a, a);
    return _mm512_mask_add_epi32(twice, _mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), twice,
                                 _mm512_set1_epi32(1));
}

/* ---- Errors in f64 -----------------------------------------------------------------------------
 */

static inline vm v_within(vf x, vf y, vf limit)
{
    return v_at_most(v_abs(v_sub(x, y)), limit);
}

#define V_DOUBLES 8

static inline vd vd_zero(void)
{
    return _mm512_setzero_pd();
}

static inline void vd_store(double *p, vd a)
{
    _mm512_storeu_pd(p, a);
}

static inline vd vd_load_wide(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

static inline vd vd_add(vd a, vd b)
{
    return _mm512_add_pd(a, b);
}

static inline vd vd_add_square(vd sum, vd a)
{
    return v_add_exact_512(sum, a, a);
}

static inline vd vd_add_error(vd sum, vd a, vd b)
{
    vd e = _mm512_sub_pd(a, b);
    return vd_add(sum, _mm512_mul_pd(e, e));
}

#endif
