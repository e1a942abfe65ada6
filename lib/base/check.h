/*
 * check.h - arithmetic on numbers that came from a file.
 *
 * Every sum and product of such numbers goes through these. They return false on overflow and then
 * leave *out alone.
 */
#ifndef QP_BASE_CHECK_H
#define QP_BASE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

static inline bool qp_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool qp_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* a / b rounded up; b is not 0. Cannot overflow. */
static inline uint64_t qp_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t qp_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t qp_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
