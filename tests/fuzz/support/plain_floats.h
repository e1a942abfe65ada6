/*
 * plain_floats.h - the float types of tensors by their definition: a sign, an exponent and a
 * mantissa of so many bits. Nothing of the library is used, so that it can be judged.
 */
#ifndef PLAIN_FLOATS_H
#define PLAIN_FLOATS_H

#include "lib/qplan.h"

struct plain_float {
    unsigned n_bytes, exponent_bits, mantissa_bits;
};

/* The form of F64, F32, F16 or BF16; NULL for any other type. */
const struct plain_float *plain_float_of(enum qplan_storage storage);

/* The i-th of some values in a file: little endian, at any address. */
double plain_get(const struct plain_float *form, const void *values, uint64_t i);

/*
 * The nearest value of a form, ties to even. One too large becomes the largest finite one;
 * infinities and NaN stay what they are.
 */
double plain_round(const struct plain_float *form, double x);

/* The least normal value of a form that is not below x > 0; infinite if there is none. */
double plain_round_up(const struct plain_float *form, double x);

/* Stores a value that is one of the form. */
void plain_put(const struct plain_float *form, void *values, uint64_t i, double x);

#endif
