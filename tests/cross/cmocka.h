/*
 * cmocka.h - as much of cmocka as the tests of kernels use, so that they compile for a machine that
 * has no cmocka. The first failure ends the program.
 */
#ifndef TESTS_CROSS_CMOCKA_H
#define TESTS_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail_msg(...)                                                                              \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__),                 \
     fputc('\n', stderr), exit(1))
#define assert_true(x)               ((x) ? (void)0 : fail_msg("%s", #x))
#define assert_false(x)              assert_true(!(x))
#define assert_null(x)               assert_true(!(x))
#define assert_non_null(x)           assert_true(x)
#define assert_int_equal(a, b)       assert_true((unsigned long long)(a) == (unsigned long long)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define skip()                       return
#define print_message(...)           printf(__VA_ARGS__)

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};

#define cmocka_unit_test(test)                                                                     \
    {                                                                                              \
#test, test                                                                                \
    }

static inline int cmocka_run(const struct CMUnitTest *tests, size_t n, int (*make)(void **state),
                             int (*drop)(void **state))
{
    void *state = NULL;
    if (make && make(&state))
        return 1;
    for (size_t i = 0; i < n; i++)
        tests[i].test(&state);
    return drop ? drop(&state) : 0;
}

#define cmocka_run_group_tests(tests, make, drop)                                                  \
    cmocka_run(tests, sizeof(tests) / sizeof((tests)[0]), make, drop)

#endif
