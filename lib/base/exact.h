/*
 * exact.h - sums of doubles that no order can change: a number wide enough for every bit of every
 * double. So threads may add their shares as they come.
 */
#ifndef QP_BASE_EXACT_H
#define QP_BASE_EXACT_H

#include <stdint.h>

/* From the least bit of the least double up to 2^64 times the largest. */
#define QP_EXACT_LIMBS 68

/* The sum of limb[i] * 2^(32 i - 1074). Zero bytes are 0. */
struct qp_exact {
    uint64_t limb[QP_EXACT_LIMBS];
    uint32_t n_added; /* since every limb had 32 bits */
};

/* Adds a number that is not below 0; one above all doubles counts as the largest. */
void qp_exact_add(struct qp_exact *sum, double value);

/* Adds another sum. */
void qp_exact_merge(struct qp_exact *sum, const struct qp_exact *other);

/* The sum as a double, the same for equal sums; the largest one if it is above all. */
double qp_exact_value(const struct qp_exact *sum);

#endif
