/*
 * kernel_cases.h - for the tests of kernels: every row of the table, every geometry of a tile,
 * values that are hard to quantize, and the contract in its plainest form to compare with.
 */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include "support.h"

#include <float.h>

#include "kernels/kernel.h"

/* ---- Rows of the table ----------------------------------------------------------------------- */

static const enum qplan_dtype source_dtypes[] = {QPLAN_F64, QPLAN_F32, QPLAN_F16, QPLAN_BF16};

typedef void (*row_fn)(const struct qp_source_kernels *row);

/* Calls check with every kernel that this CPU runs, the scalar ones first. */
static inline void for_each_row(row_fn check)
{
    for (size_t i = 0; i < COUNT(source_dtypes); i++) {
        const struct qp_source_kernels *last = NULL;
        for (unsigned isa = QPLAN_ISA_SCALAR; isa <= (unsigned)qp_isa_detect(); isa++) {
            const struct qp_source_kernels *row =
                qp_source_kernels(source_dtypes[i], (enum qplan_isa)isa);
            if (row != last)
                check(row);
            last = row;
        }
    }
}

static inline bool works_in_f32(const struct qp_source_kernels *row)
{
    return row->work->work == QPLAN_F32;
}

/* Bits of the significand in the working precision. */
static inline int precision_of(const struct qp_source_kernels *row)
{
    return works_in_f32(row) ? 24 : 53;
}

