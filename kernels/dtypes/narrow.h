/*
 * narrow.h - rounding a double to a small binary float, by integers only.
 *
 * One algorithm serves every IEEE-like format of up to 16 bits. Round half to even, subnormals
 * kept; what would be infinite becomes the largest finite value of that sign. The codecs round an
 * f32 in fewer steps, to the same bits.
 */
#ifndef QP_DTYPES_NARROW_H
#define QP_DTYPES_NARROW_H

#include "bits.h"

/* value >> shift, half to even. */
static inline uint64_t qp_shift_rne(uint64_t value, unsigned shift)
{
    if (shift == 0)
        return value;
    if (shift > 63)
        return 0; /* values have 53 bits: below half of the last place */
    uint64_t kept = value >> shift;
    uint64_t rest = value & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

/*
 * The bits of x in a format with exp_bits exponent and man_bits mantissa bits, whose largest finite
 * value has the bits `most`. x is not NaN.
 */
static inline uint16_t qp_narrow_f64_to(double x, unsigned exp_bits, unsigned man_bits,
                                        uint64_t most)
{
    const uint64_t bits = qp_bits_f64(x);
    const uint64_t magnitude = bits & (UINT64_MAX >> 1);
    const int least_exp = 2 - (1 << (exp_bits - 1)); /* exponent of the smallest normal */

    int exponent = (int)(magnitude >> 52) - 1023;
    uint64_t significand = magnitude & (((uint64_t)1 << 52) - 1);
    if (magnitude >> 52)
        significand |= (uint64_t)1 << 52;
    unsigned shift = 52 - man_bits;
    if (exponent < least_exp) { /* subnormal in the target: fewer bits remain */
        shift += (unsigned)(least_exp - exponent);
        exponent = least_exp;
    }
    /* The hidden bit, or a carry out of the rounding, adds itself to the exponent field. */
    uint64_t narrow =
        qp_shift_rne(significand, shift) + ((uint64_t)(exponent - least_exp) << man_bits);
    if (narrow > most)
        narrow = most;
    return (uint16_t)(narrow | (bits >> 63) << (exp_bits + man_bits));
}

/* Of a format in which the largest exponent is that of infinity. */
static inline uint16_t qp_narrow_f64(double x, unsigned exp_bits, unsigned man_bits)
{
    return qp_narrow_f64_to(x, exp_bits, man_bits,
                            ((((uint64_t)1 << exp_bits) - 1) << man_bits) - 1);
}

#endif
