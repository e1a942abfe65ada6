/*
 * test_wide.c - numbers with exponents of their own, and the sums of blocks that are made of them:
 * bits of plain sums wherever those are numbers, true values beyond.
 */
#include "kernel_cases.h"

#include "kernels/tiles/wide.h"

#define N QP_BLOCK

static double x[N], y[N];

static const struct qp_source_kernels *f64(void)
{
    return qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR);
}

static void assert_scaled(struct qp_scaled found, double value, int exponent)
{
    /* By fractions, so that the same number in another form is equal. */
    int a, b;
    const double p = frexp(found.value, &a), q = frexp(value, &b);
    if (p != q || (p != 0 && a + found.exponent != b + exponent))
        fail_msg("expected %a * 2^%d, found %a * 2^%d", value, exponent, found.value,
                 found.exponent);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static void a_sum_takes_the_larger_exponent(void **state)
{
    const struct qp_scaled zero = {0, 0}, one = {1, 0}, huge = {0.75, 4000}, tiny = {0.75, -4000};
    (void)state;
    assert_scaled(qp_scaled_sum(one, one), 2, 0);
    assert_scaled(qp_scaled_sum(one, (struct qp_scaled){1, 3}), 9, 0);
    assert_scaled(qp_scaled_sum((struct qp_scaled){1, 3}, one), 9, 0);
    assert_scaled(qp_scaled_sum(one, (struct qp_scaled){-1, 3}), -7, 0);
    assert_scaled(qp_scaled_sum(huge, huge), 1.5, 4000);
    assert_scaled(qp_scaled_sum(huge, tiny), 0.75, 4000);
    assert_scaled(qp_scaled_sum(tiny, one), 1, 0);
    /* 0 has no size, whatever its exponent. */
    assert_scaled(qp_scaled_sum(zero, tiny), 0.75, -4000);
    assert_scaled(qp_scaled_sum(tiny, zero), 0.75, -4000);
    assert_scaled(qp_scaled_sum((struct qp_scaled){0, 4000}, tiny), 0.75, -4000);
}

static void a_ratio_has_any_exponent(void **state)
{
    (void)state;
    assert_scaled(qp_scaled_ratio((struct qp_scaled){6, 0}, (struct qp_scaled){2, 0}), 3, 0);
    assert_scaled(qp_scaled_ratio((struct qp_scaled){1e300, 0}, (struct qp_scaled){1e300, -5000}),
                  1, 5000);
    assert_scaled(qp_scaled_ratio((struct qp_scaled){0x1p-900, 0}, (struct qp_scaled){-0x1p900, 0}),
                  -1, -1800);
    assert_scaled(qp_scaled_ratio((struct qp_scaled){0, 0}, (struct qp_scaled){2, 0}), 0, 0);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Values whose last bits count, of sizes that differ. */
static void fill(uint64_t seed)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = ldexp(random_signed(&seed), (int)random_below(&seed, 20));
        y[i] = ldexp(random_signed(&seed), (int)random_below(&seed, 20));
    }
}

/* Multiplies all by powers of two: every sum has the same bits, and another exponent. */
static void sums_do_not_depend_on_exponents(void **state)
{
    static const int powers[][2] = {{0, 0}, {900, 900}, {-900, -900}, {1000, -900}, {-970, 800}};
    static double far_x[N], far_y[N];
    (void)state;
    for (size_t n = 1; n <= N; n += n < 40 ? 1 : 1352) {
        struct qp_wide_sums near, far;
        fill(n);
        qp_wide_sums(&near, f64(), x, y, n);
        for (size_t k = 0; k < COUNT(powers); k++) {
            const int p = powers[k][0], q = powers[k][1];
            for (size_t i = 0; i < n; i++) {
                far_x[i] = ldexp(x[i], p);
                far_y[i] = ldexp(y[i], q);
            }
            qp_wide_sums(&far, f64(), far_x, far_y, n);
            assert_scaled(far.x2, near.x2.value, near.x2.exponent + 2 * p);
            assert_scaled(far.y2, near.y2.value, near.y2.exponent + 2 * q);
            assert_scaled(far.xy, near.xy.value, near.xy.exponent + p + q);
            /* The smaller one vanishes in the error. */
            const struct qp_scaled e2 = p == q ? near.e2 : p > q ? near.x2 : near.y2;
            assert_scaled(far.e2, e2.value, e2.exponent + 2 * (p > q ? p : q));
        }
    }
}

