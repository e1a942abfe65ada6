/*
 * test_report_gates.c - gates on reports: every metric in every scope with every operator, numbers
 * that are none, and what a failure says.
 */
#include "report_cases.h"

#include "lib/report/gate.h"

static struct folder folder;

/* Three tensors whose errors, scales and counts all differ, and a kept one that the file lacks. */
static void write_files(void)
{
    struct sample s[3] = {plain_sample, plain_sample, plain_sample};
    s[0].name = "a.w";
    s[1].name = "b.w";
    s[2].name = "b.x";
    s[1].x[2] = 0.4f;
    for (size_t i = 0; i < N_ELEM; i++)
        s[2].x[i] *= 8;
    for (size_t i = 0; i < ROWS; i++)
        s[2].scale[i] *= 8;
    s[2].x[4] = NAN; /* scale 8 now, codes still 0 */
    s[1].x[8] = 200; /* clipped */
    s[1].codes[8] = 127;
    write_native(in_folder(&folder, "q"), s, COUNT(s));
    struct tensor source[4];
    for (size_t i = 0; i < COUNT(s); i++)
        source[i] = (struct tensor){s[i].name, "F32", 2, {ROWS, COLS}, s[i].x, sizeof s[i].x};
    source[3] = (struct tensor){"gone", "F32", 1, {1}, NULL, 4};
    write_checkpoint(in_folder(&folder, "s"), NULL, source, COUNT(source));
}

/* Importance of the columns of all tensors of the files. */
static void write_importance(void)
{
    static const char *const names[] = {"a.w", "b.w", "b.x"};
    static const float columns[COLS] = {1, 0, 0.25f};
    static char path[1024];
    struct tensor tensors[COUNT(names)];
    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = (struct tensor){names[i], "F32", 1, {COLS}, columns, sizeof columns};
    (void)snprintf(path, sizeof path, "%s", in_folder(&folder, "importance"));
    write_checkpoint(path, NULL, tensors, COUNT(names));
    weighted_by = path;
}

static int make_files(void **state)
{
    (void)state;
    folder_make(&folder);
    write_files();
    write_importance();
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    folder_remove(&folder);
    return 0;
}

static void look_with(struct looked *l, const char *gate)
{
    const char *const gates[] = {gate, NULL};
    look(l, in_folder(&folder, "q"), in_folder(&folder, "s"), false, gates);
}

/* ---- Every metric, scope and operator -------------------------------------------------------- */

/* The value of a metric of a tensor, or of the totals; NAN where the report has null. */
static double value_in(const struct looked *l, const char *where, const char *metric)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s.%s", where, metric);
    return is_null(l, path) ? NAN : number(l, path);
}

static double total_of(const struct looked *l, const char *metric)
{
    if (strcmp(metric, "bytes") == 0)
        return number(l, "file.bytes");
    if (strcmp(metric, "kept_percent") == 0)
        return 100 * number(l, "totals.kept_bytes") / number(l, "totals.data_bytes");
    if (strcmp(metric, "missing") == 0)
        return 1;
    return value_in(l, "totals", metric);
}

#define N_OPS (QP_OP_NE + 1)

/* All operators with one limit: a gate fails if any of the values in its scope does. */
static void check_gate(const char *scope, const char *metric, const double *values, size_t n,
                       double limit)
{
    char texts[N_OPS][128], path[32];
    const char *gates[N_OPS + 1] = {NULL};
    size_t n_failed = 0;
    struct looked l;
    for (unsigned op = 0; op < N_OPS; op++) {
        (void)snprintf(texts[op], sizeof texts[op], "%s%s%s%.17g", scope, metric,
                       qp_gate_op_text((enum qp_gate_op)op), limit);
        gates[op] = texts[op];
    }
    look(&l, in_folder(&folder, "q"), in_folder(&folder, "s"), false, gates);
    for (unsigned op = 0; op < N_OPS; op++) {
        bool expected = false;
        for (size_t i = 0; i < n; i++)
            expected |= isnan(values[i]) || qp_gate_holds((enum qp_gate_op)op, values[i], limit);
        (void)snprintf(path, sizeof path, "gates.%u.failed", op);
        if (cJSON_IsTrue(member(&l, path)) != expected)
            fail_msg("%s: expected %s", texts[op], expected ? "a failure" : "none");
        n_failed += expected;
    }
    assert_int_equal(l.status, n_failed ? QPLAN_ERR_PROOF : QPLAN_OK);
    assert_int_equal(qplan_report_gate_failures(l.report), n_failed);
    assert_true(n_failed == 0 || qplan_report_gate_failure(l.report, n_failed - 1));
    assert_null(qplan_report_gate_failure(l.report, n_failed));
    look_away(&l);
}

