/*
 * test_gate.c - reading gates: every metric, operator and scope, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/report/gate.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct row {
    const char *text, *kept;
    enum qp_gate_scope scope;
    const char *glob;
    const char *metric;
    enum qp_gate_op op;
    double limit;
};

static const struct row rows[] = {
    {"sqnr_db<30", "sqnr_db<30", QP_SCOPE_LARGE, NULL, "sqnr_db", QP_OP_LT, 30},
    {"ratio<=1.9", "ratio<=1.9", QP_SCOPE_TOTAL, NULL, "ratio", QP_OP_LE, 1.9},
    {"worst:ratio>1", "worst:ratio>1", QP_SCOPE_WORST, NULL, "ratio", QP_OP_GT, 1},
    {"worst:sqnr_db<30", "worst:sqnr_db<30", QP_SCOPE_WORST, NULL, "sqnr_db", QP_OP_LT, 30},
    {"total:sqnr_db>=-3", "total:sqnr_db>=-3", QP_SCOPE_TOTAL, NULL, "sqnr_db", QP_OP_GE, -3},
    {"*.mlp.*:max_abs>1e-3", "*.mlp.*:max_abs>1e-3", QP_SCOPE_GLOB, "*.mlp.*", "max_abs", QP_OP_GT,
     1e-3},
    {" \t total : bpw \t == +4.5 ", "total:bpw==+4.5", QP_SCOPE_TOTAL, NULL, "bpw", QP_OP_EQ, 4.5},
    {"nonfinite != 0", "nonfinite!=0", QP_SCOPE_WORST, NULL, "nonfinite", QP_OP_NE, 0},
    {"a:b:c:rms<1", "a:b:c:rms<1", QP_SCOPE_GLOB, "a:b:c", "rms", QP_OP_LT, 1},
    {"a<b:rms<1", "a<b:rms<1", QP_SCOPE_GLOB, "a<b", "rms", QP_OP_LT, 1},
    {"[!=]*:bpw>8", "[!=]*:bpw>8", QP_SCOPE_GLOB, "[!=]*", "bpw", QP_OP_GT, 8},
    {"a b : rms<1", "a b:rms<1", QP_SCOPE_GLOB, "a b", "rms", QP_OP_LT, 1},
};

static void test_parsed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_gate *gate;
        struct qplan_error err;
        if (qplan_gate_parse(&gate, rows[i].text, &err) != QPLAN_OK)
            fail_msg("%s: %s", rows[i].text, err.message);
        assert_string_equal(gate->text, rows[i].kept);
        assert_int_equal(gate->scope, rows[i].scope);
        assert_string_equal(gate->metric->name, rows[i].metric);
        assert_int_equal(gate->op, rows[i].op);
        assert_true(gate->limit == rows[i].limit);
        if (rows[i].glob)
            assert_string_equal(gate->glob, rows[i].glob);
        else
            assert_null(gate->glob);
        qplan_gate_free(gate);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *subject, *message;
    } bad[] = {
        {"", "gate ''", "no operator"},
        {"sqnr_db", "gate", "no operator"},
        {"sqnr_db 30", "gate", "no operator"},
        {"<30", "gate", "unknown metric ''"},
        {"worst:<30", "gate", "unknown metric ''"},
        {"snr<30", "gate 'snr<30'", "unknown metric 'snr': expected one of quantized, kept_bytes"},
        {"sqnr_db.delta<1", "gate", "unknown metric 'sqnr_db.delta'"},
        {"SQNR_DB<30", "gate", "unknown metric 'SQNR_DB'"},
        {"scale_max<30", "gate", "unknown metric 'scale_max'"},
        {"max_at<30", "gate", "unknown metric 'max_at'"},
        {"elements<30", "gate", "unknown metric 'elements'"},
        {"sqnr_db<<30", "gate", "unknown operator '<<'"},
        {"sqnr_db=30", "gate", "unknown operator '='"},
        {"sqnr_db=<30", "gate", "unknown operator '=<'"},
        {"sqnr_db!30", "gate", "unknown operator '!'"},
        {"sqnr_db< =30", "gate", "unknown metric 'sqnr_db<'"},
        {"sqnr_db<", "gate", "bad number ''"},
        {"sqnr_db<inf", "gate", "bad number 'inf'"},
        {"sqnr_db<nan", "gate", "bad number 'nan'"},
        {"sqnr_db<0x1f", "gate", "bad number '0x1f'"},
        {"sqnr_db<30dB", "gate", "bad number '30dB'"},
        {"sqnr_db<3 0", "gate", "bad number '3 0'"},
        {"sqnr_db<1e999", "gate", "bad number '1e999'"},
        {":sqnr_db<30", "gate", "empty scope"},
        {" :sqnr_db<30", "gate", "empty scope"},
        {"a[:sqnr_db<30", "pattern 'a['", "bad class"},
        {"{a,{b}}:sqnr_db<30", "pattern", "braces inside braces"},
        {"worst:bytes<1", "gate", "bad scope 'worst': expected total or none, since bytes is"},
        {"a*:missing>0", "gate", "bad scope 'a*'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct qplan_gate *gate = (struct qplan_gate *)&bad;
        struct qplan_error err = {0};
        if (qplan_gate_parse(&gate, bad[i].text, &err) != QPLAN_ERR_USAGE)
            fail_msg("%s: accepted", bad[i].text);
        assert_null(gate);
        if (!strstr(err.message, bad[i].message) || !strstr(err.subject, bad[i].subject))
            fail_msg("%s: %s: %s", bad[i].text, err.subject, err.message);
    }
}

/* ---- Every metric ---------------------------------------------------------------------------- */

