/*
 * plain_floats.c - float types by their definition.
 */
#include "plain_floats.h"

#include <math.h>

const struct plain_float *plain_float_of(enum qplan_storage storage)
{
    static const struct plain_float forms[QPLAN_STORAGE_COUNT] = {
        [QPLAN_STORAGE_F64] = {8, 11, 52},
        [QPLAN_STORAGE_F32] = {4, 8, 23},
        [QPLAN_STORAGE_F16] = {2, 5, 10},
        [QPLAN_STORAGE_BF16] = {2, 8, 7},
    };
    return forms[storage].n_bytes ? &forms[storage] : NULL;
}

/* The exponent of 1 is the bias; that of the least normal number is 1 - bias. */
static int bias_of(const struct plain_float *form)
{
    return (1 << (form->exponent_bits - 1)) - 1;
}

double plain_get(const struct plain_float *form, const void *values, uint64_t i)
{
    const unsigned char *at = (const unsigned char *)values + i * form->n_bytes;
    uint64_t bits = 0;
    for (unsigned k = form->n_bytes; k-- > 0;)
        bits = bits << 8 | at[k];
    const uint64_t mantissa = bits & (((uint64_t)1 << form->mantissa_bits) - 1);
    const int exponent = (int)(bits >> form->mantissa_bits & ((1u << form->exponent_bits) - 1));
    const double sign = bits >> (form->exponent_bits + form->mantissa_bits) ? -1 : 1;
    if (exponent == (1 << form->exponent_bits) - 1)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    const uint64_t one = exponent ? (uint64_t)1 << form->mantissa_bits : 0;
    const int power = (exponent ? exponent : 1) - bias_of(form) - (int)form->mantissa_bits;
    return sign * ldexp((double)(one + mantissa), power);
}

double plain_round(const struct plain_float *form, double x)
{
    if (x == 0 || isnan(x) || isinf(x))
        return x;
    const int least = 1 - bias_of(form);
    const int exponent = ilogb(x) < least ? least : ilogb(x);
    const int unit = exponent - (int)form->mantissa_bits;
    const double y = ldexp(nearbyint(ldexp(x, -unit)), unit);
    const double most = ldexp(2 - ldexp(1, -(int)form->mantissa_bits), bias_of(form));
    return fabs(y) > most ? copysign(most, x) : y;
}

double plain_round_up(const struct plain_float *form, double x)
{
    const double least = ldexp(1, 1 - bias_of(form));
    const double most = ldexp(2 - ldexp(1, -(int)form->mantissa_bits), bias_of(form));
    if (x <= least || x > most)
        return x <= least ? least : (double)INFINITY;
    const int unit = ilogb(x) - (int)form->mantissa_bits;
    return ldexp(ceil(ldexp(x, -unit)), unit);
}

static uint64_t bits_of(const struct plain_float *form, double x)
{
    const uint64_t sign = (uint64_t)(signbit(x) != 0)
                          << (form->exponent_bits + form->mantissa_bits);
    const uint64_t all = ((uint64_t)1 << form->exponent_bits) - 1;
    if (isnan(x) || isinf(x))
        return sign | all << form->mantissa_bits | (isnan(x) ? 1 : 0);
    const int least = 1 - bias_of(form);
    const int exponent = x == 0 || ilogb(x) < least ? least : ilogb(x);
    const uint64_t units = (uint64_t)ldexp(fabs(x), (int)form->mantissa_bits - exponent);
    /* A normal number has its leading one in the units, and so adds it to the exponent. */
    return sign | ((((uint64_t)(exponent - least)) << form->mantissa_bits) + units);
}

void plain_put(const struct plain_float *form, void *values, uint64_t i, double x)
{
    unsigned char *at = (unsigned char *)values + i * form->n_bytes;
    const uint64_t bits = bits_of(form, x);
    for (unsigned k = 0; k < form->n_bytes; k++)
        at[k] = (unsigned char)(bits >> (8 * k));
}
