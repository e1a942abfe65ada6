/*
 * scalar.c - the scalar kernels of every dtype: the specification that all others must match.
 *
 * Two templates, one per working precision and one per source dtype, filled in with the codecs of
 * kernels/dtypes. No rounding mode is read or set here: callers run in the default environment.
 */
#include "../kernel.h"

#include "../dtypes/bf16/codec.h"
#include "../dtypes/f16/codec.h"
#include "../dtypes/f32/codec.h"
#include "../dtypes/f64/codec.h"
#include "../range.h"
#include "rows.h"
#include "runs.h"

#include <math.h>

/* ---- Codecs by dtype ------------------------------------------------------------------------- */

struct codec_row {
    enum qplan_dtype dtype;
    size_t n_bytes;
    double (*load)(const unsigned char *p);
    void (*store)(unsigned char *p, double x);
};

#define CODEC(name)                                                                                \
    static double load_##name(const unsigned char *p)                                              \
    {                                                                                              \
        return (double)qp_load_##name(p);                                                          \
    }
CODEC(f64)
CODEC(f32)
CODEC(f16)
CODEC(bf16)

static const struct codec_row codecs[] = {
    {QPLAN_F64, 8, load_f64, qp_store_f64},
    {QPLAN_F32, 4, load_f32, qp_store_f32},
    {QPLAN_F16, 2, load_f16, qp_store_f16},
    {QPLAN_BF16, 2, load_bf16, qp_store_bf16},
};

static const struct codec_row *codec_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (codecs[i].dtype != dtype)
        i++;
    return &codecs[i];
}

size_t qp_float_bytes(enum qplan_dtype dtype)
{
    return codec_row(dtype)->n_bytes;
}

/* ---- Scales by stored dtype ------------------------------------------------------------------ */

struct scale_row {
    enum qplan_dtype dtype;
    double least_normal, largest;
    double (*round_up)(double scale); /* the least value of the dtype >= scale, which is in range */
};

static double round_up_f32(double scale)
{
    float near = (float)scale;
    return (double)((double)near < scale ? nextafterf(near, INFINITY) : near);
}

/* Of positive 16-bit floats the next one has the next bit pattern. */
#define ROUND_UP_16(name, exp_bits, man_bits)                                                      \
    static double round_up_##name(double scale)                                                    \
    {                                                                                              \
        uint16_t bits = qp_narrow_f64(scale, exp_bits, man_bits);                                  \
        unsigned char p[2] = {(unsigned char)(bits & 255), (unsigned char)(bits >> 8)};            \
        if (load_##name(p) >= scale)                                                               \
            return load_##name(p);                                                                 \
        bits++;                                                                                    \
        p[0] = (unsigned char)(bits & 255);                                                        \
        p[1] = (unsigned char)(bits >> 8);                                                         \
        return load_##name(p);                                                                     \
    }
ROUND_UP_16(f16, 5, 10)
ROUND_UP_16(bf16, 8, 7)

static const struct scale_row scale_rows[] = {
    {QPLAN_F32, 0x1p-126, 0x1.fffffep127, round_up_f32},
    {QPLAN_F16, 0x1p-14, 65504, round_up_f16},
    {QPLAN_BF16, 0x1p-126, 0x1.fep127, round_up_bf16},
};

static const struct scale_row *scale_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (scale_rows[i].dtype != dtype)
        i++;
    return &scale_rows[i];
}

/* ---- Working precisions ---------------------------------------------------------------------- */

#define NAME(op)    op##_in_f32
#define WORK        float
#define WORK_MAX    FLT_MAX
#define WORK_DTYPE  QPLAN_F32
#define SCALE_OF    qp_scale_f32
#define ZERO_OF     qp_zero_f32
#define BOUND_SHIFT 21
#include "work.inc.h"

#define NAME(op)    op##_in_f64
#define WORK        double
#define WORK_MAX    DBL_MAX
#define WORK_DTYPE  QPLAN_F64
#define SCALE_OF    qp_scale_f64
#define ZERO_OF     qp_zero_f64
#define BOUND_SHIFT 50
#include "work.inc.h"

/* ---- Sources --------------------------------------------------------------------------------- */

/* The fixed tree over 16 lanes. */
static double tree16(const double lane[16])
{
    double sum[16];
    for (int i = 0; i < 16; i++)
        sum[i] = lane[i];
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++)
            sum[i] += sum[i + width];
    }
    return sum[0];
}

#define NAME(op)     op##_from_f64
#define SOURCE_DTYPE QPLAN_F64
#define ELEM_BYTES   8
#define LOAD         qp_load_f64
#define WORK         double
#define WORK_MAX     DBL_MAX
#define RNE          qp_rne_f64
#define WORK_KERNELS work_in_f64
#include "source.inc.h"

#define NAME(op)     op##_from_f32
#define SOURCE_DTYPE QPLAN_F32
#define ELEM_BYTES   4
#define LOAD         qp_load_f32
#define WORK         float
#define WORK_MAX     FLT_MAX
#define RNE          qp_rne_f32
#define WORK_KERNELS work_in_f32
#include "source.inc.h"

#define NAME(op)     op##_from_f16
#define SOURCE_DTYPE QPLAN_F16
#define ELEM_BYTES   2
#define LOAD         qp_load_f16
#define WORK         float
#define WORK_MAX     FLT_MAX
#define RNE          qp_rne_f32
#define WORK_KERNELS work_in_f32
#include "source.inc.h"

#define NAME(op)     op##_from_bf16
#define SOURCE_DTYPE QPLAN_BF16
#define ELEM_BYTES   2
#define LOAD         qp_load_bf16
#define WORK         float
#define WORK_MAX     FLT_MAX
#define RNE          qp_rne_f32
#define WORK_KERNELS work_in_f32
#include "source.inc.h"

const struct qp_source_kernels *const qp_scalar_rows[] = {
    &source_from_f64, &source_from_f32, &source_from_f16, &source_from_bf16, NULL,
};
