/*
 * dequantize_checkpoint.c - from a quantized checkpoint back to a plain one, streaming.
 */
#include "formats/build.h"
#include "formats/experts.h"
#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/report/report.h"
#include "lib/run/decode_device.h"
#include "lib/run/job.h"
#include "lib/run/source_values.h"
#include "lib/store/hold.h"
#include "lib/store/outs.h"

#include <stdlib.h>

/* A tensor of the output: one of the file, or an expert of one that has all of a layer. */
struct item {
    const struct qp_tensor *tensor;
    uint64_t first; /* where its elements begin in the tensor */
    struct qplan_entry output;
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    const struct qplan_checkpoint *file;
    struct qp_outs outs;
    struct qplan_device *device; /* NULL = the CPU */
    struct item *items;          /* in name order */
    size_t n_items;
    bool holds; /* some tensor has turned codes */
    struct qp_flat flat;
    struct qp_news news;
    struct qp_side side;
    struct qp_st_pair *pairs; /* the metadata of the file whose header is made */
    struct qp_arena arena;
};

/* What a worker does at a time: elements of a quantized tensor, bytes of another. */
struct unit {
    const struct item *item;
    const struct qp_source *source; /* perhaps with a hold */
    uint64_t pos, n;
};

struct buffers {
    void *stored; /* room for elements as they are written, or bytes of a kept tensor */
    void *hold;   /* turned parts of a unit */
    struct qp_value_room values;
    struct qp_flat_buffers flat; /* in the place of values, on a device */
};

static bool is_quantized(const struct item *item)
{
    return item->tensor->scheme != NULL;
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

static size_t unit_elems(size_t tile_bytes)
{
    return tile_bytes / sizeof(double);
}

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_common(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                         struct buffers *b)
{
    b->stored = qp_take(carve, tile_bytes + QP_IO_SPARE);
    if (((const struct engine *)job)->holds)
        b->hold = qp_take(carve, qp_job_hold_bytes(job, tile_bytes));
}

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                          void *buffers)
{
    struct buffers *b = buffers;
    carve_common(carve, tile_bytes, job, b);
    qp_values_carve(carve, tile_bytes, &b->values);
}

static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes,
                                 const struct qp_job *job, void *buffers)
{
    struct buffers *b = buffers;
    carve_common(carve, tile_bytes, job, b);
    qp_flat_carve(carve, tile_bytes, &b->flat);
}

static void attach_lane(void *buffers, struct qp_lane *lane)
{
    ((struct buffers *)buffers)->flat.lane = lane;
}

/* ---- Units -------------------------------------------------------------------------------------
 */

static uint64_t item_length(const void *ctx, size_t i, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct item *item = &e->items[i];
    const size_t tile_bytes = e->job.tile_bytes;
    *unit_length = is_quantized(item)
                       ? qp_hold_elems(item->tensor, qp_job_hold_bytes(&e->job, tile_bytes),
                                       unit_elems(tile_bytes))
                       : tile_bytes / 4;
    return is_quantized(item) ? qp_entry_elements(&item->output)
                              : item->output.end - item->output.begin;
}

static enum qplan_dtype output_dtype(const struct unit *unit)
{
    return qp_storage_row((enum qplan_storage)unit->item->output.storage)->dtype;
}

/* The values of a unit, as they are written. */
static enum qplan_status decode(const struct engine *e, const struct unit *unit,
                                const struct buffers *b, char *stored, struct qplan_error *err)
{
    const struct qp_values values = {unit->source, unit->item->tensor, e->job.run->isa, &b->values};
    return qp_values_decode(&values, unit->item->first + unit->pos, unit->n, output_dtype(unit),
                            stored, err);
}

