/*
 * isa_avx512.c - the kernels for AVX-512: the vector loops in its vocabulary. For 4-bit codes the
 * next level is as good.
 */
#include "codecs.h"
#include "rows.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "simd_avx512.h"

#define ISA QPLAN_ISA_AVX512
#include "vector_rows.inc.h"

const struct qp_source_kernels *const qp_avx512_sources[] = {
    &source_from_f32,
    &source_from_f16,
    &source_from_bf16,
    NULL,
};

const struct qp_quantizer *const qp_avx512_quantizers[] = {
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

#else /* another architecture */

const struct qp_source_kernels *const qp_avx512_sources[] = {NULL};
const struct qp_quantizer *const qp_avx512_quantizers[] = {NULL};

#endif
