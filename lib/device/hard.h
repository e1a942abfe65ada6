/*
 * hard.h - values that devices are proven on: a fixed sequence of random numbers, floats that are
 * easily got wrong, and how either is stored.
 */
#ifndef QP_DEVICE_HARD_H
#define QP_DEVICE_HARD_H

#include "lib/qplan.h"

/* The next of a fixed sequence. A state is any number but 0. */
uint32_t qp_hard_random(uint32_t *state);

/* Zeros of both signs, subnormals, ties, and ends of ranges; infinity and NaN where wanted. */
double qp_hard_value(uint32_t random, bool nonfinite);

/* Writes an element of a float dtype: rounded and clipped, but infinity and NaN as they are. */
void qp_hard_put(enum qplan_dtype dtype, double x, void *to);

#endif
