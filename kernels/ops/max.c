/*
 * max.c - maxima by comparison: numbers are compared, bits are copied. The loops select instead of
 * branching, and everything in one is equally wide, so that a compiler does many columns at once.
 */
#include "max.h"

#include <string.h>

/* The bits of a 16-bit float as an integer in the order of the numbers; both zeros are 0. */
static inline int16_t order_16(int16_t bits)
{
    const int16_t magnitude = bits & 0x7fff, sign = (int16_t) - (bits < 0);
    return (int16_t)((magnitude ^ sign) - sign);
}

/* a > b, which is false for NaN: those lie beyond the infinity. */
static inline int16_t greater_16(int16_t a, int16_t b, int16_t infinity)
{
    return (int16_t)(((int16_t)(a & 0x7fff) <= infinity) & ((int16_t)(b & 0x7fff) <= infinity) &
                     (order_16(a) > order_16(b)));
}

/* Elements are read as T to compare them and as U, unsigned and as wide, to move them. */
#define MAX(NAME, T, U, IS_GREATER)                                                                \
    static void max_##NAME(size_t n, const void *src, uint16_t number, void *best, void *numbers)  \
    {                                                                                              \
        const unsigned char *restrict from = src;                                                  \
        unsigned char *restrict to = best;                                                         \
        unsigned char *restrict which = numbers;                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            T x, y;                                                                                \
            U x_bits, y_bits, old;                                                                 \
            memcpy(&x, from + i * sizeof x, sizeof x);                                             \
            memcpy(&y, to + i * sizeof y, sizeof y);                                               \
            memcpy(&x_bits, &x, sizeof x);                                                         \
            memcpy(&y_bits, &y, sizeof y);                                                         \
            const U mask = (U)(0 - (U)(IS_GREATER));                                               \
            y_bits = (U)((x_bits & mask) | (y_bits & (U)~mask));                                   \
            memcpy(&old, which + i * sizeof old, sizeof old);                                      \
            old = (U)((number & mask) | (old & (U)~mask));                                         \
            memcpy(which + i * sizeof old, &old, sizeof old);                                      \
            memcpy(to + i * sizeof y, &y_bits, sizeof y);                                          \
        }                                                                                          \
    }

MAX(f64, double, uint64_t, x > y)
MAX(f32, float, uint32_t, x > y)
MAX(f16, int16_t, uint16_t, greater_16(x, y, 0x7c00))
MAX(bf16, int16_t, uint16_t, greater_16(x, y, 0x7f80))

qp_max_fn qp_max_kernel(enum qplan_dtype dtype)
{
    switch (dtype) {
    case QPLAN_F64:
        return max_f64;
    case QPLAN_F32:
        return max_f32;
    case QPLAN_F16:
        return max_f16;
    default:
        return max_bf16;
    }
}
