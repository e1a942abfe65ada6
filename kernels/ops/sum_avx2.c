/*
 * sum_avx2.c - deterministic sums with AVX2 and F16C: four columns at a time.
 *
 * Columns do not meet, so four of them side by side are the same additions in the same order as
 * one by one, and the bits are those of sum.c, which also takes what is left over at the end.
 */
#include "sum.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

/* ---- Four terms -------------------------------------------------------------------------------
 */

static inline __m256d load_f64(const unsigned char *p)
{
    return _mm256_loadu_pd((const double *)(const void *)p);
}

static inline __m256d load_f32(const unsigned char *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps((const float *)(const void *)p));
}

static inline __m256d load_f16(const unsigned char *p)
{
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256d load_bf16(const unsigned char *p)
{
    const __m128i bits = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(bits, 16)));
}

/* ---- Four results -----------------------------------------------------------------------------
 */

/* Which of four doubles, as a mask of four 32-bit words. */
static inline __m128i narrow_mask(__m256d mask)
{
    const __m256i words = _mm256_castpd_si256(mask);
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(words, even));
}

static inline __m256d magnitude(__m256d x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

static inline __m256d is_nan(__m256d x)
{
    return _mm256_cmp_pd(x, x, _CMP_UNORD_Q);
}

/* One bit for each finite x at or beyond the least magnitude that is stored as infinity. */
static inline unsigned count_overflow(__m256d x, double least)
{
    const __m256d size = magnitude(x);
    const __m256d large = _mm256_cmp_pd(size, _mm256_set1_pd(least), _CMP_GE_OQ);
    const __m256d finite = _mm256_cmp_pd(size, _mm256_set1_pd((double)INFINITY), _CMP_LT_OQ);
    return (unsigned)__builtin_popcount((unsigned)_mm256_movemask_pd(_mm256_and_pd(large, finite)));
}

/*
 * x as f32, rounded to odd: toward zero, and what was cut off sets the last bit. An f32 has more
 * than two bits beyond the 16-bit types, so that rounding this to one of them is rounding x once
 * (Boldo and Melquiond). The nearest f32 is one step too far where it is larger than x; where
 * that is infinity, the step back is the largest finite number, which is odd.
 */
static inline __m128i round_to_odd(__m256d x)
{
    const __m128 near = _mm256_cvtpd_ps(x);
    const __m256d back = _mm256_cvtps_pd(near);
    const __m128i beyond = narrow_mask(_mm256_cmp_pd(magnitude(back), magnitude(x), _CMP_GT_OQ));
    const __m128i cut = narrow_mask(_mm256_cmp_pd(back, x, _CMP_NEQ_OQ));
    const __m128i toward_zero = _mm_add_epi32(_mm_castps_si128(near), beyond);
    return _mm_or_si128(toward_zero, _mm_srli_epi32(cut, 31));
}

static inline unsigned store_f64(unsigned char *p, __m256d x)
{
    const __m256d quiet = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000));
    _mm256_storeu_pd((double *)(void *)p, _mm256_blendv_pd(x, quiet, is_nan(x)));
    return 0;
}

static inline unsigned store_f32(unsigned char *p, __m256d x)
{
    const __m128 quiet = _mm_castsi128_ps(_mm_set1_epi32(0x7fc00000));
    const __m128 y =
        _mm_blendv_ps(_mm256_cvtpd_ps(x), quiet, _mm_castsi128_ps(narrow_mask(is_nan(x))));
    _mm_storeu_ps((float *)(void *)p, y);
    return count_overflow(x, 0x1.ffffffp127);
}

static inline unsigned store_f16(unsigned char *p, __m256d x)
{
    const __m128i quiet = _mm_set1_epi16(0x7e00), mask = narrow_mask(is_nan(x));
    const __m128 odd = _mm_castsi128_ps(round_to_odd(x));
    const __m128i half = _mm_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT);
    const __m128i y = _mm_blendv_epi8(half, quiet, _mm_packs_epi32(mask, mask));
    _mm_storel_epi64((__m128i *)(void *)p, y);
    return count_overflow(x, 65520);
}

/* Half of the last place that stays, less one where that place is even, carries where it must. */
static inline unsigned store_bf16(unsigned char *p, __m256d x)
{
    const __m128i bits = round_to_odd(x);
    const __m128i last = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    const __m128i half = _mm_add_epi32(last, _mm_set1_epi32(0x7fff));
    const __m128i rounded = _mm_srli_epi32(_mm_add_epi32(bits, half), 16);
    const __m128i y = _mm_blendv_epi8(rounded, _mm_set1_epi32(0x7fc0), narrow_mask(is_nan(x)));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi32(y, y));
    return count_overflow(x, 0x1.ffp127);
}

