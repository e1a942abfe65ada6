/*
 * split.h - cutting a tensor into pieces that fit a tile, whatever its shape and granularity.
 *
 * A strip is a range of bands, or of columns of one band, that holds whole parameter sets. If it
 * fits a tile, it is done in one piece and one read. If not (per tensor, channels along another
 * axis, giant rows), it is read twice in pieces: once for the ranges, once for the codes. So no
 * tensor, row or set is too large for any tile.
 */
#ifndef QP_SPLIT_H
#define QP_SPLIT_H

#include "../kernels/kernel.h"
#include "base/scheme.h"

/* The rule that a scheme makes codes by. */
struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme);

/* What a tile holds. */
struct qp_limits {
    uint64_t elems, sets;
    uint64_t apart;  /* elements, where they are some columns of a band: its rows lie apart */
    uint64_t cached; /* elements at which a piece should stop: more leave the cache */
};

struct qp_strip {
    uint64_t band, n_bands;          /* n_bands > 1 only with all columns */
    uint64_t row, n_rows;            /* rows of the matrix */
    uint64_t col, n_cols;            /* columns of the matrix */
    uint64_t set, n_sets;            /* consecutive */
    uint64_t piece_rows, piece_cols; /* of a full piece; the whole strip where it fits */
    uint64_t n_pieces;
};

/* A rectangle of the matrix inside a strip. */
struct qp_piece {
    uint64_t row, n_rows, col, n_cols;
    struct qp_tile tile; /* its geometry, for the kernels */
    uint64_t first_set;  /* of the strip: where the tile's first set is */
};

/*
 * The strip that begins at (band, col); packed says that codes are 4-bit, so cuts must fall between
 * bytes. The next one begins at (strip.band + n_bands, 0) or, inside a band, at strip.col + n_cols.
 */
void qp_strip_at(const struct qp_sets *sets, const struct qp_limits *limits, size_t elem_bytes,
                 bool packed, uint64_t band, uint64_t col, struct qp_strip *strip);

/* Moves (band, col) behind a strip; false when the tensor is at its end. */
bool qp_strip_next(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t *band,
                   uint64_t *col);

/* The i-th piece of a strip. */
void qp_piece_at(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t i,
                 struct qp_piece *piece);

/* The first row of a band, and how many it has. */
uint64_t qp_band_row(const struct qp_sets *sets, uint64_t band);
uint64_t qp_band_rows(const struct qp_sets *sets, uint64_t band);

/* The byte of the code of a flat element; a cut must be on a byte. */
uint64_t qp_code_offset(const struct qp_sets *sets, bool packed, uint64_t elem);

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
