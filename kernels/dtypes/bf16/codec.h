/*
 * bf16: 2 bytes, the upper half of an f32 (8 exponent, 7 mantissa bits). Its working precision is
 * f32.
 */
#ifndef QP_DTYPES_BF16_H
#define QP_DTYPES_BF16_H

#include "../narrow.h"

static inline float qp_load_bf16(const unsigned char *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void qp_store_bf16(unsigned char *p, double x)
{
    uint16_t h = qp_narrow_f64(x, 8, 7);
    p[0] = (unsigned char)(h & 255);
    p[1] = (unsigned char)(h >> 8);
}

#endif
