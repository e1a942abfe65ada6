/*
 * quantize.c - a plan from start to end: temporary file, header, data, own header read back, proof
 * and gates if asked for, and only then the name.
 */
#include "execute.h"
#include "report.h"

#include "base/alloc.h"

#include <string.h>

/* The written header must be, byte for byte, what the plan says; the reader proves the rest. */
static enum qplan_status check_header(const struct qplan_plan *plan, const struct qp_st *written,
                                      struct qplan_error *err)
{
    char block[4096];
    for (uint64_t off = 0; off < plan->header_bytes; off += sizeof block) {
        uint64_t left = plan->header_bytes - off;
        size_t n = left < sizeof block ? (size_t)left : sizeof block;
        QP_TRY(qp_file_read(&written->file, off, block, n, err));
        if (memcmp(block, plan->header + off, n) != 0)
            return qp_fail_at(err, QPLAN_ERR_IO, written->file.shown, off,
                              "the header read back is not the one written");
    }
    return QPLAN_OK;
}

static enum qplan_status judge(struct qplan_report **report, const struct qplan_plan *plan,
                               const struct qplan_quantize_options *options,
                               const struct qplan_checkpoint *written, const struct qplan_run *run,
                               struct qplan_error *err)
{
    bool measured = options->verify;
    for (size_t i = 0; i < options->n_gates; i++)
        measured |= qp_metric_row(options->gates[i]->metric)->measured;
    struct qp_report_request request = {
        .command = "quantize",
        .path = options->out_path,
        .file = written,
        .source = measured ? plan->checkpoint : NULL,
        .plan = plan,
        .prove = options->verify,
    };
    return qp_report_judge(report, &request, options->gates, options->n_gates, run, err);
}

/* Reads back what was written and reports on it; the report owns what it borrows from. */
static enum qplan_status check_written(struct qplan_report **report, const struct qplan_plan *plan,
                                       const struct qplan_quantize_options *options,
                                       const struct qp_out *out, const struct qplan_run *run,
                                       struct qplan_error *err)
{
    struct qplan_checkpoint *written;
    QP_TRY(qp_checkpoint_open_fd(&written, out->fd, options->out_path, err));
    enum qplan_status status = check_header(plan, &written->st, err);
    if (status == QPLAN_OK)
        status = judge(report, plan, options, written, run, err);
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
