/*
 * decode_device.c - the parts of a flat range on a device. A part is as long as the window of its
 * parameters has room for, in whole blocks: no sum spans two.
 */
#include "decode_device.h"

#include "lib/model/dtype.h"

void qp_flat_carve(struct qp_carve *carve, size_t tile_bytes, struct qp_flat_buffers *b)
{
    const size_t n_sets = qp_flat_window_sets(tile_bytes);
    b->lane = NULL;
    b->window_sets = n_sets;
    b->codes = qp_take(carve, QP_PART_ROOM(tile_bytes / sizeof(double), 1));
    b->window.scale = qp_take(carve, n_sets * sizeof(double));
    b->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->window.stored = qp_take(carve, QP_PART_ROOM(n_sets, sizeof(float)));
    b->bound = qp_take(carve, n_sets * sizeof(double));
    b->found = qp_take(carve, qp_flat_found_bytes(tile_bytes));
    b->scratch = (struct qp_flat_scratch){qp_take(carve, QP_BLOCK + 1),
                                          qp_take(carve, QP_BLOCK * sizeof(double)),
                                          qp_take(carve, QP_BLOCK * sizeof(double))};
}

static const struct qp_source_kernels *kernels(const struct qp_flat_walk *walk)
{
    return qp_source_kernels(walk->work.dtype, QPLAN_ISA_SCALAR);
}

void qp_flat_begin(struct qp_flat_walk *walk, enum qplan_dtype as)
{
    const struct qp_tensor *t = walk->tensor;
    walk->at = 0;
    walk->work =
        (struct qp_flat_work){.dtype = qp_storage_row((enum qplan_storage)t->storage)->dtype,
                              .as = as,
                              .rule = qp_code_rule(t->scheme),
                              .packed = qp_part_is_nibbles(qp_tensor_part(t, QP_CODES))};
    qp_stored_sets(&walk->work.sets, t);
    walk->data = (struct qp_flat_data){
        .scale = walk->b->window.scale, .zero = walk->b->window.zero, .bound = walk->b->bound};
}

/* The parameters of the window: one run of the file, or two. */
static enum qplan_status read_window(const struct qp_flat_walk *walk, struct qplan_error *err)
{
    const struct qp_set_window *w = &walk->work.window;
    const struct qp_work_kernels *work = kernels(walk)->work;
    struct qp_param_window room = walk->b->window;
    QP_TRY(qp_read_params(walk->source, walk->tensor, work, w->set, (size_t)w->n, &room, err));
    if (w->more == 0)
        return QPLAN_OK;
    room.scale = (char *)room.scale + w->n * work->work_bytes;
    room.zero += w->n;
    return qp_read_params(walk->source, walk->tensor, work, w->more_set, (size_t)w->more, &room,
                          err);
}

/*
 * The codes of the part at hand, in the form that the device takes. Where that is the form of the
 * file, the host has a look of its own if there may be something to refuse.
 */
static enum qplan_status read_codes(struct qp_flat_walk *walk, struct qplan_error *err)
{
    const struct qp_flat_work *work = &walk->work;
    const struct qp_part *part = qp_tensor_part(walk->tensor, QP_CODES);
    const size_t n = (size_t)work->n;
    if (!work->packed || walk->tensor->scheme->narrow || part->matrix.cols % 2)
        QP_TRY(qp_read_codes(walk->source, walk->tensor, work->elem, n, QPLAN_ISA_BEST,
                             walk->b->codes, &walk->data.codes,
                             work->packed ? &walk->bad_pads : &walk->bad_fill, err));
    if (!work->packed)
        return QPLAN_OK;
    const struct qp_flat_range range = {part->matrix, work->elem, n};
    const struct qp_place_run run = qp_flat_run(part->place, &range);
    void *to = qp_source_room(walk->source, part->entry, run.off, walk->b->codes);
    walk->data.codes = to;
    return qp_source_read(walk->source, part->entry, run.off, to, (size_t)run.n_bytes, err);
}

enum qplan_status qp_flat_next(struct qp_flat_walk *walk, bool *found, struct qplan_error *err)
{
    struct qp_flat_work *work = &walk->work;
    walk->at += work->n;
    *found = walk->at < walk->n;
    if (!*found)
        return QPLAN_OK;
    work->elem = walk->elem + walk->at;
    work->n = qp_window_fit(&work->sets, work->elem, walk->n - walk->at, walk->b->window_sets,
                            &work->window);
    QP_TRY(read_window(walk, err));
    return read_codes(walk, err);
}

enum qplan_status qp_flat_decode(const struct qp_flat_walk *walk, void *out,
                                 struct qplan_error *err)
{
    QP_TRY(qp_device_decode(walk->b->lane, &walk->work, &walk->data, out, err));
    if (!qp_device_is_checked(walk->device))
        return QPLAN_OK;
    return qp_device_check_decoded(walk->device, &walk->work, &walk->data, out, &walk->b->scratch,
                                   err);
}

enum qplan_status qp_flat_measure(struct qp_flat_walk *walk, const void *src,
                                  struct qplan_error *err)
{
    const struct qp_set_window *w = &walk->work.window;
    walk->data.src = src;
    qp_stored_bounds(kernels(walk)->work, &walk->work.rule, (size_t)(w->n + w->more),
                     walk->data.scale, walk->data.zero, walk->b->bound);
    QP_TRY(qp_device_measure(walk->b->lane, &walk->work, &walk->data, walk->b->found, err));
    if (!qp_device_is_checked(walk->device))
        return QPLAN_OK;
    return qp_device_check_measured(walk->device, &walk->work, &walk->data, walk->b->found,
                                    &walk->b->scratch, err);
}

double qp_flat_value_at(const struct qp_flat_walk *walk, uint64_t i, double *bound)
{
    const struct qp_flat_work *work = &walk->work;
    const struct qp_sets *sets = &work->sets;
    const uint64_t elem = work->elem + i, row = elem / sets->row_len;
    const uint64_t set =
        qp_band_of(sets, row) * sets->n_cols + elem % sets->row_len / sets->col_width;
    const size_t at = (size_t)(i % QP_BLOCK);
    qp_flat_decode_block(work, &walk->data, i - at, &walk->b->scratch);
    *bound = walk->b->bound[qp_window_place(&work->window, set)];
    return work->dtype == QPLAN_F64 ? ((const double *)walk->b->scratch.y)[at]
                                    : (double)((const float *)walk->b->scratch.y)[at];
}
