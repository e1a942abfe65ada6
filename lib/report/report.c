/*
 * report.c - building a report: one row per tensor, totals, and the verdict. What is proven is
 * decided in lib/verify/proof.c; here it becomes rows and sums.
 */
#include "report.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/base/glob.h"
#include "lib/base/pool.h"

#include <string.h>

/* ---- Rows --------------------------------------------------------------------------------------
 */

struct builder {
    const struct qp_report_request *request;
    const struct qplan_run *run;
    struct qplan_report *report;
    struct qplan_error *err;
};

static bool is_included(const struct qp_report_request *request, const struct qp_tensor *t)
{
    for (size_t i = 0; i < request->n_include; i++) {
        if (qp_glob_match(request->include[i], t->name, t->name_len))
            return true;
    }
    return request->n_include == 0;
}

static enum qplan_status check_includes(const struct builder *b)
{
    const struct qp_report_request *q = b->request;
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < q->n_include; i++) {
        bool used = false;
        QP_TRY(qp_glob_check(q->include[i], b->err));
        for (size_t k = 0; k < q->file->n_tensors && !used; k++) {
            const struct qp_tensor *t = &q->file->tensors[k];
            used = qp_glob_match(q->include[i], t->name, t->name_len);
        }
        if (!used)
            return qp_fail(b->err, QPLAN_ERR_INVALID, q->file->source.listing.shown,
                           "include pattern %s matches no tensor",
                           qp_quote(quoted, q->include[i], strlen(q->include[i])));
    }
    return QPLAN_OK;
}

/* Without a plan only the tensor itself can say why it was not quantized. */
static const char *guess_reason(const struct qp_tensor *t)
{
    const char *unfit = qp_unquantizable(t);
    return unfit ? unfit : "not quantized";
}

/* What the plan says of a tensor; both lists are in name order, and mostly have the same names. */
static const struct qp_plan_tensor *planned_as(const struct qplan_plan *plan,
                                               const struct qp_tensor *t, size_t i)
{
    const struct qp_plan_tensor *planned = &plan->tensors[i];
    if (i < plan->n_tensors && qp_compare_text(planned->source->name, planned->source->name_len,
                                               t->name, t->name_len) == 0)
        return planned;
    return qp_plan_find(plan, t->name, t->name_len);
}

/* Rule and reason of a row, and room for the facts of a quantized one. */
static enum qplan_status fill_row(struct builder *b, struct qp_row *row)
{
    const struct qp_tensor *t = row->tested->tensor;
    const struct qplan_plan *plan = b->request->plan;
    row->restored = b->request->restored && b->request->restored[row - b->report->rows];
    if (plan) {
        const struct qp_plan_tensor *planned = planned_as(plan, t, (size_t)(row - b->report->rows));
        row->rule = planned->rule;
        row->reason = planned->reason;
    } else if (!t->scheme && !row->restored) {
        row->reason = guess_reason(t);
    }
    if (!t->scheme)
        return QPLAN_OK;
    row->facts = qp_arena_alloc(&b->report->arena, 1, sizeof *row->facts);
    return row->facts ? QPLAN_OK : qp_fail_memory(b->err, "report", sizeof *row->facts);
}

static enum qplan_status make_rows(struct builder *b)
{
    const struct qplan_checkpoint *file = b->request->file;
    struct qplan_report *report = b->report;
    struct qp_proof *proof = &report->proof;
    report->rows = qp_alloc(file->n_tensors, sizeof *report->rows);
    proof->tested = qp_alloc(file->n_tensors, sizeof *proof->tested);
    if (!report->rows || !proof->tested)
        return qp_fail_memory(b->err, "report", file->n_tensors * sizeof *report->rows);
    QP_TRY(check_includes(b));
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (!is_included(b->request, &file->tensors[i]))
            continue;
        struct qp_row *row = &report->rows[report->n_rows++];
        row->tested = &proof->tested[proof->n_tested++];
        row->tested->tensor = &file->tensors[i];
        QP_TRY(fill_row(b, row));
    }
    return QPLAN_OK;
}

