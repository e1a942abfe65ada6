/*
 * test_params.c - the error bound of parameters is never violated: by ties, ends of ranges,
 * subnormals, ranges that overflow, in both precisions, for every dtype. Nor is it idle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "lib/qplan.h"

#define N_RANGES 400
#define N_VALUES 64

static const enum qplan_dtype dtypes[] = {QPLAN_INT8,  QPLAN_UINT8,  QPLAN_INT4, QPLAN_UINT4,
                                          QPLAN_INT16, QPLAN_UINT16, QPLAN_INT2, QPLAN_UINT2,
                                          QPLAN_INT3,  QPLAN_UINT7};

/* ---- Random numbers ---------------------------------------------------------------------------
 */

static uint64_t seed;

static uint64_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static double random_unit(void)
{
    return (double)(random_bits() >> 11) * 0x1p-53;
}

/* The precision that a case works in. */
struct work {
    bool f64;
    double max, least, least_normal;
    int least_exp, max_exp;
};

static const struct work f32_work = {false, (double)FLT_MAX, 0x1p-149, 0x1p-126, -149, 127};
static const struct work f64_work = {true, DBL_MAX, 0x1p-1074, 0x1p-1022, -1074, 1023};

static double to_work(const struct work *w, double x)
{
    return w->f64 ? x : (double)(float)x;
}

static double next_up(const struct work *w, double x)
{
    return w->f64 ? nextafter(x, INFINITY) : (double)nextafterf((float)x, INFINITY);
}

static double next_down(const struct work *w, double x)
{
    return w->f64 ? nextafter(x, -INFINITY) : (double)nextafterf((float)x, -INFINITY);
}

/* A positive number: any binade, a small integer that makes ties, or the end of the format. */
static double random_magnitude(const struct work *w)
{
    int span = w->max_exp - w->least_exp + 1;
    switch (random_bits() % 8) {
    case 0:
        return w->least * (double)(1 + random_bits() % 300);
    case 1:
        return w->least_normal * (1 + random_unit());
    case 2:
        return w->max;
    case 3:
        return to_work(w, w->max * (0.5 + 0.49 * random_unit()));
    case 4:
        return (double)(1 + random_bits() % 64);
    case 5:
        return to_work(w, 1 + random_unit());
    default:
        return to_work(
            w, ldexp(1 + random_unit() / 2, w->least_exp + (int)(random_bits() % (uint64_t)span)));
    }
}

static void random_range(const struct work *w, bool positive, double *min, double *max)
{
    double a = random_magnitude(w);
    double b = random_bits() % 4 ? to_work(w, a * (0.5 + random_unit() / 2)) : random_magnitude(w);
    if (b == 0)
        b = a;
    if (!positive) {
        a = random_bits() % 8 == 0 ? 0 : random_bits() % 2 ? a : -a;
        b = random_bits() % 8 == 0 ? 0 : random_bits() % 2 ? b : -b;
    }
    *min = fmin(a, b);
    *max = fmax(a, b);
}

/* A value inside the range, likely where rounding or clipping is at its worst. */
static double random_value(const struct work *w, const struct qplan_params *params)
{
    double min = params->min_val[0], max = params->max_val[0], s = params->scale[0], x;
    switch (random_bits() % 6) {
    case 0:
        x = random_bits() % 2 ? min : max;
        break;
    case 1:
        x = to_work(w, min + (max / 2 - min / 2) * 2 * random_unit());
        break;
    case 2:
        x = random_magnitude(w) * (random_bits() % 2 ? 1 : -1);
        break;
    default: /* a tie, as nearly as the precision has it */
        x = params->scheme == QPLAN_LOGARITHMIC ? log(min) : min;
        x = s * (rint(x / s + (double)(random_bits() % 65536) / 256) + 0.5);
        x = to_work(w, params->scheme == QPLAN_LOGARITHMIC ? exp(x) : x);
        break;
    }
    for (uint64_t steps = random_bits() % 4; steps > 0; steps--)
        x = random_bits() % 2 ? next_up(w, x) : next_down(w, x);
    return fmin(fmax(isnan(x) ? min : x, min), max);
}

/* ---- The reference quantizer ------------------------------------------------------------------
 */

static void code_range(const struct qplan_params *params, int32_t *q_min, int32_t *q_max)
{
    assert_true(qplan_dtype_range(params->dtype, q_min, q_max));
    if (params->narrow_range)
        *q_min = -*q_max;
}

/* The steps from the zero point that the code of a quotient stands for. */
static int32_t clamped_steps(const struct qplan_params *params, double quotient)
{
    int32_t q_min, q_max;
    code_range(params, &q_min, &q_max);
    double low = (double)q_min - params->zero_point[0],
           high = (double)q_max - params->zero_point[0];
    return (int32_t)fmin(fmax(rint(quotient), low), high);
}

static double decoded_f32(const struct qplan_params *params, float x)
{
    float s = (float)params->scale[0];
    if (params->scheme == QPLAN_LOGARITHMIC) {
        float quotient = (float)log((double)x) / s;
        float product = s * (float)clamped_steps(params, (double)quotient);
        return (double)(float)exp((double)product);
    }
    return (double)(s * (float)clamped_steps(params, (double)(x / s)));
}

