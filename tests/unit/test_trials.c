/*
 * test_trials.c - the loops that try codes: at every level of the CPU the same sums as the plain
 * ones, for any number of values.
 */
#include "support.h"

#include "kernels/search/trials.h"

#include <string.h>

#define MOST QP_TRIAL_RUN

/* Values between -2 and 2, weights up to 1, and trials of any kind. */
struct input {
    float values[MOST], weights[MOST], y[MOST];
    double wide[MOST], wide_y[MOST];
    struct qp_trials trials;
};

static double between(uint32_t *seed, double least, double most)
{
    *seed = *seed * 1664525u + 1013904223u;
    return least + (most - least) * (*seed >> 8) / 0x1p24;
}

static void make_input(struct input *in, uint32_t *seed, unsigned n_trials, bool shifted)
{
    memset(in, 0, sizeof *in);
    for (unsigned i = 0; i < MOST; i++) {
        in->wide[i] = i % 17 == 0 ? 0 : between(seed, -2, 2);
        in->wide_y[i] = between(seed, -2, 2);
        in->values[i] = (float)in->wide[i];
        in->y[i] = (float)in->wide_y[i];
        in->weights[i] = (float)between(seed, 0, 1);
    }
    in->trials.n = n_trials;
    in->trials.shifted = shifted;
    for (unsigned k = 0; k < n_trials; k++) {
        in->trials.step[k] = (float)between(seed, -140, 140) * (k == 3 ? 0x1p12f : 1);
        in->trials.shift[k] = shifted ? (float)between(seed, -300, 300) : 0;
        in->trials.least[k] = shifted ? 0 : -128 + (float)k;
        in->trials.most[k] = shifted ? 255 : 127 - (float)k;
    }
}

static void compare_sums(const struct input *in, const struct qp_trial_kernels *k, size_t n)
{
    const struct qp_trial_kernels *plain = &qp_scalar_trials;
    const struct qp_trial_bits bits = {40, 34};
    struct qp_trial_sums sums[2] = {{.xq = {1}}, {.xq = {1}}},
                         weighted[2] = {{.q = {2}}, {.q = {2}}};
    float x[2][MOST] = {{0}};
    int16_t fixed[2][MOST] = {{0}};
    k->relate_f32(n, in->values, 0.75, x[0], fixed[0]);
    plain->relate_f32(n, in->values, 0.75, x[1], fixed[1]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    assert_memory_equal(fixed[0], fixed[1], sizeof fixed[0]);
    k->relate_f64(n, in->wide, 0.5, x[0], fixed[0]);
    plain->relate_f64(n, in->wide, 0.5, x[1], fixed[1]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    assert_memory_equal(fixed[0], fixed[1], sizeof fixed[0]);
    k->sums(n, x[0], fixed[0], &in->trials, &sums[0]);
    plain->sums(n, x[1], fixed[1], &in->trials, &sums[1]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    k->weighted_sums(n, x[0], in->weights, &in->trials, bits, &weighted[0]);
    plain->weighted_sums(n, x[1], in->weights, &in->trials, bits, &weighted[1]);
    assert_memory_equal(&weighted[0], &weighted[1], sizeof weighted[0]);
}

static void compare_errors(const struct input *in, const struct qp_trial_kernels *k, size_t n)
{
    const struct qp_trial_kernels *plain = &qp_scalar_trials;
    const float *const weights[] = {NULL, in->weights};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(k->errors_f32(n, in->values, in->y, weights[i], 0.5, 46),
                         plain->errors_f32(n, in->values, in->y, weights[i], 0.5, 46));
        assert_int_equal(k->errors_f64(n, in->wide, in->wide_y, weights[i], 0.5, 40),
                         plain->errors_f64(n, in->wide, in->wide_y, weights[i], 0.5, 40));
    }
}

static void every_level_gives_the_same_sums(void **state)
{
    static const enum qplan_isa levels[] = {QPLAN_ISA_SCALAR, QPLAN_ISA_AVX2, QPLAN_ISA_AVX512};
    const enum qplan_isa most = qp_isa_detect();
    struct input in;
    uint32_t seed = 18;
    (void)state;
    for (unsigned n_trials = 0; n_trials <= QP_TRIALS; n_trials++) {
        for (size_t n = 0; n <= MOST; n += n < 70 ? 1 : 31) {
            make_input(&in, &seed, n_trials, n % 2 == 1);
            for (unsigned i = 0; i < 3 && levels[i] <= most; i++) {
                compare_sums(&in, qp_trial_kernels(levels[i]), n);
                compare_errors(&in, qp_trial_kernels(levels[i]), n);
            }
        }
    }
}

/* Sums of two values by hand: codes 3 and -2 of 1.5 and -1, where a step is 2. */
static void sums_are_those_of_codes(void **state)
{
    const struct qp_trials trials = {.n = 1, .step = {2}, .least = {-8}, .most = {7}};
    const float values[] = {1.5f, -1};
    struct qp_trial_sums sums = {.q = {0}};
    float x[2];
    int16_t fixed[2];
    (void)state;
    qp_scalar_trials.relate_f32(2, values, 1, x, fixed);
    qp_scalar_trials.sums(2, x, fixed, &trials, &sums);
    assert_int_equal(sums.qq[0], 13);
    assert_int_equal(sums.xq[0], (int64_t)(6.5 * (1 << QP_TRIAL_BITS)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_gives_the_same_sums),
        cmocka_unit_test(sums_are_those_of_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
