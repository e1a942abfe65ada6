/*
 * judge.c - judging a report: the value that a gate looks at, and whether it fails.
 */
#include "report.h"

#include "lib/base/glob.h"

#include <inttypes.h>
#include <math.h>
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
                                 struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (qp_metric_row(gates[i]->metric)->measured && !has_source) {
            (void)bad_gate(gates[i], "this metric is measured: a source is needed", err);
            qp_advise(err, QPLAN_ADVICE_AGAINST);
            return QPLAN_ERR_USAGE;
        }
    }
    return QPLAN_OK;
}

static const char no_match[] = "the scope matches no quantized tensor";

enum qplan_status qp_gates_check_plan(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool matched = gates[i]->scope != QP_SCOPE_GLOB;
        for (size_t k = 0; !matched && k < plan->n_tensors; k++) {
            const struct qp_plan_tensor *t = &plan->tensors[k];
            matched =
                t->quantize && qp_glob_match(gates[i]->glob, t->source->name, t->source->name_len);
        }
        if (!matched)
            return bad_gate(gates[i], no_match, err);
    }
    return QPLAN_OK;
}

static struct qplan_maybe count(uint64_t n)
{
    return (struct qplan_maybe){(double)n, true};
}

/* No error at all is the best ratio there is; error without any signal is the worst. */
static struct qplan_maybe sqnr_for_gate(const struct qp_measure *m)
{
    struct qplan_maybe value = qp_sqnr_db(m);
    if (!value.known)
        value = (struct qplan_maybe){m->e2 == 0 ? INFINITY : -INFINITY, true};
    return value;
}

/* m may be NULL where the metric is of the stored parameters alone. */
static struct qplan_maybe measured_value(const struct qp_param_facts *facts,
                                         const struct qp_measure *m, uint64_t elements,
                                         enum qp_metric_id id)
{
    switch (id) {
    case QP_METRIC_SQNR_DB:
        return sqnr_for_gate(m);
    case QP_METRIC_MAX_ABS:
        return qp_not_negative(m->max_abs);
    case QP_METRIC_RMS:
        return qp_rms(m, elements);
    case QP_METRIC_COSINE:
        return qp_cosine(m);
    case QP_METRIC_CLIPPED:
        return count(m->clipped);
    case QP_METRIC_MAX_CLIP:
        return qp_not_negative(m->max_clip);
    case QP_METRIC_NONFINITE:
        return count(m->nonfinite);
    case QP_METRIC_BOUND:
        return qp_not_negative(facts->bound);
    case QP_METRIC_HALF_STEP:
        return qp_not_negative(facts->half_step);
    default:
        return (struct qplan_maybe){0, false};
    }
}

static struct qplan_maybe row_value(const struct qp_row *row, enum qp_metric_id id)
{
    struct qp_sizes sizes = qp_row_sizes(row);
    double stored = (double)(sizes.code_bytes + sizes.param_bytes);
    switch (id) {
    case QP_METRIC_BPW:
        return qp_ratio(8.0 * stored, (double)sizes.elements);
    case QP_METRIC_RATIO:
        return qp_ratio((double)sizes.source_bytes, stored);
    case QP_METRIC_RATIO_IDEAL:
        return qp_ratio(qplan_storage_bits(row->tensor.source),
                        qplan_dtype_bits(row->tensor.native->scheme.dtype));
    default:
        if (qp_metric_row(id)->measured && !row->measured)
            return (struct qplan_maybe){0, false};
        return measured_value(row->facts, row->measure, sizes.elements, id);
    }
}

static struct qplan_maybe total_value(const struct qplan_report *report, enum qp_metric_id id)
{
    const struct qplan_totals *t = &report->totals;
    switch (id) {
    case QP_METRIC_BPW:
        return t->bpw;
    case QP_METRIC_RATIO:
        return t->ratio;
    case QP_METRIC_RATIO_IDEAL:
        return t->ratio_ideal;
    case QP_METRIC_BYTES:
        return count(t->file_bytes);
    case QP_METRIC_KEPT_BYTES:
        return count(t->kept_bytes);
    case QP_METRIC_KEPT_PERCENT:
        return qp_ratio(100.0 * (double)t->kept_bytes, (double)t->data_bytes);
    case QP_METRIC_QUANTIZED:
        return count(t->quantized);
    case QP_METRIC_MISSING:
        return count(report->missing);
    default:
        return measured_value(&report->total_facts, &report->total_measure,
                              report->measured_elements, id);
    }
}

