/*
 * gradient.h - storing one result as a gradient: rounded half to even, infinite where it is too
 * large, and NaN as the quiet one with sign and payload 0, so that bits do not depend on which NaN
 * an instruction set hands on. The codecs of kernels/dtypes clip instead, as codes ask for.
 */
#ifndef QP_KERNELS_OPS_GRADIENT_H
#define QP_KERNELS_OPS_GRADIENT_H

#include "kernels/dtypes/narrow.h"

#include <math.h>
#include <stdbool.h>

/*
 * From this magnitude on a result is infinite in its dtype: half way between the largest finite
 * value and the next power of two, which would be even. f64 and f32 hold what is computed in them.
 */
#define QP_HALF_WAY_F16  65520.0f
#define QP_HALF_WAY_BF16 0x1.ffp127f

/* Each returns whether a finite x became infinite. */
#define QP_GRADIENT_16(NAME, EXP_BITS, MAN_BITS, HALF_WAY)                                         \
    static inline bool qp_gradient_##NAME(unsigned char *p, double x)                              \
    {                                                                                              \
        const uint16_t infinity = (uint16_t)(((1u << (EXP_BITS)) - 1) << (MAN_BITS));              \
        const uint16_t sign = (uint16_t)(signbit(x) ? 1u << 15 : 0);                               \
        const bool large = !(fabs(x) < (double)(HALF_WAY));                                        \
        uint16_t bits = (uint16_t)(sign | infinity);                                               \
        if (isnan(x))                                                                              \
            bits = (uint16_t)(infinity | 1u << ((MAN_BITS)-1));                                    \
        else if (!large)                                                                           \
            bits = qp_narrow_f64(x, EXP_BITS, MAN_BITS);                                           \
        memcpy(p, &bits, sizeof bits);                                                             \
        return large && isfinite(x);                                                               \
    }

QP_GRADIENT_16(f16, 5, 10, QP_HALF_WAY_F16)
QP_GRADIENT_16(bf16, 8, 7, QP_HALF_WAY_BF16)

#undef QP_GRADIENT_16

static inline bool qp_gradient_f32(unsigned char *p, double x)
{
    const float y = isnan(x) ? NAN : (float)x;
    memcpy(p, &y, sizeof y);
    return isinf(y) && isfinite(x);
}

static inline bool qp_gradient_f64(unsigned char *p, double x)
{
    const double y = isnan(x) ? (double)NAN : x;
    memcpy(p, &y, sizeof y);
    return false;
}

#endif
