/*
 * trials_avx2.c - the loops of trials for AVX2.
 */
#include "trials.h"

#if defined(__AVX2__)

#define ISA    QPLAN_ISA_AVX2
#define SUMS   trial_sums
#define TRIALS qp_avx2_trials
#include "trials.inc.h"

#else /* another architecture */

const struct qp_trial_kernels qp_avx2_trials = {.isa = QPLAN_ISA_AVX2};

#endif
