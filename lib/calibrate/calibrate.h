/*
 * calibrate.h - the methods that choose the parameters of a set, as rows of a table.
 *
 * A calibrator looks at the values of all sets of a strip, once or in several passes, and keeps
 * what it has seen in a state: a block of memory for so many sets, zeroed before the first pass.
 * Values come in tiles; the states of tiles are merged in the order of the tiles, so that sums have
 * one order for any number of threads. Behind the last pass it gives the parameters. What verify
 * may prove of the codes follows from the row, not from the tool.
 */
#ifndef QP_CALIBRATE_H
#define QP_CALIBRATE_H

#include "kernels/kernel.h"

/* The tensor at hand. */
struct qp_calibration {
    const struct qp_source_kernels *kernels;
    const struct qp_quantizer *quantizer;
    const struct qp_code_rule *rule;
};

struct qp_calibrator {
    const char *name;
    bool can_clip;      /* may leave values outside the range of the codes */
    bool nearest;       /* every code is the nearest one for its parameters */
    bool from_source;   /* parameters follow from the source alone: a proof computes them again */
    bool finds_ranges;  /* its state is the range of each set, which devices can find too */
    unsigned passes;    /* over all values of a set, before its parameters are known */
    size_t state_bytes; /* of a set */

    /* Adds the values of a tile to the state of its sets; returns how many are not finite. */
    uint64_t (*see)(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state);

    /* Adds the state of the n sets of a tile to those from `first` on, of n_all. */
    void (*merge)(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n);

    /*
     * Ends a pass. Behind the last one scale and zero point of all n sets are set, and the result
     * is n, or the first set whose scale does not fit its type; behind others it is n.
     */
    size_t (*finish)(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero);
};

/* The i-th calibrator, or NULL behind the last; the one of this name, or NULL. */
const struct qp_calibrator *qp_calibrator_at(size_t i);
const struct qp_calibrator *qp_calibrator_find(const char *name);

/* Bytes of the state of a set that any calibrator needs at the most. */
#define QP_MOST_STATE_BYTES (2 * sizeof(double))

extern const struct qp_calibrator qp_calibrate_minmax;

#endif
