/*
 * report_json.c - the report as a document (qplan-report/1): keys in a fixed order, numbers exact.
 */
#include "report.h"

#include "lib/base/json.h"
#include "lib/base/pool.h"

#include <string.h>

static void put_count(struct qp_writer *w, const char *key, uint64_t value)
{
    qp_json_key(w, key);
    qp_json_put_u64(w, value);
}

static void put_text(struct qp_writer *w, const char *key, const char *text)
{
    qp_json_key(w, key);
    qp_json_put_str(w, text);
}

static void put_value(struct qp_writer *w, const struct qp_metric *metric, struct qp_value value)
{
    if (!value.known)
        qp_json_put_null(w);
    else if (metric->kind == QP_COUNT)
        qp_json_put_u64(w, value.count);
    else
        qp_json_put_f64(w, value.number);
}

/* The coordinates of the element with this flat index. */
static void put_element(struct qp_writer *w, const struct qp_tensor *tensor, uint64_t index)
{
    uint64_t coordinate[QPLAN_MAX_RANK] = {0};
    qp_coordinates(coordinate, tensor->shape, tensor->rank, index);
    qp_json_open(w, '[');
    for (unsigned i = 0; i < tensor->rank; i++)
        qp_json_put_u64(w, coordinate[i]);
    qp_json_close(w, ']');
}

/* The metrics of a tensor or, with tensor NULL, those of the totals. */
static void put_metrics(struct qp_writer *w, const struct qp_figures *figures,
                        const struct qp_tensor *tensor)
{
    for (size_t i = 0; i < qp_n_metrics; i++) {
        const struct qp_metric *metric = &qp_metrics[i];
        if (!(metric->shown & (tensor ? QP_IN_TENSORS : QP_IN_TOTALS)))
            continue;
        const struct qp_value value = qp_metric_value(metric, figures);
        qp_json_key(w, metric->name);
        if (tensor && value.known && metric->kind == QP_ELEMENT)
            put_element(w, tensor, value.count);
        else
            put_value(w, metric, value);
    }
}

static void put_files(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "file");
    qp_json_open(w, '{');
    put_text(w, "path", report->path);
    put_text(w, "format", report->format);
    put_count(w, "bytes", report->total.sums.file_bytes);
    put_count(w, "header_bytes", report->header_bytes);
    put_count(w, "shards", report->n_files);
    qp_json_close(w, '}');
    qp_json_key(w, "source");
    if (!report->source_path) {
        qp_json_put_null(w);
        return;
    }
    qp_json_open(w, '{');
    put_text(w, "path", report->source_path);
    put_count(w, "bytes", report->source_file_bytes);
    qp_json_close(w, '}');
}

static void put_proven(struct qp_writer *w, const struct qplan_report *report, bool proven)
{
    qp_json_key(w, "proven");
    if (report->source_path)
        qp_json_put_bool(w, proven);
    else
        qp_json_put_null(w);
}

static void put_totals(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "totals");
    qp_json_open(w, '{');
    put_metrics(w, &report->total, NULL);
    put_proven(w, report, report->proof.holds);
    qp_json_close(w, '}');
}

static void put_row(struct qp_writer *w, const struct qplan_report *report,
                    const struct qp_row *row)
{
    const struct qp_tensor *t = row->tested->tensor;
    const struct qp_figures figures = qp_row_figures(row);
    char scheme[QPLAN_SCHEME_TEXT];
    if (t->scheme)
        qplan_scheme_format(t->scheme, scheme);
    qp_json_open(w, '{');
    qp_json_key(w, "name");
    qp_json_put_string(w, t->name, t->name_len);
    put_text(w, "action", row->restored ? "dequantize" : t->scheme ? "quantize" : "keep");
    put_text(w, "reason", row->reason);
    put_text(w, "rule", row->rule);
    put_text(w, "scheme", t->scheme ? scheme : NULL);
    put_text(w, "calibrate", t->calibrate);
    put_text(w, "source_dtype", qplan_storage_name(t->storage));
    put_text(w, "storage_dtype", qplan_storage_name(t->entry->storage));
    qp_json_key(w, "shape");
    qp_json_open(w, '[');
    for (unsigned i = 0; i < t->rank; i++)
        qp_json_put_u64(w, t->shape[i]);
    qp_json_close(w, ']');
    put_metrics(w, &figures, t);
    put_proven(w, report, row->tested->proven);
    qp_json_close(w, '}');
}

