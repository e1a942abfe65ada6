/*
 * judge.c - gates on a report: whether they can be evaluated, the value that each looks at, and
 * whether it fails.
 */
#include "report.h"

#include "lib/base/glob.h"

#include <inttypes.h>
#include <string.h>

/* A complaint about a gate, with the gate as subject, as safe to print as a name. */
static enum qplan_status bad_gate(const struct qplan_gate *gate, const char *what,
                                  struct qplan_error *err)
{
    char shown[256];
    return qp_fail(err, QPLAN_ERR_USAGE,
                   qp_escape(shown, sizeof shown, gate->text, strlen(gate->text)), "%s", what);
}

enum qplan_status qp_gates_check(const struct qplan_gate *const *gates, size_t n, bool has_source,
                                 bool has_weights, struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (gates[i]->metric->needs >= QP_NEEDS_SOURCE && !has_source) {
            (void)bad_gate(gates[i], "this metric is measured: a source is needed", err);
            qp_advise(err, QPLAN_ADVICE_AGAINST);
            return QPLAN_ERR_USAGE;
        }
        if (gates[i]->metric->needs == QP_NEEDS_WEIGHTS && !has_weights)
            return bad_gate(gates[i], "this metric is weighted: importance or a Hessian is needed",
                            err);
    }
    return QPLAN_OK;
}

static enum qplan_status no_match(const struct qplan_gate *gate, struct qplan_error *err)
{
    return bad_gate(gate, "the scope matches no quantized tensor", err);
}

enum qplan_status qp_gates_check_plan(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool matched = gates[i]->scope != QP_SCOPE_GLOB;
        for (size_t k = 0; !matched && k < plan->n_tensors; k++) {
            const struct qp_plan_tensor *t = &plan->tensors[k];
            matched = qp_is_quantized(t) &&
                      qp_glob_match(gates[i]->glob, t->source->name, t->source->name_len);
        }
        if (!matched)
            return no_match(gates[i], err);
    }
    return QPLAN_OK;
}

/* Whether a row is one of those that a gate looks at. */
static bool is_judged(const struct qplan_gate *gate, const struct qp_row *row)
{
    const struct qp_tensor *view = row->tested->tensor;
    return view->scheme &&
           (gate->scope != QP_SCOPE_GLOB || qp_glob_match(gate->glob, view->name, view->name_len));
}

enum qplan_status qp_gates_check_rows(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_report *report, struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool matched = gates[i]->scope != QP_SCOPE_GLOB;
        for (size_t k = 0; !matched && k < report->n_rows; k++)
            matched = is_judged(gates[i], &report->rows[k]);
        if (!matched)
            return no_match(gates[i], err);
    }
    return QPLAN_OK;
}

/* Whether a is worse than b in the eyes of a gate. */
static bool is_worse(const struct qplan_gate *gate, double a, double b)
{
    bool low = gate->op == QP_OP_LT || gate->op == QP_OP_LE;
    if (gate->op == QP_OP_EQ || gate->op == QP_OP_NE) {
        bool a_holds = qp_gate_holds(gate->op, a, gate->limit);
        if (a_holds != qp_gate_holds(gate->op, b, gate->limit))
            return a_holds;
        low = gate->metric->low_is_bad;
    }
    return low ? a < b : a > b;
}

static uint64_t elements_of(const struct qp_row *row)
{
    return qp_row_figures(row).sums.elements;
}

/* From how many elements on tensors count: where all have fewer, all do. */
static uint64_t find_least(const struct qplan_report *report, const struct qplan_gate *gate)
{
    for (size_t i = 0; gate->scope == QP_SCOPE_LARGE && i < report->n_rows; i++) {
        const struct qp_row *row = &report->rows[i];
        if (is_judged(gate, row) && elements_of(row) >= gate->min_elements)
            return gate->min_elements;
    }
    return 0;
}

bool qp_gate_skipped(const struct qp_gate_result *result, const struct qp_row *row)
{
    return is_judged(result->gate, row) && elements_of(row) < result->min_elements;
}

/*
 * The first tensor without a value, else the worst; for metrics that are weighted, of those whose
 * weights are known. Where no tensor is judged there is no value.
 */
