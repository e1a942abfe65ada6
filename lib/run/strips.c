/*
 * strips.c - bytes of the source in a tile, calibrator and kernels, bytes of the output. Nothing
 * here decides what comes next.
 */
#include "strips.h"

#include "kernels/codes/biased.h"
#include "kernels/codes/largest.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "nested.h"
#include "on_device.h"

#include <inttypes.h>
#include <string.h>

static const struct qp_plan_tensor *tensor_of(const struct qp_worker *w)
{
    return w->unit->tensor;
}

static const struct qp_part *part_of(const struct qp_worker *w, enum qp_role role)
{
    return qp_tensor_part(&tensor_of(w)->result, role);
}

void qp_worker_prepare(struct qp_worker *w)
{
    const struct qp_plan_tensor *t = tensor_of(w);
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)t->source->storage);
    w->kernels = qp_source_kernels(row->dtype, w->context->job->run->isa);
    w->rule = qp_code_rule(t->result.scheme);
    w->rule.of_largest = qp_is_of_largest(&t->result);
    if (part_of(w, QP_FACTOR) && w->context->factors) {
        w->rule.factor = w->context->factors[t - w->context->plan->tensors];
        w->rule.divides = part_of(w, QP_FACTOR)->divides;
    }
    w->quantizer = qp_quantizer(row->dtype, w->rule.kind, w->context->job->run->isa);
    /*
     * Kernels may then trust that all values are finite, since any other has ended the job before a
     * code is made, and that they fit the scale, which was made to cover them. A scale of the type
     * f8e4m3 covers values that are as near to the largest float as to the one that would follow.
     */
    w->rule.bounded = w->context->plan->nonfinite == QPLAN_NONFINITE_ERROR &&
                      !t->calibrator->can_clip && !t->result.scheme->nested &&
                      !(w->rule.kind == QP_CODES_FLOAT && w->rule.scale_dtype == QPLAN_F8E4M3);
    qp_tensor_sets(&w->sets, &t->result);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static enum qplan_status flush_joined(const struct qp_worker *w, struct qp_joined *joined)
{
    size_t n = joined->n;
    joined->n = 0;
    if (n == 0)
        return QPLAN_OK;
    return qp_outs_write_at(w->context->outs, joined->file, joined->at, joined->data, n, w->err);
}

enum qplan_status qp_worker_write(struct qp_worker *w, enum qp_joined_kind kind,
                                  const struct qplan_entry *entry, uint64_t off, const void *bytes,
                                  size_t n)
{
    struct qp_joined *joined = &w->b->joined[kind];
    const uint64_t at = qp_outs_at(w->context->outs, entry, off);
    if (entry->file != joined->file || at != joined->at + joined->n || n > joined->cap - joined->n)
        QP_TRY(flush_joined(w, joined));
    if (n > joined->cap || w->context->outs->there) /* what is compared is so by its tensor */
        return qp_outs_write(w->context->outs, entry, off, bytes, n, w->err);
    if (joined->n == 0) {
        joined->file = entry->file;
        joined->at = at;
    }
    if (bytes != joined->data + joined->n) /* they may have been made there */
        memmove(joined->data + joined->n, bytes, n);
    joined->n += n;
    return QPLAN_OK;
}

enum qplan_status qp_worker_flush(struct qp_worker *w)
{
    for (int i = 0; i < QP_JOINS; i++)
        QP_TRY(flush_joined(w, &w->b->joined[i]));
    return QPLAN_OK;
}

/* Codes of a large tensor are long enough to be written by themselves. */
static enum qplan_status write_part(struct qp_worker *w, const struct qp_part *part, uint64_t off,
                                    const void *bytes, size_t n)
{
    const bool is_small = w->unit->batch != NULL;
    if (part->role == QP_SCALE)
        return qp_worker_write(w, QP_JOIN_SCALES, part->entry, off, bytes, n);
    if (part->role == QP_BIAS || (part->role == QP_ZERO && !is_small))
        return qp_worker_write(w, QP_JOIN_ZEROS, part->entry, off, bytes, n);
    /* Behind the codes of a small tensor come its zero points, then the codes of the next. */
    return is_small ? qp_worker_write(w, QP_JOIN_CODES, part->entry, off, bytes, n)
                    : qp_outs_write(w->context->outs, part->entry, off, bytes, n, w->err);
}

static enum qplan_status write_run(void *ctx, const struct qp_part *part, uint64_t off,
                                   const void *bytes, size_t n, struct qplan_error *err)
{
    (void)err; /* it is the worker's */
    return write_part(ctx, part, off, bytes, n);
}

