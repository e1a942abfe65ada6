/*
 * tile_values.h - the values of a tile in working precision, some at a time, with the sets that
 * they belong to.
 */
#ifndef QP_CALIBRATE_TILE_VALUES_H
#define QP_CALIBRATE_TILE_VALUES_H

#include "calibrate.h"
#include "kernels/tiles/runs.h"

/* Values at a time: they stay in the first-level cache. */
#define QP_VALUES_RUN 2048

/* Neighbouring values, in runs of one set each; those that are not finite are 0. */
struct qp_values_run {
    struct qp_tile tile;  /* one row of n columns */
    size_t set;           /* of the first of them; others follow */
    const void *values;   /* in working precision */
    const float *weights; /* of each, or NULL */
};

/* Whether the values of a set are gathered from several rows. */
bool qp_values_are_gathered(const struct qp_tile *tile);

/*
 * Goes over a tile. Sets of few columns and many rows come one after the other, with their values
 * gathered; others row by row.
 */
void qp_values_walk(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                    void (*take)(void *ctx, const struct qp_values_run *run), void *ctx);

/*
 * Goes over the elements that a tile has of a set, as they are stored: row by row, or gathered from
 * its rows where these are short.
 */
void qp_elems_walk(const struct qp_tile *tile, const struct qp_tile_set *set, const void *src,
                   size_t elem_bytes, void (*take)(void *ctx, const void *elems, size_t n),
                   void *ctx);

#endif