static void find_worst(const struct qplan_report *report, struct qp_gate_result *r)
{
    r->value.known = false;
    r->min_elements = find_least(report, r->gate);
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct qp_row *row = &report->rows[i];
        if (!is_judged(r->gate, row) || qp_gate_skipped(r, row))
            continue;
        const struct qp_figures figures = qp_row_figures(row);
        if (r->gate->metric->needs == QP_NEEDS_WEIGHTS && !(figures.errors.weight_unit > 0))
            continue;
        const struct qp_value value = qp_metric_value(r->gate->metric, &figures);
        if (r->row && value.known && !is_worse(r->gate, value.number, r->value.number))
            continue;
        r->row = row;
        r->value = value;
        if (!value.known)
            return;
    }
}

static void put_value(struct qp_writer *w, const struct qp_gate_result *r)
{
    char text[QP_F64_TEXT];
    if (!r->value.known)
        qp_puts(w, "no value");
    else if (r->gate->metric->kind == QP_COUNT)
        qp_printf(w, "%" PRIu64, r->value.count);
    else
        qp_put(w, text, qp_format_f64(text, r->value.number));
}

/* 30.0 -> "30": limits are shown as people write them. */
static void put_limit(struct qp_writer *w, double limit)
{
    char text[QP_F64_TEXT];
    size_t n = qp_format_f64(text, limit);
    if (n > 2 && memcmp(text + n - 2, ".0", 2) == 0)
        n -= 2;
    qp_put(w, text, n);
}

static enum qplan_status describe_failure(struct qplan_report *report, struct qp_gate_result *r,
                                          struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_init(&w);
    if (r->row) {
        qp_put_name(&w, r->row->tested->tensor);
    } else {
        qp_puts(&w, r->gate->scope == QP_SCOPE_TOTAL ? "total" : "worst");
    }
    qp_printf(&w, ": %s = ", r->gate->metric->name);
    put_value(&w, r);
    qp_printf(&w, ", fails if %s ", qp_gate_op_text(r->gate->op));
    put_limit(&w, r->gate->limit);
    r->text = w.error ? NULL : qp_arena_join(&report->arena, w.data, w.n, "");
    qp_writer_free(&w);
    return r->text ? QPLAN_OK : qp_fail_memory(err, "report", QP_QUOTED);
}

/* Whether a metric is one of quantized tensors, of which there are none. */
static bool is_of_nothing(const struct qplan_report *report, const struct qp_metric *metric)
{
    return metric->scope != QP_SCOPE_TOTAL && report->total.sums.quantized == 0;
}

/* A value that there is not cannot be a good one. */
static enum qplan_status evaluate(struct qplan_report *report, struct qp_gate_result *r,
                                  struct qplan_error *err)
{
    if (is_of_nothing(report, r->gate->metric))
        r->value.known = false;
    else if (r->gate->scope == QP_SCOPE_TOTAL)
        r->value = qp_metric_value(r->gate->metric, &report->total);
    else
        find_worst(report, r);
    r->failed = !r->value.known || qp_gate_holds(r->gate->op, r->value.number, r->gate->limit);
    return r->failed ? describe_failure(report, r, err) : QPLAN_OK;
}

enum qplan_status qp_gates_evaluate(struct qplan_report *report,
                                    const struct qplan_gate *const *gates, size_t n,
                                    struct qplan_error *err)
{
    size_t n_failed = 0;
    report->gates = qp_arena_alloc(&report->arena, n, sizeof *report->gates);
    if (!report->gates)
        return qp_fail_memory(err, "report", n * sizeof *report->gates);
    for (size_t i = 0; i < n; i++) {
        struct qp_gate_result *r = &report->gates[report->n_gates++];
        r->gate = gates[i];
        QP_TRY(evaluate(report, r, err));
        n_failed += r->failed;
    }
    if (n_failed == 0)
        return QPLAN_OK;
    char shown[512];
    return qp_fail(err, QPLAN_ERR_PROOF,
                   qp_escape(shown, sizeof shown, report->path, strlen(report->path)),
                   "%zu of %zu gates failed", n_failed, n);
}

size_t qplan_report_gate_failures(const struct qplan_report *report)
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_gates; i++)
        n += report->gates[i].failed;
    return n;
}

const char *qplan_report_gate_failure(const struct qplan_report *report, size_t i)
{
    for (size_t k = 0; k < report->n_gates; k++) {
        if (report->gates[k].failed && i-- == 0)
            return report->gates[k].text;
    }
    return NULL;
}
