/*
 * simd_avx2.h - the vector vocabulary for AVX2 with F16C: 8 lanes of f32.
 *
 * The loops of vector.inc.h are written in these words alone. min and max return their second
 * operand if one is NaN, as the instructions do: v_min(limit, x) lets a NaN in x pass.
 */
#ifndef QP_SIMD_AVX2_H
#define QP_SIMD_AVX2_H

#include "fma.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define V_LANES 8

typedef __m256 vf;  /* f32 lanes */
typedef __m256i vi; /* i32 lanes */
typedef __m256i vh; /* twice as many 16-bit lanes */
typedef __m256d vd; /* half as many f64 lanes */
typedef __m256 vm;  /* yes or no for each lane: all its bits */

static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

/* 1 - s * y, where y = 1 / s. */
static inline vf v_left(vf s, vf y)
{
    return v_left_of_one(s, y);
}

/* x * (hi + lo), to be rounded to an integer. */
static inline vf v_times(vf x, vf hi, vf lo)
{
    return v_times_parts(x, hi, lo);
}

static inline vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/* The largest lane; none is NaN. */
static inline float v_top(vf a)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

/* Lanes of a where a is finite, elsewhere 0; *all tells whether every lane is. */
static inline vf v_finite_or_zero(vf a, int *all)
{
    vf mask = _mm256_cmp_ps(v_abs(a), _mm256_set1_ps(0x1.fffffep127f), _CMP_LE_OQ);
    *all = _mm256_movemask_ps(mask) == 255;
    return _mm256_and_ps(mask, a);
}

/* Lanes of a where x == y, elsewhere of b. */
static inline vf v_where_equal(vf x, vf y, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_EQ_OQ));
}

/* Lanes of x that lie between two others, elsewhere of b. */
static inline vf v_where_between(vf least, vf x, vf most, vf b)
{
    vf mask =
        _mm256_and_ps(_mm256_cmp_ps(x, least, _CMP_GT_OQ), _mm256_cmp_ps(x, most, _CMP_LT_OQ));
    return _mm256_blendv_ps(b, x, mask);
}

/* V_LANES numbers times a factor, each step rounded. */
static inline vf v_load_scaled(const double *p, double factor)
{
    const vd f = _mm256_set1_pd(factor);
    __m128 low = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_loadu_pd(p), f));
    __m128 high = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_loadu_pd(p + 4), f));
    return _mm256_set_m128(high, low);
}

/* The lanes in which a <= b. */
static inline vm v_at_most(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}

static inline vm vm_and(vm a, vm b)
{
    return _mm256_and_ps(a, b);
}

/* Whether it is yes in every lane. */
static inline int vm_all(vm mask)
{
    return _mm256_movemask_ps(mask) == 255;
}

/* The lanes of yes as bits, of which V_ALL has every one. */
static inline unsigned vm_lanes(vm mask)
{
    return (unsigned)_mm256_movemask_ps(mask);
}

#define V_ALL 0xffu

/* The lanes in which a == b. */
static inline vm v_equal(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

/* base - round half to even of x, as integers. */
static inline vi v_minus_rounded(int32_t base, vf x)
{
    return _mm256_sub_epi32(_mm256_set1_epi32(base), _mm256_cvtps_epi32(x));
}

/* ---- The bits of floats as integers ------------------------------------------------------------
 */

#define V_BYTES 32

typedef __m256i vb; /* V_BYTES of elements */

static inline vb vb_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vb vb_load(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The first n bytes, and zeros. */
static inline vb vb_load_part(const unsigned char *p, size_t n)
{
    unsigned char part[V_BYTES] = {0};
    memcpy(part, p, n);
    return vb_load(part);
}

static inline void vb_store(unsigned char *p, vb x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

/* The larger of each element as an unsigned integer, and as a signed one. */
static inline vb vb16_max_u(vb a, vb b)
{
    return _mm256_max_epu16(a, b);
}

static inline vb vb16_max_s(vb a, vb b)
{
    return _mm256_max_epi16(a, b);
}

static inline vb vb32_max_u(vb a, vb b)
{
    return _mm256_max_epu32(a, b);
}

static inline vb vb32_max_s(vb a, vb b)
{
    return _mm256_max_epi32(a, b);
}

/* The largest element, unsigned. The least of 8 is one instruction: so it is looked for in ~a. */
static inline uint32_t vb16_top_u(vb a)
{
    __m128i half = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return 0xffff ^ ((uint32_t)_mm_cvtsi128_si32(least) & 0xffff);
}

static inline uint32_t vb32_top_u(vb a)
{
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1)));
}

