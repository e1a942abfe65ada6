/*
 * trials_vector.inc.h - the sums of trials in vectors, four trials at a time, whose sums stay in
 * registers. Codes are brought to integers by the conversion of the CPU, which rounds half to even,
 * then packed, and only then brought to their limits: these are integers, so the order does not
 * matter.
 *
 * The including file defines FLOATS and INTEGERS, the types of vectors, V(op), the name of an
 * operation on them, and load_values, load_fixed and folded, which are said below.
 */

#define TOGETHER 4

/* Values in two vectors of floats: as many as one of 16-bit integers has. */
#define WIDTH (sizeof(INTEGERS) / sizeof(int16_t))

/*
 *   load_values  WIDTH values as two vectors, such that packing what becomes of them puts it in the
 *                order of the values: packing works on parts of 128 bits
 *   load_fixed   WIDTH of them in fixed point
 *   folded       the sums of lanes that are eight apart
 */

/* Sums of four trials, in lanes. */
struct lanes {
    INTEGERS xq[TOGETHER], qq[TOGETHER], q[TOGETHER];
};

/* The sums of the lanes of four vectors, added to n of four sums. */
static inline void add_lanes(const INTEGERS v[TOGETHER], unsigned n, int64_t *sums)
{
    const __m256i low = _mm256_hadd_epi32(folded(v[0]), folded(v[1]));
    const __m256i high = _mm256_hadd_epi32(folded(v[2]), folded(v[3]));
    const __m256i halves = _mm256_hadd_epi32(low, high);
    int32_t all[TOGETHER];
    _mm_storeu_si128((__m128i *)all, _mm_add_epi32(_mm256_castsi256_si128(halves),
                                                   _mm256_extracti128_si256(halves, 1)));
    for (unsigned k = 0; k < n; k++)
        sums[k] += all[k];
}

static inline INTEGERS round_steps(FLOATS x, const struct qp_trials *trials, unsigned k,
                                   bool shifted)
{
    const FLOATS t = V(mul_ps)(x, V(set1_ps)(trials->step[k]));
    return V(cvtps_epi32)(shifted ? V(add_ps)(t, V(set1_ps)(trials->shift[k])) : t);
}

/* shifted is a constant where these are called. */
static inline INTEGERS codes_of(const FLOATS x[2], const struct qp_trials *trials, unsigned k,
                                bool shifted)
{
    const INTEGERS q = V(packs_epi32)(round_steps(x[0], trials, k, shifted),
                                      round_steps(x[1], trials, k, shifted));
    const INTEGERS above = V(max_epi16)(q, V(set1_epi16)((int16_t)trials->least[k]));
    return V(min_epi16)(above, V(set1_epi16)((int16_t)trials->most[k]));
}

static inline void sum_four(size_t n, const float *x, const int16_t *fixed,
                            const struct qp_trials *trials, unsigned first, bool shifted,
                            struct lanes *out)
{
    const INTEGERS ones = V(set1_epi16)(1);
    struct lanes l;
    for (unsigned k = 0; k < TOGETHER; k++)
        l.xq[k] = l.qq[k] = l.q[k] = V(set1_epi16)(0);
    for (size_t i = 0; i < n; i += WIDTH) {
        const INTEGERS at = load_fixed(fixed + i);
        FLOATS v[2];
        load_values(x + i, v);
        for (unsigned k = 0; k < TOGETHER; k++) {
            const INTEGERS q = codes_of(v, trials, first + k, shifted);
            l.xq[k] = V(add_epi32)(l.xq[k], V(madd_epi16)(at, q));
            l.qq[k] = V(add_epi32)(l.qq[k], V(madd_epi16)(q, q));
            if (shifted)
                l.q[k] = V(add_epi32)(l.q[k], V(madd_epi16)(q, ones));
        }
    }
    *out = l;
}

static void vector_sums(size_t n, const float *x, const int16_t *fixed,
                        const struct qp_trials *trials, struct qp_trial_sums *sums)
{
    const size_t whole = n / WIDTH * WIDTH;
    struct lanes l;
    for (unsigned k = 0; k < trials->n; k += TOGETHER) {
        const unsigned n_sums = trials->n - k < TOGETHER ? trials->n - k : TOGETHER;
        if (trials->shifted)
            sum_four(whole, x, fixed, trials, k, true, &l);
        else
            sum_four(whole, x, fixed, trials, k, false, &l);
        add_lanes(l.xq, n_sums, sums->xq + k);
        add_lanes(l.qq, n_sums, sums->qq + k);
        if (trials->shifted)
            add_lanes(l.q, n_sums, sums->q + k);
    }
    if (trials->shifted)
        sums->x += sum_values(whole, fixed);
    if (n > whole)
        trial_sums(n - whole, x + whole, fixed + whole, trials, sums);
}

#undef TOGETHER
#undef WIDTH
