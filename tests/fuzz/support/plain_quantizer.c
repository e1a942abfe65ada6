/*
 * plain_quantizer.c - the numeric contract of minmax.
 */
#include "plain_quantizer.h"

#include <math.h>

/*
 * Rounds to working precision, f64 or f32; too large is infinite. What a double holds of a quotient
 * or sum of two f32 is precise enough that rounding it again does no harm.
 */
static double work(const struct plain_tensor *t, double x)
{
    if (t->source->n_bytes == 8)
        return x;
    const double overflow = ldexp(2 - ldexp(1, -24), 127);
    return fabs(x) >= overflow ? copysign((double)INFINITY, x)
                               : plain_round(plain_float_of(QPLAN_STORAGE_F32), x);
}

/* The scale of a range before it is stored. */
static double raw_scale(const struct plain_tensor *t, const struct plain_range *range)
{
    const double steps = t->q_max - t->q_min;
    if (!t->tensor->scheme->asymmetric)
        return work(t, fmax(-range->low, range->high) / (steps / 2));
    const double span = work(t, range->high - range->low);
    if (!isinf(span))
        return work(t, span / steps);
    return work(t, work(t, work(t, range->high / 2) - work(t, range->low / 2)) / (steps / 2));
}

/* The zero point of symmetric codes. */
static int middle(const struct plain_tensor *t)
{
    return t->is_signed ? 0 : 1 << (t->bits - 1);
}

struct plain_params plain_minmax(const struct plain_tensor *t, const struct plain_range *range)
{
    const bool asymmetric = t->tensor->scheme->asymmetric;
    if (range->low == 0 && range->high == 0)
        return (struct plain_params){1, asymmetric ? 0 : middle(t)};
    struct plain_params params = {plain_round_up(t->scale, raw_scale(t, range)), middle(t)};
    if (asymmetric && !isinf(params.scale)) {
        const double zero = t->q_min - nearbyint(work(t, range->low / params.scale));
        params.zero = (int)fmin(fmax(zero, t->q_min), t->q_max);
    }
    return params;
}

int plain_code(const struct plain_tensor *t, const struct plain_params *params, double x)
{
    if (isnan(x))
        return params->zero;
    const double steps = nearbyint(work(t, x / params->scale));
    return (int)fmin(fmax(steps + params->zero, t->q_min), t->q_max);
}
