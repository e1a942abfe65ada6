/*
 * f8e4m3: 1 byte, 4 exponent and 3 mantissa bits. No infinity; the largest pattern of either sign
 * is NaN, and the one before it is 448.
 */
#ifndef QP_DTYPES_F8E4M3_H
#define QP_DTYPES_F8E4M3_H

#include "kernels/dtypes/narrow.h"

#define QP_F8E4M3_MOST      448.0f
#define QP_F8E4M3_MOST_BITS 0x7e

/* As f16 is widened: a product with 2^(127 - 7) makes up for the smaller exponent. */
static inline float qp_widen_f8e4m3(uint8_t h)
{
    const uint32_t sign = (h & 0x80u) << 24, size = h & 0x7fu;
    const float x = qp_of_bits_f32(size << 20) * 0x1p120f;
    return qp_of_bits_f32(qp_bits_f32(x) | (size == 0x7f ? 0x7fc00000u : 0) | sign);
}

static inline float qp_load_f8e4m3(const unsigned char *p)
{
    return qp_widen_f8e4m3(*p);
}

/*
 * Half to even, by a sum with 2^20 times the power of two in x, as f16 has it. All that is above
 * 448, and what is no number, becomes 448.
 */
static inline uint8_t qp_narrow_f8e4m3(float x)
{
    const uint32_t bits = qp_bits_f32(x), sign = bits & 0x80000000u;
    const int32_t size = (int32_t)(bits ^ sign), most = 0x43e00000; /* 448 */
    const int32_t kept = size < most ? size : most;
    const int32_t own = kept & 0x7f800000, least = 121 << 23, exponent = own > least ? own : least;
    const uint32_t power = (uint32_t)exponent + (20u << 23);
    const float sum = qp_of_bits_f32((uint32_t)kept) + qp_of_bits_f32(power);
    const uint32_t significand = qp_bits_f32(sum) - power,
                   field = (uint32_t)(exponent - least) >> 20;
    return (uint8_t)((significand + field) | sign >> 24);
}

static inline void qp_store_f8e4m3_in_f32(unsigned char *p, float x)
{
    *p = qp_narrow_f8e4m3(x);
}

static inline void qp_store_f8e4m3_in_f64(unsigned char *p, double x)
{
    *p = (uint8_t)qp_narrow_f64_to(x, 4, 3, QP_F8E4M3_MOST_BITS);
}

#endif