static enum qplan_status decode_on_device(const struct engine *e, const struct unit *unit,
                                          const struct buffers *b, char *stored,
                                          struct qplan_error *err)
{
    const size_t size = qp_float_bytes(output_dtype(unit));
    struct qp_flat_walk walk = {.device = e->device,
                                .b = &b->flat,
                                .source = unit->source,
                                .tensor = unit->item->tensor,
                                .elem = unit->item->first + unit->pos,
                                .n = unit->n};
    bool found;
    qp_flat_begin(&walk, output_dtype(unit));
    QP_TRY(qp_flat_next(&walk, &found, err));
    while (found) {
        QP_TRY(qp_flat_decode(&walk, stored + walk.at * size, err));
        QP_TRY(qp_flat_next(&walk, &found, err));
    }
    return qp_check_fill(walk.source, walk.tensor, walk.bad_fill + walk.bad_pads, err);
}

typedef enum qplan_status decode_fn(const struct engine *e, const struct unit *unit,
                                    const struct buffers *b, char *stored, struct qplan_error *err);

/*
 * How long units are depends on memory, and what is bad in the first block of a unit may come to
 * light behind what is bad in a later one. Block by block, it is the same fault that is named.
 */
static enum qplan_status decode_blocks(decode_fn *decode_unit, const struct engine *e,
                                       const struct unit *unit, const struct buffers *b,
                                       char *stored, struct qplan_error *err)
{
    const uint64_t end = unit->pos + unit->n;
    for (uint64_t pos = unit->pos; pos < end; pos += QP_BLOCK) {
        const struct unit block = {unit->item, unit->source, pos, qp_min_u64(QP_BLOCK, end - pos)};
        QP_TRY(decode_unit(e, &block, b, stored, err));
    }
    return QPLAN_OK;
}

/* As much of a unit as there is room for. */
static enum qplan_status restore_piece(const struct engine *e, const struct unit *unit,
                                       const struct buffers *b, struct qplan_error *err)
{
    const struct qplan_entry *output = &unit->item->output;
    const size_t size = qp_float_bytes(output_dtype(unit));
    char *stored = qp_outs_room(&e->outs, output, unit->pos * size, b->stored);
    decode_fn *decode_unit = e->device ? decode_on_device : decode;
    enum qplan_status status = decode_unit(e, unit, b, stored, err);
    if (status == QPLAN_ERR_INVALID)
        QP_TRY(decode_blocks(decode_unit, e, unit, b, stored, err));
    if (status != QPLAN_OK)
        return status;
    return qp_outs_write(&e->outs, output, unit->pos * size, stored, (size_t)unit->n * size, err);
}

static enum qplan_status restore(const struct engine *e, const struct unit *unit,
                                 const struct buffers *b, struct qplan_error *err)
{
    const uint64_t most = unit_elems(e->job.tile_bytes), end = unit->pos + unit->n;
    struct qp_hold hold;
    struct qp_source source = *unit->source;
    QP_TRY(qp_hold_take(&hold, unit->source, unit->item->tensor, unit->item->first + unit->pos,
                        unit->n, most, b->hold, err));
    source.hold = &hold;
    for (uint64_t pos = unit->pos; pos < end; pos += most) {
        const struct unit piece = {unit->item, &source, pos, qp_min_u64(most, end - pos)};
        QP_TRY(restore_piece(e, &piece, b, err));
    }
    return QPLAN_OK;
}

static enum qplan_status do_unit(const struct engine *e, const struct unit *unit,
                                 const struct buffers *b, struct qplan_error *err)
{
    const struct item *item = unit->item;
    if (is_quantized(item))
        return restore(e, unit, b, err);
    struct qplan_entry from = *item->tensor->entry;
    from.begin += item->first * (qplan_storage_bits((enum qplan_storage)from.storage) / 8);
    return qp_outs_copy(&e->outs, &item->output, &e->file->source, &from, unit->pos, unit->n,
                        b->stored, err);
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit claimed;
    if (!qp_flat_claim(job, &e->flat, &claimed))
        return false;
    struct unit unit = {&e->items[claimed.item], &e->file->source, claimed.pos, claimed.n};
    const uint64_t bits = is_quantized(unit.item)
                              ? qplan_storage_bits((enum qplan_storage)unit.item->output.storage)
                              : 8;
    if (do_unit(e, &unit, buffers, err) == QPLAN_OK)
        qp_job_advance(job, unit.n * bits / 8);
    else
        qp_job_fail(job, claimed.number, err);
    return true;
}

