/*
 * test_op_sums.c - columns of sums and of maxima: every level gives the bits of the scalar kernels,
 * and those give the bits of the definition.
 */
#include "op_support.h"

#include "kernels/ops/max.h"
#include "kernels/ops/sum.h"

enum { N = 1027 }; /* not a multiple of any width */

static const struct {
    enum qplan_dtype dtype;
    size_t n_bytes;
} kinds[] = {{QPLAN_F64, 8}, {QPLAN_F32, 4}, {QPLAN_F16, 2}, {QPLAN_BF16, 2}};

/* Sums of a level and of the scalar kernels. */
struct pair {
    double hi[2][N], lo[2][N];
};

static void assert_same(const struct pair *p, size_t n, bool keeps_errors)
{
    for (size_t i = 0; i < n; i++) {
        const bool both_nan = isnan(p->hi[0][i]) && isnan(p->hi[1][i]);
        if (!both_nan && memcmp(&p->hi[0][i], &p->hi[1][i], sizeof(double)) != 0)
            fail_msg("column %zu: %a, expected %a", i, p->hi[0][i], p->hi[1][i]);
        if (keeps_errors && !isnan(p->lo[0][i]) && p->lo[0][i] != p->lo[1][i])
            fail_msg("column %zu: error %a, expected %a", i, p->lo[0][i], p->lo[1][i]);
    }
}

/* Any bits, so that subnormal numbers, infinities and NaN are among them; f64 near one size. */
static void fill(uint64_t *seed, enum qplan_dtype dtype, void *out)
{
    for (size_t i = 0; i < N; i++) {
        if (dtype == QPLAN_F64)
            ((double *)out)[i] = ldexp(random_signed(seed), (int)random_below(seed, 80) - 40);
        else if (dtype == QPLAN_F32)
            ((uint32_t *)out)[i] = (uint32_t)random_bits(seed);
        else
            ((uint16_t *)out)[i] = (uint16_t)random_bits(seed);
    }
}

static void levels_add_the_same(void **state)
{
    static struct pair p;
    static double terms[N], made[N], more[N];
    const void *const rows[] = {more, terms, more};
    uint64_t seed = 1;
    (void)state;
    for (size_t k = 0; k < COUNT(kinds) * 40; k++) {
        const enum qplan_dtype dtype = kinds[k % COUNT(kinds)].dtype;
        const struct qp_sum_kernels *kernels[] = {qp_sum_kernels(dtype, QPLAN_ISA_BEST),
                                                  qp_sum_kernels(dtype, QPLAN_ISA_SCALAR)};
        assert_int_equal(kernels[1]->isa, QPLAN_ISA_SCALAR);
        const size_t n = k < 160 ? k : N;
        const double divisor = (double)(1 + random_below(&seed, 1000));
        memset(&p, 0, sizeof p);
        for (int round = 0; round < 5; round++) {
            fill(&seed, dtype, terms);
            fill(&seed, dtype, more);
            fill(&seed, QPLAN_F64, made);
            for (int level = 0; level < 2; level++) {
                double *hi = p.hi[level], *lo = kernels[level]->keeps_errors ? p.lo[level] : NULL;
                kernels[level]->add(n, terms, hi, lo);
                kernels[level]->add_rows(n, COUNT(rows), rows, hi, lo);
                kernels[level]->add_over(n, terms, divisor, hi, lo);
                kernels[level]->add_f64(n, made, hi, lo);
                assert_true(n == N || hi[n] == 0); /* and no further */
            }
            assert_same(&p, n, kernels[0]->keeps_errors);
        }
        for (int level = 0; level < 2; level++)
            kernels[level]->divide(n, divisor, p.hi[level],
                                   kernels[level]->keeps_errors ? p.lo[level] : NULL);
        assert_same(&p, n, kernels[0]->keeps_errors);
    }
}

