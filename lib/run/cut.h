/*
 * cut.h - cutting a tensor into pieces that fit a tile, whatever its shape and granularity.
 *
 * A strip is a range of bands, or of columns of one band, that holds whole parameter sets. If it
 * fits a tile, it is done in one piece and one read. If not (per tensor, channels along another
 * axis, giant rows), it is read twice in pieces: once for the ranges, once for the codes. So no
 * tensor, row or set is too large for any tile.
 */
#ifndef QP_JOB_CUT_H
#define QP_JOB_CUT_H

#include "lib/model/sets.h"

/* What a tile holds. */
struct qp_limits {
    uint64_t elems, sets;
    uint64_t pieced;   /* sets of a strip in several pieces; 0 = as many as of others */
    uint64_t apart;    /* elements, where they are some columns of a band: its rows lie apart */
    uint64_t cached;   /* elements at which a piece should stop: more leave the cache */
    uint64_t together; /* sets that are stored together: strips have a multiple of these from the
                          first one on; 0 or 1 = any */
    uint64_t tall;     /* rows of the tensor that words of a part go down: cuts between rows fall on
                          multiples of it, and so many rows fit; 0 or 1 = any */
};

struct qp_strip {
    uint64_t band, n_bands;          /* n_bands > 1 only with all columns */
    uint64_t row, n_rows;            /* rows of the matrix */
    uint64_t col, n_cols;            /* columns of the matrix */
    uint64_t set, n_sets;            /* consecutive */
    uint64_t piece_rows, piece_cols; /* of a full piece; the whole strip where it fits */
    uint64_t n_pieces;
    uint64_t grain; /* that it was cut by */
};

/*
 * The strip that begins at (band, col). Cuts inside the last axis fall on multiples of the grain:
 * so many codes fill whole words of the output. The next strip begins at (strip.band + n_bands, 0)
 * or, inside a band, at strip.col + n_cols.
 */
void qp_strip_at(const struct qp_sets *sets, const struct qp_limits *limits, size_t elem_bytes,
                 uint64_t grain, uint64_t band, uint64_t col, struct qp_strip *strip);

/* Moves (band, col) behind a strip; false when the tensor is at its end. */
bool qp_strip_next(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t *band,
                   uint64_t *col);

/* The i-th piece of a strip. */
void qp_piece_at(const struct qp_sets *sets, const struct qp_strip *strip, uint64_t i,
                 struct qp_piece *piece);

#endif
