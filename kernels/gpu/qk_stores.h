/*
 * qk_stores.h - floats as operators store them: rounding to 16 bits, gradients, and eight elements
 * at a time as the bits that they are.
 */
#ifndef QK_STORES_H
#define QK_STORES_H

#include "qk_floats.h"

/* ---- Storing floats as 16 bits ----------------------------------------------------------------
 */

/*
 * Half to even, of a magnitude below 65520: a sum with 2^13 times its power of two has the last
 * place that f16 keeps. What the sum has more than that power is the significand; its leading 1, or
 * a carry, adds itself to the exponent field.
 */
QK_FN qk_u32 qk_f16_of(qk_u32 magnitude)
{
    qk_u32 own = magnitude & 0x7f800000u, least = 113u << 23, exponent = own > least ? own : least;
    qk_u32 power = exponent + (13u << 23);
    return QK_U32(QK_F32(magnitude) + QK_F32(power)) - power + ((exponent - least) >> 13);
}

/* Half to even; a carry out of the mantissa makes infinity by itself. */
QK_FN qk_u32 qk_bf16_of(qk_u32 bits)
{
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* What is above the largest value becomes that. */
QK_FN qk_u32 qk_clip_f16(float x)
{
    qk_u32 bits = QK_U32(x), magnitude = bits & 0x7fffffffu;
    return qk_f16_of(qk_min(magnitude, 0x477fe000u)) | (bits >> 16 & 0x8000u);
}

QK_FN qk_u32 qk_clip_bf16(float x)
{
    qk_u32 bits = QK_U32(x), magnitude = bits & 0x7fffffffu;
    return qk_bf16_of(qk_min(magnitude, 0x7f7f0000u)) | (bits >> 16 & 0x8000u);
}

QK_FN qk_u32 qk_clip_f32(float x)
{
    return QK_U32(x);
}

/* Gradients become infinite, and NaN is the one with sign and payload 0. */
QK_FN qk_u32 qk_gradient_f16(float x)
{
    qk_u32 bits = QK_U32(x), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (x != x)
        return 0x7e00u;
    return sign | (magnitude >= QK_U32(65520.0f) ? 0x7c00u : qk_f16_of(magnitude));
}

QK_FN qk_u32 qk_gradient_bf16(float x)
{
    return x != x ? 0x7fc0u : qk_bf16_of(QK_U32(x));
}

QK_FN qk_u32 qk_gradient_f32(float x)
{
    return x != x ? 0x7fc00000u : QK_U32(x);
}

/* ---- Gradients that were computed in f64 ------------------------------------------------------
 */

#ifdef QK_FP64

#define QK_WIDE_MAX 0x1.fffffffffffffp1023

QK_FN qk_u32 qk_is_finite(double x)
{
    return x >= -QK_WIDE_MAX && x <= QK_WIDE_MAX;
}

/* value >> shift, half to even; values have 53 bits. */
QK_FN qk_u64 qk_shift_even(qk_u64 value, qk_u32 shift)
{
    if (shift > 63)
        return 0;
    qk_u64 kept = value >> shift, rest = value - (kept << shift), middle = (qk_u64)1 << (shift - 1);
    return kept + (rest > middle || (rest == middle && (kept & 1u)));
}

/* The bits of a number that is no NaN in a dtype of 16 bits; too large a number is infinite. */
QK_FN qk_u32 qk_narrow(double x, qk_u32 exp_bits, qk_u32 man_bits)
{
    qk_u64 bits = QK_U64(x), magnitude = bits << 1 >> 1, hidden = (qk_u64)1 << 52;
    qk_u32 infinity = ((1u << exp_bits) - 1) << man_bits, field = (qk_u32)(magnitude >> 52);
    qk_u32 least = 1025u - (1u << (exp_bits - 1)); /* field of the smallest normal number */
    qk_u64 significand = (magnitude & (hidden - 1)) | (field ? hidden : 0);
    qk_u32 shift = 52 - man_bits;
    if (field < least) { /* subnormal in the target: fewer bits remain */
        shift += least - field;
        field = least;
    }
    /* The hidden bit, or a carry out of the rounding, adds itself to the exponent field. */
    qk_u64 narrow = qk_shift_even(significand, shift) + ((qk_u64)(field - least) << man_bits);
    return (narrow < infinity ? (qk_u32)narrow : infinity) | (qk_u32)(bits >> 48 & 0x8000u);
}

QK_FN qk_u64 qk_gradient_f64(double x)
{
    return x != x ? (qk_u64)0x7ff80000u << 32 : QK_U64(x);
}

/* The bits of a gradient. *overflow goes up by 1 where a finite number became infinite. */
QK_FN qk_u16 qk_result_f16(double x, qk_u32 *overflow)
{
    qk_u32 bits = x != x ? 0x7e00u : qk_narrow(x, 5, 10);
    *overflow += (bits & 0x7fffu) == 0x7c00u && qk_is_finite(x);
    return (qk_u16)bits;
}

QK_FN qk_u16 qk_result_bf16(double x, qk_u32 *overflow)
{
    qk_u32 bits = x != x ? 0x7fc0u : qk_narrow(x, 8, 7);
    *overflow += (bits & 0x7fffu) == 0x7f80u && qk_is_finite(x);
    return (qk_u16)bits;
}

QK_FN qk_u32 qk_result_f32(double x, qk_u32 *overflow)
{
    float y = (float)x;
    *overflow += (y > QK_F32_MAX || y < -QK_F32_MAX) && qk_is_finite(x);
    return qk_gradient_f32(y);
}

QK_FN qk_u64 qk_result_f64(double x, qk_u32 *overflow)
{
    (void)overflow;
    return qk_gradient_f64(x);
}

#endif

/* ---- Eight elements as they are stored, from and to an aligned place --------------------------
 */

QK_FN void qk_get8_u32(const QK_GLOBAL qk_u32 *from, qk_u32 i, qk_u32 *x)
{
    const QK_GLOBAL qk_u32x4 *at = (const QK_GLOBAL qk_u32x4 *)from + i / 4;
    qk_u32x4 low = at[0], high = at[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

QK_FN void qk_put8_u32(QK_GLOBAL qk_u32 *to, qk_u32 i, const qk_u32 *x)
{
    QK_GLOBAL qk_u32x4 *at = (QK_GLOBAL qk_u32x4 *)to + i / 4;
    qk_u32x4 low, high;
    low.x = x[0], low.y = x[1], low.z = x[2], low.w = x[3];
    high.x = x[4], high.y = x[5], high.z = x[6], high.w = x[7];
    at[0] = low;
    at[1] = high;
}

QK_FN void qk_get8_u16(const QK_GLOBAL qk_u16 *from, qk_u32 i, qk_u16 *x)
{
    qk_u32x4 v = ((const QK_GLOBAL qk_u32x4 *)from)[i / 8];
    x[0] = (qk_u16)v.x, x[1] = (qk_u16)(v.x >> 16), x[2] = (qk_u16)v.y, x[3] = (qk_u16)(v.y >> 16);
    x[4] = (qk_u16)v.z, x[5] = (qk_u16)(v.z >> 16), x[6] = (qk_u16)v.w, x[7] = (qk_u16)(v.w >> 16);
}

QK_FN void qk_put8_u16(QK_GLOBAL qk_u16 *to, qk_u32 i, const qk_u16 *x)
{
    qk_u32x4 v;
    v.x = x[0] | (qk_u32)x[1] << 16, v.y = x[2] | (qk_u32)x[3] << 16;
    v.z = x[4] | (qk_u32)x[5] << 16, v.w = x[6] | (qk_u32)x[7] << 16;
    ((QK_GLOBAL qk_u32x4 *)to)[i / 8] = v;
}

QK_FN void qk_get8_u64(const QK_GLOBAL qk_u64 *from, qk_u32 i, qk_u64 *x)
{
    for (int k = 0; k < 4; k++) {
        qk_u32x4 v = ((const QK_GLOBAL qk_u32x4 *)from)[i / 2 + (qk_u32)k];
        x[2 * k] = (qk_u64)v.y << 32 | v.x;
        x[2 * k + 1] = (qk_u64)v.w << 32 | v.z;
    }
}

QK_FN void qk_put8_u64(QK_GLOBAL qk_u64 *to, qk_u32 i, const qk_u64 *x)
{
    for (int k = 0; k < 4; k++) {
        qk_u32x4 v;
        v.x = (qk_u32)x[2 * k], v.y = (qk_u32)(x[2 * k] >> 32);
        v.z = (qk_u32)x[2 * k + 1], v.w = (qk_u32)(x[2 * k + 1] >> 32);
        ((QK_GLOBAL qk_u32x4 *)to)[i / 2 + (qk_u32)k] = v;
    }
}

#endif