/* ---- Four sums --------------------------------------------------------------------------------
 */

/* f64 that is exact enough by itself. */
struct plain_four {
    __m256d hi;
};

static inline struct plain_four plain_load(const double *hi, const double *lo)
{
    (void)lo;
    return (struct plain_four){_mm256_loadu_pd(hi)};
}

static inline void plain_store(const struct plain_four *sum, double *hi, double *lo)
{
    (void)lo;
    _mm256_storeu_pd(hi, sum->hi);
}

static inline void plain_add(struct plain_four *sum, __m256d x)
{
    sum->hi = _mm256_add_pd(sum->hi, x);
}

static inline struct plain_four plain_of(__m256d x)
{
    return (struct plain_four){x};
}

static inline __m256d plain_value(const struct plain_four *sum)
{
    return sum->hi;
}

/* f64 with the errors kept. */
struct exact_four {
    __m256d hi, lo;
};

static inline struct exact_four exact_load(const double *hi, const double *lo)
{
    return (struct exact_four){_mm256_loadu_pd(hi), _mm256_loadu_pd(lo)};
}

static inline void exact_store(const struct exact_four *sum, double *hi, double *lo)
{
    _mm256_storeu_pd(hi, sum->hi);
    _mm256_storeu_pd(lo, sum->lo);
}

/* qp_sum_add. */
static inline void exact_add(struct exact_four *sum, __m256d x)
{
    const __m256d total = _mm256_add_pd(sum->hi, x), part = _mm256_sub_pd(total, sum->hi);
    const __m256d error =
        _mm256_add_pd(_mm256_sub_pd(sum->hi, _mm256_sub_pd(total, part)), _mm256_sub_pd(x, part));
    sum->lo = _mm256_add_pd(sum->lo, error);
    sum->hi = total;
}

static inline struct exact_four exact_of(__m256d x)
{
    return (struct exact_four){x, _mm256_setzero_pd()};
}

/* qp_sum_value. */
static inline __m256d exact_value(const struct exact_four *sum)
{
    const __m256d finite =
        _mm256_cmp_pd(magnitude(sum->hi), _mm256_set1_pd((double)INFINITY), _CMP_LT_OQ);
    return _mm256_blendv_pd(sum->hi, _mm256_add_pd(sum->hi, sum->lo), finite);
}

/* ---- Columns ----------------------------------------------------------------------------------
 */

/* DO with the four sums from column i on, for as many columns as fours reach. */
#define EACH_FOUR(KIND, DO)                                                                        \
    for (; i + 4 <= n; i += 4) {                                                                   \
        struct KIND##_four sum = KIND##_load(hi + i, LO_##KIND(lo, i));                            \
        DO;                                                                                        \
        KIND##_store(&sum, hi + i, LO_##KIND(lo, i));                                              \
    }

/* Sixteen columns of several rows: their sums stay in registers. */
#define SIXTEEN(NAME, SIZE, KIND)                                                                  \
    static inline void sixteen_##NAME(size_t at, size_t n_rows, const void *const *rows,           \
                                      double *hi, double *lo)                                      \
    {                                                                                              \
        struct KIND##_four sums[4];                                                                \
        for (size_t k = 0; k < 4; k++)                                                             \
            sums[k] = KIND##_load(hi + 4 * k, LO_##KIND(lo, 4 * k));                               \
        for (size_t row = 0; row < n_rows; row++) {                                                \
            const unsigned char *p = (const unsigned char *)rows[row] + at * (SIZE);               \
            for (size_t k = 0; k < 4; k++)                                                         \
                KIND##_add(&sums[k], load_##NAME(p + 4 * k * (SIZE)));                             \
        }                                                                                          \
        for (size_t k = 0; k < 4; k++)                                                             \
            KIND##_store(&sums[k], hi + 4 * k, LO_##KIND(lo, 4 * k));                              \
    }

