/*
 * report_text.c - the report for people: patterns instead of thousands of rows, the worst five, the
 * totals, and what stayed big and why.
 */
#include "report.h"

#include "lib/base/alloc.h"
#include "lib/base/pattern.h"
#include "lib/base/pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct printer {
    const struct qplan_report *report;
    struct qp_writer *w;
    struct qp_group_source source;
    const struct qp_metric *bad_by; /* what the worst tensors are found by */
};

/* ---- Small parts -------------------------------------------------------------------------------
 */

/* A number with 3 significant digits, for reading; nothing for one that is not finite. */
static void put_brief(struct qp_writer *w, const char *label, double value)
{
    char text[QP_F64_TEXT];
    if (!isfinite(value))
        return;
    qp_printf(w, "  %s ", label);
    (void)snprintf(text, sizeof text, "%.3g", value);
    for (char *c = text; *c; c++) { /* the decimal point of any locale becomes ours */
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    }
    qp_puts(w, text);
}

static void put_value(struct qp_writer *w, const struct qp_metric *metric, struct qp_value value)
{
    if (!value.known)
        return;
    if (metric->kind == QP_COUNT)
        qp_printf(w, "  %s %" PRIu64, metric->name, value.count);
    else
        put_brief(w, metric->name, value.number);
}

static void put_bytes(struct qp_writer *w, uint64_t n_bytes)
{
    char text[QP_F64_TEXT];
    qp_puts(w, qp_format_bytes(text, n_bytes));
}

void qp_put_name(struct qp_writer *w, const struct qp_tensor *t)
{
    char quoted[QP_QUOTED];
    qp_quote(quoted, t->name, t->name_len);
    size_t n = strlen(quoted);
    if (n > 2)
        qp_put(w, quoted + 1, n - 2);
    else
        qp_puts(w, "''");
}

/* ---- Rows and patterns -------------------------------------------------------------------------
 */

static const char *row_name(const void *ctx, size_t i, size_t *n)
{
    const struct qplan_report *report = ctx;
    const struct qp_tensor *view = report->rows[i].tested->tensor;
    *n = view->name_len;
    return view->name;
}

/* How the parameters of a quantized tensor were chosen; "" if that is the usual way, or not known.
 */
static const char *method_of(const struct qp_tensor *t)
{
    return t->calibrate && strcmp(t->calibrate, "minmax") != 0 ? t->calibrate : "";
}

static bool rows_alike(const void *ctx, size_t a, size_t b)
{
    const struct qplan_report *report = ctx;
    const struct qp_tensor *x = report->rows[a].tested->tensor;
    const struct qp_tensor *y = report->rows[b].tested->tensor;
    if (!x->scheme != !y->scheme || x->storage != y->storage ||
        x->entry->storage != y->entry->storage)
        return false;
    if (x->scheme &&
        (!qp_scheme_equal(x->scheme, y->scheme) || strcmp(method_of(x), method_of(y)) != 0))
        return false;
    const char *reason = report->rows[a].reason, *other = report->rows[b].reason;
    if (!reason != !other || (reason && strcmp(reason, other) != 0))
        return false;
    return qp_same_shape(x->shape, x->rank, y->shape, y->rank);
}

/* The rows that share a line: the first one, and behind each row the next one of its line. */
struct line {
    size_t first, count;
    const size_t *next; /* NULL = there is only one */
};

#define NO_ROW SIZE_MAX

static size_t next_row(const struct line *line, size_t i)
{
    return line->next ? line->next[i] : NO_ROW;
}

/*
 * How bad a row is by a metric. A number that there is not is the lowest: so is the ratio of an
 * error without any signal.
 */
static double badness(const struct qp_row *row, const struct qp_metric *metric)
{
    const struct qp_figures figures = qp_row_figures(row);
    const struct qp_value value = qp_metric_value(metric, &figures);
    const double number = value.known ? value.number : -INFINITY;
    return metric->low_is_bad ? -number : number;
}

