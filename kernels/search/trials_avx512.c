/*
 * trials_avx512.c - the loops of trials for AVX-512.
 */
#include "trials.h"

#if defined(__AVX512BW__)

#define ISA    QPLAN_ISA_AVX512
#define SUMS   trial_sums
#define TRIALS qp_avx512_trials
#include "trials.inc.h"

#else /* another architecture */

const struct qp_trial_kernels qp_avx512_trials = {.isa = QPLAN_ISA_AVX512};

#endif
