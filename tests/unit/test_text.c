/*
 * test_text.c - names made safe for a terminal, numbers as text and back, and the writer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/text.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

static void every_scalar_value_round_trips(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        if (code >= 0xd800 && code <= 0xdfff)
            continue;
        char text[4];
        uint32_t back = UINT32_MAX;
        size_t n = qp_utf8_encode(text, code);
        assert_int_equal(n, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        assert_int_equal(qp_utf8_decode(text, 4, &back), n);
        assert_int_equal(back, code);
        if (n > 1)
            assert_int_equal(qp_utf8_decode(text, n - 1, &back), 0); /* cut */
    }
}

static void malformed_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xc3\x28",
        "\xe2\x28\xa1",
        "\xe2\x82\x28",
        "\xf0\x28\x8c\xbc",
        "\xf0\x90\x28",
        "\xf0\x90\x8c\x28",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        uint32_t code;
        assert_int_equal(qp_utf8_decode(texts[i], strlen(texts[i]), &code), 0);
    }
}

/* ---- Names ----------------------------------------------------------------------------------- */

struct quoted {
    const char *name;
    size_t n;
    const char *shown;
};

#define NAME(text, shown)                                                                          \
    {                                                                                              \
        text, sizeof(text) - 1, shown                                                              \
    }

static void names_are_quoted(void **state)
{
    (void)state;
    static const struct quoted rows[] = {
        NAME("", "''"),
        NAME("model.layers.0.weight", "'model.layers.0.weight'"),
        NAME("it's", "'it\\'s'"),
        NAME("C:\\x", "'C:\\\\x'"),
        NAME("a\nb\tc\rd", "'a\\nb\\tc\\rd'"),
        NAME("\x1b[31m", "'\\x1b[31m'"),
        NAME("a\0b", "'a\\x00b'"),
        NAME("\x7f", "'\\x7f'"),
        NAME("\xc2\x9b", "'\\u009b'"),             /* CSI */
        NAME("\xe2\x80\xae", "'\\u202e'"),         /* right-to-left override */
        NAME("\xe2\x80\xa8", "'\\u2028'"),         /* line separator */
        NAME("\xef\xbb\xbf", "'\\ufeff'"),         /* byte order mark */
        NAME("\xf3\xa0\x80\x81", "'\\U000e0001'"), /* tag */
        NAME("\xff\xc3\xa9\xc3", "'\\xff\xc3\xa9\\xc3'"),
        NAME("\xf0\x9f\x98\x80 \xc3\xa9", "'\xf0\x9f\x98\x80 \xc3\xa9'"),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[QP_QUOTED];
        assert_ptr_equal(qp_quote(out, rows[i].name, rows[i].n), out);
        assert_string_equal(out, rows[i].shown);
    }
}

static void long_names_are_cut_behind_80_characters(void **state)
{
    (void)state;
    char name[400], expected[400], out[QP_QUOTED];
    memset(name, 'n', sizeof name);
    snprintf(expected, sizeof expected, "'%.80s'", name);
    assert_string_equal(qp_quote(out, name, 80), expected);
    snprintf(expected, sizeof expected, "'%.80s'...", name);
    assert_string_equal(qp_quote(out, name, 81), expected);
    assert_string_equal(qp_quote(out, name, sizeof name), expected);
    name[79] = '\n'; /* its escape would be characters 80 and 81 */
    snprintf(expected, sizeof expected, "'%.79s'...", name);
    assert_string_equal(qp_quote(out, name, 80), expected);
    for (size_t i = 0; i < sizeof name; i += 4)
        memcpy(name + i, "\xf0\x9f\x98\x80", 4);
    snprintf(expected, sizeof expected, "'%.320s'...", name);
    assert_string_equal(qp_quote(out, name, sizeof name), expected);
    assert_true(strlen(out) < QP_QUOTED);
}