static void check_limits(const char *scope, const char *metric, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(values[i]))
            continue;
        check_gate(scope, metric, values, n, values[i]);
        check_gate(scope, metric, values, n, values[i] + 1e-9);
        check_gate(scope, metric, values, n, values[i] - 1e-9);
    }
    check_gate(scope, metric, values, n, -1e9);
    check_gate(scope, metric, values, n, 1e9);
}

static void every_metric_is_judged_in_every_scope_by_every_operator(void **state)
{
    struct looked l;
    (void)state;
    look_with(&l, "bytes<0");
    struct qplan_metric metric, *row = &metric;
    for (size_t i = 0; qplan_metric_at(i, &metric); i++) {
        double total = total_of(&l, row->name), values[3];
        check_limits("total:", row->name, &total, 1);
        if (strcmp(row->scope, "total") == 0)
            check_limits("", row->name, &total, 1);
        if (!row->of_tensors)
            continue;
        values[0] = value_in(&l, "tensors.0", row->name);
        values[1] = value_in(&l, "tensors.1", row->name);
        values[2] = value_in(&l, "tensors.2", row->name);
        check_limits("worst:", row->name, values, 3);
        if (strcmp(row->scope, "worst") == 0)
            check_limits("", row->name, values, 3);
        check_limits("b.?:", row->name, &values[1], 2);
        check_limits("{a,z}.w:", row->name, &values[0], 1);
    }
    look_away(&l);
}

/* ---- What decides ---------------------------------------------------------------------------- */

static void the_worst_tensor_is_named(void **state)
{
    static const char *const gates[] = {"half_step>3",    "half_step<0.4",     "b.w:half_step<9",
                                        "half_step==0.5", "total:half_step>3", NULL};
    struct looked l;
    (void)state;
    look(&l, in_folder(&folder, "q"), NULL, false, gates);
    assert_int_equal(l.status, QPLAN_ERR_PROOF);
    assert_string_equal(string(&l, "gates.0.tensor"), "b.x");
    assert_true(number(&l, "gates.0.value") == 4);
    assert_string_equal(string(&l, "gates.1.tensor"), "a.w"); /* the least, and the first of them */
    assert_false(cJSON_IsTrue(member(&l, "gates.1.failed")));
    assert_string_equal(string(&l, "gates.2.tensor"), "b.w");
    assert_string_equal(string(&l, "gates.3.tensor"), "a.w");
    assert_true(is_null(&l, "gates.4.tensor"));
    assert_int_equal(qplan_report_gate_failures(l.report), 4);
    assert_string_equal(qplan_report_gate_failure(l.report, 0),
                        "b.x: half_step = 4.0, fails if > 3");
    assert_string_equal(qplan_report_gate_failure(l.report, 3),
                        "total: half_step = 4.0, fails if > 3");
    assert_non_null(strstr(l.err.message, "4 of 5 gates failed"));
    look_away(&l);
}

static void counts_and_limits_are_written_as_people_write_them(void **state)
{
    static const char *const gates[] = {" quantized >= 3 ", "b.*:clipped>0.5", "missing!=0", NULL};
    struct looked l;
    (void)state;
    look(&l, in_folder(&folder, "q"), in_folder(&folder, "s"), false, gates);
    assert_string_equal(qplan_report_gate_failure(l.report, 0),
                        "total: quantized = 3, fails if >= 3");
    assert_string_equal(qplan_report_gate_failure(l.report, 1), "b.w: clipped = 1, fails if > 0.5");
    assert_string_equal(qplan_report_gate_failure(l.report, 2),
                        "total: missing = 1, fails if != 0");
    assert_non_null(strstr(l.text.data, "{\"expr\":\"quantized>=3\",\"tensor\":null,\"value\":3,"
                                        "\"limit\":3,\"failed\":true,\"skipped\":[]}"));
    look_away(&l);
}

