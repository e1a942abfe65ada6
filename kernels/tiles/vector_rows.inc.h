/*
 * vector_rows.inc.h - the rows of one instruction set level: source_from_f32, source_from_f16 and
 * source_from_bf16, linear_from_* and biased_from_* as well. f64 sources have no vector rows and
 * take the scalar kernels.
 *
 * The including file has included codecs.h and a vocabulary, and defines ISA.
 */

#define NAME(op)     op##_plain
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

#include "vector_work.inc.h"

static const struct qp_work_kernels work_vector = {
    .work = QPLAN_F32,
    .work_bytes = sizeof(float),
    .merge = merge_vector,
    .load = load_vector,
    .store = store_vector,
    .round = round_vector,
    .bounds = bounds_plain,
};

#define WORK      float
#define WORK_MAX  FLT_MAX
#define STEPS     qp_steps_f32
#define CODES(op) qp_##op##_f32

#define NAME(op)      op##_from_f32
#define SOURCE_DTYPE  QPLAN_F32
#define ELEM_BYTES    4
#define LOAD          qp_load_f32
#define V_LOAD        v_load_f32
#define V_BITS(word)  vb32_##word
#define INFINITY_BITS 0x7f800000
#include "vector.inc.h"

#define NAME(op)      op##_from_f16
#define SOURCE_DTYPE  QPLAN_F16
#define ELEM_BYTES    2
#define LOAD          qp_load_f16
#define V_LOAD        v_load_f16
#define V_BITS(word)  vb16_##word
#define INFINITY_BITS 0x7c00
#include "vector.inc.h"

#define NAME(op)      op##_from_bf16
#define SOURCE_DTYPE  QPLAN_BF16
#define ELEM_BYTES    2
#define LOAD          qp_load_bf16
#define V_LOAD        v_load_bf16
#define V_BITS(word)  vb16_##word
#define INFINITY_BITS 0x7f80
#include "vector.inc.h"
