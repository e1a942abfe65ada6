/*
 * runs.h - walking a tile run by run: a run is the part of one row that belongs to one set. Where
 * every column is a set of its own, runs would be single elements: such a tile is walked by bands.
 */
#ifndef QP_RUNS_H
#define QP_RUNS_H

#include "kernels/kernel.h"

struct qp_run {
    size_t at, n; /* first element in the tile, elements */
    size_t set;   /* of the tile */
    size_t row, col;
    size_t band_set, band_left; /* first set of the band; its rows from this one on */
};

/* The run that begins at (run->row, run->col) with set number known. */
static inline void qp_run_measure(struct qp_run *run, const struct qp_tile *tile)
{
    size_t skip = run->col == 0 ? tile->col_skip : 0;
    size_t left = tile->cols - run->col;
    run->at = run->row * tile->cols + run->col;
    run->n = tile->col_width - skip < left ? tile->col_width - skip : left;
}

static inline struct qp_run qp_run_first(const struct qp_tile *tile)
{
    struct qp_run run = {.band_left = tile->band_rows};
    if (tile->cols == 0)
        run.row = tile->rows;
    else
        qp_run_measure(&run, tile);
    return run;
}

/* Rows may be short, so that a division for each would be felt. */
static inline void qp_run_next(struct qp_run *run, const struct qp_tile *tile)
{
    run->col += run->n;
    run->set++;
    if (run->col == tile->cols) {
        run->col = 0;
        run->row++;
        if (--run->band_left == 0) {
            run->band_left = tile->band_rows;
            run->band_set = run->set;
        }
        run->set = run->band_set;
    }
    qp_run_measure(run, tile);
}

#define FOR_EACH_RUN(tile, run)                                                                    \
    for (struct qp_run run = qp_run_first(tile); (run).row < (tile)->rows;                         \
         qp_run_next(&(run), tile))

/* The length of all runs, where they have one and each is a set: the k-th run is set k; else 0. */
static inline size_t qp_even_runs(const struct qp_tile *tile)
{
    const size_t width = tile->col_width < tile->cols ? tile->col_width : tile->cols;
    return tile->band_rows == 1 && tile->col_skip == 0 && width && tile->cols % width == 0 ? width
                                                                                           : 0;
}

struct qp_band {
    size_t row, n_rows;
    size_t set; /* of its first column */
};

static inline struct qp_band qp_band_at(const struct qp_tile *tile, size_t row, size_t set)
{
    size_t left = tile->rows - row;
    return (struct qp_band){row, left < tile->band_rows ? left : tile->band_rows, set};
}

#define FOR_EACH_BAND(tile, band)                                                                  \
    for (struct qp_band band = qp_band_at(tile, 0, 0); (band).row < (tile)->rows;                  \
         (band) = qp_band_at(tile, (band).row + (band).n_rows, (band).set + qp_tile_cols(tile)))

/* A set of a tile, or what the tile has of it: some columns of the rows of a band. */
struct qp_tile_set {
    size_t row, n_rows, col, n_cols;
    size_t set, band_set; /* its number, and that of the first set of the band */
};

static inline struct qp_tile_set qp_tile_set_at(const struct qp_tile *tile, size_t row, size_t set)
{
    const size_t room = tile->col_width - tile->col_skip;
    return (struct qp_tile_set){
        row, qp_band_at(tile, row, set).n_rows, 0, tile->cols < room ? tile->cols : room, set, set};
}

static inline void qp_tile_set_next(struct qp_tile_set *at, const struct qp_tile *tile)
{
    const size_t col = at->col + at->n_cols, left = tile->cols - col;
    if (left == 0) {
        *at = qp_tile_set_at(tile, at->row + at->n_rows, at->band_set + qp_tile_cols(tile));
        return;
    }
    at->col = col;
    at->n_cols = left < tile->col_width ? left : tile->col_width;
    at->set++;
}

#define FOR_EACH_SET(tile, at)                                                                     \
    for (struct qp_tile_set at = qp_tile_set_at(tile, 0, 0);                                       \
         (tile)->cols && (at).row < (tile)->rows; qp_tile_set_next(&(at), tile))

/* Elements, or columns, that a loop without branches looks at before anything is decided. */
#define TOGETHER 256

/* Where the next of them begin, if these begin at i and all end at `end`. */
static inline size_t after_together(size_t i, size_t end)
{
    return end - i < TOGETHER ? end : i + TOGETHER;
}

#endif
