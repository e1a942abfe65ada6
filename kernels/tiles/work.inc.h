/*
 * work.inc.h - the kernels of one working precision, as a template: the specification.
 *
 * The including file defines NAME(op), WORK, WORK_MAX, FINITE(x), SCALE_OF, ZERO_OF, COVERS,
 * NEXT_UP, CODES(op), STORE(dtype) and BOUND_SHIFT. Loops that call nothing and have no branches: a
 * compiler makes vectors of them.
 */

/* ---- params ---------------------------------------------------------------------------------- */

/* Infinity when the scale does not fit its dtype. */
static inline WORK NAME(stored_scale)(WORK scale, const struct scale_row *row)
{
    if (!((double)scale <= row->largest))
        return (WORK)INFINITY;
    /* Up, never to nearest: with a smaller scale the largest value would lie outside the codes. */
    double up = row->round_up((double)scale);
    return (WORK)(up < row->least ? row->least : up);
}

/*
 * Under a factor the stored scale that is nearest to what is wanted, or the first behind it that is
 * not below the least that is enough. A factor is such that the largest is enough for every set;
 * where a layout has none, the result may be infinity.
 */
static inline WORK NAME(scale_with_factor)(WORK scale, WORK enough, const struct qp_code_rule *rule)
{
    const WORK factor = (WORK)rule->factor;
    const WORK wanted = rule->divides ? scale * factor : scale / factor;
    unsigned char byte;
    STORE(f8e4m3)(&byte, wanted);
    byte = byte ? byte : 1; /* the least above 0 */
    while ((WORK)qp_with_factor(rule, qp_widen_f8e4m3(byte)) < enough && byte < QP_F8E4M3_MOST_BITS)
        byte++;
    const WORK found = (WORK)qp_with_factor(rule, qp_widen_f8e4m3(byte));
    return found < enough ? (WORK)INFINITY : found;
}

/*
 * The power of two that makes the largest size of a value the leading power of the largest code, or
 * the next one from 7/4 of that on: codes of floats reach as far. Infinity as above.
 */
static inline WORK NAME(power_scale)(WORK size, double largest)
{
    const uint64_t exponent = 0x7ff0000000000000u, quarters = 0x000c000000000000u;
    const uint64_t bits = qp_bits_f64((double)size);
    const double power = qp_of_bits_f64(bits & exponent) * ((bits & quarters) == quarters ? 2 : 1);
    const double scale = power / qp_of_bits_f64(qp_bits_f64(largest) & exponent);
    return (WORK)(scale > 0x1p127 ? INFINITY : scale < 0x1p-126 ? 0x1p-126 : scale);
}

/*
 * The scale of a set by the scale that is wanted, and for codes of floats the largest size of a
 * value, which may lie beyond the largest code as far as that reaches. Infinity as above.
 */
static inline WORK NAME(scale_of_set)(WORK wanted, WORK size, const struct qp_code_rule *rule,
                                      const struct scale_row *row)
{
    const bool is_float = rule->kind == QP_CODES_FLOAT;
    if (rule->scale_dtype == QPLAN_F8E4M3 && size == 0)
        return (WORK)qp_with_factor(rule, 1);
    if (rule->scale_dtype == QPLAN_F8E4M3)
        return NAME(scale_with_factor)(wanted, is_float ? size / (WORK)qp_code_end(rule) : wanted,
                                       rule);
    if (rule->scale_dtype == QPLAN_E8M0 && is_float && size > 0)
        return NAME(power_scale)(size, rule->type->largest);
    return NAME(stored_scale)(wanted, row);
}

static inline size_t NAME(params)(const struct qp_code_rule *rule, size_t n, const void *lo_,
                                  const void *hi_, void *scale_, int32_t *zero)
{
    const struct scale_row *row = scale_row(rule->scale_dtype);
    const bool asymmetric = rule->asymmetric, is_signed = rule->type->is_signed;
    const int32_t q_min = rule->q_min, q_max = rule->q_max;
    const WORK *lo = lo_, *hi = hi_;
    WORK *scale = scale_;
    for (size_t i = 0; i < n; i++) {
        WORK exact = SCALE_OF(lo[i], hi[i], q_min, q_max, asymmetric);
        scale[i] = NAME(scale_of_set)(exact, hi[i] > -lo[i] ? hi[i] : -lo[i], rule, row);
        if (!(scale[i] <= WORK_MAX))
            return i;
        zero[i] = ZERO_OF(lo[i], hi[i], scale[i], q_min, q_max, asymmetric, is_signed);
    }
    return n;
}

static inline void NAME(merge)(size_t n, void *lo_, void *hi_, const void *other_lo,
                               const void *other_hi)
{
    WORK *lo = lo_, *hi = hi_;
    for (size_t i = 0; i < n; i++) {
        WORK least = ((const WORK *)other_lo)[i], most = ((const WORK *)other_hi)[i];
        lo[i] = least < lo[i] ? least : lo[i];
        hi[i] = most > hi[i] ? most : hi[i];
    }
}

/* ---- dequantize ------------------------------------------------------------------------------ */

static inline WORK NAME(decode)(WORK scale, int32_t difference)
{
    return FINITE(scale * (WORK)difference);
}

/* A byte c of a signed code is (c ^ 128) - 128; flip is 128 then, else 0. */
static void NAME(decode_run)(const uint8_t *restrict codes, size_t n, int32_t flip, WORK scale,
                             int32_t zero, WORK *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = NAME(decode)(scale, (codes[i] ^ flip) - flip - zero);
}