static void escaped_paths_fit_any_room(void **state)
{
    (void)state;
    static const char path[] = "/models/it's/\xe2\x80\xae/\xff/\xf0\x9f\x98\x80.safetensors";
    char out[64];
    assert_string_equal(qp_escape(out, sizeof out, path, strlen(path)),
                        "/models/it's/\\u202e/\\xff/\xf0\x9f\x98\x80.safetensors");
    size_t full = strlen(out);
    for (size_t room = 1; room <= full + 1; room++) {
        memset(out, '#', sizeof out);
        qp_escape(out, room, path, strlen(path));
        assert_true(strlen(out) < room);
        assert_int_equal(out[room], '#');
        if (room > 4)
            assert_int_equal(strcmp(out + strlen(out) - 3, "...") == 0, room <= full);
    }
    assert_string_equal(qp_escape(out, 4, path, strlen(path)), "/mo");
    assert_string_equal(qp_escape(out, 5, path, strlen(path)), "/...");
}

/* ---- Doubles --------------------------------------------------------------------------------- */

struct formatted {
    double value;
    const char *text;
};

static const struct formatted doubles[] = {
    {0.0, "0.0"},
    {-0.0, "-0.0"},
    {1.0, "1.0"},
    {2.0, "2.0"},
    {-1.5, "-1.5"},
    {0.1, "0.1"},
    {0.2 + 0.1, "0.30000000000000004"},
    {1.0 / 3, "0.3333333333333333"},
    {100.0, "100.0"},
    {123456.0, "123456.0"},
    {0.001, "0.001"},
    {0.0001, "0.0001"},
    {0.00012345, "0.00012345"},
    {0.00001, "1e-05"},
    {1e-7, "1e-07"},
    {1.25e-10, "1.25e-10"},
    {1e15, "1000000000000000.0"},
    {9999999999999998.0, "9999999999999998.0"},
    {1e16, "1e+16"},
    {123456789012345680.0, "1.2345678901234568e+17"},
    {1.5e20, "1.5e+20"},
    {1e22, "1e+22"},
    {1e23, "1e+23"},
    {1e100, "1e+100"},
    {5e-324, "5e-324"},
    {1e-323, "1e-323"},
    {2.225073858507201e-308, "2.225073858507201e-308"}, /* the largest subnormal */
    {DBL_MIN, "2.2250738585072014e-308"},
    {DBL_MAX, "1.7976931348623157e+308"},
    {DBL_EPSILON, "2.220446049250313e-16"},
    /* powers of two whose nearest 16 digits are not the ones that read back */
    {0x1p-24, "5.960464477539063e-08"},
    {0x1p-44, "5.684341886080802e-14"},
    {0x1p89, "6.189700196426902e+26"},
    {0x1p-1017, "7.120236347223045e-307"},
    {INFINITY, "inf"},
    {-INFINITY, "-inf"},
};

static void check_doubles(void)
{
    for (size_t i = 0; i < COUNT(doubles); i++) {
        char out[QP_F64_TEXT];
        double back;
        assert_int_equal(qp_format_f64(out, doubles[i].value), strlen(doubles[i].text));
        assert_string_equal(out, doubles[i].text);
        if (isfinite(doubles[i].value)) {
            assert_true(qp_parse_f64(out, &back));
            assert_memory_equal(&back, &doubles[i].value, sizeof back);
        }
    }
}

static void doubles_have_their_shortest_form(void **state)
{
    (void)state;
    char out[QP_F64_TEXT];
    check_doubles();
    assert_int_equal(qp_format_f64(out, NAN), 3);
    assert_string_equal(out, "nan");
    qp_format_f64(out, -NAN);
    assert_string_equal(out, "nan");
}

static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ar_EG.UTF-8"};
    size_t i = 0;
    while (i < COUNT(names) && !setlocale(LC_ALL, names[i]))
        i++;
    if (i == COUNT(names))
        skip(); /* no such locale here */
    check_doubles();
    setlocale(LC_ALL, "C");
}

