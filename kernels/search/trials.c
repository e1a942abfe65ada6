/*
 * trials.c - the loops of trials for any CPU, and which level is taken.
 */
#include "trials.h"

#define ISA    QPLAN_ISA_SCALAR
#define TRIALS qp_scalar_trials
#include "trials.inc.h"

const struct qp_trial_kernels *qp_trial_kernels(enum qplan_isa isa)
{
    static const struct qp_trial_kernels *const levels[] = {&qp_avx512_trials, &qp_avx2_trials};
    if (isa == QPLAN_ISA_BEST)
        isa = qp_isa_detect();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i]->sums && levels[i]->isa <= isa)
            return levels[i];
    }
    return &qp_scalar_trials;
}
