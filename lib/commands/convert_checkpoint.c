/*
 * convert_checkpoint.c - the codes and parameters of a quantized checkpoint in another layout,
 * streaming. A plan says what is stored where, as it does for quantize; values go from the part of
 * the one layout to that of the other, and no arithmetic is done on them, but that codes without a
 * sign become those with one, and the other way round, and that the biases of symmetric codes
 * follow from their scales.
 */
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/plan/plan.h"
#include "lib/report/report.h"
#include "lib/run/constants.h"
#include "lib/run/job.h"
#include "lib/store/parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- The plan ----------------------------------------------------------------------------------
 */

/* Refuses a tensor for what the layout stores instead, or for a reason to keep it plain. */
static enum qplan_status refuse(const struct qplan_plan *plan, const struct qp_tensor *t,
                                const char *instead, const char *reason, struct qplan_error *err)
{
    char subject[512], text[QPLAN_SCHEME_TEXT];
    (void)qplan_scheme_format(t->scheme, text);
    return qp_fail(err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, plan->checkpoint, t),
                   "%s cannot be stored by %s without loss: %s%s", text, plan->format->name,
                   instead ? "expected " : "", instead ? instead : reason);
}

/*
 * The scheme of a tensor as the layout has it: the same but for the sign of codes, and for the bias
 * of symmetric ones, which says the same as their zero point.
 */
static enum qplan_status fit_scheme(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                    struct qplan_error *err)
{
    const struct qp_tensor *source = t->source;
    struct qplan_scheme scheme = *source->scheme, usual;
    char stored[QPLAN_SCHEME_TEXT];
    scheme.scale_given = true; /* so that no layout takes another type of them */
    scheme.bias &= scheme.asymmetric;
    if (qplan_scheme_default(&usual, scheme.dtype, NULL) != QPLAN_OK)
        return refuse(plan, source, "a type of codes that is written", NULL, err);
    const char *instead =
        qp_format_fit(plan->format, &scheme, (enum qplan_storage)source->storage, &plan->options);
    if (instead)
        return refuse(plan, source, instead, NULL, err);
    if (scheme.asymmetric && scheme.bias != source->scheme->bias)
        return refuse(plan, source, "a bias", NULL, err);
    struct qplan_scheme as_before = scheme;
    as_before.dtype = source->scheme->dtype;
    as_before.bias = source->scheme->bias;
    if (!qp_scheme_equal(&as_before, source->scheme) ||
        qplan_dtype_bits(scheme.dtype) != qplan_dtype_bits(source->scheme->dtype)) {
        (void)qplan_scheme_format(&scheme, stored);
        return refuse(plan, source, stored, NULL, err);
    }
    return qp_plan_set_scheme(plan, t, &scheme, err);
}

static enum qplan_status fit_tensor(struct qplan_plan *plan, struct qp_plan_tensor *t,
                                    struct qplan_error *err)
{
    static const struct qp_calibrator unknown = {.name = NULL}; /* of another tool */
    const struct qp_format *format = plan->format;
    const struct qp_tensor *source = t->source;
    struct qp_calibrator recorded;
    t->calibrator = &unknown;
    if (qp_calibrator_recorded(source->calibrate, source->scheme, &recorded))
        t->calibrator = qp_arena_copy(&plan->arena, &recorded, 1, sizeof recorded);
    if (!t->calibrator)
        return qp_fail_memory(err, "plan", sizeof recorded);
    if (qp_tensor_part(source, QP_NESTED))
        return refuse(plan, source, "scales without scales of their own", NULL, err);
    if (qp_tensor_part(source, QP_INDEX))
        return refuse(plan, source, "columns in the order of their groups", NULL, err);
    if (format->rank && source->rank != format->rank)
        return refuse(plan, source, "a tensor of two axes", NULL, err);
    struct qp_tensor in_rows = *source;
    in_rows.is_flat = source->is_flat && format->is_flat;
    if (qp_has_ragged_groups(&in_rows) &&
        (source->is_flat || format->is_flat || !format->has_ragged_groups))
        return refuse(plan, source, "groups that divide the rows", NULL, err);
    QP_TRY(fit_scheme(plan, t, err));
    /* With a bias other methods than minmax choose other scales. */
    if (t->result.scheme->bias != source->scheme->bias && t->calibrator != &unknown &&
        strcmp(t->calibrator->name, qp_calibrate_minmax.name) != 0)
        t->calibrator = &unknown;
    t->result.is_flat = format->is_flat;
    t->result.variant = (uint8_t)format->variant(&t->result, &plan->options);
    const char *misfit = format->misfit ? format->misfit(&t->result) : NULL;
    plan->n_quantized++;
    return misfit ? refuse(plan, source, NULL, misfit, err) : QPLAN_OK;
}

