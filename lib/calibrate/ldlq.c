/*
 * ldlq.c - parameters of codes that are rounded by a Hessian. They are the best ones for the
 * original values, with errors weighted by the diagonal of the Hessian, and stay as they are;
 * codes are made by lib/run/ldlq_rows.c when all parameters of a tensor are stored. Of codes that
 * are floats or tables the parameters are minmax's.
 */
#include "mse.h"

/* The search that finds parameters of integers. */
static const struct qp_calibrator *search(void)
{
    return &qp_calibrate_mse[0];
}

static bool has_search(const struct qp_calibration *c)
{
    return !qp_is_valued(c->rule->kind);
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    if (has_search(c))
        return search()->see(c, pass, tile, src, state);
    return pass == 0 ? qp_ranges_see(c, pass, tile, src, state) : 0;
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    if (has_search(c))
        search()->merge(c, pass, state, n_all, first, of_tile, n);
    else if (pass == 0)
        qp_ranges_merge(c, pass, state, n_all, first, of_tile, n);
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    if (has_search(c))
        return search()->finish(c, pass, n, state, scale, zero);
    return pass == 0 ? qp_calibrate_minmax.finish(c, pass, n, state, scale, zero) : n;
}

const struct qp_calibrator qp_calibrate_ldlq = {
    .name = "ldlq",
    .method = "ldlq",
    .can_clip = true,
    .either_sign = true,
    .weighted = true,
    .rounds = true,
    .level = QP_MSE_FAST,
    .passes = QP_MSE_FAST_PASSES,
    .state_bytes = sizeof(struct qp_mse_state),
    .known_bytes = sizeof(struct qp_mse_known),
    .see = see,
    .merge = merge,
    .finish = finish,
};
