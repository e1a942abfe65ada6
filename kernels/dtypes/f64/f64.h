/*
 * f64: 8 bytes, little-endian IEEE binary64. Its working precision is f64.
 */
#ifndef QP_DTYPES_F64_H
#define QP_DTYPES_F64_H

#include "kernels/dtypes/bits.h"

static inline double qp_widen_f64(uint64_t bits)
{
    return qp_of_bits_f64(bits);
}

static inline double qp_load_f64(const unsigned char *p)
{
    return qp_widen_f64(qp_get64(p));
}

static inline void qp_store_f64_in_f64(unsigned char *p, double x)
{
    qp_put64(p, qp_bits_f64(x));
}

static inline void qp_store_f64_in_f32(unsigned char *p, float x)
{
    qp_store_f64_in_f64(p, (double)x);
}

#endif
