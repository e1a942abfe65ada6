/*
 * report.c - building a report: one row per logical tensor, totals, and the proof.
 */
#include "report.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/glob.h"
#include "lib/base/pool.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Numbers -----------------------------------------------------------------------------------
 */

static uint64_t entry_bytes(const struct qplan_entry *entry)
{
    return entry ? entry->end - entry->begin : 0;
}

static uint64_t elements_of(const struct qp_logical *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

struct qp_sizes qp_row_sizes(const struct qp_row *row)
{
    const struct qp_logical *t = &row->tensor;
    const struct qp_native_tensor *native = t->native;
    struct qp_sizes sizes = {.elements = elements_of(t), .source_bytes = entry_bytes(t->entry)};
    if (!native) {
        sizes.code_bytes = row->restored ? sizes.source_bytes : 0;
        return sizes;
    }
    sizes.sets = qp_entry_elements(native->part[QP_SCALE]);
    sizes.source_bytes = sizes.elements * (qplan_storage_bits(t->source) / 8);
    sizes.code_bytes = entry_bytes(native->part[QP_CODES]);
    sizes.param_bytes =
        entry_bytes(native->part[QP_SCALE]) + entry_bytes(native->part[QP_ZERO_POINT]);
    return sizes;
}

struct qplan_maybe qp_ratio(double a, double b)
{
    return b == 0 ? (struct qplan_maybe){0, false} : (struct qplan_maybe){a / b, true};
}

struct qplan_maybe qp_not_negative(double value)
{
    return (struct qplan_maybe){value, !(value < 0)};
}

uint64_t qp_measured_elements(uint64_t elements, const struct qp_measure *m)
{
    return elements - m->nonfinite;
}

struct qplan_maybe qp_rms(const struct qp_measure *m, uint64_t elements)
{
    struct qplan_maybe mean = qp_ratio(m->e2, (double)qp_measured_elements(elements, m));
    mean.value = sqrt(mean.value);
    return mean;
}

struct qplan_maybe qp_sqnr_db(const struct qp_measure *m)
{
    if (m->e2 == 0 || m->x2 == 0)
        return (struct qplan_maybe){0, false};
    return (struct qplan_maybe){10 * log10(m->x2 / m->e2), true};
}

/* The sum of x x' is not measured: (x - x')^2 = x^2 - 2 x x' + x'^2 gives it. */
struct qplan_maybe qp_cosine(const struct qp_measure *m)
{
    return qp_ratio((m->x2 + m->y2 - m->e2) / 2, sqrt(m->x2) * sqrt(m->y2));
}

/* ---- Rows --------------------------------------------------------------------------------------
 */

struct builder {
    const struct qp_report_request *request;
    const struct qplan_run *run;
    struct qplan_report *report;
    struct qp_pair *pairs; /* one per row, where measured */
    struct qplan_error *err;
    bool failed; /* the proof; err describes the first offender */
};

static bool is_included(const struct qp_report_request *request, const struct qp_logical *t)
{
    for (size_t i = 0; i < request->n_include; i++) {
        if (qp_glob_match(request->include[i], t->entry->name, t->entry->name_len))
            return true;
    }
    return request->n_include == 0;
}

static enum qplan_status check_includes(const struct builder *b)
{
    const struct qp_report_request *q = b->request;
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < q->n_include; i++) {
        struct qp_logical_cursor cursor = {0};
        struct qp_logical t;
        bool used = false;
        QP_TRY(qp_glob_check(q->include[i], b->err));
        while (!used && qp_logical_next(q->file, &cursor, &t))
            used = qp_glob_match(q->include[i], t.entry->name, t.entry->name_len);
        if (!used)
            return qp_fail(b->err, QPLAN_ERR_INVALID, q->file->st.file.shown,
                           "include pattern %s matches no tensor",
                           qp_quote(quoted, q->include[i], strlen(q->include[i])));
    }
    return QPLAN_OK;
}

/* Without a plan only the tensor itself can say why it was not quantized. */
static const char *guess_reason(const struct qp_logical *t)
{
    const char *unfit = qp_unquantizable(t->entry);
    return unfit ? unfit : "not quantized";
}

