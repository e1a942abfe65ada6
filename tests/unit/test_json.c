/*
 * test_json.c - the strict reader, token by token and fault by fault, and the writer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Positions in these tests are counted from here, as behind the length field of a file. */
#define BASE 1000

/* ---- Reading --------------------------------------------------------------------------------- */

/* A copy of exactly n bytes, so that a read past the end is seen. */
static char *copy_of(const char *text, size_t n)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    return copy;
}

/* One token as text: brackets, k:KEY, s:STRING, n:NUMBER, words, and $ for the end. */
static void show_token(struct qp_writer *w, const struct qp_json_token *token)
{
    static const char *const shown[] = {
        [QP_JSON_END] = "$",       [QP_JSON_OBJECT] = "{",    [QP_JSON_OBJECT_END] = "}",
        [QP_JSON_ARRAY] = "[",     [QP_JSON_ARRAY_END] = "]", [QP_JSON_KEY] = "k:",
        [QP_JSON_STRING] = "s:",   [QP_JSON_NUMBER] = "n:",   [QP_JSON_TRUE] = "true",
        [QP_JSON_FALSE] = "false", [QP_JSON_NULL] = "null",
    };
    qp_puts(w, w->n ? " " : "");
    qp_puts(w, shown[token->type]);
    if (token->type == QP_JSON_KEY || token->type == QP_JSON_STRING) {
        assert_int_equal(token->text[token->n], '\0');
        qp_put(w, token->text, token->n);
    }
    if (token->type == QP_JSON_NUMBER)
        qp_put(w, token->text, token->n);
}

/* Reads all of a text; w gets the tokens up to the end or the fault. */
static enum qplan_status read_all(const char *text, size_t n, unsigned max_depth,
                                  struct qp_writer *w, struct qplan_error *err)
{
    char *copy = copy_of(text, n);
    struct qp_json json;
    struct qp_json_token token = {.type = QP_JSON_NULL};
    enum qplan_status status = QPLAN_OK;
    qp_json_init(&json, copy, n, BASE, max_depth, "file");
    while (status == QPLAN_OK && token.type != QP_JSON_END) {
        status = qp_json_next(&json, &token, err);
        if (status == QPLAN_OK)
            show_token(w, &token);
    }
    free(copy);
    return status;
}

static void expect_tokens(const char *text, size_t n, const char *tokens)
{
    struct qp_writer w;
    struct qplan_error err;
    qp_writer_init(&w);
    if (read_all(text, n, 8, &w, &err) != QPLAN_OK)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(qp_writer_finish(&w, "", NULL), QPLAN_OK);
    assert_string_equal(w.data, tokens);
    qp_writer_free(&w);
}

