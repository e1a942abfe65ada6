/*
 * test_report_text.c - the report for people: patterns and plain names, the worst five, what stayed
 * and why, the verdict; escaped names.
 */
#include "own_folder.h"
#include "report_cases.h"

#include "lib/plan/plan.h"

#include <errno.h>

static struct text text_of(const struct qplan_report *report, bool every_tensor)
{
    struct text text = {0};
    struct qplan_error err;
    OK(qplan_report_write_text(report, every_tensor, text_add, &text, &err), &err);
    return text;
}

static void assert_has(const struct text *text, const char *words)
{
    if (!strstr(text->data, words))
        fail_msg("expected \"%s\" in:\n%s", words, text->data);
}

static void assert_lacks(const struct text *text, const char *words)
{
    if (strstr(text->data, words))
        fail_msg("expected no \"%s\" in:\n%s", words, text->data);
}

/* Six layers, the errors of layer n growing with n, and another tensor. */
static void write_layers(struct sample samples[7])
{
    static const char *const names[] = {"l.0.w", "l.1.w", "l.2.w", "l.3.w",
                                        "l.4.w", "l.5.w", "other"};
    for (size_t i = 0; i < 7; i++) {
        samples[i] = plain_sample;
        samples[i].name = names[i];
        samples[i].x[2] = 0.5f + 0.03f * (float)i;
    }
    write_native(in_folder(&folder, "q.safetensors"), samples, 7);
    write_source(in_folder(&folder, "s"), samples, 7);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void tensors_that_differ_in_a_number_are_one_line(void **state)
{
    struct sample samples[7];
    struct looked l;
    (void)state;
    write_layers(samples);
    look(&l, in_folder(&folder, "q.safetensors"), NULL, false, NULL);
    struct text text = text_of(l.report, false);
    assert_has(&text, "q.safetensors: quantized by qplan, ");
    assert_has(&text, "\nl.{0..5}.w  6 x [4,3]  F32  int8:c0:asym  bpw 21.3  bound 0.5\n");
    assert_has(&text, "\nother  [4,3]  F32  int8:c0:asym  bpw 21.3  bound 0.5\n");
    assert_has(&text, "\nlargest error bounds:\n  l.0.w  ");
    assert_has(&text,
               "\ntotal: 7 tensors, 7 quantized, 0 kept, 224 B from 336 B  ratio 1.5  ideal 4");
    assert_lacks(&text, "against");
    assert_lacks(&text, "proven");
    assert_lacks(&text, "not quantized");
    text_free(&text);
    text = text_of(l.report, true);
    assert_has(&text, "\nl.0.w  [4,3]");
    assert_has(&text, "\nl.5.w  [4,3]");
    assert_lacks(&text, "{0..5}");
    text_free(&text);
    look_away(&l);
}

static void a_pattern_shows_the_numbers_of_its_worst_tensor(void **state)
{
    struct sample samples[7];
    struct looked l;
    char line[128];
    (void)state;
    write_layers(samples);
    look(&l, in_folder(&folder, "q.safetensors"), in_folder(&folder, "s"), false, NULL);
    struct text text = text_of(l.report, false);
    assert_has(&text, "\nagainst ");
    (void)snprintf(line, sizeof line,
                   "l.{0..5}.w  6 x [4,3]  F32  int8:c0:asym  bpw 21.3  bound 0.5  max_abs 0.25  "
                   "sqnr_db %.3g\n",
                   number(&l, "tensors.5.sqnr_db"));
    assert_has(&text, line);
    assert_has(&text, "\nworst by sqnr_db:\n  other  [4,3]");
    assert_has(&text, "\n  l.5.w  [4,3]");
    assert_has(&text, "\n  l.2.w  [4,3]"); /* the fifth */
    assert_lacks(&text, "\n  l.1.w");
    assert_has(&text, "\nerror:  max_abs 0.25  rms ");
    assert_has(&text, "clipped 0  nonfinite 0\nproven: every element is within its bound\n");
    text_free(&text);
    look_away(&l);
}

/* Zeros that decode to something else are the worst; zeros that stay zeros the best. */
static void an_error_without_a_signal_is_listed_first(void **state)
{
    struct sample s[3] = {plain_sample,
                          {.name = "b", .scale = {1, 1, 1, 1}},
                          {.name = "c", .codes = {100}, .scale = {1, 1, 1, 1}}};
    struct looked l;
    (void)state;
    s[0].name = "a";
    write_native(in_folder(&folder, "q.safetensors"), s, COUNT(s));
    write_source(in_folder(&folder, "s"), s, COUNT(s));
    look(&l, in_folder(&folder, "q.safetensors"), in_folder(&folder, "s"), false, NULL);
    struct text text = text_of(l.report, false);
    const char *worst = strstr(text.data, "worst by sqnr_db:\n");
    assert_non_null(worst);
    const char *a = strstr(worst, "\n  a  "), *b = strstr(worst, "\n  b  ");
    const char *c = strstr(worst, "\n  c  ");
    assert_true(a && b && c && c < a && a < b);
    text_free(&text);
    look_away(&l);
}

static void what_is_not_proven_says_so(void **state)
{
    struct sample samples[7];
    struct looked l;
    (void)state;
    write_layers(samples);
    samples[1].codes[2] = 50;
    write_native(in_folder(&folder, "q.safetensors"), samples, 7);
    look(&l, in_folder(&folder, "q.safetensors"), in_folder(&folder, "s"), false, NULL);
    OK(l.status, &l.err); /* only verify and gates make it an error */
    struct text text = text_of(l.report, true);
    assert_has(&text, "\nNOT PROVEN\n");
    const char *line = strstr(text.data, "\nl.1.w"), *next = strstr(text.data, "\nl.2.w");
    const char *mark = strstr(text.data, "  NOT PROVEN\n");
    assert_true(line && next && mark > line && mark < next);
    text_free(&text);
    look_away(&l);
}

/* ---- What stayed ----------------------------------------------------------------------------- */

/* A report of quantize, which knows why tensors were kept. */
struct written {
    struct qplan_checkpoint *source;
    struct qplan_plan *plan;
    struct qplan_report *report;
};

static struct written plan(const struct tensor *tensors, size_t n,
                           struct qplan_plan_options *options)
{
    struct written w = {.report = NULL};
    struct qplan_error err;
    write_checkpoint(in_folder(&folder, "in"), NULL, tensors, n);
    options->scheme = scheme_of("int8");
    w.source = open_checkpoint(in_folder(&folder, "in"));
    OK(qplan_plan_make(&w.plan, w.source, options, &err), &err);
    return w;
}

static void run_plan(struct written *w)
{
    struct qplan_error err;
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "out")};
    const struct qplan_run run = {.force = true};
    OK(qplan_quantize(&w->report, w->plan, &how, &run, &err), &err);
}

