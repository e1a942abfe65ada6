/*
 * largest.h - scales that are stored as the value of the largest code q_max, where others are the
 * step from one code to the next. Engines of such layouts compute in f32, and so it is done here:
 *
 *     step = largest * (1 / q_max), value = (code * largest) * (1 / q_max)
 *
 * with the reciprocal rounded too. A value is a little off step * code, which codes are made and
 * judged by: far less than what bounds allow for the rounding of a quotient and a product.
 */
#ifndef QP_KERNELS_LARGEST_H
#define QP_KERNELS_LARGEST_H

#include "code.h"

#include <stddef.h>

/* What a largest value, or the product of one and a code, is multiplied by. */
static inline float qp_part_of_largest(const struct qp_code_rule *rule)
{
    return 1.0f / (float)rule->q_max;
}

/* Multiplies n numbers of working precision, in f32. */
static inline void qp_times_f32(enum qplan_dtype work, size_t n, float factor, void *numbers)
{
    float *f32 = numbers;
    double *f64 = numbers;
    for (size_t i = 0; work != QPLAN_F64 && i < n; i++)
        f32[i] *= factor;
    for (size_t i = 0; work == QPLAN_F64 && i < n; i++)
        f64[i] = (double)((float)f64[i] * factor);
}

#endif