/* Writes n values of a part from a flat element, or set, on. */
static enum qplan_status put_values(struct qp_worker *w, const struct qp_part *part, uint64_t elem,
                                    size_t n, const void *values)
{
    const enum qplan_isa isa = w->context->job->run->isa;
    const struct qp_held *held = qp_hold_find(&w->hold, part, elem, n);
    if (!qp_writes(w->context))
        return QPLAN_OK;
    if (!held)
        return qp_part_put(w->context->outs, part, elem, n, isa, values, w->b->image, write_run, w,
                           w->err);
    qp_held_put(held, elem, n, isa, values);
    return QPLAN_OK;
}

void qp_worker_hold(struct qp_worker *w)
{
    if (w->unit->held_rows > 0)
        qp_hold_make(&w->hold, &tensor_of(w)->result, w->unit->held_row, w->unit->held_rows,
                     qp_has_codes(tensor_of(w), w->context->roles), w->b->hold);
}

enum qplan_status qp_worker_release(struct qp_worker *w)
{
    const struct qp_hold hold = w->hold;
    w->hold.n = 0;
    return qp_hold_write(&hold, write_run, w, w->err);
}

/* A piece with all columns is one range in flat order; another is a range a row. */
struct ranges {
    uint64_t n, len, first, step;
};

static struct ranges ranges_of(const struct qp_sets *sets, const struct qp_piece *piece)
{
    const uint64_t first = piece->row * sets->row_len + piece->col;
    const bool is_one = piece->n_rows == 1 || piece->n_cols == sets->row_len;
    return is_one ? (struct ranges){1, piece->n_rows * piece->n_cols, first, 0}
                  : (struct ranges){piece->n_rows, piece->n_cols, first, sets->row_len};
}

static enum qplan_status put_codes(struct qp_worker *w, const uint8_t *codes)
{
    const struct ranges r = ranges_of(&w->sets, &w->piece);
    for (uint64_t i = 0; i < r.n; i++)
        QP_TRY(put_values(w, part_of(w, QP_CODES), r.first + i * r.step, (size_t)r.len,
                          codes + i * r.len));
    return QPLAN_OK;
}

/* Codes that a device made: packed as the file has them, if the file packs them as devices do. */
static enum qplan_status put_made_codes(struct qp_worker *w, const struct qp_device_made *made)
{
    const struct qp_part *part = part_of(w, QP_CODES);
    if (!qp_part_is_nibbles(part))
        return put_codes(w, made->codes);
    const struct ranges r = ranges_of(&w->sets, &w->piece);
    const uint64_t n_bytes = r.n > 1 ? made->row_bytes : w->piece.n_rows * made->row_bytes;
    for (uint64_t i = 0; i < r.n; i++) {
        const struct qp_flat_range range = {part->matrix, r.first + i * r.step, r.len};
        const uint64_t off = qp_flat_run(part->place, &range).off;
        QP_TRY(write_part(w, part, off, made->codes + i * n_bytes, (size_t)n_bytes));
    }
    return QPLAN_OK;
}

/* Biases in the type that is stored, some at a time. */
static void store_biases(const struct qp_worker *w, size_t n, const int32_t *zero)
{
    const enum qplan_dtype dtype = w->rule.scale_dtype;
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    char *to = w->b->stored;
    float bias[256];
    for (size_t at = 0, k; at < n; at += k) {
        for (k = 0; k < 256 && at + k < n; k++)
            bias[k] = qp_bias(zero[at + k]);
        f32->store(dtype, k, bias, to + at * qp_float_bytes(dtype));
    }
}

enum qplan_status qp_worker_put_zeros(struct qp_worker *w, size_t n, const int32_t *zero)
{
    const struct qp_part *part = part_of(w, QP_ZERO), *biases = part_of(w, QP_BIAS);
    uint8_t *stored = w->b->stored;
    if (w->context->roles == QP_SETS)
        return QPLAN_OK;
    if (biases) {
        store_biases(w, n, zero);
        return put_values(w, biases, w->unit->strip.set, n, stored);
    }
    if (!part)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++)
        stored[i] = (uint8_t)zero[i];
    return put_values(w, part, w->unit->strip.set, n, stored);
}