/* A comparison reads all zero points, and those of a plan's file have just been written. */
static enum qplan_status read_facts(struct builder *b)
{
    const bool zeros_are_read = b->request->source || b->request->plan;
    struct qp_facts_reader *reader;
    enum qplan_status status = QPLAN_OK;
    QP_TRY(qp_facts_open(&reader, b->request->file, b->err));
    for (size_t i = 0; i < b->report->n_rows && status == QPLAN_OK; i++) {
        const struct qp_row *row = &b->report->rows[i];
        if (row->facts)
            status = qp_facts_read(reader, row->tested->tensor, row->facts, b->err);
        if (row->facts && status == QPLAN_OK && !zeros_are_read)
            status = qp_facts_check_zeros(reader, row->tested->tensor, b->err);
    }
    qp_facts_close(reader);
    return status == QPLAN_OK ? qp_source_unchanged(&b->request->file->source, b->err) : status;
}

/* ---- Totals ------------------------------------------------------------------------------------
 */

static enum qplan_status add_kept(struct qplan_report *report, const struct qp_row *row,
                                  uint64_t n_bytes, struct qplan_error *err)
{
    size_t i = 0;
    while (i < report->n_kept && strcmp(report->kept[i].reason, row->reason) != 0)
        i++;
    if (i == report->n_kept) {
        struct qp_kept_reason *kept =
            qp_arena_grow(&report->arena, report->kept, report->n_kept, sizeof *kept);
        if (!kept)
            return qp_fail_memory(err, "report", sizeof *kept);
        kept[report->n_kept++] = (struct qp_kept_reason){.reason = row->reason};
        report->kept = kept;
    }
    report->kept[i].tensors++;
    report->kept[i].bytes += n_bytes;
    return QPLAN_OK;
}

static struct qplan_maybe total_of(const struct qplan_report *report, const char *metric)
{
    const struct qp_value value =
        qp_metric_value(qp_metric_find(metric, strlen(metric)), &report->total);
    return (struct qplan_maybe){value.number, value.known};
}

static enum qplan_status add_totals(struct qplan_report *report, struct qplan_error *err)
{
    struct qp_figures *total = &report->total;
    total->facts = (struct qp_param_facts){.half_step = -1, .bound = -1};
    total->errors = (struct qp_measure){.max_abs = -1};
    total->has_facts = true;
    total->has_errors = report->source_path != NULL;
    total->missing = report->proof.missing;
    total->sums.unproven = report->proof.unproven;
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct qp_figures f = qp_row_figures(&report->rows[i]);
        qp_figures_add(total, &f);
        if (f.sums.kept)
            QP_TRY(add_kept(report, &report->rows[i], f.sums.kept_bytes, err));
    }
    total->sums.ratio_ideal = total_of(report, "ratio_ideal");
    total->sums.ratio = total_of(report, "ratio");
    total->sums.bpw = total_of(report, "bpw");
    return QPLAN_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

enum qplan_status qp_report_warn(struct qplan_report *report, const struct qp_warnings *warnings,
                                 struct qplan_error *err)
{
    for (size_t i = 0; i < warnings->n; i++) {
        const struct qp_warning *w = &warnings->list[i];
        QP_TRY(qp_warn(&report->warnings, &report->arena, w->code, w->subject, w->message, err));
    }
    return QPLAN_OK;
}

static enum qplan_status describe_files(struct builder *b)
{
    const struct qp_report_request *q = b->request;
    struct qplan_report *report = b->report;
    report->command = q->command;
    report->format = q->file->format ? q->file->format->name : "safetensors";
    report->n_files = q->file->source.listing.n_files;
    for (size_t i = 0; i < report->n_files; i++)
        report->header_bytes += q->file->source.files[i].header_bytes;
    report->total.sums.file_bytes = q->file->source.n_bytes;
    report->path = qp_arena_join(&report->arena, q->path, strlen(q->path), "");
    if (q->source) {
        const char *path = q->source->source.path;
        report->source_path = qp_arena_join(&report->arena, path, strlen(path), "");
        report->source_file_bytes = q->source->source.n_bytes;
    }
    if (!report->path || (q->source && !report->source_path))
        return qp_fail_memory(b->err, "report", strlen(q->path));
    return qp_report_warn(report, q->plan ? &q->plan->warnings : &q->file->source.warnings, b->err);
}

