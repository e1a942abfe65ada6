/*
 * test_glob.c - patterns over names: what matches, what is refused, and that no pattern is slow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "lib/base/glob.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool matches(const char *pattern, const char *name)
{
    struct qplan_error err;
    if (qp_glob_check(pattern, &err) != QPLAN_OK)
        fail_msg("%s: %s", pattern, err.message);
    return qp_glob_match(pattern, name, strlen(name));
}

struct row {
    const char *pattern, *name;
    bool match;
};

static const struct row rows[] = {
    {"", "", true},
    {"", "a", false},
    {"a", "", false},
    {"a.b", "a.b", true},
    {"a.b", "axb", false},
    {"a", "ab", false},
    {"b", "ab", false},
    /* stars */
    {"*", "", true},
    {"*", "a.b.c", true},
    {"*.weight", "model.layers.0.weight", true},
    {"*.weight", "model.layers.0.weight.x", false},
    {"model.*", "model.layers.0", true},
    {"model.*", "model", false},
    {"*a*b*", "xxaxxbxx", true},
    {"*a*b*", "xxbxxaxx", false},
    {"a**b", "ab", true},
    {"a*ab", "aab", true},
    {"a*ab", "ab", false},
    {"*.0.*", "layers.10.0.w", true},
    {"*.0.*", "layers.10.w", false},
    /* one byte */
    {"?", "a", true},
    {"?", "", false},
    {"?", "ab", false},
    {"a?c", "abc", true},
    {"??", "\xc3\xa4", true},
    {"?", "\xc3\xa4", false},
    /* classes */
    {"[abc]", "b", true},
    {"[abc]", "d", false},
    {"[a-c]x", "bx", true},
    {"[a-c]", "d", false},
    {"[a-cx-z]", "y", true},
    {"[!abc]", "d", true},
    {"[!abc]", "a", false},
    {"[!a-c]", "b", false},
    {"[a-]", "-", true},
    {"[-a]", "-", true},
    {"[a-]", "b", false},
    {"[\\]]", "]", true},
    {"[a\\-z]", "-", true},
    {"[a\\-z]", "b", false},
    {"[!!]", "!", false},
    {"[^a]", "^", true},
    {"[*]", "*", true},
    {"[*]", "x", false},
    {"[{,}]", ",", true},
    {"layers.[0-9].w", "layers.7.w", true},
    {"layers.[0-9].w", "layers.17.w", false},
    {"[\x80-\xff]", "\xc3", true},
    {"[\x80-\xff]", "a", false},
    /* alternatives */
    {"{a,b}", "a", true},
    {"{a,b}", "b", true},
    {"{a,b}", "a,b", false},
    {"{a,b}", "", false},
    {"{a}", "a", true},
    {"{}", "", true},
    {"{}", "a", false},
    {"x{}y", "xy", true},
    {"x{,b}y", "xy", true},
    {"x{,b}y", "xby", true},
    {"x{a,}y", "xy", true},
    {"{q,k,v}_proj", "k_proj", true},
    {"{q,k,v}_proj", "o_proj", false},
    {"*.{q,k}_proj.{weight,bias}", "model.k_proj.bias", true},
    {"*.{q,k}_proj.{weight,bias}", "model.k_proj.scale", false},
    {"{a,ab}{c,bc}", "abc", true},
    {"{a,ab}{c,bc}", "abbc", true},
    {"{a,ab}{c,bc}", "ac", true},
    {"{a,ab}{c,bc}", "a", false},
    {"{*.weight,bias}", "x.weight", true},
    {"{*.weight,bias}", "bias", true},
    {"{*.weight,bias}", "x.bias", false},
    {"{a?,[xy]z}", "ab", true},
    {"{a?,[xy]z}", "yz", true},
    {"{a?,[xy]z}", "zz", false},
    {"{[,],b}", ",", true},
    {"{[,],b}", "b", true},
    {"{a\\,b,c}", "a,b", true},
    {"{a\\,b,c}", "b", false},
    {"{a*,b}c", "aXXc", true},
    {"{a*,b}c", "bXXc", false},
    {"a,b", "a,b", true},
    {"a,{b,c}", "a,c", true},
    {"{b,c},a", "b,a", true},
    /* escapes */
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"\\?\\[\\{\\}\\\\", "?[{}\\", true},
    {"a\\b", "ab", true},
    {"]", "]", true},
};