/* Largest sizes become the scales that decoders compute of what is stored. */
static enum qplan_status put_nested(struct qp_worker *w, size_t n, float *scale)
{
    const struct qp_plan_tensor *t = tensor_of(w);
    const uint64_t set = w->unit->strip.set;
    const size_t n_groups = (size_t)qp_div_up(n, QP_NESTED_SETS);
    float *of_scales = w->b->stored;
    uint8_t *codes = (uint8_t *)(of_scales + n_groups);
    struct qp_nest nest;
    qp_nest_make(&nest, &t->result, w->context->offsets[t - w->context->plan->tensors]);
    qp_nest_scales(&nest, n, scale, of_scales, codes);
    QP_TRY(put_values(w, part_of(w, QP_SCALE), set, n, codes));
    return put_values(w, part_of(w, QP_NESTED), set / QP_NESTED_SETS, n_groups, of_scales);
}

enum qplan_status qp_worker_put_scales(struct qp_worker *w, size_t n, void *scale)
{
    if (w->context->roles == QP_SETS)
        return QPLAN_OK; /* they have been handed over */
    if (tensor_of(w)->result.scheme->nested)
        return put_nested(w, n, scale);
    struct qp_code_rule rule = w->rule;
    if (tensor_of(w)->calibrator->codes) /* its scales are the stored ones */
        rule.factor = 1;
    qp_store_scales(w->kernels->work, &rule, n, scale, w->b->stored);
    if (w->rule.of_largest && !tensor_of(w)->calibrator->codes)
        qp_times_f32(w->kernels->work->work, n, qp_part_of_largest(&w->rule), scale);
    return put_values(w, part_of(w, QP_SCALE), w->unit->strip.set, n, w->b->stored);
}

/* ---- Values ------------------------------------------------------------------------------------
 */

enum qplan_status qp_worker_read(struct qp_worker *w)
{
    const struct qp_source *source = &w->context->plan->checkpoint->source;
    const struct qplan_entry *entry = qp_source_entry(tensor_of(w));
    const struct ranges r = ranges_of(&w->sets, &w->piece);
    const struct qp_values values = qp_source_values(w->context, tensor_of(w), w->b);
    const size_t elem_bytes = w->kernels->elem_bytes, n_bytes = (size_t)r.len * elem_bytes;
    char *tile = qp_source_room(source, entry, r.first * elem_bytes, w->b->tile);
    w->src = tile;
    for (uint64_t i = 0; i < r.n; i++)
        QP_TRY(qp_values_read(&values, r.first + i * r.step, r.len, tile + i * n_bytes, w->err));
    return QPLAN_OK;
}

static struct qp_device_step device_step(const struct qp_worker *w)
{
    return (struct qp_device_step){w->context->device, w->b,
                                   qp_device_work(tensor_of(w), &w->rule, &w->sets, &w->piece),
                                   w->src};
}

/* The calibration of the sets from `first` on, of those of the strip. */
static struct qp_calibration calibration_of(const struct qp_worker *w, size_t first)
{
    const struct qp_unit *unit = w->unit;
    const struct qp_tensor *source = tensor_of(w)->source;
    const uint64_t n_columns = source->shape[source->rank - 1]; /* flat sets have longer rows */
    char *known = unit->kind == QP_UNIT_PIECE ? unit->slot->known : w->b->known;
    return (struct qp_calibration){
        .calibrator = tensor_of(w)->calibrator,
        .kernels = w->kernels,
        .quantizer = w->quantizer,
        .rule = &w->rule,
        .known = known + first * tensor_of(w)->calibrator->known_bytes,
        .set_elems = w->sets.band_rows * w->sets.col_width,
        .short_set = qp_short_set(&w->sets, w->unit->strip.set + first),
        .weights = tensor_of(w)->importance,
        .n_weights = (size_t)n_columns,
        .first_weight = (size_t)(w->piece.col % n_columns),
    };
}

/* Values that are not finite end the job, where the plan says so. */
static enum qplan_status judge_nonfinite(const struct qp_worker *w, uint64_t n_others)
{
    const struct qp_values values = qp_source_values(w->context, tensor_of(w), w->b);
    if (n_others == 0 || w->context->plan->nonfinite == QPLAN_NONFINITE_SATURATE)
        return QPLAN_OK;
    return qp_fail_nonfinite(&values, w->b->tile, w->context->job->tile_bytes, w->err);
}

/* A device finds the ranges of a piece: the state of a calibrator that wants these. */
static enum qplan_status see_on_device(struct qp_worker *w)
{
    const struct qp_device_step step = device_step(w);
    const size_t n = qp_tile_sets(&w->piece.tile) * w->kernels->work_bytes;
    struct qp_device_made made;
    QP_TRY(qp_step_ranges(&step, &made, w->err));
    memcpy(w->b->state, made.lo, n);
    memcpy((char *)w->b->state + n, made.hi, n);
    return judge_nonfinite(w, made.nonfinite);
}

