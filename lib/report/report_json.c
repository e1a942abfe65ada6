/*
 * report_json.c - the report as a document (qplan-report/1): keys in a fixed order, numbers exact.
 */
#include "report.h"

#include "lib/base/json.h"
#include "lib/base/pool.h"

#include <string.h>

static void put_maybe(struct qp_writer *w, const char *key, struct qplan_maybe value)
{
    qp_json_key(w, key);
    if (value.known)
        qp_json_put_f64(w, value.value);
    else
        qp_json_put_null(w);
}

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

static void put_nulls(struct qp_writer *w, const char *const *keys)
{
    for (; *keys; keys++) {
        qp_json_key(w, *keys);
        qp_json_put_null(w);
    }
}

static void put_coordinates(struct qp_writer *w, const struct qp_row *row)
{
    const struct qp_tensor *t = row->tensor;
    uint64_t coordinate[QPLAN_MAX_RANK] = {0};
    qp_coordinates(coordinate, t->shape, t->rank, row->measure->max_at);
    qp_json_open(w, '[');
    for (unsigned i = 0; i < t->rank; i++)
        qp_json_put_u64(w, coordinate[i]);
    qp_json_close(w, ']');
}

/* max_abs .. nonfinite of a row or, with row NULL, of the totals, which have no max_at. */
static void put_measured(struct qp_writer *w, const struct qp_measure *m, uint64_t elements,
                         const struct qp_row *row)
{
    put_maybe(w, "max_abs", qp_not_negative(m->max_abs));
    if (row) {
        qp_json_key(w, "max_at");
        if (m->max_abs < 0)
            qp_json_put_null(w);
        else
            put_coordinates(w, row);
    }
    put_maybe(w, "rms", qp_rms(m, elements));
    put_maybe(w, "sqnr_db", qp_sqnr_db(m));
    put_maybe(w, "cosine", qp_cosine(m));
    put_count(w, "clipped", m->clipped);
    put_maybe(w, "max_clip", (struct qplan_maybe){m->max_clip, true});
    put_count(w, "nonfinite", m->nonfinite);
}

static void put_files(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "file");
    qp_json_open(w, '{');
    put_text(w, "path", report->path);
    put_text(w, "format", report->format);
    put_count(w, "bytes", report->totals.file_bytes);
    put_count(w, "header_bytes", report->header_bytes);
    put_count(w, "shards", 1);
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
    static const char *const measured[] = {"max_abs", "rms",      "sqnr_db",   "cosine",
                                           "clipped", "max_clip", "nonfinite", NULL};
    const struct qplan_totals *t = &report->totals;
    qp_json_key(w, "totals");
    qp_json_open(w, '{');
    put_count(w, "tensors", t->tensors);
    put_count(w, "quantized", t->quantized);
    put_count(w, "kept", t->kept);
    put_count(w, "elements", t->elements);
    put_count(w, "source_bytes", t->source_bytes);
    put_count(w, "code_bytes", t->code_bytes);
    put_count(w, "param_bytes", t->param_bytes);
    put_count(w, "kept_bytes", t->kept_bytes);
    put_count(w, "data_bytes", t->data_bytes);
    put_maybe(w, "ratio_ideal", t->ratio_ideal);
    put_maybe(w, "ratio", t->ratio);
    put_maybe(w, "bpw", t->bpw);
    put_maybe(w, "half_step", qp_not_negative(report->total_facts.half_step));
    put_maybe(w, "bound", qp_not_negative(report->total_facts.bound));
    if (report->source_path)
        put_measured(w, &report->total_measure, report->measured_elements, NULL);
    else
        put_nulls(w, measured);
    put_proven(w, report, report->proven);
    qp_json_close(w, '}');
}