static void values_become_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tokens;
    } rows[] = {
        {"{}", "{ } $"},
        {"[]", "[ ] $"},
        {" \t\r\n{ \t\r\n} \t\r\n", "{ } $"},
        {"null", "null $"},
        {"[true,false,null]", "[ true false null ] $"},
        {"\"\"", "s: $"},
        {"{\"a\":1,\"b\":[2,{\"c\":\"d\"}],\"e\":{}}",
         "{ k:a n:1 k:b [ n:2 { k:c s:d } ] k:e { } } $"},
        {"{ \"a\" : 1 , \"b\" : [ ] }", "{ k:a n:1 k:b [ ] } $"},
        {"[[],[[]],{}]", "[ [ ] [ [ ] ] { } ] $"},
        {"{\"a\":1,\"a\":2}", "{ k:a n:1 k:a n:2 } $"}, /* the caller finds duplicates */
        {"0", "n:0 $"},
        {"-0", "n:-0 $"},
        {"[0,-1,10,2.0,0.5,1e5,1E+5,1.25e-7,123456789012345678901234567890]",
         "[ n:0 n:-1 n:10 n:2.0 n:0.5 n:1e5 n:1E+5 n:1.25e-7 n:123456789012345678901234567890 ] $"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_tokens(rows[i].text, strlen(rows[i].text), rows[i].tokens);
}

struct string_row {
    const char *json, *text;
    size_t n;
};

#define STRING(json, text)                                                                         \
    {                                                                                              \
        "\"" json "\"", text, sizeof(text) - 1                                                     \
    }

static void strings_are_decoded(void **state)
{
    (void)state;
    static const struct string_row rows[] = {
        STRING("", ""),
        STRING("abc", "abc"),
        STRING("\x7f", "\x7f"),
        STRING("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"),
        STRING("\\u0041\\u00e9\\u20AC", "A\xc3\xa9\xe2\x82\xac"),
        STRING("a\\u0000b", "a\0b"),
        STRING("\\u0000", "\0"),
        STRING("\\u007f\\u0080\\u07ff\\u0800\\uffff",
               "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"),
        STRING("\\ud7ff\\ue000", "\xed\x9f\xbf\xee\x80\x80"),
        STRING("\\ud800\\udc00", "\xf0\x90\x80\x80"),
        STRING("\\uD83D\\uDE00", "\xf0\x9f\x98\x80"),
        STRING("\\udbff\\udfff", "\xf4\x8f\xbf\xbf"),
        STRING("\\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 tail",
               "\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 tail"),
        STRING("x\\ty\\tz", "x\ty\tz"),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t n = strlen(rows[i].json);
        char *copy = copy_of(rows[i].json, n);
        struct qp_json json;
        struct qp_json_token token;
        qp_json_init(&json, copy, n, BASE, 1, "file");
        assert_int_equal(qp_json_next(&json, &token, NULL), QPLAN_OK);
        assert_int_equal(token.type, QP_JSON_STRING);
        assert_int_equal(token.at, BASE);
        assert_ptr_equal(token.text, copy + 1); /* decoded in place */
        assert_int_equal(token.n, rows[i].n);
        assert_memory_equal(token.text, rows[i].text, rows[i].n + 1);
        free(copy);
    }
}

static void tokens_know_their_place(void **state)
{
    (void)state;
    static const unsigned places[] = {1, 2, 12, 14, 17, 22, 25, 26, 28};
    char text[] = " {\"\\u0061\": [ 1, -2,  \"x\"]} ";
    struct qp_json json;
    struct qp_json_token token;
    qp_json_init(&json, text, sizeof text - 1, BASE, 8, "file");
    for (size_t i = 0; i < COUNT(places); i++) {
        assert_int_equal(qp_json_next(&json, &token, NULL), QPLAN_OK);
        assert_int_equal(token.at, BASE + places[i]);
    }
    assert_int_equal(token.type, QP_JSON_END);
}

struct fault {
    const char *text;
    unsigned at;
    const char *part; /* of the message */
};

static const struct fault faults[] = {
    {"", 0, "expected a value, found the end"},
    {"  ", 2, "found the end"},
    {"\xef\xbb\xbf{}", 0, "byte order mark (BOM)"},
    {"\xef\xbb\xbf", 0, "byte order mark (BOM)"},
    {"\xef\xbb", 0, "found 0xef"},
    {"{}x", 2, "found 'x'"},
    {"{} {}", 3, "found '{'"},
    {"{}]", 2, "found ']'"},
    {"1 2", 2, "found '2'"},
    {"{", 1, "expected a key in quotes or '}', found the end"},
    {"[", 1, "expected a value or ']', found the end"},
    {"[1", 2, "expected ',' or ']', found the end"},
    {"[1,", 3, "expected a value, found the end"},
    {"[1,]", 3, "expected a value, found ']'"},
    {"[,1]", 1, "found ','"},
    {"[1 2]", 3, "expected ',' or ']'"},
    {"[1}", 2, "expected ',' or ']', found '}'"},
    {"{\"a\"}", 4, "expected ':', found '}'"},
    {"{\"a\" 1}", 5, "expected ':'"},
    {"{\"a\":}", 5, "expected a value, found '}'"},
    {"{\"a\":1,}", 7, "expected a key in quotes, found '}'"},
    {"{\"a\":1]", 6, "expected ',' or '}', found ']'"},
    {"{\"a\":1 \"b\":2}", 7, "expected ',' or '}'"},
    {"{1:2}", 1, "expected a key in quotes or '}', found '1'"},
    {"{a:1}", 1, "found 'a'"},
    {"{'a':1}", 1, "found 0x27"},
    {"/* c */{}", 0, "found '/'"},
    {"[1] // c", 4, "found '/'"},
    {"\f{}", 0, "found 0x0c"},
    {"\xc2\xa0{}", 0, "found 0xc2"}, /* a blank, but none of JSON's */
    {"nul", 3, "expected null, found the end"},
    {"nulL", 3, "expected null"},
    {"True", 0, "expected a value"},
    {"truee", 4, "found 'e'"},
    {"NaN", 0, "expected a value"},
    {"-Infinity", 1, "expected a digit"},
    {"+1", 0, "expected a value"},
    {".5", 0, "expected a value"},
    {"-", 1, "expected a digit, found the end"},
    {"-a", 1, "expected a digit"},
    {"01", 1, "found '1'"},
    {"-01", 2, "found '1'"},
    {"0x10", 1, "found 'x'"},
    {"1.", 2, "expected a digit"},
    {"1.e5", 2, "expected a digit"},
    {"1e", 2, "expected a digit"},
    {"1e+", 3, "expected a digit"},
    {"1e5.5", 3, "found '.'"},
    {"\"abc", 4, "the string from byte 1000 is not closed"},
    {"\"", 1, "is not closed"},
    {"\"a\\\"", 4, "is not closed"},
    {"\"a\\", 2, "escape"},
    {"\"a\\x41\"", 2, "escape"},
    {"\"a\\'\"", 2, "escape"},
    {"\"a\\u12G4\"", 2, "hex digits"},
    {"\"a\\u12", 2, "hex digits"},
    {"\"a\\u123", 2, "hex digits"},
    {"\"a\\u\x11\x11\x11\x11\"", 2, "hex digits"},
    {"\"a\\U0041\"", 2, "escape"},
    {"\"\\ud800\"", 1, "surrogate"},
    {"\"\\udc00\"", 1, "surrogate"},
    {"\"\\udfff\\ud800\"", 1, "surrogate"},
    {"\"\\ud800\\ud800\"", 1, "surrogate"},
    {"\"\\ud800\\u0041\"", 1, "surrogate"},
    {"\"\\ud800\\n\"", 1, "surrogate"},
    {"\"\\ud800xudc00\"", 1, "surrogate"},
    {"\"\\ud800\\udc0\"", 1, "surrogate"},
    {"\"\\ud800\\udc0", 1, "surrogate"},
    {"\"a\nb\"", 2, "control character"},
    {"\"\x1f\"", 1, "control character"},
    {"\"a\xff\"", 2, "UTF-8"},
    {"\"a\x80\"", 2, "UTF-8"},
    {"\"\xc0\x80\"", 1, "UTF-8"},
    {"\"\xe0\x80\x80\"", 1, "UTF-8"},
    {"\"\xed\xa0\x80\"", 1, "UTF-8"},
    {"\"\xf4\x90\x80\x80\"", 1, "UTF-8"},
    {"\"\xe2\x82\"", 1, "UTF-8"},
    {"\"\xe2\x82", 1, "UTF-8"},
    {"{\"\xff\":1}", 2, "UTF-8"},
};

static void faults_name_their_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(faults); i++) {
        struct qp_writer w;
        struct qplan_error err;
        qp_writer_init(&w);
        assert_int_equal(read_all(faults[i].text, strlen(faults[i].text), 8, &w, &err),
                         QPLAN_ERR_INVALID);
        if (err.offset != BASE + faults[i].at || !strstr(err.message, faults[i].part))
            fail_msg("%s: offset %d: %s", faults[i].text, (int)err.offset - BASE, err.message);
        assert_string_equal(err.subject, "file");
        assert_int_equal(read_all(faults[i].text, strlen(faults[i].text), 8, &w, NULL),
                         QPLAN_ERR_INVALID);
        qp_writer_free(&w);
    }
}

