/*
 * source_values.c - decoding as many elements at a time as there is room for.
 */
#include "source_values.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/store/hold.h"

#include <string.h>

/* Sets whose parameters are in memory at a time, of so many elements. */
static size_t window_sets(uint64_t n_elems)
{
    return (size_t)qp_div_up(n_elems, 8);
}

void qp_values_carve(struct qp_carve *carve, size_t tile_bytes, struct qp_value_room *room)
{
    room->n_elems = tile_bytes / sizeof(double);
    const size_t n_sets = window_sets(room->n_elems);
    room->block = qp_take(carve, QP_BLOCK * sizeof(double));
    room->codes = qp_take(carve, QP_DECODE_ROOM(room->n_elems));
    room->window.scale = qp_take(carve, n_sets * sizeof(double));
    room->window.zero = qp_take(carve, n_sets * sizeof(int32_t));
    room->window.stored = qp_take(carve, QP_PART_ROOM(n_sets, sizeof(float)));
    room->hold = NULL;
    room->hold_bytes = 0;
}

bool qp_values_need_hold(const struct qp_tensor *tensor)
{
    return tensor->encoded && qp_part_is_turned(qp_tensor_part(tensor->encoded, QP_CODES));
}

void qp_values_carve_hold(struct qp_carve *carve, size_t tile_bytes, struct qp_value_room *room)
{
    room->hold_bytes = tile_bytes / 2; /* elements have 2 bytes, and codes mostly 4 bits */
    room->hold = qp_take(carve, room->hold_bytes);
}

enum qplan_status qp_check_fill(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t n_bad, struct qplan_error *err)
{
    char subject[512];
    return n_bad ? qp_fail(err, QPLAN_ERR_INVALID,
                           qp_listing_subject(subject, &source->listing, tensor->entry),
                           "spare bits must be 0: found some that are not")
                 : QPLAN_OK;
}

/* As many elements as there is room for. */
static enum qplan_status decode_some(const struct qp_values *v, uint64_t elem, uint64_t n,
                                     enum qplan_dtype dtype, char *out, struct qplan_error *err)
{
    const struct qp_tensor *t = v->tensor;
    const enum qplan_dtype source = qp_storage_row((enum qplan_storage)t->storage)->dtype;
    struct qp_decoder decoder = {.source = v->source,
                                 .tensor = t,
                                 .rounds = qp_decode_rounds(t),
                                 .work = qp_source_kernels(source, v->isa)->work,
                                 .elem = elem,
                                 .n = n,
                                 .room = v->room->codes,
                                 .y = v->room->block,
                                 .window = v->room->window,
                                 .window_sets = window_sets(n)};
    struct qp_decoded part;
    bool found;
    QP_TRY(qp_decode_begin(&decoder, v->isa, err));
    QP_TRY(qp_decode_next(&decoder, &part, &found, err));
    while (found) {
        if (qp_decode_rounds(t) && !t->scheme->bias && dtype != qp_decoder_dtype(t))
            qp_decode_round(t, decoder.work, (size_t)part.n, part.y);
        decoder.work->store(dtype, (size_t)part.n, part.y, out + part.at * qp_float_bytes(dtype));
        QP_TRY(qp_decode_next(&decoder, &part, &found, err));
    }
    return qp_check_fill(v->source, t, decoder.bad_fill, err);
}

enum qplan_status qp_values_decode(const struct qp_values *v, uint64_t elem, uint64_t n,
                                   enum qplan_dtype dtype, void *out, struct qplan_error *err)
{
    const size_t size = qp_float_bytes(dtype), most = v->room->n_elems;
    struct qp_values values = *v;
    struct qp_source source = *v->source;
    struct qp_hold hold;
    if (v->room->hold && n <= qp_hold_elems(v->tensor, v->room->hold_bytes, most)) {
        QP_TRY(qp_hold_take(&hold, v->source, v->tensor, elem, n, most, v->room->hold, err));
        source.hold = &hold;
        values.source = &source;
    }
    for (uint64_t at = 0; at < n; at += most)
        QP_TRY(decode_some(&values, elem + at, qp_min_u64(n - at, most), dtype,
                           (char *)out + at * size, err));
    return QPLAN_OK;
}

/* ---- Excerpts ----------------------------------------------------------------------------------
 */

/* Elements of the tensors of an excerpt, one behind the other. */
static enum qplan_status read_in_order(const struct qp_values *v, uint64_t elem, uint64_t n,
                                       char *out, struct qplan_error *err)
{
    const struct qp_excerpt *excerpt = v->tensor->excerpt;
    const size_t size = qplan_storage_bits((enum qplan_storage)v->tensor->storage) / 8;
    const uint64_t each = qp_entry_elements(excerpt->of[0]->entry);
    struct qp_values from = *v;
    for (uint64_t at = excerpt->first + elem, k; n > 0; at += k, n -= k, out += k * size) {
        from.tensor = excerpt->of[at / each];
        k = qp_min_u64(n, each - at % each);
        QP_TRY(qp_values_read(&from, at % each, k, out, err));
    }
    return QPLAN_OK;
}

/*
 * What is read of a column at a time, and how many columns then become rows together: writes of
 * single elements far from each other would cost more than all else.
 */
#define LINE_BYTES 2048
#define LINES      16