/* A scale that is a step is no value of the largest code, nor the other way round. */
static enum qplan_status compare_scales(const struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (qp_is_quantized(t) && qp_is_of_largest(t->source) != qp_is_of_largest(&t->result))
            return refuse(plan, t->source,
                          qp_is_of_largest(&t->result)
                              ? "scales that are values of the largest code"
                              : "scales that are steps between codes",
                          NULL, err);
    }
    return QPLAN_OK;
}

/* A factor stays what it is: of the same tensors, and multiplied with scales or divided by. */
static enum qplan_status check_factor(const struct qplan_plan *plan, const struct qp_plan_tensor *t,
                                      struct qplan_error *err)
{
    const struct qp_part *from = qp_tensor_part(t->source, QP_FACTOR);
    const struct qp_part *to = qp_tensor_part(&t->result, QP_FACTOR);
    if (!from != !to)
        return refuse(plan, t->source, to ? "a factor of the scales" : "no factor of the scales",
                      NULL, err);
    if (from && from->divides != to->divides)
        return refuse(plan, t->source,
                      to->divides ? "scales that are divided by their factor"
                                  : "scales that are multiplied with their factor",
                      NULL, err);
    if (from && plan->checkpoint->format->has_shared_factors != plan->format->has_shared_factors)
        return refuse(plan, t->source,
                      plan->format->has_shared_factors
                          ? "one factor for tensors that are loaded as one"
                          : "a factor for each tensor",
                      NULL, err);
    return QPLAN_OK;
}

static enum qplan_status make_plan(struct qplan_plan *plan, const char *out_path,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    const struct qp_source *source = &plan->checkpoint->source;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (plan->tensors[i].source->scheme)
            QP_TRY(fit_tensor(plan, &plan->tensors[i], err));
    }
    plan->output_name = qp_arena_join(&plan->arena, out_path, strlen(out_path), "");
    if (!plan->output_name)
        return qp_fail_memory(err, "plan", strlen(out_path));
    QP_TRY(qp_side_find_more(&plan->side, source, run, &plan->arena, err));
    QP_TRY(qp_plan_layout(plan, err));
    QP_TRY(compare_scales(plan, err));
    for (size_t i = 0; i < plan->n_tensors; i++) {
        if (plan->tensors[i].source->scheme)
            QP_TRY(check_factor(plan, &plan->tensors[i], err));
    }
    return plan->format->config || !source->config
               ? QPLAN_OK
               : qp_side_edit_config(&plan->side, source, NULL, NULL, &plan->arena, err);
}

/* ---- Units -------------------------------------------------------------------------------------
 */

/*
 * A stored tensor of the output: a part of a quantized tensor, or one that is kept. Or else zero
 * points or biases of the source that the output leaves out, because its layout knows those of a
 * symmetric tensor: they are read and proven to be these.
 */
struct item {
    const struct qp_plan_tensor *tensor;
    const struct qp_part *to;     /* NULL = kept, or left out */
    const struct qp_part *from;   /* NULL = kept, or made: zero points of a symmetric tensor; of
                                   * biases that are made or left out the scales */
    const struct qp_part *biases; /* that are left out; NULL = none are */
    uint8_t added;                /* to each code, modulo 256 */
    uint64_t least;               /* values that are done together, or a multiple of it */
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    const struct qplan_plan *plan;
    struct qp_outs outs;
    struct item *items;
    size_t n_items;
    struct qp_flat flat;
};

struct buffers {
    void *room;  /* for values as they were stored, and as they are */
    void *image; /* for values as they will be stored */
};

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                          void *buffers)
{
    struct buffers *b = buffers;
    (void)job;
    b->room = qp_take(carve, QP_PART_ROOM(tile_bytes, 1));
    b->image = qp_take(carve, QP_IMAGE_ROOM(tile_bytes, 1));
}

/* A word may hold values of so many rows, where words go down rows: 32 values of any width. */
#define WORD_ROWS 32u

/* Whole rows, or as many as words go down; the sets of a tensor may be one row for a layout. */
static uint64_t least_values(const struct qp_part *part)
{
    if (!part || part->matrix.rows <= 1)
        return 1;
    const bool is_tall = part->place->columns || part->place->interleaved || part->place->swizzled;
    return part->matrix.cols * (is_tall ? WORD_ROWS : 1);
}

static bool is_kept(const struct item *item)
{
    return !item->to && !item->from;
}

