/*
 * sets.c - the geometry of parameter sets: of a whole tensor, and of flat ranges of it.
 */
#include "sets.h"

#include "lib/base/check.h"

#include <string.h>

/* Elements of n extents. The tensor's size is known to fit, so no part of it can overflow. */
static uint64_t product(const uint64_t *shape, unsigned n)
{
    uint64_t n_elems = 1;
    for (unsigned i = 0; i < n; i++)
        n_elems *= shape[i];
    return n_elems;
}

static void sets_per_channel(struct qp_sets *sets, uint64_t outer, uint64_t channels)
{
    sets->band_rows = sets->period_rows = outer;
    sets->row_len = sets->n_elems / outer;
    sets->col_width = sets->row_len / channels;
}

static void sets_per_group(struct qp_sets *sets, uint64_t group)
{
    sets->row_len = sets->last_len;
    sets->n_bands = sets->n_elems / sets->row_len;
    sets->col_width = qp_min_u64(group, sets->row_len);
}

/* Bands of rows of each matrix, cut into columns as groups are. */
static void sets_per_block(struct qp_sets *sets, const struct qplan_scheme *scheme, uint64_t rows)
{
    sets_per_group(sets, scheme->block_cols);
    sets->period_rows = rows;
    sets->period_bands = qp_div_up(rows, scheme->block_rows);
    sets->band_rows = qp_min_u64(scheme->block_rows, rows);
    sets->n_bands = sets->n_bands / rows * sets->period_bands;
}

void qp_sets_make(struct qp_sets *sets, const struct qplan_scheme *scheme, const uint64_t *shape,
                  unsigned rank)
{
    uint64_t n_elems = product(shape, rank);
    unsigned axis = (unsigned)scheme->axis;
    *sets = (struct qp_sets){
        .n_elems = n_elems,
        .n_bands = 1,
        .band_rows = 1,
        .period_rows = 1,
        .period_bands = 1,
        .row_len = n_elems,
        .col_width = n_elems,
        .last_len = shape[rank - 1],
    };
    switch (scheme->granularity) {
    case QPLAN_PER_TENSOR:
        break;
    case QPLAN_PER_CHANNEL:
        sets_per_channel(sets, product(shape, axis), shape[axis]);
        break;
    case QPLAN_PER_GROUP:
        sets_per_group(sets, scheme->group);
        break;
    case QPLAN_PER_BLOCK:
        sets_per_block(sets, scheme, shape[rank - 2]);
        break;
    }
    sets->n_cols = qp_div_up(sets->row_len, sets->col_width);
    sets->n_sets = sets->n_bands * sets->n_cols;
}

void qp_sets_make_flat(struct qp_sets *sets, const struct qplan_scheme *scheme,
                       const uint64_t *shape, unsigned rank)
{
    const uint64_t n_elems = product(shape, rank);
    qp_sets_make(sets, scheme, &n_elems, 1);
}

unsigned qp_scale_shape(const struct qplan_scheme *scheme, const uint64_t *shape, unsigned rank,
                        uint64_t *out)
{
    const bool is_block = scheme->granularity == QPLAN_PER_BLOCK;
    if (scheme->granularity == QPLAN_PER_TENSOR || scheme->granularity == QPLAN_PER_CHANNEL) {
        out[0] = scheme->granularity == QPLAN_PER_TENSOR ? 1 : shape[scheme->axis];
        return 1;
    }
    memcpy(out, shape, rank * sizeof shape[0]);
    out[rank - 1] = qp_div_up(shape[rank - 1], is_block ? scheme->block_cols : scheme->group);
    if (is_block)
        out[rank - 2] = qp_div_up(shape[rank - 2], scheme->block_rows);
    return rank;
}

/* ---- Bands ----------------------------------------------------------------------------------- */

uint64_t qp_band_row(const struct qp_sets *sets, uint64_t band)
{
    return band / sets->period_bands * sets->period_rows +
           band % sets->period_bands * sets->band_rows;
}

uint64_t qp_band_rows(const struct qp_sets *sets, uint64_t band)
{
    uint64_t row_in_period = band % sets->period_bands * sets->band_rows;
    return qp_min_u64(sets->band_rows, sets->period_rows - row_in_period);
}

/* ---- Flat ranges ------------------------------------------------------------------------------
 */

uint64_t qp_band_of(const struct qp_sets *sets, uint64_t row)
{
    return row / sets->period_rows * sets->period_bands + row % sets->period_rows / sets->band_rows;
}