/* The number of digits between the first and the last that is not 0. */
static int significant(const char *text)
{
    char digits[QP_F64_TEXT] = "";
    int n = 0, last = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text >= '0' && *text <= '9' && (n > 0 || *text != '0'))
            digits[n++] = *text;
    }
    for (int i = 0; i < n; i++)
        last = digits[i] == '0' ? last : i + 1;
    return last;
}

static void random_doubles_round_trip_and_are_shortest(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        double value, back;
        uint64_t bits = next_random(&seed);
        if (i % 8 == 0)
            bits &= 0x800fffffffffffffu >> (i % 52); /* subnormal, few bits */
        if (i % 8 == 1)
            bits &= 0xfff0000000000000u; /* a power of two */
        if (i % 8 == 2)
            bits &= 0xffffffffe0000000u; /* a float */
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value) || value == 0)
            continue;
        char out[QP_F64_TEXT], shorter[64];
        size_t n = qp_format_f64(out, value);
        assert_true(n == strlen(out) && n < QP_F64_TEXT);
        assert_true(qp_parse_f64(out, &back));
        assert_memory_equal(&back, &value, sizeof back);
        int digits = significant(out);
        assert_true(digits >= 1 && digits <= 17);
        if (digits > 1) {
            snprintf(shorter, sizeof shorter, "%.*e", digits - 2, value);
            assert_true(strtod(shorter, NULL) != value);
        }
    }
}

static void only_decimal_numbers_are_read(void **state)
{
    (void)state;
    static const struct formatted good[] = {
        {0, "0"},           {0, "-0"},
        {1, "1"},           {1, "+1"},
        {30, "30"},         {0.001, "1e-3"},
        {1.5, "1.50"},      {1000, "1E3"},
        {1000, "1e+3"},     {7, "007"},
        {0, "0e999"},       {0, "0.000e5"},
        {5e-324, "5e-324"}, {DBL_MAX, "1.7976931348623157e308"},
    };
    static const char *const bad[] = {
        "",    " 1",    "1 ",    "+",      "-",      ".",        ".5",  "1.",       "1e",
        "1e+", "e5",    "1,5",   "0x1",    "inf",    "nan",      "NaN", "1.5.2",    "1e5.0",
        "--1", "1_000", "1e999", "-1e400", "1e-400", "\xd9\xa1", "1f",  "infinity",
    };
    double out = 42;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_true(qp_parse_f64(good[i].text, &out));
        assert_true(out == good[i].value);
    }
    out = 42;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(qp_parse_f64(bad[i], &out));
        assert_true(out == 42);
    }
}

/* ---- Integers -------------------------------------------------------------------------------- */

static void only_plain_integers_are_read(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "01",
                                      "00",
                                      "1.0",
                                      "1e3",
                                      "0x1",
                                      "1,0",
                                      "18446744073709551616",
                                      "99999999999999999999"};
    uint64_t out;
    assert_true(qp_parse_u64("0", &out) && out == 0);
    assert_true(qp_parse_u64("9", &out) && out == 9);
    assert_true(qp_parse_u64("18446744073709551614", &out) && out == UINT64_MAX - 1);
    assert_true(qp_parse_u64("18446744073709551615", &out) && out == UINT64_MAX);
    out = 42;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(qp_parse_u64(bad[i], &out));
        assert_int_equal(out, 42);
    }
}

/* Texts from files are counted: what follows a NUL, and what is behind the end, counts as such. */
static void counted_texts_end_where_they_are_counted(void **state)
{
    uint64_t out;
    (void)state;
    assert_true(qp_parse_u64_n("12345", 3, &out) && out == 123);
    assert_true(qp_parse_u64_n("07", 1, &out) && out == 0);
    assert_false(qp_parse_u64_n("1\0", 2, &out));
    assert_false(qp_parse_u64_n("1\0"
                                "2",
                                3, &out));
    assert_false(qp_parse_u64_n("1", 0, &out));
    assert_true(qp_text_is("format", 6, "format"));
    assert_true(qp_text_is("formats", 6, "format"));
    assert_true(qp_text_is("x", 0, ""));
    assert_false(qp_text_is("format\0", 7, "format"));
    assert_false(qp_text_is("format\0x", 8, "format"));
    assert_false(qp_text_is("forma\0", 6, "format"));
    assert_false(qp_text_is("forma", 5, "format"));
}