static uint64_t item_values(const struct item *item)
{
    const struct qp_part *part = item->to ? item->to : item->from;
    if (is_kept(item))
        return item->tensor->result.entry->end - item->tensor->result.entry->begin;
    return part->matrix.rows * part->matrix.cols;
}

static size_t bytes_of_value(const struct item *item)
{
    return is_kept(item) ? 1 : qp_value_bytes(item->to ? item->to : item->from);
}

/* The zero point of the codes of a symmetric tensor, in a byte. */
static uint8_t middle_of(const struct qplan_scheme *scheme)
{
    const bool is_signed = qplan_dtype_is_signed(scheme->dtype);
    return (uint8_t)(is_signed ? 0 : 1 << (qplan_dtype_bits(scheme->dtype) - 1));
}

static size_t tile_least(const struct qp_job *job)
{
    const struct engine *e = (const struct engine *)job;
    uint64_t most = 0;
    for (size_t i = 0; i < e->n_items; i++)
        most = qp_max_u64(most, qp_min_u64(e->items[i].least, item_values(&e->items[i])) *
                                    bytes_of_value(&e->items[i]));
    return (size_t)most;
}

static uint64_t item_length(const void *ctx, size_t i, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct item *item = &e->items[i];
    const uint64_t most = e->job.tile_bytes / bytes_of_value(item);
    *unit_length = most > item->least ? most - most % item->least : item->least;
    return item_values(item);
}

static enum qplan_status put_bytes(void *ctx, const struct qp_part *part, uint64_t off,
                                   const void *bytes, size_t n, struct qplan_error *err)
{
    const struct engine *e = ctx;
    return qp_outs_write(&e->outs, part->entry, off, bytes, n, err);
}

/* Values of a unit as the source has them; where it has none, the zero point of such codes. */
static enum qplan_status get_values(const struct engine *e, const struct item *item, uint64_t pos,
                                    size_t n, void *room, uint8_t **values, struct qplan_error *err)
{
    const struct qp_tensor *t = item->tensor->source;
    uint64_t bad_fill = 0;
    const void *found = room;
    char subject[512];
    if (item->from)
        QP_TRY(qp_part_get(&e->plan->checkpoint->source, item->from, pos, n, e->job.run->isa, room,
                           &found, &bad_fill, err));
    else
        memset(room, middle_of(t->scheme), n);
    *values = (uint8_t *)room + ((const char *)found - (const char *)room);
    return bad_fill ? qp_fail(err, QPLAN_ERR_INVALID,
                              qp_checkpoint_subject(subject, e->plan->checkpoint, t),
                              "spare bits must be 0: found some that are not")
                    : QPLAN_OK;
}

static enum qplan_status check_middle(const struct engine *e, const struct item *item,
                                      const uint8_t *values, size_t n, struct qplan_error *err)
{
    const uint8_t middle = middle_of(item->tensor->source->scheme);
    for (size_t i = 0; i < n; i++) {
        if (values[i] != middle)
            return refuse(e->plan, item->tensor->source, "the zero points of symmetric codes", NULL,
                          err);
    }
    return QPLAN_OK;
}

/*
 * The biases of symmetric codes in place of n scales: 0 less as many steps as the middle of the
 * codes is above the lowest. A multiple by a power of two is exact unless it is too large.
 */
static enum qplan_status make_biases(const struct engine *e, const struct item *item,
                                     uint8_t *values, size_t n, struct qplan_error *err)
{
    const struct qplan_scheme *scheme = item->tensor->source->scheme;
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, e->job.run->isa)->work;
    const float steps = -(float)(1 << (qplan_dtype_bits(scheme->dtype) - 1));
    const size_t value_bytes = qp_float_bytes(scheme->scale_dtype);
    float made[256], stored[256];
    for (size_t at = 0, k; at < n; at += k) {
        uint8_t *here = values + at * value_bytes;
        k = n - at < 256 ? n - at : 256;
        f32->load(scheme->scale_dtype, k, here, made);
        for (size_t i = 0; i < k; i++)
            made[i] = steps * made[i];
        f32->store(scheme->scale_dtype, k, made, here);
        f32->load(scheme->scale_dtype, k, here, stored);
        for (size_t i = 0; i < k; i++) {
            if (!(stored[i] == made[i] && fabsf(made[i]) <= FLT_MAX))
                return refuse(e->plan, item->tensor->source,
                              "scales so small that their biases are numbers", NULL, err);
        }
    }
    return QPLAN_OK;
}