static void nul_bytes_are_faults(void **state)
{
    (void)state;
    static const char behind[] = "{}\0", inside[] = "\"a\0b\"";
    struct qp_writer w;
    struct qplan_error err;
    qp_writer_init(&w);
    assert_int_equal(read_all(behind, sizeof behind - 1, 8, &w, &err), QPLAN_ERR_INVALID);
    assert_int_equal(err.offset, BASE + 2);
    assert_non_null(strstr(err.message, "found 0x00"));
    assert_int_equal(read_all(inside, sizeof inside - 1, 8, &w, &err), QPLAN_ERR_INVALID);
    assert_int_equal(err.offset, BASE + 2);
    qp_writer_free(&w);
}

/* No proper prefix of a text is one, and the fault lies inside it or at its end. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\\u00e9\\ud83d\\ude00\xe2\x82\xac\":[1,-2.5e+3,true,null,"
                               "{\"b\":\"\\n\"},[]],\"c\":false}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        struct qp_writer w;
        struct qplan_error err;
        qp_writer_init(&w);
        assert_int_equal(read_all(text, n, 8, &w, &err), QPLAN_ERR_INVALID);
        assert_true(err.offset >= BASE && err.offset <= BASE + n);
        qp_writer_free(&w);
    }
    struct qp_writer w;
    qp_writer_init(&w);
    assert_int_equal(read_all(text, sizeof text - 1, 8, &w, NULL), QPLAN_OK);
    qp_writer_free(&w);
}

/* depth opening brackets, then as many closing ones. */
static char *nested(size_t depth)
{
    char *text = malloc(2 * depth + 1);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    text[2 * depth] = '\0';
    return text;
}