/* Of each number that lines show, the worst of the rows; and whether all rows are proven. */
static void put_numbers(struct printer *p, const struct line *line)
{
    const struct qplan_report *report = p->report;
    bool proven = true;
    for (size_t k = 0; k < qp_n_metrics; k++) {
        const struct qp_metric *metric = &qp_metrics[k];
        double worst = -INFINITY;
        if (!(metric->shown & QP_IN_LINES))
            continue;
        for (size_t i = line->first; i != NO_ROW; i = next_row(line, i)) {
            const struct qp_measure *m = report->rows[i].tested->measure;
            if (metric->needs == QP_NEEDS_WEIGHTS && !(m && m->weight_unit > 0))
                continue;
            const double bad = badness(&report->rows[i], metric);
            worst = bad > worst ? bad : worst;
        }
        put_brief(p->w, metric->name, metric->low_is_bad ? -worst : worst);
    }
    for (size_t i = line->first; i != NO_ROW; i = next_row(line, i))
        proven &= report->rows[i].tested->proven;
    if (report->source_path && !proven)
        qp_puts(p->w, "  NOT PROVEN");
}

/* What stands behind the name. */
static void put_facts(struct printer *p, const struct line *line)
{
    const struct qp_row *row = &p->report->rows[line->first];
    const struct qp_tensor *t = row->tested->tensor;
    char scheme[QPLAN_SCHEME_TEXT], shape[1536]; /* room for any: 64 numbers */
    qp_puts(p->w, "  ");
    if (line->count > 1)
        qp_printf(p->w, "%zu x ", line->count);
    qp_puts(p->w, qp_format_list(shape, sizeof shape, t->shape, t->rank));
    qp_printf(p->w, "  %s  ", qplan_storage_name(t->storage));
    if (t->scheme) {
        qplan_scheme_format(t->scheme, scheme);
        qp_printf(p->w, "%s%s%s", scheme, *method_of(t) ? "  " : "", method_of(t));
        put_numbers(p, line);
        qp_puts(p->w, "\n");
    } else {
        qp_printf(p->w, "kept%s%s\n", row->reason ? ": " : "", row->reason ? row->reason : "");
    }
}

static void put_row(struct printer *p, size_t i)
{
    const struct qp_tensor *view = p->report->rows[i].tested->tensor;
    const struct line line = {.first = i, .count = 1};
    qp_put_name(p->w, view);
    put_facts(p, &line);
}

static enum qplan_status put_patterns(struct printer *p, struct qplan_error *err)
{
    const size_t n_rows = p->report->n_rows;
    struct qp_groups groups;
    QP_TRY(qp_groups_make(&groups, &p->source, n_rows, err));
    size_t *next = qp_alloc(n_rows, sizeof *next), *first = qp_alloc(groups.n, sizeof *first);
    enum qplan_status status = QPLAN_OK;
    if (!next || !first)
        status = qp_fail_memory(err, "report", n_rows * sizeof *next);
    for (size_t i = 0; status == QPLAN_OK && i < groups.n; i++)
        first[i] = NO_ROW;
    for (size_t i = n_rows; status == QPLAN_OK && i-- > 0;) {
        next[i] = first[groups.of[i]];
        first[groups.of[i]] = i;
    }
    for (size_t i = 0; status == QPLAN_OK && i < groups.n; i++) {
        const struct line line = {first[i], groups.groups[i].count, next};
        qp_put_pattern(p->w, &groups.groups[i], &p->source);
        put_facts(p, &line);
    }
    qp_free(first);
    qp_free(next);
    qp_groups_free(&groups);
    return status;
}

/* ---- The worst five, and what stayed big -------------------------------------------------------
 */

#define WORST 5

/* The indices of at most WORST rows with the highest score, highest first; NAN skips a row. */
static size_t top_rows(const struct printer *p,
                       double (*score)(const struct printer *, const struct qp_row *),
                       size_t top[WORST])
{
    const struct qplan_report *report = p->report;
    size_t n = 0;
    for (size_t i = 0; i < report->n_rows; i++) {
        double value = score(p, &report->rows[i]);
        size_t at = n;
        if (isnan(value))
            continue;
        while (at > 0 && value > score(p, &report->rows[top[at - 1]]))
            at--;
        if (at == WORST)
            continue;
        n = n < WORST ? n + 1 : n;
        memmove(&top[at + 1], &top[at], (n - 1 - at) * sizeof *top);
        top[at] = i;
    }
    return n;
}

