/*
 * scaled.h - numbers whose exponent a double may have no room for: sums of squares of f64 values.
 *
 * A number is rounded as a double is. With an exponent of 0 it is a double, and all here gives the
 * bits of plain arithmetic.
 */
#ifndef QP_SCALED_H
#define QP_SCALED_H

#include <math.h>

/* value * 2^exponent. */
struct qp_scaled {
    double value;
    int exponent;
};

/*
 * The sum. The number with the larger exponent must not be so small in its value that bits of the
 * other matter that a double loses there.
 */
static inline struct qp_scaled qp_scaled_sum(struct qp_scaled a, struct qp_scaled b)
{
    if (a.exponent == b.exponent)
        return (struct qp_scaled){a.value + b.value, a.exponent};
    if (a.value == 0)
        return b;
    if (b.value == 0)
        return a;
    const int most = a.exponent > b.exponent ? a.exponent : b.exponent;
    return (struct qp_scaled){ldexp(a.value, a.exponent - most) + ldexp(b.value, b.exponent - most),
                              most};
}

/* The quotient of two numbers, of which b is not 0. Its value is 0, or near 1. */
static inline struct qp_scaled qp_scaled_ratio(struct qp_scaled a, struct qp_scaled b)
{
    int above = 0, below = 0;
    const double value = frexp(a.value, &above) / frexp(b.value, &below);
    return (struct qp_scaled){value, a.exponent + above - b.exponent - below};
}

#endif
