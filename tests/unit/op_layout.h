/*
 * op_layout.h - for tests of the quantize family: random shapes at every granularity, the set of an
 * element by the words of the contract, data of all kinds, and elements of every float dtype.
 */
#ifndef TESTS_OP_LAYOUT_H
#define TESTS_OP_LAYOUT_H

#include "op_support.h"

#include "kernels/dtypes/bf16/bf16.h"
#include "kernels/dtypes/f16/f16.h"
#include "kernels/kernel.h"

#include <float.h>

enum { TENSOR, CHANNEL, GROUP, TOKEN, BLOCK, GRANULARITIES };
static const char *const suffixes[] = {"per_tensor", "per_channel", "per_group", "per_token",
                                       "per_block"};

/* Data of three axes, and how its elements fall into sets. */
struct layout {
    int granularity;
    int64_t shape[3], axis, group, rows, cols;
    int64_t sets[3]; /* shape of the parameters */
    unsigned set_rank;
    size_t n, n_sets;
};

/* Elements at most: more than the units of several workers have. */
#define MOST_ROW 500
#define MOST     (9 * 9 * MOST_ROW)

static inline int64_t up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline struct layout random_layout(uint64_t *seed, int granularity)
{
    struct layout l = {.granularity = granularity, .set_rank = 1, .sets = {1, 1, 1}};
    const uint64_t row = random_below(seed, 8) ? 90 : MOST_ROW;
    for (int i = 0; i < 3; i++)
        l.shape[i] = 1 + (int64_t)random_below(seed, i == 2 ? row : 9);
    l.axis = (int64_t)random_below(seed, 3);
    l.group = 1 + (int64_t)random_below(seed, 12);
    l.rows = 1 + (int64_t)random_below(seed, 4);
    l.cols = 1 + (int64_t)random_below(seed, 20);
    if (granularity == CHANNEL)
        l.sets[0] = l.shape[l.axis];
    if (granularity == GROUP || granularity == BLOCK || granularity == TOKEN) {
        l.set_rank = granularity == TOKEN ? 2 : 3;
        memcpy(l.sets, l.shape, l.set_rank * sizeof l.sets[0]);
    }
    if (granularity == GROUP)
        l.sets[l.axis] = up(l.shape[l.axis], l.group);
    if (granularity == BLOCK) {
        l.sets[1] = up(l.shape[1], l.rows);
        l.sets[2] = up(l.shape[2], l.cols);
    }
    l.n = (size_t)(l.shape[0] * l.shape[1] * l.shape[2]);
    l.n_sets = (size_t)(l.sets[0] * l.sets[1] * l.sets[2]);
    return l;
}

/* The set of a flat element, by the words of the contract. */
static inline size_t set_of(const struct layout *l, size_t elem)
{
    const int64_t e = (int64_t)elem;
    const int64_t at[3] = {e / (l->shape[1] * l->shape[2]), e / l->shape[2] % l->shape[1],
                           e % l->shape[2]};
    int64_t p[3] = {at[0], at[1], at[2]};
    switch (l->granularity) {
    case TENSOR:
        return 0;
    case CHANNEL:
        return (size_t)at[l->axis];
    case TOKEN:
        return (size_t)(at[0] * l->shape[1] + at[1]);
    case GROUP:
        p[l->axis] /= l->group;
        break;
    default:
        p[1] /= l->rows;
        p[2] /= l->cols;
        break;
    }
    return (size_t)((p[0] * l->sets[1] + p[1]) * l->sets[2] + p[2]);
}

static inline struct problem make(const char *verb, const struct layout *l, char name[64])
{
    (void)snprintf(name, 64, "%s_%s", verb, suffixes[l->granularity]);
    struct problem p = problem(name);
    if (l->granularity == CHANNEL || l->granularity == GROUP)
        set_number(&p, "axis", l->axis - 3);
    if (l->granularity == GROUP)
        set_number(&p, "group_size", l->group);
    if (l->granularity == BLOCK) {
        set_number(&p, "block_rows", l->rows);
        set_number(&p, "block_cols", l->cols);
    }
    if (l->granularity == GROUP || l->granularity == BLOCK)
        set(&p, "ragged", "true");
    return p;
}