/* A row of columns that are sets of their own. */
static void NAME(decode_columns)(const uint8_t *restrict codes, size_t n, int32_t flip,
                                 const WORK *restrict scale, const int32_t *restrict zero,
                                 WORK *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = NAME(decode)(scale[i], (codes[i] ^ flip) - flip - zero[i]);
}

static inline void NAME(dequantize)(const struct qp_tile *tile, const uint8_t *codes,
                                    const struct qp_code_rule *rule, const void *scale_,
                                    const int32_t *zero, void *y_)
{
    const WORK *scale = scale_;
    const int32_t flip = rule->type->is_signed ? 128 : 0;
    WORK *y = y_;
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run)
            NAME(decode_run)
        (codes + run.at, run.n, flip, scale[run.set], zero[run.set], y + run.at);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = row * tile->cols, set = row / tile->band_rows * tile->cols;
        NAME(decode_columns)(codes + at, tile->cols, flip, scale + set, zero + set, y + at);
    }
}

/* ---- load, store, bound ---------------------------------------------------------------------- */

struct NAME(codec) {
    enum qplan_dtype dtype;
    size_t n_bytes;
    void (*load)(size_t n, const unsigned char *src, WORK *y);
    void (*store)(size_t n, const WORK *y, unsigned char *dst);
};

/* A loop for each dtype: what to do with an element is decided before the first. */
#define CODEC_LOOPS(name, size)                                                                    \
    static void NAME(load_##name)(size_t n, const unsigned char *restrict src, WORK *restrict y)   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = (WORK)qp_load_##name(src + i * (size));                                         \
    }                                                                                              \
                                                                                                   \
    static void NAME(store_##name)(size_t n, const WORK *restrict y, unsigned char *restrict dst)  \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            STORE(name)(dst + i * (size), y[i]);                                                   \
    }
CODEC_LOOPS(f64, 8)
CODEC_LOOPS(f32, 4)
CODEC_LOOPS(f16, 2)
CODEC_LOOPS(bf16, 2)
CODEC_LOOPS(f8e4m3, 1)
CODEC_LOOPS(e8m0, 1)
#undef CODEC_LOOPS

static const struct NAME(codec) NAME(codecs)[] = {
    {QPLAN_F64, 8, NAME(load_f64), NAME(store_f64)},
    {QPLAN_F32, 4, NAME(load_f32), NAME(store_f32)},
    {QPLAN_F16, 2, NAME(load_f16), NAME(store_f16)},
    {QPLAN_BF16, 2, NAME(load_bf16), NAME(store_bf16)},
    {QPLAN_F8E4M3, 1, NAME(load_f8e4m3), NAME(store_f8e4m3)},
    {QPLAN_E8M0, 1, NAME(load_e8m0), NAME(store_e8m0)},
};

static inline const struct NAME(codec) * NAME(codec_of)(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (NAME(codecs)[i].dtype != dtype)
        i++;
    return &NAME(codecs)[i];
}

static inline void NAME(load)(enum qplan_dtype dtype, size_t n, const void *src, void *y)
{
    NAME(codec_of)(dtype)->load(n, src, y);
}

static inline void NAME(store)(enum qplan_dtype dtype, size_t n, const void *y, void *dst)
{
    NAME(codec_of)(dtype)->store(n, y, dst);
}

static inline void NAME(round)(enum qplan_dtype dtype, size_t n, void *y_)
{
    unsigned char rounded[TOGETHER * sizeof(double)];
    WORK *y = y_;
    for (size_t i = 0, next; i < n; i = next) {
        next = after_together(i, n);
        NAME(store)(dtype, next - i, y + i, rounded);
        NAME(load)(dtype, next - i, rounded, y + i);
    }
}

/*
 * |s| * reach + |s| * 2^k + 2^-149 with every rounding known: products are exact, and each sum is
 * of a larger and a smaller positive term, so what it lost is exactly larger - sum + smaller, and
 * the result is raised if that is > 0.
 */
static inline void NAME(bounds)(size_t n, const void *scale, const int32_t *zero,
                                const struct qp_code_rule *rule, double *out)
{
    const double share = ldexp(1.0, rule->type->span - BOUND_SHIFT), tiny = 0x1p-149;
    const double reach = rule->type->reach;
    for (size_t i = 0; i < n; i++) {
        const double s = fabs((double)((const WORK *)scale)[i]);
        const double most = s * reach, slack = s * share;
        const double first = most + slack, first_lost = most - first + slack;
        const double sum = first + tiny, sum_lost = first - sum + tiny;
        const double up = first_lost + sum_lost > 0 ? next_up(sum) : sum;
        out[i] = s > 0 && s <= (double)WORK_MAX ? up : -1;
    }
    const double width = ldexp(1.0, rule->type->bits), of_bias = ldexp(1.0, -1 - BOUND_SHIFT);
    for (size_t i = 0; rule->kind == QP_CODES_BIASED && i < n; i++) {
        const double s = fabs((double)((const WORK *)scale)[i]);
        const double over = fabs((double)qp_bias(zero[i])) - s * width;
        out[i] = over > 0 && out[i] >= 0 ? next_up(out[i] + over * of_bias) : out[i];
    }
}

#include "biased_work.inc.h"
#include "valued_work.inc.h"

#undef NAME
#undef WORK
#undef WORK_MAX
#undef FINITE
#undef SCALE_OF
#undef ZERO_OF
#undef COVERS
#undef NEXT_UP
#undef CODES
#undef STORE
#undef BOUND_SHIFT
