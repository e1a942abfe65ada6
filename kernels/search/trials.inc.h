/*
 * trials.inc.h - the loops of trials, once for every level: they are plain C in a shape that
 * compilers make vectors of. The including file defines ISA and TRIALS, the name of the row; where
 * it defines VECTOR_SUMS, too, what trials_vector.inc.h wants.
 */

#include "kernels/dtypes/bits.h"

/* Adding it leaves a float rounded to an integer, half to even, in its lower bits. */
#define SHIFT_F32 0x1.8p23f

/* x in fixed point. */
static inline int16_t fix_value(float x)
{
    const float scaled = x * (1 << QP_TRIAL_BITS);
    const float above = scaled > -32767 ? scaled : -32767;
    const float within = above < 32767 ? above : 32767;
    return (int16_t)qp_bits_f32(within + SHIFT_F32);
}

static void relate_f32(size_t n, const float *values, double unit, float *x, int16_t *fixed)
{
    const float narrow = (float)unit;
    for (size_t i = 0; i < n; i++) {
        x[i] = values[i] * narrow;
        fixed[i] = fix_value(x[i]);
    }
}

static void relate_f64(size_t n, const double *values, double unit, float *x, int16_t *fixed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(values[i] * unit);
        fixed[i] = fix_value(x[i]);
    }
}

/* The codes of trial k. */
static void make_codes(size_t n, const float *x, const struct qp_trials *trials, unsigned k,
                       int16_t codes[QP_TRIAL_RUN])
{
    const float step = trials->step[k], shift = trials->shift[k];
    const float least = trials->least[k], most = trials->most[k];
    for (size_t i = 0; i < n; i++) {
        const float t = x[i] * step + shift;
        const float above = t > least ? t : least;
        const float within = above < most ? above : most;
        codes[i] = (int16_t)qp_bits_f32(within + SHIFT_F32);
    }
}

static int32_t sum_products(size_t n, const int16_t *a, const int16_t *b)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int32_t sum_values(size_t n, const int16_t *a)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

static void trial_sums(size_t n, const float *x, const int16_t *fixed,
                       const struct qp_trials *trials, struct qp_trial_sums *sums)
{
    int16_t codes[QP_TRIAL_RUN];
    for (unsigned k = 0; k < trials->n; k++) {
        make_codes(n, x, trials, k, codes);
        sums->xq[k] += sum_products(n, fixed, codes);
        sums->qq[k] += sum_products(n, codes, codes);
        if (trials->shifted)
            sums->q[k] += sum_values(n, codes);
    }
    if (trials->shifted)
        sums->x += sum_values(n, fixed);
}

#if defined(VECTOR_SUMS)
#include "trials_vector.inc.h"
#else
#define VECTOR_SUMS trial_sums
#endif

/* Adding it to a double rounds it to units of 2^-bits, and the lower bits count them. */
static inline double shift_of(int bits)
{
    return 1.5 * qp_of_bits_f64((uint64_t)(1023 + 52 - bits) << 52);
}

static void trial_weighted_sums(size_t n, const float *x, const float *weights,
                                const struct qp_trials *trials, struct qp_trial_bits bits,
                                struct qp_trial_sums *sums)
{
    const double x_shift = shift_of(bits.x), q_shift = shift_of(bits.q);
    const uint64_t no_x = qp_bits_f64(x_shift), no_q = qp_bits_f64(q_shift);
    int16_t codes[QP_TRIAL_RUN];
    for (unsigned k = 0; k < trials->n; k++) {
        uint64_t xq = 0, qq = 0, sum_q = 0;
        make_codes(n, x, trials, k, codes);
        for (size_t i = 0; i < n; i++) {
            const double q = codes[i], wq = (double)weights[i] * q;
            xq += qp_bits_f64(wq * (double)x[i] + x_shift) - no_x;
            qq += qp_bits_f64(wq * q + q_shift) - no_q;
            sum_q += qp_bits_f64(wq + q_shift) - no_q;
        }
        sums->xq[k] += (int64_t)xq;
        sums->qq[k] += (int64_t)qq;
        sums->q[k] += (int64_t)sum_q;
    }
    uint64_t sum_x = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum_x += qp_bits_f64((double)weights[i] * (double)x[i] + x_shift) - no_x;
        sum += qp_bits_f64((double)weights[i] + q_shift) - no_q;
    }
    sums->x += (int64_t)sum_x;
    sums->weight += (int64_t)sum;
}

#define DEFINE_ERRORS(SUFFIX, T)                                                                   \
    static int64_t trial_errors_##SUFFIX(size_t n, const T *x, const T *y, const float *weights,   \
                                         double unit, int bits)                                    \
    {                                                                                              \
        const double shift = shift_of(bits);                                                       \
        const uint64_t none = qp_bits_f64(shift);                                                  \
        uint64_t sum = 0;                                                                          \
        for (size_t i = 0; weights && i < n; i++) {                                                \
            const double error = ((double)x[i] - (double)y[i]) * unit;                             \
            sum += qp_bits_f64(error * error * (double)weights[i] + shift) - none;                 \
        }                                                                                          \
        for (size_t i = 0; !weights && i < n; i++) {                                               \
            const double error = ((double)x[i] - (double)y[i]) * unit;                             \
            sum += qp_bits_f64(error * error + shift) - none;                                      \
        }                                                                                          \
        return (int64_t)sum;                                                                       \
    }

DEFINE_ERRORS(f32, float)
DEFINE_ERRORS(f64, double)

#undef DEFINE_ERRORS
#undef SHIFT_F32

const struct qp_trial_kernels TRIALS = {
    ISA,
    relate_f32,
    relate_f64,
    VECTOR_SUMS,
    trial_weighted_sums,
    trial_errors_f32,
    trial_errors_f64,
};
