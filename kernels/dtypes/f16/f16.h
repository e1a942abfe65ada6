/*
 * f16: 2 bytes, IEEE binary16 (5 exponent, 10 mantissa bits). Its working precision is f32.
 *
 * Normal and subnormal values take one path, without a branch: so a loop can become one of vectors.
 */
#ifndef QP_DTYPES_F16_H
#define QP_DTYPES_F16_H

#include "kernels/dtypes/narrow.h"

/*
 * The exponent of an f32 is larger by 127 - 15 = 112: a product with 2^112 makes up for that, and
 * is exact for subnormals too. Infinity and NaN only have the largest exponent of all.
 */
static inline float qp_widen_f16(uint16_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16;
    const int32_t size = (h & 0x7fff) << 13, infinite = size >= 31 << 23 ? 0x7f800000 : 0;
    const float x = qp_of_bits_f32((uint32_t)size) * 0x1p112f;
    return qp_of_bits_f32(qp_bits_f32(x) | (uint32_t)infinite | sign);
}

static inline float qp_load_f16(const unsigned char *p)
{
    return qp_widen_f16(qp_get16(p));
}

/*
 * Half to even, by a sum with 2^13 times the power of two in x: the last place of the sum is the
 * last one that f16 keeps of x, or 2^-24 for a subnormal. What the sum has more than that power is
 * the significand; its leading 1, or a carry, adds itself to the exponent field. What is no number
 * becomes the largest value, as does all that is above it.
 */
static inline void qp_store_f16_in_f32(unsigned char *p, float x)
{
    const uint32_t bits = qp_bits_f32(x), sign = bits & 0x80000000u;
    const int32_t size = (int32_t)(bits ^ sign), most = 0x477fe000; /* 65504 */
    const int32_t kept = size < most ? size : most;
    const int32_t own = kept & 0x7f800000, least = 113 << 23, exponent = own > least ? own : least;
    const uint32_t power = (uint32_t)exponent + (13u << 23);
    const float sum = qp_of_bits_f32((uint32_t)kept) + qp_of_bits_f32(power);
    const uint32_t significand = qp_bits_f32(sum) - power,
                   field = (uint32_t)(exponent - least) >> 13;
    qp_put16(p, (uint16_t)((significand + field) | sign >> 16));
}

static inline void qp_store_f16_in_f64(unsigned char *p, double x)
{
    qp_put16(p, qp_narrow_f64(x, 5, 10));
}

#endif
