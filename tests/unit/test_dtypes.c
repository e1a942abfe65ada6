/*
 * test_dtypes.c - the float formats: every 16-bit pattern in both directions, and rounding to them
 * against a slow search that knows only which values exist.
 */
#include "support.h"

#include <float.h>

#include "kernels/dtypes/narrow.h"
#include "kernels/kernel.h"

/* A 16-bit format. */
struct format {
    enum qplan_dtype dtype;
    unsigned exp_bits, man_bits;
};

static const struct format formats[] = {{QPLAN_F16, 5, 10}, {QPLAN_BF16, 8, 7}};

/* Both working precisions of every level, fastest last. */
static const struct qp_work_kernels *work_kernels(enum qplan_dtype work, enum qplan_isa isa)
{
    return qp_source_kernels(work, isa)->work;
}

/* ---- What a pattern is worth ----------------------------------------------------------------- */

static uint16_t infinity_of(const struct format *f)
{
    return (uint16_t)(((1u << f->exp_bits) - 1) << f->man_bits);
}

/* By the definition of the format; magnitude bits only, finite. */
static double magnitude_of(const struct format *f, uint16_t pattern)
{
    int exponent = pattern >> f->man_bits, bias = (1 << (f->exp_bits - 1)) - 1;
    int mantissa = pattern & ((1 << f->man_bits) - 1);
    if (exponent == 0)
        return ldexp(mantissa, 1 - bias - (int)f->man_bits);
    return ldexp(mantissa + (1 << f->man_bits), exponent - bias - (int)f->man_bits);
}

static void assert_loaded(const struct format *f, uint32_t pattern, double found)
{
    uint16_t magnitude = pattern & 0x7fff, infinity = infinity_of(f);
    bool negative = pattern >> 15;
    bool right = magnitude > infinity    ? isnan(found)
                 : magnitude == infinity ? isinf(found)
                                         : fabs(found) == magnitude_of(f, magnitude);
    if (!right || (!isnan(found) && (signbit(found) != 0) != negative))
        fail_msg("%s %04x loads as %a", qplan_dtype_name(f->dtype), pattern, found);
}

/* Loads all patterns at once with one kernel and stores the finite ones again. */
static void check_all_patterns(const struct format *f, const struct qp_work_kernels *work)
{
    static uint16_t patterns[65536], back[65536];
    static double values[65536];
    static float narrow[65536];
    bool is_f32 = work->work == QPLAN_F32;
    for (uint32_t i = 0; i < 65536; i++)
        patterns[i] = (uint16_t)i;
    work->load(f->dtype, 65536, patterns, is_f32 ? (void *)narrow : (void *)values);
    for (uint32_t i = 0; i < 65536; i++) {
        double x = is_f32 ? (double)narrow[i] : values[i];
        assert_loaded(f, i, x);
        if (isnan(x))
            narrow[i] = 0, values[i] = 0;
    }
    work->store(f->dtype, 65536, is_f32 ? (void *)narrow : (void *)values, back);
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t magnitude = i & 0x7fff, infinity = infinity_of(f), sign = i & 0x8000;
        uint16_t expected = magnitude < infinity    ? (uint16_t)i
                            : magnitude == infinity ? (uint16_t)(sign | (infinity - 1))
                                                    : 0;
        if (back[i] != expected)
            fail_msg("%s %04x is stored as %04x", qplan_dtype_name(f->dtype), i, back[i]);
    }
}

static void every_pattern_survives_load_and_store(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(formats); f++) {
        for (unsigned isa = QPLAN_ISA_SCALAR; isa <= (unsigned)qp_isa_detect(); isa++) {
            check_all_patterns(&formats[f], work_kernels(QPLAN_F32, (enum qplan_isa)isa));
            check_all_patterns(&formats[f], work_kernels(QPLAN_F64, (enum qplan_isa)isa));
        }
    }
}

