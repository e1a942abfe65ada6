/*
 * parts.c - ranges of a part between memory and files. Where lines of a place are rows behind each
 * other, a range is one run of its file; elsewhere it is up to three rectangles with runs of their
 * own.
 */
#include "hold.h"

#include "lib/base/check.h"

static bool has_rows(const struct qp_place *place)
{
    return !place->columns && !place->interleaved && !place->swizzled;
}

bool qp_part_is_turned(const struct qp_part *part)
{
    return part->place->columns || part->place->interleaved;
}

/* Whether bytes are values: nothing is packed, moved or changed. */
static bool is_plain(const struct qp_place *place)
{
    return has_rows(place) && place->bits == 8u * place->word_bytes && !place->half_added &&
           !place->one_less;
}

bool qp_part_is_nibbles(const struct qp_part *part)
{
    const struct qp_place *place = part->place;
    return has_rows(place) && place->bits == 4 && place->word_bytes == 1 && !place->half_added &&
           !place->n_order;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Columns of matrices that are stored one behind the other: what of a column is in each. */
static enum qplan_status read_stacked(const struct qp_source *source, const struct qp_part *part,
                                      const struct qp_rect *rect, char *to, struct qplan_error *err)
{
    const struct qp_matrix one = {part->each, part->matrix.cols};
    const uint64_t n_bytes = qp_place_bytes(part->place, one), end = rect->row + rect->n_rows;
    for (uint64_t col = rect->col; col < rect->col + rect->n_cols; col++) {
        for (uint64_t row = rect->row, n; row < end; row += n) {
            n = qp_min_u64(part->each - row % part->each, end - row);
            const struct qp_rect here = {row % part->each, n, col, 1};
            const struct qp_place_run run = qp_place_run(part->place, one, &here, 0);
            QP_TRY(qp_source_read(source, part->entry, row / part->each * n_bytes + run.off, to,
                                  (size_t)run.n_bytes, err));
            to += run.n_bytes;
        }
    }
    return QPLAN_OK;
}

enum qplan_status qp_read_runs(const struct qp_source *source, const struct qp_part *part,
                               const struct qp_rect *rect, char *image, struct qplan_error *err)
{
    if (part->each > 0)
        return read_stacked(source, part, rect, image, err);
    const uint64_t n_runs = qp_place_runs(part->place, part->matrix, rect);
    char *to = image;
    for (uint64_t i = 0; i < n_runs; i++) {
        const struct qp_place_run run = qp_place_run(part->place, part->matrix, rect, i);
        QP_TRY(qp_source_read(source, part->entry, run.off, to, (size_t)run.n_bytes, err));
        to += run.n_bytes;
    }
    return QPLAN_OK;
}

enum qplan_status qp_part_get(const struct qp_source *source, const struct qp_part *part,
                              uint64_t elem, size_t n, enum qplan_isa isa, void *room,
                              const void **values, uint64_t *bad_fill, struct qplan_error *err)
{
    const struct qp_flat_range range = {part->matrix, elem, n};
    const size_t value_bytes = qp_value_bytes(part);
    if (is_plain(part->place)) {
        const uint64_t off = elem * value_bytes;
        *values = qp_source_room(source, part->entry, off, room);
        return qp_source_read(source, part->entry, off, (void *)*values, n * value_bytes, err);
    }
    const struct qp_held *held = qp_hold_find(source->hold, part, elem, n);
    char *image = (char *)room + qp_div_up(n * value_bytes, 64) * 64, *to = room;
    uint64_t bad = 0;
    *values = room;
    if (held) {
        qp_held_get(held, elem, n, isa, room, &bad);
    } else if (has_rows(part->place)) {
        const struct qp_place_run run = qp_flat_run(part->place, &range);
        char *bytes = qp_source_room(source, part->entry, run.off, image);
        QP_TRY(qp_source_read(source, part->entry, run.off, bytes, (size_t)run.n_bytes, err));
        bad = qp_flat_get(part->place, &range, isa, bytes, room);
    } else {
        struct qp_rect rects[3];
        const unsigned n_rects = qp_flat_rects(&range, rects);
        for (unsigned i = 0; i < n_rects; i++) {
            QP_TRY(qp_read_runs(source, part, &rects[i], image, err));
            bad += qp_place_get(part->place, part->matrix, &rects[i], isa, image, to);
            to += rects[i].n_rows * rects[i].n_cols * value_bytes;
        }
    }
    if (bad_fill)
        *bad_fill += bad;
    return QPLAN_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

enum qplan_status qp_put_runs(const struct qp_part *part, const struct qp_rect *rect,
                              const char *image, qp_put_fn put, void *ctx, struct qplan_error *err)
{
    const uint64_t n_runs = qp_place_runs(part->place, part->matrix, rect);
    const char *from = image;
    for (uint64_t i = 0; i < n_runs; i++) {
        const struct qp_place_run run = qp_place_run(part->place, part->matrix, rect, i);
        QP_TRY(put(ctx, part, run.off, from, (size_t)run.n_bytes, err));
        from += run.n_bytes;
    }
    return QPLAN_OK;
}

enum qplan_status qp_part_put(const struct qp_outs *outs, const struct qp_part *part, uint64_t elem,
                              size_t n, enum qplan_isa isa, const void *values, void *image,
                              qp_put_fn put, void *ctx, struct qplan_error *err)
{
    const struct qp_flat_range range = {part->matrix, elem, n};
    const size_t value_bytes = qp_value_bytes(part);
    if (is_plain(part->place))
        return put(ctx, part, elem * value_bytes, values, n * value_bytes, err);
    if (has_rows(part->place)) {
        const struct qp_place_run run = qp_flat_run(part->place, &range);
        char *to = qp_outs_room(outs, part->entry, run.off, image);
        qp_flat_put(part->place, &range, isa, values, to);
        return put(ctx, part, run.off, to, (size_t)run.n_bytes, err);
    }
    struct qp_rect rects[3];
    const unsigned n_rects = qp_flat_rects(&range, rects);
    const char *from = values;
    for (unsigned i = 0; i < n_rects; i++) {
        qp_place_put(part->place, part->matrix, &rects[i], isa, from, image);
        QP_TRY(qp_put_runs(part, &rects[i], image, put, ctx, err));
        from += rects[i].n_rows * rects[i].n_cols * value_bytes;
    }
    return QPLAN_OK;
}
