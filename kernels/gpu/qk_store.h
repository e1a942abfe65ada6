/*
 * qk_store.h - decoded values to the elements that are written: rounded half to even, and what is
 * too large becomes the largest value. The specification is kernels/dtypes.
 */
#ifndef QK_STORE_H
#define QK_STORE_H

#include "qk_flat.h"
#include "qk_floats.h"

QK_FN qk_u32 qk_to_bf16(float x)
{
    qk_u32 bits = QK_U32(x), sign = bits & 0x80000000u, size = bits ^ sign;
    size = size < 0x7f7f0000u ? size : 0x7f7f0000u;
    return (size + 0x7fffu + (size >> 16 & 1u)) >> 16 | sign >> 16;
}

/* As in kernels/dtypes/f16/f16.h: a sum with a power of two has the last place of an f16. */
QK_FN qk_u32 qk_to_f16(float x)
{
    qk_u32 bits = QK_U32(x), sign = bits & 0x80000000u, size = bits ^ sign;
    size = size < 0x477fe000u ? size : 0x477fe000u;
    qk_u32 own = size & 0x7f800000u, least = 113u << 23, exponent = own > least ? own : least;
    qk_u32 power = exponent + (13u << 23);
    qk_u32 significand = QK_U32(QK_F32(size) + QK_F32(power)) - power;
    return (significand + ((exponent - least) >> 13)) | sign >> 16;
}

/* Eight 16-bit elements to an aligned place in one store of 128 bits, or fewer one by one. */
QK_FN void qk_put_16(QK_GLOBAL qk_u8 *out, qk_u32 i, qk_u32 n, const qk_u32 *h)
{
    qk_u32x4 v;
    v.x = h[0] | h[1] << 16, v.y = h[2] | h[3] << 16;
    v.z = h[4] | h[5] << 16, v.w = h[6] | h[7] << 16;
    if (n == 8) {
        ((QK_GLOBAL qk_u32x4 *)out)[i / 8] = v;
        return;
    }
    QK_GLOBAL qk_u16 *to = (QK_GLOBAL qk_u16 *)out + i;
    for (int k = 0; k < 8; k++) {
        if ((qk_u32)k < n)
            to[k] = (qk_u16)h[k];
    }
}

QK_FN void qk_put_f32(QK_GLOBAL qk_u8 *out, qk_u32 i, qk_u32 n, const float *y)
{
    qk_u32x4 low, high;
    low.x = QK_U32(y[0]), low.y = QK_U32(y[1]), low.z = QK_U32(y[2]), low.w = QK_U32(y[3]);
    high.x = QK_U32(y[4]), high.y = QK_U32(y[5]), high.z = QK_U32(y[6]), high.w = QK_U32(y[7]);
    if (n == 8) {
        ((QK_GLOBAL qk_u32x4 *)out)[i / 4] = low;
        ((QK_GLOBAL qk_u32x4 *)out)[i / 4 + 1] = high;
        return;
    }
    QK_GLOBAL qk_u32 *to = (QK_GLOBAL qk_u32 *)out + i;
    for (int k = 0; k < 8; k++) {
        if ((qk_u32)k < n)
            to[k] = QK_U32(y[k]);
    }
}

/* n of the octet at i, as the dtype that was asked for. */
QK_FN void qk_store_in_f32(QK_GLOBAL qk_u8 *out, qk_u32 as, qk_u32 i, qk_u32 n, const float *y)
{
    qk_u32 h[8];
    if (as == QK_AS_F32) {
        qk_put_f32(out, i, n, y);
        return;
    }
    for (int k = 0; k < 8; k++)
        h[k] = as == QK_AS_F16 ? qk_to_f16(y[k]) : qk_to_bf16(y[k]);
    qk_put_16(out, i, n, h);
}

#ifdef QK_FP64
/* As in kernels/dtypes/narrow.h. */
QK_FN qk_u64 qk_shift_rne(qk_u64 value, qk_u32 shift)
{
    if (shift > 63)
        return 0;
    qk_u64 kept = value >> shift, rest = value & (((qk_u64)1 << shift) - 1);
    qk_u64 middle = (qk_u64)1 << (shift - 1);
    return kept + (rest > middle || (rest == middle && (kept & 1)));
}

/* The bits of x in a format whose largest finite value has the bits `most`. man_bits is at most 10,
 * so the shift is never 0. */
QK_FN qk_u32 qk_narrow_f64(double x, qk_u32 exp_bits, qk_u32 man_bits, qk_u32 most)
{
    qk_u64 bits = QK_U64(x), size = bits & ~((qk_u64)1 << 63);
    qk_i32 least = 2 - (1 << (exp_bits - 1)), exponent = (qk_i32)(size >> 52) - 1023;
    qk_u32 shift = 52 - man_bits;
    qk_u64 significand = size & (((qk_u64)1 << 52) - 1);
    if (size >> 52)
        significand |= (qk_u64)1 << 52;
    if (exponent < least) {
        shift += (qk_u32)(least - exponent);
        exponent = least;
    }
    qk_u64 narrow =
        qk_shift_rne(significand, shift) + ((qk_u64)(qk_u32)(exponent - least) << man_bits);
    qk_u32 field = narrow < most ? (qk_u32)narrow : most;
    return field | (qk_u32)(bits >> 63) << (exp_bits + man_bits);
}

QK_FN float qk_finite_f32(double x)
{
    float y = (float)x;
    y = y > QK_F32_MAX ? QK_F32_MAX : y;
    return y < -QK_F32_MAX ? -QK_F32_MAX : y;
}

QK_FN void qk_put_f64(QK_GLOBAL qk_u8 *out, qk_u32 i, qk_u32 n, const double *y)
{
    for (int k = 0; k < 8; k += 2) {
        qk_u64 a = QK_U64(y[k]), b = QK_U64(y[k + 1]);
        qk_u32x4 v;
        v.x = (qk_u32)a, v.y = (qk_u32)(a >> 32), v.z = (qk_u32)b, v.w = (qk_u32)(b >> 32);
        if ((qk_u32)k + 1 < n)
            ((QK_GLOBAL qk_u32x4 *)out)[(i + (qk_u32)k) / 2] = v;
        else if ((qk_u32)k < n)
            ((QK_GLOBAL qk_u64 *)out)[i + (qk_u32)k] = a;
    }
}

QK_FN void qk_store_in_f64(QK_GLOBAL qk_u8 *out, qk_u32 as, qk_u32 i, qk_u32 n, const double *y)
{
    float narrow[8];
    qk_u32 h[8];
    if (as == QK_AS_F64) {
        qk_put_f64(out, i, n, y);
    } else if (as == QK_AS_F32) {
        for (int k = 0; k < 8; k++)
            narrow[k] = qk_finite_f32(y[k]);
        qk_put_f32(out, i, n, narrow);
    } else {
        for (int k = 0; k < 8; k++)
            h[k] = as == QK_AS_F16 ? qk_narrow_f64(y[k], 5, 10, 0x7bffu)
                                   : qk_narrow_f64(y[k], 8, 7, 0x7f7fu);
        qk_put_16(out, i, n, h);
    }
}
#endif

#endif
