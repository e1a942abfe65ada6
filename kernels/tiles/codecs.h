/*
 * codecs.h - the codecs of kernels/dtypes, how scales are stored, and the order of sums: what the
 * loops of every instruction set share.
 */
#ifndef QP_CPU_CODECS_H
#define QP_CPU_CODECS_H

#include "kernels/kernel.h"

#include "kernels/codes/biased.h"
#include "kernels/codes/linear.h"
#include "kernels/codes/valued.h"
#include "kernels/dtypes/bf16/bf16.h"
#include "kernels/dtypes/e8m0/e8m0.h"
#include "kernels/dtypes/f16/f16.h"
#include "kernels/dtypes/f32/f32.h"
#include "kernels/dtypes/f64/f64.h"
#include "kernels/dtypes/f8e4m3/f8e4m3.h"
#include "runs.h"

#include <math.h>

/* The next double above a positive one. */
static inline double next_up(double x)
{
    return qp_of_bits_f64(qp_bits_f64(x) + 1);
}

/* ---- Scales by stored dtype ------------------------------------------------------------------ */

struct scale_row {
    enum qplan_dtype dtype;
    double least, largest;
    double (*round_up)(double scale); /* the least value of the dtype >= scale, which is in range */
};

static inline double round_up_f64(double scale)
{
    return scale;
}

static inline double round_up_f32(double scale)
{
    float near = (float)scale;
    return (double)((double)near < scale ? nextafterf(near, INFINITY) : near);
}

/*
 * Of positive 16-bit floats the next one has the next bit pattern. Where such a float is normal, it
 * is the double without its last bits.
 */
#define ROUND_UP_16(name, exp_bits, man_bits, least_normal)                                        \
    static inline double round_up_##name(double scale)                                             \
    {                                                                                              \
        const uint64_t last = (UINT64_C(1) << (52 - (man_bits))) - 1;                              \
        if (scale >= (least_normal))                                                               \
            return qp_of_bits_f64((qp_bits_f64(scale) + last) & ~last);                            \
        const uint16_t near = qp_narrow_f64(scale, exp_bits, man_bits);                            \
        const bool below = (double)qp_widen_##name(near) < scale;                                  \
        return (double)qp_widen_##name((uint16_t)(near + below));                                  \
    }
ROUND_UP_16(f16, 5, 10, 0x1p-14)
ROUND_UP_16(bf16, 8, 7, 0x1p-126)

/* With any bit below its leading one, a number is above that power of two. */
static inline double round_up_e8m0(double scale)
{
    const uint64_t bits = qp_bits_f64(scale), power = bits & 0x7ff0000000000000u;
    return qp_of_bits_f64(bits == power ? power : power + 0x0010000000000000u);
}

static const struct scale_row scale_rows[] = {
    {QPLAN_F64, DBL_MIN, DBL_MAX, round_up_f64},
    {QPLAN_F32, 0x1p-126, 0x1.fffffep127, round_up_f32},
    {QPLAN_F16, 0x1p-14, 65504, round_up_f16},
    {QPLAN_BF16, 0x1p-126, 0x1.fep127, round_up_bf16},
    {QPLAN_E8M0, 0x1p-126, 0x1p127, round_up_e8m0}, /* normal in working precision */
};

/* The row of a type; NULL for f8e4m3, whose scales have a factor. */
static inline const struct scale_row *scale_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (dtype != QPLAN_F8E4M3 && scale_rows[i].dtype != dtype)
        i++;
    return dtype == QPLAN_F8E4M3 ? NULL : &scale_rows[i];
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/*
 * A limit for differences in f32 that is safely below a bound for exact ones: smaller by a factor
 * of more than 2^-23, conversions considered. Where f32 lacks the bits, or there is no bound, no
 * difference is that small.
 */
#define LIMIT_FACTOR (1 - 0x1p-21)
#define LIMIT_LEAST  0x1p-100f
#define LIMIT_MOST   0x1p120f

static inline float sure_limit(double bound)
{
    const float limit = (float)(bound * LIMIT_FACTOR);
    const bool has_bits = (limit > LIMIT_LEAST) & (limit < LIMIT_MOST);
    return has_bits ? limit : -1.0f;
}

/* In f64 the difference is the very one that is judged; only what is not finite must not pass. */
static inline double sure_limit_f64(double bound)
{
    return bound <= DBL_MAX ? bound : -1.0;
}

/*
 * The size up to which quotients surely are within the reach of the largest code. That of tables is
 * another one at either end: of theirs there is room for roundings alone.
 */
static inline double sure_end(const struct qp_code_type *type)
{
    return type->kind == QP_CODES_FLOAT ? type->largest + type->reach
                                        : type->largest * (1 + 0x1p-20);
}

#define ABS(x) _Generic((x), float : fabsf, double : fabs)(x)

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The sums of a block before the last step, and the largest error in each lane. */
struct sum_lanes {
    double e2[16], x2[16], y2[16], most[16];
};

/* The fixed tree over 16 lanes. */
static inline double tree16(const double lane[16])
{
    double half[8], quarter[4];
    for (int i = 0; i < 8; i++)
        half[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        quarter[i] = half[i] + half[i + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

#endif