static struct written quantize(const struct tensor *tensors, size_t n,
                               struct qplan_plan_options *options)
{
    struct written w = plan(tensors, n, options);
    run_plan(&w);
    return w;
}

static void free_written(struct written *w)
{
    qplan_report_free(w->report);
    qplan_plan_free(w->plan);
    qplan_checkpoint_close(w->source);
}

static void what_stayed_is_listed_with_reasons_and_sizes(void **state)
{
    static const struct tensor tensors[] = {
        {"big", "F32", 1, {3000}, NULL, 12000}, {"w", "F32", 2, {2, 2}, NULL, 16},
        {"x", "F32", 2, {2, 2}, NULL, 16},      {"n.0", "F16", 1, {2}, NULL, 4},
        {"n.1", "F16", 1, {2}, NULL, 4},        {"ids", "I64", 1, {2}, NULL, 16}};
    const char *exclude[] = {"x"};
    struct qplan_plan_options options = {.exclude = exclude, .n_exclude = 1};
    (void)state;
    struct written w = quantize(tensors, COUNT(tensors), &options);
    struct text text = text_of(w.report, false);
    assert_has(&text, "\nbig  [3000]  F32  kept: rank 1\n");
    assert_has(&text, "\nn.{0..1}  2 x [2]  F16  kept: rank 1\n");
    assert_has(&text, "\nx  [2,2]  F32  kept: excluded\n");
    assert_has(&text,
               "\nnot quantized:\n  rank 1: 4 tensors, 12.0 kB\n  excluded: 1 tensor, 16 B\n");
    assert_has(&text, "\n  largest: big 12.0 kB, ");
    text_free(&text);
    free_written(&w);
}

static void kept_tensors_share_a_line_only_with_one_reason(void **state)
{
    static const struct tensor tensors[] = {{"l.0.w", "F32", 2, {2, 2}, NULL, 16},
                                            {"l.1.w", "F32", 2, {2, 2}, NULL, 16},
                                            {"q", "F32", 2, {2, 2}, NULL, 16}};
    const char *exclude[] = {"l.0.*"}, *include[] = {"q"};
    struct qplan_plan_options options = {
        .exclude = exclude, .n_exclude = 1, .include = include, .n_include = 1};
    (void)state;
    struct written w = quantize(tensors, COUNT(tensors), &options);
    struct text text = text_of(w.report, false);
    assert_has(&text, "\nl.0.w  [2,2]  F32  kept: excluded\n");
    assert_has(&text, "\nl.1.w  [2,2]  F32  kept: not selected\n");
    text_free(&text);
    free_written(&w);
}

