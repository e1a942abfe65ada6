/*
 * ldlq.c - parameters of codes that are rounded by a Hessian. They are the best ones for the
 * original values, with errors weighted by the diagonal of the Hessian, and stay as they are;
 * codes are made by lib/run/ldlq_rows.c when all parameters of a tensor are stored.
 */
#include "mse.h"

/* The search that finds parameters. */
static const struct qp_calibrator *search(void)
{
    return &qp_calibrate_mse[0];
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    return search()->see(c, pass, tile, src, state);
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    search()->merge(c, pass, state, n_all, first, of_tile, n);
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    return search()->finish(c, pass, n, state, scale, zero);
}

static size_t choose(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                     void *state, struct qp_set_params *chosen)
{
    return search()->choose(c, tile, src, state, chosen);
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
    .choose = choose,
};
