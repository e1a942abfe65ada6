/*
 * params_stats.c - the numbers of struct qplan_params: scales and zero points from statistics, the
 * check of both, and the bound of the error they can make.
 *
 * The working precision W is that of the scales, f32 or f64. Bounds are evaluated in f64 and
 * rounded up, so that what is promised is never less than what can happen.
 */
#include "qplan.h"

#include "../kernels/range.h"
#include "base/alloc.h"
#include "base/scheme.h"
#include "base/text.h"

#include <float.h>
#include <math.h>

static bool is_f64(const struct qplan_params *params)
{
    return params->scale_dtype == QPLAN_F64;
}

/*
 * A value rounded to W; infinite if it does not fit. A sum, difference or quotient of two f32
 * values that is computed in f64 and rounded by this is the f32 operation: 53 > 2 * 24 + 1.
 */
static double rounded(const struct qplan_params *params, double x)
{
    return is_f64(params) ? x : (double)(float)x;
}

static void code_range(const struct qplan_params *params, int32_t *q_min, int32_t *q_max)
{
    struct qplan_scheme scheme = {.dtype = params->dtype, .narrow = params->narrow_range};
    qp_scheme_range(&scheme, q_min, q_max);
}

/* ---- Checking ---------------------------------------------------------------------------------
 */

static enum qplan_status fail_member(struct qplan_error *err, const char *problem)
{
    return qp_fail(err, QPLAN_ERR_INVALID, "params", "%s", problem);
}

/* Fails with "MEMBER[I]: expected EXPECTED, found VALUE". */
static enum qplan_status fail_value(struct qplan_error *err, const char *member, size_t i,
                                    const char *expected, double value)
{
    char found[QP_F64_TEXT];
    (void)qp_format_f64(found, value);
    return qp_fail(err, QPLAN_ERR_VALUE, "params", "%s[%zu]: expected %s, found %s", member, i,
                   expected, found);
}

/* Checks the members that say what the numbers mean. */
static enum qplan_status check_kind(const struct qplan_params *params, struct qplan_error *err)
{
    int32_t q_min, q_max;
    if (!qplan_dtype_range(params->dtype, &q_min, &q_max) || params->dtype == QPLAN_BINARY)
        return fail_member(err, "dtype: expected int8, uint8, int4, uint4, int16 or uint16");
    if ((unsigned)params->scheme > QPLAN_BLOCK_WISE)
        return fail_member(err, "scheme: expected one of the schemes");
    if (params->narrow_range && !qplan_dtype_is_signed(params->dtype))
        return fail_member(err, "narrow_range: expected a signed dtype");
    if (params->scale_dtype != QPLAN_F32 && params->scale_dtype != QPLAN_F64)
        return fail_member(err, "scale_dtype: expected f32 or f64");
    if (params->scheme == QPLAN_BLOCK_WISE && params->block_size == 0)
        return fail_member(err, "block_size: expected at least 1, found 0");
    return QPLAN_OK;
}

/* The least and largest value of set i: finite, in order, and what W can hold. */
static enum qplan_status check_range(const struct qplan_params *params, size_t i, double min,
                                     double max, struct qplan_error *err)
{
    const char *finite = is_f64(params) ? "a finite number" : "a finite f32 number";
    if (!isfinite(rounded(params, min)))
        return fail_value(err, "min_val", i, finite, min);
    if (!isfinite(rounded(params, max)))
        return fail_value(err, "max_val", i, finite, max);
    if (min > max)
        return fail_value(err, "min_val", i, "at most max_val", min);
    if (params->scheme == QPLAN_LOGARITHMIC && rounded(params, min) <= 0)
        return fail_value(err, "min_val", i, "a positive number (logarithmic)", min);
    return QPLAN_OK;
}

static enum qplan_status check_zero_point(const struct qplan_params *params, size_t i,
                                          struct qplan_error *err)
{
    int32_t q_min, q_max, zero = params->zero_point[i];
    code_range(params, &q_min, &q_max);
    /* A logarithm has no code for 0: its zero point only shifts the codes. */
    if (params->scheme == QPLAN_LOGARITHMIC)
        return QPLAN_OK;
    if (zero < q_min || zero > q_max)
        return fail_value(err, "zero_point", i, "a code of the dtype", zero);
    int32_t midpoint = qplan_dtype_is_signed(params->dtype) ? 0 : (q_max + 1) / 2;
    if (params->scheme == QPLAN_SYMMETRIC && zero != 0 && zero != midpoint)
        return fail_value(err, "zero_point", i, "0 or the midpoint (symmetric)", zero);
    return QPLAN_OK;
}

