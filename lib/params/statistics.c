/*
 * statistics.c - the numbers of struct qplan_params: scales and zero points from statistics, and
 * the check of both. The working precision W is that of the scales, f32 or f64.
 */
#include "params.h"

#include "kernels/codes/linear.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <float.h>
#include <math.h>

/*
 * A value rounded to W; infinite if it does not fit. A sum, difference or quotient of two f32
 * values that is computed in f64 and rounded by this is the f32 operation: 53 > 2 * 24 + 1.
 */
static double rounded(const struct qplan_params *params, double x)
{
    return qp_params_is_f64(params) ? x : (double)(float)x;
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
enum qplan_status qp_params_check_kind(const struct qplan_params *params, struct qplan_error *err)
{
    int32_t q_min, q_max;
    if (!qplan_dtype_range(params->dtype, &q_min, &q_max) || params->dtype == QPLAN_BINARY)
        return fail_member(err, "dtype: expected an integer type of 2 bits or more");
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

/* The least and largest value of a set: finite, in order, and what W can hold. */
static bool check_range(const struct qplan_params *params, double min, double max,
                        struct qp_params_fault *fault)
{
    const char *finite = qp_params_is_f64(params) ? "a finite number" : "a finite f32 number";
    const double most = qp_params_is_f64(params) ? DBL_MAX : (double)FLT_MAX;
    if (min >= -most && min <= max && max <= most && params->scheme != QPLAN_LOGARITHMIC)
        return true;
    if (!isfinite(rounded(params, min)))
        *fault = (struct qp_params_fault){QP_PARAMS_MIN, finite, min};
    else if (!isfinite(rounded(params, max)))
        *fault = (struct qp_params_fault){QP_PARAMS_MAX, finite, max};
    else if (min > max)
        *fault = (struct qp_params_fault){QP_PARAMS_MIN, "at most the largest value", min};
    else if (params->scheme == QPLAN_LOGARITHMIC && rounded(params, min) <= 0)
        *fault = (struct qp_params_fault){QP_PARAMS_MIN, "a positive number (logarithmic)", min};
    else
        return true;
    return false;
}

static enum qplan_status fail_fault(struct qplan_error *err, const struct qp_params_fault *fault,
                                    size_t i)
{
    static const char *const members[] = {"min_val", "max_val", "zero_point"};
    return fail_value(err, members[fault->member], i, fault->expected, fault->found);
}

static enum qplan_status check_zero_point(const struct qplan_params *params, size_t i,
                                          struct qplan_error *err)
{
    int32_t q_min, q_max, zero = params->zero_point[i];
    qp_params_range(params, &q_min, &q_max);
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
    struct qp_params_fault fault;
    if (params->min_val && !check_range(params, params->min_val[i], params->max_val[i], &fault))
        return fail_fault(err, &fault, i);
    return QPLAN_OK;
}

enum qplan_status qplan_params_validate(const struct qplan_params *params, struct qplan_error *err)
{
    QP_TRY(qp_params_check_kind(params, err));
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

/* What the formulas take from the kind of parameters. */
struct kind {
    int32_t q_min, q_max;
    bool asymmetric, is_signed, is_f64;
};

static struct kind kind_of(const struct qplan_params *params)
{
    struct kind kind = {.asymmetric = params->scheme != QPLAN_SYMMETRIC,
                        .is_signed = qplan_dtype_is_signed(params->dtype),
                        .is_f64 = qp_params_is_f64(params)};
    qp_params_range(params, &kind.q_min, &kind.q_max);
    return kind;
}

/* There are at least 2 steps, so no scale overflows; one that underflows is raised. */
static void set_linear(struct qplan_params *params, size_t i, const struct kind *kind)
{
    const int32_t q_min = kind->q_min, q_max = kind->q_max;
    const double lo = params->min_val[i] < 0 ? params->min_val[i] : 0;
    const double hi = params->max_val[i] > 0 ? params->max_val[i] : 0;
    if (kind->is_f64) {
        double scale = qp_scale_f64(lo, hi, q_min, q_max, kind->asymmetric);
        scale = scale < DBL_MIN ? DBL_MIN : scale;
        params->scale[i] = scale;
        params->zero_point[i] =
            qp_zero_f64(lo, hi, scale, q_min, q_max, kind->asymmetric, kind->is_signed);
    } else {
        const float low = (float)lo, high = (float)hi;
        float scale = qp_scale_f32(low, high, q_min, q_max, kind->asymmetric);
        scale = scale < FLT_MIN ? FLT_MIN : scale;
        params->scale[i] = (double)scale;
        params->zero_point[i] =
            qp_zero_f32(low, high, scale, q_min, q_max, kind->asymmetric, kind->is_signed);
    }
}

/* The scale of logarithms, and the zero point, which may be beyond 32 bits. */
static double find_logarithmic(const struct qplan_params *params, double min, double max,
                               const struct kind *kind, double *scale)
{
    const double lo = rounded(params, log(rounded(params, min)));
    const double hi = rounded(params, log(rounded(params, max)));
    const double least_normal = kind->is_f64 ? DBL_MIN : (double)FLT_MIN;
    *scale = 1;
    if (lo < hi)
        *scale = fmax(rounded(params, rounded(params, hi - lo) / (kind->q_max - kind->q_min)),
                      least_normal);
    const double steps = rounded(params, lo / *scale);
    /* Far beyond int32 already; keeps the quotient where qp_rne_f64 is exact. */
    const double limit = 0x1p33;
    return kind->q_min - qp_rne_f64(fmin(fmax(steps, -limit), limit));
}

static bool check_logarithmic(const struct qplan_params *params, double min, double max,
                              const struct kind *kind, struct qp_params_fault *fault)
{
    double scale, zero = find_logarithmic(params, min, max, kind, &scale);
    *fault = (struct qp_params_fault){QP_PARAMS_ZERO_POINT,
                                      "a 32-bit number (the range is too narrow)", zero};
    return zero >= INT32_MIN && zero <= INT32_MAX;
}

size_t qp_params_check_ranges(const struct qplan_params *params, const double *min,
                              const double *max, size_t n, struct qp_params_fault *fault)
{
    const struct kind kind = kind_of(params);
    const bool logarithmic = params->scheme == QPLAN_LOGARITHMIC;
    size_t i = 0;
    while (i < n && check_range(params, min[i], max[i], fault) &&
           (!logarithmic || check_logarithmic(params, min[i], max[i], &kind, fault)))
        i++;
    return i;
}

void qp_params_set(struct qplan_params *params, const double *min, const double *max, size_t n)
{
    const struct kind kind = kind_of(params);
    for (size_t i = 0; i < n; i++) {
        params->min_val[i] = rounded(params, min[i]);
        params->max_val[i] = rounded(params, max[i]);
        if (params->scheme == QPLAN_LOGARITHMIC)
            params->zero_point[i] =
                (int32_t)find_logarithmic(params, min[i], max[i], &kind, &params->scale[i]);
        else
            set_linear(params, i, &kind);
    }
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
    QP_TRY(qp_params_check_kind(params, err));
    QP_TRY(check_count(params, n, err));
    struct qp_params_fault fault;
    const size_t bad = qp_params_check_ranges(params, min, max, n, &fault);
    if (bad < n)
        return fail_fault(err, &fault, bad);
    struct qplan_params fresh = *params;
    if (!alloc_sets(&fresh, n)) {
        qplan_params_free(&fresh);
        return qp_fail_memory(err, "params", (uint64_t)n * sizeof *fresh.scale);
    }
    qp_params_set(&fresh, min, max, n);
    qplan_params_free(params);
    *params = fresh;
    return QPLAN_OK;
}
