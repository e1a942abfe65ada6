/*
 * biased.h - the arithmetic of biased codes: a code q from 0 on stands for scale * q + bias.
 *
 * The bias of a set is stored in the type of its scale, which f32 holds in every case. So it goes
 * where linear codes have their zero point, as the bits of an f32: an array of integers serves
 * both kinds, on devices too.
 */
#ifndef QP_KERNELS_BIASED_H
#define QP_KERNELS_BIASED_H

#include "kernels/dtypes/bits.h"

#include <stdbool.h>

static inline float qp_bias(int32_t zero)
{
    return qp_of_bits_f32((uint32_t)zero);
}

static inline int32_t qp_bias_bits(float bias)
{
    return (int32_t)qp_bits_f32(bias);
}

/*
 *   qp_two_sum_*   a + b, and in rest[0] what its rounding lost: exact, if nothing overflows
 *   qp_covers_*    whether bias + (n - 1) * scale >= most, exactly. n is a power of 2 and n * scale
 *                  finite; written as n * scale + bias >= most + scale it needs sums alone: those
 *                  that differ after rounding are in the right order, as rounding is monotone, and
 *                  for others the rests decide.
 *   qp_next_up_*   the next number above a positive one
 */
#define QP_DEFINE_BIASED(SUFFIX, T)                                                                \
    static inline T qp_two_sum_##SUFFIX(T a, T b, T rest[1])                                       \
    {                                                                                              \
        const T sum = a + b, b_taken = sum - a, a_taken = sum - b_taken;                           \
        rest[0] = (a - a_taken) + (b - b_taken);                                                   \
        return sum;                                                                                \
    }                                                                                              \
                                                                                                   \
    static inline bool qp_covers_##SUFFIX(T bias, T scale, T most, int32_t n)                      \
    {                                                                                              \
        T rest, rest_wanted;                                                                       \
        const T sum = qp_two_sum_##SUFFIX(scale * (T)n, bias, &rest);                              \
        const T wanted = qp_two_sum_##SUFFIX(most, scale, &rest_wanted);                           \
        return sum == wanted ? rest >= rest_wanted : sum > wanted;                                 \
    }                                                                                              \
                                                                                                   \
    static inline T qp_next_up_##SUFFIX(T x)                                                       \
    {                                                                                              \
        return qp_of_bits_##SUFFIX(qp_bits_##SUFFIX(x) + 1);                                       \
    }

QP_DEFINE_BIASED(f32, float)
QP_DEFINE_BIASED(f64, double)

#undef QP_DEFINE_BIASED

#endif