/* ---- The output --------------------------------------------------------------------------------
 */

/*
 * What a tensor becomes: what was asked for; what it was, where that is what decoders of its layout
 * give; or what the model has, else what those decoders give.
 */
static enum qplan_storage storage_of(const struct engine *e, const struct qp_tensor *t,
                                     const enum qplan_dtype *dtype)
{
    enum qplan_storage storage = (enum qplan_storage)t->storage;
    if (!t->scheme)
        return storage;
    if (dtype)
        return qp_dtype_storage(*dtype);
    if (t->rounds)
        storage = qp_dtype_storage(qp_decoder_dtype(t));
    if (t->has_dtype)
        return storage;
    if (t->rounds || !t->calibrate) /* nothing records what it was, or it is not that any more */
        (void)qp_model_storage(&e->file->source.listing, &storage);
    return storage;
}

/* Whether a tensor is a stack of experts that models have one by one: layouts alone have such. */
static bool is_stack(const struct engine *e, const struct qp_tensor *t,
                     struct qp_fused_experts *how)
{
    const struct qplan_checkpoint *file = e->file;
    return file->format->stacks_experts && qp_tensor_bytes(t) > 0 &&
           (t->scheme || qp_storage_row((enum qplan_storage)t->storage)->is_source) &&
           qp_find_stack(&file->source.listing, t, how);
}

/* Adds what a tensor becomes: a tensor of its name, or one for each expert. */
static enum qplan_status add_items(struct engine *e, const struct qp_tensor *t,
                                   const enum qplan_dtype *dtype, struct qplan_error *err)
{
    struct qp_fused_experts how;
    const unsigned skipped = is_stack(e, t, &how) ? 1 : 0;
    const uint64_t n = skipped ? t->shape[0] : 1;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = skipped ? qp_expert_name(&e->arena, t->name, how.n_prefix, how.single, i,
                                                    how.projections[0])
                                   : t->name;
        if (!name)
            return qp_fail_memory(err, "tensors", t->name_len);
        struct item *item = &e->items[e->n_items++];
        *item = (struct item){
            .tensor = t,
            .output = {.file = t->entry->file,
                       .name = name,
                       .name_len = skipped ? (uint32_t)strlen(name) : t->name_len,
                       .shape = t->shape + skipped,
                       .rank = (uint8_t)(t->rank - skipped),
                       .storage = (uint8_t)storage_of(e, t, dtype)},
        };
        item->first = i * qp_entry_elements(&item->output);
    }
    e->holds |= t->scheme && qp_part_is_turned(qp_tensor_part(t, QP_CODES));
    return QPLAN_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct qplan_entry *x = &((const struct item *)a)->output;
    const struct qplan_entry *y = &((const struct item *)b)->output;
    return qp_compare_text(x->name, x->name_len, y->name, y->name_len);
}

/* Experts are not where their stack was among the names. */
static enum qplan_status sort_items(struct engine *e, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    qsort(e->items, e->n_items, sizeof *e->items, by_name);
    for (size_t i = 1; i < e->n_items; i++) {
        const struct qplan_entry *output = &e->items[i].output;
        if (by_name(&e->items[i - 1], &e->items[i]) == 0)
            return qp_fail(err, QPLAN_ERR_INVALID, e->file->source.listing.shown,
                           "name collision: %s is a tensor of the file, and what its experts "
                           "become",
                           qp_quote(quoted, output->name, output->name_len));
    }
    return QPLAN_OK;
}