/* What the documents promise of each. */
static const struct expected {
    const char *name, *scope;
    bool of_tensors, needs_source;
} metrics[] = {
    {"sqnr_db", "worst", true, true},      {"weighted_sqnr_db", "worst", true, true},
    {"max_abs", "worst", true, true},      {"rms", "worst", true, true},
    {"cosine", "worst", true, true},       {"clipped", "worst", true, true},
    {"max_clip", "worst", true, true},     {"nonfinite", "worst", true, true},
    {"bound", "worst", true, false},       {"half_step", "worst", true, false},
    {"bpw", "total", true, false},         {"ratio", "total", true, false},
    {"ratio_ideal", "total", true, false}, {"bytes", "total", false, false},
    {"kept_bytes", "total", false, false}, {"kept_percent", "total", false, false},
    {"quantized", "total", false, false},  {"missing", "total", false, true},
};

static const struct expected *find_expected(const char *name)
{
    for (size_t i = 0; i < COUNT(metrics); i++) {
        if (strcmp(metrics[i].name, name) == 0)
            return &metrics[i];
    }
    fail_msg("%s is not documented", name);
    return NULL;
}

static void test_metrics_are_those_of_the_documents(void **state)
{
    struct qplan_metric metric;
    size_t n = 0;
    (void)state;
    for (; qplan_metric_at(n, &metric); n++) {
        const struct expected *expected = find_expected(metric.name);
        assert_string_equal(metric.scope, expected->scope);
        assert_int_equal(metric.of_tensors, expected->of_tensors);
        assert_int_equal(metric.needs_source, expected->needs_source);
        assert_true(metric.unit[0] && metric.help[0]);
    }
    assert_int_equal(n, COUNT(metrics));
}

static bool accepted(const char *scope, const char *metric)
{
    char text[64];
    struct qplan_gate *gate;
    (void)snprintf(text, sizeof text, "%s%s<1", scope, metric);
    enum qplan_status status = qplan_gate_parse(&gate, text, NULL);
    if (status == QPLAN_OK)
        assert_string_equal(gate->metric->name, metric);
    else
        assert_int_equal(status, QPLAN_ERR_USAGE);
    qplan_gate_free(gate);
    return status == QPLAN_OK;
}

static void test_scopes_of_every_metric(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(metrics); i++) {
        assert_true(accepted("", metrics[i].name));
        assert_true(accepted("total:", metrics[i].name));
        assert_int_equal(accepted("worst:", metrics[i].name), metrics[i].of_tensors);
        assert_int_equal(accepted("a.*:", metrics[i].name), metrics[i].of_tensors);
    }
}

/* ---- Operators ------------------------------------------------------------------------------- */

static void test_operators(void **state)
{
    static const bool holds[][3] = {
        /* limit 2 against value 1, 2, 3 */
        [QP_OP_LT] = {true, false, false}, [QP_OP_LE] = {true, true, false},
        [QP_OP_GT] = {false, false, true}, [QP_OP_GE] = {false, true, true},
        [QP_OP_EQ] = {false, true, false}, [QP_OP_NE] = {true, false, true},
    };
    (void)state;
    for (int op = QP_OP_LT; op <= QP_OP_NE; op++) {
        for (int value = 1; value <= 3; value++)
            assert_int_equal(qp_gate_holds((enum qp_gate_op)op, value, 2), holds[op][value - 1]);
    }
    assert_string_equal(qp_gate_op_text(QP_OP_LT), "<");
    assert_string_equal(qp_gate_op_text(QP_OP_NE), "!=");
}

static void test_free_takes_null(void **state)
{
    (void)state;
    qplan_gate_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parsed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_metrics_are_those_of_the_documents),
        cmocka_unit_test(test_scopes_of_every_metric),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_free_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
