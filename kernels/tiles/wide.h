/*
 * wide.h - sums over blocks that are right for every finite value. Squares of f64 values overflow
 * and vanish; and the sum of x y, which squares give as (x^2 + y^2 - e^2) / 2, is lost where x and
 * y are of very different size. What plain sums cannot tell is summed again, one by one: rare.
 */
#ifndef QP_WIDE_H
#define QP_WIDE_H

#include "kernels/kernel.h"
#include "lib/base/scaled.h"

/* Sums of squares that differ by up to this power of two keep the bits of the sum of products. */
#define QP_WIDE_PROPORTION 10

/* Sums as in struct qp_sums, and that of x y. */
struct qp_wide_sums {
    struct qp_scaled e2, x2, y2, xy;
};

/* Takes the sums of a block; false if they must be made by qp_wide_sums. */
bool qp_wide_take(struct qp_wide_sums *result, enum qplan_dtype dtype, const struct qp_sums *sums);

/*
 * The sums of at most QP_BLOCK elements of a source and their decoded values, in the fixed order:
 * what plain sums would be if a double had any exponent.
 */
void qp_wide_sums(struct qp_wide_sums *result, const struct qp_source_kernels *kernels,
                  const void *src, const void *y, size_t n);

/* What a squared error in each column of a matrix counts. */
struct qp_column_weights {
    const float *of; /* NULL = 1 in all */
    uint64_t n;      /* columns */
    uint64_t first;  /* the column of the first element */
};

struct qp_weighted_sums {
    struct qp_scaled e2, x2;
};

/* Sums of weighted squares of at most QP_BLOCK elements, likewise. */
void qp_wide_weighted(struct qp_weighted_sums *result, const struct qp_source_kernels *kernels,
                      const void *src, const void *y, size_t n, struct qp_column_weights weights);

static inline void qp_weighted_add(struct qp_weighted_sums *total, struct qp_weighted_sums sums)
{
    total->e2 = qp_scaled_sum(total->e2, sums.e2);
    total->x2 = qp_scaled_sum(total->x2, sums.x2);
}

static inline void qp_wide_add(struct qp_wide_sums *total, const struct qp_wide_sums *sums)
{
    total->e2 = qp_scaled_sum(total->e2, sums->e2);
    total->x2 = qp_scaled_sum(total->x2, sums->x2);
    total->y2 = qp_scaled_sum(total->y2, sums->y2);
    total->xy = qp_scaled_sum(total->xy, sums->xy);
}

#endif
