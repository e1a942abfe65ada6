/*
 * codecs.h - the codecs of kernels/dtypes by dtype, how scales are stored, and the order of sums:
 * what the loops of every instruction set share.
 */
#ifndef QP_CPU_CODECS_H
#define QP_CPU_CODECS_H

#include "../kernel.h"

#include "../dtypes/bf16/codec.h"
#include "../dtypes/f16/codec.h"
#include "../dtypes/f32/codec.h"
#include "../dtypes/f64/codec.h"
#include "../range.h"
#include "runs.h"

#include <math.h>
#include <string.h>

/* The next double above a positive one. */
static inline double next_up(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits++;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- Codecs by dtype ------------------------------------------------------------------------- */

struct codec_row {
    enum qplan_dtype dtype;
    size_t n_bytes;
    double (*load)(const unsigned char *p);
    void (*store)(unsigned char *p, double x);
};

#define CODEC(name)                                                                                \
    static inline double load_##name(const unsigned char *p)                                       \
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

static inline const struct codec_row *codec_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (codecs[i].dtype != dtype)
        i++;
    return &codecs[i];
}

/* ---- Scales by stored dtype ------------------------------------------------------------------ */

struct scale_row {
    enum qplan_dtype dtype;
    double least_normal, largest;
    double (*round_up)(double scale); /* the least value of the dtype >= scale, which is in range */
};

static inline double round_up_f32(double scale)
{
    float near = (float)scale;
    return (double)((double)near < scale ? nextafterf(near, INFINITY) : near);
}

/* Of positive 16-bit floats the next one has the next bit pattern. */
#define ROUND_UP_16(name, exp_bits, man_bits)                                                      \
    static inline double round_up_##name(double scale)                                             \
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

static inline const struct scale_row *scale_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (scale_rows[i].dtype != dtype)
        i++;
    return &scale_rows[i];
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The fixed tree over 16 lanes. */
static inline double tree16(const double lane[16])
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

#endif