static enum qplan_status fill_row(struct builder *b, struct qp_row *row)
{
    const struct qplan_plan *plan = b->request->plan;
    row->restored = b->request->restored && b->request->restored[row - b->report->rows];
    if (plan) {
        const struct qp_st *st = &plan->checkpoint->st;
        const struct qplan_entry *entry = row->tensor.entry;
        const struct qplan_entry *found = qp_st_find(st, entry->name, entry->name_len);
        const struct qp_plan_tensor *planned = &plan->tensors[found - st->entries];
        row->rule = planned->rule;
        row->reason = planned->reason;
    } else if (!row->tensor.native && !row->restored) {
        row->reason = guess_reason(&row->tensor);
    }
    if (!row->tensor.native)
        return QPLAN_OK;
    row->facts = qp_arena_alloc(&b->report->arena, 1, sizeof *row->facts);
    return row->facts ? QPLAN_OK : qp_fail_memory(b->err, "report", sizeof *row->facts);
}

static enum qplan_status make_rows(struct builder *b)
{
    const struct qplan_checkpoint *file = b->request->file;
    struct qplan_report *report = b->report;
    struct qp_logical_cursor cursor = {0};
    struct qp_logical t;
    report->rows = qp_alloc(file->st.n_entries, sizeof *report->rows);
    if (!report->rows)
        return qp_fail_memory(b->err, "report", file->st.n_entries * sizeof *report->rows);
    QP_TRY(check_includes(b));
    while (qp_logical_next(file, &cursor, &t)) {
        if (!is_included(b->request, &t))
            continue;
        struct qp_row *row = &report->rows[report->n_rows++];
        row->tensor = t;
        QP_TRY(fill_row(b, row));
    }
    return qp_report_facts(report->rows, report->n_rows, &file->st, b->request->strict_params,
                           b->run ? b->run->threads : 0, b->err);
}

/* ---- The proof ---------------------------------------------------------------------------------
 */

/* The first offender stays in err, the others are only counted by their rows. */
static void QP_PRINTF(3, 4) offend(struct builder *b, const char *subject, const char *fmt, ...)
{
    if (b->failed)
        return;
    b->failed = true;
    if (!b->err)
        return;
    va_list args;
    va_start(args, fmt);
    char text[1024];
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)qp_fail(b->err, QPLAN_ERR_PROOF, subject, "%s", text);
}

static bool fits_source(const struct qp_logical *t, const struct qplan_entry *source)
{
    return t->source == (enum qplan_storage)source->storage &&
           qp_same_shape(t->shape, t->rank, source->shape, source->rank);
}

/* A tensor that is not what the source has: an offence for verify, a wrong source for inspect. */
static enum qplan_status misfit(struct builder *b, const struct qp_row *row, const char *what)
{
    char subject[512];
    const struct qp_report_request *q = b->request;
    (void)qp_st_subject(subject, &q->file->st, row->tensor.entry);
    if (!q->prove)
        return qp_fail(b->err, QPLAN_ERR_INVALID, subject, "%s %s", what, q->source->st.file.shown);
    offend(b, subject, "%s %s", what, q->source->st.file.shown);
    return QPLAN_OK;
}

/* Pairs the rows with the source; a row without a partner has none in .pairs. */
static enum qplan_status pair_rows(struct builder *b, size_t *n_pairs)
{
    const struct qp_st *source = &b->request->source->st;
    for (size_t i = 0; i < b->report->n_rows; i++) {
        struct qp_row *row = &b->report->rows[i];
        const struct qp_logical *t = &row->tensor;
        const struct qplan_entry *entry = qp_st_find(source, t->entry->name, t->entry->name_len);
        row->proven = entry && fits_source(t, entry);
        if (!entry)
            QP_TRY(misfit(b, row, "this tensor is not in the source"));
        else if (!row->proven)
            QP_TRY(misfit(b, row, "type or shape is not that of the source"));
        else
            b->pairs[(*n_pairs)++] = (struct qp_pair){.file = *t, .source = entry};
    }
    return QPLAN_OK;
}

static void describe_offence(struct builder *b, const struct qp_pair *pair)
{
    const struct qp_measure *m = &pair->result;
    char subject[512], at[256], x[QP_F64_TEXT], y[QP_F64_TEXT], bound[QP_F64_TEXT];
    (void)qp_st_subject(subject, &b->request->file->st, pair->file.entry);
    if (m->offences && !pair->file.native) {
        offend(b, subject,
               "a kept tensor differs from the source: expected byte %.0f, found %.0f at byte "
               "%" PRIu64 " of the tensor, and %" PRIu64 " such bytes in all",
               m->x, m->y, m->first, m->offences);
    } else if (m->offences) {
        qp_format_f64(x, m->x);
        qp_format_f64(y, m->y);
        qp_format_f64(bound, m->bound);
        offend(
            b, subject,
            "outside the bound at %s: source %s, decoded %s, allowed error %s, and %" PRIu64
            " such elements in all",
            qp_format_coordinates(at, sizeof at, pair->source->shape, pair->source->rank, m->first),
            x, y, bound, m->offences);
    } else if (m->bad_pads) {
        offend(b, subject, "spare nibbles must be 0: found %" PRIu64 " that are not", m->bad_pads);
    }
}

