/*
 * trials_avx512.c - the loops of trials for AVX-512.
 */
#include "trials.h"

#if defined(__AVX512BW__)

#include <immintrin.h>

#define ISA         QPLAN_ISA_AVX512
#define TRIALS      qp_avx512_trials
#define VECTOR_SUMS vector_sums
#define FLOATS      __m512
#define INTEGERS    __m512i
#define V(op)       _mm512_##op

static inline void load_values(const float *x, __m512 v[2])
{
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    const __m512i even =
        _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(4));
    v[0] = _mm512_permutex2var_ps(low, even, high);
    v[1] = _mm512_permutex2var_ps(low, odd, high);
}

static inline __m512i load_fixed(const int16_t *fixed)
{
    return _mm512_loadu_si512(fixed);
}

static inline __m256i folded(__m512i v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

#include "trials.inc.h"

#else /* another architecture */

const struct qp_trial_kernels qp_avx512_trials = {.isa = QPLAN_ISA_AVX512};

#endif
