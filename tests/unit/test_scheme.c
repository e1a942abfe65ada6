/*
 * test_scheme.c - scheme text in both directions and the geometry of parameter sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/model/sets.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct qplan_scheme parsed(const char *text)
{
    struct qplan_scheme scheme;
    struct qplan_error err;
    if (qplan_scheme_parse(&scheme, text, &err) != QPLAN_OK)
        fail_msg("%s: %s", text, err.message);
    return scheme;
}

/* ---- Text -------------------------------------------------------------------------------------
 */

static void test_canonical_text(void **state)
{
    static const char *const rows[][2] = {
        {"int8", "int8:c0"},
        {"uint8", "uint8:c0"},
        {"int4", "int4:g128"},
        {"uint4", "uint4:g128"},
        {"int2", "int2:g128"},
        {"uint7", "uint7:g128"},
        {"int3:c0:narrow", "int3:c0:narrow"},
        {"uint5:t:sym:bf16", "uint5:t:sym:bf16"},
        {"int8:t", "int8:t"},
        {"int8:c1", "int8:c1"},
        {"int8:c-1", "int8:c-1"},
        {"int8:c63", "int8:c63"},
        {"int8:c-64", "int8:c-64"},
        {"int4:g1", "int4:g1"},
        {"int4:g4611686018427387904", "int4:g4611686018427387904"},
        {"int8:b128x128:bf16", "int8:b128x128:bf16"},
        {"int8:b4611686018427387904x4611686018427387904:asym:narrow:bf16",
         "int8:b4611686018427387904x4611686018427387904:asym:narrow:bf16"},
        {"int8:sym", "int8:c0"},
        {"int8:asym", "int8:c0:asym"},
        {"uint8:asym", "uint8:c0"},
        {"uint8:sym", "uint8:c0:sym"},
        {"int8:narrow", "int8:c0:narrow"},
        {"int4:narrow:f16", "int4:g128:narrow:f16"},
        {"int4:f32", "int4:g128"},
        {"int8:t:sym:narrow:f32", "int8:t:narrow"},
        {"int4:g128:asym", "int4:g128:asym"},
        {"uint4:bias", "uint4:g128:bias"},
        {"uint8:c-1:bias:bf16", "uint8:c-1:bias:bf16"},
        {"nf4:double", "nf4:g64:double"},
        {"nf4:g128:sym:f32:double", "nf4:g128:double"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[QPLAN_SCHEME_TEXT];
        struct qplan_scheme scheme = parsed(rows[i][0]);
        assert_int_equal(qplan_scheme_format(&scheme, text), strlen(rows[i][1]));
        assert_string_equal(text, rows[i][1]);
        struct qplan_scheme again = parsed(text);
        assert_true(qp_scheme_equal(&scheme, &again));
    }
}

static void test_parsed_members(void **state)
{
    (void)state;
    struct qplan_scheme scheme = parsed("uint4:b3x5:sym:bf16");
    assert_int_equal(scheme.dtype, QPLAN_UINT4);
    assert_int_equal(scheme.granularity, QPLAN_PER_BLOCK);
    assert_int_equal(scheme.block_rows, 3);
    assert_int_equal(scheme.block_cols, 5);
    assert_int_equal(scheme.group, 0);
    assert_false(scheme.asymmetric);
    assert_false(scheme.narrow);
    assert_int_equal(scheme.scale_dtype, QPLAN_BF16);

    scheme = parsed("uint3:g64:bias");
    assert_true(scheme.bias && scheme.asymmetric);
    struct qplan_scheme without = scheme;
    without.bias = false;
    assert_false(qp_scheme_equal(&scheme, &without));

    scheme = parsed("nf4:g32:double");
    assert_true(scheme.nested);
    without = scheme;
    without.nested = false;
    assert_false(qp_scheme_equal(&scheme, &without));

    scheme = parsed("int8:c-2:asym:narrow:f16");
    assert_int_equal(scheme.granularity, QPLAN_PER_CHANNEL);
    assert_int_equal(scheme.axis, -2);
    assert_true(scheme.asymmetric);
    assert_true(scheme.narrow);
    assert_int_equal(scheme.scale_dtype, QPLAN_F16);
}

/* The part and the character, counted from 1, that a refused text is refused for. */
struct refused {
    const char *text, *part;
    unsigned at;
};

static void test_refused_text(void **state)
{
    static const struct refused rows[] = {
        {"", "unknown dtype ''", 1},
        {"int16", "unknown dtype 'int16'", 1},
        {"nvfp4:f32", "nvfp4 takes no parts", 6},
        {"mxfp4:g32", "mxfp4 takes no parts", 6},
        {"mxfp8:", "mxfp8 takes no parts", 6},
        {"nvfp4x", "unknown dtype 'nvfp4x'", 1},
        {"int1", "unknown dtype 'int1'", 1},
        {"uint9", "unknown dtype 'uint9'", 1},
        {"binary", "unknown dtype 'binary'", 1},
        {"f32", "unknown dtype 'f32'", 1},
        {"INT8", "unknown dtype 'INT8'", 1},
        {"int8 ", "unknown dtype 'int8 '", 1},
        {":c0", "unknown dtype ''", 1},
        {"int8:", "unknown part ''", 6},
        {"int8::sym", "unknown part ''", 6},
        {"int8:q4", "unknown part 'q4'", 6},
        {"int8:c", "unknown part 'c'", 6},
        {"int8:g", "unknown part 'g'", 6},
        {"int8:tt", "unknown part 'tt'", 6},
        {"int8:f64", "unknown part 'f64'", 6},
        {"int8:Asym", "unknown part 'Asym'", 6},
        {"int8:c00", "bad part 'c00'", 6},
        {"int8:c-0", "bad part 'c-0'", 6},
        {"int8:c+1", "bad part 'c+1'", 6},
        {"int8:c64", "bad part 'c64'", 6},
        {"int8:c-65", "bad part 'c-65'", 6},
        {"int8:c99999999999999999999", "bad part 'c99999999999999999999'", 6},
        {"int4:g0", "bad part 'g0'", 6},
        {"int4:g064", "bad part 'g064'", 6},
        {"int4:g-1", "bad part 'g-1'", 6},
        {"int4:g4611686018427387905", "bad part 'g4611686018427387905'", 6},
        {"int4:g0x10", "bad part 'g0x10'", 6},
        {"int8:b4", "bad part 'b4'", 6},
        {"int8:b4x", "bad part 'b4x'", 6},
        {"int8:b0x4", "bad part 'b0x4'", 6},
        {"int8:b4x0", "bad part 'b4x0'", 6},
        {"int8:b4x4x4", "bad part 'b4x4x4'", 6},
        {"int8:b4X4", "bad part 'b4X4'", 6},
        {"int8:c0:c1", "part out of place 'c1'", 9},
        {"int8:asym:c0", "part out of place 'c0'", 11},
        {"int8:asym:sym", "part out of place 'sym'", 11},
        {"int8:narrow:asym", "part out of place 'asym'", 13},
        {"int8:f16:narrow", "part out of place 'narrow'", 10},
        {"int8:f16:f16", "part out of place 'f16'", 10},
        {"int8:int8", "part out of place 'int8'", 6},
        {"int8:t:sym:narrow:f16:x", "unknown part 'x'", 23},
        {"uint8:narrow", "bad part 'narrow'", 7},
        {"int4:g64:bias", "bad part 'bias'", 10},
        {"uint4:sym:bias", "part out of place 'bias'", 11},
        {"uint4:bias:narrow", "bad part 'narrow'", 12},
        {"uint4:g64:sym:narrow", "bad part 'narrow'", 15},
        {"int8:double", "bad part 'double'", 6},
        {"f8e4m3:g32:double", "bad part 'double'", 12},
        {"nf4:bf16:double", "bad part 'double'", 10},
        {"nf4:double:f32", "part out of place 'f32'", 12},
        {"nf4:double:double", "part out of place 'double'", 12},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_scheme scheme = {.group = 77};
        struct qplan_error err = {0};
        char at[32];
        (void)snprintf(at, sizeof at, "(at character %u)", rows[i].at);
        assert_int_equal(qplan_scheme_parse(&scheme, rows[i].text, &err), QPLAN_ERR_USAGE);
        if (strncmp(err.message, rows[i].part, strlen(rows[i].part)) != 0 ||
            !strstr(err.message, at))
            fail_msg("%s: %s, expected %s %s", rows[i].text, err.message, rows[i].part, at);
        assert_int_equal(scheme.group, 77);
    }
}

static void test_refusal_names_what_fits(void **state)
{
    struct qplan_scheme scheme;
    struct qplan_error err;
    (void)state;
    assert_int_equal(qplan_scheme_parse(&scheme, "int8:q4", &err), QPLAN_ERR_USAGE);
    assert_string_equal(err.subject, "scheme 'int8:q4'");
    assert_string_equal(
        err.message,
        "unknown part 'q4': expected t, cN, gN or bRxC, then asym, sym or bias, narrow, "
        "f32, f16, bf16, f8e4m3 or e8m0, double (at character 6)");
    assert_int_equal(qplan_scheme_parse(&scheme, "int8:t:sym:narrow:f16:x", &err), QPLAN_ERR_USAGE);
    assert_non_null(strstr(err.message, "expected double"));
    assert_int_equal(qplan_scheme_parse(&scheme, "nf4:double:x", &err), QPLAN_ERR_USAGE);
    assert_non_null(strstr(err.message, "expected the end"));
    assert_int_equal(qplan_scheme_parse(&scheme, "uint8:narrow", &err), QPLAN_ERR_USAGE);
    assert_non_null(strstr(err.message, "expected a signed dtype"));
    assert_int_equal(qplan_scheme_parse(&scheme, "int8:q4", NULL), QPLAN_ERR_USAGE);
}

static void test_floats_and_tables_are_symmetric(void **state)
{
    static const char *const names[] = {"fp8", "f8e4m3", "f8e5m2", "f4e2m1", "nf4"};
    static const char *const bad[] = {":asym", ":bias", ":narrow", ":g32:asym", ":t:sym:narrow"};
    static const struct {
        const char *text, *full;
    } defaults[] = {{"fp8", "f8e4m3:c0"},           {"f8e5m2", "f8e5m2:c0"},
                    {"f4e2m1", "f4e2m1:g32"},       {"nf4", "nf4:g64"},
                    {"nf4:t:sym:f16", "nf4:t:f16"}, {"fp8:b128x128", "f8e4m3:b128x128"}};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t k = 0; k < COUNT(bad); k++) {
            struct qplan_scheme scheme;
            char text[64];
            (void)snprintf(text, sizeof text, "%s%s", names[i], bad[k]);
            assert_int_equal(qplan_scheme_parse(&scheme, text, NULL), QPLAN_ERR_USAGE);
        }
    }
    for (size_t i = 0; i < COUNT(defaults); i++) {
        const struct qplan_scheme scheme = parsed(defaults[i].text);
        char text[QPLAN_SCHEME_TEXT];
        (void)qplan_scheme_format(&scheme, text);
        assert_string_equal(text, defaults[i].full);
    }
}

