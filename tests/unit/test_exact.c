/*
 * test_exact.c - sums that no order changes: every bit of small and large numbers, in any order and
 * in any shares.
 */
#include "support.h"

#include "lib/base/exact.h"

#include <float.h>

static double sum_of(const double *values, size_t n)
{
    struct qp_exact sum = {.n_added = 0};
    for (size_t i = 0; i < n; i++)
        qp_exact_add(&sum, values[i]);
    return qp_exact_value(&sum);
}

static void test_values(void **state)
{
    (void)state;
    static const double ones[] = {0,       1,       0.1,     0x1p-1074, 0x3p-1073,
                                  DBL_MIN, DBL_MAX, 0x1p31,  0x1.8p32,  1e300,
                                  1e-300,  0x1p-32, 0x1p-33, 3e-310,    0x1.fffffp-5};
    for (size_t i = 0; i < COUNT(ones); i++)
        assert_true(sum_of(&ones[i], 1) == ones[i]);
    /* What a double would lose beside a large number. */
    const double apart[] = {0x1p60, 1, 1, 0x1p-1074};
    assert_true(sum_of(apart, 4) == 0x1p60);
    double many[4096];
    for (size_t i = 0; i < COUNT(many); i++)
        many[i] = i == 0 ? 0x1p53 : 1;
    assert_true(sum_of(many, COUNT(many)) == 0x1p53 + 4096); /* 4095 more, rounded half to even */
    const double too_large[] = {DBL_MAX, DBL_MAX, INFINITY};
    assert_true(sum_of(too_large, 3) == DBL_MAX);
}

#define N 1000

/* Any order, and any cut into shares that are merged in any order. */
static void test_orders(void **state)
{
    (void)state;
    uint64_t seed = 7;
    double values[N];
    for (size_t i = 0; i < N; i++)
        values[i] = ldexp(fabs(random_signed(&seed)), (int)random_below(&seed, 600) - 300);
    const double expected = sum_of(values, N);
    for (unsigned round = 0; round < 50; round++) {
        struct qp_exact shares[7] = {{.n_added = 0}}, sum = {.n_added = 0};
        for (size_t i = N - 1; i > 0; i--) {
            const size_t k = (size_t)random_below(&seed, i + 1);
            const double value = values[i];
            values[i] = values[k];
            values[k] = value;
        }
        for (size_t i = 0; i < N; i++)
            qp_exact_add(&shares[random_below(&seed, 7)], values[i]);
        for (size_t i = 0; i < 7; i++)
            qp_exact_merge(&sum, &shares[i]);
        assert_true(qp_exact_value(&sum) == expected);
    }
}

/* Carries wait in the limbs until they are full. */
static void test_full(void **state)
{
    (void)state;
    struct qp_exact sum = {.n_added = UINT32_MAX - 3};
    for (unsigned i = 0; i < 8; i++)
        qp_exact_add(&sum, 0x1.fffffffffffffp0);
    assert_true(qp_exact_value(&sum) == 8 * 0x1.fffffffffffffp0);
    assert_true(sum.n_added < 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
