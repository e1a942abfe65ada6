/*
 * f64: 8 bytes, little-endian IEEE binary64. Its working precision is f64.
 */
#ifndef QP_DTYPES_F64_H
#define QP_DTYPES_F64_H

#include <float.h>
#include <string.h>

static inline double qp_load_f64(const unsigned char *p)
{
    double x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void qp_store_f64(unsigned char *p, double x)
{
    memcpy(p, &x, sizeof x);
}

#endif