/* ---- Numbers that are none ------------------------------------------------------------------- */

/* Looks at one sample with one gate. */
static void judge_sample(struct looked *l, const struct sample *s, const char *gate)
{
    const char *const gates[] = {gate, NULL};
    write_native(in_folder(&folder, "q1"), s, 1);
    write_source(in_folder(&folder, "s1"), s, 1);
    look(l, in_folder(&folder, "q1"), in_folder(&folder, "s1"), false, gates);
}

static bool sample_fails(const struct sample *s, const char *gate)
{
    struct looked l;
    judge_sample(&l, s, gate);
    bool fails = l.status == QPLAN_ERR_PROOF;
    look_away(&l);
    return fails;
}

static void no_error_is_an_infinite_signal_to_noise_ratio(void **state)
{
    struct sample s = {.name = "w", .x = {1}, .codes = {1}, .scale = {1, 1, 1, 1}};
    struct looked l;
    (void)state;
    assert_false(sample_fails(&s, "sqnr_db<1e300"));
    assert_true(sample_fails(&s, "sqnr_db>1e300"));
    assert_false(sample_fails(&s, "total:sqnr_db<1e300"));
    judge_sample(&l, &s, "sqnr_db<30");
    assert_true(is_null(&l, "gates.0.value"));
    look_away(&l);
    s.x[0] = s.codes[0] = 0; /* nor any signal */
    assert_false(sample_fails(&s, "sqnr_db<1e300"));
}

/* Row I1. Looks at samples with one gate that has no value: it fails, by these words. */
static void assert_no_value(const struct sample *s, size_t n, const char *gate, const char *words)
{
    const char *const gates[] = {gate, NULL};
    struct looked l;
    write_native(in_folder(&folder, "q1"), s, n);
    write_source(in_folder(&folder, "s1"), s, n);
    look(&l, in_folder(&folder, "q1"), in_folder(&folder, "s1"), false, gates);
    assert_int_equal(l.status, QPLAN_ERR_PROOF);
    assert_string_equal(qplan_report_gate_failure(l.report, 0), words);
    assert_true(is_null(&l, "gates.0.value"));
    assert_true(cJSON_IsTrue(member(&l, "gates.0.failed")));
    look_away(&l);
}

/* Zeros that decode to something else. */
static void an_error_without_a_signal_has_no_ratio(void **state)
{
    struct sample s = {.name = "w", .codes = {100}, .scale = {1, 1, 1, 1}};
    (void)state;
    assert_no_value(&s, 1, "sqnr_db<30", "w: sqnr_db = no value, fails if < 30");
    assert_no_value(&s, 1, "sqnr_db>30", "w: sqnr_db = no value, fails if > 30");
    assert_no_value(&s, 1, "total:sqnr_db<30", "total: sqnr_db = no value, fails if < 30");
}

static void zeros_have_no_direction_and_no_bound(void **state)
{
    struct sample s = {.name = "w", .scale = {1, 1, 1, 1}};
    (void)state;
    assert_no_value(&s, 1, "cosine<0.9", "w: cosine = no value, fails if < 0.9");
    assert_no_value(&s, 1, "cosine>=2", "w: cosine = no value, fails if >= 2");
    assert_no_value(&s, 1, "w:half_step>=0.5", "w: half_step = no value, fails if >= 0.5");
    assert_no_value(&s, 1, "total:bound>0.5", "total: bound = no value, fails if > 0.5");
    s.x[0] = 0.25f; /* a signal, of which nothing is left */
    assert_no_value(&s, 1, "cosine<0.9", "w: cosine = no value, fails if < 0.9");
    assert_true(sample_fails(&s, "sqnr_db<0.1"));
    assert_false(sample_fails(&s, "sqnr_db<0"));
}

