/*
 * f16: 2 bytes, IEEE binary16 (5 exponent, 10 mantissa bits). Its working precision is f32.
 */
#ifndef QP_DTYPES_F16_H
#define QP_DTYPES_F16_H

#include "../narrow.h"

static inline float qp_load_f16(const unsigned char *p)
{
    uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    float x;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact in f32 */
        x = (float)mantissa * 0x1p-24f;
        return sign ? -x : x;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void qp_store_f16(unsigned char *p, double x)
{
    uint16_t h = qp_narrow_f64(x, 5, 10);
    p[0] = (unsigned char)(h & 255);
    p[1] = (unsigned char)(h >> 8);
}

#endif
