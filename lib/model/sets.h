/*
 * sets.h - what a scheme means for a shape: the geometry of parameter sets. Integers only, no data.
 *
 * All granularities are one picture. The tensor is a matrix of n_bands bands; a band has band_rows
 * rows of row_len elements; col_width neighbouring columns of a band are one parameter set:
 *
 *     granularity        bands                band_rows     row_len        col_width
 *     per tensor         1                    1             all elements   all elements
 *     per channel k      1                    outer         C * inner      inner
 *     per group g        rows                 1             last extent    g
 *     flat groups of g   1                    1             all elements   g
 *     per block RxC      leading * row bands  R             last extent    C
 *
 * Set number = band * n_cols + column / col_width, which is also its place in the scale tensor.
 * Row r is in band (r / period_rows) * period_bands + r % period_rows / band_rows: a period is the
 * rows of one leading index per block, else one band. Its last band may have fewer rows, the last
 * set of a row fewer columns. A group or block larger than the tensor is cut to it, so band_rows *
 * row_len never exceeds n_elems.
 */
#ifndef QP_MODEL_SETS_H
#define QP_MODEL_SETS_H

#include "scheme.h"

struct qp_sets {
    uint64_t n_elems;
    uint64_t n_bands, band_rows;
    uint64_t period_rows;  /* rows after which a band always begins anew */
    uint64_t period_bands; /* bands in a period */
    uint64_t row_len, col_width;
    uint64_t n_cols; /* sets side by side in a band */
    uint64_t n_sets;
    uint64_t last_len; /* last extent of the tensor: what packed codes are padded to */
};

/*
 * The sets of a tensor that has elements and rank >= 1; scheme->axis must be resolved and inside
 * the rank, a block needs rank >= 2.
 */
void qp_sets_make(struct qp_sets *sets, const struct qplan_scheme *scheme, const uint64_t *shape,
                  unsigned rank);

/* The sets of groups that go on from row to row: of a tensor of one axis with all elements. */
void qp_sets_make_flat(struct qp_sets *sets, const struct qplan_scheme *scheme,
                       const uint64_t *shape, unsigned rank);

/* The shape of the scales of the same tensor, of at most QPLAN_MAX_RANK extents. Returns the rank.
 */
unsigned qp_scale_shape(const struct qplan_scheme *scheme, const uint64_t *shape, unsigned rank,
                        uint64_t *out);

/*
 * A rectangle of the matrix that is contiguous in memory, as kernels see it: rows of columns that
 * fall into parameter sets.
 */
struct qp_tile {
    size_t rows, cols;
    size_t band_rows; /* rows that share their sets; the last band of a tile may be shorter */
    size_t col_width; /* columns of a set; the last set of a row may be shorter */
    size_t col_skip;  /* columns of the first set that lie left of the tile, < col_width */
};

/* Sets side by side in a tile, and in all. Arrays of parameters have qp_tile_sets elements. */
static inline size_t qp_tile_cols(const struct qp_tile *tile)
{
    size_t end = tile->col_skip + tile->cols;
    return end / tile->col_width + (end % tile->col_width != 0);
}

static inline size_t qp_tile_sets(const struct qp_tile *tile)
{
    size_t bands = tile->rows / tile->band_rows + (tile->rows % tile->band_rows != 0);
    return bands * qp_tile_cols(tile);
}

/* A rectangle of the matrix inside a strip. */
struct qp_piece {
    uint64_t row, n_rows, col, n_cols;
    struct qp_tile tile; /* its geometry, for the kernels */
    uint64_t first_set;  /* of the strip: where the tile's first set is */
};

/* Elements whose errors are summed in one fixed order. */
#define QP_BLOCK 4096

/* ---- Bands and flat ranges --------------------------------------------------------------------
 */

/* The first row of a band, and how many it has. */
uint64_t qp_band_row(const struct qp_sets *sets, uint64_t band);
uint64_t qp_band_rows(const struct qp_sets *sets, uint64_t band);

/*
 * Walking a flat range instead of strips: the largest tile that begins at elem, ends at or before
 * end, and touches at most most_sets sets, which begin at *first_set. Returns its elements.
 */
uint64_t qp_tile_at(const struct qp_sets *sets, uint64_t elem, uint64_t end, uint64_t most_sets,
                    struct qp_tile *tile, uint64_t *first_set);

/*
 * The sets that a flat range touches, as they lie behind each other: n from set on, then `more`
 * from the start of the same band, where the range goes on into its next row.
 */
struct qp_set_window {
    uint64_t set, n;
    uint64_t more_set, more;
};

void qp_window_of(const struct qp_sets *sets, uint64_t elem, uint64_t n,
                  struct qp_set_window *window);

/* The place of a set in the window. */
uint64_t qp_window_place(const struct qp_set_window *window, uint64_t set);

/* Room for the sets of one block, wherever it is: its own, and what whole bands at its ends add. */
#define QP_BLOCK_SETS ((size_t)3 * QP_BLOCK)

/*
 * The longest part of a flat range, in whole blocks but for its end, with a window of at most
 * most_sets, which is at least QP_BLOCK_SETS. Returns its elements.
 */
uint64_t qp_window_fit(const struct qp_sets *sets, uint64_t elem, uint64_t n, uint64_t most_sets,
                       struct qp_set_window *window);

/* Whether sets follow each other in flat order, without regard to rows. */
bool qp_sets_are_flat(const struct qp_sets *sets);

/* The band of a row of the matrix. */
uint64_t qp_band_of(const struct qp_sets *sets, uint64_t row);

#endif
