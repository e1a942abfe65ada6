/*
 * quantize.c - a plan from start to end: temporary file, header, data, own header read back, proof
 * and gates if asked for, and only then the name.
 */
#include "execute.h"
#include "report.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

/* ---- The header ----------------------------------------------------------------------------- */

/* Pieces of the header on their way to the output, or beside what is there. */
struct pieces {
    const struct qp_out *out;   /* to write, or NULL */
    const struct qp_file *file; /* to compare with */
    uint64_t off;
    struct qplan_error *err;
    enum qplan_status status;
    bool differs; /* from what is there */
};

static enum qplan_status compare(struct pieces *p, const char *bytes, size_t n)
{
    char block[16384];
    for (size_t at = 0; at < n; at += sizeof block) {
        size_t n_block = (size_t)qp_min_u64(n - at, sizeof block);
        QP_TRY(qp_file_read(p->file, p->off + at, block, n_block, p->err));
        p->differs = memcmp(block, bytes + at, n_block) != 0;
        if (p->differs)
            return qp_fail_at(p->err, QPLAN_ERR_IO, p->file->shown, p->off + at,
                              "the header read back is not the one written");
    }
    return QPLAN_OK;
}

static int take_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct pieces *p = ctx;
    p->status =
        p->out ? qp_out_write(p->out, p->off, bytes, n_bytes, p->err) : compare(p, bytes, n_bytes);
    p->off += n_bytes;
    return p->status == QPLAN_OK ? 0 : EIO;
}

static enum qplan_status send_header(const struct qplan_plan *plan, struct pieces *p)
{
    struct qp_writer w;
    qp_writer_stream(&w, take_piece, p);
    qp_st_put_measured(&w, &plan->header);
    enum qplan_status status = qp_writer_finish(&w, "header", NULL);
    qp_writer_free(&w);
    if (p->status != QPLAN_OK || status == QPLAN_OK)
        return p->status;
    return qp_fail_memory(p->err, "header", plan->header_bytes);
}

static enum qplan_status write_header(const struct qplan_plan *plan, const struct qp_out *out,
                                      struct qplan_error *err)
{
    struct pieces pieces = {.out = out, .err = err};
    return send_header(plan, &pieces);
}

/* The written header must be, byte for byte, what the plan says. */
static enum qplan_status check_header(const struct qplan_plan *plan, const struct qp_file *file,
                                      bool *differs, struct qplan_error *err)
{
    struct pieces pieces = {.file = file, .err = err};
    enum qplan_status status = send_header(plan, &pieces);
    *differs = pieces.differs;
    return status;
}

/* ---- What was written ------------------------------------------------------------------------ */

/* As the plan says that it is; *differs if its size or the bytes of its header are not the plan's.
 */
static enum qplan_status open_known(struct qplan_checkpoint **written,
                                    const struct qplan_plan *plan, const struct qp_out *out,
                                    const char *path, bool *differs, struct qplan_error *err)
{
    QP_TRY(qp_plan_written(written, plan, out->fd, path, err));
    const struct qp_file *file = &(*written)->st.file;
    enum qplan_status status = QPLAN_OK;
    *differs = file->size != qplan_plan_output_bytes(plan);
    if (!*differs)
        status = check_header(plan, file, differs, err);
    if (*differs || status != QPLAN_OK)
        qplan_checkpoint_close(*written);
    return *differs ? QPLAN_OK : status;
}

/*
 * Opens what was written. The reader parses and proves it where the data is to be proven too. Else
 * that would tell nothing new, unless it differs from the plan: then the reader says why.
 */
static enum qplan_status open_written(struct qplan_checkpoint **written,
                                      const struct qplan_plan *plan, const struct qp_out *out,
                                      const char *path, bool measured, struct qplan_error *err)
{
    bool differs = true;
    if (!measured)
        QP_TRY(open_known(written, plan, out, path, &differs, err));
    if (!differs)
        return QPLAN_OK;
    QP_TRY(qp_checkpoint_open_fd(written, out->fd, path, err));
    enum qplan_status status = check_header(plan, &(*written)->st.file, &differs, err);
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
    enum qplan_status status = write_header(plan, &out, err);
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