enum qplan_status qp_worker_see(struct qp_worker *w, unsigned pass)
{
    const struct qp_calibrator *calibrator = tensor_of(w)->calibrator;
    const struct qp_calibration c = calibration_of(w, (size_t)w->piece.first_set);
    if (w->b->lane && calibrator->finds_ranges)
        return see_on_device(w);
    memset(w->b->state, 0, qp_tile_sets(&w->piece.tile) * calibrator->state_bytes);
    return judge_nonfinite(w, calibrator->see(&c, pass, &w->piece.tile, w->src, w->b->state));
}

static enum qplan_status fail_scale(const struct qp_worker *w, uint64_t set)
{
    char subject[512];
    const struct qp_plan_tensor *t = tensor_of(w);
    const bool is_recipe = t->calibrator->codes;
    (void)qp_checkpoint_subject(subject, w->context->plan->checkpoint, t->source);
    if (is_recipe)
        qp_fail(w->err, QPLAN_ERR_VALUE, subject,
                "%s makes no scale of set %" PRIu64
                ": its values are too large, too small or all 0",
                t->calibrator->name, set);
    else
        qp_fail(w->err, QPLAN_ERR_VALUE, subject, "the %s of set %" PRIu64 " is too large for %s",
                t->result.scheme->bias ? "range" : "scale", set,
                qplan_dtype_name(t->result.scheme->scale_dtype));
    /* The layouts of engines say themselves of which type scales are. */
    const bool is_open = !is_recipe && !w->context->plan->format->fit;
    qp_advise(w->err, is_open && t->result.scheme->scale_dtype != QPLAN_F32 ? QPLAN_ADVICE_SCALE_F32
                                                                            : QPLAN_ADVICE_EXCLUDE);
    return QPLAN_ERR_VALUE;
}

static enum qplan_status judge_scales(const struct qp_worker *w, size_t good, size_t n)
{
    return good < n ? fail_scale(w, w->unit->strip.set + good) : QPLAN_OK;
}

/* Scales that have scales are the largest sizes themselves, and 0 of zeros. */
static void take_sizes(const struct qp_calibration *c, size_t n, void *state, float *scale)
{
    const float *lo = state, *hi = qp_ranges_most(c, state, n);
    for (size_t i = 0; i < n; i++)
        scale[i] = -lo[i] > hi[i] ? -lo[i] : hi[i];
}

/* The state of a calibrator that finds ranges is these. */
static enum qplan_status hand_over(const struct qp_worker *w, const struct qp_calibration *c,
                                   size_t n, void *state, const void *scale, const int32_t *zero)
{
    const struct qp_found_sets found = {.tensor = tensor_of(w),
                                        .work = w->kernels->work,
                                        .set = w->unit->strip.set,
                                        .n = n,
                                        .scale = scale,
                                        .lo = state,
                                        .hi = qp_ranges_most(c, state, n),
                                        .zero = zero};
    return w->context->take(w->context->take_ctx, &found, w->err);
}

enum qplan_status qp_worker_finish(const struct qp_worker *w, unsigned pass, size_t n, void *state,
                                   void *scale, int32_t *zero)
{
    const struct qp_calibration c = calibration_of(w, 0);
    const size_t good =
        qp_calibrator_finish(tensor_of(w)->calibrator, &c, pass, n, state, scale, zero);
    if (tensor_of(w)->result.scheme->nested)
        take_sizes(&c, n, state, scale);
    QP_TRY(judge_scales(w, good, n));
    return w->context->roles == QP_SETS ? hand_over(w, &c, n, state, scale, zero) : QPLAN_OK;
}

/* The parameters of a strip whose elements are in memory. */
static enum qplan_status choose(struct qp_worker *w, size_t n)
{
    const struct qp_unit_buffers *b = w->b;
    struct qp_set_params chosen = {b->scale, b->zero, 0};
    if (tensor_of(w)->calibrator->choose) {
        const struct qp_calibration c = calibration_of(w, 0);
        const size_t good = qp_calibrator_choose(&c, &w->piece.tile, w->src, b->state, &chosen);
        QP_TRY(judge_nonfinite(w, chosen.n_others));
        return judge_scales(w, good, n);
    }
    for (unsigned pass = 0; pass < qp_passes(tensor_of(w), QP_PARAMETERS); pass++) {
        QP_TRY(qp_worker_see(w, pass));
        QP_TRY(qp_worker_finish(w, pass, n, b->state, b->scale, b->zero));
    }
    return QPLAN_OK;
}

