/*
 * qk_affine_f64.h - numbers of working precision f64 in every float dtype: read, stored clipped to
 * the dtype, stored as gradients. 16-bit floats are made by integers.
 */
#ifndef QK_AFFINE_F64_H
#define QK_AFFINE_F64_H

#include "qk_affine_args.h"

QK_FN double qk_wide_at(const QK_GLOBAL qk_u8 *from, qk_u32 kind, qk_u32 i)
{
    return kind == QK_FLOAT_F64 ? qk_at_f64(from, i) : (double)qk_float_at(from, kind, i);
}

QK_FN qk_u32 qk_narrow_kind(double x, qk_u32 kind)
{
    return kind == QK_FLOAT_F16 ? qk_narrow(x, 5, 10) : qk_narrow(x, 8, 7);
}

/* What is infinite in the dtype becomes its largest value. */
QK_FN qk_u32 qk_clip_wide(double y)
{
    float narrow = (float)y;
    narrow = narrow < -QK_F32_MAX ? -QK_F32_MAX : narrow;
    return QK_U32(narrow > QK_F32_MAX ? QK_F32_MAX : narrow);
}

QK_FN qk_u16 qk_clip_wide_16(double y, qk_u32 kind)
{
    qk_u32 bits = qk_narrow_kind(y, kind), infinity = kind == QK_FLOAT_F16 ? 0x7c00u : 0x7f80u;
    return (qk_u16)(bits - ((bits & 0x7fffu) == infinity));
}

QK_FN void qk_put_wide(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, double y)
{
    if (kind == QK_FLOAT_F64)
        ((QK_GLOBAL qk_u64 *)to)[i] = QK_U64(y);
    else if (kind == QK_FLOAT_F32)
        ((QK_GLOBAL qk_u32 *)to)[i] = qk_clip_wide(y);
    else
        ((QK_GLOBAL qk_u16 *)to)[i] = qk_clip_wide_16(y, kind);
}

/* Values of f64 to f64 and f32 in stores of 128 bits; 16 bits are made one by one. */
QK_FN void qk_put8_wide(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, const double *y)
{
    qk_u64 wide[8];
    qk_u32 narrow[8];
    for (int k = 0; k < 8; k++) {
        wide[k] = QK_U64(y[k]);
        narrow[k] = qk_clip_wide(y[k]);
    }
    if (kind == QK_FLOAT_F64)
        qk_put8_u64((QK_GLOBAL qk_u64 *)to, i, wide);
    else if (kind == QK_FLOAT_F32)
        qk_put8_u32((QK_GLOBAL qk_u32 *)to, i, narrow);
    for (int k = 0; kind != QK_FLOAT_F64 && kind != QK_FLOAT_F32 && k < 8; k++)
        ((QK_GLOBAL qk_u16 *)to)[i + (qk_u32)k] = qk_clip_wide_16(y[k], kind);
}

/* NaN is the one with sign and payload 0. Returns whether a finite number became infinite. */
QK_FN qk_u32 qk_put_gradient(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, double y)
{
    qk_u32 finite = y >= -QK_WIDE_MAX && y <= QK_WIDE_MAX;
    if (kind == QK_FLOAT_F64) {
        ((QK_GLOBAL qk_u64 *)to)[i] = y != y ? (qk_u64)0x7ff80000u << 32 : QK_U64(y);
        return 0;
    }
    if (kind == QK_FLOAT_F32) {
        float narrow = (float)y;
        ((QK_GLOBAL qk_u32 *)to)[i] = qk_gradient_f32(narrow);
        return finite && (narrow > QK_F32_MAX || narrow < -QK_F32_MAX);
    }
    qk_u32 infinity = kind == QK_FLOAT_F16 ? 0x7c00u : 0x7f80u;
    qk_u32 bits = kind == QK_FLOAT_F16 ? 0x7e00u : 0x7fc0u;
    if (y == y)
        bits = finite ? qk_narrow_kind(y, kind) : infinity | (y < 0 ? 0x8000u : 0u);
    ((QK_GLOBAL qk_u16 *)to)[i] = (qk_u16)bits;
    return finite && (bits & 0x7fffu) == infinity;
}

QK_FN qk_u64 qk_clip_f64(double x)
{
    return QK_U64(x);
}

/* ---- Scales -----------------------------------------------------------------------------------
 */

QK_FN double qk_wide_scale_most(qk_u32 kind)
{
    return kind == QK_FLOAT_F64 ? QK_WIDE_MAX : (double)qk_scale_most(kind);
}

/* The least value of the kind, and normal in it, that is >= scale, which is in its range. */
QK_FN double qk_wide_scale_up(double scale, qk_u32 kind)
{
    if (kind == QK_FLOAT_F64)
        return scale < 0x1p-1022 ? 0x1p-1022 : scale;
    float near = (float)scale;
    return (double)qk_scale_up((double)near < scale ? QK_F32(QK_U32(near) + 1) : near, kind);
}

#endif
