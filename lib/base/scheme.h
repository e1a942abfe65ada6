/*
 * scheme.h - what a scheme means for a shape: the geometry of parameter sets.
 *
 * All granularities are one picture. The tensor is a matrix of n_bands bands; a band has band_rows
 * rows of row_len elements; col_width neighbouring columns of a band are one parameter set:
 *
 *     granularity        bands                band_rows     row_len        col_width
 *     per tensor         1                    1             all elements   all elements
 *     per channel k      1                    outer         C * inner      inner
 *     per group g        rows                 1             last extent    g
 *     per block RxC      leading * row bands  R             last extent    C
 *
 * Set number = band * n_cols + column / col_width, which is also its place in the scale tensor.
 * Row r is in band (r / period_rows) * period_bands + r % period_rows / band_rows: a period is the
 * rows of one leading index per block, else one band. Its last band may have fewer rows, the last
 * set of a row fewer columns. A group or block larger than the tensor is cut to it, so band_rows *
 * row_len never exceeds n_elems.
 */
#ifndef QP_BASE_SCHEME_H
#define QP_BASE_SCHEME_H

#include "error.h"

struct qp_sets {
    uint64_t n_elems;
    uint64_t n_bands, band_rows;
    uint64_t period_rows;  /* rows after which a band always begins anew */
    uint64_t period_bands; /* bands in a period */
    uint64_t row_len, col_width;
    uint64_t n_cols; /* sets side by side in a band */
    uint64_t n_sets;
    uint64_t last_len; /* last extent of the tensor: what 4-bit codes are padded to */
};

/*
 * The sets of a tensor that has elements and rank >= 1; scheme->axis must be resolved and inside
 * the rank, a block needs rank >= 2.
 */
void qp_sets_make(struct qp_sets *sets, const struct qplan_scheme *scheme, const uint64_t *shape,
                  unsigned rank);

/* The shape of the scales of the same tensor, of at most QPLAN_MAX_RANK extents. Returns the rank.
 */
unsigned qp_scale_shape(const struct qplan_scheme *scheme, const uint64_t *shape, unsigned rank,
                        uint64_t *out);

/* Codes: the lowest and the highest, narrow range considered. */
void qp_scheme_range(const struct qplan_scheme *scheme, int32_t *q_min, int32_t *q_max);

/*
 * The same scheme with a negative axis counted from the end; false if a tensor of that rank lacks
 * the axis, or the axes that a group or block runs over.
 */
bool qp_scheme_resolve(const struct qplan_scheme *scheme, unsigned rank,
                       struct qplan_scheme *resolved);

bool qp_scheme_equal(const struct qplan_scheme *a, const struct qplan_scheme *b);

#endif
