/*
 * quantize.c - a plan from start to end: temporary file, header, data, own header read back, proof
 * and gates if asked for, and only then the name.
 */
#include "device.h"
#include "execute.h"
#include "report.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/pool.h"

#include <errno.h>

/* ---- The header ----------------------------------------------------------------------------- */

/* The header on its way to the output. The checksum of each half tells later whether it is there.
 */
struct header {
    const struct qplan_plan *plan;
    const struct qp_out *out;
    uint64_t off;
    struct qp_checksum sums[2];
    struct qplan_error *err;
    enum qplan_status status;
};

/* Where a half begins; that of number 2, behind the end. */
static uint64_t half_at(const struct header *h, unsigned half)
{
    return half < 2 ? half * (h->plan->header_bytes / 2) : h->plan->header_bytes;
}

static int take_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct header *h = ctx;
    const uint64_t second = half_at(h, 1);
    const size_t n_first = h->off < second ? (size_t)qp_min_u64(second - h->off, n_bytes) : 0;
    qp_checksum_add(&h->sums[0], bytes, n_first);
    qp_checksum_add(&h->sums[1], (const char *)bytes + n_first, n_bytes - n_first);
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

#define BLOCK_BYTES 65536u

/* The bytes in the file must be those that were written; the block is to read them into. */
static enum qplan_status check_bytes(const struct header *h, unsigned half,
                                     const struct qp_file *file, char *block, bool *differs,
                                     struct qplan_error *err)
{
    struct qp_checksum sum = {0};
    const uint64_t end = half_at(h, half + 1);
    size_t n;
    for (uint64_t at = half_at(h, half); at < end; at += n) {
        n = (size_t)qp_min_u64(end - at, BLOCK_BYTES);
        QP_TRY(qp_file_read(file, at, block, n, err));
        qp_checksum_add(&sum, block, n);
    }
    *differs = qp_checksum_value(&sum) != qp_checksum_value(&h->sums[half]);
    return *differs ? qp_fail(err, QPLAN_ERR_IO, file->shown,
                              "the header read back is not the one written")
                    : QPLAN_OK;
}

static enum qplan_status check_half(const struct header *h, unsigned half,
                                    const struct qp_file *file, bool *differs,
                                    struct qplan_error *err)
{
    char *block = qp_alloc(1, BLOCK_BYTES);
    enum qplan_status status = block ? check_bytes(h, half, file, block, differs, err)
                                     : qp_fail_memory(err, "header", BLOCK_BYTES);
    qp_free(block);
    return status;
}

/* ---- What was written ------------------------------------------------------------------------ */

static bool needs_source(const struct qplan_quantize_options *options)
{
    bool measured = options->verify;
    for (size_t i = 0; i < options->n_gates; i++)
        measured |= qp_metric_row(options->gates[i]->metric)->measured;
    return measured;
}

/* Whether totals are all that is asked for: a gate may ask for anything. */
static bool is_brief(const struct qplan_quantize_options *options)
{
    return options->brief && !options->verify && options->n_gates == 0;
}

/* The file that was written, and the steps that read it. */
struct check {
    const struct header *header;
    const struct qplan_quantize_options *options;
    const struct qplan_run *run;
    struct qplan_checkpoint *written;
    struct qplan_report *report;
    bool differs[2]; /* a half of the header, from the one written */
};

static enum qplan_status check_step(struct check *c, unsigned half, struct qplan_error *err)
{
    return check_half(c->header, half, &c->written->st.file, &c->differs[half], err);
}

static enum qplan_status first_step(void *ctx, struct qplan_error *err)
{
    return check_step(ctx, 0, err);
}

static enum qplan_status second_step(void *ctx, struct qplan_error *err)
{
    return check_step(ctx, 1, err);
}

static enum qplan_status report_step(void *ctx, struct qplan_error *err)
{
    struct check *c = ctx;
    const bool measured = needs_source(c->options);
    const struct qp_report_request request = {
        .command = "quantize",
        .path = c->options->out_path,
        .file = c->written,
        .source = measured ? c->header->plan->checkpoint : NULL,
        .plan = c->header->plan,
        .brief = is_brief(c->options),
        .prove = c->options->verify,
    };
    /* What a device wrote is proven by the CPU, whatever the device can do. */
    struct qplan_run on_cpu = c->run ? *c->run : (struct qplan_run){.threads = 0};
    on_cpu.device = NULL;
    return qp_report_judge(&c->report, &request, c->options->gates, c->options->n_gates, &on_cpu,
                           err);
}

/*
 * Reports on the file as the plan says that it is, and sees beside that whether it is so: *differs
 * if its size or the bytes of its header are not the plan's. Then there is no report.
 */
static enum qplan_status report_known(struct check *c, bool *differs, struct qplan_error *err)
{
    /* A header that cannot be read says more than a gate that failed, so it comes behind. */
    static const qp_step_fn steps[] = {report_step, first_step, second_step};
    const struct qplan_plan *plan = c->header->plan;
    QP_TRY(qp_plan_written(&c->written, plan, !is_brief(c->options), c->header->out->fd,
                           c->options->out_path, err));
    *differs = c->written->st.file.size != qplan_plan_output_bytes(plan);
    if (*differs)
        return QPLAN_OK;
    enum qplan_status status = qp_steps_run(c->run ? c->run->threads : 0, steps, 3, c, err);
    *differs = c->differs[0] || c->differs[1];
    return *differs ? QPLAN_OK : status;
}

/* The same of the file as the reader parses and proves it. */
static enum qplan_status report_read(struct check *c, struct qplan_error *err)
{
    const struct header *h = c->header;
    QP_TRY(qp_checkpoint_open_fd(&c->written, h->out->fd, c->options->out_path, err));
    for (unsigned half = 0; half < 2; half++)
        QP_TRY(check_step(c, half, err));
    return report_step(c, err);
}

/* Forgets report and file. */
static void drop(struct check *c)
{
    qplan_report_free(c->report);
    qplan_checkpoint_close(c->written);
    c->report = NULL;
    c->written = NULL;
}

/*
 * Reads back what was written and reports on it; the report owns what it borrows from. The reader
 * parses and proves it where the data is to be proven too. Else that would tell nothing new, unless
 * it differs from the plan: then the reader says why.
 */
static enum qplan_status check_written(struct qplan_report **report, const struct header *header,
                                       const struct qplan_quantize_options *options,
                                       const struct qplan_run *run, struct qplan_error *err)
{
    struct check c = {.header = header, .options = options, .run = run};
    bool unknown = needs_source(options);
    enum qplan_status status = QPLAN_OK;
    if (!unknown)
        status = report_known(&c, &unknown, err);
    if (status == QPLAN_OK && unknown) {
        drop(&c);
        status = report_read(&c, err);
    }
    if (c.report && (status == QPLAN_OK || status == QPLAN_ERR_PROOF)) {
        c.report->owned = c.written;
        *report = c.report;
    } else {
        drop(&c);
    }
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
    if (!run || !qp_device_wanted(run->device))
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
