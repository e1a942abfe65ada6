/*
 * floats.h - the arithmetic of codes that are small floats.
 *
 * Half to even on the grid of the code, by a sum: to a number of that size is added a power of two
 * whose last place is the last one that the code keeps, or the last one of all for a value without
 * a hidden bit. What the sum has more than that power is the significand in those places; its
 * leading 1, or a carry, adds itself to the exponent field. Every step is exact but that sum.
 */
#ifndef QP_KERNELS_FLOATS_H
#define QP_KERNELS_FLOATS_H

#include "code.h"
#include "kernels/dtypes/f16/f16.h"

#include <stdbool.h>

/* 2^exponent, of an exponent that f32 has. */
static inline float qp_power_f32(int exponent)
{
    return qp_of_bits_f32((uint32_t)(exponent + 127) << 23);
}

/*
 * The value of a code that is a number: its bits are those of an f16 whose exponents count from
 * another least one.
 */
static inline float qp_float_value(uint8_t code, const struct qp_float_grid *grid)
{
    const unsigned size = code & (grid->sign - 1u), sign = code & grid->sign ? 0x8000 : 0;
    return qp_widen_f16((uint16_t)(size << (10 - grid->man_bits) | sign)) *
           qp_power_f32(grid->least_exp + 14);
}

/*
 * MAN and BIAS are those of the working precision.
 *
 *   qp_float_power_*  the power of two to add to a number of this size
 *   qp_float_near_*   the value of the nearest code; of a size above the largest value that of the
 *                     largest. t is not NaN.
 *   qp_float_code_*   that code, with the sign of t: so -0 has one
 *   qp_float_reach_*  how far from a value of the grid its code may be the nearest: half of the gap
 *                     to the next one, outwards or towards 0
 */
#define QP_DEFINE_FLOATS(SUFFIX, T, UINT, MAN, BIAS, ABS)                                          \
    static inline UINT qp_float_exponent_##SUFFIX(T size, const struct qp_float_grid *grid)        \
    {                                                                                              \
        const UINT own = qp_bits_##SUFFIX(size) >> (MAN),                                          \
                   least = (UINT)((BIAS) + grid->least_exp);                                       \
        return own > least ? own : least;                                                          \
    }                                                                                              \
                                                                                                   \
    static inline T qp_float_power_##SUFFIX(T size, const struct qp_float_grid *grid)              \
    {                                                                                              \
        const UINT exponent = qp_float_exponent_##SUFFIX(size, grid);                              \
        return qp_of_bits_##SUFFIX((exponent + (MAN)-grid->man_bits) << (MAN));                    \
    }                                                                                              \
                                                                                                   \
    static inline T qp_float_near_##SUFFIX(T t, const struct qp_float_grid *grid, T largest)       \
    {                                                                                              \
        const T size = ABS(t) < largest ? ABS(t) : largest;                                        \
        const T power = qp_float_power_##SUFFIX(size, grid), near = (size + power) - power;        \
        return t < 0 ? -near : near;                                                               \
    }                                                                                              \
                                                                                                   \
    static inline uint8_t qp_float_code_##SUFFIX(T t, const struct qp_float_grid *grid, T largest) \
    {                                                                                              \
        const T size = ABS(t) < largest ? ABS(t) : largest;                                        \
        const T power = qp_float_power_##SUFFIX(size, grid);                                       \
        const UINT exponent = qp_float_exponent_##SUFFIX(size, grid);                              \
        const UINT field = exponent - (UINT)((BIAS) + grid->least_exp);                            \
        const UINT code = (qp_bits_##SUFFIX(size + power) - qp_bits_##SUFFIX(power)) +             \
                          (field << grid->man_bits);                                               \
        const bool is_negative = qp_bits_##SUFFIX(t) >> (sizeof(T) * 8 - 1);                       \
        return (uint8_t)(code | (is_negative ? grid->sign : 0u));                                  \
    }                                                                                              \
                                                                                                   \
    static inline T qp_float_reach_##SUFFIX(T value, bool outwards,                                \
                                            const struct qp_float_grid *grid)                      \
    {                                                                                              \
        const T size = ABS(value);                                                                 \
        const UINT exponent = qp_float_exponent_##SUFFIX(size, grid);                              \
        const T half = qp_of_bits_##SUFFIX((exponent - grid->man_bits - 1) << (MAN));              \
        const bool is_power = qp_bits_##SUFFIX(size) == exponent << (MAN);                         \
        const bool is_least = exponent == (UINT)((BIAS) + grid->least_exp);                        \
        return is_power && !is_least && !outwards ? half / 2 : half;                               \
    }

QP_DEFINE_FLOATS(f32, float, uint32_t, 23, 127, fabsf)
QP_DEFINE_FLOATS(f64, double, uint64_t, 52, 1023, fabs)

#undef QP_DEFINE_FLOATS

#endif