static double decoded_f64(const struct qplan_params *params, double x)
{
    double s = params->scale[0];
    if (params->scheme == QPLAN_LOGARITHMIC)
        return exp(s * clamped_steps(params, log(x) / s));
    return s * clamped_steps(params, x / s);
}

/* |x - x'|, with x' clipped to what the precision holds. */
static double error_of(const struct work *w, const struct qplan_params *params, double x)
{
    double back = w->f64 ? decoded_f64(params, x) : decoded_f32(params, (float)x);
    back = fmin(fmax(back, -w->max), w->max);
    return (double)fabsl((long double)x - (long double)back);
}

/* ---- Properties -------------------------------------------------------------------------------
 */

/* What verify allows: the bound of parameters from minmax statistics must not be looser. */
static double verify_bound(const struct work *w, const struct qplan_params *params)
{
    int bits = (int)qplan_dtype_bits(params->dtype);
    double s = params->scale[0];
    return (s * (0.5 + ldexp(1, bits - (w->f64 ? 50 : 21))) + w->least) * (1 + 0x1p-48) + w->least;
}

static void check_values(const struct work *w, const struct qplan_params *params)
{
    bool known;
    double bound = qplan_params_quantization_error_bound(params, &known);
    assert_true(known);
    for (int i = 0; i < N_VALUES; i++) {
        double x = random_value(w, params), error = error_of(w, params, x);
        if (!(error <= bound))
            fail_msg("%s scheme %d f64 %d: x %a min %a max %a scale %a zero %d: error %a > %a",
                     qplan_dtype_name(params->dtype), params->scheme, w->f64, x, params->min_val[0],
                     params->max_val[0], params->scale[0], params->zero_point[0], error, bound);
    }
}

/* Smaller steps for the same statistics: the codes end before the range does. */
static void shrink_scale(const struct work *w, struct qplan_params *params)
{
    double scale = to_work(w, params->scale[0] * (0.25 + 0.75 * random_unit()));
    params->scale[0] = fmax(scale, w->least_normal);
}

static void check_kind(const struct work *w, enum qplan_dtype dtype, enum qplan_param_scheme scheme,
                       bool narrow)
{
    struct qplan_params params;
    int n_used = 0;
    assert_int_equal(qplan_params_channel_wise(&params, 1, dtype, NULL), QPLAN_OK);
    params.scheme = scheme;
    params.narrow_range = narrow;
    params.scale_dtype = w->f64 ? QPLAN_F64 : QPLAN_F32;
    for (int i = 0; i < N_RANGES; i++) {
        double min, max;
        random_range(w, scheme == QPLAN_LOGARITHMIC, &min, &max);
        enum qplan_status status = qplan_params_from_statistics(&params, &min, &max, 1, NULL);
        /* Only a logarithmic range may be too narrow for its zero point. */
        if (status != QPLAN_OK) {
            assert_int_equal(scheme, QPLAN_LOGARITHMIC);
            continue;
        }
        n_used++;
        assert_int_equal(qplan_params_validate(&params, NULL), QPLAN_OK);
        check_values(w, &params);
        if (scheme != QPLAN_LOGARITHMIC)
            assert_true(qplan_params_quantization_error_bound(&params, NULL) <=
                        verify_bound(w, &params));
        shrink_scale(w, &params);
        check_values(w, &params);
    }
    assert_true(n_used > N_RANGES / 2);
    qplan_params_free(&params);
}

static void check_scheme(enum qplan_param_scheme scheme)
{
    seed = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        check_kind(&f32_work, dtypes[i], scheme, false);
        check_kind(&f64_work, dtypes[i], scheme, false);
        if (qplan_dtype_is_signed(dtypes[i])) {
            check_kind(&f32_work, dtypes[i], scheme, true);
            check_kind(&f64_work, dtypes[i], scheme, true);
        }
    }
}

static void test_bound_symmetric(void **state)
{
    (void)state;
    check_scheme(QPLAN_SYMMETRIC);
}

static void test_bound_asymmetric(void **state)
{
    (void)state;
    check_scheme(QPLAN_ASYMMETRIC);
}

static void test_bound_logarithmic(void **state)
{
    (void)state;
    check_scheme(QPLAN_LOGARITHMIC);
}

/* Zero is decoded exactly, whatever the range: padding and sparsity depend on it. */
static void test_zero_is_exact(void **state)
{
    (void)state;
    seed = 12345;
    for (int i = 0; i < 20000; i++) {
        struct qplan_params params;
        double min, max;
        enum qplan_dtype dtype = dtypes[random_bits() % (sizeof dtypes / sizeof dtypes[0])];
        assert_int_equal(qplan_params_channel_wise(&params, 1, dtype, NULL), QPLAN_OK);
        params.scheme = random_bits() % 2 ? QPLAN_SYMMETRIC : QPLAN_ASYMMETRIC;
        random_range(&f32_work, false, &min, &max);
        assert_int_equal(qplan_params_from_statistics(&params, &min, &max, 1, NULL), QPLAN_OK);
        assert_true(decoded_f32(&params, 0) == 0);
        qplan_params_free(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_symmetric),
        cmocka_unit_test(test_bound_asymmetric),
        cmocka_unit_test(test_bound_logarithmic),
        cmocka_unit_test(test_zero_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