/* A part longer than any legal one must not be cut into a legal one. */
static void test_long_part(void **state)
{
    struct qplan_scheme scheme;
    char text[300] = "int8:";
    (void)state;
    memset(text + 5, ' ', sizeof text - 6);
    memcpy(text + 5, "sym", 3);
    assert_int_equal(qplan_scheme_parse(&scheme, text, NULL), QPLAN_ERR_USAGE);
    memset(text + 5, '1', sizeof text - 6);
    text[5] = 'g';
    assert_int_equal(qplan_scheme_parse(&scheme, text, NULL), QPLAN_ERR_USAGE);
}

static void test_default_needs_codes(void **state)
{
    struct qplan_scheme scheme;
    struct qplan_error err;
    (void)state;
    for (int dtype = 0; dtype <= QPLAN_DTYPE_COUNT; dtype++) {
        const char *name = qplan_dtype_name((enum qplan_dtype)dtype);
        const char *digits = name ? strpbrk(name, "0123456789") : NULL;
        const bool good =
            digits && (strstr(name, "int") ? !digits[1] && strchr("2345678", *digits)
                                           : strstr("f8e4m3 f8e5m2 f4e2m1 nf4", name) != NULL);
        assert_int_equal(qplan_scheme_default(&scheme, (enum qplan_dtype)dtype, &err),
                         good ? QPLAN_OK : QPLAN_ERR_USAGE);
    }
}