static enum qplan_status check_set(const struct qplan_params *params, size_t i,
                                   struct qplan_error *err)
{
    double scale = params->scale[i];
    if (!(scale > 0) || !isfinite(scale))
        return fail_value(err, "scale", i, "a positive finite number", scale);
    if (rounded(params, scale) != scale)
        return fail_value(err, "scale", i, "an f32 number", scale);
    QP_TRY(check_zero_point(params, i, err));
    if (params->min_val)
        QP_TRY(check_range(params, i, params->min_val[i], params->max_val[i], err));
    return QPLAN_OK;
}

enum qplan_status qplan_params_validate(const struct qplan_params *params, struct qplan_error *err)
{
    QP_TRY(check_kind(params, err));
    if (params->n_sets == 0)
        return fail_member(err, "n_sets: expected at least 1, found 0");
    if (!params->scale || !params->zero_point)
        return fail_member(err, "scale, zero_point: expected arrays, found NULL");
    if (!params->min_val != !params->max_val)
        return fail_member(err, "min_val, max_val: expected both or neither");
    for (size_t i = 0; i < params->n_sets; i++)
        QP_TRY(check_set(params, i, err));
    return QPLAN_OK;
}

/* ---- From statistics --------------------------------------------------------------------------
 */

static void set_linear(struct qplan_params *params, size_t i)
{
    int32_t q_min, q_max;
    code_range(params, &q_min, &q_max);
    bool asymmetric = params->scheme != QPLAN_SYMMETRIC;
    bool is_signed = qplan_dtype_is_signed(params->dtype);
    double lo = fmin(params->min_val[i], 0), hi = fmax(params->max_val[i], 0);
    /* There are at least 14 steps, so no scale overflows; one that underflows is raised. */
    if (is_f64(params)) {
        double scale = fmax(qp_scale_f64(lo, hi, q_min, q_max, asymmetric), DBL_MIN);
        params->scale[i] = scale;
        params->zero_point[i] = qp_zero_f64(lo, hi, scale, q_min, q_max, asymmetric, is_signed);
    } else {
        float low = (float)lo, high = (float)hi;
        float scale = fmaxf(qp_scale_f32(low, high, q_min, q_max, asymmetric), FLT_MIN);
        params->scale[i] = (double)scale;
        params->zero_point[i] = qp_zero_f32(low, high, scale, q_min, q_max, asymmetric, is_signed);
    }
}

static enum qplan_status set_logarithmic(struct qplan_params *params, size_t i,
                                         struct qplan_error *err)
{
    int32_t q_min, q_max;
    code_range(params, &q_min, &q_max);
    double lo = rounded(params, log(params->min_val[i]));
    double hi = rounded(params, log(params->max_val[i]));
    double least_normal = is_f64(params) ? DBL_MIN : (double)FLT_MIN;
    double scale = 1;
    if (lo < hi)
        scale = fmax(rounded(params, rounded(params, hi - lo) / (q_max - q_min)), least_normal);
    double steps = rounded(params, lo / scale);
    /* Far beyond int32 already; keeps the quotient where qp_rne_f64 is exact. */
    double limit = 0x1p33;
    double zero = q_min - qp_rne_f64(fmin(fmax(steps, -limit), limit));
    if (zero < INT32_MIN || zero > INT32_MAX)
        return fail_value(err, "zero_point", i, "a 32-bit number (the range is too narrow)", zero);
    params->scale[i] = scale;
    params->zero_point[i] = (int32_t)zero;
    return QPLAN_OK;
}

static enum qplan_status set_from_range(struct qplan_params *params, size_t i, double min,
                                        double max, struct qplan_error *err)
{
    QP_TRY(check_range(params, i, min, max, err));
    params->min_val[i] = rounded(params, min);
    params->max_val[i] = rounded(params, max);
    if (params->scheme == QPLAN_LOGARITHMIC)
        return set_logarithmic(params, i, err);
    set_linear(params, i);
    return QPLAN_OK;
}