static void depth_has_a_limit(void **state)
{
    (void)state;
    static const unsigned limits[] = {1, 7, 8, 63, QP_JSON_MAX_DEPTH};
    for (size_t i = 0; i < COUNT(limits); i++) {
        for (size_t depth = limits[i] - 1; depth <= limits[i] + 1; depth++) {
            struct qp_writer w;
            struct qplan_error err;
            char *text = depth ? nested(depth) : strdup("1");
            bool fits = depth <= limits[i];
            qp_writer_init(&w);
            assert_int_equal(read_all(text, strlen(text), limits[i], &w, &err),
                             fits ? QPLAN_OK : QPLAN_ERR_INVALID);
            if (!fits) {
                assert_int_equal(err.offset, BASE + limits[i]);
                assert_non_null(strstr(err.message, "nested too deep"));
            }
            qp_writer_free(&w);
            free(text);
        }
    }
}

static void mixed_containers_close_rightly_at_the_greatest_depth(void **state)
{
    (void)state;
    char text[600] = "";
    for (int i = 0; i < QP_JSON_MAX_DEPTH / 2; i++)
        strcat(text, "[{\"\":");
    strcat(text, "0");
    for (int i = 0; i < QP_JSON_MAX_DEPTH / 2; i++)
        strcat(text, "}]");
    struct qp_writer w;
    qp_writer_init(&w);
    assert_int_equal(read_all(text, strlen(text), QP_JSON_MAX_DEPTH, &w, NULL), QPLAN_OK);
    text[strlen(text) - 2] = ']';
    assert_int_equal(read_all(text, strlen(text), QP_JSON_MAX_DEPTH, &w, NULL), QPLAN_ERR_INVALID);
    qp_writer_free(&w);
}

