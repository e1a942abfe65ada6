/*
 * isa_avx2.c - the kernels for AVX2 with F16C and FMA: the vector loops in its vocabulary.
 */
#include "codecs.h"
#include "rows.h"

#if defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)

#include "simd_avx2.h"

#define ISA QPLAN_ISA_AVX2
#include "vector_rows.inc.h"

const struct qp_source_kernels *const qp_avx2_sources[] = {
    &source_from_f32,
    &source_from_f16,
    &source_from_bf16,
    NULL,
};

const struct qp_quantizer *const qp_avx2_quantizers[] = {
    &linear_from_f32,
    &linear_from_f16,
    &linear_from_bf16,
    &biased_from_f32,
    &biased_from_f16,
    &biased_from_bf16,
    &floats_from_f32,
    &floats_from_f16,
    &floats_from_bf16,
    &book_from_f32,
    &book_from_f16,
    &book_from_bf16,
    NULL,
};

/* ---- 4-bit codes ------------------------------------------------------------------------------
 */

/* 32 codes to 16 bytes: neighbours are joined by a multiplication with (1, 16). */
static inline void v_pack32(const uint8_t *codes, uint8_t flip, uint8_t *packed)
{
    vi flipped =
        _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)codes), _mm256_set1_epi8((char)flip));
    vi low = _mm256_and_si256(flipped, _mm256_set1_epi8(15));
    vh joined = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
    vi bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(joined, joined), 0x08);
    _mm_storeu_si128((__m128i *)packed, _mm256_castsi256_si128(bytes));
}

/*
 * 32 bytes to 64 codes. Neighbours meet within halves, and go to their places as they are stored.
 */
static inline void v_unpack64(const uint8_t *packed, uint8_t flip, uint8_t less, uint8_t *codes)
{
    const vi mask = _mm256_set1_epi8(15), off = _mm256_set1_epi8((char)less);
    vi bytes = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)packed),
                                _mm256_set1_epi8((char)(flip | flip << 4)));
    vi even = _mm256_sub_epi8(_mm256_and_si256(bytes, mask), off);
    vi odd = _mm256_sub_epi8(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), off);
    vi first = _mm256_unpacklo_epi8(even, odd), second = _mm256_unpackhi_epi8(even, odd);
    __m128i *to = (__m128i *)codes;
    _mm_storeu_si128(to, _mm256_castsi256_si128(first));
    _mm_storeu_si128(to + 1, _mm256_castsi256_si128(second));
    _mm_storeu_si128(to + 2, _mm256_extracti128_si256(first, 1));
    _mm_storeu_si128(to + 3, _mm256_extracti128_si256(second, 1));
}

/* Loads come before the store of the same step, so packing over the codes themselves works. */
static void pack4(const uint8_t *codes, size_t n, uint8_t flip, uint8_t *packed)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        v_pack32(codes + i, flip, packed + i / 2);
    qp_scalar_codes.pack4(codes + i, n - i, flip, packed + i / 2);
}

static void unpack4(const uint8_t *packed, size_t n, uint8_t flip, uint8_t less, uint8_t *codes)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        v_unpack64(packed + i / 2, flip, less, codes + i);
    qp_scalar_codes.unpack4(packed + i / 2, n - i, flip, less, codes + i);
}

const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, pack4, unpack4};

#else /* another architecture */

const struct qp_source_kernels *const qp_avx2_sources[] = {NULL};
const struct qp_quantizer *const qp_avx2_quantizers[] = {NULL};
const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, NULL, NULL};

#endif
