/*
 * test_alloc.c - blocks of memory: zeroed, aligned, and refused where no memory is so large.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "lib/base/alloc.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* On both sides of where large pages are asked for, and of whole ones. */
static const size_t sizes[] = {0,
                               1,
                               4096,
                               ((size_t)1 << 20) - 1,
                               (size_t)1 << 20,
                               ((size_t)1 << 21) - 1,
                               (size_t)1 << 21,
                               ((size_t)3 << 20) - 1,
                               (size_t)3 << 20,
                               ((size_t)1 << 22) + 1};

static void blocks_are_zeroed_also_where_others_were(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT(sizes); i++) {
            unsigned char *block = qp_alloc(sizes[i], 1);
            assert_non_null(block);
            for (size_t k = 0; k < sizes[i]; k++) {
                if (block[k])
                    fail_msg("byte %zu of %zu is not 0", k, sizes[i]);
            }
            memset(block, 0xff, sizes[i]);
            qp_free(block);
        }
    }
}

static void buffers_are_aligned(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *buffer = qp_alloc_buffer(sizes[i]);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer % 64, 0);
        memset(buffer, 0xff, sizes[i]);
        qp_free(buffer);
    }
}

static void blocks_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 63, (uint64_t)INT64_MAX + 1,
                                    INT64_MAX,  INT64_MAX - 63,  (uint64_t)1 << 62};
    for (size_t i = 0; i < COUNT(huge); i++) {
        assert_null(qp_alloc(huge[i], 1));
        assert_null(qp_alloc(1, huge[i]));
        assert_null(qp_alloc_buffer(huge[i]));
    }
    assert_null(qp_alloc(UINT64_MAX / 2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_also_where_others_were),
        cmocka_unit_test(buffers_are_aligned),
        cmocka_unit_test(blocks_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
