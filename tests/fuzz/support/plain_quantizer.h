/*
 * plain_quantizer.h - what minmax makes of a source: parameters and codes by the numeric contract,
 * one set and one element at a time, without the arithmetic of the library.
 */
#ifndef PLAIN_QUANTIZER_H
#define PLAIN_QUANTIZER_H

#include "plain_decoder.h"

/* Of a set: the least and the largest of its finite values and 0; or its scale and zero point. */
struct plain_range {
    double low, high;
};
struct plain_params {
    double scale; /* infinite: none can be stored */
    int zero;
};
struct plain_params plain_minmax(const struct plain_tensor *t, const struct plain_range *range);

/* The code of a value. */
int plain_code(const struct plain_tensor *t, const struct plain_params *params, double x);

#endif