/* The 32-bit lanes of even and of odd number, of a and b in turn, within halves. */
static inline vb vb_even32(vb a, vb b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

static inline vb vb_odd32(vb a, vb b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}

/* The 64-bit lanes of even and of odd number, likewise. */
static inline vb vb_even64(vb a, vb b)
{
    return _mm256_unpacklo_epi64(a, b);
}

static inline vb vb_odd64(vb a, vb b)
{
    return _mm256_unpackhi_epi64(a, b);
}

/* The largest elements of two vectors, unsigned: of a in the lower half, of b in the upper. */
static inline vb vb16_meet(vb a, vb b)
{
    return vb16_max_u(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

static inline vb vb32_meet(vb a, vb b)
{
    return vb32_max_u(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/*
 * Stores the largest element of each lower half of V_LANES vectors, which are used up, and of each
 * upper one. Quarters of two vectors come together in one, then eighths of four.
 */
static inline void vb16_store_tops(unsigned char *low, unsigned char *high, vb a[V_LANES])
{
    for (int i = 0; i < 4; i++)
        a[i] = vb16_max_u(vb_even64(a[2 * i], a[2 * i + 1]), vb_odd64(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 2; i++) {
        a[i] = vb16_max_u(vb_even32(a[2 * i], a[2 * i + 1]), vb_odd32(a[2 * i], a[2 * i + 1]));
        a[i] = vb16_max_u(_mm256_srli_epi32(a[i], 16),
                          _mm256_and_si256(a[i], _mm256_set1_epi32(0xffff)));
    }
    const vb tops = _mm256_packus_epi32(a[0], a[1]);
    _mm_storeu_si128((__m128i *)low, _mm256_castsi256_si128(tops));
    _mm_storeu_si128((__m128i *)high, _mm256_extracti128_si256(tops, 1));
}

static inline void vb32_store_tops(unsigned char *low, unsigned char *high, vb a[V_LANES])
{
    for (int i = 0; i < 4; i++)
        a[i] = vb32_max_u(vb_even64(a[2 * i], a[2 * i + 1]), vb_odd64(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        a[i] = vb32_max_u(vb_even32(a[2 * i], a[2 * i + 1]), vb_odd32(a[2 * i], a[2 * i + 1]));
    _mm256_storeu_si256((__m256i *)low, _mm256_permute2x128_si256(a[0], a[1], 0x20));
    _mm256_storeu_si256((__m256i *)high, _mm256_permute2x128_si256(a[0], a[1], 0x31));
}

/* ---- Elements ----------------------------------------------------------------------------------
 */

static inline vf v_load_f32(const unsigned char *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}

static inline vf v_load_f16(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* A load that fills both halves costs no more than one of a half, and then one step is enough. */
static inline vf v_load_bf16(const unsigned char *p)
{
    const vi places =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, /**/
                         -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    vi twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, places));
}

/* What is infinite becomes the largest finite value. */
static inline void v_store_f32(unsigned char *p, vf x)
{
    const vf most = _mm256_set1_ps(0x1.fffffep127f), least = _mm256_set1_ps(-0x1.fffffep127f);
    _mm256_storeu_ps((float *)(void *)p, v_max(least, v_min(most, x)));
}

/* Half to even, on the bits with their sign: a carry goes into the exponent, at last to infinity.
 */
static inline vi vi_round_bf16(vf x)
{
    vi bits = _mm256_castps_si256(x);
    vi odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

static inline vf v_near_bf16(vf x)
{
    const vi upper = _mm256_set1_epi32((int32_t)0xffff0000u);
    return _mm256_castsi256_ps(_mm256_and_si256(vi_round_bf16(x), upper));
}

static inline void v_round_bf16(unsigned char *p, vf x)
{
    vi upper = _mm256_srli_epi32(vi_round_bf16(x), 16);
    vi packed = _mm256_packus_epi32(upper, upper);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

/* What would become infinite is made the largest finite value first. */
static inline void v_store_bf16(unsigned char *p, vf x)
{
    const vf most = _mm256_set1_ps(0x1.fep127f), least = _mm256_set1_ps(-0x1.fep127f);
    v_round_bf16(p, v_max(least, v_min(most, x)));
}

static inline void v_store_f16(unsigned char *p, vf x)
{
    __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m128i sign = _mm_and_si128(half, _mm_set1_epi16((int16_t)0x8000));
    __m128i magnitude = _mm_and_si128(half, _mm_set1_epi16(0x7fff));
    magnitude = _mm_min_epi16(magnitude, _mm_set1_epi16(0x7bff));
    _mm_storeu_si128((__m128i *)p, _mm_or_si128(magnitude, sign));
}

/* ---- Codes -------------------------------------------------------------------------------------
 */

/* Codes are made of V_CODES quotients at a time. */
#define V_CODES (4 * V_LANES)

static inline vh vh_set(int16_t x)
{
    return _mm256_set1_epi16(x);
}

/* 2 * V_LANES integers that fit 16 bits, in the order of their packing. */
static inline vh vh_narrow(vi a, vi b)
{
    return _mm256_packs_epi32(a, b);
}

/* The least code and how many steps above it the largest is, in bytes. */
struct v_code_ends {
    vi least, steps;
};

static inline struct v_code_ends v_ends_of(int32_t q_min, int32_t q_max)
{
    return (struct v_code_ends){_mm256_set1_epi8((char)q_min),
                                _mm256_set1_epi8((char)(q_max - q_min))};
}

/*
 * Quotients, rounded half to even, in 16 bits. They are within 512 or NaN: of that the conversion
 * makes the least integer, the only one of its kind.
 */
static inline vh v_round16(vf a, vf b)
{
    return vh_narrow(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
}

/* Rounded quotients with `above` added; NaN, which `numbers` are not, counts as 0. */
static inline vh v_steps16(vf a, vf b, vh above, int numbers)
{
    vh q = v_round16(a, b);
    if (!numbers)
        q = _mm256_andnot_si256(_mm256_cmpeq_epi16(q, _mm256_set1_epi16(INT16_MIN)), q);
    return _mm256_add_epi16(q, above);
}

/* Packing works within halves: groups of four bytes go back to their places. */
static inline void v_store_packed(uint8_t *codes, vi bytes)
{
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)codes, bytes);
}

/*
 * Codes of V_CODES quotients. above: zero point less the least code, for each pair of vectors. The
 * packing clamps to 0 .. 255 steps above the least code.
 */
static inline void v_store_codes(uint8_t *codes, const vf q[4], const vh above[2],
                                 const struct v_code_ends *ends, int numbers)
{
    vi bytes = _mm256_packus_epi16(v_steps16(q[0], q[1], above[0], numbers),
                                   v_steps16(q[2], q[3], above[1], numbers));
    v_store_packed(codes, _mm256_add_epi8(_mm256_min_epu8(bytes, ends->steps), ends->least));
}

/* Codes that are signed bytes with every zero point 0: packing clips both ends. */
static inline void v_store_steps(uint8_t *codes, const vf q[4])
{
    v_store_packed(codes, _mm256_packs_epi16(v_round16(q[0], q[1]), v_round16(q[2], q[3])));
}

/* The differences code - zero of V_LANES codes, as floats. */
static inline vf v_load_codes(const uint8_t *codes, int is_signed, vi zero)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)codes);
    vi wide = is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, zero));
}

static inline void vi_store(int32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)p, x);
}

static inline vi vi_set(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

#include "simd_avx2_floats.h"

/* ---- Errors in f64 -----------------------------------------------------------------------------
 */

/*
 * The lanes in which |x - y| <= limit, in f32. A NaN is not. For limit =
 * sure_limit(bound) a yes is also a yes for the exact difference and bound: f32 rounds it by a
 * factor of 1 + 2^-24 at the most, and the limit is smaller by more.
 */
static inline vm v_within(vf x, vf y, vf limit)
{
    return v_at_most(v_abs(v_sub(x, y)), limit);
}

/* Lanes of a vector of f64. */
#define V_DOUBLES 4

static inline vd vd_zero(void)
{
    return _mm256_setzero_pd();
}

static inline void vd_store(double *p, vd a)
{
    _mm256_storeu_pd(p, a);
}

/* Exactly. A conversion that reads memory is one step, of a register two. */
static inline vd vd_load_wide(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}

static inline vd vd_add(vd a, vd b)
{
    return _mm256_add_pd(a, b);
}

/* sum + a * a of lanes that hold f32 values. */
static inline vd vd_add_square(vd sum, vd a)
{
    return v_add_exact(sum, a, a);
}

/* sum + (a - b)^2, each step rounded. */
static inline vd vd_add_error(vd sum, vd a, vd b)
{
    vd e = _mm256_sub_pd(a, b);
    return vd_add(sum, _mm256_mul_pd(e, e));
}

#endif
