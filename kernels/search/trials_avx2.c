/*
 * trials_avx2.c - the loops of trials for AVX2.
 */
#include "trials.h"

#if defined(__AVX2__)

#include <immintrin.h>

#define ISA         QPLAN_ISA_AVX2
#define TRIALS      qp_avx2_trials
#define VECTOR_SUMS vector_sums
#define FLOATS      __m256
#define INTEGERS    __m256i
#define V(op)       _mm256_##op

static inline void load_values(const float *x, __m256 v[2])
{
    for (int k = 0; k < 2; k++) {
        const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(x + 4 * k));
        v[k] = _mm256_insertf128_ps(low, _mm_loadu_ps(x + 8 + 4 * k), 1);
    }
}

static inline __m256i load_fixed(const int16_t *fixed)
{
    return _mm256_loadu_si256((const __m256i *)fixed);
}

static inline __m256i folded(__m256i v)
{
    return v;
}

#include "trials.inc.h"

#else /* another architecture */

const struct qp_trial_kernels qp_avx2_trials = {.isa = QPLAN_ISA_AVX2};

#endif