/* Rows from row on that one tile may have: of one band, or of bands that are one row each. */
static uint64_t rows_together(const struct qp_sets *sets, uint64_t row, uint64_t most_sets)
{
    if (sets->band_rows == 1 && sets->period_rows == 1)
        return qp_max_u64(most_sets / sets->n_cols, 1);
    uint64_t band = qp_band_of(sets, row);
    return qp_band_row(sets, band) + qp_band_rows(sets, band) - row;
}

bool qp_sets_are_flat(const struct qp_sets *sets)
{
    return sets->band_rows == 1 && sets->period_rows == 1 && sets->row_len % sets->col_width == 0;
}

uint64_t qp_tile_at(const struct qp_sets *sets, uint64_t elem, uint64_t end, uint64_t most_sets,
                    struct qp_tile *tile, uint64_t *first_set)
{
    uint64_t row = elem / sets->row_len, col = elem % sets->row_len;
    uint64_t skip = col % sets->col_width;
    uint64_t rows = 1, cols = qp_min_u64(sets->row_len - col, end - elem), most_cols;
    if (qp_mul_u64(most_sets, sets->col_width, &most_cols))
        cols = qp_min_u64(cols, most_cols - skip);
    if (cols == sets->row_len)
        rows = qp_min_u64((end - elem) / cols, rows_together(sets, row, most_sets));
    *tile = (struct qp_tile){.rows = (size_t)rows,
                             .cols = (size_t)cols,
                             .band_rows = (size_t)sets->band_rows,
                             .col_width = (size_t)sets->col_width,
                             .col_skip = (size_t)skip};
    *first_set = qp_band_of(sets, row) * sets->n_cols + col / sets->col_width;
    return rows * cols;
}

/* ---- Windows -----------------------------------------------------------------------------------
 */

/* Rows from first to last are of one band, and more than one. */
static void window_in_band(const struct qp_sets *sets, uint64_t first_col, uint64_t last_col,
                           bool neighbours, struct qp_set_window *window)
{
    const uint64_t band_set = window->set - first_col;
    if (neighbours && last_col < first_col) { /* the sets in between are not touched */
        window->n = sets->n_cols - first_col;
        window->more_set = band_set;
        window->more = last_col + 1;
    } else {
        window->set = band_set;
        window->n = sets->n_cols;
    }
}

void qp_window_of(const struct qp_sets *sets, uint64_t elem, uint64_t n,
                  struct qp_set_window *window)
{
    const uint64_t last = elem + n - 1;
    const uint64_t row = elem / sets->row_len, last_row = last / sets->row_len;
    const uint64_t band = qp_band_of(sets, row), last_band = qp_band_of(sets, last_row);
    const uint64_t col = elem % sets->row_len / sets->col_width;
    const uint64_t last_col = last % sets->row_len / sets->col_width;
    *window = (struct qp_set_window){.set = band * sets->n_cols + col};
    if (row == last_row) {
        window->n = last_col - col + 1;
        return;
    }
    if (band == last_band) {
        window_in_band(sets, col, last_col, last_row == row + 1, window);
        return;
    }
    /* A band with a second row in the range has all its sets there. */
    uint64_t end = last_band * sets->n_cols + last_col + 1;
    if (qp_band_of(sets, row + 1) == band)
        window->set -= col;
    if (qp_band_of(sets, last_row - 1) == last_band)
        end = (last_band + 1) * sets->n_cols;
    window->n = end - window->set;
}

uint64_t qp_window_place(const struct qp_set_window *window, uint64_t set)
{
    bool is_first = set >= window->set && set - window->set < window->n;
    return is_first ? set - window->set : window->n + (set - window->more_set);
}

uint64_t qp_window_fit(const struct qp_sets *sets, uint64_t elem, uint64_t n, uint64_t most_sets,
                       struct qp_set_window *window)
{
    uint64_t fits = 1, fails = qp_div_up(n, QP_BLOCK) + 1; /* blocks */
    while (fails - fits > 1) {
        uint64_t middle = fits + (fails - fits) / 2;
        qp_window_of(sets, elem, qp_min_u64(middle * QP_BLOCK, n), window);
        if (window->n + window->more <= most_sets)
            fits = middle;
        else
            fails = middle;
    }
    uint64_t part = qp_min_u64(fits * QP_BLOCK, n);
    qp_window_of(sets, elem, part, window);
    return part;
}
