/*
 * f32: 4 bytes, little-endian IEEE binary32. Its working precision is f32.
 */
#ifndef QP_DTYPES_F32_H
#define QP_DTYPES_F32_H

#include "kernels/dtypes/bits.h"

static inline float qp_widen_f32(uint32_t bits)
{
    return qp_of_bits_f32(bits);
}

static inline float qp_load_f32(const unsigned char *p)
{
    return qp_widen_f32(qp_get32(p));
}

/* What is infinite becomes the largest finite value. */
static inline void qp_store_f32_in_f32(unsigned char *p, float x)
{
    qp_put32(p, qp_bits_f32(qp_finite_f32(x)));
}

/* Rounds half to even; what would be infinite becomes the largest finite value. */
static inline void qp_store_f32_in_f64(unsigned char *p, double x)
{
    qp_store_f32_in_f32(p, (float)x);
}

#endif
