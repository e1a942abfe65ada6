/*
 * bf16: 2 bytes, the upper half of an f32 (8 exponent, 7 mantissa bits). Its working precision is
 * f32.
 */
#ifndef QP_DTYPES_BF16_H
#define QP_DTYPES_BF16_H

#include "kernels/dtypes/narrow.h"

static inline float qp_widen_bf16(uint16_t h)
{
    return qp_of_bits_f32((uint32_t)h << 16);
}

static inline float qp_load_bf16(const unsigned char *p)
{
    return qp_widen_bf16(qp_get16(p));
}

/*
 * Half to even: a little less than half is added, and the rest where the last bit kept is odd. A
 * carry goes into the exponent, which is right; it ends at the largest value, since no magnitude is
 * above that. What is no number becomes the largest value too.
 */
static inline void qp_store_bf16_in_f32(unsigned char *p, float x)
{
    const uint32_t bits = qp_bits_f32(x), sign = bits & 0x80000000u;
    const float size = qp_of_bits_f32(bits ^ sign), most = 0x1.fep127f;
    const uint32_t kept = qp_bits_f32(size < most ? size : most);
    qp_put16(p, (uint16_t)((kept + 0x7fff + (kept >> 16 & 1)) >> 16 | sign >> 16));
}

static inline void qp_store_bf16_in_f64(unsigned char *p, double x)
{
    qp_put16(p, qp_narrow_f64(x, 8, 7));
}

#endif