static void bytes_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        uint64_t n_bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {999, "999 B"},
        {1000, "1.00 kB"},
        {1234567, "1.23 MB"},
        {9994, "9.99 kB"},
        {9995, "10.0 kB"},
        {12345, "12.3 kB"},
        {99949, "99.9 kB"},
        {99950, "100 kB"},
        {999499, "999 kB"},
        {999500, "1.00 MB"},
        {1070000000, "1.07 GB"},
        {5497558138880, "5.50 TB"},
        {UINT64_MAX, "18.4 EB"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[QP_F64_TEXT];
        assert_string_equal(qp_format_bytes(out, rows[i].n_bytes), rows[i].text);
    }
}

/* ---- The writer ------------------------------------------------------------------------------ */

/* What a stream delivered; fails with error after fail_after calls. */
struct sink {
    char *data;
    size_t n, calls, fail_after;
    int error;
};

static int take(void *ctx, const void *bytes, size_t n_bytes)
{
    struct sink *sink = ctx;
    if (sink->calls++ >= sink->fail_after)
        return sink->error;
    sink->data = realloc(sink->data, sink->n + n_bytes);
    memcpy(sink->data + sink->n, bytes, n_bytes);
    sink->n += n_bytes;
    return 0;
}

/* 400 KB in pieces of all sizes, one of them larger than what is sent at once. */
static void write_much(struct qp_writer *w)
{
    static char large[100000];
    memset(large, 'L', sizeof large);
    for (int i = 0; i < 1000; i++) {
        qp_printf(w, "%d:%*s|", i, i % 600, "x");
        qp_put(w, large, (size_t)i % 17);
        qp_puts(w, "");
        if (i % 500 == 0)
            qp_put(w, large, sizeof large);
    }
}

static void streams_give_the_same_bytes(void **state)
{
    (void)state;
    struct qp_writer kept, sent;
    struct sink sink = {.fail_after = SIZE_MAX};
    qp_writer_init(&kept);
    write_much(&kept);
    assert_int_equal(qp_writer_finish(&kept, "x", NULL), QPLAN_OK);
    assert_int_equal(kept.data[kept.n], '\0');
    qp_writer_stream(&sent, take, &sink);
    write_much(&sent);
    assert_int_equal(qp_writer_finish(&sent, "x", NULL), QPLAN_OK);
    assert_int_equal(sink.n, kept.n);
    assert_memory_equal(sink.data, kept.data, kept.n);
    assert_true(sink.calls < 20);
    qp_writer_free(&kept);
    qp_writer_free(&sent);
    free(sink.data);
}

static void an_empty_text_is_a_string(void **state)
{
    (void)state;
    struct qp_writer w;
    qp_writer_init(&w);
    assert_int_equal(qp_writer_finish(&w, "x", NULL), QPLAN_OK);
    assert_int_equal(w.n, 0);
    assert_string_equal(w.data, "");
    qp_writer_free(&w);
    qp_writer_free(&w);
}

