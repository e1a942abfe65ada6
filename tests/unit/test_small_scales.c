/*
 * test_small_scales.c - scales of one byte: what every byte of f8e4m3 and e8m0 stands for, rounding
 * to them against a search that knows only which values exist, and scales under a factor.
 */
#include "support.h"

#include "kernels/kernel.h"

#include <float.h>

/* Both working precisions at every level. */
static const struct qp_work_kernels *work_kernels(enum qplan_dtype work, unsigned isa)
{
    return qp_source_kernels(work, (enum qplan_isa)isa)->work;
}

#define N_LEVELS ((unsigned)qp_isa_detect() + 1)

/* By the definitions of the types; NaN where a byte is no number. */
static double value_of(enum qplan_dtype dtype, unsigned byte)
{
    const int exponent = byte >> 3 & 15, mantissa = byte & 7, size = byte & 0x7f;
    if (dtype == QPLAN_E8M0)
        return byte == 255 ? (double)NAN : ldexp(1, (int)byte - 127);
    if (size == 0x7f)
        return (double)NAN;
    const double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return byte & 0x80 ? -magnitude : magnitude;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static void check_bytes(enum qplan_dtype dtype, const struct qp_work_kernels *work)
{
    uint8_t bytes[256], back[256];
    double f64[256];
    float f32[256];
    void *values = work->work == QPLAN_F32 ? (void *)f32 : (void *)f64;
    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    work->load(dtype, 256, bytes, values);
    for (unsigned i = 0; i < 256; i++) {
        const double found = work->work == QPLAN_F32 ? (double)f32[i] : f64[i];
        const double expected = value_of(dtype, i);
        if (isnan(expected) ? !isnan(found)
                            : found != expected || signbit(found) != signbit(expected))
            fail_msg("%s %02x loads as %a, expected %a", qplan_dtype_name(dtype), i, found,
                     expected);
    }
    work->store(dtype, 256, values, back);
    for (unsigned i = 0; i < 256; i++) {
        if (!isnan(value_of(dtype, i)) && back[i] != i)
            fail_msg("%s %02x is stored as %02x", qplan_dtype_name(dtype), i, back[i]);
    }
}

static void every_byte_survives_load_and_store(void **state)
{
    (void)state;
    for (unsigned isa = 0; isa < N_LEVELS; isa++) {
        check_bytes(QPLAN_F8E4M3, work_kernels(QPLAN_F32, isa));
        check_bytes(QPLAN_F8E4M3, work_kernels(QPLAN_F64, isa));
        check_bytes(QPLAN_E8M0, work_kernels(QPLAN_F32, isa));
        check_bytes(QPLAN_E8M0, work_kernels(QPLAN_F64, isa));
    }
}

/* The byte nearest to x, found among all of them; ties to the even one. */
static uint8_t nearest_byte(double x)
{
    unsigned best = 0;
    for (unsigned i = 1; i < 0x7f; i++) {
        const double off = fabs(fabs(x) - value_of(QPLAN_F8E4M3, i));
        const double least = fabs(fabs(x) - value_of(QPLAN_F8E4M3, best));
        if (off < least || (off == least && i % 2 == 0))
            best = i;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static void check_rounding(double x)
{
    for (unsigned isa = 0; isa < N_LEVELS; isa++) {
        const float narrow = (float)x;
        uint8_t found;
        work_kernels(QPLAN_F64, isa)->store(QPLAN_F8E4M3, 1, &x, &found);
        if (found != nearest_byte(x))
            fail_msg("%a: expected %02x, found %02x", x, nearest_byte(x), found);
        work_kernels(QPLAN_F32, isa)->store(QPLAN_F8E4M3, 1, &narrow, &found);
        if (found != nearest_byte((double)narrow))
            fail_msg("%a in f32: expected %02x, found %02x", x, nearest_byte((double)narrow),
                     found);
    }
}

static void f8e4m3_is_stored_to_nearest_even_at_every_value_and_tie(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 0x7e; i++) {
        const double low = value_of(QPLAN_F8E4M3, i), high = value_of(QPLAN_F8E4M3, i + 1);
        const double around[] = {low, (low + high) / 2};
        for (size_t k = 0; k < COUNT(around); k++) {
            check_rounding(around[k]);
            check_rounding(-around[k]);
            check_rounding(nextafter(around[k], INFINITY));
            check_rounding(nextafter(around[k], 0));
            check_rounding((double)nextafterf((float)around[k], INFINITY));
            check_rounding((double)nextafterf((float)around[k], 0));
        }
    }
    check_rounding(449);
    check_rounding(-464);
    check_rounding(1e30);
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/* A range of values from -size to size, and the scale that is made of it. */
static double scale_of(const struct qp_code_rule *rule, enum qplan_dtype dtype, unsigned isa,
                       double size)
{
    const struct qp_quantizer *q = qp_quantizer(dtype, rule->kind, (enum qplan_isa)isa);
    double lo = -size, hi = size, scale;
    float lo_f32 = (float)lo, hi_f32 = (float)hi, scale_f32;
    int32_t zero;
    if (dtype == QPLAN_F64) {
        assert_int_equal(q->params(rule, 1, &lo, &hi, &scale, &zero), 1);
        return scale;
    }
    assert_int_equal(q->params(rule, 1, &lo_f32, &hi_f32, &scale_f32, &zero), 1);
    return (double)scale_f32;
}

static void check_power(const struct qp_code_rule *rule, enum qplan_dtype dtype, double size)
{
    const double needed = dtype == QPLAN_F64 ? size / 127.5 : (double)((float)size / 127.5f);
    for (unsigned isa = 0; isa < N_LEVELS; isa++) {
        const double scale = scale_of(rule, dtype, isa, size);
        int exponent;
        assert_true(frexp(scale, &exponent) == 0.5);
        assert_true(scale >= needed);
        assert_true(scale / 2 < needed || scale == 0x1p-126);
    }
}

static void e8m0_is_the_least_power_of_two_that_is_enough(void **state)
{
    const struct qplan_scheme scheme = {.dtype = QPLAN_INT8, .scale_dtype = QPLAN_E8M0};
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const double size = ldexp(fabs(random_signed(&seed)), (int)random_below(&seed, 260) - 140);
        check_power(&rule, QPLAN_F32, (double)(float)size);
        check_power(&rule, QPLAN_F64, size);
    }
    for (int i = -120; i < 120; i++) { /* exact powers stay what they are */
        check_power(&rule, QPLAN_F64, ldexp(127.5, i));
        check_power(&rule, QPLAN_F32, (double)nextafterf((float)ldexp(127.5, i), INFINITY));
        check_power(&rule, QPLAN_F32, ldexp(127.5, i));
    }
    assert_true(scale_of(&rule, QPLAN_F32, 0, 0) == 1);
    assert_true(scale_of(&rule, QPLAN_F64, 0, 1e-300) == 0x1p-126);
}

static void a_power_that_e8m0_lacks_is_refused(void **state)
{
    const struct qplan_scheme scheme = {.dtype = QPLAN_INT2, .scale_dtype = QPLAN_E8M0};
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_quantizer *q = qp_quantizer(QPLAN_F32, rule.kind, QPLAN_ISA_SCALAR);
    const float lo[] = {-1, -FLT_MAX}, hi[] = {1, 0};
    float scale[2];
    int32_t zero[2];
    (void)state;
    assert_int_equal(q->params(&rule, 2, lo, hi, scale, zero), 1);
}

/* The scale that a byte stands for, a single operation in f32. */
static float with_factor(const struct qp_code_rule *rule, unsigned byte)
{
    const float stored = (float)value_of(QPLAN_F8E4M3, byte);
    return rule->divides ? stored / rule->factor : stored * rule->factor;
}

static void check_under_factor(const struct qp_code_rule *rule, enum qplan_dtype dtype, double size)
{
    const double needed = dtype == QPLAN_F64 ? size / 7.5 : (double)((float)size / 7.5f);
    unsigned byte = 1;
    while ((double)with_factor(rule, byte) < needed && byte < 0x7e)
        byte++;
    for (unsigned isa = 0; isa < N_LEVELS; isa++) {
        const double scale = scale_of(rule, dtype, isa, size);
        if (scale != (double)with_factor(rule, byte))
            fail_msg("%a under %a: expected %a, found %a", size, (double)rule->factor,
                     (double)with_factor(rule, byte), scale);
    }
}

static void f8e4m3_is_the_least_under_its_factor_that_is_enough(void **state)
{
    const struct qplan_scheme scheme = {.dtype = QPLAN_INT4, .scale_dtype = QPLAN_F8E4M3};
    struct qp_code_rule rule = qp_code_rule(&scheme);
    uint64_t seed = 4;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const int exponent = (int)random_below(&seed, 200) - 100;
        rule.factor = (float)ldexp(1 + fabs(random_signed(&seed)), exponent);
        rule.divides = i % 2;
        const double largest = (double)with_factor(&rule, 0x7e) * 7.5;
        const double size = ldexp(largest * fabs(random_signed(&seed)), -(i % 20));
        check_under_factor(&rule, QPLAN_F32, (double)(float)size);
        check_under_factor(&rule, QPLAN_F64, size);
        check_under_factor(&rule, QPLAN_F64,
                           (double)with_factor(&rule, 1 + (unsigned)i % 0x7e) * 7.5);
    }
    assert_true(scale_of(&rule, QPLAN_F32, 0, 0) == (double)with_factor(&rule, 0x38)); /* 1 */
}

static void check_factor(const struct qp_code_rule *rule, enum qplan_dtype dtype)
{
    const struct qp_work_kernels *work = work_kernels(dtype, QPLAN_ISA_SCALAR);
    uint8_t bytes[0x7e], back[0x7e];
    double f64[0x7e];
    float f32[0x7e];
    void *scales = dtype == QPLAN_F64 ? (void *)f64 : (void *)f32;
    for (unsigned i = 0; i < COUNT(bytes); i++)
        bytes[i] = (uint8_t)(i + 1);
    qp_load_scales(work, rule, COUNT(bytes), bytes, scales);
    for (unsigned i = 0; i < COUNT(bytes); i++)
        assert_true((dtype == QPLAN_F64 ? f64[i] : (double)f32[i]) ==
                    (double)with_factor(rule, bytes[i]));
    qp_store_scales(work, rule, COUNT(bytes), scales, back);
    assert_memory_equal(bytes, back, sizeof bytes);
}

static void stored_scales_survive_every_factor(void **state)
{
    const struct qplan_scheme scheme = {.dtype = QPLAN_INT4, .scale_dtype = QPLAN_F8E4M3};
    struct qp_code_rule rule = qp_code_rule(&scheme);
    uint64_t seed = 5;
    (void)state;
    check_factor(&rule, QPLAN_F32);
    for (int exponent = -117; exponent <= 117; exponent++) {
        for (int i = 0; i < 20; i++) {
            rule.factor = (float)ldexp(1 + fabs(random_signed(&seed)), exponent);
            rule.divides = exponent > -117 && exponent < 117 && i % 2;
            check_factor(&rule, QPLAN_F32);
            check_factor(&rule, QPLAN_F64);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_survives_load_and_store),
        cmocka_unit_test(f8e4m3_is_stored_to_nearest_even_at_every_value_and_tie),
        cmocka_unit_test(e8m0_is_the_least_power_of_two_that_is_enough),
        cmocka_unit_test(a_power_that_e8m0_lacks_is_refused),
        cmocka_unit_test(f8e4m3_is_the_least_under_its_factor_that_is_enough),
        cmocka_unit_test(stored_scales_survive_every_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
