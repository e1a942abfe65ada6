/*
 * quantize_checkpoint.c - a plan from start to end: temporary file, header, data, the file read
 * back, proof and gates if asked for, and only then the name.
 */
#include "lib/device/device.h"
#include "lib/report/report.h"
#include "lib/run/units.h"

#include "lib/model/dtype.h"

/* ---- What was written ------------------------------------------------------------------------ */

static bool needs_source(const struct qplan_quantize_options *options)
{
    bool measured = options->verify;
    for (size_t i = 0; i < options->n_gates; i++)
        measured |= options->gates[i]->metric->needs >= QP_NEEDS_SOURCE;
    return measured;
}

static bool has_weights(const struct qplan_plan *plan)
{
    bool found = false;
    for (size_t i = 0; i < plan->n_tensors && !found; i++)
        found = plan->tensors[i].has_importance;
    return found;
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
        .with = {.hessians = plan->hessians.is_open ? &plan->hessians : NULL,
                 .hessian_damp = plan->making.hessian_damp},
        .allow_unquantized = true, /* the plan has warned of it */
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
                                       const struct qp_outs *outs,
                                       const struct qplan_quantize_options *options,
                                       const struct qplan_run *run, struct qplan_error *err)
{
    struct qp_source source;
    struct qplan_checkpoint *written;
    QP_TRY(qp_outs_read_back(outs, &source, options->out_path, err));
    QP_TRY(qp_checkpoint_make(&written, &source, err));
    enum qplan_status status = report_on(report, written, plan, options, run, err);
    if (*report)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Data that changed under the run explains whatever was found in it. */
static enum qplan_status write_tensors(const struct qplan_plan *plan, const struct qp_outs *outs,
                                       const struct qplan_run *run, struct qp_run_notes *notes,
                                       struct qplan_error *err)
{
    enum qplan_status status = qp_run_units(plan, outs, QP_ALL_ROLES, run, notes, err);
    if (status != QPLAN_OK && status != QPLAN_ERR_VALUE)
        return status;
    QP_TRY(qp_source_unchanged(&plan->checkpoint->source, err));
    if (plan->hessians.is_open)
        QP_TRY(qp_source_unchanged(&plan->hessians.source, err));
    return status;
}

static enum qplan_status commit(struct qp_outs *outs, struct qplan_report *report,
                                const struct qp_run_notes *notes, struct qplan_error *err)
{
    bool synced;
    QP_TRY(qp_outs_commit(outs, &report->owned->source, &synced, err));
    QP_TRY(qp_report_warn(report, &notes->warnings, err));
    return qp_report_notes(report, !notes->fewer_threads, synced, err);
}

static void add_needs(struct qp_device_need *need, const struct qplan_plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!qp_is_quantized(t))
            continue;
        const struct qp_device_row row = {
            .kind = QP_KIND_QUANTIZE,
            .dtype = qp_storage_row((enum qplan_storage)t->source->storage)->dtype,
            .scheme = *t->result.scheme};
        qp_need_add(need, &row, qp_tensor_bytes(t->source), t->source->name, t->source->name_len);
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
    struct qp_outs outs;
    struct qp_run_notes notes = {.fewer_threads = false};
    *report = NULL;
    QP_TRY(qp_plan_check_weights(plan, err));
    QP_TRY(qp_gates_check(options->gates, options->n_gates, true, has_weights(plan), err));
    QP_TRY(qp_gates_check_plan(options->gates, options->n_gates, plan, err));
    QP_TRY(take_device(plan, run, err));
    const struct qp_outs_request request = {.path = options->out_path,
                                            .force = run && run->force,
                                            .news = &plan->news,
                                            .source = &plan->checkpoint->source,
                                            .side = &plan->side};
    QP_TRY(qp_outs_open(&outs, &request, err));
    enum qplan_status status = write_tensors(plan, &outs, run, &notes, err);
    if (status == QPLAN_OK)
        status = check_written(report, plan, &outs, options, run, err);
    if (status == QPLAN_OK && *report)
        status = commit(&outs, *report, &notes, err);
    qp_run_notes_free(&notes);
    qp_outs_discard(&outs);
    if (status != QPLAN_OK && status != QPLAN_ERR_PROOF) {
        qplan_report_free(*report);
        *report = NULL;
    }
    return status;
}