static void the_first_failure_is_remembered(void **state)
{
    (void)state;
    for (size_t n = 0; n < 6; n++) {
        struct qp_writer w;
        struct qplan_error err;
        struct sink sink = {.fail_after = n, .error = ENOSPC};
        qp_writer_stream(&w, take, &sink);
        write_much(&w);
        assert_int_equal(qp_writer_finish(&w, "out", &err), QPLAN_ERR_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        assert_string_equal(err.subject, "out");
        assert_int_equal(sink.calls, n + 1); /* nothing is sent afterwards */
        qp_writer_free(&w);
        free(sink.data);
    }
}

static void integers_have_all_their_digits(void **state)
{
    (void)state;
    char text[QP_U64_TEXT], expected[32];
    for (uint64_t power = 1, last = 0; power > last; last = power, power *= 10) {
        for (int d = -1; d <= 1; d++) {
            const uint64_t value = power + (uint64_t)d;
            int n = snprintf(expected, sizeof expected, "%" PRIu64, value);
            assert_int_equal(qp_format_u64(text, value), n);
            assert_memory_equal(text, expected, (size_t)n);
        }
    }
    assert_int_equal(qp_format_u64(text, UINT64_MAX), 20);
    assert_memory_equal(text, "18446744073709551615", 20);
    for (uint64_t value = 0; value < 12345; value++) {
        int n = snprintf(expected, sizeof expected, "%" PRIu64, value);
        assert_int_equal(qp_format_u64(text, value), n);
        assert_memory_equal(text, expected, (size_t)n);
    }
}

static void a_cleared_arena_gives_zeroed_memory_again(void **state)
{
    (void)state;
    struct qp_arena arena = {0};
    qp_arena_clear(&arena);
    for (size_t n = 1; n < 300000; n *= 3) { /* also more than a block */
        for (int i = 0; i < 3; i++) {
            unsigned char *bytes = qp_arena_alloc(&arena, n, 1);
            assert_non_null(bytes);
            for (size_t k = 0; k < n; k++)
                assert_int_equal(bytes[k], 0);
            memset(bytes, 0xff, n);
        }
        qp_arena_clear(&arena);
    }
    qp_arena_free(&arena);
    assert_null(arena.blocks);
}

static void strings_of_an_arena_leave_no_gap_and_objects_stay_aligned(void **state)
{
    (void)state;
    struct qp_arena arena = {0};
    for (size_t n = 0; n < 100000; n = n * 3 + 1) { /* also more than a block */
        char *const a = qp_arena_join(&arena, "model", 5, ".");
        char *const b = qp_arena_join(&arena, a, 6, "weight");
        uint64_t *const numbers = qp_arena_alloc(&arena, n, sizeof *numbers);
        assert_non_null(numbers);
        assert_int_equal((uintptr_t)numbers % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(numbers[i], 0);
            numbers[i] = UINT64_MAX;
        }
        assert_string_equal(a, "model.");
        assert_string_equal(b, "model.weight");
        assert_ptr_equal(b, a + 7);
    }
    qp_arena_free(&arena);
}

static void a_text_that_no_memory_holds_is_an_error(void **state)
{
    (void)state;
    struct qp_writer w;
    volatile size_t far_too_much = SIZE_MAX / 2; /* hidden, or the compiler would object */
    qp_writer_init(&w);
    qp_puts(&w, "abc");
    qp_put(&w, "abc", far_too_much);
    qp_puts(&w, "def");
    assert_int_equal(w.n, 3);
    assert_int_equal(qp_writer_finish(&w, "out", NULL), QPLAN_ERR_MEMORY);
    qp_writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_round_trips),
        cmocka_unit_test(malformed_utf8_is_refused),
        cmocka_unit_test(names_are_quoted),
        cmocka_unit_test(long_names_are_cut_behind_80_characters),
        cmocka_unit_test(escaped_paths_fit_any_room),
        cmocka_unit_test(doubles_have_their_shortest_form),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(random_doubles_round_trip_and_are_shortest),
        cmocka_unit_test(only_decimal_numbers_are_read),
        cmocka_unit_test(only_plain_integers_are_read),
        cmocka_unit_test(counted_texts_end_where_they_are_counted),
        cmocka_unit_test(bytes_have_three_digits),
        cmocka_unit_test(integers_have_all_their_digits),
        cmocka_unit_test(a_cleared_arena_gives_zeroed_memory_again),
        cmocka_unit_test(strings_of_an_arena_leave_no_gap_and_objects_stay_aligned),
        cmocka_unit_test(streams_give_the_same_bytes),
        cmocka_unit_test(an_empty_text_is_a_string),
        cmocka_unit_test(the_first_failure_is_remembered),
        cmocka_unit_test(a_text_that_no_memory_holds_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