/* ---- Comparing and resolving ------------------------------------------------------------------
 */

static void test_equal_looks_at_what_counts(void **state)
{
    (void)state;
    struct qplan_scheme a = parsed("int8:c0"), b = a;
    b.group = 64;
    b.block_rows = 3;
    assert_true(qp_scheme_equal(&a, &b));
    static const char *const others[] = {"int8:c1",      "int8:t",         "uint8:c0:sym",
                                         "int8:c0:asym", "int8:c0:narrow", "int8:c0:f16"};
    for (size_t i = 0; i < COUNT(others); i++) {
        b = parsed(others[i]);
        assert_false(qp_scheme_equal(&a, &b));
    }
    a = parsed("int8:b2x3");
    b = parsed("int8:b2x4");
    assert_false(qp_scheme_equal(&a, &b));
    a = parsed("int8:g2");
    b = parsed("int8:g3");
    assert_false(qp_scheme_equal(&a, &b));
}

static void test_resolve_axis(void **state)
{
    struct qplan_scheme scheme = parsed("int8:c-1"), resolved;
    (void)state;
    assert_true(qp_scheme_resolve(&scheme, 3, &resolved));
    assert_int_equal(resolved.axis, 2);
    scheme = parsed("int8:c-3");
    assert_true(qp_scheme_resolve(&scheme, 3, &resolved));
    assert_int_equal(resolved.axis, 0);
    assert_false(qp_scheme_resolve(&scheme, 2, &resolved));
    scheme = parsed("int8:c2");
    assert_true(qp_scheme_resolve(&scheme, 3, &resolved));
    assert_false(qp_scheme_resolve(&scheme, 2, &resolved));
    scheme = parsed("int8:b2x2");
    assert_true(qp_scheme_resolve(&scheme, 2, &resolved));
    assert_false(qp_scheme_resolve(&scheme, 1, &resolved));
    scheme = parsed("int8:g2");
    assert_true(qp_scheme_resolve(&scheme, 1, &resolved));
    assert_false(qp_scheme_resolve(&scheme, 0, &resolved));
}

