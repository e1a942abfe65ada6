/*
 * e8m0: 1 byte, an exponent alone: 2^(byte - 127), from 2^-127 to 2^127. The largest byte is NaN.
 * There is no sign and no 0: a type of scales.
 */
#ifndef QP_DTYPES_E8M0_H
#define QP_DTYPES_E8M0_H

#include "kernels/dtypes/bits.h"

/* The exponent field of an f32 but at both ends: 2^-127 is subnormal there. */
static inline float qp_widen_e8m0(uint8_t h)
{
    const uint32_t bits = (uint32_t)h << 23;
    return qp_of_bits_f32(bits | (h == 0 || h == 0xff ? 0x00400000u : 0));
}

static inline float qp_load_e8m0(const unsigned char *p)
{
    return qp_widen_e8m0(*p);
}

/* The exponent of x, a power of two from 2^-127 to 2^127: only scales that are such are stored. */
static inline void qp_store_e8m0_in_f32(unsigned char *p, float x)
{
    *p = (uint8_t)(qp_bits_f32(x) >> 23);
}

static inline void qp_store_e8m0_in_f64(unsigned char *p, double x)
{
    qp_store_e8m0_in_f32(p, (float)x);
}

#endif
