/*
 * unit.c - doing one unit of a plan, step by step.
 */
#include "unit.h"

#include "strips.h"

#include <string.h>

static enum qplan_status do_copy(const struct qp_worker *w)
{
    const struct qp_unit *unit = w->unit;
    return qp_outs_copy(w->context->outs, unit->tensor->result.entry,
                        &w->context->plan->checkpoint->source, qp_source_entry(unit->tensor),
                        unit->off, unit->n, w->b->tile, w->err);
}

/* A kept tensor that is not in the source as it is: its values. */
static enum qplan_status do_values(const struct qp_worker *w)
{
    const struct qp_unit *unit = w->unit;
    const struct qplan_entry *output = unit->tensor->result.entry;
    const struct qp_values values = qp_source_values(w->context, unit->tensor, w->b);
    const size_t size = qp_source_elem_bytes(unit->tensor);
    char *to = qp_outs_room(w->context->outs, output, unit->off, w->b->tile);
    QP_TRY(qp_values_read(&values, unit->off / size, unit->n / size, to, w->err));
    return qp_outs_write(w->context->outs, output, unit->off, to, (size_t)unit->n, w->err);
}

static enum qplan_status do_whole(struct qp_worker *w)
{
    qp_worker_hold(w);
    QP_TRY(qp_quantize_strips(w, w->unit, NULL));
    QP_TRY(qp_worker_release(w));
    return qp_worker_flush(w);
}

/*
 * Adds the state of the piece to that of the strip when the pieces before it have done so.
 * *is_last: this was the last piece, and the strip has seen everything. False if the job stops
 * meanwhile.
 */
static bool merge_in_turn(const struct qp_worker *w, bool *is_last)
{
    struct qp_job *job = w->context->job;
    const struct qp_unit *unit = w->unit;
    const struct qp_calibration c = {.calibrator = unit->tensor->calibrator,
                                     .kernels = w->kernels,
                                     .quantizer = w->quantizer,
                                     .rule = &w->rule};
    struct qp_slot *slot = unit->slot;
    (void)pthread_mutex_lock(&job->lock);
    while (slot->n_merged != unit->piece && !qp_job_stopping(job))
        (void)pthread_cond_wait(&job->changed, &job->lock);
    const bool is_turn = slot->n_merged == unit->piece;
    if (is_turn) {
        unit->tensor->calibrator->merge(&c, unit->pass, slot->state, (size_t)unit->strip.n_sets,
                                        (size_t)w->piece.first_set, w->b->state,
                                        qp_tile_sets(&w->piece.tile));
        *is_last = ++slot->n_merged == unit->strip.n_pieces;
        (void)pthread_cond_broadcast(&job->changed);
    }
    (void)pthread_mutex_unlock(&job->lock);
    return is_turn;
}

/* Behind the last piece of a pass; behind the last pass the parameters are written. */
static enum qplan_status end_pass(struct qp_worker *w)
{
    struct qp_job *job = w->context->job;
    const struct qp_unit *unit = w->unit;
    struct qp_slot *slot = unit->slot;
    const size_t n = (size_t)unit->strip.n_sets;
    QP_TRY(qp_worker_finish(w, unit->pass, n, slot->state, slot->scale, slot->zero));
    memset(slot->state, 0, n * unit->tensor->calibrator->state_bytes); /* for the next pass */
    if (unit->pass + 1 == qp_passes(unit->tensor, QP_PARAMETERS)) {
        QP_TRY(qp_worker_put_scales(w, n, slot->scale));
        QP_TRY(qp_worker_put_zeros(w, n, slot->zero));
        QP_TRY(qp_worker_flush(w));
    }
    (void)pthread_mutex_lock(&job->lock);
    slot->passes_done++;
    slot->n_merged = 0;
    (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
    return QPLAN_OK;
}

static enum qplan_status see_piece(struct qp_worker *w)
{
    bool is_last = false;
    QP_TRY(qp_worker_see(w, w->unit->pass));
    return merge_in_turn(w, &is_last) && is_last ? end_pass(w) : QPLAN_OK;
}

static enum qplan_status encode_piece(struct qp_worker *w)
{
    const struct qp_slot *slot = w->unit->slot;
    const size_t first = (size_t)w->piece.first_set;
    return qp_worker_put_codes(w, (const char *)slot->scale + first * w->kernels->work_bytes,
                               slot->zero + first);
}

/* A piece of the last pass is done: behind the last one the slot is free for another strip. */
static void leave_slot(const struct qp_worker *w)
{
    struct qp_job *job = w->context->job;
    (void)pthread_mutex_lock(&job->lock);
    if (--w->unit->slot->pieces_left == 0)
        (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
}

static enum qplan_status do_piece(struct qp_worker *w)
{
    const struct qp_unit *unit = w->unit;
    qp_worker_prepare(w);
    qp_piece_at(&w->sets, &unit->strip, unit->piece, &w->piece);
    QP_TRY(qp_worker_read(w));
    QP_TRY(unit->pass < qp_passes(unit->tensor, QP_PARAMETERS) ? see_piece(w) : encode_piece(w));
    if (unit->pass + 1 == qp_passes(unit->tensor, w->context->roles))
        leave_slot(w);
    return QPLAN_OK;
}

static enum qplan_status run(struct qp_worker *w)
{
    const struct qp_unit *unit = w->unit;
    switch (unit->kind) {
    case QP_UNIT_BATCH:
        return qp_run_batch(w);
    case QP_UNIT_COPY:
        return qp_is_verbatim(unit->tensor->source) ? do_copy(w) : do_values(w);
    case QP_UNIT_WHOLE:
        return do_whole(w);
    case QP_UNIT_PIECE:
        return do_piece(w);
    }
    return QPLAN_ERR_INTERNAL;
}

/* The error of a unit, added to that of its tensor. */
static void add_error(const struct qp_worker *w)
{
    const struct qp_unit_context *context = w->context;
    (void)pthread_mutex_lock(&context->job->lock);
    qp_exact_merge(&context->errors[w->unit->tensor - context->plan->tensors], w->b->error);
    (void)pthread_mutex_unlock(&context->job->lock);
}

enum qplan_status qp_unit_run(const struct qp_unit_context *context, const struct qp_unit *unit,
                              struct qp_unit_buffers *buffers, struct qplan_error *err)
{
    struct qp_worker w = {.context = context, .unit = unit, .b = buffers, .err = err};
    if (context->errors)
        *buffers->error = (struct qp_exact){.n_added = 0};
    const enum qplan_status status = run(&w);
    if (status == QPLAN_OK && context->errors)
        add_error(&w);
    return status;
}

uint64_t qp_unit_bytes(const struct qp_unit *unit, enum qp_roles roles)
{
    if (unit->kind == QP_UNIT_COPY || unit->kind == QP_UNIT_WHOLE)
        return unit->n;
    if (unit->kind == QP_UNIT_BATCH)
        return qp_source_entry(unit->batch[unit->n_batch - 1])->end -
               qp_source_entry(unit->batch[0])->begin;
    const struct qp_strip *strip = &unit->strip;
    const unsigned passes = qp_passes(unit->tensor, roles);
    const uint64_t bytes = strip->n_rows * strip->n_cols * qp_source_elem_bytes(unit->tensor);
    /* A share of the strip; the last piece takes what the division left. */
    const uint64_t n_units = passes * strip->n_pieces;
    const bool is_last = unit->pass + 1 == passes && unit->piece + 1 == strip->n_pieces;
    return is_last ? bytes - bytes / n_units * (n_units - 1) : bytes / n_units;
}
