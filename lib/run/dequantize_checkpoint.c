/*
 * dequantize_checkpoint.c - from a native quantized checkpoint back to a plain one, streaming.
 */
#include "lib/job/decode.h"
#include "lib/job/decode_device.h"
#include "lib/report/report.h"
#include "units.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/job/job.h"
#include "lib/model/dtype.h"
#include "lib/store/transfer.h"

#include <string.h>

struct item {
    struct qp_logical tensor;
    struct qplan_entry output;
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    const struct qplan_checkpoint *file;
    const struct qp_out *out;
    uint64_t header_bytes;
    struct qplan_device *device; /* NULL = the CPU */
    struct item *items;          /* in name order */
    size_t n_items;
    struct qp_flat flat;
};

/* What a worker does at a time: elements of a quantized tensor, bytes of another. */
struct unit {
    const struct item *item;
    uint64_t pos, n;
};

struct buffers {
    void *block;  /* decoded values in working precision */
    void *stored; /* room for elements as they are written, or bytes of a kept tensor */
    uint8_t *codes;
    struct qp_param_window window;
    struct qp_flat_buffers flat; /* in the place of all but stored, on a device */
};

/* ---- Memory ------------------------------------------------------------------------------------
 */

static size_t unit_elems(size_t tile_bytes)
{
    return tile_bytes / sizeof(double);
}

static size_t window_sets(size_t tile_bytes)
{
    return tile_bytes / 64;
}

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static void carve_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct buffers *b = buffers;
    size_t n_sets = window_sets(tile_bytes);
    b->block = qp_take(carve, QP_BLOCK * sizeof(double));
    b->stored = qp_take(carve, tile_bytes + QP_IO_SPARE);
    b->codes = qp_take(carve, QP_DECODE_ROOM(unit_elems(tile_bytes)));
    b->window.scale = qp_take(carve, n_sets * sizeof(double));
    b->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->window.stored = qp_take(carve, n_sets * sizeof(float));
}

static void carve_device_buffers(struct qp_carve *carve, size_t tile_bytes, void *buffers)
{
    struct buffers *b = buffers;
    b->stored = qp_take(carve, tile_bytes + QP_IO_SPARE);
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
    *unit_length = item->tensor.native ? unit_elems(e->job.tile_bytes) : e->job.tile_bytes / 4;
    return item->tensor.native ? qp_entry_elements(&item->output)
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
    const struct qp_native_tensor *t = unit->item->tensor.native;
    const enum qplan_dtype source = qp_storage_row(t->source)->dtype, dtype = output_dtype(unit);
    const size_t size = qp_float_bytes(dtype);
    struct qp_decoder decoder = {.st = &e->file->st,
                                 .tensor = t,
                                 .work = qp_source_kernels(source, e->job.run->isa)->work,
                                 .elem = unit->pos,
                                 .n = unit->n,
                                 .codes = b->codes,
                                 .y = b->block,
                                 .window = b->window,
                                 .window_sets = window_sets(e->job.tile_bytes)};
    struct qp_decoded part;
    bool found;
    QP_TRY(qp_decode_begin(&decoder, e->job.run->isa, err));
    QP_TRY(qp_decode_next(&decoder, &part, &found, err));
    while (found) {
        decoder.work->store(dtype, (size_t)part.n, part.y, stored + part.at * size);
        QP_TRY(qp_decode_next(&decoder, &part, &found, err));
    }
    return QPLAN_OK;
}

/* The same on a device. */
static enum qplan_status decode_on_device(const struct engine *e, const struct unit *unit,
                                          const struct buffers *b, char *stored,
                                          struct qplan_error *err)
{
    const size_t size = qp_float_bytes(output_dtype(unit));
    struct qp_flat_walk walk = {.device = e->device,
                                .b = &b->flat,
                                .st = &e->file->st,
                                .tensor = unit->item->tensor.native,
                                .elem = unit->pos,
                                .n = unit->n};
    bool found;
    qp_flat_begin(&walk, output_dtype(unit));
    QP_TRY(qp_flat_next(&walk, &found, err));
    while (found) {
        QP_TRY(qp_flat_decode(&walk, stored + walk.at * size, err));
        QP_TRY(qp_flat_next(&walk, &found, err));
    }
    return QPLAN_OK;
}

