/*
 * test_warning.c - a list of warnings: any number of them, each with its own text.
 */
#include "support.h"

#include "lib/base/warning.h"

#define MANY 100

static void any_number_of_warnings_is_kept(void **state)
{
    struct qp_warnings warnings = {0};
    struct qp_arena arena = {0};
    struct qplan_error err;
    char message[32];
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(message, sizeof message, "message %zu", i);
        OK(qp_warn(&warnings, &arena, i % 2 ? "odd" : NULL, "a\nb", message, &err), &err);
        assert_int_equal(warnings.n, i + 1);
    }
    for (size_t i = 0; i < MANY; i++) {
        const struct qp_warning *w = &warnings.list[i];
        (void)snprintf(message, sizeof message, "a\\nb: message %zu", i);
        assert_string_equal(w->text, message);
        assert_string_equal(w->subject, "a\nb");
        assert_string_equal(w->message, message + strlen("a\\nb: "));
        assert_int_equal(w->code != NULL, i % 2);
    }
    qp_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_warnings_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
