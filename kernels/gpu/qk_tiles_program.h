/*
 * qk_tiles_program.h - the kernels of the checkpoint pipeline, in the order in which they are
 * compiled: by nvcc as CUDA C, by a driver as OpenCL C, and by the compiler of the host as C11. The
 * build puts the included files in place of their lines and embeds the result (cmake/embed.cmake).
 */
#include "qk_platform.h"

#include "qk_args.h"
#include "qk_floats.h"
#include "qk_store.h"

/* ---- Working precision f32 ------------------------------------------------------------------- */

#define IN(op)     op##_in_f32
#define WORK       float
#define BITS       qk_u32
#define BITS_OF(x) QK_U32(x)
#define OF_BITS(b) QK_F32(b)
#define MAN_BITS   23
#define EXP_BIAS   127
#include "qk_valued.inc.h"

#define WORK_MAX     QK_F32_MAX
#define RNE_SHIFT    0x1.8p23f
#define TO_F32_UP(x) (x)
#define TO_F8E4M3(x) qk_to_f8e4m3(x)
#define POWER(x)     qk_power_f32(x)
#include "qk_params.inc.h"

#define FUSED_ELEMS QK_FUSED_F32
#define ROUNDINGS   0x1p-21

#define NAME(op) op##_f32
#define AT       qk_at_f32
#define OCTET    qk_octet_f32
#include "qk_quantize.inc.h"

#define NAME(op) op##_f16
#define AT       qk_at_f16
#define OCTET    qk_octet_f16
#include "qk_quantize.inc.h"

#define NAME(op) op##_bf16
#define AT       qk_at_bf16
#define OCTET    qk_octet_bf16
#include "qk_quantize.inc.h"

#define STORE_OCTET qk_store_in_f32
#include "qk_decode.inc.h"

#ifdef QK_FP64
#include "qk_found.h"

#define NAME(op) op##_f32
#define AT       qk_at_f32
#define OCTET    qk_octet_f32
#include "qk_measure.inc.h"

#define NAME(op) op##_f16
#define AT       qk_at_f16
#define OCTET    qk_octet_f16
#include "qk_measure.inc.h"

#define NAME(op) op##_bf16
#define AT       qk_at_bf16
#define OCTET    qk_octet_bf16
#include "qk_measure.inc.h"
#endif

#undef IN
#undef WORK
#undef WORK_MAX
#undef FUSED_ELEMS
#undef ROUNDINGS

/* ---- Working precision f64 ------------------------------------------------------------------- */

#ifdef QK_FP64

#define QK_F64_MAX 0x1.fffffffffffffp1023

/* The least f32 that is >= x; x is positive and within the range of f32. */
QK_FN float qk_f32_up(double x)
{
    float near = (float)x;
    return (double)near < x ? QK_F32(QK_U32(near) + 1) : near;
}

/* As qk_power_f32. */
QK_FN qk_i32 qk_power_f64(double x)
{
    qk_u64 quarters = (qk_u64)3 << 50;
    return (qk_i32)(QK_U64(x) >> 52) - 1023 + ((QK_U64(x) & quarters) == quarters);
}

#define IN(op)     op##_in_f64
#define WORK       double
#define BITS       qk_u64
#define BITS_OF(x) QK_U64(x)
#define OF_BITS(b) QK_F64(b)
#define MAN_BITS   52
#define EXP_BIAS   1023
#include "qk_valued.inc.h"

#define WORK_MAX     QK_F64_MAX
#define RNE_SHIFT    0x1.8p52
#define TO_F32_UP(x) qk_f32_up(x)
#define TO_F8E4M3(x) qk_narrow_f64(x, 4, 3, QK_F8E4M3_MOST)
#define POWER(x)     qk_power_f64(x)
#include "qk_params.inc.h"

#define FUSED_ELEMS QK_FUSED_F64
#define ROUNDINGS   0x1p-50

#define NAME(op) op##_f64
#define AT       qk_at_f64
#define OCTET    qk_octet_f64
#include "qk_quantize.inc.h"

#define STORE_OCTET qk_store_in_f64
#include "qk_decode.inc.h"

#define NAME(op) op##_f64
#define AT       qk_at_f64
#define OCTET    qk_octet_f64
#include "qk_measure.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX
#undef FUSED_ELEMS
#undef ROUNDINGS

#endif