static enum qplan_status make_items(struct engine *e, const enum qplan_dtype *dtype,
                                    struct qplan_error *err)
{
    const struct qplan_checkpoint *file = e->file;
    struct qp_fused_experts how;
    uint64_t n = 0;
    bool has_stacks = false;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct qp_tensor *t = &file->tensors[i];
        const bool stacked = is_stack(e, t, &how);
        n += stacked ? t->shape[0] : 1;
        has_stacks |= stacked;
    }
    e->items = qp_alloc(n, sizeof *e->items);
    if (!e->items)
        return qp_fail_memory(err, "tensors", n * sizeof *e->items);
    for (size_t i = 0; i < file->n_tensors; i++)
        QP_TRY(add_items(e, &file->tensors[i], dtype, err));
    return has_stacks ? sort_items(e, err) : QPLAN_OK;
}

/* The metadata of a file of the output: that of the file it is made of, without what
 * says how tensors are stored. */
static enum qplan_status metadata_of(void *ctx, size_t file, const struct qp_st_pair **pairs,
                                     size_t *n, struct qplan_error *err)
{
    struct engine *e = ctx;
    const struct qp_st *st = &e->file->source.files[file];
    qp_free(e->pairs);
    e->pairs = qp_alloc(st->n_metadata, sizeof *e->pairs);
    if (!e->pairs)
        return qp_fail_memory(err, "tensors", st->n_metadata * sizeof *e->pairs);
    *n = 0;
    for (size_t i = 0; i < st->n_metadata; i++) {
        if (qp_is_handed_on(&st->metadata[i]))
            e->pairs[(*n)++] = st->metadata[i];
    }
    *pairs = e->pairs;
    return QPLAN_OK;
}

/* Offsets and headers of the output. */
static enum qplan_status make_headers(struct engine *e, const char *path, struct qplan_error *err)
{
    struct qplan_entry **outputs = qp_alloc(e->n_items, sizeof *outputs);
    if (!outputs)
        return qp_fail_memory(err, "tensors", e->n_items * sizeof *outputs);
    for (size_t i = 0; i < e->n_items; i++)
        outputs[i] = &e->items[i].output;
    enum qplan_status status = qp_news_name(&e->news, &e->file->source,
                                            e->file->source.listing.n_files, path, &e->arena, err);
    if (status == QPLAN_OK)
        status = qp_news_make(&e->news, outputs, e->n_items, metadata_of, e, err);
    qp_free(outputs);
    return status;
}

/* The report is on the written file; its rows are the items, in the same order. */
static enum qplan_status make_report(struct qplan_report **report, const struct engine *e,
                                     const char *path, struct qplan_error *err)
{
    struct qp_source source;
    struct qplan_checkpoint *written = NULL;
    bool *restored = qp_alloc(e->n_items, sizeof *restored);
    if (!restored)
        return qp_fail_memory(err, "report", e->n_items);
    for (size_t i = 0; i < e->n_items; i++)
        restored[i] = is_quantized(&e->items[i]);
    enum qplan_status status = qp_outs_read_back(&e->outs, &source, path, err);
    if (status == QPLAN_OK)
        status = qp_checkpoint_make(&written, &source, err);
    if (status == QPLAN_OK) {
        struct qp_report_request request = {
            .command = "dequantize", .path = path, .file = written, .restored = restored};
        status = qp_report_make(report, &request, NULL, err);
    }
    if (status == QPLAN_OK)
        (*report)->owned = written;
    else
        qplan_checkpoint_close(written);
    qp_free(restored);
    return status;
}

/* All between the opening of the output and its name. */
static enum qplan_status write_tensors(struct engine *e, const char *path,
                                       const struct qplan_run *run, struct qplan_report **report,
                                       struct qplan_error *err)
{
    static const struct qp_job_ops on_cpu = {
        .buffers_size = sizeof(struct buffers), .carve = carve_buffers, .step = step};
    static const struct qp_job_ops on_device = {.buffers_size = sizeof(struct buffers),
                                                .carve = carve_device_buffers,
                                                .device_bytes = qp_flat_block_bytes,
                                                .attach = attach_lane,
                                                .step = step};
    bool synced = true;
    e->flat = (struct qp_flat){.ctx = e, .n_items = e->n_items, .length = item_length};
    QP_TRY(qp_job_run(&e->job, e->device ? &on_device : &on_cpu, run, qp_news_data_bytes(&e->news),
                      err));
    QP_TRY(qp_source_unchanged(&e->file->source, err));
    QP_TRY(make_report(report, e, path, err));
    QP_TRY(qp_side_warn(&e->side, path, &(*report)->warnings, &(*report)->arena, err));
    QP_TRY(qp_outs_commit(&e->outs, &(*report)->owned->source, &synced, err));
    return qp_report_notes(*report, e->job.n_ran == e->job.n_workers, synced, err);
}

