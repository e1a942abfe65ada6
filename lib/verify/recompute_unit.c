/*
 * recompute_unit.c - parameters computed again in passing, while their elements are in memory.
 */
#include "lib/base/check.h"
#include "recompute.h"

#include <string.h>

uint64_t qp_set_limit(const struct qp_sets *sets, uint64_t elem)
{
    const uint64_t col = elem % sets->row_len;
    const uint64_t limit = qp_div_up(col, sets->col_width) * sets->col_width;
    return elem - col + qp_min_u64(limit, sets->row_len);
}

/* Computes the parameters of a tile of whole sets from `set` on; false if one of them has none. */
static bool compute(const struct qp_whole_sets *w, const struct qp_tile *tile, uint64_t set,
                    const void *src)
{
    const size_t n = qp_tile_sets(tile);
    struct qp_calibration c = w->calibration;
    c.short_set = qp_short_set(w->sets, set);
    memset(w->state, 0, n * w->calibrator->state_bytes);
    (void)w->calibrator->see(&c, 0, tile, src, w->state);
    return qp_calibrator_finish(w->calibrator, &c, 0, n, w->state, w->scale, w->zero) == n;
}

/* The largest size of a value in sets whose ranges are known, or `most` if it is larger. */
static double larger_in(const struct qp_whole_sets *w, size_t n, double most)
{
    const void *lo = w->state, *hi = qp_ranges_most(&w->calibration, w->state, n);
    const bool is_f64 = w->calibration.kernels->work->work == QPLAN_F64;
    for (size_t i = 0; w->calibrator->finds_ranges && i < n; i++) {
        const double least = is_f64 ? ((const double *)lo)[i] : (double)((const float *)lo)[i];
        const double largest = is_f64 ? ((const double *)hi)[i] : (double)((const float *)hi)[i];
        const double size = -least > largest ? -least : largest;
        most = size > most ? size : most;
    }
    return most;
}

static uint64_t count_same(const struct qp_whole_sets *w, size_t n)
{
    const size_t size = w->calibration.kernels->work_bytes;
    if (memcmp(w->scale, w->stored.scale, n * size) == 0 &&
        memcmp(w->zero, w->stored.zero, n * sizeof *w->zero) == 0)
        return n;
    uint64_t same = 0;
    for (size_t i = 0; i < n; i++)
        same += w->zero[i] == w->stored.zero[i] &&
                memcmp((char *)w->scale + i * size, (char *)w->stored.scale + i * size, size) == 0;
    return same;
}

enum qplan_status qp_recompute_sets(const struct qp_whole_sets *w, uint64_t *n_same, double *most,
                                    struct qplan_error *err)
{
    const struct qp_source_kernels *k = w->calibration.kernels;
    struct qp_tile tile;
    uint64_t set;
    const bool has_factor = qp_tensor_part(w->tensor, QP_FACTOR) != NULL;
    for (uint64_t at = w->begin; at < w->end;) {
        const char *src = (const char *)w->src + (at - w->begin) * k->elem_bytes;
        at += qp_tile_at(w->sets, at, w->end, w->n_sets, &tile, &set);
        const size_t n = qp_tile_sets(&tile);
        QP_TRY(qp_read_params(w->file, w->tensor, k->work, set, n, &w->stored, err));
        if (compute(w, &tile, set, src))
            *n_same += count_same(w, n);
        if (has_factor)
            *most = larger_in(w, n, *most);
    }
    return QPLAN_OK;
}
