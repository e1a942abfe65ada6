/*
 * bits.h - elements as integers, and floats as their bits.
 *
 * Files are little-endian; this is the only place that knows what the machine is. One memcpy of the
 * whole element, so that a loop over elements can become one over vectors.
 */
#ifndef QP_DTYPES_BITS_H
#define QP_DTYPES_BITS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define QP_LITTLE(n_bits, x) __builtin_bswap##n_bits(x)
#else
#define QP_LITTLE(n_bits, x) (x)
#endif

/*
 *   qp_get16, ...      the bits of an element in memory, at any address
 *   qp_put16, ...      the element of these bits
 */
#define QP_DEFINE_ELEMENT(N)                                                                       \
    static inline uint##N##_t qp_get##N(const unsigned char *p)                                    \
    {                                                                                              \
        uint##N##_t bits;                                                                          \
        memcpy(&bits, p, sizeof bits);                                                             \
        return QP_LITTLE(N, bits);                                                                 \
    }                                                                                              \
                                                                                                   \
    static inline void qp_put##N(unsigned char *p, uint##N##_t bits)                               \
    {                                                                                              \
        bits = QP_LITTLE(N, bits);                                                                 \
        memcpy(p, &bits, sizeof bits);                                                             \
    }

QP_DEFINE_ELEMENT(16)
QP_DEFINE_ELEMENT(32)
QP_DEFINE_ELEMENT(64)

#undef QP_DEFINE_ELEMENT

/*
 *   qp_bits_f32, ...      the bits of a float
 *   qp_of_bits_f32, ...   the float of these bits
 */
#define QP_DEFINE_FLOAT(SUFFIX, T, UINT)                                                           \
    static inline UINT qp_bits_##SUFFIX(T x)                                                       \
    {                                                                                              \
        UINT bits;                                                                                 \
        memcpy(&bits, &x, sizeof bits);                                                            \
        return bits;                                                                               \
    }                                                                                              \
                                                                                                   \
    static inline T qp_of_bits_##SUFFIX(UINT bits)                                                 \
    {                                                                                              \
        T x;                                                                                       \
        memcpy(&x, &bits, sizeof x);                                                               \
        return x;                                                                                  \
    }

QP_DEFINE_FLOAT(f32, float, uint32_t)
QP_DEFINE_FLOAT(f64, double, uint64_t)

#undef QP_DEFINE_FLOAT

/*
 * A value that is finite: of an infinity the largest one of its sign, whose bits are those before
 * it. In f64 by a choice, since vectors of SSE2 have no comparison that makes a 64-bit integer.
 */
static inline float qp_finite_f32(float x)
{
    return qp_of_bits_f32(qp_bits_f32(x) - (fabsf(x) > FLT_MAX));
}

static inline double qp_finite_f64(double x)
{
    return fabs(x) > DBL_MAX ? copysign(DBL_MAX, x) : x;
}

#endif