/* Values around every place where rounding to a 16-bit type or to f32 turns. */
static double tricky(uint64_t *seed, enum qplan_dtype dtype)
{
    const unsigned man_bits = dtype == QPLAN_F32 ? 23 : dtype == QPLAN_F16 ? 10 : 7;
    const int least = dtype == QPLAN_F16 ? -24 : -149, most = dtype == QPLAN_F16 ? 16 : 128;
    static const double specials[] = {0.0,
                                      -0.0,
                                      INFINITY,
                                      -INFINITY,
                                      NAN,
                                      0x1p-149,
                                      -0x1.8p-150,
                                      0x1p-150,
                                      5e-324,
                                      -1e300,
                                      65520,
                                      65519.999999,
                                      0x1.ffffffp127,
                                      0x1.ffp127,
                                      1e39,
                                      0x1.fffffep127,
                                      -0x1.fffffe8p127,
                                      65504,
                                      0x1.fep127};
    if (random_below(seed, 8) == 0)
        return specials[random_below(seed, COUNT(specials))];
    const int exponent = least - 3 + (int)random_below(seed, (uint64_t)(most - least) + 6);
    const double kept = (double)(random_bits(seed) >> (63 - man_bits)); /* one bit more than kept */
    const double tail = (double)random_below(seed, 3) * 0x1p-45 - 0x1p-45;
    return ldexp((random_bits(seed) & 1 ? 1 : -1) * (kept + tail), exponent - (int)man_bits);
}

static void levels_finish_the_same(void **state)
{
    static double hi[N], lo[N];
    static uint64_t out[2][N + 1];
    uint64_t seed = 2;
    (void)state;
    for (size_t k = 0; k < COUNT(kinds) * 400; k++) {
        const enum qplan_dtype dtype = kinds[k % COUNT(kinds)].dtype;
        const struct qp_sum_kernels *best = qp_sum_kernels(dtype, QPLAN_ISA_BEST);
        const struct qp_sum_kernels *scalar = qp_sum_kernels(dtype, QPLAN_ISA_SCALAR);
        const size_t n = N - k % 9, n_bytes = n * kinds[k % COUNT(kinds)].n_bytes;
        for (size_t i = 0; i < N; i++) {
            hi[i] = tricky(&seed, dtype);
            lo[i] = isfinite(hi[i]) ? hi[i] * 0x1p-54 : (double)NAN; /* as adding leaves it */
        }
        memset(out, 0x5a, sizeof out);
        const uint64_t a = best->finish(n, hi, best->keeps_errors ? lo : NULL, out[0]);
        const uint64_t b = scalar->finish(n, hi, best->keeps_errors ? lo : NULL, out[1]);
        assert_int_equal(a, b);
        assert_memory_equal(out[0], out[1], sizeof out[0]); /* and nothing behind the end */
        assert_int_equal(((unsigned char *)out[0])[n_bytes], 0x5a);
    }
}

/* ---- Maxima -----------------------------------------------------------------------------------
 */

static uint64_t bits_at(const void *elems, size_t i, size_t n_bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)elems + i * n_bytes, n_bytes);
    return bits;
}

static void maxima_are_the_first(void **state)
{
    static uint64_t best[N], next[N], before[N];
    static uint64_t numbers[N];
    uint64_t seed = 3;
    (void)state;
    for (size_t k = 0; k < COUNT(kinds) * 50; k++) {
        const enum qplan_dtype dtype = kinds[k % COUNT(kinds)].dtype;
        const size_t n_bytes = kinds[k % COUNT(kinds)].n_bytes, n = N - k % 17;
        memset(numbers, 0, sizeof numbers);
        fill(&seed, dtype, best);
        fill(&seed, dtype, next);
        /* Equal ones, and zeros of both signs. */
        memcpy((char *)next + 100 * n_bytes, (char *)best + 100 * n_bytes, 10 * n_bytes);
        for (size_t i = 200; i < 210; i++) {
            memset((char *)best + i * n_bytes, 0, n_bytes);
            memset((char *)next + i * n_bytes, 0, n_bytes);
            ((char *)(i % 2 ? best : next))[i * n_bytes + n_bytes - 1] = (char)0x80;
        }
        memcpy(before, best, sizeof best);
        qp_max_kernel(dtype)(n, next, 7, best, numbers);
        for (size_t i = 0; i < n; i++) {
            const uint64_t a = bits_at(before, i, n_bytes), b = bits_at(next, i, n_bytes);
            const bool greater = value_of_bits(dtype, b) > value_of_bits(dtype, a);
            assert_true(bits_at(best, i, n_bytes) == (greater ? b : a));
            assert_int_equal(bits_at(numbers, i, n_bytes), greater ? 7 : 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_add_the_same),
        cmocka_unit_test(levels_finish_the_same),
        cmocka_unit_test(maxima_are_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
