/*
 * split.c - the cutting itself: integers only, no data.
 */
#include "split.h"

#include "base/check.h"

struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme)
{
    struct qp_code_rule rule = {
        .asymmetric = scheme->asymmetric,
        .is_signed = qplan_dtype_is_signed(scheme->dtype),
        .scale_dtype = scheme->scale_dtype,
    };
    qp_scheme_range(scheme, &rule.q_min, &rule.q_max);
    return rule;
}

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

uint64_t qp_code_offset(const struct qp_sets *sets, bool packed, uint64_t elem)
{
    if (!packed)
        return elem;
    uint64_t row = elem / sets->last_len, col = elem % sets->last_len;
    return row * qp_div_up(sets->last_len, 2) + col / 2;
}

/* The last place at or before elem where a new byte of codes begins. */
static uint64_t byte_cut(const struct qp_sets *sets, bool packed, uint64_t elem)
{
    return packed ? elem - (elem % sets->last_len) % 2 : elem;
}

/* Columns that a strip must be a multiple of: whole sets, and whole bytes of codes. */
static uint64_t column_unit(const struct qp_sets *sets, bool packed)
{
    bool splits_byte = packed && sets->col_width % 2 && sets->col_width % sets->last_len;
    return splits_byte ? sets->col_width * 2 : sets->col_width;
}

/* As many whole bands as fit, in one piece. Bands of one period only: the last may be shorter. */
static bool whole_bands(const struct qp_sets *sets, const struct qp_limits *limits, uint64_t band,
                        struct qp_strip *strip)
{
    uint64_t band_elems = sets->band_rows * sets->row_len;
    if (band_elems > limits->elems || sets->n_cols > limits->sets)
        return false;
    uint64_t most =
        qp_min_u64(qp_max_u64(limits->cached / band_elems, 1), limits->sets / sets->n_cols);
    uint64_t left = sets->n_bands - band;
    if (sets->band_rows > 1)
        left = qp_min_u64(left, sets->period_bands - band % sets->period_bands);
    strip->n_bands = qp_min_u64(most, left);
    uint64_t last = band + strip->n_bands - 1;
    strip->n_rows = qp_band_row(sets, last) + qp_band_rows(sets, last) - strip->row;
    strip->n_cols = sets->row_len;
    return true;
}

/*
 * Rows of a partial strip are read one by one: below this many bytes a second pass over long rows
 * costs less than so many short reads.
 */
#define LEAST_READ 1024

/* Some columns of one band, in one piece. */
static bool whole_columns(const struct qp_sets *sets, const struct qp_limits *limits,
                          size_t elem_bytes, uint64_t unit, struct qp_strip *strip)
{
    uint64_t unit_sets = unit / sets->col_width;
    uint64_t most = strip->n_rows > 1 ? limits->apart : limits->cached;
    uint64_t units = qp_min_u64(most / strip->n_rows / unit, limits->sets / unit_sets);
    if (units == 0 || (strip->n_rows > 1 && units * unit * elem_bytes < LEAST_READ))
        return false;
    strip->n_cols = qp_min_u64(units * unit, sets->row_len - strip->col);
    return true;
}

#define PAGE 4096

/* As many columns as there is room for parameters; pieces are rows, or parts of one. */
static void many_pieces(const struct qp_sets *sets, const struct qp_limits *limits, uint64_t unit,
                        struct qp_strip *strip)
{
    uint64_t units = qp_max_u64(limits->sets / (unit / sets->col_width), 1);
    uint64_t width;
    if (!qp_mul_u64(units, unit, &width))
        width = sets->row_len;
    strip->n_cols = qp_min_u64(width, sets->row_len - strip->col);
    strip->piece_cols = strip->n_cols;
    strip->piece_rows = qp_min_u64(limits->cached / strip->n_cols, strip->n_rows);
    if (strip->piece_rows == 0) {
        strip->piece_rows = 1;
        /* A cut may move by one, to where a byte begins. Whole pages are cheapest to read and
         * write. */
        strip->piece_cols = limits->cached - 1;
        if (strip->piece_cols > PAGE)
            strip->piece_cols -= strip->piece_cols % PAGE;
    }
}

void qp_strip_at(const struct qp_sets *sets, const struct qp_limits *limits, size_t elem_bytes,
                 bool packed, uint64_t band, uint64_t col, struct qp_strip *strip)
{
    uint64_t unit = column_unit(sets, packed);
    *strip = (struct qp_strip){.band = band,
                               .n_bands = 1,
                               .row = qp_band_row(sets, band),
                               .n_rows = qp_band_rows(sets, band),
                               .col = col,
                               .set = band * sets->n_cols + col / sets->col_width,
                               .n_pieces = 1};
    bool fits = (col == 0 && whole_bands(sets, limits, band, strip)) ||
                whole_columns(sets, limits, elem_bytes, unit, strip);
    if (fits) {
        strip->piece_rows = strip->n_rows;
        strip->piece_cols = strip->n_cols;
    } else {
        many_pieces(sets, limits, unit, strip);
        strip->n_pieces = qp_div_up(strip->n_rows, strip->piece_rows) *
                          qp_div_up(strip->n_cols, strip->piece_cols);
    }
    strip->n_sets = strip->n_bands * qp_div_up(strip->n_cols, sets->col_width);
}

bool qp_strip_next(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t *band,
                   uint64_t *col)
{
    *col = strip->col + strip->n_cols;
    if (*col < sets->row_len)
        return true;
    *col = 0;
    *band = strip->band + strip->n_bands;
    return *band < sets->n_bands;
}

void qp_piece_at(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t i,
                 struct qp_piece *piece)
{
    uint64_t across = qp_div_up(strip->n_cols, strip->piece_cols);
    uint64_t row = i / across * strip->piece_rows, col = i % across * strip->piece_cols;
    uint64_t end = qp_min_u64(col + strip->piece_cols, strip->n_cols);
    bool packed = across > 1; /* cuts on even columns serve both widths of codes */
    uint64_t left = strip->col + col, right = strip->col + end;
    left = i % across ? byte_cut(sets, packed, left) : left;
    right = end < strip->n_cols ? byte_cut(sets, packed, right) : right;
    piece->row = strip->row + row;
    piece->n_rows = qp_min_u64(strip->piece_rows, strip->n_rows - row);
    piece->col = left;
    piece->n_cols = right - left;
    piece->first_set = left / sets->col_width - strip->col / sets->col_width;
    piece->tile = (struct qp_tile){.rows = (size_t)piece->n_rows,
                                   .cols = (size_t)piece->n_cols,
                                   .band_rows = (size_t)sets->band_rows,
                                   .col_width = (size_t)sets->col_width,
                                   .col_skip = (size_t)(left % sets->col_width)};
}

/* ---- Flat ranges -------------------------------------------------------------------------------
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
