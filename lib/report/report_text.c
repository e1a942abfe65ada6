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
};

/* ---- Small parts -------------------------------------------------------------------------------
 */

/* A number with 3 significant digits, for reading. */
static void put_brief(struct qp_writer *w, const char *label, struct qplan_maybe value)
{
    char text[QP_F64_TEXT];
    if (!value.known || !isfinite(value.value))
        return;
    qp_printf(w, "  %s ", label);
    (void)snprintf(text, sizeof text, "%.3g", value.value);
    for (char *c = text; *c; c++) { /* the decimal point of any locale becomes ours */
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    }
    qp_puts(w, text);
}

static void put_bytes(struct qp_writer *w, uint64_t n_bytes)
{
    char text[QP_F64_TEXT];
    qp_puts(w, qp_format_bytes(text, n_bytes));
}

static void put_name(struct qp_writer *w, const struct qp_tensor *t)
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
    *n = report->rows[i].tensor->name_len;
    return report->rows[i].tensor->name;
}

static bool rows_alike(const void *ctx, size_t a, size_t b)
{
    const struct qplan_report *report = ctx;
    const struct qp_tensor *x = report->rows[a].tensor, *y = report->rows[b].tensor;
    if (!x->scheme != !y->scheme || x->storage != y->storage ||
        x->parts[0].entry->storage != y->parts[0].entry->storage)
        return false;
    if (x->scheme && !qp_scheme_equal(x->scheme, y->scheme))
        return false;
    const char *reason = report->rows[a].reason, *other = report->rows[b].reason;
    if (!reason != !other || (reason && strcmp(reason, other) != 0))
        return false;
    return qp_same_shape(x->shape, x->rank, y->shape, y->rank);
}

/* How bad a row is: by its signal to noise if measured, else by its bound. */
static double badness(const struct qplan_report *report, const struct qp_row *row)
{
    if (!report->source_path)
        return row->facts->bound;
    if (!row->measure)
        return -INFINITY;
    struct qplan_maybe sqnr = qp_sqnr_db(row->measure);
    return sqnr.known ? -sqnr.value : -INFINITY;
}

/* What a line says of the rows that it stands for: the worst of each number. */
struct line {
    double bound, max_abs;
    struct qplan_maybe sqnr_db;
    bool unproven;
};

static void add_to_line(struct line *line, const struct qp_row *row)
{
    if (!row->facts)
        return;
    line->bound = row->facts->bound > line->bound ? row->facts->bound : line->bound;
    line->unproven |= !row->proven;
    const struct qp_measure *m = row->measure;
    if (!m)
        return;
    struct qplan_maybe sqnr = qp_sqnr_db(m);
    line->max_abs = m->max_abs > line->max_abs ? m->max_abs : line->max_abs;
    if (sqnr.known && (!line->sqnr_db.known || sqnr.value < line->sqnr_db.value))
        line->sqnr_db = sqnr;
}

static const struct line empty_line = {.bound = -1, .max_abs = -1};

/* What stands behind the name. */
static void put_facts(struct printer *p, const struct qp_row *row, const struct line *line,
                      size_t count)
{
    const struct qp_tensor *t = row->tensor;
    char scheme[QPLAN_SCHEME_TEXT], shape[1536]; /* room for any: 64 numbers */
    qp_puts(p->w, "  ");
    if (count > 1)
        qp_printf(p->w, "%zu x ", count);
    qp_puts(p->w, qp_format_list(shape, sizeof shape, t->shape, t->rank));
    qp_printf(p->w, "  %s  ", qplan_storage_name((enum qplan_storage)t->storage));
    if (!t->scheme) {
        qp_printf(p->w, "kept%s%s\n", row->reason ? ": " : "", row->reason ? row->reason : "");
        return;
    }
    qplan_scheme_format(t->scheme, scheme);
    struct qp_sizes sizes = qp_row_sizes(row);
    qp_puts(p->w, scheme);
    put_brief(
        p->w, "bpw",
        qp_ratio(8.0 * (double)(sizes.code_bytes + sizes.param_bytes), (double)sizes.elements));
    put_brief(p->w, "bound", qp_not_negative(line->bound));
    if (p->report->source_path) {
        put_brief(p->w, "max_abs", qp_not_negative(line->max_abs));
        put_brief(p->w, "sqnr_db", line->sqnr_db);
        qp_puts(p->w, line->unproven ? "  NOT PROVEN" : "");
    }
    qp_puts(p->w, "\n");
}

static void put_row(struct printer *p, const struct qp_row *row)
{
    struct line line = empty_line;
    add_to_line(&line, row);
    put_name(p->w, row->tensor);
    put_facts(p, row, &line, 1);
}

static enum qplan_status put_patterns(struct printer *p, struct qplan_error *err)
{
    const struct qplan_report *report = p->report;
    struct qp_groups groups;
    QP_TRY(qp_groups_make(&groups, &p->source, report->n_rows, err));
    struct line *lines = qp_alloc(groups.n, sizeof *lines);
    enum qplan_status status = QPLAN_OK;
    if (!lines)
        status = qp_fail_memory(err, "report", groups.n * sizeof *lines);
    for (size_t i = 0; lines && i < groups.n; i++)
        lines[i] = empty_line;
    for (size_t i = 0; lines && i < report->n_rows; i++)
        add_to_line(&lines[groups.of[i]], &report->rows[i]);
    for (size_t i = 0; lines && i < groups.n; i++) {
        const struct qp_group *group = &groups.groups[i];
        qp_put_pattern(p->w, group, &p->source);
        put_facts(p, &report->rows[group->first], &lines[i], group->count);
    }
    qp_free(lines);
    qp_groups_free(&groups);
    return status;
}

