/*
 * test_log2.c - logarithms of whole numbers: digits of known logarithms, powers of two, and
 * the laws of products.
 */
#include "support.h"

#include "lib/base/log2.h"

#include <math.h>

#define ONE ((uint64_t)1 << QP_LOG2_BITS)

static void powers_of_two_are_exact(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(qp_log2((uint64_t)1 << i), i * ONE);
}

/* Of logarithms with 60 decimals, times 2^40, rounded down. */
static void digits_are_right(void **state)
{
    (void)state;
    assert_int_equal(qp_log2(3), UINT64_C(1742684699131));
    assert_int_equal(qp_log2(5), UINT64_C(2552986939188));
    assert_int_equal(qp_log2(10), UINT64_C(3652498566964));
    assert_int_equal(qp_log2(UINT64_MAX), 64 * ONE - 1);
}

static void products_are_sums(void **state)
{
    (void)state;
    for (uint64_t a = 1; a < 300; a++) {
        assert_true(qp_log2(a) <= qp_log2(a + 1));
        assert_true(fabs((double)qp_log2(a) / (double)ONE - log2((double)a)) < 1e-11);
        for (uint64_t b = 1; b < 300; b++) {
            const uint64_t sum = qp_log2(a) + qp_log2(b), product = qp_log2(a * b);
            assert_true(product >= sum && product <= sum + 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_are_exact),
        cmocka_unit_test(digits_are_right),
        cmocka_unit_test(products_are_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
