/*
 * affine_avx2.c - the kernels of affine.h for AVX2 with F16C.
 */
#include "affine.h"

#include "gradient.h"
#include "kernels/tiles/runs.h"

#if defined(__AVX2__) && defined(__F16C__)

#include "lanes_avx2.h"

#define ISA QPLAN_ISA_AVX2

#define V(word)        f32x8_##word
#define WORK           float
#define LANES          8
#define ADD(sum, term) ((sum)->hi += (term))

#define NAME(op)   op##_f32
#define DTYPE      QPLAN_F32
#define ELEM_BYTES 4
#define LOAD       v_load_f32
#define STORE      v_gradient_f32
#define GRADIENT   v_gradient_f32
#define KEEP       v_keep_32
#define HALF_WAY   INFINITY
#include "affine.inc.h"

#define NAME(op)   op##_f16
#define DTYPE      QPLAN_F16
#define ELEM_BYTES 2
#define LOAD       v_load_f16
#define STORE      v_store_f16
#define GRADIENT   v_gradient_f16
#define KEEP       v_keep_16
#define HALF_WAY   QP_HALF_WAY_F16
#include "affine.inc.h"

#define NAME(op)   op##_bf16
#define DTYPE      QPLAN_BF16
#define ELEM_BYTES 2
#define LOAD       v_load_bf16
#define STORE      v_store_bf16
#define GRADIENT   v_gradient_bf16
#define KEEP       v_keep_16
#define HALF_WAY   QP_HALF_WAY_BF16
#include "affine.inc.h"

#undef V
#undef WORK
#undef LANES
#undef ADD

#define V(word) f64x4_##word
#define WORK    double
#define LANES   4
#define ADD     qp_sum_add

#define NAME(op)   op##_f64
#define DTYPE      QPLAN_F64
#define ELEM_BYTES 8
#define LOAD       v_load_f64
#define STORE      v_store_f64
#define GRADIENT   v_store_f64
#define KEEP       v_keep_64
#define HALF_WAY   ((double)INFINITY)
#include "affine.inc.h"

const struct qp_affine_kernels *const qp_affine_avx2_rows[] = {
    &affine_f32, &affine_f16, &affine_bf16, &affine_f64, NULL,
};

#else /* another architecture */

const struct qp_affine_kernels *const qp_affine_avx2_rows[] = {NULL};

#endif
