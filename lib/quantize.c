/*
 * quantize.c - a plan from start to end: temporary file, header, data, own header read back, proof
 * and gates if asked for, and only then the name.
 */
#include "device.h"
#include "execute.h"
#include "report.h"

#include "base/check.h"
#include "base/checksum.h"

#include <errno.h>
#include <string.h>

/* ---- The header ----------------------------------------------------------------------------- */

/* The header on its way to the output. Its checksum tells later whether it is still there. */
struct header {
    const struct qplan_plan *plan;
    const struct qp_out *out;
    uint64_t off;
    struct qp_checksum sum;
    struct qplan_error *err;
    enum qplan_status status;
};

static int take_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct header *h = ctx;
    qp_checksum_add(&h->sum, bytes, n_bytes);
    h->status = qp_out_write(h->out, h->off, bytes, n_bytes, h->err);
    h->off += n_bytes;
    return h->status == QPLAN_OK ? 0 : EIO;
}

static enum qplan_status write_header(void *ctx, struct qplan_error *err)
{
    struct header *h = ctx;
    struct qp_writer w;
    h->err = err;
    qp_writer_stream(&w, take_piece, h);
    qp_st_put_measured(&w, &h->plan->header);
    enum qplan_status status = qp_writer_finish(&w, "header", NULL);
    qp_writer_free(&w);
    if (h->status != QPLAN_OK || status == QPLAN_OK)
        return h->status;
    return qp_fail_memory(err, "header", h->plan->header_bytes);
}

/* The bytes in the file must be those that were written. */
static enum qplan_status check_header(const struct header *h, const struct qp_file *file,
                                      bool *differs, struct qplan_error *err)
{
    char block[16384];
    struct qp_checksum sum = {0};
    size_t n;
    for (uint64_t at = 0; at < h->off; at += n) {
        n = (size_t)qp_min_u64(h->off - at, sizeof block);
        QP_TRY(qp_file_read(file, at, block, n, err));
        qp_checksum_add(&sum, block, n);
    }
    *differs = qp_checksum_value(&sum) != qp_checksum_value(&h->sum);
    return *differs ? qp_fail(err, QPLAN_ERR_IO, file->shown,
                              "the header read back is not the one written")
                    : QPLAN_OK;
}

/* ---- What was written ------------------------------------------------------------------------ */

/* As the plan says that it is; *differs if its size or the bytes of its header are not the plan's.
 */
static enum qplan_status open_known(struct qplan_checkpoint **written, const struct header *header,
                                    const char *path, bool *differs, struct qplan_error *err)
{
    QP_TRY(qp_plan_written(written, header->plan, header->out->fd, path, err));
    const struct qp_file *file = &(*written)->st.file;
    enum qplan_status status = QPLAN_OK;
    *differs = file->size != qplan_plan_output_bytes(header->plan);
    if (!*differs)
        status = check_header(header, file, differs, err);
    if (*differs || status != QPLAN_OK)
        qplan_checkpoint_close(*written);
    return *differs ? QPLAN_OK : status;
}

/*
 * Opens what was written. The reader parses and proves it where the data is to be proven too. Else
 * that would tell nothing new, unless it differs from the plan: then the reader says why.
 */
static enum qplan_status open_written(struct qplan_checkpoint **written,
                                      const struct header *header, const char *path, bool measured,
                                      struct qplan_error *err)
{
    bool differs = true;
    if (!measured)
        QP_TRY(open_known(written, header, path, &differs, err));
    if (!differs)
        return QPLAN_OK;
    QP_TRY(qp_checkpoint_open_fd(written, header->out->fd, path, err));
    enum qplan_status status = check_header(header, &(*written)->st.file, &differs, err);
    if (status != QPLAN_OK)
        qplan_checkpoint_close(*written);
    return status;
}

static bool needs_source(const struct qplan_quantize_options *options)
{
    bool measured = options->verify;
    for (size_t i = 0; i < options->n_gates; i++)
        measured |= qp_metric_row(options->gates[i]->metric)->measured;
    return measured;
}

/* Reads back what was written and reports on it; the report owns what it borrows from. */
static enum qplan_status check_written(struct qplan_report **report, const struct header *header,
                                       const struct qplan_quantize_options *options,
                                       const struct qplan_run *run, struct qplan_error *err)
{
    const bool measured = needs_source(options);
    struct qplan_checkpoint *written;
    QP_TRY(open_written(&written, header, options->out_path, measured, err));
    const struct qp_report_request request = {
        .command = "quantize",
        .path = options->out_path,
        .file = written,
        .source = measured ? header->plan->checkpoint : NULL,
        .plan = header->plan,
        .prove = options->verify,
    };
    /* What a device wrote is proven by the CPU, whatever the device can do. */
    struct qplan_run on_cpu = run ? *run : (struct qplan_run){.threads = 0};
    on_cpu.device = NULL;
    enum qplan_status status =
        qp_report_judge(report, &request, options->gates, options->n_gates, &on_cpu, err);
    if (*report)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    return status;
}

/* Data that changed under the run explains whatever was found in it. */
static enum qplan_status execute(struct header *header, const struct qplan_run *run,
                                 bool *all_threads, struct qplan_error *err)
{
    const struct qp_errand errand = {write_header, header};
    enum qplan_status status =
        qp_execute(header->plan, header->out, &errand, run, all_threads, err);
    if (status != QPLAN_OK && status != QPLAN_ERR_VALUE)
        return status;
    QP_TRY(qp_file_unchanged(&header->plan->checkpoint->st.file, err));
    return status;
}

static enum qplan_status commit(struct qp_out *out, struct qplan_report *report, bool all_threads,
                                struct qplan_error *err)
{
    bool synced;
    QP_TRY(qp_out_commit(out, &synced, err));
    return qp_report_notes(report, all_threads, synced, err);
}

static enum qplan_status take_device(const struct qplan_plan *plan, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    if (!run)
        return QPLAN_OK;
    qp_need_plan(&need, plan);
    return qp_device_take(run->device, &need, run->threads, err);
}

enum qplan_status qplan_quantize(struct qplan_report **report, const struct qplan_plan *plan,
                                 const struct qplan_quantize_options *options,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_file *inputs[] = {&plan->checkpoint->st.file};
    struct qp_out out;
    struct header header = {.plan = plan, .out = &out};
    bool all_threads = true;
    *report = NULL;
    QP_TRY(qp_gates_check_plan(options->gates, options->n_gates, plan, err));
    QP_TRY(take_device(plan, run, err));
    QP_TRY(qp_out_open(&out, options->out_path, run && run->force, qplan_plan_output_bytes(plan),
                       inputs, 1, err));
    enum qplan_status status = execute(&header, run, &all_threads, err);
    if (status == QPLAN_OK)
        status = check_written(report, &header, options, run, err);
    if (status == QPLAN_OK)
        status = commit(&out, *report, all_threads, err);
    qp_out_discard(&out);
    if (status != QPLAN_OK && status != QPLAN_ERR_PROOF) {
        qplan_report_free(*report);
        *report = NULL;
    }
    return status;
}
