/*
 * inspect.c - looking at a checkpoint, alone or against its source; verify is this with .prove.
 */
#include "lib/device/device.h"
#include "lib/importance/importance.h"
#include "lib/report/report.h"

/* The data that a file was made with besides its source. */
struct data {
    struct qp_importance importance;
    struct qp_hessians hessians;
};

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

/*
 * A file says of no data that it was made with them where no record asks for such. Not known to who
 * opens a shard alone: only a proof needs all shards. Records may do without, as older files do.
 */
static enum qplan_status check_making(const struct qplan_checkpoint *checkpoint,
                                      struct qplan_error *err)
{
    const struct qp_making *making = &checkpoint->making;
    bool is_weighed = false, is_rounded = false;
    struct qp_calibrator made;
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const struct qp_tensor *t = &checkpoint->tensors[i];
        if (!t->scheme || !qp_calibrator_recorded(t->calibrate, t->scheme, &made))
            continue;
        is_rounded |= made.rounds;
        is_weighed |= made.weighted && !made.rounds;
    }
    const char *unasked = making->importance.n > 0 && !is_weighed ? QP_IMPORTANCE_KEY
                          : making->hessians.n > 0 && !is_rounded ? QP_HESSIAN_KEY
                                                                  : NULL;
    return unasked ? qp_fail(err, QPLAN_ERR_INVALID, checkpoint->source.listing.shown,
                             "metadata %s: expected none, for no record asks for it", unasked)
                   : QPLAN_OK;
}

/*
 * Reads what the file was made with besides its source. What is computed again needs the very files
 * that its metadata name; errors may be weighted by any.
 */
static enum qplan_status read_data(const struct qplan_inspect_options *o,
                                   const struct qp_making *recorded, struct data *data,
                                   struct qp_made_with *with, struct qplan_error *err)
{
    const struct qp_making none = {.saturates = false};
    const struct qp_making *expected = o->exact ? recorded : &none;
    struct qp_digests unused;
    *with = (struct qp_made_with){.importance = o->n_importance ? &data->importance : NULL,
                                  .hessians = o->hessian ? &data->hessians : NULL};
    QP_TRY(qp_importance_read(&data->importance, o->importance, o->n_importance,
                              &expected->importance, err));
    QP_TRY(qp_plan_take_damp(expected, o->hessian_damp, &with->hessian_damp, err));
    if (!o->hessian)
        return QPLAN_OK;
    QP_TRY(qp_hessians_open(&data->hessians, o->hessian, err));
    if (expected->hessians.n == 0)
        return QPLAN_OK;
    return qp_hessians_digest(&data->hessians, &expected->hessians, &data->importance.arena,
                              &unused, err);
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
    if (o->prove)
        QP_TRY(check_making(checkpoint, err));
    /* Without a source a device has nothing to do, but one that was named must be usable. */
    if (run && !o->against) {
        const struct qp_device_need nothing = {.n_rows = 0};
        QP_TRY(qp_device_take(run->device, &nothing, run->threads, err));
    }
    QP_TRY(qp_gates_check(o->gates, o->n_gates, o->against != NULL, o->n_importance || o->hessian,
                          err));
    struct data data = {.importance.n_entries = 0};
    enum qplan_status status = read_data(o, &checkpoint->making, &data, &request.weighed_by, err);
    if (o->exact)
        request.with = request.weighed_by;
    if (status == QPLAN_OK)
        status = qp_report_make(report, &request, run, err);
    qp_importance_free(&data.importance);
    qp_hessians_close(&data.hessians);
    return status;
}