/* Whatever the other tensors are worth, and wherever the one without a value stands. */
static void one_tensor_without_a_value_fails_the_worst(void **state)
{
    struct sample s[3] = {plain_sample, plain_sample, plain_sample};
    (void)state;
    for (size_t i = 0; i < COUNT(s); i++) {
        char words[64];
        for (size_t k = 0; k < COUNT(s); k++) {
            s[k] = k == i ? (struct sample){.scale = {1, 1, 1, 1}} : plain_sample;
            s[k].name = k == 0 ? "a" : k == 1 ? "b" : "c";
        }
        (void)snprintf(words, sizeof words, "%s: cosine = no value, fails if < 0.9", s[i].name);
        assert_no_value(s, COUNT(s), "cosine<0.9", words);
        assert_no_value(s, COUNT(s), "worst:cosine<0.9", words);
        assert_no_value(s, COUNT(s), "*:cosine<0.9", words);
    }
    const char *const fine[] = {"total:cosine<0.9", "{a,b}:cosine<0.9", NULL};
    struct looked l; /* the last one is the one without a value */
    look(&l, in_folder(&folder, "q1"), in_folder(&folder, "s1"), false, fine);
    OK(l.status, &l.err);
    look_away(&l);
}

static void nothing_finite_has_no_errors_but_counts(void **state)
{
    static const char *const metrics[] = {"max_abs", "rms", "sqnr_db", "cosine", "max_clip"};
    struct sample s = {.name = "w", .scale = {1, 1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < N_ELEM; i++)
        s.x[i] = NAN;
    for (size_t i = 0; i < COUNT(metrics); i++) {
        char gate[64], words[64];
        (void)snprintf(gate, sizeof gate, "%s<-1", metrics[i]);
        (void)snprintf(words, sizeof words, "w: %s = no value, fails if < -1", metrics[i]);
        assert_no_value(&s, 1, gate, words);
        (void)snprintf(gate, sizeof gate, "total:%s<-1", metrics[i]);
        (void)snprintf(words, sizeof words, "total: %s = no value, fails if < -1", metrics[i]);
        assert_no_value(&s, 1, gate, words);
    }
    assert_false(sample_fails(&s, "clipped>0"));
    assert_false(sample_fails(&s, "nonfinite!=12"));
}

/* Decoded values that are NaN leave no figures, and scales that are NaN no bounds. */
static void a_figure_that_is_nan_is_no_value(void **state)
{
    static const char *const metrics[] = {"rms",       "sqnr_db",   "cosine",    "bound",
                                          "half_step", "scale_min", "scale_max", "max_clip"};
    const struct qp_scaled nan = {NAN, 0};
    const struct qp_figures figures = {.has_facts = true,
                                       .has_errors = true,
                                       .compared = 9,
                                       .facts = {NAN, NAN, 0, NAN, NAN},
                                       .errors = {.sums = {nan, nan, nan, nan}, .max_clip = NAN}};
    (void)state;
    for (size_t i = 0; i < COUNT(metrics); i++) {
        const struct qp_metric *metric = qp_metric_find(metrics[i], strlen(metrics[i]));
        assert_non_null(metric);
        if (qp_metric_value(metric, &figures).known)
            fail_msg("%s of NaN has a value", metrics[i]);
    }
}

/* Every metric of every scope where nothing is quantized: only counts and sizes of all have a
 * value. */
static void nothing_quantized_has_counts_alone(void **state)
{
    static const char *const known[] = {"quantized", "kept_bytes", "ratio",       "bpw",
                                        "bytes",     "missing",    "kept_percent"};
    const char *path = in_folder(&folder, "s1");
    struct qplan_metric metric;
    (void)state;
    write_source(path, &plain_sample, 1);
    for (size_t i = 0; qplan_metric_at(i, &metric); i++) {
        char gate[64], words[64];
        const char *const gates[] = {gate, NULL};
        bool has_value = false;
        for (size_t k = 0; k < COUNT(known); k++)
            has_value |= strcmp(metric.name, known[k]) == 0;
        (void)snprintf(gate, sizeof gate, "%s<0", metric.name);
        (void)snprintf(words, sizeof words, "%s: %s = no value, fails if < 0", metric.scope,
                       metric.name);
        struct looked l;
        look(&l, path, path, false, gates);
        if (has_value != (l.status == QPLAN_OK))
            fail_msg("%s: expected %s", gate, has_value ? "a value" : "no value");
        if (!has_value)
            assert_string_equal(qplan_report_gate_failure(l.report, 0), words);
        assert_true(has_value != is_null(&l, "gates.0.value"));
        look_away(&l);
    }
}

/* Squares of f64 can overflow, but figures have their true values; so do gates. */
static void a_gate_sees_the_true_figures_of_f64(void **state)
{
    double x[4] = {1e250, -1e250, 3e249, 1.1e249};
    const struct tensor source = {"w", "F64", 2, {2, 2}, x, sizeof x};
    static const char *const gates[] = {"sqnr_db<-1e-9", "total:sqnr_db>1e-9", "rms<7e249",
                                        "rms>8e249",     "cosine<0.99",        NULL};
    const int8_t codes[4] = {100, -100, 30, 11};
    const float scale[2] = {3e38f, 3e38f};
    const struct tensor parts[] = {{"w", "I8", 2, {2, 2}, codes, 4},
                                   {"w_scale", "F32", 1, {2}, scale, 8}};
    struct looked l;
    (void)state;
    write_checkpoint(in_folder(&folder, "s2"), NULL, &source, 1);
    write_checkpoint(in_folder(&folder, "q2"),
                     "{\"format\":\"pt\",\"qplan.layout\":\"1\",\"qplan.numerics\":\"1\","
                     "\"qplan.tensors\":\"{\\\"w\\\":\\\"int8:c0 minmax F64 2x2\\\"}\"}",
                     parts, 2);
    look(&l, in_folder(&folder, "q2"), in_folder(&folder, "s2"), false, gates);
    OK(l.status, &l.err);
    assert_true(number(&l, "tensors.0.sqnr_db") == 0);
    assert_true(fabs(number(&l, "tensors.0.cosine") - 1) < 1e-12);
    look_away(&l);
}

/* ---- Gates that cannot be judged ------------------------------------------------------------- */

static void gates_that_cannot_be_judged_are_usage(void **state)
{
    static const char *const unmatched[] = {"nothing.*:half_step>0", NULL};
    static const char *const measured[] = {"sqnr_db<30", NULL}, *const missing[] = {"missing>0",
                                                                                    NULL};
    struct looked l;
    (void)state;
    look(&l, in_folder(&folder, "q"), NULL, false, unmatched);
    assert_int_equal(l.status, QPLAN_ERR_USAGE);
    assert_non_null(strstr(l.err.message, "matches no quantized tensor"));
    look_away(&l);
    look(&l, in_folder(&folder, "q"), NULL, false, measured);
    assert_int_equal(l.status, QPLAN_ERR_USAGE);
    assert_non_null(strstr(l.err.message, "a source is needed"));
    look_away(&l);
    look(&l, in_folder(&folder, "q"), NULL, false, missing);
    assert_int_equal(l.status, QPLAN_ERR_USAGE);
    look_away(&l);
}

static void count_calls(void *ctx, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    ++*(size_t *)ctx;
}

/* Looks at the files with a gate, proving or not; says what became of it and how much was read. */
static enum qplan_status watch(const char *gate_text, bool prove, size_t *n_steps,
                               struct qplan_error *err)
{
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "q"));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "s"));
    struct qplan_gate *gate;
    struct qplan_report *report;
    OK(qplan_gate_parse(&gate, gate_text, err), err);
    const struct qplan_inspect_options options = {.against = source,
                                                  .prove = prove,
                                                  .gates = (const struct qplan_gate *const *)&gate,
                                                  .n_gates = 1};
    *n_steps = 0;
    const struct qplan_run run = {.progress = count_calls, .progress_ctx = n_steps};
    enum qplan_status status = qplan_inspect(&report, file, &options, &run, err);
    assert_int_equal(report != NULL, status == QPLAN_OK || status == QPLAN_ERR_PROOF);
    qplan_report_free(report);
    qplan_gate_free(gate);
    qplan_checkpoint_close(source);
    qplan_checkpoint_close(file);
    return status;
}

