/*
 * qk_floats.h - reading floats of every source type, one at a time and eight at a time, and storing
 * scales. 16-bit floats are integers here: no device needs a type for them.
 */
#ifndef QK_FLOATS_H
#define QK_FLOATS_H

#include "qk_args.h"

/* ---- One element ----------------------------------------------------------------------------- */

QK_FN float qk_from_bf16(qk_u32 h)
{
    return QK_F32(h << 16);
}

QK_FN float qk_from_f16(qk_u32 h)
{
    qk_u32 sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
    /* Zero or subnormal: mantissa * 2^-24, which f32 holds. Its sign goes in as a bit. */
    if (exponent == 0)
        return QK_F32(QK_U32((float)mantissa * 0x1p-24f) | sign);
    return QK_F32(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13);
}

QK_FN float qk_at_f32(const QK_GLOBAL qk_u8 *src, qk_u32 i)
{
    return QK_F32(((const QK_GLOBAL qk_u32 *)src)[i]);
}

QK_FN float qk_at_f16(const QK_GLOBAL qk_u8 *src, qk_u32 i)
{
    return qk_from_f16(((const QK_GLOBAL qk_u16 *)src)[i]);
}

QK_FN float qk_at_bf16(const QK_GLOBAL qk_u8 *src, qk_u32 i)
{
    return qk_from_bf16(((const QK_GLOBAL qk_u16 *)src)[i]);
}

/* ---- Eight elements from an aligned place, in loads of 128 bits ------------------------------ */

QK_FN void qk_octet_f32(const QK_GLOBAL qk_u8 *src, qk_u32 i, float *x)
{
    const QK_GLOBAL qk_u32x4 *from = (const QK_GLOBAL qk_u32x4 *)src + i / 4;
    qk_u32x4 low = from[0], high = from[1];
    x[0] = QK_F32(low.x), x[1] = QK_F32(low.y), x[2] = QK_F32(low.z), x[3] = QK_F32(low.w);
    x[4] = QK_F32(high.x), x[5] = QK_F32(high.y), x[6] = QK_F32(high.z), x[7] = QK_F32(high.w);
}

#define QK_OCTET_16(dtype)                                                                         \
    QK_FN void qk_octet_##dtype(const QK_GLOBAL qk_u8 *src, qk_u32 i, float *x)                    \
    {                                                                                              \
        qk_u32x4 v = ((const QK_GLOBAL qk_u32x4 *)src)[i / 8];                                     \
        x[0] = qk_from_##dtype(v.x & 0xffffu), x[1] = qk_from_##dtype(v.x >> 16);                  \
        x[2] = qk_from_##dtype(v.y & 0xffffu), x[3] = qk_from_##dtype(v.y >> 16);                  \
        x[4] = qk_from_##dtype(v.z & 0xffffu), x[5] = qk_from_##dtype(v.z >> 16);                  \
        x[6] = qk_from_##dtype(v.w & 0xffffu), x[7] = qk_from_##dtype(v.w >> 16);                  \
    }
QK_OCTET_16(f16)
QK_OCTET_16(bf16)

#ifdef QK_FP64
QK_FN double qk_at_f64(const QK_GLOBAL qk_u8 *src, qk_u32 i)
{
    return QK_F64(((const QK_GLOBAL qk_u64 *)src)[i]);
}

QK_FN double qk_join_f64(qk_u32 low, qk_u32 high)
{
    return QK_F64((qk_u64)high << 32 | low);
}

QK_FN void qk_octet_f64(const QK_GLOBAL qk_u8 *src, qk_u32 i, double *x)
{
    const QK_GLOBAL qk_u32x4 *from = (const QK_GLOBAL qk_u32x4 *)src + i / 2;
    for (int k = 0; k < 4; k++) {
        qk_u32x4 v = from[k];
        x[2 * k] = qk_join_f64(v.x, v.y);
        x[2 * k + 1] = qk_join_f64(v.z, v.w);
    }
}
#endif

/* ---- Scales ---------------------------------------------------------------------------------- */

#define QK_F32_MAX 0x1.fffffep127f

/* The largest scale of a kind. */
QK_FN float qk_scale_most(qk_u32 kind)
{
    return kind == QK_SCALE_F16 ? 65504.0f : kind == QK_SCALE_BF16 ? 0x1.fep127f : QK_F32_MAX;
}

/* The least value of the kind, and normal in it, that is >= scale, which is in its range. */
QK_FN float qk_scale_up(float scale, qk_u32 kind)
{
    float least = kind == QK_SCALE_F16 ? 0x1p-14f : 0x1p-126f;
    qk_u32 lost = kind == QK_SCALE_F16 ? 0x1fffu : kind == QK_SCALE_BF16 ? 0xffffu : 0u;
    /* Adding all bits that will be lost carries into the rest unless they were 0. */
    return scale < least ? least : QK_F32((QK_U32(scale) + lost) & ~lost);
}

/* Writes a scale that has been rounded. */
QK_FN void qk_scale_store(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, float scale)
{
    qk_u32 bits = QK_U32(scale);
    if (kind == QK_SCALE_F32)
        ((QK_GLOBAL qk_u32 *)to)[i] = bits;
    else if (kind == QK_SCALE_BF16)
        ((QK_GLOBAL qk_u16 *)to)[i] = (qk_u16)(bits >> 16);
    else /* a normal f16: another bias, and fewer bits */
        ((QK_GLOBAL qk_u16 *)to)[i] = (qk_u16)((bits >> 13) - (112u << 10));
}

#endif
