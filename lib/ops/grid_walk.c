/*
 * grid_walk.c - tensors on their way to the loops of a grid sample: decoded, and interleaved by
 * channels. Whatever the strides, the loops see the same numbers.
 */
#include "grid.h"

#include "lib/base/check.h"

#include <string.h>

/* n elements in working precision. */
static const void *decoded(const struct qp_grid_run *run, size_t n, const void *src, void *to)
{
    if (run->dtype == QPLAN_F32 || run->dtype == QPLAN_F64)
        return src;
    run->decode->load(run->dtype, n, src, to);
    return to;
}

/* ---- Lanes ------------------------------------------------------------------------------------
 */

/* n elements of each plane of a block from at on, to rows of the lanes' width. */
static void interleave(const struct qp_grid_run *run, struct qp_grid_worker *w,
                       const struct qp_view *view, const struct qp_grid_block *block,
                       uint64_t plane_len, uint64_t at, size_t n, void *to)
{
    const size_t raw_step = QP_GRID_STAGE * view->elem_bytes;
    const size_t work_step = QP_GRID_STAGE * run->work_bytes;
    const void *lanes[QP_GRID_LANES];
    for (unsigned k = 0; k < block->n_lanes; k++) {
        const void *src =
            qp_view_get(view, (block->plane + k) * plane_len + at, n, w->raw + k * raw_step);
        lanes[k] = decoded(run, n, src, w->work + k * work_step);
    }
    run->kernels->interleave(block->width, block->n_lanes, n, lanes, to);
}

const void *qp_grid_dout(const struct qp_grid_run *run, struct qp_grid_worker *w,
                         const struct qp_grid_block *block, uint64_t first, size_t n)
{
    interleave(run, w, run->dout, block, run->grid->n_points, first, n, w->dout);
    return w->dout;
}

const void *qp_grid_image(const struct qp_grid_run *run, struct qp_grid_worker *w,
                          const struct qp_grid_block *block)
{
    const uint64_t n_pixels = run->grid->n_pixels;
    const size_t pixel = block->width * run->work_bytes;
    if (!run->layout.dense)
        return NULL;
    if (block->width == 1 && run->work_bytes == run->input->elem_bytes) {
        const void *direct = qp_view_at(run->input, block->plane * n_pixels, (size_t)n_pixels);
        if (direct)
            return direct;
    }
    for (uint64_t at = 0; at < n_pixels; at += QP_GRID_STAGE) {
        const size_t n = (size_t)qp_min_u64(QP_GRID_STAGE, n_pixels - at);
        interleave(run, w, run->input, block, n_pixels, at, n, w->image + at * pixel);
    }
    return w->image;
}

/* ---- Taps -------------------------------------------------------------------------------------
 */

void qp_grid_hold(const struct qp_grid_run *run, struct qp_grid_worker *w, uint64_t batch,
                  uint64_t first, size_t n)
{
    const struct qp_grid_rule *rule = &run->grid->rule;
    if (w->held_n == n && w->held_batch == batch && w->held_first == first)
        return;
    w->held_batch = batch;
    w->held_first = first;
    w->held_n = n;
    for (size_t i = 0; i < n; i += QP_GRID_TILE) {
        const size_t part = (size_t)qp_min_u64(QP_GRID_TILE, n - i);
        const uint64_t at = (batch * run->grid->n_points + first + i) * rule->n_axes;
        const struct qp_grid_taps taps = qp_grid_taps_at(run, w, i);
        /* A tile of points fits into a stage. */
        const void *src = qp_view_get(run->points, at, part * rule->n_axes, w->raw);
        run->kernels->points(rule, part, decoded(run, part * rule->n_axes, src, w->work), &taps);
    }
}

struct qp_grid_taps qp_grid_taps_at(const struct qp_grid_run *run, const struct qp_grid_worker *w,
                                    size_t i)
{
    const size_t n_axes = run->grid->rule.n_axes;
    struct qp_grid_taps taps = w->taps;
    taps.count += i;
    taps.place += i;
    taps.weight = (char *)taps.weight + i * run->work_bytes;
    if (taps.slopes)
        taps.factor = w->factor + (size_t)(w->held_first - w->slice + i) * n_axes * run->work_bytes;
    return taps;
}

/* ---- Pixels tap by tap ------------------------------------------------------------------------
 */

/* The pixels of the taps of n points in one plane, one behind the other. */
static void gather(const struct qp_grid_run *run, uint64_t plane, size_t n,
                   const struct qp_grid_taps *taps, char *to)
{
    const struct qp_view *view = run->input;
    const uint64_t begin = plane * run->grid->n_pixels;
    const char *direct = qp_view_at(view, begin, (size_t)run->grid->n_pixels);
    for (size_t p = 0; p < n; p++) {
        for (unsigned t = 0; t < taps->count[p]; t++, to += view->elem_bytes) {
            const uint64_t place = (uint64_t)taps->place[t * taps->stride + p];
            const char *from = direct ? direct + (size_t)place * view->elem_bytes
                                      : qp_view_at(view, begin + place, 1);
            memcpy(to, from, view->elem_bytes);
        }
    }
}

/* Where the taps of n points are once their pixels are one behind the other; how many they are. */
static size_t number(const struct qp_grid_taps *taps, size_t n, int64_t *place)
{
    int64_t next = 0;
    for (size_t p = 0; p < n; p++) {
        for (unsigned t = 0; t < taps->count[p]; t++)
            place[t * taps->stride + p] = next++;
    }
    return (size_t)next;
}

const void *qp_grid_pixels(const struct qp_grid_run *run, struct qp_grid_worker *w,
                           const struct qp_grid_block *block, const void *image, size_t n,
                           struct qp_grid_taps *taps)
{
    const void *lanes[QP_GRID_LANES];
    if (image)
        return image;
    const size_t n_taps = number(taps, n, w->place);
    for (unsigned k = 0; k < block->n_lanes; k++) {
        char *raw = w->raw + k * QP_GRID_STAGE * run->input->elem_bytes;
        gather(run, block->plane + k, n, taps, raw);
        lanes[k] = decoded(run, n_taps, raw, w->work + k * QP_GRID_STAGE * run->work_bytes);
    }
    run->kernels->interleave(block->width, block->n_lanes, n_taps, lanes, w->image);
    taps->place = w->place;
    return w->image;
}
