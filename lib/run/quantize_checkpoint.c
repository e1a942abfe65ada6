/*
 * quantize_checkpoint.c - a plan from start to end: temporary file, header, data, the file read
 * back, proof and gates if asked for, and only then the name.
 */
#include "lib/device/device.h"
#include "lib/report/report.h"
#include "units.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <errno.h>
#include <string.h>

/* ---- The header ----------------------------------------------------------------------------- */

/* The header of the plan on its way to the output, or beside what the output has. */
struct header_at {
    const struct qp_out *out;
    const struct qp_file *written; /* NULL: it is being written */
    uint64_t off;
    struct qplan_error *err;
    enum qplan_status status;
};

static int write_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct header_at *at = ctx;
    at->status = qp_out_write(at->out, at->off, bytes, n_bytes, at->err);
    at->off += n_bytes;
    return at->status == QPLAN_OK ? 0 : EIO;
}

static enum qplan_status compare_bytes(const struct header_at *at, const char *bytes, size_t n)
{
    char block[4096];
    for (size_t i = 0; i < n; i += sizeof block) {
        const size_t part = (size_t)qp_min_u64(n - i, sizeof block);
        QP_TRY(qp_file_read(at->written, at->off + i, block, part, at->err));
        if (memcmp(block, bytes + i, part) != 0)
            return qp_fail(at->err, QPLAN_ERR_IO, at->written->shown,
                           "the header read back is not the one written");
    }
    return QPLAN_OK;
}

static int compare_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct header_at *at = ctx;
    at->status = compare_bytes(at, bytes, n_bytes);
    at->off += n_bytes;
    return at->status == QPLAN_OK ? 0 : EIO;
}

/* Makes the text of the header and hands it on piece by piece: it may be long. */
static enum qplan_status put_header(const struct qplan_plan *plan, struct header_at *at)
{
    struct qp_writer w;
    qp_writer_stream(&w, at->written ? compare_piece : write_piece, at);
    qp_st_put_measured(&w, &plan->header);
    enum qplan_status status = qp_writer_finish(&w, "header", NULL);
    qp_writer_free(&w);
    if (at->status != QPLAN_OK || status == QPLAN_OK)
        return at->status;
    return qp_fail_memory(at->err, "header", plan->header_bytes);
}

/* ---- What was written ------------------------------------------------------------------------ */

static bool needs_source(const struct qplan_quantize_options *options)
{
    bool measured = options->verify;
    for (size_t i = 0; i < options->n_gates; i++)
        measured |= options->gates[i]->metric->needs == QP_NEEDS_SOURCE;
    return measured;
}

/* Reports on the file that was written, as the reader of any file has read it. */
static enum qplan_status report_on(struct qplan_report **report,
                                   const struct qplan_checkpoint *written,
                                   const struct qplan_plan *plan,
                                   const struct qplan_quantize_options *options,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_report_request request = {
        .command = "quantize",
        .path = options->out_path,
        .file = written,
        .source = needs_source(options) ? plan->checkpoint : NULL,
        .plan = plan,
        .prove = options->verify,
        .gates = options->gates,
        .n_gates = options->n_gates,
    };
    /* What a device wrote is proven by the CPU, whatever the device can do. */
    struct qplan_run on_cpu = run ? *run : (struct qplan_run){.threads = 0};
    on_cpu.device = NULL;
    return qp_report_make(report, &request, &on_cpu, err);
}

/* Reads back what was written and reports on it; the report owns what it borrows from. */
static enum qplan_status check_written(struct qplan_report **report, const struct qplan_plan *plan,
                                       const struct qp_out *out,
                                       const struct qplan_quantize_options *options,
                                       const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_checkpoint *written;
    QP_TRY(qp_checkpoint_open_fd(&written, out->fd, options->out_path, err));
    struct header_at at = {.out = out, .written = &written->st.file, .err = err};
    enum qplan_status status = put_header(plan, &at);
    if (status == QPLAN_OK)
        status = report_on(report, written, plan, options, run, err);
    if (*report)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Data that changed under the run explains whatever was found in it. */
static enum qplan_status write_all(const struct qplan_plan *plan, const struct qp_out *out,
                                   const struct qplan_run *run, bool *all_threads,
                                   struct qplan_error *err)
{
    struct header_at at = {.out = out, .err = err};
    QP_TRY(put_header(plan, &at));
    enum qplan_status status = qp_execute(plan, out, run, all_threads, err);
    if (status != QPLAN_OK && status != QPLAN_ERR_VALUE)
        return status;
    QP_TRY(qp_file_unchanged(&plan->checkpoint->st.file, err));
    return status;
}

static enum qplan_status commit(struct qp_out *out, struct qplan_report *report, bool all_threads,
                                struct qplan_error *err)
{
    bool synced;
    QP_TRY(qp_out_commit(out, &synced, err));
    return qp_report_notes(report, all_threads, synced, err);
}

static void add_needs(struct qp_device_need *need, const struct qplan_plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!t->quantize)
            continue;
        const struct qp_device_row row = {
            .kind = QP_KIND_QUANTIZE,
            .dtype = qp_storage_row((enum qplan_storage)t->source->storage)->dtype,
            .scheme = t->scheme};
        qp_need_add(need, &row, t->source->end - t->source->begin, t->source->name,
                    t->source->name_len);
    }
}

static enum qplan_status take_device(const struct qplan_plan *plan, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    if (!run || !qp_device_wanted(run->device))
        return QPLAN_OK;
    add_needs(&need, plan);
    return qp_device_take(run->device, &need, run->threads, err);
}

enum qplan_status qplan_quantize(struct qplan_report **report, const struct qplan_plan *plan,
                                 const struct qplan_quantize_options *options,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_file *inputs[] = {&plan->checkpoint->st.file};
    struct qp_out out;
    bool all_threads = true;
    *report = NULL;
    QP_TRY(qp_gates_check_plan(options->gates, options->n_gates, plan, err));
    QP_TRY(take_device(plan, run, err));
    QP_TRY(qp_out_open(&out, options->out_path, run && run->force, qplan_plan_output_bytes(plan),
                       inputs, 1, err));
    enum qplan_status status = write_all(plan, &out, run, &all_threads, err);
    if (status == QPLAN_OK)
        status = check_written(report, plan, &out, options, run, err);
    if (status == QPLAN_OK)
        status = commit(&out, *report, all_threads, err);
    qp_out_discard(&out);
    if (status != QPLAN_OK && status != QPLAN_ERR_PROOF) {
        qplan_report_free(*report);
        *report = NULL;
    }
    return status;
}