/* Where nothing tells how parameters were chosen, a proof says less of them. */
static enum qplan_status warn_of_unknown(struct builder *b)
{
    const struct qp_report_request *q = b->request;
    struct qplan_report *report = b->report;
    if (!qp_report_is_unknown(report))
        return QPLAN_OK;
    const bool recorded = qp_has_records(&q->file->source.listing);
    return qp_warn(&report->warnings, &report->arena, recorded ? "unknown-method" : "no-record",
                   report->path,
                   recorded ? "some records do not say how parameters were chosen: these were not "
                              "computed again"
                            : "no record says how parameters were chosen: they were not computed "
                              "again",
                   b->err);
}

/*
 * A gate that fails does not hide what the proof has found. What keeps the report from being made,
 * even after an offence, is told in its place: PROOF promises a report.
 */
static enum qplan_status judge(struct builder *b)
{
    const struct qp_report_request *q = b->request;
    struct qp_proof *proof = &b->report->proof;
    struct qplan_error gate_error;
    enum qplan_status status = QPLAN_OK;
    QP_TRY(qp_gates_check_rows(q->gates, q->n_gates, b->report, b->err));
    if (q->source) {
        proof->file = q->file;
        proof->source = q->source;
        proof->strict = q->prove;
        proof->exact = q->exact;
        proof->allow_unquantized = q->allow_unquantized;
        proof->allow_unproven = q->allow_unproven;
        proof->with = q->with;
        proof->weighed_by = q->weighed_by;
        proof->plan = q->plan;
        status = qp_prove(proof, b->run, b->err);
        if (status != QPLAN_OK && status != QPLAN_ERR_PROOF)
            return status;
    }
    if (q->source)
        QP_TRY(warn_of_unknown(b));
    QP_TRY(add_totals(b->report, b->err));
    enum qplan_status gates = qp_gates_evaluate(b->report, q->gates, q->n_gates, &gate_error);
    if (gates == QPLAN_OK || gates == status)
        return status;
    if (b->err)
        *b->err = gate_error;
    return gates;
}

enum qplan_status qp_report_make(struct qplan_report **out, const struct qp_report_request *request,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    *out = NULL;
    struct qplan_report *report = qp_alloc(1, sizeof *report);
    if (!report)
        return qp_fail_memory(err, "report", sizeof *report);
    struct builder b = {.request = request, .run = run, .report = report, .err = err};
    fenv_t callers;
    qp_fenv_enter(&callers);
    enum qplan_status status = describe_files(&b);
    if (status == QPLAN_OK)
        status = make_rows(&b);
    if (status == QPLAN_OK)
        status = read_facts(&b);
    if (status == QPLAN_OK)
        status = judge(&b);
    qp_fenv_leave(&callers);
    if (status == QPLAN_OK || status == QPLAN_ERR_PROOF)
        *out = report;
    else
        qplan_report_free(report);
    return status;
}

enum qplan_status qp_report_notes(struct qplan_report *report, bool all_threads, bool synced,
                                  struct qplan_error *err)
{
    if (!all_threads)
        QP_TRY(qp_warn(&report->warnings, &report->arena, NULL, report->path,
                       "the system refused threads: fewer have done the work", err));
    if (!synced)
        QP_TRY(qp_warn(&report->warnings, &report->arena, NULL, report->path,
                       "this file system cannot sync: a power cut may lose the file", err));
    return QPLAN_OK;
}

void qplan_report_free(struct qplan_report *report)
{
    if (!report)
        return;
    qp_proof_free(&report->proof);
    qp_free(report->rows);
    qplan_checkpoint_close(report->owned);
    qp_arena_free(&report->arena);
    qp_free(report);
}

const struct qplan_totals *qplan_report_totals(const struct qplan_report *report)
{
    return &report->total.sums;
}

size_t qplan_report_warning_count(const struct qplan_report *report)
{
    return report->warnings.n;
}

const char *qplan_report_warning(const struct qplan_report *report, size_t i)
{
    return i < report->warnings.n ? report->warnings.list[i].text : NULL;
}
