/*
 * exact.c - integers of 32 bits a limb, whose carries wait in the upper halves.
 */
#include "exact.h"

#include <float.h>
#include <math.h>

#define LEAST_EXPONENT (-1074)

/* So many numbers may be added before an upper half is full. */
#define MOST_ADDED (UINT32_MAX - 1)

/* Takes the carries on: then every limb has 32 bits, and equal sums have equal limbs. */
static void settle(struct qp_exact *sum)
{
    uint64_t carry = 0;
    for (int i = 0; i < QP_EXACT_LIMBS; i++) {
        const uint64_t limb = sum->limb[i] + carry;
        sum->limb[i] = limb & UINT32_MAX;
        carry = limb >> 32;
    }
    sum->n_added = 1; /* the limbs themselves */
}

void qp_exact_add(struct qp_exact *sum, double value)
{
    int exponent;
    const double fraction = frexp(value <= DBL_MAX ? value : DBL_MAX, &exponent);
    uint64_t bits = (uint64_t)ldexp(fraction, DBL_MANT_DIG);
    int place = exponent - DBL_MANT_DIG - LEAST_EXPONENT;
    if (bits == 0)
        return;
    if (place < 0) { /* a subnormal has zeros there */
        bits >>= -place;
        place = 0;
    }
    const int shift = place % 32;
    uint64_t *limb = &sum->limb[place / 32];
    limb[0] += bits << shift & UINT32_MAX;
    limb[1] += bits >> (32 - shift) & UINT32_MAX;
    limb[2] += shift ? bits >> (64 - shift) : 0;
    if (++sum->n_added >= MOST_ADDED)
        settle(sum);
}

void qp_exact_merge(struct qp_exact *sum, const struct qp_exact *other)
{
    struct qp_exact settled = *other;
    settle(&settled);
    for (int i = 0; i < QP_EXACT_LIMBS; i++)
        sum->limb[i] += settled.limb[i];
    if (++sum->n_added >= MOST_ADDED)
        settle(sum);
}

double qp_exact_value(const struct qp_exact *sum)
{
    struct qp_exact settled = *sum;
    double value = 0;
    settle(&settled);
    for (int i = QP_EXACT_LIMBS - 1; i >= 0; i--)
        value += ldexp((double)settled.limb[i], 32 * i + LEAST_EXPONENT);
    return value <= DBL_MAX ? value : DBL_MAX;
}