static void the_other_floats_survive_load_and_store(void **state)
{
    static const double values[] = {0,        -0.0,      1,      -1.5,     0x1p-149, 0x1p-126,
                                    -FLT_MAX, 0x1.8p-30, 0x1p99, INFINITY, -INFINITY};
    (void)state;
    const struct qp_work_kernels *f32 = work_kernels(QPLAN_F32, QPLAN_ISA_BEST);
    const struct qp_work_kernels *f64 = work_kernels(QPLAN_F64, QPLAN_ISA_BEST);
    for (size_t i = 0; i < COUNT(values); i++) {
        float narrow = (float)values[i], narrow_again;
        double wide, wide_again;
        f32->load(QPLAN_F32, 1, &narrow, &narrow_again);
        f64->load(QPLAN_F32, 1, &narrow, &wide);
        f64->load(QPLAN_F64, 1, &values[i], &wide_again);
        assert_memory_equal(&narrow, &narrow_again, sizeof narrow);
        assert_memory_equal(&values[i], &wide, sizeof wide);
        assert_memory_equal(&values[i], &wide_again, sizeof wide);
        f64->store(QPLAN_F64, 1, &values[i], &wide_again);
        assert_memory_equal(&values[i], &wide_again, sizeof wide);
    }
}

/* ---- Rounding to a 16-bit format ------------------------------------------------------------- */

/* The pattern nearest to x, found among all of them; ties to the even one. */
static uint16_t nearest_pattern(const struct format *f, double x)
{
    uint16_t low = 0, high = (uint16_t)(infinity_of(f) - 1), sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x);
    if (magnitude >= magnitude_of(f, high))
        return sign | high;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (magnitude_of(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    /* Neighbours have few bits: their sum is exact. */
    double half = (magnitude_of(f, low) + magnitude_of(f, high)) / 2;
    bool up = magnitude > half || (magnitude == half && low % 2);
    return (uint16_t)(sign | (up ? high : low));
}

static void check_narrow(const struct format *f, double x)
{
    uint16_t expected = nearest_pattern(f, x), found = qp_narrow_f64(x, f->exp_bits, f->man_bits);
    if (found != expected)
        fail_msg("%a to %s: expected %04x, found %04x", x, qplan_dtype_name(f->dtype), expected,
                 found);
}

static void check_around(const struct format *f, double x)
{
    for (int sign = 0; sign < 2; sign++) {
        double signed_x = sign ? -x : x;
        check_narrow(f, signed_x);
        check_narrow(f, nextafter(signed_x, INFINITY));
        check_narrow(f, nextafter(signed_x, -INFINITY));
        check_narrow(f, (double)nextafterf((float)signed_x, INFINITY));
        check_narrow(f, (double)nextafterf((float)signed_x, -INFINITY));
    }
}

static void narrowing_is_to_nearest_even_at_every_value_and_tie(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct format *f = &formats[i];
        for (uint16_t p = 0; p + 1 < infinity_of(f); p++) {
            double low = magnitude_of(f, p), high = magnitude_of(f, (uint16_t)(p + 1));
            check_around(f, low);
            check_around(f, (low + high) / 2);
            check_narrow(f, low + (high - low) * 0.25);
            check_narrow(f, low + (high - low) * 0.75);
        }
    }
}

static void narrowing_of_random_doubles(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 400000; i++) {
        const struct format *f = &formats[i % 2];
        int exponent = (int)random_below(&seed, 320) - 180;
        check_narrow(f,
                     ldexp(random_signed(&seed), f->dtype == QPLAN_F16 ? exponent / 6 : exponent));
    }
}