/* Walks rows and pairs in step: pairs are a subset in the same order. */
static enum qplan_status take_results(struct builder *b, size_t n_pairs)
{
    struct qp_row *row = b->report->rows;
    for (size_t i = 0; i < n_pairs; i++, row++) {
        const struct qp_pair *pair = &b->pairs[i];
        while (row->tensor.entry != pair->file.entry)
            row++;
        if (row->facts) {
            row->measure = qp_arena_alloc(&b->report->arena, 1, sizeof *row->measure);
            if (!row->measure)
                return qp_fail_memory(b->err, "report", sizeof *row->measure);
            *row->measure = pair->result;
        }
        row->measured = true;
        if (pair->result.offences || pair->result.bad_pads) {
            row->proven = false;
            if (b->request->prove)
                describe_offence(b, pair);
            b->failed = true;
        }
    }
    return QPLAN_OK;
}

static void find_missing(struct builder *b)
{
    const struct qp_st *source = &b->request->source->st;
    const struct qp_st *file = &b->request->file->st;
    char subject[512];
    for (size_t i = 0; i < source->n_entries; i++) {
        const struct qplan_entry *entry = &source->entries[i];
        const struct qplan_entry *there = qp_st_find(file, entry->name, entry->name_len);
        if (there && !qp_is_sidecar(b->request->file, there))
            continue;
        b->report->missing++;
        if (b->request->prove)
            offend(b, qp_st_subject(subject, source, entry),
                   "this tensor of the source is missing in %s", file->file.shown);
    }
}

/* The source's metadata must be there, "format" excepted, and nothing but ours beside it. */
static void check_metadata(struct builder *b)
{
    const struct qp_st *file = &b->request->file->st, *source = &b->request->source->st;
    char quoted[QP_QUOTED];
    const struct qp_st *sides[2] = {source, file};
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < sides[side]->n_metadata; i++) {
            const struct qp_st_pair *pair = &sides[side]->metadata[i];
            if (qp_native_owns_key(pair->key) || strcmp(pair->key, "format") == 0)
                continue;
            const struct qp_st_pair *other = qp_st_metadata(sides[1 - side], pair->key);
            if (!other || other->value_len != pair->value_len ||
                memcmp(other->value, pair->value, pair->value_len) != 0)
                offend(b, file->file.shown, "metadata %s is not that of the source",
                       qp_quote(quoted, pair->key, pair->key_len));
        }
    }
}

static enum qplan_status measure(struct builder *b)
{
    const struct qp_report_request *q = b->request;
    size_t n_pairs = 0;
    b->pairs = qp_alloc(b->report->n_rows, sizeof *b->pairs);
    if (!b->pairs)
        return qp_fail_memory(b->err, "report", b->report->n_rows * sizeof *b->pairs);
    QP_TRY(pair_rows(b, &n_pairs));
    QP_TRY(qp_measure_pairs(b->pairs, n_pairs, &q->file->st, &q->source->st, b->run, b->err));
    QP_TRY(qp_file_unchanged(&q->source->st.file, b->err));
    QP_TRY(qp_file_unchanged(&q->file->st.file, b->err));
    QP_TRY(take_results(b, n_pairs));
    find_missing(b);
    if (q->prove)
        check_metadata(b);
    b->report->proven = !b->failed;
    return QPLAN_OK;
}

/* ---- Totals ------------------------------------------------------------------------------------
 */

static enum qplan_status add_kept(struct qplan_report *report, const struct qp_row *row,
                                  struct qplan_error *err)
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
    report->kept[i].bytes += entry_bytes(row->tensor.entry);
    return QPLAN_OK;
}