static enum qplan_status restore(const struct engine *e, const struct unit *unit,
                                 const struct buffers *b, struct qplan_error *err)
{
    const size_t size = qp_float_bytes(output_dtype(unit));
    const uint64_t off = e->header_bytes + unit->item->output.begin + unit->pos * size;
    char *stored = qp_io_room(b->stored, off, off);
    QP_TRY((e->device ? decode_on_device : decode)(e, unit, b, stored, err));
    return qp_out_write(e->out, off, stored, (size_t)unit->n * size, err);
}

static enum qplan_status do_unit(const struct engine *e, const struct unit *unit,
                                 const struct buffers *b, struct qplan_error *err)
{
    if (unit->item->tensor.native)
        return restore(e, unit, b, err);
    const struct qp_st *st = &e->file->st;
    return qp_copy_range(st, st->header_bytes + unit->item->tensor.entry->begin + unit->pos, e->out,
                         e->header_bytes + unit->item->output.begin + unit->pos, unit->n, b->stored,
                         err);
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit claimed;
    if (!qp_flat_claim(job, &e->flat, &claimed))
        return false;
    struct unit unit = {&e->items[claimed.item], claimed.pos, claimed.n};
    uint64_t bits = unit.item->tensor.native
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

/* Scales and zero points must be usable before anything is written. */
static enum qplan_status check_params(const struct qplan_checkpoint *file, struct qplan_error *err)
{
    struct qp_param_facts facts;
    for (size_t i = 0; i < file->n_native; i++)
        QP_TRY(qp_read_param_facts(&file->st, &file->native[i], true, &facts, err));
    return QPLAN_OK;
}

static enum qplan_status make_items(struct engine *e, const enum qplan_dtype *dtype,
                                    struct qplan_error *err)
{
    struct qp_logical_cursor cursor = {0};
    struct qp_logical t;
    e->items = qp_alloc(e->file->st.n_entries, sizeof *e->items);
    if (!e->items)
        return qp_fail_memory(err, "tensors", e->file->st.n_entries * sizeof *e->items);
    while (qp_logical_next(e->file, &cursor, &t)) {
        struct item *item = &e->items[e->n_items++];
        bool converts = t.native && dtype;
        item->tensor = t;
        item->output = (struct qplan_entry){
            .name = t.entry->name,
            .name_len = t.entry->name_len,
            .shape = t.shape,
            .rank = (uint8_t)t.rank,
            .storage = (uint8_t)(converts ? qp_dtype_storage(*dtype) : t.source),
        };
    }
    return QPLAN_OK;
}

/* Offsets and the complete header: the file's metadata without the native layout's own. */
static enum qplan_status make_header(struct engine *e, struct qp_writer *header,
                                     uint64_t *data_bytes, struct qplan_error *err)
{
    const struct qp_st *st = &e->file->st;
    struct qplan_entry **order = qp_alloc(e->n_items, sizeof *order);
    struct qp_st_pair *pairs = qp_alloc(st->n_metadata, sizeof *pairs);
    enum qplan_status status = QPLAN_OK;
    size_t n_pairs = 0;
    if (!order || !pairs)
        status = qp_fail_memory(err, "tensors", e->n_items * sizeof *order);
    for (size_t i = 0; status == QPLAN_OK && i < e->n_items; i++)
        order[i] = &e->items[i].output;
    for (size_t i = 0; status == QPLAN_OK && i < st->n_metadata; i++) {
        if (!qp_native_owns_key(st->metadata[i].key))
            pairs[n_pairs++] = st->metadata[i];
    }
    if (status == QPLAN_OK)
        status = qp_st_layout(order, e->n_items, data_bytes, st->file.shown, err);
    if (status == QPLAN_OK)
        status = qp_st_put_header(header, (const struct qplan_entry *const *)order, e->n_items,
                                  pairs, n_pairs, st->file.shown, err);
    qp_free(order);
    qp_free(pairs);
    return status;
}

/* The report is on the written file; the rows are the items, in the same order. */
static enum qplan_status make_report(struct qplan_report **report, const struct engine *e,
                                     const char *path, struct qplan_error *err)
{
    struct qplan_checkpoint *written;
    bool *restored = qp_alloc(e->n_items, sizeof *restored);
    if (!restored)
        return qp_fail_memory(err, "report", e->n_items);
    for (size_t i = 0; i < e->n_items; i++)
        restored[i] = e->items[i].tensor.native != NULL;
    enum qplan_status status = qp_checkpoint_open_fd(&written, e->out->fd, path, err);
    if (status == QPLAN_OK) {
        struct qp_report_request request = {
            .command = "dequantize", .path = path, .file = written, .restored = restored};
        status = qp_report_make(report, &request, NULL, err);
        if (status == QPLAN_OK)
            (*report)->owned = written;
        else
            qplan_checkpoint_close(written);
    }
    qp_free(restored);
    return status;
}

static enum qplan_status write_output(struct engine *e, struct qp_out *out, const char *path,
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
    const struct qp_file *inputs[] = {&e->file->st.file};
    struct qp_writer header;
    uint64_t data_bytes = 0;
    qp_writer_init(&header);
    enum qplan_status status = make_header(e, &header, &data_bytes, err);
    if (status == QPLAN_OK)
        status = qp_out_open(out, path, run && run->force, header.n + data_bytes, inputs, 1, err);
    if (status == QPLAN_OK) {
        e->out = out;
        e->header_bytes = header.n;
        e->flat = (struct qp_flat){.ctx = e, .n_items = e->n_items, .length = item_length};
        status = qp_out_write(out, 0, header.data, header.n, err);
        if (status == QPLAN_OK)
            status = qp_job_run(&e->job, e->device ? &on_device : &on_cpu, run, data_bytes, err);
        if (status == QPLAN_OK)
            status = qp_file_unchanged(inputs[0], err);
        if (status == QPLAN_OK)
            status = make_report(report, e, path, err);
        bool synced = true, all_threads = e->job.n_ran == e->job.n_workers;
        if (status == QPLAN_OK)
            status = qp_out_commit(out, &synced, err);
        if (status == QPLAN_OK)
            status = qp_report_notes(*report, all_threads, synced, err);
        qp_out_discard(out);
    }
    qp_writer_free(&header);
    return status;
}

static enum qplan_status take_device(struct engine *e, const struct qplan_run *run,
                                     struct qplan_error *err)
{
    struct qp_device_need need = {.n_rows = 0};
    for (size_t i = 0; i < e->n_items; i++) {
        const struct item *item = &e->items[i];
        const struct qp_native_tensor *t = item->tensor.native;
        if (!t)
            continue;
        const struct qp_device_row row = {
            .kind = QP_KIND_DECODE,
            .dtype = qp_storage_row(t->source)->dtype,
            .scheme = t->scheme,
            .as = qp_storage_row((enum qplan_storage)item->output.storage)->dtype};
        const struct qplan_entry *codes = t->part[QP_CODES];
        const uint64_t size = qp_float_bytes(row.as);
        qp_need_add(&need, &row,
                    codes->end - codes->begin + qp_entry_elements(&item->output) * size,
                    item->tensor.entry->name, item->tensor.entry->name_len);
    }
    if (run)
        QP_TRY(qp_device_take(run->device, &need, run->threads, err));
    e->device = qp_device_of(run);
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
    if (!checkpoint->is_native)
        return qp_fail(err, QPLAN_ERR_INVALID, checkpoint->st.file.shown,
                       "not a quantized checkpoint of the native layout: expected " //
                       QP_NATIVE_LAYOUT_KEY " in its metadata, found none");
    QP_TRY(check_params(checkpoint, err));
    struct engine *e = qp_alloc(1, sizeof *e);
    if (!e)
        return qp_fail_memory(err, "job", sizeof *e);
    struct qp_out out;
    e->file = checkpoint;
    enum qplan_status status = make_items(e, dtype, err);
    if (status == QPLAN_OK)
        status = take_device(e, run, err);
    if (status == QPLAN_OK)
        status = write_output(e, &out, out_path, run, report, err);
    if (status != QPLAN_OK) {
        qplan_report_free(*report);
        *report = NULL;
    }
    qp_free(e->items);
    qp_free(e);
    return status;
}