static void integers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fits, too_large;
        uint64_t value;
    } rows[] = {
        {"0", true, false, 0},
        {"9", true, false, 9},
        {"9007199254740993", true, false, 9007199254740993},
        {"9223372036854775806", true, false, INT64_MAX - 1},
        {"9223372036854775807", true, false, INT64_MAX},
        {"9223372036854775808", false, true, 0},
        {"18446744073709551615", false, true, 0},
        {"18446744073709551616", false, true, 0},
        {"18446744073709551618", false, true, 0},
        {"9999999999999999999999999999999999999999", false, true, 0},
        {"-0", false, false, 0},
        {"-1", false, false, 0},
        {"2.0", false, false, 0},
        {"2e0", false, false, 0},
        {"99999999999999999999.5", false, false, 0},
        {"\"2\"", false, false, 0},
        {"true", false, false, 0},
        {"null", false, false, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *copy = copy_of(rows[i].text, strlen(rows[i].text));
        struct qp_json json;
        struct qp_json_token token;
        uint64_t value = 42;
        bool too_large = !rows[i].too_large;
        qp_json_init(&json, copy, strlen(rows[i].text), 0, 1, "file");
        assert_int_equal(qp_json_next(&json, &token, NULL), QPLAN_OK);
        assert_int_equal(qp_json_u64(&token, &value, &too_large), rows[i].fits);
        assert_int_equal(too_large, rows[i].too_large);
        assert_true(value == (rows[i].fits ? rows[i].value : 42));
        free(copy);
    }
}

