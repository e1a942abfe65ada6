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

/* The value of a code that is a small float; one without a hidden bit is a product, which is exact.
 */
QK_FN float qk_float_value(const struct qk_values *v, qk_u32 code)
{
    qk_u32 size = code & (v->sign - 1), exponent = size >> v->man_bits;
    qk_u32 mantissa = size & ((1u << v->man_bits) - 1), least = (qk_u32)(127 + v->least_exp);
    float last_place = QK_F32((least - v->man_bits) << 23);
    qk_u32 bits = exponent == 0 ? QK_U32((float)mantissa * last_place)
                                : (least + exponent - 1) << 23 | mantissa << (23 - v->man_bits);
    return QK_F32(bits | (code & v->sign ? 0x80000000u : 0u));
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

#define QK_F32_MAX  0x1.fffffep127f
#define QK_INFINITY QK_F32(0x7f800000u)

/* The largest scale of a kind. */
QK_FN float qk_scale_most(qk_u32 kind)
{
    return kind == QK_SCALE_F16    ? 65504.0f
           : kind == QK_SCALE_BF16 ? 0x1.fep127f
           : kind == QK_SCALE_E8M0 ? 0x1p127f
                                   : QK_F32_MAX;
}

/* The least value of the kind, and normal in it, that is >= scale, which is in its range. */
QK_FN float qk_scale_up(float scale, qk_u32 kind)
{
    float least = kind == QK_SCALE_F16 ? 0x1p-14f : 0x1p-126f;
    qk_u32 lost = kind == QK_SCALE_F16    ? 0x1fffu
                  : kind == QK_SCALE_BF16 ? 0xffffu
                  : kind == QK_SCALE_E8M0 ? 0x7fffffu
                                          : 0u;
    /* Adding all bits that will be lost carries into the rest unless they were 0. */
    return scale < least ? least : QK_F32((QK_U32(scale) + lost) & ~lost);
}

/*
 * The exponent of a positive number, or the next one from 7/4 of its power of two on. What a
 * subnormal gets is less than any scale has.
 */
QK_FN qk_i32 qk_power_f32(float x)
{
    return (qk_i32)(QK_U32(x) >> 23) - 127 + ((QK_U32(x) & 0x600000u) == 0x600000u);
}

/* A positive number as f8e4m3, half to even; what is larger than 448 is 448. */
#define QK_F8E4M3_ONE  0x38u
#define QK_F8E4M3_MOST 0x7eu
QK_FN qk_u32 qk_to_f8e4m3(float x)
{
    qk_u32 bits = QK_U32(x), size = bits < 0x43e00000u ? bits : 0x43e00000u;
    qk_u32 own = size & 0x7f800000u, least = 121u << 23, exponent = own > least ? own : least;
    qk_u32 power = exponent + (20u << 23);
    return (QK_U32(QK_F32(size) + QK_F32(power)) - power) + ((exponent - least) >> 20);
}

QK_FN float qk_from_f8e4m3(qk_u32 code)
{
    qk_u32 exponent = code >> 3, mantissa = code & 7u;
    return exponent == 0 ? (float)mantissa * 0x1p-9f
                         : QK_F32((exponent + 120u) << 23 | mantissa << 20);
}

/* The scale that a stored one of the type f8e4m3 stands for. */
QK_FN float qk_with_factor(const struct qk_tile_args *a, float stored)
{
    return a->divides ? stored / QK_F32(a->factor) : stored * QK_F32(a->factor);
}

/* Writes a scale that has been rounded. */
QK_FN void qk_scale_store(QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 i,
                          float scale)
{
    QK_GLOBAL qk_u8 *to = block + a->stored_scale;
    qk_u32 bits = QK_U32(scale), kind = a->scale_kind;
    if (kind == QK_SCALE_E8M0)
        to[i] = (qk_u8)(bits >> 23);
    else if (kind == QK_SCALE_F8E4M3)
        to[i] =
            (qk_u8)qk_to_f8e4m3(a->divides ? scale * QK_F32(a->factor) : scale / QK_F32(a->factor));
    else if (kind == QK_SCALE_F32)
        ((QK_GLOBAL qk_u32 *)to)[i] = bits;
    else if (kind == QK_SCALE_BF16)
        ((QK_GLOBAL qk_u16 *)to)[i] = (qk_u16)(bits >> 16);
    else /* a normal f16: another bias, and fewer bits */
        ((QK_GLOBAL qk_u16 *)to)[i] = (qk_u16)((bits >> 13) - (112u << 10));
}

#endif