static void put_kept(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "kept");
    qp_json_open(w, '[');
    for (size_t i = 0; i < report->n_kept; i++) {
        qp_json_open(w, '{');
        put_text(w, "reason", report->kept[i].reason);
        put_count(w, "tensors", report->kept[i].tensors);
        put_count(w, "bytes", report->kept[i].bytes);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
}

/* A limit is written as people write it: a whole number without a fraction. */
static void put_limit(struct qp_writer *w, double limit)
{
    if (limit >= 0 && limit < 0x1p53 && limit == (double)(uint64_t)limit)
        qp_json_put_u64(w, (uint64_t)limit);
    else
        qp_json_put_f64(w, limit);
}

static void put_skipped(struct qp_writer *w, const struct qplan_report *report,
                        const struct qp_gate_result *r)
{
    qp_json_key(w, "skipped");
    qp_json_open(w, '[');
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct qp_tensor *view = report->rows[i].tested->tensor;
        if (qp_gate_skipped(r, &report->rows[i]))
            qp_json_put_string(w, view->name, view->name_len);
    }
    qp_json_close(w, ']');
}

static void put_gate(struct qp_writer *w, const struct qplan_report *report,
                     const struct qp_gate_result *r)
{
    qp_json_open(w, '{');
    put_text(w, "expr", r->gate->text);
    qp_json_key(w, "tensor");
    if (r->row) {
        const struct qp_tensor *view = r->row->tested->tensor;
        qp_json_put_string(w, view->name, view->name_len);
    } else {
        qp_json_put_null(w);
    }
    qp_json_key(w, "value");
    put_value(w, r->gate->metric, r->value);
    qp_json_key(w, "limit");
    put_limit(w, r->gate->limit);
    qp_json_key(w, "failed");
    qp_json_put_bool(w, r->failed);
    put_skipped(w, report, r);
    qp_json_close(w, '}');
}

static void put_gates(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "gates");
    qp_json_open(w, '[');
    for (size_t i = 0; i < report->n_gates; i++)
        put_gate(w, report, &report->gates[i]);
    qp_json_close(w, ']');
}

static void put_warnings(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "warnings");
    qp_json_open(w, '[');
    for (size_t i = 0; i < report->warnings.n; i++) {
        if (!report->warnings.list[i].code)
            continue; /* the document is the same on every machine */
        qp_json_open(w, '{');
        put_text(w, "code", report->warnings.list[i].code);
        put_text(w, "subject", report->warnings.list[i].subject);
        put_text(w, "message", report->warnings.list[i].message);
        qp_json_close(w, '}');
    }
    qp_json_close(w, ']');
}

enum qplan_status qplan_report_write_json(const struct qplan_report *report, qplan_write_fn write,
                                          void *ctx, struct qplan_error *err)
{
    struct qp_writer w;
    fenv_t callers;
    qp_fenv_enter(&callers);
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    put_text(&w, "schema", "qplan-report/1");
    put_text(&w, "command", report->command);
    put_text(&w, "version", QPLAN_VERSION);
    put_count(&w, "numerics", QPLAN_NUMERICS);
    if (qp_report_recipe(report))
        put_text(&w, "arithmetic", "reference");
    put_files(&w, report);
    put_totals(&w, report);
    qp_json_key(&w, "tensors");
    qp_json_open(&w, '[');
    for (size_t i = 0; i < report->n_rows; i++)
        put_row(&w, report, &report->rows[i]);
    qp_json_close(&w, ']');
    put_kept(&w, report);
    put_gates(&w, report);
    put_warnings(&w, report);
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    enum qplan_status status = qp_writer_finish(&w, "report", err);
    qp_writer_free(&w);
    qp_fenv_leave(&callers);
    return status;
}