static void types_have_names(void **state)
{
    (void)state;
    assert_string_equal(qp_json_type_name(QP_JSON_OBJECT), "an object");
    assert_string_equal(qp_json_type_name(QP_JSON_NULL), "null");
    for (int i = QP_JSON_END; i <= QP_JSON_NULL; i++)
        assert_non_null(qp_json_type_name((enum qp_json_type)i));
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void expect_text(struct qp_writer *w, const char *text)
{
    assert_int_equal(qp_writer_finish(w, "", NULL), QPLAN_OK);
    assert_string_equal(w->data, text);
    qp_writer_free(w);
}

static void commas_are_set(void **state)
{
    (void)state;
    struct qp_writer w;
    qp_writer_init(&w);
    qp_json_open(&w, '{');
    qp_json_key(&w, "a");
    qp_json_put_u64(&w, 1);
    qp_json_key(&w, "b");
    qp_json_open(&w, '[');
    qp_json_put_bool(&w, true);
    qp_json_put_bool(&w, false);
    qp_json_open(&w, '{');
    qp_json_close(&w, '}');
    qp_json_open(&w, '[');
    qp_json_close(&w, ']');
    qp_json_put_null(&w);
    qp_json_close(&w, ']');
    qp_json_key(&w, "c");
    qp_json_open(&w, '{');
    qp_json_key(&w, "d");
    qp_json_put_str(&w, NULL);
    qp_json_key(&w, "e");
    qp_json_put_str(&w, "x");
    qp_json_close(&w, '}');
    qp_json_close(&w, '}');
    expect_text(&w, "{\"a\":1,\"b\":[true,false,{},[],null],\"c\":{\"d\":null,\"e\":\"x\"}}");
}

static void numbers_are_written_exactly(void **state)
{
    (void)state;
    struct qp_writer w;
    qp_writer_init(&w);
    qp_json_open(&w, '[');
    qp_json_put_u64(&w, 0);
    qp_json_put_u64(&w, 10);
    qp_json_put_u64(&w, UINT64_MAX);
    qp_json_put_f64(&w, 2);
    qp_json_put_f64(&w, -0.1);
    qp_json_put_f64(&w, 1e-7);
    qp_json_put_f64(&w, NAN);
    qp_json_put_f64(&w, INFINITY);
    qp_json_put_f64(&w, -INFINITY);
    qp_json_close(&w, ']');
    expect_text(&w, "[0,10,18446744073709551615,2.0,-0.1,1e-07,null,null,null]");
}

static void only_what_must_be_is_escaped(void **state)
{
    (void)state;
    static const char text[] = "a\"b\\c/\n\x1b\x1f\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\0z";
    struct qp_writer w;
    qp_writer_init(&w);
    qp_json_put_string(&w, text, sizeof text - 1);
    expect_text(&w, "\"a\\\"b\\\\c/\\u000a\\u001b\\u001f\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"
                    "\\u0000z\"");
    qp_writer_init(&w);
    qp_json_put_string(&w, "\xff_\xe2\x82_\xed\xa0\x80", 8);
    expect_text(&w,
                "\"\xef\xbf\xbd_\xef\xbf\xbd\xef\xbf\xbd_\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    qp_writer_init(&w);
    qp_json_open(&w, '{');
    qp_json_key_n(&w, "k\0\"", 3);
    qp_json_put_str(&w, "");
    qp_json_close(&w, '}');
    expect_text(&w, "{\"k\\u0000\\\"\":\"\"}");
}

static void every_string_reads_back(void **state)
{
    (void)state;
    uint32_t from = 0;
    while (from <= 0x10ffff) {
        char text[4 * 1000], *copy;
        size_t n = 0;
        for (uint32_t end = from + 1000; from < end && from <= 0x10ffff; from++) {
            if (from < 0xd800 || from > 0xdfff)
                n += qp_utf8_encode(text + n, from);
        }
        struct qp_writer w;
        struct qp_json json;
        struct qp_json_token token;
        qp_writer_init(&w);
        qp_json_put_string(&w, text, n);
        copy = copy_of(w.data, w.n);
        qp_json_init(&json, copy, w.n, 0, 1, "");
        assert_int_equal(qp_json_next(&json, &token, NULL), QPLAN_OK);
        assert_int_equal(token.n, n);
        assert_memory_equal(token.text, text, n);
        qp_writer_free(&w);
        free(copy);
    }
}

/* As many opening and closing brackets, written. */
static enum qplan_status write_nested(int depth, struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_init(&w);
    for (int i = 0; i < depth; i++)
        qp_json_open(&w, '[');
    for (int i = 0; i < depth; i++)
        qp_json_close(&w, ']');
    enum qplan_status status = qp_writer_finish(&w, "out", err);
    if (status == QPLAN_OK)
        assert_int_equal(w.n, 2 * depth);
    qp_writer_free(&w);
    return status;
}

static void nesting_too_deep_to_write_is_an_error(void **state)
{
    (void)state;
    struct qplan_error err;
    assert_int_equal(write_nested(QP_JSON_MAX_DEPTH - 1, &err), QPLAN_OK);
    assert_int_equal(write_nested(QP_JSON_MAX_DEPTH, &err), QPLAN_ERR_IO);
    assert_int_equal(write_nested(1000, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EOVERFLOW);
}

static void documents_follow_each_other_without_a_comma(void **state)
{
    (void)state;
    struct qp_writer w;
    qp_writer_init(&w);
    for (int i = 0; i < 2; i++) {
        qp_json_open(&w, '[');
        qp_json_put_u64(&w, 1);
        qp_json_close(&w, ']');
        qp_puts(&w, "\n");
    }
    expect_text(&w, "[1]\n[1]\n");
}

/* Byte for byte, what the words of qp_json_plain_run must find. */
static size_t plain_bytes(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && (unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x80 &&
           text[i] != '"' && text[i] != '\\')
        i++;
    return i;
}

static void plain_runs_end_at_the_first_other_byte(void **state)
{
    (void)state;
    char text[24];
    for (unsigned byte = 0; byte < 256; byte++) {
        for (size_t at = 0; at < sizeof text; at++) {
            for (unsigned around = 0x1f; around < 0x81; around++) {
                memset(text, 'a', sizeof text);
                text[at] = (char)byte;
                if (at + 1 < sizeof text) /* a borrow must not reach back */
                    text[at + 1] = (char)around;
                for (size_t n = sizeof text - 9; n <= sizeof text; n++)
                    assert_int_equal(qp_json_plain_run(text, n), plain_bytes(text, n));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_become_tokens),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(tokens_know_their_place),
        cmocka_unit_test(faults_name_their_byte),
        cmocka_unit_test(nul_bytes_are_faults),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(depth_has_a_limit),
        cmocka_unit_test(mixed_containers_close_rightly_at_the_greatest_depth),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(types_have_names),
        cmocka_unit_test(commas_are_set),
        cmocka_unit_test(numbers_are_written_exactly),
        cmocka_unit_test(only_what_must_be_is_escaped),
        cmocka_unit_test(every_string_reads_back),
        cmocka_unit_test(nesting_too_deep_to_write_is_an_error),
        cmocka_unit_test(documents_follow_each_other_without_a_comma),
        cmocka_unit_test(plain_runs_end_at_the_first_other_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