/* What lies above the largest value stays finite, at any distance. */
static void narrowing_never_gives_infinity(void **state)
{
    static const double beyond[] = {65505,   65519.999, 65520, 65536,   1e6,     FLT_MAX,
                                    0x1p127, 0x1p128,   1e300, DBL_MAX, INFINITY};
    (void)state;
    for (size_t i = 0; i < COUNT(beyond); i++) {
        assert_int_equal(qp_narrow_f64(beyond[i], 5, 10), 0x7bff);
        assert_int_equal(qp_narrow_f64(-beyond[i], 5, 10), 0xfbff);
    }
    assert_int_equal(qp_narrow_f64(0x1.fep127, 8, 7), 0x7f7f);
    assert_int_equal(qp_narrow_f64((double)FLT_MAX, 8, 7), 0x7f7f);
    assert_int_equal(qp_narrow_f64(-DBL_MAX, 8, 7), 0xff7f);
    assert_int_equal(qp_narrow_f64(-INFINITY, 8, 7), 0xff7f);
}

/* A little above a tie: rounding to f32 first would find the tie and go down. */
static void narrowing_rounds_once(void **state)
{
    int n_differ = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const struct format *f = &formats[i];
        for (uint16_t p = (uint16_t)(1 << f->man_bits); p + 1 < infinity_of(f); p += 2) {
            double low = magnitude_of(f, p), high = magnitude_of(f, (uint16_t)(p + 1));
            double above = nextafter((low + high) / 2, INFINITY);
            assert_int_equal(qp_narrow_f64(above, f->exp_bits, f->man_bits), p + 1);
            n_differ += qp_narrow_f64((double)(float)above, f->exp_bits, f->man_bits) != p + 1;
        }
    }
    assert_true(n_differ > 20000); /* so the case is the one meant */
}

/* Stores n values with one kernel and compares each with the nearest pattern; rounds them, too. */
static void check_stored(const struct format *f, const struct qp_work_kernels *work, const float *x,
                         size_t n)
{
    static uint16_t found[65536];
    static float rounded[65536], loaded[65536];
    work->store(f->dtype, n, x, found);
    work->load(f->dtype, n, found, loaded);
    memcpy(rounded, x, n * sizeof *x);
    work->round(f->dtype, n, rounded);
    assert_memory_equal(rounded, loaded, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        uint16_t expected = nearest_pattern(f, (double)x[i]);
        if (found[i] != expected)
            fail_msg("%a to %s: expected %04x, found %04x", (double)x[i],
                     qplan_dtype_name(f->dtype), expected, found[i]);
    }
}

/* Every value of a format and every tie between two, their neighbours in f32, and what is beyond.
 */
static void check_stores(const struct format *f, const struct qp_work_kernels *work)
{
    static const float beyond[] = {65505, 65520, 0x1.fep127f, 0x1.ffp127f, FLT_MAX, INFINITY};
    static float x[65536];
    size_t n = 0;
    for (size_t i = 0; i < COUNT(beyond); i++)
        x[n++] = beyond[i], x[n++] = -beyond[i];
    for (uint16_t p = 0; p + 1 < infinity_of(f); p++) {
        double low = magnitude_of(f, p), high = magnitude_of(f, (uint16_t)(p + 1));
        const float values[] = {(float)low, (float)((low + high) / 2)};
        for (size_t i = 0; i < 2 * COUNT(values); i++) {
            float value = i % 2 ? -values[i / 2] : values[i / 2];
            x[n++] = value;
            x[n++] = nextafterf(value, INFINITY);
            x[n++] = nextafterf(value, -INFINITY);
        }
        if (n > COUNT(x) - 12) {
            check_stored(f, work, x, n);
            n = 0;
        }
    }
    check_stored(f, work, x, n);
}

static void f32_is_stored_to_nearest_even_at_every_value_and_tie(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(formats); f++) {
        for (unsigned isa = QPLAN_ISA_SCALAR; isa <= (unsigned)qp_isa_detect(); isa++)
            check_stores(&formats[f], work_kernels(QPLAN_F32, (enum qplan_isa)isa));
    }
}

/* ---- Rounding f64 to f32 --------------------------------------------------------------------- */

