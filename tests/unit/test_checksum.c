/*
 * test_checksum.c - the checksum of what was written: pieces do not matter, every change does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"

#define N 100

static uint64_t sum_in_pieces(const unsigned char *bytes, size_t n, size_t piece)
{
    struct qp_checksum sum = {0};
    for (size_t at = 0; at < n; at += piece)
        qp_checksum_add(&sum, bytes + at, n - at < piece ? n - at : piece);
    return qp_checksum_value(&sum);
}

static void fill(unsigned char *bytes)
{
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i * 37 + 11);
}

static void pieces_do_not_matter(void **state)
{
    unsigned char bytes[N];
    (void)state;
    fill(bytes);
    for (size_t n = 0; n <= N; n++) {
        for (size_t piece = 1; piece <= 33; piece++)
            assert_true(sum_in_pieces(bytes, n, piece) == sum_in_pieces(bytes, n, N));
    }
}

static void every_bit_matters(void **state)
{
    unsigned char bytes[N];
    (void)state;
    fill(bytes);
    const uint64_t whole = sum_in_pieces(bytes, N, N);
    for (size_t bit = 0; bit < 8 * N; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(sum_in_pieces(bytes, N, N) != whole);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void length_matters(void **state)
{
    static const unsigned char zeros[N];
    (void)state;
    for (size_t n = 0; n < N; n++)
        assert_true(sum_in_pieces(zeros, n, N) != sum_in_pieces(zeros, n + 1, N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(every_bit_matters),
        cmocka_unit_test(length_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
