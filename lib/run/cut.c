/*
 * cut.c - the cutting itself: integers only, no data.
 */
#include "cut.h"

#include "lib/base/check.h"

/* The last place at or before elem where a cut may fall. */
static uint64_t cut_before(const struct qp_sets *sets, uint64_t grain, uint64_t elem)
{
    return elem - elem % sets->last_len % grain;
}

/* Columns that a strip must be a multiple of: whole sets, and whole words of codes. */
static uint64_t column_unit(const struct qp_sets *sets, const struct qp_limits *limits,
                            uint64_t grain)
{
    const uint64_t least = sets->col_width * qp_max_u64(limits->together, 1);
    uint64_t unit = least;
    if (limits->tall > 1 && sets->n_bands == 1 && unit == sets->last_len) /* a row is a set */
        return qp_min_u64(limits->tall, sets->n_sets) * unit;
    while (unit % sets->last_len != 0 && unit % grain != 0)
        unit += least;
    return unit;
}

/* As many whole bands as fit, in one piece. Bands of one period only: the last may be shorter. */
static bool whole_bands(const struct qp_sets *sets, const struct qp_limits *limits, uint64_t band,
                        struct qp_strip *strip)
{
    const uint64_t tall = qp_max_u64(limits->tall, 1);
    uint64_t band_elems = sets->band_rows * sets->row_len;
    uint64_t left = sets->n_bands - band;
    if (sets->band_rows > 1)
        left = qp_min_u64(left, sets->period_bands - band % sets->period_bands);
    const uint64_t least = qp_min_u64(tall, left);
    if (least > limits->elems / band_elems || least > limits->sets / sets->n_cols)
        return false;
    uint64_t most =
        qp_min_u64(qp_max_u64(limits->cached / band_elems, least), limits->sets / sets->n_cols);
    strip->n_bands = most < left ? most - most % least : left;
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
    const uint64_t n_sets = limits->pieced ? limits->pieced : limits->sets;
    uint64_t units = qp_max_u64(n_sets / (unit / sets->col_width), 1);
    uint64_t width;
    if (!qp_mul_u64(units, unit, &width))
        width = sets->row_len;
    strip->n_cols = qp_min_u64(width, sets->row_len - strip->col);
    strip->piece_cols = strip->n_cols;
    strip->piece_rows = qp_min_u64(limits->cached / strip->n_cols, strip->n_rows);
    if (strip->piece_rows == 0) {
        strip->piece_rows = 1;
        /* A cut may move back by less than a grain. Whole pages are cheapest to read and write. */
        strip->piece_cols = limits->cached - (strip->grain - 1);
        if (strip->piece_cols > PAGE)
            strip->piece_cols -= strip->piece_cols % PAGE;
    }
}

void qp_strip_at(const struct qp_sets *sets, const struct qp_limits *limits, size_t elem_bytes,
                 uint64_t grain, uint64_t band, uint64_t col, struct qp_strip *strip)
{
    const uint64_t unit = column_unit(sets, limits, grain);
    *strip = (struct qp_strip){.band = band,
                               .n_bands = 1,
                               .row = qp_band_row(sets, band),
                               .n_rows = qp_band_rows(sets, band),
                               .col = col,
                               .set = band * sets->n_cols + col / sets->col_width,
                               .n_pieces = 1,
                               .grain = grain};
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
    uint64_t left = strip->col + col, right = strip->col + end;
    left = i % across ? cut_before(sets, strip->grain, left) : left;
    right = end < strip->n_cols ? cut_before(sets, strip->grain, right) : right;
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
