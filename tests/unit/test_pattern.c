/*
 * test_pattern.c - names that differ only in numbers are one pattern; nothing else is.
 */
#include "support.h"

#include "lib/base/pattern.h"

struct names {
    const char *const *list;
    const int *kinds; /* NULL: all alike */
};

static const char *name_at(const void *ctx, size_t i, size_t *n)
{
    const struct names *names = ctx;
    *n = strlen(names->list[i]);
    return names->list[i];
}

static bool are_alike(const void *ctx, size_t a, size_t b)
{
    const struct names *names = ctx;
    return !names->kinds || names->kinds[a] == names->kinds[b];
}

/* The patterns of some names, one a line, each with its count. */
static struct text patterns_of(const struct names *names, size_t n)
{
    const struct qp_group_source source = {names, name_at, are_alike};
    struct qp_groups groups;
    struct qp_writer w;
    struct qplan_error err;
    struct text text = {0};
    size_t total = 0;
    OK(qp_groups_make(&groups, &source, n, &err), &err);
    qp_writer_init(&w);
    for (size_t i = 0; i < groups.n; i++) {
        qp_put_pattern(&w, &groups.groups[i], &source);
        qp_printf(&w, " x%zu\n", groups.groups[i].count);
        total += groups.groups[i].count;
    }
    assert_int_equal(total, n);
    for (size_t i = 0; i < n; i++)
        assert_true(groups.of[i] < groups.n && groups.groups[groups.of[i]].first <= i);
    OK(qp_writer_finish(&w, "patterns", &err), &err);
    (void)text_add(&text, w.data ? w.data : "", w.n);
    qp_writer_free(&w);
    qp_groups_free(&groups);
    return text;
}

static void assert_patterns(const char *const *list, const int *kinds, size_t n,
                            const char *expected)
{
    const struct names names = {list, kinds};
    struct text text = patterns_of(&names, n);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

static void numbers_become_ranges(void **state)
{
    static const char *const list[] = {"l.0.w", "l.1.w", "l.10.w", "l.9.w", "norm", "l.1.b"};
    (void)state;
    assert_patterns(list, NULL, COUNT(list), "l.{0..10}.w x4\nnorm x1\nl.1.b x1\n");
}

static void each_number_has_its_own_range(void **state)
{
    static const char *const list[] = {"a.3.e.7.w2", "a.3.e.9.w2", "a.3.e.8.w2"};
    (void)state;
    assert_patterns(list, NULL, COUNT(list), "a.3.e.{7..9}.w2 x3\n");
}

static void tensors_that_are_not_alike_stay_apart(void **state)
{
    static const char *const list[] = {"l.0", "l.1", "l.2", "l.3"};
    static const int kinds[] = {1, 2, 1, 2};
    (void)state;
    assert_patterns(list, kinds, COUNT(list), "l.{0..2} x2\nl.{1..3} x2\n");
}

static void a_single_name_is_printed_as_it_is(void **state)
{
    static const char *const list[] = {"model.layers.12.w"}, *const empty[] = {""};
    (void)state;
    assert_patterns(list, NULL, 1, "model.layers.12.w x1\n");
    assert_patterns(empty, NULL, 1, "'' x1\n");
    assert_patterns(list, NULL, 0, "");
}

/* A leading zero or ten digits are text: another name with a number there is another line. */
static void what_is_no_plain_number_is_text(void **state)
{
    static const char *const list[] = {"v01",         "v02",        "v1", "v2", "h1234567890",
                                       "h1234567891", "h123456789", "0",  "00"};
    (void)state;
    assert_patterns(list, NULL, COUNT(list),
                    "v01 x1\nv02 x1\nv{1..2} x2\nh1234567890 x1\nh1234567891 x1\nh123456789 x1\n"
                    "0 x1\n00 x1\n");
}

static void only_the_first_numbers_are_followed(void **state)
{
    static const char *const list[] = {"1.1.1.1.1", "2.1.1.1.1", "1.1.1.2.1", "1.1.1.1.2"};
    (void)state;
    assert_patterns(list, NULL, COUNT(list), "{1..2}.1.1.{1..2}.1 x3\n1.1.1.1.2 x1\n");
}

static void names_are_escaped(void **state)
{
    static const char *const list[] = {"\x1b[3J", "\xc3\xa9\xe2\x80\xae\x31"};
    const struct names names = {list, NULL};
    (void)state;
    struct text text = patterns_of(&names, COUNT(list));
    assert_null(strchr(text.data, '\x1b'));
    assert_null(strstr(text.data, "\xe2\x80\xae"));
    assert_non_null(strstr(text.data, "\xc3\xa9")); /* a letter stays a letter */
    text_free(&text);
}

/* Many groups and many items in one group: time must not grow with their product. */
static void many_names_are_grouped_in_little_time(void **state)
{
    enum { N = 100000 };
    char(*list)[16] = malloc(N * sizeof *list);
    const char **pointers = malloc(N * sizeof *pointers);
    (void)state;
    assert_true(list && pointers);
    for (size_t i = 0; i < N; i++) {
        if (i % 2)
            (void)snprintf(list[i], sizeof list[i], "l.%zu.w", i);
        else
            (void)snprintf(list[i], sizeof list[i], "%c%c%c%c", (char)('a' + i / 2 % 26),
                           (char)('a' + i / 52 % 26), (char)('a' + i / 1352 % 26),
                           (char)('a' + i / 35152 % 26));
        pointers[i] = list[i];
    }
    const struct names names = {pointers, NULL};
    struct text text = patterns_of(&names, N);
    assert_non_null(strstr(text.data, "l.{1..99999}.w x50000\n"));
    text_free(&text);
    free(pointers);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_become_ranges),
        cmocka_unit_test(each_number_has_its_own_range),
        cmocka_unit_test(tensors_that_are_not_alike_stay_apart),
        cmocka_unit_test(a_single_name_is_printed_as_it_is),
        cmocka_unit_test(what_is_no_plain_number_is_text),
        cmocka_unit_test(only_the_first_numbers_are_followed),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(many_names_are_grouped_in_little_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
