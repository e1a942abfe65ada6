/*
 * inspect.c - looking at a checkpoint, alone or against its source; verify is this with .prove.
 */
#include "lib/device/device.h"
#include "lib/importance/importance.h"
#include "lib/report/report.h"

/* A plain source, or one that is decoded; what is measured against itself proves nothing. */
static enum qplan_status check_source(const struct qplan_checkpoint *checkpoint,
                                      const struct qplan_checkpoint *against,
                                      struct qplan_error *err)
{
    const struct qp_file *file = &checkpoint->source.files[0].file;
    const struct qp_file *other = &against->source.files[0].file;
    const char *shown = against->source.listing.shown;
    if (!against->format)
        return QPLAN_OK;
    if (!against->is_decoded)
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "the source is itself quantized: expected the plain checkpoint");
    return file->dev == other->dev && file->ino == other->ino
               ? qp_fail(err, QPLAN_ERR_INVALID, shown,
                         "the source is the file itself: expected what it was made of")
               : QPLAN_OK;
}

/* Reads what the file was made with besides its source. */
static enum qplan_status read_data(const struct qplan_inspect_options *o,
                                   struct qp_importance *importance, struct qp_hessians *hessians,
                                   struct qp_made_with *with, struct qplan_error *err)
{
    for (size_t i = 0; i < o->n_importance; i++)
        QP_TRY(qp_importance_read(importance, o->importance[i], err));
    if (o->hessian)
        QP_TRY(qp_hessians_open(hessians, o->hessian, err));
    *with = (struct qp_made_with){.importance = o->n_importance ? importance : NULL,
                                  .hessians = o->hessian ? hessians : NULL,
                                  .hessian_damp =
                                      o->hessian_damp > 0 ? o->hessian_damp : QPLAN_HESSIAN_DAMP};
    return QPLAN_OK;
}

enum qplan_status qplan_inspect(struct qplan_report **report,
                                const struct qplan_checkpoint *checkpoint,
                                const struct qplan_inspect_options *options,
                                const struct qplan_run *run, struct qplan_error *err)
{
    static const struct qplan_inspect_options defaults;
    const struct qplan_inspect_options *o = options ? options : &defaults;
    struct qp_report_request request = {
        .command = o->prove ? "verify" : "inspect",
        .path = qplan_checkpoint_path(checkpoint),
        .file = checkpoint,
        .source = o->against,
        .prove = o->prove,
        .exact = o->exact,
        .allow_unquantized = o->allow_unquantized,
        .allow_unproven = o->allow_unproven,
        .include = o->include,
        .n_include = o->n_include,
        .gates = o->gates,
        .n_gates = o->n_gates,
    };
    *report = NULL;
    if (o->prove && !o->against)
        return qp_fail(err, QPLAN_ERR_USAGE, checkpoint->source.listing.shown,
                       "a proof needs the source");
    if (o->against)
        QP_TRY(check_source(checkpoint, o->against, err));
    /* Without a source a device has nothing to do, but one that was named must be usable. */
    if (run && !o->against) {
        const struct qp_device_need nothing = {.n_rows = 0};
        QP_TRY(qp_device_take(run->device, &nothing, run->threads, err));
    }
    QP_TRY(qp_gates_check(o->gates, o->n_gates, o->against != NULL, err));
    struct qp_importance importance = {.n_entries = 0};
    struct qp_hessians hessians = {.is_open = false};
    enum qplan_status status = read_data(o, &importance, &hessians, &request.with, err);
    if (status == QPLAN_OK)
        status = qp_report_make(report, &request, run, err);
    qp_importance_free(&importance);
    qp_hessians_close(&hessians);
    return status;
}
