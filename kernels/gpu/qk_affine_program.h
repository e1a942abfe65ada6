/*
 * qk_affine_program.h - the kernels of the quantize family of operators, in the order in which they
 * are compiled.
 */
#include "qk_platform.h"

#include "qk_affine_args.h"

#ifdef QK_FP64
#include "qk_affine_f64.h"
#include "qk_sum.h"
#endif

/* ---- Working precision f32 ------------------------------------------------------------------- */

#define IN(op)     op##_op_in_f32
#define WORK       float
#define BITS       qk_u32
#define BITS_OF(x) QK_U32(x)
#define OF_BITS(b) QK_F32(b)
#define MAN_BITS   23
#define EXP_BIAS   127
#include "qk_valued.inc.h"

#define WORK_MAX    QK_F32_MAX
#define WHOLE       0x1p23f
#define FLOAT_AT    qk_float_at
#define PUT_FLOAT   qk_put_float
#define PUT8_FLOATS qk_put8_floats
#define SCALE_MOST  qk_scale_most
#define SCALE_UP    qk_scale_up
#include "qk_affine_work.inc.h"

#define IN(op)   op##_op_in_f32
#define WORK     float
#define WORK_MAX QK_F32_MAX

#define NAME(op)    op##_op_f32
#define RAW         qk_u32
#define GET8        qk_get8_u32
#define PUT8        qk_put8_u32
#define OF_RAW      QK_F32
#define CLIP        qk_clip_f32
#define GRADIENT    qk_gradient_f32
#define HALF_WAY(y) ((y) > QK_F32_MAX)
#define ADD         qk_sum_add_plain
#include "qk_affine_dtype.inc.h"

#define NAME(op)    op##_op_f16
#define RAW         qk_u16
#define GET8        qk_get8_u16
#define PUT8        qk_put8_u16
#define OF_RAW      qk_from_f16
#define CLIP        qk_clip_f16
#define GRADIENT    qk_gradient_f16
#define HALF_WAY(y) ((y) >= 65520.0f)
#define ADD         qk_sum_add_plain
#include "qk_affine_dtype.inc.h"

#define NAME(op)    op##_op_bf16
#define RAW         qk_u16
#define GET8        qk_get8_u16
#define PUT8        qk_put8_u16
#define OF_RAW      qk_from_bf16
#define CLIP        qk_clip_bf16
#define GRADIENT    qk_gradient_bf16
#define HALF_WAY(y) ((y) >= 0x1.ffp127f)
#define ADD         qk_sum_add_plain
#include "qk_affine_dtype.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX

/* ---- Working precision f64 ------------------------------------------------------------------- */

#ifdef QK_FP64

#define IN(op)     op##_op_in_f64
#define WORK       double
#define BITS       qk_u64
#define BITS_OF(x) QK_U64(x)
#define OF_BITS(b) QK_F64(b)
#define MAN_BITS   52
#define EXP_BIAS   1023
#include "qk_valued.inc.h"

#define WORK_MAX    QK_WIDE_MAX
#define WHOLE       0x1p52
#define FLOAT_AT    qk_wide_at
#define PUT_FLOAT   qk_put_wide
#define PUT8_FLOATS qk_put8_wide
#define SCALE_MOST  qk_wide_scale_most
#define SCALE_UP    qk_wide_scale_up
#include "qk_affine_work.inc.h"

#define IN(op)   op##_op_in_f64
#define WORK     double
#define WORK_MAX QK_WIDE_MAX

#define NAME(op)    op##_op_f64
#define RAW         qk_u64
#define GET8        qk_get8_u64
#define PUT8        qk_put8_u64
#define OF_RAW      QK_F64
#define CLIP        qk_clip_f64
#define GRADIENT    qk_gradient_f64
#define HALF_WAY(y) ((y) > QK_WIDE_MAX)
#define ADD         qk_sum_add
#include "qk_affine_dtype.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX

#endif
