/*
 * f32: 4 bytes, little-endian IEEE binary32. Its working precision is f32.
 */
#ifndef QP_DTYPES_F32_H
#define QP_DTYPES_F32_H

#include <float.h>
#include <string.h>

static inline float qp_load_f32(const unsigned char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Rounds half to even; what would be infinite becomes the largest finite value. */
static inline void qp_store_f32(unsigned char *p, double x)
{
    float y = x > (double)FLT_MAX ? FLT_MAX : x < -(double)FLT_MAX ? -FLT_MAX : (float)x;
    memcpy(p, &y, sizeof y);
}

#endif
