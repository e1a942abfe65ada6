/*
 * log2.c - the digits of a logarithm, one by one: a square has twice the logarithm, so whether it
 * passes 2 is the next digit.
 *
 * The number has 63 bits behind the point, and what a square loses counts half as much with each
 * digit: all of it is less than 2^-61, far behind the last digit.
 */
#include "log2.h"

__extension__ typedef unsigned __int128 product;

uint64_t qp_log2(uint64_t n)
{
    const unsigned zeros = (unsigned)__builtin_clzll(n);
    uint64_t digits = 63 - zeros;
    uint64_t x = n << zeros;
    for (unsigned i = 0; i < QP_LOG2_BITS; i++) {
        const product square = (product)x * x;
        const unsigned digit = (unsigned)(square >> 127);
        x = (uint64_t)(square >> (63 + digit));
        digits = digits << 1 | digit;
    }
    return digits;
}
