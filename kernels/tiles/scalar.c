/*
 * scalar.c - the scalar kernels of every dtype: the specification that all others must match.
 *
 * Two templates, one per working precision and one per source dtype, filled in with the codecs of
 * kernels/dtypes. No rounding mode is read or set here: callers run in the default environment.
 */
#include "codecs.h"
#include "rows.h"

/* ---- Working precisions ---------------------------------------------------------------------- */

#define NAME(op)     op##_in_f32
#define WORK         float
#define WORK_MAX     FLT_MAX
#define FINITE       qp_finite_f32
#define SCALE_OF     qp_scale_f32
#define ZERO_OF      qp_zero_f32
#define COVERS       qp_covers_f32
#define NEXT_UP      qp_next_up_f32
#define CODES(op)    qp_##op##_f32
#define STORE(dtype) qp_store_##dtype##_in_f32
#define BOUND_SHIFT  21
#include "work.inc.h"

static const struct qp_work_kernels work_in_f32 = {
    .work = QPLAN_F32,
    .work_bytes = sizeof(float),
    .merge = merge_in_f32,
    .load = load_in_f32,
    .store = store_in_f32,
    .round = round_in_f32,
    .bounds = bounds_in_f32,
};

#define NAME(op)     op##_in_f64
#define WORK         double
#define WORK_MAX     DBL_MAX
#define FINITE       qp_finite_f64
#define SCALE_OF     qp_scale_f64
#define ZERO_OF      qp_zero_f64
#define COVERS       qp_covers_f64
#define NEXT_UP      qp_next_up_f64
#define CODES(op)    qp_##op##_f64
#define STORE(dtype) qp_store_##dtype##_in_f64
#define BOUND_SHIFT  50
#include "work.inc.h"

static const struct qp_work_kernels work_in_f64 = {
    .work = QPLAN_F64,
    .work_bytes = sizeof(double),
    .merge = merge_in_f64,
    .load = load_in_f64,
    .store = store_in_f64,
    .round = round_in_f64,
    .bounds = bounds_in_f64,
};

size_t qp_float_bytes(enum qplan_dtype dtype)
{
    return codec_of_in_f64(dtype)->n_bytes;
}

/* ---- Sources --------------------------------------------------------------------------------- */

#define NAME(op)     op##_from_f64
#define SOURCE_DTYPE QPLAN_F64
#define ELEM_BYTES   8
#define LOAD         qp_load_f64
#define WIDEN        qp_widen_f64
#define GET          qp_get64
#define UINT         uint64_t
#define SINT         int64_t
#define INF_BITS     0x7ff0000000000000
#define WORK         double
#define WORK_MAX     DBL_MAX
#define STEPS        qp_steps_f64
#define CODES(op)    qp_##op##_f64
#define LIMIT        sure_limit_f64
#define IN(op)       op##_in_f64
#include "source.inc.h"

#define NAME(op)     op##_from_f32
#define SOURCE_DTYPE QPLAN_F32
#define ELEM_BYTES   4
#define LOAD         qp_load_f32
#define WIDEN        qp_widen_f32
#define GET          qp_get32
#define UINT         uint32_t
#define SINT         int32_t
#define INF_BITS     0x7f800000
#define WORK         float
#define WORK_MAX     FLT_MAX
#define STEPS        qp_steps_f32
#define CODES(op)    qp_##op##_f32
#define LIMIT        sure_limit
#define IN(op)       op##_in_f32
#include "source.inc.h"

#define NAME(op)     op##_from_f16
#define SOURCE_DTYPE QPLAN_F16
#define ELEM_BYTES   2
#define LOAD         qp_load_f16
#define WIDEN        qp_widen_f16
#define GET          qp_get16
#define UINT         uint16_t
#define SINT         int16_t
#define INF_BITS     0x7c00
#define WORK         float
#define WORK_MAX     FLT_MAX
#define STEPS        qp_steps_f32
#define CODES(op)    qp_##op##_f32
#define LIMIT        sure_limit
#define IN(op)       op##_in_f32
#include "source.inc.h"

#define NAME(op)     op##_from_bf16
#define SOURCE_DTYPE QPLAN_BF16
#define ELEM_BYTES   2
#define LOAD         qp_load_bf16
#define WIDEN        qp_widen_bf16
#define GET          qp_get16
#define UINT         uint16_t
#define SINT         int16_t
#define INF_BITS     0x7f80
#define WORK         float
#define WORK_MAX     FLT_MAX
#define STEPS        qp_steps_f32
#define CODES(op)    qp_##op##_f32
#define LIMIT        sure_limit
#define IN(op)       op##_in_f32
#include "source.inc.h"

const struct qp_source_kernels *const qp_scalar_sources[] = {
    &source_from_f64, &source_from_f32, &source_from_f16, &source_from_bf16, NULL,
};

const struct qp_quantizer *const qp_scalar_quantizers[] = {
    &linear_from_f64,
    &linear_from_f32,
    &linear_from_f16,
    &linear_from_bf16,
    &biased_from_f64,
    &biased_from_f32,
    &biased_from_f16,
    &biased_from_bf16,
    &floats_from_f64,
    &floats_from_f32,
    &floats_from_f16,
    &floats_from_bf16,
    &book_from_f64,
    &book_from_f32,
    &book_from_f16,
    &book_from_bf16,
    NULL,
};
