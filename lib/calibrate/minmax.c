/*
 * minmax.c - parameters whose codes cover the least and the largest value of a set, and 0.
 */
#include "calibrate.h"

void *qp_ranges_most(const struct qp_calibration *c, void *state, size_t n)
{
    return (char *)state + n * c->kernels->work_bytes;
}

uint64_t qp_ranges_see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                       const void *src, void *state)
{
    (void)pass;
    return c->kernels->range(tile, src, state, qp_ranges_most(c, state, qp_tile_sets(tile)));
}

void qp_ranges_merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                     size_t first, const void *of_tile, size_t n)
{
    const size_t at = first * c->kernels->work_bytes;
    (void)pass;
    c->kernels->work->merge(n, (char *)state + at, (char *)qp_ranges_most(c, state, n_all) + at,
                            of_tile, (const char *)of_tile + n * c->kernels->work_bytes);
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    (void)pass;
    return c->quantizer->params(c->rule, n, state, qp_ranges_most(c, state, n), scale, zero);
}

const struct qp_calibrator qp_calibrate_minmax = {
    .name = "minmax",
    .method = "minmax",
    .nearest = true,
    .from_source = true,
    .finds_ranges = true,
    .passes = 1,
    .state_bytes = 2 * sizeof(double),
    .see = qp_ranges_see,
    .merge = qp_ranges_merge,
    .finish = finish,
};