static enum qplan_status write_output(struct engine *e, const char *path,
                                      const struct qplan_run *run, struct qplan_report **report,
                                      struct qplan_error *err)
{
    QP_TRY(make_headers(e, path, err));
    QP_TRY(qp_side_find_more(&e->side, &e->file->source, run, &e->arena, err));
    if (e->file->source.listing.config)
        QP_TRY(qp_side_edit_config(&e->side, &e->file->source, NULL, NULL, &e->arena, err));
    const struct qp_outs_request request = {.path = path,
                                            .force = run && run->force,
                                            .news = &e->news,
                                            .source = &e->file->source,
                                            .side = &e->side};
    QP_TRY(qp_outs_open(&e->outs, &request, err));
    enum qplan_status status = write_tensors(e, path, run, report, err);
    qp_outs_discard(&e->outs);
    return status;
}

/*
 * What has a bias, or is rounded to the type of the layout's decoder and then to another, is so by
 * the CPU; it also multiplies in the order of the layout's decoder.
 */
static enum qplan_status take_device(struct engine *e, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    bool on_cpu = false;
    for (size_t i = 0; i < e->n_items; i++) {
        const struct item *item = &e->items[i];
        const struct qp_tensor *t = item->tensor;
        if (!is_quantized(item))
            continue;
        const struct qp_device_row row = {
            .kind = QP_KIND_DECODE,
            .dtype = qp_storage_row((enum qplan_storage)t->storage)->dtype,
            .scheme = *t->scheme,
            .as = qp_storage_row((enum qplan_storage)item->output.storage)->dtype};
        on_cpu |= t->scheme->bias || qp_is_of_largest(t) ||
                  qp_code_type(t->scheme->dtype)->only_read ||
                  (qp_decode_rounds(t) && row.as != qp_decoder_dtype(t));
        const uint64_t n_bytes = qp_entry_elements(&item->output) * qp_float_bytes(row.as);
        qp_need_add(&need, &row, qp_role_bytes(t, QP_CODES) + n_bytes, t->name, t->name_len);
    }
    if (run && !on_cpu)
        QP_TRY(qp_device_take(run->device, &need, run->threads, err));
    e->device = on_cpu ? NULL : qp_device_of(run);
    return QPLAN_OK;
}

enum qplan_status qplan_dequantize(struct qplan_report **report,
                                   const struct qplan_checkpoint *checkpoint, const char *out_path,
                                   const enum qplan_dtype *dtype, const struct qplan_run *run,
                                   struct qplan_error *err)
{
    *report = NULL;
    if (dtype && *dtype != QPLAN_F32 && *dtype != QPLAN_F16 && *dtype != QPLAN_BF16)
        return qp_fail(err, QPLAN_ERR_USAGE, "dtype", "expected f32, f16 or bf16");
    if (!checkpoint->format)
        return qp_fail(err, QPLAN_ERR_INVALID, checkpoint->source.listing.shown,
                       "not a quantized checkpoint: expected " QP_LAYOUT_KEY
                       " in its metadata, or a layout in its config.json, found neither");
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    e->file = checkpoint;
    enum qplan_status status = make_items(e, dtype, err);
    if (status == QPLAN_OK)
        status = take_device(e, run, err);
    if (status == QPLAN_OK)
        status = write_output(e, out_path, run, report, err);
    if (status != QPLAN_OK) {
        qplan_report_free(*report);
        *report = NULL;
    }
    qp_free(e->items);
    qp_free(e->pairs);
    qp_news_free(&e->news);
    qp_arena_free(&e->arena);
    qp_free(e);
    return status;
}
