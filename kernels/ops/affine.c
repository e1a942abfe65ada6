/*
 * affine.c - the scalar kernels of affine.h, the specification, and the table of all.
 */
#include "affine.h"

#include "gradient.h"
#include "kernels/dtypes/bf16/bf16.h"
#include "kernels/dtypes/f16/f16.h"
#include "kernels/dtypes/f32/f32.h"
#include "kernels/dtypes/f64/f64.h"
#include "kernels/tiles/runs.h"

#define ISA   QPLAN_ISA_SCALAR
#define LANES 1

/* The bits of an element, or 0. */
#define KEEP_BITS(SIZE)                                                                            \
    static inline void keep_##SIZE(unsigned char *p, const unsigned char *from, bool mask)         \
    {                                                                                              \
        uint##SIZE##_t bits;                                                                       \
        memcpy(&bits, from, sizeof bits);                                                          \
        bits = mask ? bits : 0;                                                                    \
        memcpy(p, &bits, sizeof bits);                                                             \
    }
KEEP_BITS(16)
KEEP_BITS(32)
KEEP_BITS(64)

/* ---- Data that is worked on in f32 ------------------------------------------------------------
 */

#define V(word)        f32_##word
#define WORK           float
#define BITS           uint32_t
#define WORK_MAX       FLT_MAX
#define COPYSIGN       copysignf
#define FABS           fabsf
#define WHOLE          0x1p23f
#define ADD(sum, term) ((sum)->hi += (term))
#include "lanes_plain.inc.h"

static inline void store_f32(unsigned char *p, float y)
{
    memcpy(p, &y, sizeof y);
}

#define NAME(op)   op##_f32
#define DTYPE      QPLAN_F32
#define ELEM_BYTES 4
#define LOAD       qp_load_f32
#define STORE      store_f32
#define GRADIENT   store_f32
#define KEEP       keep_32
#define HALF_WAY   INFINITY
#include "affine.inc.h"

#define NAME(op)       op##_f16
#define DTYPE          QPLAN_F16
#define ELEM_BYTES     2
#define LOAD           qp_load_f16
#define STORE          qp_store_f16_in_f32
#define GRADIENT(p, y) (void)qp_gradient_f16(p, (double)(y))
#define KEEP           keep_16
#define HALF_WAY       QP_HALF_WAY_F16
#include "affine.inc.h"

/* Half to even; a carry out of the mantissa makes infinity by itself. */
static inline void gradient_bf16(unsigned char *p, float y)
{
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    const uint16_t rounded = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(p, &rounded, sizeof rounded);
}

#define NAME(op)   op##_bf16
#define DTYPE      QPLAN_BF16
#define ELEM_BYTES 2
#define LOAD       qp_load_bf16
#define STORE      qp_store_bf16_in_f32
#define GRADIENT   gradient_bf16
#define KEEP       keep_16
#define HALF_WAY   QP_HALF_WAY_BF16
#include "affine.inc.h"

#undef V
#undef WORK
#undef ADD

/* ---- Data that is worked on in f64 ------------------------------------------------------------
 */

#define V(word)  f64_##word
#define WORK     double
#define BITS     uint64_t
#define WORK_MAX DBL_MAX
#define COPYSIGN copysign
#define FABS     fabs
#define WHOLE    0x1p52
#define ADD      qp_sum_add
#include "lanes_plain.inc.h"

#define NAME(op)   op##_f64
#define DTYPE      QPLAN_F64
#define ELEM_BYTES 8
#define LOAD       qp_load_f64
#define STORE      qp_store_f64_in_f64
#define GRADIENT   qp_store_f64_in_f64
#define KEEP       keep_64
#define HALF_WAY   ((double)INFINITY)
#include "affine.inc.h"

/* ---- The table --------------------------------------------------------------------------------
 */

const struct qp_affine_kernels *qp_affine_kernels(enum qplan_dtype dtype, enum qplan_isa isa)
{
    static const struct qp_affine_kernels *const scalar[] = {&affine_f32, &affine_f16, &affine_bf16,
                                                             &affine_f64};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (const struct qp_affine_kernels *const *row = qp_affine_avx2_rows; *row; row++) {
        if ((*row)->dtype == dtype && (*row)->isa <= isa)
            return *row;
    }
    size_t i = 0;
    while (scalar[i]->dtype != dtype)
        i++;
    return scalar[i];
}