static void an_error_may_be_above_all_doubles(void **state)
{
    struct qp_wide_sums sums;
    (void)state;
    for (size_t i = 0; i < 32; i++) {
        x[i] = i % 2 ? DBL_MAX : -DBL_MAX;
        y[i] = -x[i];
    }
    qp_wide_sums(&sums, f64(), x, y, 32);
    const double most = 0x1.fffffffffffffp0; /* DBL_MAX / 2^1023 */
    assert_scaled(sums.x2, 32 * most * most, 2 * 1023);
    assert_scaled(sums.e2, 32 * most * most, 2 * 1024);
    assert_scaled(sums.xy, -32 * most * most, 2 * 1023);
}

/* A subnormal number has few bits, all of which count. */
static void the_least_numbers_are_summed_exactly(void **state)
{
    struct qp_wide_sums sums;
    (void)state;
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    x[7] = 3 * 0x1p-1074;
    x[4000] = y[4000] = -5 * 0x1p-1074;
    qp_wide_sums(&sums, f64(), x, y, N);
    assert_scaled(sums.x2, 34, -2148);
    assert_scaled(sums.y2, 25, -2148);
    assert_scaled(sums.xy, 25, -2148);
    assert_scaled(sums.e2, 9, -2148);
}

static void what_is_not_finite_is_left_out(void **state)
{
    struct qp_wide_sums sums;
    (void)state;
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    x[0] = NAN;
    x[1] = INFINITY;
    x[2] = 0x1p700;
    y[0] = y[1] = 0x1p1000;
    qp_wide_sums(&sums, f64(), x, y, 3);
    assert_scaled(sums.x2, 1, 1400);
    assert_scaled(sums.e2, 1, 1400);
    assert_scaled(sums.y2, 0, 0);
    assert_scaled(sums.xy, 0, 0);
}

/* ---- Trust ----------------------------------------------------------------------------------- */

static bool trusts(enum qplan_dtype dtype, double e2, double x2, double y2)
{
    const struct qp_sums sums = {.e2 = e2, .x2 = x2, .y2 = y2};
    struct qp_wide_sums result;
    return qp_wide_take(&result, dtype, &sums);
}

static void plain_sums_are_trusted_where_nothing_is_lost(void **state)
{
    (void)state;
    assert_true(trusts(QPLAN_F64, 1e-5, 1, 1.1));
    assert_true(trusts(QPLAN_F64, 0x1p-900, 0x1p900, 0x1p900));
    assert_false(trusts(QPLAN_F64, 0, 1, 1));
    assert_false(trusts(QPLAN_F64, 0x1p-901, 1, 1));
    assert_false(trusts(QPLAN_F64, 1, 0x1p901, 1));
    assert_false(trusts(QPLAN_F64, 1, INFINITY, INFINITY));
    assert_false(trusts(QPLAN_F64, NAN, 1, NAN));
    /* No square of the others leaves the range. */
    assert_true(trusts(QPLAN_F32, 0, 0x1p-298, 0x1p-298));
    assert_true(trusts(QPLAN_BF16, 0, 0, 0));
    /* Squares of very different size lose the products, unless these are 0. */
    assert_true(trusts(QPLAN_F32, 1, 1024, 1));
    assert_false(trusts(QPLAN_F32, 1, 1025, 1));
    assert_false(trusts(QPLAN_F16, 1, 1, 1025));
    assert_true(trusts(QPLAN_F32, 9, 9, 0));
    assert_true(trusts(QPLAN_F32, 9, 0, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_takes_the_larger_exponent),
        cmocka_unit_test(a_ratio_has_any_exponent),
        cmocka_unit_test(sums_do_not_depend_on_exponents),
        cmocka_unit_test(an_error_may_be_above_all_doubles),
        cmocka_unit_test(the_least_numbers_are_summed_exactly),
        cmocka_unit_test(what_is_not_finite_is_left_out),
        cmocka_unit_test(plain_sums_are_trusted_where_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