/* Codes of small tensors are best made where they wait for what follows them. */
static uint8_t *room_of_codes(const struct qp_worker *w)
{
    const struct qp_part *part = part_of(w, QP_CODES);
    const struct qp_joined *joined = &w->b->joined[QP_JOIN_CODES];
    const uint64_t elem = w->piece.row * w->sets.row_len + w->piece.col;
    if (w->unit->batch && joined->cap - joined->n >= w->piece.n_rows * w->piece.n_cols)
        return (uint8_t *)joined->data + joined->n;
    return qp_outs_room(w->context->outs, part->entry, elem, w->b->codes);
}

enum qplan_status qp_worker_put_codes(struct qp_worker *w, const void *scale, const int32_t *zero)
{
    const struct qp_calibrator *calibrator = tensor_of(w)->calibrator;
    const struct qp_calibration c = calibration_of(w, (size_t)w->piece.first_set);
    if (w->b->lane && !calibrator->codes) {
        const struct qp_device_step step = device_step(w);
        struct qp_device_made made;
        QP_TRY(qp_step_codes(&step, scale, zero, &made, w->err));
        return put_made_codes(w, &made);
    }
    uint8_t *codes = w->context->errors ? w->b->codes : room_of_codes(w);
    if (calibrator->codes)
        calibrator->codes(&c, &w->piece.tile, w->src, scale, zero, codes);
    else
        w->quantizer->quantize(&w->piece.tile, w->src, &w->rule, scale, zero, codes);
    if (!w->context->errors)
        return put_codes(w, codes);
    qp_worker_measure(w, codes, scale, zero);
    return QPLAN_OK;
}

/* ---- Strips ------------------------------------------------------------------------------------
 */

/*
 * Codes of a strip on a device whose calibrator wants ranges, but for those with a bias: one way
 * there and one back. The device stores the scales that codes are made by.
 */
static enum qplan_status quantize_on_device(struct qp_worker *w)
{
    const struct qp_device_step step = device_step(w);
    const struct qp_strip *strip = &w->unit->strip;
    const struct qp_part *zeros = part_of(w, QP_ZERO);
    const size_t n = (size_t)strip->n_sets;
    struct qp_device_made made;
    QP_TRY(qp_step_quantize(&step, &made, w->err));
    QP_TRY(judge_nonfinite(w, made.nonfinite));
    if (made.bad_set != UINT64_MAX)
        return fail_scale(w, strip->set + made.bad_set);
    QP_TRY(put_values(w, part_of(w, QP_SCALE), strip->set, n, made.stored_scale));
    QP_TRY(put_made_codes(w, &made));
    return zeros ? put_values(w, zeros, strip->set, n, made.stored_zero) : QPLAN_OK;
}

/* A strip whose elements are in memory. */
static enum qplan_status quantize_strip(struct qp_worker *w)
{
    const struct qp_unit_buffers *b = w->b;
    const struct qp_calibrator *calibrator = tensor_of(w)->calibrator;
    const size_t n = (size_t)w->unit->strip.n_sets;
    if (b->lane && calibrator->finds_ranges && w->rule.kind != QP_CODES_BIASED &&
        !w->rule.of_largest && !tensor_of(w)->result.scheme->nested)
        return quantize_on_device(w);
    QP_TRY(choose(w, n));
    QP_TRY(qp_worker_put_scales(w, n, b->scale));
    if (qp_has_codes(tensor_of(w), w->context->roles))
        QP_TRY(qp_worker_put_codes(w, b->scale, b->zero));
    return qp_worker_put_zeros(w, n, b->zero); /* in the file they follow the codes */
}

enum qplan_status qp_quantize_strips(const struct qp_worker *from, const struct qp_unit *unit,
                                     const char *bytes)
{
    struct qp_unit at_hand = *unit;
    struct qp_worker w = *from;
    const uint64_t grain = qp_unit_grain(from->context, unit->tensor);
    uint64_t band = unit->strip.band, col = unit->strip.col;
    bool more = true;
    w.unit = &at_hand;
    qp_worker_prepare(&w);
    for (uint64_t i = 0; i < unit->n_strips && more; i++) {
        qp_strip_at(&w.sets, &unit->limits, w.kernels->elem_bytes, grain, band, col,
                    &at_hand.strip);
        qp_piece_at(&w.sets, &at_hand.strip, 0, &w.piece);
        if (bytes)
            w.src = bytes + w.piece.row * w.sets.row_len * w.kernels->elem_bytes;
        else
            QP_TRY(qp_worker_read(&w));
        QP_TRY(quantize_strip(&w));
        more = qp_strip_next(&w.sets, &at_hand.strip, &band, &col);
    }
    return QPLAN_OK;
}