static void test_code_range(void **state)
{
    static const struct {
        const char *text;
        int32_t q_min, q_max;
    } rows[] = {
        {"int8", -128, 127}, {"int8:narrow", -127, 127}, {"uint8", 0, 255},
        {"int4", -8, 7},     {"int4:narrow", -7, 7},     {"uint4", 0, 15},
        {"int2", -2, 1},     {"int2:narrow", -1, 1},     {"uint3", 0, 7},
        {"int5", -16, 15},   {"uint6", 0, 63},           {"int7:narrow", -63, 63},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int32_t q_min, q_max;
        struct qplan_scheme scheme = parsed(rows[i].text);
        qp_scheme_range(&scheme, &q_min, &q_max);
        assert_int_equal(q_min, rows[i].q_min);
        assert_int_equal(q_max, rows[i].q_max);
    }
}

/* ---- Sets -------------------------------------------------------------------------------------
 */

/* A shape under a scheme, and the shape of its scales. */
struct sets_case {
    const char *scheme;
    uint64_t shape[4];
    unsigned rank;
    uint64_t scales[4];
    unsigned scales_rank;
};

static const struct sets_case set_cases[] = {
    {"int8:t", {6}, 1, {1}, 1},
    {"int8:t", {2, 3, 4}, 3, {1}, 1},
    {"int8:c0", {5}, 1, {5}, 1},
    {"int8:c0", {3, 4}, 2, {3}, 1},
    {"int8:c1", {3, 4}, 2, {4}, 1},
    {"int8:c1", {2, 3, 4}, 3, {3}, 1},
    {"int8:c1", {2, 3, 4, 5}, 4, {3}, 1},
    {"int8:g4", {3, 8}, 2, {3, 2}, 2},
    {"int8:g4", {2, 3, 10}, 3, {2, 3, 3}, 3},
    {"int8:g128", {3, 10}, 2, {3, 1}, 2},
    {"int8:g4611686018427387904", {3, 10}, 2, {3, 1}, 2},
    {"int8:g1", {7}, 1, {7}, 1},
    {"int8:b2x2", {4, 4}, 2, {2, 2}, 2},
    {"int8:b2x3", {5, 7}, 2, {3, 3}, 2},
    {"int8:b2x3", {2, 5, 7}, 3, {2, 3, 3}, 3},
    {"int8:b3x2", {2, 2, 4, 3}, 4, {2, 2, 2, 2}, 4},
    {"int8:b128x128", {2, 5, 7}, 3, {2, 1, 1}, 3},
    {"int8:b4611686018427387904x4611686018427387904", {2, 5, 7}, 3, {2, 1, 1}, 3},
};