/* ---- Data -------------------------------------------------------------------------------------
 */

/* Scales of all sizes, subnormal ones too, and data that reaches both ends. */
static inline double random_scale(uint64_t *seed)
{
    switch (random_below(seed, 8)) {
    case 0:
        return (double)FLT_TRUE_MIN * (1 + (double)random_below(seed, 9));
    case 1:
        return (double)FLT_MAX / 4;
    default:
        return ldexp(1 + random_signed(seed) / 2, (int)random_below(seed, 20) - 10);
    }
}

static inline double random_datum(uint64_t *seed, double scale)
{
    switch (random_below(seed, 12)) {
    case 0:
        return (double)FLT_MAX * random_signed(seed);
    case 1: /* a tie */
        return scale * ((double)random_below(seed, 200) - 99.5);
    case 2:
        return random_signed(seed) > 0 ? INFINITY : NAN;
    default:
        return scale * random_signed(seed) * 300;
    }
}

/* ---- Elements of a float dtype ----------------------------------------------------------------
 */

static const enum qplan_storage floats[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F64, QPLAN_STORAGE_F16,
                                            QPLAN_STORAGE_BF16};

static inline size_t size_of(enum qplan_storage dtype)
{
    return qplan_storage_bits(dtype) / 8;
}

static inline double get(enum qplan_storage dtype, const void *data, size_t i)
{
    const unsigned char *p = (const unsigned char *)data + i * size_of(dtype);
    switch (dtype) {
    case QPLAN_STORAGE_F64:
        return ((const double *)data)[i];
    case QPLAN_STORAGE_F32:
        return (double)((const float *)data)[i];
    case QPLAN_STORAGE_F16:
        return (double)qp_load_f16(p);
    default:
        return (double)qp_load_bf16(p);
    }
}

/* Rounded half to even; infinities and NaN as they are, what is too large infinite. */
static inline void put(enum qplan_storage dtype, void *data, size_t i, double x)
{
    unsigned char *p = (unsigned char *)data + i * size_of(dtype);
    const bool is_f16 = dtype == QPLAN_STORAGE_F16;
    if (dtype == QPLAN_STORAGE_F64) {
        ((double *)data)[i] = x;
    } else if (dtype == QPLAN_STORAGE_F32) {
        ((float *)data)[i] = (float)x;
    } else if (isfinite(x) && fabs(x) < (is_f16 ? 65520.0 : 0x1.ffp127)) {
        (is_f16 ? qp_store_f16_in_f64 : qp_store_bf16_in_f64)(p, x);
    } else {
        uint16_t bits = is_f16 ? 0x7c00 : 0x7f80;
        bits = (uint16_t)(bits | (isnan(x) ? (is_f16 ? 0x200 : 0x40) : x < 0 ? 0x8000 : 0));
        memcpy(p, &bits, sizeof bits);
    }
}

/* x as the dtype holds it. */
static inline double held(enum qplan_storage dtype, double x)
{
    uint64_t room[1];
    put(dtype, room, 0, x);
    return get(dtype, room, 0);
}

static inline double largest(enum qplan_storage dtype)
{
    return dtype == QPLAN_STORAGE_F64   ? DBL_MAX
           : dtype == QPLAN_STORAGE_F32 ? (double)FLT_MAX
           : dtype == QPLAN_STORAGE_F16 ? 65504
                                        : 0x1.fep127;
}

/* One operation in the working precision of the data: f64 only for F64. Products and quotients of
 * f32 values in f64 round to f32 as if they had been rounded once (53 >= 2 * 24 + 2 bits). */
static inline double worked(enum qplan_storage data, double x)
{
    return data == QPLAN_STORAGE_F64 ? x : (double)(float)x;
}

/* Two numbers, or two NaN; the sign of a zero counts. */
static inline bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

#endif