/* Elements of arrays in working precision, as doubles. */
static inline double get_work(const struct qp_source_kernels *row, const void *array, size_t i)
{
    return works_in_f32(row) ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

static inline void set_work(const struct qp_source_kernels *row, void *array, size_t i, double x)
{
    if (works_in_f32(row))
        ((float *)array)[i] = (float)x;
    else
        ((double *)array)[i] = x;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The n-th linear code type of the table, NULL behind the last. */
static inline const struct qp_code_type *linear_type(size_t n)
{
    const struct qp_code_type *row = qp_code_types;
    while (row->name && (row->kind != QP_CODES_LINEAR || n-- > 0))
        row++;
    return row->name ? row : NULL;
}

/* The n-th rule: every linear type with every dtype of scales, symmetric or not, narrow or not. */
static inline bool rule_at(size_t n, struct qp_code_rule *rule)
{
    static const enum qplan_dtype scales[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16};
    const struct qp_code_type *type = linear_type(n / (4 * COUNT(scales)));
    if (!type)
        return false;
    *rule = qp_code_rule(&(struct qplan_scheme){.dtype = type->dtype,
                                                .asymmetric = n % 2,
                                                .narrow = n / 2 % 2 && type->is_signed,
                                                .scale_dtype = scales[n / 4 % COUNT(scales)]});
    return true;
}

static inline struct qp_code_rule pick_rule(uint64_t *seed)
{
    struct qp_code_rule rule;
    size_t n_rules = 0;
    while (rule_at(n_rules, &rule))
        n_rules++;
    (void)rule_at((size_t)random_below(seed, n_rules), &rule);
    return rule;
}

/* The rule of a dtype with scales of f32. */
static inline struct qp_code_rule rule_of(enum qplan_dtype dtype, bool asymmetric)
{
    return qp_code_rule(
        &(struct qplan_scheme){.dtype = dtype, .asymmetric = asymmetric, .scale_dtype = QPLAN_F32});
}

/* The quantizer of the same dtype and level as a row. */
static inline const struct qp_quantizer *quantizer_of(const struct qp_source_kernels *row)
{
    return qp_quantizer(row->dtype, QP_CODES_LINEAR, row->isa);
}

/* A zero point that the rule can have. */
static inline int32_t pick_zero(const struct qp_code_rule *rule, uint64_t *seed)
{
    if (!rule->asymmetric)
        return rule->type->is_signed ? 0 : (rule->q_max + 1) / 2;
    return rule->q_min + (int32_t)random_below(seed, (uint64_t)(rule->q_max - rule->q_min + 1));
}

/* A scale of f32 and either sign; if not mild at times the least normal one or near the largest. */
static inline double pick_scale(bool mild, uint64_t *seed)
{
    static const double special[] = {0x1p-126, 1, 0x1.fffffep127, 0x1p-14, 65504, 0x1.010102p-6};
    const double sign = random_below(seed, 2) ? -1 : 1;
    if (!mild && random_below(seed, 8) == 0)
        return sign * special[random_below(seed, COUNT(special))];
    int exponent = (int)random_below(seed, 40) - 20;
    return sign * (double)(float)ldexp(1.5 + random_signed(seed) / 2, exponent);
}

/* ---- Source values --------------------------------------------------------------------------- */

static inline uint64_t get_bits(const unsigned char *src, size_t n_bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, src, n_bytes);
    return bits;
}

/* The value of a source element, by the definition of its format. */
static inline double source_value(const struct qp_source_kernels *row, const void *src, size_t i)
{
    uint64_t bits = get_bits((const unsigned char *)src + i * row->elem_bytes, row->elem_bytes);
    return value_of_bits(row->dtype, bits);
}

/* Stores x in the format of the row, its bits moved by `ulps`. */
static inline void put_source(const struct qp_source_kernels *row, void *src, size_t i, double x,
                              int ulps)
{
    unsigned char *at = (unsigned char *)src + i * row->elem_bytes;
    qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work->store(row->dtype, 1, &x, at);
    uint64_t bits = get_bits(at, row->elem_bytes) + (uint64_t)(int64_t)ulps;
    memcpy(at, &bits, row->elem_bytes);
}

/* NaN, quiet or signalling; infinities; the largest, the least, subnormals, zeros. */
static inline void put_special(const struct qp_source_kernels *row, void *src, size_t i,
                               uint64_t *seed)
{
    static const unsigned mantissa_bits[] = {
        [QPLAN_F64] = 52, [QPLAN_F32] = 23, [QPLAN_F16] = 10, [QPLAN_BF16] = 7};
    unsigned n_bits = row->elem_bytes * 8u, man_bits = mantissa_bits[row->dtype];
    uint64_t one = 1, sign = one << (n_bits - 1), infinity = sign - (one << man_bits);
    const uint64_t patterns[] = {0,
                                 1,
                                 (one << man_bits) - 1,
                                 one << man_bits,
                                 infinity - 1,
                                 infinity,
                                 infinity + 1,
                                 infinity | one << (man_bits - 1)};
    uint64_t bits = patterns[random_below(seed, COUNT(patterns))];
    bits |= random_below(seed, 2) ? sign : 0;
    memcpy((unsigned char *)src + i * row->elem_bytes, &bits, row->elem_bytes);
}

/* Values around the codes of a set: ties, one step of the format beside them, ends, specials. */
static inline void put_hard_value(const struct qp_source_kernels *row, void *src, size_t i,
                                  double scale, const struct qp_code_rule *rule, int32_t zero,
                                  uint64_t *seed)
{
    uint64_t kind = random_below(seed, 10);
    double steps = (double)(rule->q_min - zero) - 2 +
                   (double)random_below(seed, (uint64_t)(rule->q_max - rule->q_min) + 5);
    if (kind == 0)
        put_special(row, src, i, seed);
    else if (kind < 4)
        put_source(row, src, i, scale * (steps + 0.5), (int)random_below(seed, 3) - 1);
    else if (kind < 6)
        put_source(row, src, i, scale * steps, (int)random_below(seed, 3) - 1);
    else
        put_source(row, src, i, scale * steps * random_signed(seed), 0);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* The set of an element, by its coordinates. */
static inline size_t set_of(const struct qp_tile *tile, size_t i)
{
    size_t across = (tile->col_skip + tile->cols + tile->col_width - 1) / tile->col_width;
    return i / tile->cols / tile->band_rows * across +
           (tile->col_skip + i % tile->cols) / tile->col_width;
}

typedef void (*tile_fn)(const struct qp_source_kernels *row, const struct qp_tile *tile,
                        uint64_t *seed);

/* Calls check with all combinations of small extents, for one row. */
static inline void for_each_tile(const struct qp_source_kernels *row, tile_fn check)
{
    static const size_t rows[] = {1, 2, 3, 7}, bands[] = {1, 2, 3, 100};
    static const size_t cols[] = {1, 2, 3, 8, 15, 16, 17, 33, 64, 257};
    static const size_t widths[] = {1, 2, 3, 8, 16, 32, 100, 300};
    uint64_t seed = 7;
    for (size_t i = 0; i < COUNT(rows) * COUNT(bands) * COUNT(cols) * COUNT(widths) * 3; i++) {
        size_t n = i / 3, width = widths[n % COUNT(widths)];
        n /= COUNT(widths);
        size_t skips[] = {0, width / 2, width - 1};
        struct qp_tile tile = {.cols = cols[n % COUNT(cols)],
                               .rows = rows[n / COUNT(cols) % COUNT(rows)],
                               .band_rows = bands[n / COUNT(cols) / COUNT(rows)],
                               .col_width = width,
                               .col_skip = skips[i % 3]};
        check(row, &tile, &seed);
    }
}

/* One row and one set of n elements. */
static inline struct qp_tile flat_tile(size_t n)
{
    return (struct qp_tile){.rows = 1, .cols = n, .band_rows = 1, .col_width = n ? n : 1};
}

/* ---- Buffers --------------------------------------------------------------------------------- */

#define MOST_ELEMS ((size_t)1 << 17)

/* Memory for the arrays of a tile, each between guard pages of its own. */
struct arrays {
    struct guarded src, codes, y, lo, hi, scale, zero, bound;
};

static struct arrays arrays;

static inline int arrays_make(void **state)
{
    (void)state;
    arrays.src = guarded_make(MOST_ELEMS * 8 + 64);
    arrays.codes = guarded_make(MOST_ELEMS + 64);
    arrays.y = guarded_make(MOST_ELEMS * 8);
    arrays.lo = guarded_make(MOST_ELEMS * 8);
    arrays.hi = guarded_make(MOST_ELEMS * 8);
    arrays.scale = guarded_make(MOST_ELEMS * 8);
    arrays.zero = guarded_make(MOST_ELEMS * 4);
    arrays.bound = guarded_make(MOST_ELEMS * 8);
    return 0;
}

static inline int arrays_free(void **state)
{
    (void)state;
    guarded_free(&arrays.src);
    guarded_free(&arrays.codes);
    guarded_free(&arrays.y);
    guarded_free(&arrays.lo);
    guarded_free(&arrays.hi);
    guarded_free(&arrays.scale);
    guarded_free(&arrays.zero);
    guarded_free(&arrays.bound);
    return 0;
}

/* The last n bytes before a guard page or, at odd turns, bytes behind one at an odd address. */
static inline void *place_bytes(const struct guarded *g, size_t n, uint64_t turn)
{
    return turn % 2 ? g->begin + turn / 2 % 8 : g->end - n;
}

/* The last n bytes before a guard page. */
static inline void *place(const struct guarded *g, size_t n)
{
    return g->end - n;
}

/* ---- The contract ---------------------------------------------------------------------------- */

/* value / 2^shift for shift > 0, half to even; sticky: there was more behind the value. */
static inline uint64_t shift_half_even(unsigned __int128 value, int shift, bool sticky)
{
    if (shift > 120)
        return 0;
    unsigned __int128 kept = value >> shift, rest = value - (kept << shift);
    unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
    bool up = rest > half || (rest == half && (sticky || kept % 2));
    return (uint64_t)kept + up;
}

static inline int bit_length(unsigned __int128 value)
{
    int n = 0;
    for (; value; value >>= 1)
        n++;
    return n;
}

/* |a / b| rounded to `precision` bits, half to even, as mantissa * 2^*exponent. All finite. */
static inline uint64_t quotient(double a, double b, int precision, int *exponent)
{
    int exp_a, exp_b;
    uint64_t int_a = (uint64_t)ldexp(frexp(fabs(a), &exp_a), 53);
    uint64_t int_b = (uint64_t)ldexp(frexp(fabs(b), &exp_b), 53);
    unsigned __int128 wide = (unsigned __int128)int_a << 64, result = wide / int_b;
    bool sticky = wide % int_b != 0;
    int shift = bit_length(result) - precision;
    *exponent = exp_a - exp_b - 64 + shift;
    return int_a ? shift_half_even(result, shift, sticky) : 0;
}

/* a / b in the working precision, as long as that is a normal number. */
static inline double divide(double a, double b, int precision)
{
    int exponent;
    uint64_t mantissa = quotient(a, b, precision, &exponent);
    double result = ldexp((double)mantissa, exponent);
    return (a < 0) != (b < 0) ? -result : result;
}

/* rne(a / b) with both roundings, cut to +-2^20. */
static inline int32_t divide_to_integer(double a, double b, int precision)
{
    int exponent;
    uint64_t mantissa = quotient(a, b, precision, &exponent), result = 1 << 20;
    if (exponent < 0)
        result = shift_half_even(mantissa, -exponent, false);
    if (mantissa == 0)
        result = 0;
    result = result > 1 << 20 ? 1 << 20 : result;
    return (a < 0) != (b < 0) ? -(int32_t)result : (int32_t)result;
}

/* The code of x: clamp(rne(x / s) + z). */
static inline int32_t code_of(double x, double scale, int32_t zero, const struct qp_code_rule *rule,
                              int precision)
{
    if (isnan(x))
        return zero;
    if (isinf(x))
        return (x > 0) == (scale > 0) ? rule->q_max : rule->q_min;
    int32_t code = divide_to_integer(x, scale, precision) + zero;
    return code < rule->q_min ? rule->q_min : code > rule->q_max ? rule->q_max : code;
}

/* scale * steps with one rounding, clipped to the finite range; exact before the rounding. */
static inline double decoded(const struct qp_source_kernels *row, double scale, int32_t steps)
{
    if (!works_in_f32(row)) {
        long double product = (long double)scale * steps;
        return product > DBL_MAX ? DBL_MAX : product < -DBL_MAX ? -DBL_MAX : (double)product;
    }
    double product = scale * steps;
    return product > (double)FLT_MAX    ? (double)FLT_MAX
           : product < -(double)FLT_MAX ? -(double)FLT_MAX
                                        : (double)(float)product;
}

#endif
