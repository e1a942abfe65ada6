/*
 * qk_affine_program.h - the kernels of the quantize family of operators, in the order in which they
 * are compiled.
 */
#include "qk_platform.h"

#include "qk_affine_args.h"

/* ---- Working precision f32 ------------------------------------------------------------------- */

#define IN(op)   op##_in_f32
#define WORK     float
#define WHOLE    0x1p23f
#define FLOAT_AT qk_float_at
#include "qk_affine_work.inc.h"

#define IN(op)   op##_in_f32
#define WORK     float
#define WORK_MAX QK_F32_MAX

#define NAME(op)    op##_f32
#define RAW         qk_u32
#define GET8        qk_get8_u32
#define PUT8        qk_put8_u32
#define OF_RAW      QK_F32
#define CLIP        qk_clip_f32
#define GRADIENT    qk_gradient_f32
#define HALF_WAY(y) ((y) > QK_F32_MAX)
#include "qk_affine.inc.h"

#define NAME(op)    op##_f16
#define RAW         qk_u16
#define GET8        qk_get8_u16
#define PUT8        qk_put8_u16
#define OF_RAW      qk_from_f16
#define CLIP        qk_clip_f16
#define GRADIENT    qk_gradient_f16
#define HALF_WAY(y) ((y) >= 65520.0f)
#include "qk_affine.inc.h"

#define NAME(op)    op##_bf16
#define RAW         qk_u16
#define GET8        qk_get8_u16
#define PUT8        qk_put8_u16
#define OF_RAW      qk_from_bf16
#define CLIP        qk_clip_bf16
#define GRADIENT    qk_gradient_bf16
#define HALF_WAY(y) ((y) >= 0x1.ffp127f)
#include "qk_affine.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX

/* ---- Working precision f64 ------------------------------------------------------------------- */

#ifdef QK_FP64

#define QK_AFFINE_F64_MAX 0x1.fffffffffffffp1023

QK_FN double qk_wide_at(const QK_GLOBAL qk_u8 *from, qk_u32 kind, qk_u32 i)
{
    return kind == QK_FLOAT_F64 ? qk_at_f64(from, i) : (double)qk_float_at(from, kind, i);
}

QK_FN qk_u64 qk_clip_f64(double x)
{
    return QK_U64(x);
}

QK_FN qk_u64 qk_gradient_f64(double x)
{
    return x != x ? (qk_u64)0x7ff80000u << 32 : QK_U64(x);
}

#define IN(op)   op##_in_f64
#define WORK     double
#define WHOLE    0x1p52
#define FLOAT_AT qk_wide_at
#include "qk_affine_work.inc.h"

#define IN(op)   op##_in_f64
#define WORK     double
#define WORK_MAX QK_AFFINE_F64_MAX

#define NAME(op)    op##_f64
#define RAW         qk_u64
#define GET8        qk_get8_u64
#define PUT8        qk_put8_u64
#define OF_RAW      QK_F64
#define CLIP        qk_clip_f64
#define GRADIENT    qk_gradient_f64
#define HALF_WAY(y) ((y) > QK_AFFINE_F64_MAX)
#include "qk_affine.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX

#endif