/* What is wrong whatever the files hold is told first, and takes no time. */
static void a_scope_that_matches_nothing_is_told_before_anything_is_compared(void **state)
{
    struct qplan_error err;
    size_t n_steps;
    (void)state;
    for (int prove = 0; prove < 2; prove++) {
        assert_int_equal(watch("nothing.*:half_step>0", prove, &n_steps, &err), QPLAN_ERR_USAGE);
        assert_non_null(strstr(err.message, "matches no quantized tensor"));
        assert_int_equal(n_steps, 0);
    }
}

/* The source has one tensor more, and one of its values was clipped. */
static void the_offender_of_the_proof_is_told_before_a_gate_that_fails(void **state)
{
    struct qplan_error err;
    size_t n_steps;
    (void)state;
    assert_int_equal(watch("quantized>0", true, &n_steps, &err), QPLAN_ERR_PROOF);
    assert_true(n_steps > 0);
    assert_non_null(strstr(err.message, "outside the bound at [2,2]"));
    assert_int_equal(watch("quantized<0", true, &n_steps, &err), QPLAN_ERR_PROOF);
    assert_non_null(strstr(err.message, "outside the bound at [2,2]"));
    assert_int_equal(watch("quantized>0", false, &n_steps, &err), QPLAN_ERR_PROOF);
    assert_non_null(strstr(err.message, "1 of 1 gates failed"));
}