#define MANY 40

/* Layouts have reasons of their own for keeping a tensor: a report has room for all. */
static void any_number_of_reasons_is_listed(void **state)
{
    char names[MANY][16], reasons[MANY][32];
    struct tensor tensors[MANY + 1] = {{"w", "F32", 2, {2, 2}, NULL, 16}};
    struct qplan_plan_options options = {.n_include = 0};
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "b%02zu", i);
        (void)snprintf(reasons[i], sizeof reasons[i], "reason %zu", i);
        tensors[i + 1] = (struct tensor){names[i], "F32", 1, {2}, NULL, 8};
    }
    struct written w = plan(tensors, MANY + 1, &options);
    for (size_t i = 0; i < MANY; i++) /* in name order, as the tensors of the plan are */
        w.plan->tensors[i].reason = reasons[i];
    run_plan(&w);
    struct text text = text_of(w.report, false);
    for (size_t i = 0; i < MANY; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "\n  reason %zu: 1 tensor, 8 B\n", i);
        assert_has(&text, line);
    }
    text_free(&text);
    free_written(&w);
}

static void warnings_of_the_plan_are_in_the_report(void **state)
{
    static const struct tensor bias = {"b", "F32", 1, {2}, NULL, 8};
    struct qplan_plan_options options = {.n_include = 0};
    struct text json = {0};
    struct qplan_error err;
    (void)state;
    struct written w = quantize(&bias, 1, &options);
    assert_int_equal(qplan_report_warning_count(w.report), 1);
    assert_non_null(strstr(qplan_report_warning(w.report, 0), "no tensor is quantized"));
    assert_null(qplan_report_warning(w.report, 1));
    OK(qplan_report_write_json(w.report, text_add, &json, &err), &err);
    assert_has(&json, "\"warnings\":[{\"code\":\"nothing-quantized\",\"subject\":\"");
    text_free(&json);
    free_written(&w);
}

/* ---- Names and writers ----------------------------------------------------------------------- */

static void names_are_escaped_for_the_terminal(void **state)
{
    static const struct tensor tensors[] = {{"evil\\u001b[2J", "F32", 1, {2}, NULL, 8},
                                            {"", "F32", 1, {2}, NULL, 8},
                                            {"\xe2\x80\xae"
                                             "bidi",
                                             "F32",
                                             1,
                                             {2},
                                             NULL,
                                             8}};
    struct looked l;
    (void)state;
    write_checkpoint(in_folder(&folder, "evil"), NULL, tensors, COUNT(tensors));
    look(&l, in_folder(&folder, "evil"), NULL, false, NULL);
    for (int every = 0; every < 2; every++) {
        struct text text = text_of(l.report, every);
        assert_lacks(&text, "\x1b");
        assert_lacks(&text, "\xe2\x80\xae");
        assert_has(&text, "\n''  ");
        assert_has(&text, "bidi  ");
        text_free(&text);
    }
    look_away(&l);
}

static int refuse_bytes(void *ctx, const void *bytes, size_t n)
{
    (void)ctx;
    (void)bytes;
    (void)n;
    return EPIPE;
}

static void a_writer_that_fails_is_reported(void **state)
{
    struct sample samples[7];
    struct looked l;
    struct qplan_error err;
    (void)state;
    write_layers(samples);
    look(&l, in_folder(&folder, "q.safetensors"), NULL, false, NULL);
    assert_int_equal(qplan_report_write_json(l.report, refuse_bytes, NULL, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EPIPE);
    assert_int_equal(qplan_report_write_text(l.report, false, refuse_bytes, NULL, &err),
                     QPLAN_ERR_IO);
    assert_int_equal(qplan_report_write_text(l.report, true, refuse_bytes, NULL, NULL),
                     QPLAN_ERR_IO);
    look_away(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_that_differ_in_a_number_are_one_line),
        cmocka_unit_test(a_pattern_shows_the_numbers_of_its_worst_tensor),
        cmocka_unit_test(an_error_without_a_signal_is_listed_first),
        cmocka_unit_test(what_is_not_proven_says_so),
        cmocka_unit_test(what_stayed_is_listed_with_reasons_and_sizes),
        cmocka_unit_test(kept_tensors_share_a_line_only_with_one_reason),
        cmocka_unit_test(any_number_of_reasons_is_listed),
        cmocka_unit_test(warnings_of_the_plan_are_in_the_report),
        cmocka_unit_test(names_are_escaped_for_the_terminal),
        cmocka_unit_test(a_writer_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
