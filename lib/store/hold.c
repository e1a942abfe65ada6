/*
 * hold.c - images of many rows.
 */
#include "hold.h"

#include "lib/base/check.h"

#define LINE 64 /* bytes: no two images share a line of the cache */

static bool is_held(const struct qp_part *part)
{
    return part->role != QP_CONSTANT && part->role != QP_INDEX && qp_part_is_turned(part);
}

/* How many rows of codes a row of a turned part stands for: parameters of blocks have fewer. */
static uint64_t rows_of_each(const struct qp_tensor *tensor, const struct qp_part *part)
{
    return qp_tensor_part(tensor, QP_CODES)->matrix.rows / part->matrix.rows;
}

/* What a part has for rows of codes. */
static struct qp_rect rect_of(const struct qp_tensor *tensor, const struct qp_part *part,
                              uint64_t row, uint64_t n_rows)
{
    const uint64_t each = rows_of_each(tensor, part), first = row / each;
    return (struct qp_rect){first, qp_div_up(row + n_rows, each) - first, 0, part->matrix.cols};
}

uint64_t qp_tall_rows(const struct qp_tensor *tensor)
{
    uint64_t tall = 1, rows, cols;
    for (unsigned i = 0; i < tensor->n_parts; i++) {
        if (tensor->parts[i].role == QP_CONSTANT)
            continue;
        qp_place_grain(tensor->parts[i].place, &rows, &cols);
        tall = qp_max_u64(tall, rows);  /* both are powers of two */
        if (is_held(&tensor->parts[i])) /* and the rows of turned blocks are, too */
            tall = qp_max_u64(tall, rows_of_each(tensor, &tensor->parts[i]));
    }
    return tall;
}

static uint64_t held_bytes(const struct qp_part *part, const struct qp_rect *rect)
{
    return qp_div_up(qp_place_image_bytes(part->place, part->matrix, rect), LINE) * LINE;
}

uint64_t qp_hold_rows(const struct qp_tensor *tensor, uint64_t n_bytes)
{
    const uint64_t tall = qp_tall_rows(tensor);
    uint64_t tall_bytes = 0;
    if (!qp_part_is_turned(qp_tensor_part(tensor, QP_CODES)))
        return 0;
    for (unsigned i = 0; i < tensor->n_parts; i++) {
        const struct qp_part *part = &tensor->parts[i];
        if (!is_held(part))
            continue;
        const uint64_t rows = qp_tensor_part(tensor, QP_CODES)->matrix.rows;
        const struct qp_rect rect = rect_of(tensor, part, 0, qp_min_u64(tall, rows));
        tall_bytes += held_bytes(part, &rect);
    }
    /* Rows that begin elsewhere than a word have one word more. */
    const uint64_t n = tall_bytes > 0 ? n_bytes / tall_bytes : 0;
    return n > 1 ? (n - 1) * tall : 0;
}

uint64_t qp_hold_elems(const struct qp_tensor *tensor, uint64_t n_bytes, uint64_t piece)
{
    const uint64_t rows = qp_hold_rows(tensor, n_bytes);
    const uint64_t cols = qp_tensor_part(tensor, QP_CODES)->matrix.cols;
    const uint64_t n = rows > 1 ? qp_min_u64((rows - 1) * cols, QP_HELD_ELEMS(n_bytes)) : 0;
    return qp_max_u64(n - n % piece, piece);
}

void qp_hold_make(struct qp_hold *hold, const struct qp_tensor *tensor, uint64_t row,
                  uint64_t n_rows, bool codes, void *bytes)
{
    char *image = bytes;
    hold->n = 0;
    for (unsigned i = 0; i < tensor->n_parts; i++) {
        const struct qp_part *part = &tensor->parts[i];
        if (!is_held(part) || (part->role == QP_CODES && !codes))
            continue;
        const struct qp_rect rect = rect_of(tensor, part, row, n_rows);
        hold->held[hold->n++] = (struct qp_held){part, rect, image};
        image += held_bytes(part, &rect);
    }
}

const struct qp_held *qp_hold_find(const struct qp_hold *hold, const struct qp_part *part,
                                   uint64_t elem, uint64_t n)
{
    const uint64_t cols = part->matrix.cols;
    for (unsigned i = 0; hold && i < hold->n; i++) {
        const struct qp_held *held = &hold->held[i];
        if (held->part == part && elem >= held->rect.row * cols &&
            elem + n <= (held->rect.row + held->rect.n_rows) * cols)
            return held;
    }
    return NULL;
}

void qp_held_put(const struct qp_held *held, uint64_t elem, size_t n, enum qplan_isa isa,
                 const void *values)
{
    const struct qp_part *part = held->part;
    const struct qp_flat_range range = {part->matrix, elem, n};
    const char *from = values;
    struct qp_rect rects[3];
    const unsigned n_rects = qp_flat_rects(&range, rects);
    for (unsigned i = 0; i < n_rects; i++) {
        qp_place_put_in(part->place, part->matrix, &held->rect, &rects[i], isa, from, held->image);
        from += rects[i].n_rows * rects[i].n_cols * qp_value_bytes(part);
    }
}

void qp_held_get(const struct qp_held *held, uint64_t elem, size_t n, enum qplan_isa isa,
                 void *values, uint64_t *bad_fill)
{
    const struct qp_part *part = held->part;
    const struct qp_flat_range range = {part->matrix, elem, n};
    char *to = values;
    struct qp_rect rects[3];
    const unsigned n_rects = qp_flat_rects(&range, rects);
    for (unsigned i = 0; i < n_rects; i++) {
        *bad_fill += qp_place_get_in(part->place, part->matrix, &held->rect, &rects[i], isa,
                                     held->image, to);
        to += rects[i].n_rows * rects[i].n_cols * qp_value_bytes(part);
    }
}

enum qplan_status qp_hold_take(struct qp_hold *hold, const struct qp_source *source,
                               const struct qp_tensor *tensor, uint64_t elem, uint64_t n,
                               uint64_t piece, void *bytes, struct qplan_error *err)
{
    hold->n = 0;
    if (n <= piece)
        return QPLAN_OK;
    const uint64_t cols = qp_tensor_part(tensor, QP_CODES)->matrix.cols, row = elem / cols;
    qp_hold_make(hold, tensor, row, qp_div_up(elem + n, cols) - row, true, bytes);
    for (unsigned i = 0; i < hold->n; i++) {
        const struct qp_held *held = &hold->held[i];
        QP_TRY(qp_read_runs(source, held->part, &held->rect, held->image, err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_hold_write(const struct qp_hold *hold, qp_put_fn put, void *ctx,
                                struct qplan_error *err)
{
    for (unsigned i = 0; i < hold->n; i++) {
        const struct qp_held *held = &hold->held[i];
        QP_TRY(qp_put_runs(held->part, &held->rect, held->image, put, ctx, err));
    }
    return QPLAN_OK;
}