/* Whether a is worse than b in the eyes of a gate. A NaN is worse than anything. */
static bool is_worse(const struct qplan_gate *gate, double a, double b)
{
    bool low = gate->op == QP_OP_LT || gate->op == QP_OP_LE;
    if (gate->op == QP_OP_EQ || gate->op == QP_OP_NE) {
        bool a_holds = qp_gate_holds(gate->op, a, gate->limit);
        if (a_holds != qp_gate_holds(gate->op, b, gate->limit))
            return a_holds;
        low = qp_metric_row(gate->metric)->low_is_bad;
    }
    if (isnan(a) || isnan(b))
        return isnan(a) && !isnan(b);
    return low ? a < b : a > b;
}

static enum qplan_status find_worst(const struct qplan_report *report, struct qp_gate_result *r,
                                    struct qplan_error *err)
{
    const struct qplan_gate *gate = r->gate;
    bool matched = false;
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct qp_row *row = &report->rows[i];
        if (!row->facts ||
            (gate->scope == QP_SCOPE_GLOB &&
             !qp_glob_match(gate->glob, row->tensor.entry->name, row->tensor.entry->name_len)))
            continue;
        matched = true;
        struct qplan_maybe value = row_value(row, gate->metric);
        if (!value.known || (r->row && !is_worse(gate, value.value, r->value.value)))
            continue;
        r->row = row;
        r->value = value;
    }
    if (!matched && gate->scope == QP_SCOPE_GLOB)
        return bad_gate(gate, no_match, err);
    return QPLAN_OK;
}

static void put_value(struct qp_writer *w, const struct qplan_gate *gate, double value)
{
    char text[QP_F64_TEXT];
    if (qp_metric_row(gate->metric)->integer)
        qp_printf(w, "%" PRIu64, (uint64_t)value);
    else
        qp_put(w, text, qp_format_f64(text, value));
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
    char quoted[QP_QUOTED];
    qp_writer_init(&w);
    if (r->row) {
        qp_quote(quoted, r->row->tensor.entry->name, r->row->tensor.entry->name_len);
        size_t n = strlen(quoted); /* without the quotes */
        qp_put(&w, quoted + 1, n > 2 ? n - 2 : 0);
    } else {
        qp_puts(&w, "total");
    }
    qp_printf(&w, ": %s = ", qp_metric_row(r->gate->metric)->name);
    put_value(&w, r->gate, r->value.value);
    qp_printf(&w, ", fails if %s ", qp_gate_op_text(r->gate->op));
    put_limit(&w, r->gate->limit);
    r->text = w.error ? NULL : qp_arena_join(&report->arena, w.data, w.n, "");
    qp_writer_free(&w);
    return r->text ? QPLAN_OK : qp_fail_memory(err, "report", sizeof quoted);
}

static enum qplan_status evaluate(struct qplan_report *report, struct qp_gate_result *r,
                                  struct qplan_error *err)
{
    if (r->gate->scope == QP_SCOPE_TOTAL)
        r->value = total_value(report, r->gate->metric);
    else
        QP_TRY(find_worst(report, r, err));
    if (!r->value.known)
        return QPLAN_OK;
    r->failed = isnan(r->value.value) || qp_gate_holds(r->gate->op, r->value.value, r->gate->limit);
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

enum qplan_status qp_report_judge(struct qplan_report **out,
                                  const struct qp_report_request *request,
                                  const struct qplan_gate *const *gates, size_t n_gates,
                                  const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_error gate_error;
    enum qplan_status proof = qp_report_make(out, request, run, err);
    if (proof != QPLAN_OK && proof != QPLAN_ERR_PROOF)
        return proof;
    enum qplan_status status = qp_gates_evaluate(*out, gates, n_gates, &gate_error);
    if (status == QPLAN_OK || (status == QPLAN_ERR_PROOF && proof == QPLAN_ERR_PROOF))
        return proof;
    if (err)
        *err = gate_error;
    if (status != QPLAN_ERR_PROOF) {
        qplan_report_free(*out);
        *out = NULL;
    }
    return status;
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
