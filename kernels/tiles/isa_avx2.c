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
    NULL,
};

/* Loads come before the store of the same step, so packing over the codes themselves works. */
static void pack4(const uint8_t *codes, size_t n, uint8_t *packed)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        v_pack32(codes + i, packed + i / 2);
    qp_scalar_codes.pack4(codes + i, n - i, packed + i / 2);
}

static void unpack4(const uint8_t *packed, size_t n, bool is_signed, uint8_t *codes)
{
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        v_unpack64(packed + i / 2, is_signed ? 8 : 0, codes + i);
    qp_scalar_codes.unpack4(packed + i / 2, n - i, is_signed, codes + i);
}

const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, pack4, unpack4};

#else /* another architecture */

const struct qp_source_kernels *const qp_avx2_sources[] = {NULL};
const struct qp_quantizer *const qp_avx2_quantizers[] = {NULL};
const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, NULL, NULL};

#endif