/* The keys that only quantized tensors fill. */
static void put_quantized(struct qp_writer *w, const struct qp_row *row,
                          const struct qp_sizes *sizes)
{
    static const char *const measured[] = {"max_abs", "max_at",   "rms",       "sqnr_db", "cosine",
                                           "clipped", "max_clip", "nonfinite", NULL};
    const struct qp_param_facts *facts = row->facts;
    double stored = (double)(sizes->code_bytes + sizes->param_bytes);
    put_maybe(w, "ratio_ideal",
              qp_ratio(qplan_storage_bits((enum qplan_storage)row->tensor->storage),
                       qplan_dtype_bits(row->tensor->scheme->dtype)));
    put_maybe(w, "ratio", qp_ratio((double)sizes->source_bytes, stored));
    put_maybe(w, "bpw", qp_ratio(8.0 * stored, (double)sizes->elements));
    put_maybe(w, "scale_min", (struct qplan_maybe){facts->scale_min, true});
    put_maybe(w, "scale_max", (struct qplan_maybe){facts->scale_max, true});
    put_maybe(w, "half_step", qp_not_negative(facts->half_step));
    put_maybe(w, "bound", qp_not_negative(facts->bound));
    if (row->measured)
        put_measured(w, row->measure, sizes->elements, row);
    else
        put_nulls(w, measured);
}

static void put_row(struct qp_writer *w, const struct qplan_report *report,
                    const struct qp_row *row)
{
    static const char *const unused[] = {"ratio_ideal", "ratio",     "bpw",       "scale_min",
                                         "scale_max",   "half_step", "bound",     "max_abs",
                                         "max_at",      "rms",       "sqnr_db",   "cosine",
                                         "clipped",     "max_clip",  "nonfinite", NULL};
    const struct qp_tensor *t = row->tensor;
    const struct qp_sizes sizes = qp_row_sizes(row);
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
    put_text(w, "calibrate", t->scheme ? t->calibrate : NULL);
    put_text(w, "source_dtype", qplan_storage_name((enum qplan_storage)t->storage));
    put_text(w, "storage_dtype",
             qplan_storage_name((enum qplan_storage)t->parts[0].entry->storage));
    qp_json_key(w, "shape");
    qp_json_open(w, '[');
    for (unsigned i = 0; i < t->rank; i++)
        qp_json_put_u64(w, t->shape[i]);
    qp_json_close(w, ']');
    put_count(w, "elements", sizes.elements);
    put_count(w, "sets", sizes.sets);
    put_count(w, "source_bytes", sizes.source_bytes);
    put_count(w, "code_bytes", sizes.code_bytes);
    put_count(w, "param_bytes", sizes.param_bytes);
    if (row->facts && t->scheme)
        put_quantized(w, row, &sizes);
    else
        put_nulls(w, unused);
    put_proven(w, report, row->proven);
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

/* A whole number is written without a fraction: limits as people write them, counts as counts. */
static void put_number(struct qp_writer *w, const char *key, struct qplan_maybe value, bool whole)
{
    qp_json_key(w, key);
    if (!value.known)
        qp_json_put_null(w);
    else if (whole && value.value >= 0 && value.value < 0x1p53 &&
             value.value == (double)(uint64_t)value.value)
        qp_json_put_u64(w, (uint64_t)value.value);
    else
        qp_json_put_f64(w, value.value);
}

static void put_gates(struct qp_writer *w, const struct qplan_report *report)
{
    qp_json_key(w, "gates");
    qp_json_open(w, '[');
    for (size_t i = 0; i < report->n_gates; i++) {
        const struct qp_gate_result *r = &report->gates[i];
        qp_json_open(w, '{');
        put_text(w, "expr", r->gate->text);
        qp_json_key(w, "tensor");
        if (r->row)
            qp_json_put_string(w, r->row->tensor->name, r->row->tensor->name_len);
        else
            qp_json_put_null(w);
        put_number(w, "value", r->value, qp_metric_row(r->gate->metric)->integer);
        put_number(w, "limit", (struct qplan_maybe){r->gate->limit, true}, true);
        qp_json_key(w, "failed");
        qp_json_put_bool(w, r->failed);
        qp_json_close(w, '}');
    }
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