static void test_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (matches(rows[i].pattern, rows[i].name) != rows[i].match)
            fail_msg("'%s' on '%s': expected %d", rows[i].pattern, rows[i].name, rows[i].match);
    }
}

/* Names are bytes with a length: a NUL is one of them. */
static void test_name_with_nul(void **state)
{
    (void)state;
    assert_true(qp_glob_match("a?b", "a\0b", 3));
    assert_true(qp_glob_match("a*", "a\0b", 3));
    assert_false(qp_glob_match("a", "a\0b", 3));
    assert_true(qp_glob_match("[!x]", "\0", 1));
}

static void test_refused_patterns(void **state)
{
    static const struct {
        const char *pattern, *message;
    } bad[] = {
        {"[", "bad class"},
        {"a[bc", "(at character 2)"},
        {"[]", "bad class"},
        {"[!]", "bad class"},
        {"[z-a]", "bad class"},
        {"[a-", "bad class"},
        {"[a\\", "bad class"},
        {"a{b", "'{' without '}' (at character 2)"},
        {"{a,b}{", "'{' without '}' (at character 6)"},
        {"}", "'}' without '{' (at character 1)"},
        {"{a}}", "'}' without '{' (at character 4)"},
        {"{a,{b,c}}", "braces inside braces (at character 4)"},
        {"a\\", "nothing to escape"},
        {"{a,b\\}", "'{' without '}'"},
        {"{a,[}]", "'{' without '}'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct qplan_error err;
        assert_int_equal(qp_glob_check(bad[i].pattern, &err), QPLAN_ERR_USAGE);
        if (!strstr(err.message, bad[i].message))
            fail_msg("%s: %s", bad[i].pattern, err.message);
        assert_non_null(strstr(err.subject, "pattern '"));
    }
}

static void test_longest_pattern(void **state)
{
    char pattern[QP_GLOB_MAX + 1];
    (void)state;
    memset(pattern, 'a', sizeof pattern);
    pattern[QP_GLOB_MAX] = '\0';
    assert_int_equal(qp_glob_check(pattern, NULL), QPLAN_ERR_USAGE);
    pattern[QP_GLOB_MAX - 1] = '\0';
    assert_int_equal(qp_glob_check(pattern, NULL), QPLAN_OK);
    assert_true(qp_glob_match(pattern, pattern, QP_GLOB_MAX - 1));
    assert_false(qp_glob_match(pattern, pattern, QP_GLOB_MAX - 2));
}

/* States in different words of the set: the same patterns, moved by a long prefix. */
static void test_matches_behind_a_prefix(void **state)
{
    (void)state;
    for (size_t n = 55; n < 70; n++) {
        for (size_t i = 0; i < COUNT(rows); i++) {
            char pattern[128] = "", name[128] = "";
            memset(pattern, 'p', n);
            memset(name, 'p', n);
            strcat(pattern, rows[i].pattern);
            strcat(name, rows[i].name);
            assert_int_equal(matches(pattern, name), rows[i].match);
        }
    }
}

/* Patterns that cost exponential time where alternatives and stars are tried one after another. */
static void test_no_pattern_is_slow(void **state)
{
    char stars[QP_GLOB_MAX] = "", braces[QP_GLOB_MAX] = "", name[4096];
    (void)state;
    memset(name, 'a', sizeof name);
    while (strlen(stars) + 8 < sizeof stars)
        strcat(stars, "*a");
    strcat(stars, "b");
    while (strlen(braces) + 16 < sizeof braces)
        strcat(braces, "{a,a*,,aa,?}");
    strcat(braces, "b");
    clock_t begin = clock();
    assert_false(qp_glob_match(stars, name, sizeof name));
    assert_false(qp_glob_match(braces, name, sizeof name));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_name_with_nul),
        cmocka_unit_test(test_refused_patterns),
        cmocka_unit_test(test_longest_pattern),
        cmocka_unit_test(test_matches_behind_a_prefix),
        cmocka_unit_test(test_no_pattern_is_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