/* Biases that follow from scales: they are written, or proven to be those of the source. */
static enum qplan_status do_biases(struct engine *e, const struct item *item, uint64_t pos,
                                   size_t n, const struct buffers *b, struct qplan_error *err)
{
    uint8_t *values;
    const void *found;
    QP_TRY(get_values(e, item, pos, n, b->room, &values, err));
    QP_TRY(make_biases(e, item, values, n, err));
    if (item->to)
        return qp_part_put(&e->outs, item->to, pos, n, e->job.run->isa, values, b->image, put_bytes,
                           e, err);
    QP_TRY(qp_part_get(&e->plan->checkpoint->source, item->biases, pos, n, e->job.run->isa,
                       b->image, &found, NULL, err));
    return memcmp(found, values, n * bytes_of_value(item)) == 0
               ? QPLAN_OK
               : refuse(e->plan, item->tensor->source, "the biases of symmetric codes", NULL, err);
}

static enum qplan_status do_unit(struct engine *e, const struct item *item, uint64_t pos,
                                 uint64_t n, const struct buffers *b, struct qplan_error *err)
{
    uint8_t *values;
    if (is_kept(item))
        return qp_outs_copy(&e->outs, item->tensor->result.entry, &e->plan->checkpoint->source,
                            item->tensor->source->entry, pos, n, b->room, err);
    if (item->biases || (item->to && item->to->role == QP_BIAS && item->from->role == QP_SCALE))
        return do_biases(e, item, pos, (size_t)n, b, err);
    QP_TRY(get_values(e, item, pos, (size_t)n, b->room, &values, err));
    if (!item->to)
        return check_middle(e, item, values, (size_t)n, err);
    for (size_t i = 0; item->added && i < n; i++)
        values[i] = (uint8_t)(values[i] + item->added);
    return qp_part_put(&e->outs, item->to, pos, (size_t)n, e->job.run->isa, values, b->image,
                       put_bytes, e, err);
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit unit;
    if (!qp_flat_claim(job, &e->flat, &unit))
        return false;
    const struct item *item = &e->items[unit.item];
    if (do_unit(e, item, unit.pos, unit.n, buffers, err) == QPLAN_OK)
        qp_job_advance(job, item->to || is_kept(item) ? unit.n * bytes_of_value(item) : 0);
    else
        qp_job_fail(job, unit.number, err);
    return true;
}

/* ---- Items -------------------------------------------------------------------------------------
 */

/* What is added to codes and zero points: half their range, where they get or lose a sign. */
static uint8_t shift_of(const struct qp_plan_tensor *t)
{
    const enum qplan_dtype from = t->source->scheme->dtype, to = t->result.scheme->dtype;
    const unsigned half = 1u << (qplan_dtype_bits(to) - 1);
    if (qplan_dtype_is_signed(from) == qplan_dtype_is_signed(to))
        return 0;
    return (uint8_t)(qplan_dtype_is_signed(to) ? 256 - half : half);
}

static void add_parts(struct engine *e, const struct qp_plan_tensor *t)
{
    for (unsigned k = 0; k < t->result.n_parts; k++) {
        const struct qp_part *to = &t->result.parts[k];
        const struct qp_part *from = qp_tensor_part(t->source, to->role);
        if (to->role == QP_BIAS && !from)
            from = qp_tensor_part(t->source, QP_SCALE);
        if (to->role == QP_CONSTANT || to->role == QP_INDEX)
            continue; /* qp_write_constants has written it */
        e->items[e->n_items++] =
            (struct item){.tensor = t,
                          .to = to,
                          .from = from,
                          .added = to->role == QP_CODES || to->role == QP_ZERO ? shift_of(t) : 0,
                          .least = qp_max_u64(least_values(to), least_values(from))};
    }
    const struct qp_part *zeros = qp_tensor_part(t->source, QP_ZERO);
    if (zeros && !qp_tensor_part(&t->result, QP_ZERO))
        e->items[e->n_items++] =
            (struct item){.tensor = t, .from = zeros, .least = least_values(zeros)};
    const struct qp_part *biases = qp_tensor_part(t->source, QP_BIAS);
    if (biases && !qp_tensor_part(&t->result, QP_BIAS))
        e->items[e->n_items++] = (struct item){.tensor = t,
                                               .from = qp_tensor_part(t->source, QP_SCALE),
                                               .biases = biases,
                                               .least = least_values(biases)};
}

