/*
 * quantize.c - a plan from start to end: temporary file, header, data, own header read back, proof
 * and gates if asked for, and only then the name.
 */
#include "execute.h"
#include "report.h"

#include "base/alloc.h"
#include "base/check.h"

#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)

/* The written header must be, byte for byte, what the plan says. */
static enum qplan_status check_header(const struct qplan_plan *plan, const struct qp_file *file,
                                      struct qplan_error *err)
{
    char *block = qp_alloc_buffer(BLOCK_BYTES);
    enum qplan_status status = QPLAN_OK;
    if (!block)
        return qp_fail_memory(err, "buffers", BLOCK_BYTES);
    for (uint64_t off = 0; status == QPLAN_OK && off < plan->header_bytes; off += BLOCK_BYTES) {
        size_t n = (size_t)qp_min_u64(plan->header_bytes - off, BLOCK_BYTES);
        status = qp_file_read(file, off, block, n, err);
        if (status == QPLAN_OK && memcmp(block, plan->header + off, n) != 0)
            status = qp_fail_at(err, QPLAN_ERR_IO, file->shown, off,
                                "the header read back is not the one written");
    }
    qp_free(block);
    return status;
}

/*
 * Opens what was written. The reader proves it where the data is to be proven too. Else it is what
 * the plan says, once its size and the bytes of its header are; if not, the reader tells why.
 */
static enum qplan_status open_written(struct qplan_checkpoint **written,
                                      const struct qplan_plan *plan, const struct qp_out *out,
                                      const char *path, bool measured, struct qplan_error *err)
{
    if (!measured) {
        QP_TRY(qp_plan_written(written, plan, out->fd, path, err));
        const struct qp_file *file = &(*written)->st.file;
        if (file->size == qplan_plan_output_bytes(plan) &&
            check_header(plan, file, err) == QPLAN_OK)
            return QPLAN_OK;
        qplan_checkpoint_close(*written);
    }
    QP_TRY(qp_checkpoint_open_fd(written, out->fd, path, err));
    enum qplan_status status = check_header(plan, &(*written)->st.file, err);
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
static enum qplan_status check_written(struct qplan_report **report, const struct qplan_plan *plan,
                                       const struct qplan_quantize_options *options,
                                       const struct qp_out *out, const struct qplan_run *run,
                                       struct qplan_error *err)
{
    const bool measured = needs_source(options);
    struct qplan_checkpoint *written;
    QP_TRY(open_written(&written, plan, out, options->out_path, measured, err));
    const struct qp_report_request request = {
        .command = "quantize",
        .path = options->out_path,
        .file = written,
        .source = measured ? plan->checkpoint : NULL,
        .plan = plan,
        .prove = options->verify,
    };
    enum qplan_status status =
        qp_report_judge(report, &request, options->gates, options->n_gates, run, err);
    if (*report)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    return status;
}

/* Data that changed under the run explains whatever was found in it. */
static enum qplan_status execute(const struct qplan_plan *plan, const struct qp_out *out,
                                 const struct qplan_run *run, bool *all_threads,
                                 struct qplan_error *err)
{
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

enum qplan_status qplan_quantize(struct qplan_report **report, const struct qplan_plan *plan,
                                 const struct qplan_quantize_options *options,
                                 const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_file *inputs[] = {&plan->checkpoint->st.file};
    struct qp_out out;
    bool all_threads = true;
    *report = NULL;
    QP_TRY(qp_gates_check_plan(options->gates, options->n_gates, plan, err));
    QP_TRY(qp_out_open(&out, options->out_path, run && run->force, qplan_plan_output_bytes(plan),
                       inputs, 1, err));
    enum qplan_status status = qp_out_write(&out, 0, plan->header, (size_t)plan->header_bytes, err);
    if (status == QPLAN_OK)
        status = execute(plan, &out, run, &all_threads, err);
    if (status == QPLAN_OK)
        status = check_written(report, plan, options, &out, run, err);
    if (status == QPLAN_OK)
        status = commit(&out, *report, all_threads, err);
    qp_out_discard(&out);
    if (status != QPLAN_OK && status != QPLAN_ERR_PROOF) {
        qplan_report_free(*report);
        *report = NULL;
    }
    return status;
}