/* quantize measures on its own when a gate asks, and writes nothing when one fails. */
static void a_failing_gate_of_quantize_writes_nothing(void **state)
{
    struct qplan_checkpoint *source;
    struct qplan_plan_options options = {.scheme = scheme_of("int8:c0")};
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_gate *gate;
    struct qplan_error err;
    const char *path = in_folder(&folder, "out");
    (void)state;
    write_source(in_folder(&folder, "s1"), &plain_sample, 1);
    source = open_checkpoint(in_folder(&folder, "s1"));
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    size_t n_files = folder_count(&folder);
    for (int fails = 1; fails >= 0; fails--) {
        OK(qplan_gate_parse(&gate, fails ? "sqnr_db<300" : "sqnr_db<3", &err), &err);
        struct qplan_quantize_options how = {
            .out_path = path, .gates = (const struct qplan_gate *const *)&gate, .n_gates = 1};
        enum qplan_status status = qplan_quantize(&report, plan, &how, NULL, &err);
        assert_int_equal(status, fails ? QPLAN_ERR_PROOF : QPLAN_OK);
        assert_int_equal(qplan_report_gate_failures(report), fails);
        assert_int_equal(folder_count(&folder), n_files + (fails ? 0 : 1));
        qplan_report_free(report);
        qplan_gate_free(gate);
    }
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metric_is_judged_in_every_scope_by_every_operator),
        cmocka_unit_test(the_worst_tensor_is_named),
        cmocka_unit_test(counts_and_limits_are_written_as_people_write_them),
        cmocka_unit_test(no_error_is_an_infinite_signal_to_noise_ratio),
        cmocka_unit_test(an_error_without_a_signal_has_no_ratio),
        cmocka_unit_test(zeros_have_no_direction_and_no_bound),
        cmocka_unit_test(one_tensor_without_a_value_fails_the_worst),
        cmocka_unit_test(nothing_finite_has_no_errors_but_counts),
        cmocka_unit_test(a_figure_that_is_nan_is_no_value),
        cmocka_unit_test(nothing_quantized_has_counts_alone),
        cmocka_unit_test(a_gate_sees_the_true_figures_of_f64),
        cmocka_unit_test(gates_that_cannot_be_judged_are_usage),
        cmocka_unit_test(a_scope_that_matches_nothing_is_told_before_anything_is_compared),
        cmocka_unit_test(the_offender_of_the_proof_is_told_before_a_gate_that_fails),
        cmocka_unit_test(a_failing_gate_of_quantize_writes_nothing),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