static void pool(struct qplan_report *report, const struct qp_row *row)
{
    const struct qp_measure *m = row->measure;
    struct qp_measure *t = &report->total_measure;
    const struct qp_param_facts *f = row->facts;
    struct qp_param_facts *total = &report->total_facts;
    if (f) {
        total->half_step = f->half_step > total->half_step ? f->half_step : total->half_step;
        total->bound = f->bound > total->bound ? f->bound : total->bound;
    }
    if (!m)
        return;
    t->e2 += m->e2;
    t->x2 += m->x2;
    t->y2 += m->y2;
    t->max_abs = m->max_abs > t->max_abs ? m->max_abs : t->max_abs;
    t->clipped += m->clipped;
    t->nonfinite += m->nonfinite;
    t->max_clip = m->max_clip > t->max_clip ? m->max_clip : t->max_clip;
}

/* Bits of quantized tensors, before and after. */
struct bits {
    uint64_t source, code;
};

static enum qplan_status add_row(struct qplan_report *report, const struct qp_row *row,
                                 struct bits *bits, struct qplan_error *err)
{
    struct qplan_totals *t = &report->totals;
    const struct qp_logical *tensor = &row->tensor;
    struct qp_sizes sizes = qp_row_sizes(row);
    t->tensors++;
    t->elements += sizes.elements;
    t->source_bytes += sizes.source_bytes;
    t->code_bytes += sizes.code_bytes;
    t->param_bytes += sizes.param_bytes;
    t->quantized += row->restored;
    if (row->restored)
        return QPLAN_OK;
    if (!tensor->native) {
        t->kept++;
        t->kept_bytes += entry_bytes(tensor->entry);
        return add_kept(report, row, err);
    }
    t->quantized++;
    bits->source += sizes.elements * qplan_storage_bits(tensor->source);
    bits->code += sizes.elements * qplan_dtype_bits(tensor->native->scheme.dtype);
    pool(report, row);
    report->measured_elements += row->measured ? sizes.elements : 0;
    return QPLAN_OK;
}

static enum qplan_status add_totals(struct qplan_report *report, struct qplan_error *err)
{
    struct qplan_totals *t = &report->totals;
    struct bits bits = {0, 0};
    report->total_facts = (struct qp_param_facts){0, 0, -1, -1};
    report->total_measure.max_abs = -1;
    for (size_t i = 0; i < report->n_rows; i++)
        QP_TRY(add_row(report, &report->rows[i], &bits, err));
    t->data_bytes = t->code_bytes + t->param_bytes + t->kept_bytes;
    t->ratio_ideal = qp_ratio((double)bits.source, (double)bits.code);
    t->ratio = qp_ratio((double)t->source_bytes, (double)t->data_bytes);
    t->bpw = qp_ratio(8.0 * (double)t->data_bytes, (double)t->elements);
    return QPLAN_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

static enum qplan_status describe_files(struct builder *b)
{
    const struct qp_report_request *q = b->request;
    struct qplan_report *report = b->report;
    report->command = q->command;
    report->format = q->file->is_native ? "qplan" : "safetensors";
    report->header_bytes = q->file->st.header_bytes;
    report->totals.file_bytes = q->file->st.file.size;
    report->path = qp_arena_join(&report->arena, q->path, strlen(q->path), "");
    if (q->source) {
        const char *path = q->source->st.file.path;
        report->source_path = qp_arena_join(&report->arena, path, strlen(path), "");
        report->source_file_bytes = q->source->st.file.size;
    }
    if (!report->path || (q->source && !report->source_path))
        return qp_fail_memory(b->err, "report", strlen(q->path));
    for (size_t i = 0; q->plan && i < q->plan->warnings.n; i++) {
        const struct qp_warning *w = &q->plan->warnings.list[i];
        QP_TRY(qp_warn(&report->warnings, &report->arena, w->code, w->subject, w->message, b->err));
    }
    return QPLAN_OK;
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
    if (status == QPLAN_OK && request->source)
        status = measure(&b);
    if (status == QPLAN_OK)
        status = add_totals(report, err);
    qp_fenv_leave(&callers);
    qp_free(b.pairs);
    if (status != QPLAN_OK) {
        qplan_report_free(report);
        return status;
    }
    *out = report;
    return request->prove && b.failed ? QPLAN_ERR_PROOF : QPLAN_OK;
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
    qp_free(report->rows);
    qplan_checkpoint_close(report->owned);
    qp_arena_free(&report->arena);
    qp_free(report);
}

const struct qplan_totals *qplan_report_totals(const struct qplan_report *report)
{
    return &report->totals;
}

size_t qplan_report_warning_count(const struct qplan_report *report)
{
    return report->warnings.n;
}

const char *qplan_report_warning(const struct qplan_report *report, size_t i)
{
    return i < report->warnings.n ? report->warnings.list[i].text : NULL;
}