static double error_score(const struct printer *p, const struct qp_row *row)
{
    return row->facts ? badness(row, p->bad_by) : NAN;
}

static double kept_score(const struct printer *p, const struct qp_row *row)
{
    (void)p;
    const uint64_t n_bytes = qp_row_figures(row).sums.source_bytes;
    return row->facts || n_bytes == 0 ? NAN : (double)n_bytes;
}

static void put_worst(struct printer *p)
{
    size_t top[WORST];
    size_t n = top_rows(p, error_score, top);
    if (n < 2)
        return;
    qp_puts(p->w, p->report->source_path ? "\nworst by sqnr_db:\n" : "\nlargest error bounds:\n");
    for (size_t i = 0; i < n; i++) {
        qp_puts(p->w, "  ");
        put_row(p, top[i]);
    }
}

static void put_kept(struct printer *p)
{
    const struct qplan_report *report = p->report;
    size_t top[WORST];
    if (report->n_kept == 0 || report->total.sums.quantized == 0)
        return;
    qp_puts(p->w, "\nnot quantized:\n");
    for (size_t i = 0; i < report->n_kept; i++) {
        qp_printf(p->w, "  %s: %" PRIu64 " tensor%s, ", report->kept[i].reason,
                  report->kept[i].tensors, report->kept[i].tensors == 1 ? "" : "s");
        put_bytes(p->w, report->kept[i].bytes);
        qp_puts(p->w, "\n");
    }
    size_t n = top_rows(p, kept_score, top);
    qp_puts(p->w, n ? "  largest: " : "");
    for (size_t i = 0; i < n; i++) {
        const struct qp_row *row = &report->rows[top[i]];
        const struct qp_tensor *view = row->tested->tensor;
        qp_puts(p->w, i ? ", " : "");
        qp_put_name(p->w, view);
        qp_puts(p->w, " ");
        put_bytes(p->w, qp_row_figures(row).sums.source_bytes);
    }
    qp_puts(p->w, n ? "\n" : "");
}

/* ---- Totals ------------------------------------------------------------------------------------
 */

/* The metrics that the summary shows: those of the stored file, or those of its errors. */
static void put_summary(struct printer *p, bool of_errors)
{
    for (size_t i = 0; i < qp_n_metrics; i++) {
        const struct qp_metric *metric = &qp_metrics[i];
        const struct qp_value value = qp_metric_value(metric, &p->report->total);
        const bool is_shown =
            metric->shown & QP_IN_SUMMARY && !(metric->shown & QP_IF_ANY && value.number == 0);
        if (is_shown && of_errors == (metric->needs >= QP_NEEDS_SOURCE))
            put_value(p->w, metric, value);
    }
}

/* What is proven, or what is not. */
static void put_verdict(struct printer *p)
{
    const struct qplan_report *report = p->report;
    const char *recipe = qp_report_recipe(report);
    const uint64_t unproven = report->total.sums.unproven;
    if (!report->proof.holds && unproven)
        qp_printf(p->w, "\nNOT PROVEN: %" PRIu64 " tensor%s measured alone", unproven,
                  unproven == 1 ? " was" : "s were");
    else if (!report->proof.holds)
        qp_puts(p->w, "\nNOT PROVEN");
    else if (recipe)
        qp_printf(p->w, "\nproven: every code and parameter is what %s gives", recipe);
    else
        qp_printf(p->w, "\nproven: every element is within its bound%s%s%s",
                  report->total.errors.clipped ? ", or clipped to the nearer end" : "",
                  qp_report_is_rounded(report) ? ", or its code is what the Hessian gives" : "",
                  qp_report_is_unknown(report) ? ", by parameters that were not computed again"
                                               : "");
}

