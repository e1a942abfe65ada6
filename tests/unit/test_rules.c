/*
 * test_rules.c - rules: what lines say, which one wins, and what is wrong with a line.
 */
#include "lib/plan/plan.h"
#include "own_folder.h"

static const struct tensor model[] = {
    {"a.weight", "F32", 2, {4, 6}, NULL, 96},
    {"b.weight", "BF16", 2, {3, 8}, NULL, 48},
    {"bias", "F32", 1, {6}, NULL, 24},
    {"empty", "F32", 2, {0, 4}, NULL, 0},
};
enum { A, B, BIAS, EMPTY };

static enum qplan_status plan_with(struct qplan_plan **plan, struct qplan_checkpoint **checkpoint,
                                   struct qplan_plan_options *options, const char *rules,
                                   struct qplan_error *err)
{
    const char *path = in_folder(&folder, "m.safetensors");
    write_checkpoint(path, NULL, model, COUNT(model));
    *checkpoint = open_checkpoint(path);
    options->scheme = scheme_of("int8");
    options->rules = rules;
    options->n_rules = strlen(rules);
    options->rules_name = "r.txt";
    return qplan_plan_make(plan, *checkpoint, options, err);
}

static void assert_decision(const struct qp_plan_tensor *t, const char *scheme, const char *rule,
                            const char *reason)
{
    char text[QPLAN_SCHEME_TEXT] = "keep";
    if (qp_is_quantized(t))
        qplan_scheme_format(t->result.scheme, text);
    assert_string_equal(text, scheme);
    assert_string_equal(t->rule ? t->rule : "none", rule);
    assert_string_equal(t->reason ? t->reason : "none", reason);
}

static void the_first_line_that_matches_decides(void **state)
{
    static const struct {
        const char *rules;
        const char *a[3], *b[3], *bias[3];
    } rows[] = {
        {"a.* int4:g2\n* int8\n",
         {"int4:g2", "rules:a.*", "none"},
         {"int8:c0", "rules:*", "none"},
         {"keep", "rules:*", "rank 1"}},
        {"* int8\na.* int4:g2",
         {"int8:c0", "rules:*", "none"},
         {"int8:c0", "rules:*", "none"},
         {"keep", "rules:*", "rank 1"}},
        {"# comment\n\n \t\r\n\ta.*\tkeep # why\r\nb* uint8:t calibrate=minmax #\n#end",
         {"keep", "rules:a.*", "rule keep"},
         {"uint8:t", "rules:b*", "none"},
         {"keep", "rules:b*", "rank 1"}},
        {"{a,b}.weight int8:c-1",
         {"int8:c1", "rules:{a,b}.weight", "none"},
         {"int8:c1", "rules:{a,b}.weight", "none"},
         {"keep", "select:all", "rank 1"}},
        {"bias keep\n*.weight keep",
         {"keep", "rules:*.weight", "rule keep"},
         {"keep", "rules:*.weight", "rule keep"},
         {"keep", "rules:bias", "rule keep"}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_plan_options options = {.n_include = 0};
        struct qplan_checkpoint *checkpoint;
        struct qplan_plan *plan;
        struct qplan_error err;
        OK(plan_with(&plan, &checkpoint, &options, rows[i].rules, &err), &err);
        assert_decision(&plan->tensors[A], rows[i].a[0], rows[i].a[1], rows[i].a[2]);
        assert_decision(&plan->tensors[B], rows[i].b[0], rows[i].b[1], rows[i].b[2]);
        assert_decision(&plan->tensors[BIAS], rows[i].bias[0], rows[i].bias[1], rows[i].bias[2]);
        assert_decision(&plan->tensors[EMPTY], "keep", "none", "empty");
        assert_string_equal(qplan_plan_output_name(plan), "m.quantized.safetensors");
        qplan_plan_free(plan);
        qplan_checkpoint_close(checkpoint);
    }
}

static void patterns_come_before_lines_and_lines_before_the_selection(void **state)
{
    const char *exclude[] = {"a.*"}, *include[] = {"b.*"};
    struct qplan_plan_options options = {.exclude = exclude,
                                         .n_exclude = 1,
                                         .include = include,
                                         .n_include = 1,
                                         .select = QPLAN_SELECT_LINEAR};
    struct qplan_checkpoint *checkpoint;
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    OK(plan_with(&plan, &checkpoint, &options, "* int8:t", &err), &err);
    assert_decision(&plan->tensors[A], "keep", "exclude:a.*", "excluded");
    assert_decision(&plan->tensors[B], "int8:t", "rules:*", "none");
    assert_decision(&plan->tensors[BIAS], "keep", "include", "not selected");
    qplan_plan_free(plan);
    qplan_checkpoint_close(checkpoint);
}

static void a_line_that_is_wrong_is_refused_with_its_number(void **state)
{
    static const struct {
        const char *rules, *message;
    } rows[] = {
        {"*", "line 1: expected a scheme or keep behind the pattern, found the end of the line"},
        {"* # int8", "line 1: expected a scheme or keep behind the pattern, found the end of the "
                     "line"},
        {"\n* in8", "line 2: scheme 'in8': unknown dtype"},
        {"[a int8", "line 1: pattern '[a': bad class"},
        {"* int8 minmax", "line 1: expected calibrate=METHOD, found 'minmax'"},
        {"* int8 calibrate=", "line 1: calibrate: expected minmax, mse[:fast], "},
        {"* int8 calibrate=minmax#", "line 1: calibrate: expected minmax, mse[:fast], "},
        {"* keep calibrate=minmax", "line 1: expected the end of the line behind keep, found"},
        {"* int8 calibrate=minmax x", "line 1: expected the end of the line, found 'x'"},
        {"* int8\n\x01", "line 2: a control character (at byte 7)"},
        {"* int8\r \n", "line 1: a control character (at byte 6)"},
        {"* int8 # \xff", "line 1: not UTF-8 (at byte 9)"},
        {"* keep\nc* keep", "line 2: pattern 'c*' matches no tensor"},
        {"b* int8\nbias int8\n* keep", "line 2: pattern 'bias' matches no tensor that can be"},
        {"a.* int8", "no line matches: 'b.weight' [3,8]"},
        {"", "no line matches: 'a.weight' [4,6], 'b.weight' [3,8]"},
        {"* int8:c2", "axis 2 does not exist in: 'a.weight'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_plan_options options = {.n_include = 0};
        struct qplan_checkpoint *checkpoint;
        struct qplan_plan *plan;
        struct qplan_error err;
        const enum qplan_status status =
            plan_with(&plan, &checkpoint, &options, rows[i].rules, &err);
        assert_int_equal(status, QPLAN_ERR_INVALID);
        if (strncmp(err.message, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("expected \"%s\", found \"%s\"", rows[i].message, err.message);
        if (!strstr(err.message, "axis"))
            assert_string_equal(err.subject, "r.txt");
        assert_null(plan);
        qplan_checkpoint_close(checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_that_matches_decides),
        cmocka_unit_test(patterns_come_before_lines_and_lines_before_the_selection),
        cmocka_unit_test(a_line_that_is_wrong_is_refused_with_its_number),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