/* ---- The worst five, and what stayed big -------------------------------------------------------
 */

#define WORST 5

/* The indices of at most WORST rows with the highest score, highest first; NAN skips a row. */
static size_t top_rows(const struct qplan_report *report,
                       double (*score)(const struct qplan_report *, const struct qp_row *),
                       size_t top[WORST])
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_rows; i++) {
        double value = score(report, &report->rows[i]);
        size_t at = n;
        if (isnan(value))
            continue;
        while (at > 0 && value > score(report, &report->rows[top[at - 1]]))
            at--;
        if (at == WORST)
            continue;
        n = n < WORST ? n + 1 : n;
        memmove(&top[at + 1], &top[at], (n - 1 - at) * sizeof *top);
        top[at] = i;
    }
    return n;
}

static double error_score(const struct qplan_report *report, const struct qp_row *row)
{
    return row->facts ? badness(report, row) : NAN;
}

static double kept_score(const struct qplan_report *report, const struct qp_row *row)
{
    (void)report;
    uint64_t bytes = qp_tensor_bytes(row->tensor);
    return row->facts || bytes == 0 ? NAN : (double)bytes;
}

static void put_worst(struct printer *p)
{
    size_t top[WORST];
    size_t n = top_rows(p->report, error_score, top);
    if (n < 2)
        return;
    qp_puts(p->w, p->report->source_path ? "\nworst by sqnr_db:\n" : "\nlargest error bounds:\n");
    for (size_t i = 0; i < n; i++) {
        qp_puts(p->w, "  ");
        put_row(p, &p->report->rows[top[i]]);
    }
}

static void put_kept(struct printer *p)
{
    const struct qplan_report *report = p->report;
    size_t top[WORST];
    if (report->n_kept == 0 || report->totals.quantized == 0)
        return;
    qp_puts(p->w, "\nnot quantized:\n");
    for (size_t i = 0; i < report->n_kept; i++) {
        qp_printf(p->w, "  %s: %" PRIu64 " tensor%s, ", report->kept[i].reason,
                  report->kept[i].tensors, report->kept[i].tensors == 1 ? "" : "s");
        put_bytes(p->w, report->kept[i].bytes);
        qp_puts(p->w, "\n");
    }
    size_t n = top_rows(report, kept_score, top);
    qp_puts(p->w, n ? "  largest: " : "");
    for (size_t i = 0; i < n; i++) {
        const struct qp_tensor *t = report->rows[top[i]].tensor;
        qp_puts(p->w, i ? ", " : "");
        put_name(p->w, t);
        qp_puts(p->w, " ");
        put_bytes(p->w, qp_tensor_bytes(t));
    }
    qp_puts(p->w, n ? "\n" : "");
}

/* ---- Totals ------------------------------------------------------------------------------------
 */

static void put_totals(struct printer *p)
{
    const struct qplan_report *report = p->report;
    const struct qplan_totals *t = &report->totals;
    qp_printf(p->w, "\ntotal: %" PRIu64 " tensors, %" PRIu64 " quantized, %" PRIu64 " kept, ",
              t->tensors, t->quantized, t->kept);
    put_bytes(p->w, t->data_bytes);
    if (t->quantized) {
        qp_puts(p->w, " from ");
        put_bytes(p->w, t->source_bytes);
        put_brief(p->w, "ratio", t->ratio);
        put_brief(p->w, "ideal", t->ratio_ideal);
        put_brief(p->w, "bpw", t->bpw);
        put_brief(p->w, "bound", qp_not_negative(report->total_facts.bound));
    }
    if (report->source_path && t->quantized) {
        const struct qp_measure *m = &report->total_measure;
        qp_puts(p->w, "\nerror:");
        put_brief(p->w, "max_abs", qp_not_negative(m->max_abs));
        put_brief(p->w, "rms", qp_rms(m, report->measured_elements));
        put_brief(p->w, "sqnr_db", qp_sqnr_db(m));
        put_brief(p->w, "cosine", qp_cosine(m));
        qp_printf(p->w, "  clipped %" PRIu64 "  nonfinite %" PRIu64, m->clipped, m->nonfinite);
    }
    if (report->source_path)
        qp_puts(p->w,
                report->proven ? "\nproven: every element is within its bound" : "\nNOT PROVEN");
    qp_puts(p->w, "\n");
}

static void put_head(struct printer *p)
{
    const struct qplan_report *report = p->report;
    char shown[512];
    qp_printf(p->w, "%s: %s, ", qp_escape(shown, sizeof shown, report->path, strlen(report->path)),
              strcmp(report->format, "qplan") == 0 ? "quantized by qplan" : "safetensors");
    put_bytes(p->w, report->totals.file_bytes);
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
    struct printer p = {report, &w, {report, row_name, rows_alike}};
    put_head(&p);
    for (size_t i = 0; every_tensor && i < report->n_rows; i++)
        put_row(&p, &report->rows[i]);
    enum qplan_status status = every_tensor ? QPLAN_OK : put_patterns(&p, err);
    put_worst(&p);
    put_kept(&p);
    put_totals(&p);
    enum qplan_status finish = qp_writer_finish(&w, "report", status == QPLAN_OK ? err : NULL);
    qp_writer_free(&w);
    qp_fenv_leave(&callers);
    return status == QPLAN_OK ? finish : status;
}