/* Elements of a turned matrix: some rows of it, of the first and the last perhaps not all. */
struct turned {
    uint64_t elem, n, cols; /* which elements of the matrix, and its columns */
    size_t size;            /* of an element */
    size_t step;            /* bytes between the elements of a column */
    char *out;
};

static inline void copy_element(char *to, const char *from, size_t size)
{
    if (size == 2)
        memcpy(to, from, 2);
    else if (size == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, 8);
}

/* Puts what of a row is in columns from col on, the first element of each line, to its place. */
static void put_row(const struct turned *t, uint64_t row, uint64_t col, uint64_t n_cols,
                    const char *lines)
{
    const uint64_t at = row * t->cols + col, end = t->elem + t->n;
    const uint64_t first = at < t->elem ? t->elem - at : 0;
    const uint64_t behind = at < end ? qp_min_u64(n_cols, end - at) : 0;
    for (uint64_t i = first; i < behind; i++)
        copy_element(t->out + (at + i - t->elem) * t->size, lines + i * LINE_BYTES, t->size);
}

/* Rows of some columns of one matrix, which fit the lines. */
static enum qplan_status read_columns(const struct qp_values *from, const struct turned *t,
                                      const struct qp_excerpt *excerpt, const struct qp_rect *rect,
                                      struct qplan_error *err)
{
    const uint64_t matrix = rect->row / excerpt->rows, row = rect->row % excerpt->rows;
    const uint64_t col = matrix * excerpt->cols + rect->col;
    const uint64_t first = excerpt->first + col * excerpt->across + row * excerpt->down;
    char lines[LINES * LINE_BYTES];
    for (uint64_t i = 0; i < rect->n_cols; i++)
        QP_TRY(qp_values_read(from, first + i * excerpt->across,
                              (rect->n_rows - 1) * excerpt->down + 1, lines + i * LINE_BYTES, err));
    for (uint64_t i = 0; i < rect->n_rows; i++)
        put_row(t, rect->row + i, rect->col, rect->n_cols, lines + i * t->step);
    return QPLAN_OK;
}

/*
 * Whole columns of all rows of a matrix that there is an element of, so that reads are as long as
 * can be.
 */
static enum qplan_status read_turned(const struct qp_values *v, const struct turned *t,
                                     struct qplan_error *err)
{
    const uint64_t end = (t->elem + t->n - 1) / t->cols + 1, rows = v->tensor->excerpt->rows;
    struct qp_values from = *v;
    struct qp_rect rect;
    from.tensor = v->tensor->excerpt->of[0];
    for (rect.row = t->elem / t->cols; rect.row < end; rect.row += rect.n_rows) {
        rect.n_rows =
            qp_min_u64(qp_min_u64(end - rect.row, rows - rect.row % rows), LINE_BYTES / t->step);
        for (rect.col = 0; rect.col < t->cols; rect.col += rect.n_cols) {
            rect.n_cols = qp_min_u64(t->cols - rect.col, LINES);
            QP_TRY(read_columns(&from, t, v->tensor->excerpt, &rect, err));
        }
    }
    return QPLAN_OK;
}

/* Elements of rows that begin some way apart. */
static enum qplan_status read_rows(const struct qp_values *v, uint64_t elem, uint64_t n, char *out,
                                   struct qplan_error *err)
{
    const struct qp_excerpt *excerpt = v->tensor->excerpt;
    const size_t size = qplan_storage_bits((enum qplan_storage)v->tensor->storage) / 8;
    const uint64_t cols = excerpt->cols;
    struct qp_values from = *v;
    from.tensor = excerpt->of[0];
    for (uint64_t k; n > 0; elem += k, n -= k, out += k * size) {
        k = qp_min_u64(n, cols - elem % cols);
        QP_TRY(qp_values_read(&from, excerpt->first + elem / cols * excerpt->down + elem % cols, k,
                              out, err));
    }
    return QPLAN_OK;
}

static enum qplan_status read_excerpt(const struct qp_values *v, uint64_t elem, uint64_t n,
                                      void *out, struct qplan_error *err)
{
    const struct qp_excerpt *excerpt = v->tensor->excerpt;
    const size_t size = qplan_storage_bits((enum qplan_storage)v->tensor->storage) / 8;
    const struct turned turned = {.elem = elem,
                                  .n = n,
                                  .cols = excerpt->cols,
                                  .size = size,
                                  .step = size * excerpt->down,
                                  .out = out};
    if (n == 0)
        return QPLAN_OK;
    if (qp_is_turned(v->tensor))
        return read_turned(v, &turned, err);
    return excerpt->down > 0 ? read_rows(v, elem, n, out, err)
                             : read_in_order(v, elem, n, out, err);
}

/* ---- Any plain tensor --------------------------------------------------------------------------
 */

enum qplan_status qp_values_read(const struct qp_values *v, uint64_t elem, uint64_t n, void *out,
                                 struct qplan_error *err)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)v->tensor->storage);
    const size_t size = row->bits / 8;
    struct qp_values encoded = *v;
    if (v->tensor->excerpt)
        return read_excerpt(v, elem, n, out, err);
    if (!v->tensor->encoded)
        return qp_source_read(v->source, v->tensor->entry, elem * size, out, (size_t)n * size, err);
    encoded.tensor = v->tensor->encoded;
    return qp_values_decode(&encoded, elem, n, row->dtype, out, err);
}
