/*
 * linear.h - the arithmetic of linear codes: rounding a quotient, and scale and zero point of one
 * parameter set from the least and largest of its values.
 *
 * One text for both working precisions. Every step is a single IEEE operation in that precision
 * (division, never a reciprocal), so that any backend which repeats it gets the same bits. Rounding
 * the scale up to its stored dtype is the caller's; the zero point is found with the stored scale.
 * Needs round-to-nearest and no contraction; never looks at the rounding mode.
 */
#ifndef QP_KERNELS_LINEAR_H
#define QP_KERNELS_LINEAR_H

#include "kernels/dtypes/bits.h"

#include <stdbool.h>

/*
 * SHIFT is 1.5 * 2^p for a significand of p + 1 bits: a sum with it has an ulp of 1, so adding and
 * subtracting it rounds half to even. That holds for |x| up to 2^(p - 1).
 *
 *   qp_rne_*    the nearest integer, ties to even; |x| <= 2^22 (f32) or 2^51 (f64)
 *   qp_steps_*  the same as an int32_t, for |x| <= 2^21: it stands in the lower bits of the sum
 *   qp_scale_*  the scale before it is rounded to its stored dtype, given lo <= 0 <= hi, both
 *               finite. 1 for a set of zeros; may underflow to 0, and overflow to infinity where
 *               there are fewer than three codes.
 *   qp_zero_*   the zero point for the stored scale: symmetric 0, or the midpoint of an unsigned
 *               type; asymmetric inside q_min .. q_max, which must include 0, and 0 for a set of
 *               zeros.
 */
#define QP_DEFINE_LINEAR(SUFFIX, T, SHIFT, MAX)                                                    \
    static inline T qp_rne_##SUFFIX(T x)                                                           \
    {                                                                                              \
        return (x + (SHIFT)) - (SHIFT);                                                            \
    }                                                                                              \
                                                                                                   \
    static inline int32_t qp_steps_##SUFFIX(T x)                                                   \
    {                                                                                              \
        return (int32_t)(uint32_t)(qp_bits_##SUFFIX(x + (SHIFT)) - qp_bits_##SUFFIX(SHIFT));       \
    }                                                                                              \
                                                                                                   \
    static inline T qp_scale_##SUFFIX(T lo, T hi, int32_t q_min, int32_t q_max, bool asymmetric)   \
    {                                                                                              \
        T steps = (T)(q_max - q_min);                                                              \
        T half_steps = steps / 2;                                                                  \
        if (lo == hi)                                                                              \
            return 1;                                                                              \
        if (!asymmetric)                                                                           \
            return (-lo > hi ? -lo : hi) / half_steps;                                             \
        T width = hi - lo;                                                                         \
        return width > (MAX) ? (hi / 2 - lo / 2) / half_steps : width / steps;                     \
    }                                                                                              \
                                                                                                   \
    static inline int32_t qp_zero_##SUFFIX(T lo, T hi, T scale, int32_t q_min, int32_t q_max,      \
                                           bool asymmetric, bool is_signed)                        \
    {                                                                                              \
        if (!asymmetric)                                                                           \
            return is_signed ? 0 : (q_min + q_max + 1) / 2;                                        \
        if (lo == hi)                                                                              \
            return 0;                                                                              \
        T least = (T)(q_min - q_max);                                                              \
        T steps_below = lo / scale;                                                                \
        return q_min - (int32_t)qp_rne_##SUFFIX(steps_below < least ? least : steps_below);        \
    }

QP_DEFINE_LINEAR(f32, float, 0x1.8p23f, 0x1.fffffep127f)
QP_DEFINE_LINEAR(f64, double, 0x1.8p52, 0x1.fffffffffffffp1023)

#undef QP_DEFINE_LINEAR

#endif
