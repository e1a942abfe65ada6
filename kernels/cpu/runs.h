/*
 * runs.h - walking a tile run by run: a run is the part of one row that belongs to one set.
 */
#ifndef QP_RUNS_H
#define QP_RUNS_H

#include "../kernel.h"

struct qp_run {
    size_t at, n; /* first element in the tile, elements */
    size_t set;   /* of the tile */
    size_t row, col;
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
    struct qp_run run = {0};
    if (tile->cols == 0)
        run.row = tile->rows;
    else
        qp_run_measure(&run, tile);
    return run;
}

static inline void qp_run_next(struct qp_run *run, const struct qp_tile *tile)
{
    run->col += run->n;
    run->set++;
    if (run->col == tile->cols) {
        run->col = 0;
        run->row++;
        run->set = run->row / tile->band_rows * qp_tile_cols(tile);
    }
    qp_run_measure(run, tile);
}

#define FOR_EACH_RUN(tile, run)                                                                    \
    for (struct qp_run run = qp_run_first(tile); (run).row < (tile)->rows;                         \
         qp_run_next(&(run), tile))

#endif
