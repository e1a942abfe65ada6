/*
 * isa_avx2.c - the kernels for AVX2 with F16C and FMA: the vector loops in its vocabulary. f64
 * sources have no row here and take the scalar kernels.
 */
#include "codecs.h"
#include "rows.h"

#if defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)

#include "simd_avx2.h"

#define NAME(op)     op##_plain
#define WORK         float
#define WORK_MAX     FLT_MAX
#define FINITE       qp_finite_f32
#define SCALE_OF     qp_scale_f32
#define ZERO_OF      qp_zero_f32
#define STORE(dtype) qp_store_##dtype##_in_f32
#define BOUND_SHIFT  21
#include "work.inc.h"

#include "vector_work.inc.h"

static const struct qp_work_kernels work_f32 = {
    .work = QPLAN_F32,
    .work_bytes = sizeof(float),
    .params = params_vector,
    .merge = merge_vector,
    .dequantize = dequantize_vector,
    .load = load_vector,
    .store = store_vector,
    .bounds = bounds_plain,
};

#define ISA          QPLAN_ISA_AVX2
#define WORK         float
#define WORK_MAX     FLT_MAX
#define STEPS        qp_steps_f32
#define WORK_KERNELS work_f32

#define NAME(op)      op##_from_f32
#define SOURCE_DTYPE  QPLAN_F32
#define ELEM_BYTES    4
#define LOAD          qp_load_f32
#define V_LOAD        v_load_f32
#define V_WIDE(p)     v_load_wide8((const float *)(const void *)(p)) /* one step from memory */
#define V_BITS(word)  vb32_##word
#define INFINITY_BITS 0x7f800000
#include "vector.inc.h"

#define NAME(op)      op##_from_f16
#define SOURCE_DTYPE  QPLAN_F16
#define ELEM_BYTES    2
#define LOAD          qp_load_f16
#define V_LOAD        v_load_f16
#define V_WIDE(p)     v_widen8(v_load_f16(p))
#define V_BITS(word)  vb16_##word
#define INFINITY_BITS 0x7c00
#include "vector.inc.h"

#define NAME(op)      op##_from_bf16
#define SOURCE_DTYPE  QPLAN_BF16
#define ELEM_BYTES    2
#define LOAD          qp_load_bf16
#define V_LOAD        v_load_bf16
#define V_WIDE(p)     v_widen8(v_load_bf16(p))
#define V_BITS(word)  vb16_##word
#define INFINITY_BITS 0x7f80
#include "vector.inc.h"

const struct qp_source_kernels *const qp_avx2_rows[] = {
    &source_from_f32,
    &source_from_f16,
    &source_from_bf16,
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
    for (; i + 32 <= n; i += 32)
        v_unpack32(packed + i / 2, is_signed ? 8 : 0, codes + i);
    qp_scalar_codes.unpack4(packed + i / 2, n - i, is_signed, codes + i);
}

const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, pack4, unpack4};

#else /* another architecture */

const struct qp_source_kernels *const qp_avx2_rows[] = {NULL};
const struct qp_code_kernels qp_avx2_codes = {QPLAN_ISA_AVX2, NULL, NULL};

#endif