static float nearest_f32(double x)
{
    double magnitude = fabs(x);
    float low, high;
    if (magnitude >= (double)FLT_MAX)
        return x < 0 ? -FLT_MAX : FLT_MAX;
    low = (float)magnitude;
    while ((double)low > magnitude)
        low = nextafterf(low, 0);
    high = nextafterf(low, INFINITY);
    double half = ((double)low + (double)high) / 2;
    uint32_t bits;
    memcpy(&bits, &low, sizeof bits);
    float nearest = magnitude > half || (magnitude == half && bits % 2) ? high : low;
    return signbit(x) ? -nearest : nearest;
}

static void check_f32(double x)
{
    float expected = nearest_f32(x), found;
    work_kernels(QPLAN_F64, QPLAN_ISA_BEST)->store(QPLAN_F32, 1, &x, &found);
    if (memcmp(&expected, &found, sizeof found) != 0)
        fail_msg("%a to f32: expected %a, found %a", x, (double)expected, (double)found);
}

static void f64_is_stored_as_f32_to_nearest_even_and_finite(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)random_bits(&seed) & 0x7fffffff;
        float low;
        if (i < 4000)
            bits = (uint32_t)i; /* the smallest subnormals */
        if (bits >= 0x7f7fffff)
            continue;
        memcpy(&low, &bits, sizeof low);
        double tie = ((double)low + (double)nextafterf(low, INFINITY)) / 2;
        check_f32(tie);
        check_f32(-tie);
        check_f32(nextafter(tie, INFINITY));
        check_f32(nextafter(tie, 0));
    }
    check_f32(0x1.ffffffp127); /* half a step above the largest */
    check_f32(-DBL_MAX);
    check_f32(INFINITY);
    check_f32(-0.0);
}

/* ---- The tables of types --------------------------------------------------------------------- */

static void names_of_types_are_found_again(void **state)
{
    enum qplan_dtype dtype;
    (void)state;
    for (unsigned i = 0; i < QPLAN_DTYPE_COUNT; i++) {
        assert_true(qplan_dtype_parse(qplan_dtype_name((enum qplan_dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
    assert_false(qplan_dtype_parse("I8", &dtype));
    assert_false(qplan_dtype_parse("", &dtype));
    assert_null(qplan_dtype_name(QPLAN_DTYPE_COUNT));
    assert_int_equal(qplan_dtype_bits(QPLAN_DTYPE_COUNT), 0);
    assert_null(qplan_storage_name(QPLAN_STORAGE_COUNT));
    assert_int_equal(qplan_storage_bits(QPLAN_STORAGE_COUNT), 0);
}

static void ranges_of_codes(void **state)
{
    int32_t q_min, q_max;
    (void)state;
    for (unsigned i = 0; i < QPLAN_DTYPE_COUNT; i++) {
        enum qplan_dtype dtype = (enum qplan_dtype)i;
        bool is_code = i >= QPLAN_INT8 && i <= QPLAN_UINT7;
        assert_int_equal(qplan_dtype_range(dtype, &q_min, &q_max), is_code);
        if (!is_code)
            continue;
        assert_int_equal(q_max - q_min, (1 << qplan_dtype_bits(dtype)) - 1);
        assert_int_equal(q_min < 0, qplan_dtype_is_signed(dtype));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_survives_load_and_store),
        cmocka_unit_test(the_other_floats_survive_load_and_store),
        cmocka_unit_test(narrowing_is_to_nearest_even_at_every_value_and_tie),
        cmocka_unit_test(narrowing_of_random_doubles),
        cmocka_unit_test(narrowing_never_gives_infinity),
        cmocka_unit_test(narrowing_rounds_once),
        cmocka_unit_test(f32_is_stored_to_nearest_even_at_every_value_and_tie),
        cmocka_unit_test(f64_is_stored_as_f32_to_nearest_even_and_finite),
        cmocka_unit_test(names_of_types_are_found_again),
        cmocka_unit_test(ranges_of_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