/* The flat place in the scale tensor of an element, found from its coordinates alone. */
static uint64_t expected_set(const struct qplan_scheme *scheme, const struct sets_case *c,
                             uint64_t flat)
{
    uint64_t at[4], place = 0;
    for (unsigned i = c->rank; i-- > 0;) {
        at[i] = flat % c->shape[i];
        flat /= c->shape[i];
    }
    switch (scheme->granularity) {
    case QPLAN_PER_TENSOR:
        return 0;
    case QPLAN_PER_CHANNEL:
        return at[scheme->axis];
    case QPLAN_PER_BLOCK:
        at[c->rank - 2] /= scheme->block_rows;
        at[c->rank - 1] /= scheme->block_cols;
        break;
    case QPLAN_PER_GROUP:
        at[c->rank - 1] /= scheme->group;
        break;
    }
    for (unsigned i = 0; i < c->rank; i++)
        place = place * c->scales[i] + at[i];
    return place;
}

static void test_sets_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(set_cases); i++) {
        const struct sets_case *c = &set_cases[i];
        struct qplan_scheme scheme = parsed(c->scheme);
        struct qp_sets sets;
        qp_sets_make(&sets, &scheme, c->shape, c->rank);
        uint64_t n_scales = 1, shape[QPLAN_MAX_RANK];
        assert_int_equal(qp_scale_shape(&scheme, c->shape, c->rank, shape), c->scales_rank);
        for (unsigned k = 0; k < c->scales_rank; k++) {
            assert_int_equal(shape[k], c->scales[k]);
            n_scales *= c->scales[k];
        }
        assert_int_equal(sets.n_sets, n_scales);
        assert_int_equal(sets.n_sets, sets.n_bands * sets.n_cols);
        assert_int_equal(sets.last_len, c->shape[c->rank - 1]);
        assert_true(sets.band_rows * sets.row_len <= sets.n_elems);
        assert_true(sets.col_width <= sets.row_len);
    }
}

static void test_sets_of_every_element(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(set_cases); i++) {
        const struct sets_case *c = &set_cases[i];
        struct qplan_scheme scheme = parsed(c->scheme);
        struct qp_sets sets;
        qp_sets_make(&sets, &scheme, c->shape, c->rank);
        for (uint64_t flat = 0; flat < sets.n_elems; flat++) {
            uint64_t row = flat / sets.row_len, col = flat % sets.row_len;
            uint64_t band = row / sets.period_rows * sets.period_bands +
                            row % sets.period_rows / sets.band_rows;
            assert_int_equal(band * sets.n_cols + col / sets.col_width,
                             expected_set(&scheme, c, flat));
        }
    }
}

static void test_sets_numbers(void **state)
{
    struct qplan_scheme scheme = parsed("int8:b2x3");
    const uint64_t shape[] = {4, 5, 7};
    struct qp_sets sets;
    (void)state;
    qp_sets_make(&sets, &scheme, shape, 3);
    assert_int_equal(sets.n_elems, 140);
    assert_int_equal(sets.n_bands, 4 * 3);
    assert_int_equal(sets.band_rows, 2);
    assert_int_equal(sets.period_rows, 5);
    assert_int_equal(sets.period_bands, 3);
    assert_int_equal(sets.row_len, 7);
    assert_int_equal(sets.col_width, 3);
    assert_int_equal(sets.n_cols, 3);
    assert_int_equal(sets.n_sets, 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical_text),
        cmocka_unit_test(test_parsed_members),
        cmocka_unit_test(test_refused_text),
        cmocka_unit_test(test_refusal_names_what_fits),
        cmocka_unit_test(test_floats_and_tables_are_symmetric),
        cmocka_unit_test(test_long_part),
        cmocka_unit_test(test_default_needs_codes),
        cmocka_unit_test(test_equal_looks_at_what_counts),
        cmocka_unit_test(test_resolve_axis),
        cmocka_unit_test(test_code_range),
        cmocka_unit_test(test_sets_shape),
        cmocka_unit_test(test_sets_of_every_element),
        cmocka_unit_test(test_sets_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