#define KERNELS(NAME, DTYPE, SIZE, KIND)                                                           \
    SIXTEEN(NAME, SIZE, KIND)                                                                      \
                                                                                                   \
    static void add_##NAME(size_t n, const void *src, double *hi, double *lo)                      \
    {                                                                                              \
        const unsigned char *p = src;                                                              \
        size_t i = 0;                                                                              \
        EACH_FOUR(KIND, KIND##_add(&sum, load_##NAME(p + i * (SIZE))))                             \
        qp_sum_##NAME.add(n - i, p + i * (SIZE), hi + i, LO_##KIND(lo, i));                        \
    }                                                                                              \
                                                                                                   \
    static void add_rows_##NAME(size_t n, size_t n_rows, const void *const *rows, double *hi,      \
                                double *lo)                                                        \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16)                                                               \
            sixteen_##NAME(i, n_rows, rows, hi + i, LO_##KIND(lo, i));                             \
        for (size_t row = 0; row < n_rows; row++)                                                  \
            add_##NAME(n - i, (const unsigned char *)rows[row] + i * (SIZE), hi + i,               \
                       LO_##KIND(lo, i));                                                          \
    }                                                                                              \
                                                                                                   \
    static void add_over_##NAME(size_t n, const void *src, double divisor, double *hi, double *lo) \
    {                                                                                              \
        const unsigned char *p = src;                                                              \
        const __m256d d = _mm256_set1_pd(divisor);                                                 \
        size_t i = 0;                                                                              \
        EACH_FOUR(KIND, KIND##_add(&sum, _mm256_div_pd(load_##NAME(p + i * (SIZE)), d)))           \
        qp_sum_##NAME.add_over(n - i, p + i * (SIZE), divisor, hi + i, LO_##KIND(lo, i));          \
    }                                                                                              \
                                                                                                   \
    static void add_f64_##NAME(size_t n, const double *terms, double *hi, double *lo)              \
    {                                                                                              \
        size_t i = 0;                                                                              \
        EACH_FOUR(KIND, KIND##_add(&sum, _mm256_loadu_pd(terms + i)))                              \
        qp_sum_##NAME.add_f64(n - i, terms + i, hi + i, LO_##KIND(lo, i));                         \
    }                                                                                              \
                                                                                                   \
    static void divide_##NAME(size_t n, double divisor, double *hi, double *lo)                    \
    {                                                                                              \
        const __m256d d = _mm256_set1_pd(divisor);                                                 \
        size_t i = 0;                                                                              \
        EACH_FOUR(KIND, sum = KIND##_of(_mm256_div_pd(KIND##_value(&sum), d)))                     \
        qp_sum_##NAME.divide(n - i, divisor, hi + i, LO_##KIND(lo, i));                            \
    }                                                                                              \
                                                                                                   \
    static uint64_t finish_##NAME(size_t n, const double *hi, const double *lo, void *dst)         \
    {                                                                                              \
        unsigned char *to = dst;                                                                   \
        uint64_t overflow = 0;                                                                     \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4) {                                                               \
            const struct KIND##_four sum = KIND##_load(hi + i, LO_##KIND(lo, i));                  \
            overflow += store_##NAME(to + i * (SIZE), KIND##_value(&sum));                         \
        }                                                                                          \
        return overflow + qp_sum_##NAME.finish(n - i, hi + i, LO_##KIND(lo, i), to + i * (SIZE));  \
    }                                                                                              \
                                                                                                   \
    static const struct qp_sum_kernels avx2_##NAME = {                                             \
        .dtype = (DTYPE),                                                                          \
        .isa = QPLAN_ISA_AVX2,                                                                     \
        .keeps_errors = KEEPS_##KIND,                                                              \
        .add = add_##NAME,                                                                         \
        .add_rows = add_rows_##NAME,                                                               \
        .add_over = add_over_##NAME,                                                               \
        .add_f64 = add_f64_##NAME,                                                                 \
        .divide = divide_##NAME,                                                                   \
        .finish = finish_##NAME,                                                                   \
    };

/* Plain sums have no lo: NULL, to which nothing may be added. */
#define LO_plain(lo, i) (lo)
#define LO_exact(lo, i) ((lo) + (i))
#define KEEPS_plain     false
#define KEEPS_exact     true

KERNELS(f64, QPLAN_F64, 8, exact)
KERNELS(f32, QPLAN_F32, 4, plain)
KERNELS(f16, QPLAN_F16, 2, plain)
KERNELS(bf16, QPLAN_BF16, 2, plain)

const struct qp_sum_kernels *const qp_sum_avx2_rows[] = {
    &avx2_f64, &avx2_f32, &avx2_f16, &avx2_bf16, NULL,
};

#else /* another architecture */

const struct qp_sum_kernels *const qp_sum_avx2_rows[] = {NULL};

#endif
