/*
 * bound.c - the bound of the error that quantization parameters can make.
 *
 * The working precision W is that of the scales, f32 or f64. Bounds are evaluated in f64 and
 * rounded up, so that what is promised is never less than what can happen.
 */
#include "params.h"

#include "kernels/dtypes/bits.h"

#include <math.h>

/* What the rounding of W adds to an error: unit is the distance from 1 to the next number. */
struct precision {
    double unit;
    double least; /* the smallest positive number */
};

static struct precision precision_of(const struct qplan_params *params)
{
    return qp_params_is_f64(params) ? (struct precision){0x1p-52, 0x1p-1074}
                                    : (struct precision){0x1p-23, 0x1p-149};
}

/* The next number above one that is at least 0 and no NaN. */
static double next_up(double x)
{
    return x < INFINITY ? qp_of_bits_f64(qp_bits_f64(x) + 1) : x;
}

/* Above the exact value of a formula of a few operations, each off by less than 2^-52 of it. */
static double round_up(double x)
{
    return next_up(x * (1 + 0x1p-49));
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/*
 * s * steps - x, rounded once: the clip is small beside its two parts, and their rounding would
 * show. A product of an f32 number and a code is a number of f64.
 */
static double clip(const struct qplan_params *params, double s, int32_t steps, double x)
{
    return qp_params_is_f64(params) ? fma(s, steps, -x) : s * steps - x;
}

/*
 * Half a step, or the clip at an end of the range where that is more. A quotient of up to 2^b steps
 * and the product with as many are each off by half a unit of it: s * 2^b * unit together.
 */
static void bounds_linear(const struct qplan_params *params, size_t n, double *out)
{
    int32_t q_min, q_max;
    qp_params_range(params, &q_min, &q_max);
    const struct precision w = precision_of(params);
    const double rounding = (double)(1 << qplan_dtype_bits(params->dtype)) * w.unit;
    for (size_t i = 0; i < n; i++) {
        const double s = params->scale[i];
        double error = s / 2;
        if (params->min_val && params->max_val) {
            const int32_t zero = params->zero_point[i];
            const double lo = params->min_val[i] < 0 ? params->min_val[i] : 0;
            const double hi = params->max_val[i] > 0 ? params->max_val[i] : 0;
            error = larger(error, -clip(params, s, q_max - zero, hi));
            error = larger(error, clip(params, s, q_min - zero, lo));
        }
        out[i] = round_up(error + s * rounding + w.least);
    }
}

/*
 * The bound of a set on ln x, where the rounding of logarithm, quotient and product is at most two
 * units of the largest logarithm met; then x' / x is off by at most exp of that, and exp is rounded
 * once. Without statistics the largest x is the one half a step above the last code.
 */
static double bound_logarithmic(const struct qplan_params *params, size_t i)
{
    int32_t q_min, q_max;
    qp_params_range(params, &q_min, &q_max);
    const struct precision w = precision_of(params);
    double s = params->scale[i], zero = params->zero_point[i], error = s / 2;
    double lo = s * (q_min - zero), hi = s * (q_max - zero), max = exp(hi + error);
    if (params->min_val && params->max_val) {
        double ln_min = log(params->min_val[i]), ln_max = log(params->max_val[i]);
        error = larger(error, larger(ln_max - hi, lo - ln_min));
        lo = ln_min;
        hi = ln_max;
        max = params->max_val[i];
    }
    error += 2 * w.unit * (fmax(fabs(lo), fabs(hi)) + s);
    return round_up(max * (expm1(error) + exp(error) * w.unit) + w.least);
}

void qp_params_bounds(const struct qplan_params *params, size_t n, double *out)
{
    if (params->scheme != QPLAN_LOGARITHMIC) {
        bounds_linear(params, n, out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = bound_logarithmic(params, i);
}

double qplan_params_quantization_error_bound(const struct qplan_params *params,
                                             bool *clipping_known)
{
    bool valid = qplan_params_validate(params, NULL) == QPLAN_OK;
    if (clipping_known)
        *clipping_known = valid && params->min_val;
    if (!valid)
        return INFINITY;
    double largest = 0;
    for (size_t i = 0; i < params->n_sets; i++) {
        struct qplan_params one = *params;
        double bound;
        one.scale += i;
        one.zero_point += i;
        one.min_val = params->min_val ? params->min_val + i : NULL;
        one.max_val = params->max_val ? params->max_val + i : NULL;
        qp_params_bounds(&one, 1, &bound);
        largest = larger(largest, bound);
    }
    return largest;
}