static enum qplan_status make_items(struct engine *e, struct qplan_error *err)
{
    const size_t most =
        e->plan->n_outputs + e->plan->n_quantized; /* zero points or biases left out besides */
    e->items = qp_alloc(most, sizeof *e->items);
    if (!e->items)
        return qp_fail_memory(err, "job", most * sizeof *e->items);
    for (size_t i = 0; i < e->plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &e->plan->tensors[i];
        if (qp_is_quantized(t))
            add_parts(e, t);
        else
            e->items[e->n_items++] = (struct item){.tensor = t, .least = 1};
    }
    return QPLAN_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

/* The report is on the written file, as the reader of any file has read it. */
static enum qplan_status make_report(struct qplan_report **report, const struct engine *e,
                                     const char *path, struct qplan_error *err)
{
    struct qp_source source;
    struct qplan_checkpoint *written = NULL;
    QP_TRY(qp_outs_read_back(&e->outs, &source, path, err));
    QP_TRY(qp_checkpoint_make(&written, &source, err));
    const struct qp_report_request request = {.command = "convert", .path = path, .file = written};
    const enum qplan_status status = qp_report_make(report, &request, NULL, err);
    if (status == QPLAN_OK)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    return status;
}

/* All between the opening of the output and its name. */
static enum qplan_status write_tensors(struct engine *e, const char *path,
                                       const struct qplan_run *run, struct qplan_report **report,
                                       struct qplan_error *err)
{
    static const struct qp_job_ops ops = {.buffers_size = sizeof(struct buffers),
                                          .carve = carve_buffers,
                                          .tile_least = tile_least,
                                          .step = step};
    const struct qp_warnings *warnings = &e->plan->warnings;
    bool synced = true;
    QP_TRY(make_items(e, err));
    QP_TRY(qp_write_constants(e->plan, &e->outs, err));
    e->flat = (struct qp_flat){.ctx = e, .n_items = e->n_items, .length = item_length};
    QP_TRY(qp_job_run(&e->job, &ops, run, qp_news_data_bytes(&e->plan->news), err));
    QP_TRY(qp_source_unchanged(&e->plan->checkpoint->source, err));
    QP_TRY(make_report(report, e, path, err));
    for (size_t i = 0; i < warnings->n; i++)
        QP_TRY(qp_warn(&(*report)->warnings, &(*report)->arena, warnings->list[i].code,
                       warnings->list[i].subject, warnings->list[i].message, err));
    QP_TRY(qp_outs_commit(&e->outs, &(*report)->owned->source, &synced, err));
    return qp_report_notes(*report, e->job.n_ran == e->job.n_workers, synced, err);
}

static enum qplan_status run_plan(const struct qplan_plan *plan, const char *out_path,
                                  const struct qplan_run *run, struct qplan_report **report,
                                  struct qplan_error *err)
{
    const struct qp_outs_request request = {.path = out_path,
                                            .force = run && run->force,
                                            .news = &plan->news,
                                            .source = &plan->checkpoint->source,
                                            .side = &plan->side};
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->plan = plan;
    enum qplan_status status = qp_outs_open(&e->outs, &request, err);
    if (status == QPLAN_OK) {
        status = write_tensors(e, out_path, run, report, err);
        qp_outs_discard(&e->outs);
    }
    qp_free(e->items);
    qp_free(e);
    if (status != QPLAN_OK) {
        qplan_report_free(*report);
        *report = NULL;
    }
    return status;
}

enum qplan_status qplan_convert(struct qplan_report **report,
                                const struct qplan_checkpoint *checkpoint, const char *format,
                                const char *out_path, const struct qplan_run *run,
                                struct qplan_error *err)
{
    const struct qp_format *to = qp_format_find(format);
    const char *shown = checkpoint->source.listing.shown;
    struct qplan_plan *plan;
    *report = NULL;
    if (!to)
        return qp_fail_name(err, QPLAN_ERR_USAGE, "format", "unknown layout", format,
                            qplan_format_name);
    if (!checkpoint->format)
        return qp_fail(err, QPLAN_ERR_INVALID, shown, "nothing in it is quantized");
    if (checkpoint->format == to)
        return qp_fail(err, QPLAN_ERR_INVALID, shown, "it has the layout %s already", to->name);
    if (!to->is_always_active && checkpoint->format->is_active &&
        checkpoint->format->is_active(&checkpoint->source.listing))
        return qp_fail(err, QPLAN_ERR_INVALID, shown,
                       "its config.json has engines quantize activations, which the layout %s "
                       "cannot say",
                       to->name);
    QP_TRY(qp_plan_new(&plan, checkpoint, err));
    enum qplan_status status = qp_plan_take_tensors(plan, err); /* as they are stored */
    plan->format = to;
    plan->making = checkpoint->making;
    if (status == QPLAN_OK)
        status = qp_plan_check_settings(plan, NULL, err);
    if (status == QPLAN_OK)
        status = make_plan(plan, out_path, run, err);
    if (status == QPLAN_OK)
        status = run_plan(plan, out_path, run, report, err);
    qplan_plan_free(plan);
    return status;
}