static enum qplan_status check_count(const struct qplan_params *params, size_t n,
                                     struct qplan_error *err)
{
    bool any = params->scheme == QPLAN_CHANNEL_WISE || params->scheme == QPLAN_BLOCK_WISE;
    if (n >= 1 && (any || n == 1 || n == params->n_sets))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, "params", "statistics: expected %s, found %zu",
                   any ? "at least 1 set" : "1 set, or n_sets of them", n);
}

/* Gives params new arrays for n sets; on failure some of them are NULL. */
static bool alloc_sets(struct qplan_params *params, size_t n)
{
    params->n_sets = n;
    params->scale = qp_alloc(n, sizeof *params->scale);
    params->zero_point = qp_alloc(n, sizeof *params->zero_point);
    params->min_val = qp_alloc(n, sizeof *params->min_val);
    params->max_val = qp_alloc(n, sizeof *params->max_val);
    return params->scale && params->zero_point && params->min_val && params->max_val;
}

enum qplan_status qplan_params_from_statistics(struct qplan_params *params, const double *min,
                                               const double *max, size_t n, struct qplan_error *err)
{
    QP_TRY(check_kind(params, err));
    QP_TRY(check_count(params, n, err));
    struct qplan_params fresh = *params;
    if (!alloc_sets(&fresh, n)) {
        qplan_params_free(&fresh);
        return qp_fail_memory(err, "params", (uint64_t)n * sizeof *fresh.scale);
    }
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < n && status == QPLAN_OK; i++)
        status = set_from_range(&fresh, i, min[i], max[i], err);
    if (status != QPLAN_OK) {
        qplan_params_free(&fresh);
        return status;
    }
    qplan_params_free(params);
    *params = fresh;
    return QPLAN_OK;
}

/* ---- The error bound --------------------------------------------------------------------------
 */

/* What the rounding of W adds to an error: unit is the distance from 1 to the next number. */
struct precision {
    double unit;
    double least; /* the smallest positive number */
};

static struct precision precision_of(const struct qplan_params *params)
{
    return is_f64(params) ? (struct precision){0x1p-52, 0x1p-1074}
                          : (struct precision){0x1p-23, 0x1p-149};
}

/* Above the exact value of a formula of a few operations, each off by less than 2^-52 of it. */
static double round_up(double x)
{
    return nextafter(x * (1 + 0x1p-49), INFINITY);
}

static double max3(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

/*
 * Half a step, or the clip at an end of the range where that is more. A quotient of up to 2^b steps
 * and the product with as many are each off by half a unit of it: s * 2^b * unit together.
 */
static double bound_linear(const struct qplan_params *params, size_t i)
{
    int32_t q_min, q_max, zero = params->zero_point[i];
    code_range(params, &q_min, &q_max);
    struct precision w = precision_of(params);
    double s = params->scale[i], error = s / 2;
    if (params->min_val) {
        double lo = fmin(params->min_val[i], 0), hi = fmax(params->max_val[i], 0);
        error = max3(error, hi - s * (q_max - zero), s * (q_min - zero) - lo);
    }
    double n_codes = (double)(1 << qplan_dtype_bits(params->dtype));
    return round_up(error + s * (n_codes * w.unit) + w.least);
}

/*
 * The same on ln x, where the rounding of logarithm, quotient and product is at most two units of
 * the largest logarithm met; then x' / x is off by at most exp of that, and exp is rounded once.
 * Without statistics the largest x is the one half a step above the last code.
 */
static double bound_logarithmic(const struct qplan_params *params, size_t i)
{
    int32_t q_min, q_max;
    code_range(params, &q_min, &q_max);
    struct precision w = precision_of(params);
    double s = params->scale[i], zero = params->zero_point[i], error = s / 2;
    double lo = s * (q_min - zero), hi = s * (q_max - zero), max = exp(hi + error);
    if (params->min_val) {
        double ln_min = log(params->min_val[i]), ln_max = log(params->max_val[i]);
        error = max3(error, ln_max - hi, lo - ln_min);
        lo = ln_min;
        hi = ln_max;
        max = params->max_val[i];
    }
    error += 2 * w.unit * (fmax(fabs(lo), fabs(hi)) + s);
    return round_up(max * (expm1(error) + exp(error) * w.unit) + w.least);
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
        bool logarithmic = params->scheme == QPLAN_LOGARITHMIC;
        largest =
            fmax(largest, logarithmic ? bound_logarithmic(params, i) : bound_linear(params, i));
    }
    return largest;
}