static void put_totals(struct printer *p)
{
    const struct qplan_report *report = p->report;
    const struct qplan_totals *t = &report->total.sums;
    qp_printf(p->w, "\ntotal: %" PRIu64 " tensors, %" PRIu64 " quantized, %" PRIu64 " kept, ",
              t->tensors, t->quantized, t->kept);
    put_bytes(p->w, t->data_bytes);
    if (t->quantized) {
        qp_puts(p->w, " from ");
        put_bytes(p->w, t->source_bytes);
        put_brief(p->w, "ratio", t->ratio.known ? t->ratio.value : NAN);
        put_brief(p->w, "ideal", t->ratio_ideal.known ? t->ratio_ideal.value : NAN);
        put_summary(p, false);
    }
    if (report->source_path && t->quantized) {
        qp_puts(p->w, "\nerror:");
        put_summary(p, true);
    }
    if (report->source_path)
        put_verdict(p);
    if (qp_report_is_unweighted(report))
        qp_puts(p->w, "\nmse without importance lowers the error of weights, which need not help a "
                      "language model; importance and Hessians do");
    qp_puts(p->w, "\n");
}

/* Names that a list has before it counts the rest. */
#define MOST_SKIPPED 5

/* What gates did not look at because it is small. */
static void put_skipped(struct printer *p, const struct qp_gate_result *r)
{
    size_t n = 0;
    for (size_t i = 0; i < p->report->n_rows; i++) {
        const struct qp_row *row = &p->report->rows[i];
        if (!qp_gate_skipped(r, row) || n++ >= MOST_SKIPPED)
            continue;
        if (n == 1)
            qp_printf(p->w, "gate %s: tensors of fewer than %" PRIu64 " elements are skipped: ",
                      r->gate->text, r->min_elements);
        qp_puts(p->w, n == 1 ? "" : ", ");
        qp_put_name(p->w, row->tested->tensor);
    }
    if (n > MOST_SKIPPED)
        qp_printf(p->w, " and %zu more", n - MOST_SKIPPED);
    qp_puts(p->w, n ? "\n" : "");
}

static void put_head(struct printer *p)
{
    const struct qplan_report *report = p->report;
    char shown[512];
    qp_printf(p->w, "%s: %s, ", qp_escape(shown, sizeof shown, report->path, strlen(report->path)),
              strcmp(report->format, "qplan") == 0 ? "quantized by qplan" : report->format);
    put_bytes(p->w, report->total.sums.file_bytes);
    qp_printf(p->w, ", header %" PRIu64 " bytes\n", report->header_bytes);
    if (report->source_path)
        qp_printf(p->w, "against %s\n",
                  qp_escape(shown, sizeof shown, report->source_path, strlen(report->source_path)));
    qp_puts(p->w, "\n");
}

enum qplan_status qplan_report_write_text(const struct qplan_report *report, bool every_tensor,
                                          qplan_write_fn write, void *ctx, struct qplan_error *err)
{
    struct qp_writer w;
    fenv_t callers;
    qp_fenv_enter(&callers);
    qp_writer_stream(&w, write, ctx);
    const char *bad_by = report->source_path ? "sqnr_db" : "bound";
    struct printer p = {.report = report,
                        .w = &w,
                        .source = {report, row_name, rows_alike},
                        .bad_by = qp_metric_find(bad_by, strlen(bad_by))};
    put_head(&p);
    for (size_t i = 0; every_tensor && i < report->n_rows; i++)
        put_row(&p, i);
    enum qplan_status status = every_tensor ? QPLAN_OK : put_patterns(&p, err);
    put_worst(&p);
    put_kept(&p);
    put_totals(&p);
    for (size_t i = 0; i < report->n_gates; i++)
        put_skipped(&p, &report->gates[i]);
    enum qplan_status finish = qp_writer_finish(&w, "report", status == QPLAN_OK ? err : NULL);
    qp_writer_free(&w);
    qp_fenv_leave(&callers);
    return status == QPLAN_OK ? finish : status;
}
