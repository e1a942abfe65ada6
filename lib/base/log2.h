/*
 * log2.h - logarithms of whole numbers, as whole numbers: the same on every machine.
 */
#ifndef QP_BASE_LOG2_H
#define QP_BASE_LOG2_H

#include <stdint.h>

/* Bits behind the point. */
#define QP_LOG2_BITS 40

/*
 * The binary logarithm of n, which is not 0, in units of 2^-QP_LOG2_BITS, rounded down; exact for
 * powers of two.
 */
uint64_t qp_log2(uint64_t n);

#endif
