/*
 * compare.h - one unit of a file against its source: the errors of quantized elements, the bytes of
 * kept ones. Units are independent of each other; measure.c adds up what they found.
 */
#ifndef QP_COMPARE_H
#define QP_COMPARE_H

#include "lib/calibrate/calibrate.h"
#include "lib/run/decode_device.h"
#include "lib/run/source_values.h"
#include "measure.h"

/* What all units share. */
struct qp_compare {
    const struct qp_source *file, *source;
    struct qplan_device *device; /* NULL = the CPU */
    enum qplan_isa isa;
    bool recompute;      /* parameters, in passing */
    bool decodes;        /* tensors of the source */
    bool holds;          /* some tensor of the file has turned codes */
    size_t piece_elems;  /* of a quantized unit that are done at a time */
    size_t window_sets;  /* room of the window */
    size_t source_bytes; /* room for elements of the source */
};

/* What a worker does at a time: elements of a quantized tensor, bytes of a kept one. */
struct qp_compare_unit {
    uint64_t number;
    struct qp_pair *pair;
    uint64_t elem, n;
    double largest; /* error of the pair that is known already */
};

/* What is known of QP_BLOCK elements, or of what is left of a tensor. */
struct qp_block {
    struct qp_wide_sums sums;
    struct qp_weighted_sums weighted; /* 0 where nothing is known of columns */
    double max_abs; /* the largest error, or what the kernel's wish said if none is above it */
    size_t max_at;
};

struct qp_compare_buffers {
    void *source; /* room for elements of the source, or bytes of a kept tensor in both files */
    void *block;  /* decoded values in working precision */
    void *codes;  /* room for those of a piece */
    void *hold;   /* turned parts of a unit */
    struct qp_param_window window;
    void *state, *scale; /* parameters computed again, for as many sets as the window has; behind
                          * that steps */
    int32_t *zero;
    double *bound;
    struct qp_block *blocks;
    struct qp_value_room values; /* where the source is decoded while it is read */
    struct qp_flat_buffers
        flat; /* in the place of what is between source and blocks, on a device */
};

/* What a unit found; .blocks of the buffers belongs to it. */
struct qp_finding {
    struct qp_measure part; /* counts and the first offender */
    size_t n_blocks;
};

enum qplan_status qp_compare_do(const struct qp_compare *c, const struct qp_compare_unit *unit,
                                const struct qp_compare_buffers *b, struct qp_finding *found,
                                struct qplan_error *err);

#endif
