/*
 * vector_work.inc.h - the kernels of f32 working precision in the vector vocabulary.
 *
 * The including file has included a vocabulary and work.inc.h with NAME(op) = op##_plain, whose
 * functions do what is left over. Every result is bit for bit theirs.
 */

static inline vf v_sure_limits(const double *bounds)
{
    vf limit = v_load_scaled(bounds, LIMIT_FACTOR);
    return v_where_between(v_set(LIMIT_LEAST), limit, v_set(LIMIT_MOST), v_set(-1.0f));
}

/* No product of a scale up to this size with a difference in 32 bits can overflow. */
#define SCALE_UNCLIPPED 0x1p94f

#include "vector_valued_work.inc.h"

/*
 * How quotients are made. Where no scale is very small or very large, by multiplying with 1 / s in
 * two parts; kernels/README.md shows that no code differs. Elements that may be anything are
 * clamped to 512 steps first, which leaves NaN alone. Codes are plain where they are steps as they
 * come, clipped to the whole of a signed byte.
 */
#define SCALE_LEAST 0x1p-64f
#define SCALE_MOST  0x1p64f

enum v_way {
    V_DIVIDE,
    V_CLAMP,
    V_BOUNDED,
    V_PLAIN,
    V_BIAS_DIVIDE, /* ways of biased codes, of which elements are counted from the bias on */
    V_BIAS_CLAMP,
    V_BIAS_BOUNDED,
    V_FLOAT, /* floats and tables, whose quotients are those of a division */
    V_BOOK,
    V_FLOAT_BOUNDED,
    V_BOOK_BOUNDED
};

static inline int v_divides(enum v_way way)
{
    return way == V_DIVIDE || way == V_BIAS_DIVIDE;
}

static inline int v_is_bounded(enum v_way way)
{
    return way == V_BOUNDED || way == V_PLAIN || way == V_BIAS_BOUNDED || way >= V_FLOAT_BOUNDED;
}

static inline int v_is_biased(enum v_way way)
{
    return way >= V_BIAS_DIVIDE && way <= V_BIAS_BOUNDED;
}

static inline int v_is_valued(enum v_way way)
{
    return way >= V_FLOAT;
}

static enum v_way v_way_of(const struct qp_code_rule *rule, const float *scale, const int32_t *zero,
                           size_t n)
{
    int usual = 1;
    int32_t zeros = 0;
    if (rule->kind == QP_CODES_FLOAT)
        return rule->bounded ? V_FLOAT_BOUNDED : V_FLOAT;
    if (rule->kind == QP_CODES_BOOK)
        return rule->bounded ? V_BOOK_BOUNDED : V_BOOK;
    for (size_t i = 0; i < n; i++) { /* without a branch, so that vectors can do it */
        const float size = fabsf(scale[i]);
        usual &= (size >= SCALE_LEAST) & (size <= SCALE_MOST);
        zeros |= zero[i];
    }
    if (rule->kind == QP_CODES_BIASED)
        return !usual ? V_BIAS_DIVIDE : rule->bounded ? V_BIAS_BOUNDED : V_BIAS_CLAMP;
    if (!usual)
        return V_DIVIDE;
    if (!rule->bounded)
        return V_CLAMP;
    return zeros == 0 && rule->q_min == INT8_MIN && rule->q_max == INT8_MAX ? V_PLAIN : V_BOUNDED;
}

/* Some sets side by side: scales, with 1 / s as hi + lo but for 2^-48 of it, and zero points. */
#define FEW_SETS 256

struct few_sets {
    _Alignas(64) float s[FEW_SETS]; /* no vector lies in two lines of the cache, here or below */
    float hi[FEW_SETS], lo[FEW_SETS];
    float most[FEW_SETS];    /* 512 steps, above 0 */
    float bias[FEW_SETS];    /* of linear codes 0 */
    int32_t above[FEW_SETS]; /* zero point less the least code; of biased codes 0 */
};

/* The places behind the last set, as far as vectors reach, have numbers that hurt nothing. */
static void few_sets_of(const struct qp_code_rule *rule, const float *scale, const int32_t *zero,
                        size_t n, struct few_sets *few)
{
    const bool is_biased = rule->kind == QP_CODES_BIASED;
    for (size_t i = 0; i < n; i++) {
        few->s[i] = scale[i];
        few->bias[i] = is_biased ? qp_bias(zero[i]) : 0;
        few->above[i] = is_biased ? 0 : zero[i] - rule->q_min;
    }
    for (; n % V_CODES; n++) {
        few->s[n] = 1;
        few->bias[n] = 0;
        few->above[n] = 0;
    }
    for (size_t i = 0; i < n; i += V_LANES) {
        const vf s = v_load(few->s + i), hi = v_div(v_set(1), s);
        v_store(few->hi + i, hi);
        v_store(few->lo + i, v_div(v_left(s, hi), s));
        v_store(few->most + i, v_mul(v_set(512), v_abs(s)));
    }
}

struct v_scale {
    vf s, hi, lo, most, bias;
};

static inline struct v_scale v_scale_of(const struct few_sets *few, size_t k)
{
    return (struct v_scale){v_set(few->s[k]), v_set(few->hi[k]), v_set(few->lo[k]),
                            v_set(few->most[k]), v_set(few->bias[k])};
}

/* The scales of V_LANES sets from k on. */
static inline struct v_scale v_scales_at(const struct few_sets *few, size_t k)
{
    return (struct v_scale){v_load(few->s + k), v_load(few->hi + k), v_load(few->lo + k),
                            v_load(few->most + k), v_load(few->bias + k)};
}

/* How far elements are from the bias of their set, of which NaN is not taken for a number but 0. */
static inline vf v_from_bias(vf x, const struct v_scale *scale, enum v_way way)
{
    return v_sub(v_is_bounded(way) ? x : v_where_equal(x, x, x, v_set(0)), scale->bias);
}

/* Quotients within 512, or NaN if codes have no bias. way is a constant where this is called. */
static inline vf v_quotient(vf x, const struct v_scale *scale, enum v_way way)
{
    const vf from = v_is_biased(way) ? v_from_bias(x, scale, way) : x;
    const vf most = v_divides(way) ? v_set(512) : scale->most;
    const vf q = v_divides(way) ? v_div(from, scale->s) : from;
    const vf clamped = v_is_bounded(way) ? q : v_min(most, v_max(v_sub(v_set(0), most), q));
    return v_divides(way) ? clamped : v_times(clamped, scale->hi, scale->lo);
}

/* The codes of a type, in vectors. */
struct v_coder {
    struct v_code_ends ends; /* of integers */
    struct v_valued valued;  /* of floats and tables */
};

static struct v_coder v_coder_of(const struct qp_code_rule *rule)
{
    struct v_coder coder = {.ends = v_ends_of(rule->q_min, rule->q_max)};
    if (qp_is_valued(rule->kind))
        coder.valued = v_valued_of(rule->type);
    return coder;
}

/* What a tile is quantized with. */
struct quantize_job {
    struct qp_tile tile;
    size_t n_cols; /* sets side by side */
    const struct qp_code_rule *rule;
    const float *scale;
    const int32_t *zero;
    struct v_coder coder;
};

/*
 * Sums are made in two steps: the errors of a chunk in f32, then these widened from memory and
 * squared. The second step of a chunk goes beside the first of the next one: they want different
 * parts of a CPU. A chunk is long enough for a sum not to wait for the store of its error, and
 * short enough for the first-level cache.
 */
#define SUMS_CHUNK 256

/* The sums of a block under way, in all sixteen lanes. */
#define SUMS_VECTORS (16 / V_DOUBLES)

struct v_sum_lanes {
    vd e2[SUMS_VECTORS], x2[SUMS_VECTORS], y2[SUMS_VECTORS];
};

struct v_sums {
    struct v_sum_lanes lanes;
    vf most;   /* the largest errors in f32 of any lane; -1 without any */
    vm within; /* where they are surely within their bounds */
    vm exact;  /* where they are the very differences, and so are all smaller ones */
};

static inline void begin_sums(struct v_sums *sums, bool bounded)
{
    for (size_t k = 0; k < SUMS_VECTORS; k++)
        sums->lanes.e2[k] = sums->lanes.x2[k] = sums->lanes.y2[k] = vd_zero();
    sums->most = v_set(-1);
    sums->within = sums->exact = v_at_most(v_set(0), v_set(bounded ? 0 : -1));
}

/*
 * Adds 16 elements, each to its lane, of which there are what they decode to and the errors, exact
 * in f32: so are their squares and the sum of both in f64.
 */
static inline void add_exact(struct v_sum_lanes *sum, const float *y, const float *e)
{
    for (size_t k = 0; k < SUMS_VECTORS; k++) {
        const vd wide_y = vd_load_wide(y + k * V_DOUBLES);
        const vd wide_e = vd_load_wide(e + k * V_DOUBLES);
        sum->e2[k] = vd_add_square(sum->e2[k], wide_e);
        sum->x2[k] = vd_add_square(sum->x2[k], vd_add(wide_y, wide_e));
        sum->y2[k] = vd_add_square(sum->y2[k], wide_y);
    }
}

/* Loops that add are out of line: each wants nearly all registers for the lanes. */
static __attribute__((noinline)) void add_exact_chunk(struct v_sum_lanes *to, const float *y,
                                                      const float *e, size_t n)
{
    struct v_sum_lanes sum = *to;
    for (size_t i = 0; i < n; i += 16)
        add_exact(&sum, y + i, e + i);
    *to = sum;
}

/* Adds n elements x beside what they decode to, where errors are not exact in f32. */
static __attribute__((noinline)) void add_any_chunk(struct v_sum_lanes *to, const float *y,
                                                    const float *x, size_t n)
{
    struct v_sum_lanes sum = *to;
    for (size_t i = 0; i < n; i += 16) {
        for (size_t k = 0; k < SUMS_VECTORS; k++) {
            const vd wide_y = vd_load_wide(y + i + k * V_DOUBLES);
            const vd wide_x = vd_load_wide(x + i + k * V_DOUBLES);
            sum.e2[k] = vd_add_error(sum.e2[k], wide_x, wide_y);
            sum.x2[k] = vd_add_square(sum.x2[k], wide_x);
            sum.y2[k] = vd_add_square(sum.y2[k], wide_y);
        }
    }
    *to = sum;
}

static void store_sums(double lanes[3][16], const struct v_sum_lanes *sums)
{
    for (size_t k = 0; k < SUMS_VECTORS; k++) {
        vd_store(lanes[0] + k * V_DOUBLES, sums->e2[k]);
        vd_store(lanes[1] + k * V_DOUBLES, sums->x2[k]);
        vd_store(lanes[2] + k * V_DOUBLES, sums->y2[k]);
    }
}

/* No error is above what it is in f32 times this. */
#define ROUNDED_UP (1 + 0x1p-23)

/* Elements that are looked at together for whether one of them may have the largest error. */
#define SEARCHED (8 * V_LANES)

/* A number that no error is above. */
static inline double largest_of(const struct v_sums *sums)
{
    const double most = (double)v_top(sums->most);
    return vm_all(sums->exact) ? most : most * ROUNDED_UP;
}

/* What is left over of a run; out of line, so that runs of whole vectors do not pay for it. */
static __attribute__((noinline)) void dequantize_rest(const uint8_t *codes, size_t n, int is_signed,
                                                      float scale, int32_t zero, float *y)
{
    decode_run_plain(codes, n, is_signed ? 128 : 0, scale, zero, y);
}

/* Decoded values of n codes of one set: a multiple of V_LANES. Flags are constants to this. */
static inline void dequantize_whole(const uint8_t *codes, size_t n, int is_signed, float scale,
                                    int32_t zero, int clips, float *y)
{
    const vf s = v_set(scale), most = v_set(FLT_MAX), least = v_set(-FLT_MAX);
    const vi z = vi_set(zero);
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i += V_LANES) {
        vf x = v_mul(s, v_load_codes(codes + i, is_signed, z));
        v_store(y + i, clips ? v_max(least, v_min(most, x)) : x);
    }
}

static inline void dequantize_long(const uint8_t *codes, size_t n, int is_signed, float scale,
                                   int32_t zero, int clips, float *y)
{
    const size_t whole = n - n % V_LANES;
    dequantize_whole(codes, whole, is_signed, scale, zero, clips, y);
    if (whole < n)
        dequantize_rest(codes + whole, n - whole, is_signed, scale, zero, y + whole);
}

static void dequantize_run(const uint8_t *codes, size_t n, int is_signed, float scale, int32_t zero,
                           float *y)
{
    if (fabsf(scale) <= SCALE_UNCLIPPED)
        dequantize_long(codes, n, is_signed, scale, zero, 0, y);
    else
        dequantize_long(codes, n, is_signed, scale, zero, 1, y);
}

/* n codes in runs of one length, a multiple of V_LANES, each a set. is_signed is a constant. */
static inline void dequantize_even(const uint8_t *codes, size_t n, size_t width, int is_signed,
                                   const float *scale, const int32_t *zero, float *y)
{
    for (size_t k = 0, at = 0; at < n; k++, at += width) {
        if (fabsf(scale[k]) <= SCALE_UNCLIPPED)
            dequantize_whole(codes + at, width, is_signed, scale[k], zero[k], 0, y + at);
        else
            dequantize_whole(codes + at, width, is_signed, scale[k], zero[k], 1, y + at);
    }
}

/* Decoded values of a row of n columns that are sets of their own. */
static void dequantize_columns(const uint8_t *codes, size_t n, int is_signed, const float *scale,
                               const int32_t *zero, float *y)
{
    const vf most = v_set(FLT_MAX), least = v_set(-FLT_MAX);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        vf x = v_mul(v_load(scale + i), v_load_codes(codes + i, is_signed, vi_load(zero + i)));
        v_store(y + i, v_max(least, v_min(most, x)));
    }
    for (; i < n; i++)
        dequantize_rest(codes + i, 1, is_signed, scale[i], zero[i], y + i);
}

static void dequantize_vector(const struct qp_tile *tile, const uint8_t *codes,
                              const struct qp_code_rule *rule, const void *scale,
                              const int32_t *zero, void *y)
{
    const bool is_signed = rule->type->is_signed;
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            size_t first = row / tile->band_rows * tile->cols, at = row * tile->cols;
            dequantize_columns(codes + at, tile->cols, is_signed, (const float *)scale + first,
                               zero + first, (float *)y + at);
        }
        return;
    }
    const size_t width = qp_even_runs(tile), n = tile->rows * tile->cols;
    if (width && width % V_LANES == 0) {
        if (is_signed)
            dequantize_even(codes, n, width, 1, scale, zero, y);
        else
            dequantize_even(codes, n, width, 0, scale, zero, y);
        return;
    }
    FOR_EACH_RUN (tile, run)
        dequantize_run(codes + run.at, run.n, is_signed, ((const float *)scale)[run.set],
                       zero[run.set], (float *)y + run.at);
}

/* ---- Biased codes ---------------------------------------------------------------------------- */

/*
 * A number as a decoder that works in a type rounds it: to no more than the largest, if it may be
 * more.
 */
static inline vf v_rounded_to(enum qplan_dtype dtype, int clips, vf x)
{
    if (dtype == QPLAN_BF16)
        return v_near_bf16(clips ? v_max(v_set(-0x1.fep127f), v_min(v_set(0x1.fep127f), x)) : x);
    return dtype == QPLAN_F16 ? v_near_f16(x) : x;
}

/*
 * Values of n codes of one set: a multiple of V_LANES. dtype, that of the steps, and clips are
 * constants.
 */
static inline void biased_whole(const uint8_t *codes, size_t n, enum qplan_dtype dtype, int clips,
                                float scale, float bias, float *y)
{
    const vf s = v_set(scale), b = v_set(bias), most = v_set(FLT_MAX), least = v_set(-FLT_MAX);
    const vi none = vi_set(0);
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i += V_LANES) {
        const vf product = v_mul(s, v_load_codes(codes + i, 0, none));
        const vf x = v_add(v_rounded_to(dtype, clips, product), b);
        v_store(y + i, v_rounded_to(dtype, clips, clips ? v_max(least, v_min(most, x)) : x));
    }
}

static inline void biased_set(const uint8_t *codes, size_t n, enum qplan_dtype dtype, float scale,
                              float bias, float *y)
{
    if (fabsf(scale) <= SCALE_UNCLIPPED && fabsf(bias) <= SCALE_UNCLIPPED)
        biased_whole(codes, n, dtype, 0, scale, bias, y);
    else
        biased_whole(codes, n, dtype, 1, scale, bias, y);
}

/* Sets of at least so many codes below 16 have each value rounded once, and picked for the codes.
 */
#define PICKED 32

static inline void biased_picked(const uint8_t *codes, size_t n, enum qplan_dtype dtype,
                                 float scale, float bias, float *y)
{
    static const uint8_t every[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float values[16];
    biased_set(every, 16, dtype, scale, bias, values);
    const struct v_table table = v_table_of(values);
    for (size_t i = 0; i < n; i += V_LANES)
        v_store(y + i, v_pick16(&table, vi_load_bytes(codes + i)));
}

static inline void dequantize_biased_to(const struct qp_tile *tile, const uint8_t *codes,
                                        enum qplan_dtype dtype, const struct qp_code_rule *rule,
                                        const float *scale, const int32_t *zero, float *y)
{
    const size_t width = qp_even_runs(tile), n = tile->rows * tile->cols;
    if (width && width % V_LANES == 0) {
        const bool picks = dtype != QPLAN_F32 && rule->type->bits <= 4 && width >= PICKED;
        for (size_t k = 0, at = 0; at < n; k++, at += width) {
            const float bias = qp_bias(zero[k]);
            if (picks)
                biased_picked(codes + at, width, dtype, scale[k], bias, y + at);
            else
                biased_set(codes + at, width, dtype, scale[k], bias, y + at);
        }
        return;
    }
    FOR_EACH_RUN (tile, run) {
        const float s = scale[run.set], bias = qp_bias(zero[run.set]);
        const size_t whole = run.n - run.n % V_LANES, rest = run.at + whole;
        biased_set(codes + run.at, whole, dtype, s, bias, y + run.at);
        if (whole < run.n)
            biased_run_plain(codes + rest, run.n - whole, rule, s, bias, y + rest);
    }
}

static void dequantize_biased_vector(const struct qp_tile *tile, const uint8_t *codes,
                                     const struct qp_code_rule *rule, const void *scale,
                                     const int32_t *zero, void *y)
{
    const enum qplan_dtype dtype = rule->rounds ? rule->scale_dtype : QPLAN_F32;
    if (dtype == QPLAN_BF16)
        dequantize_biased_to(tile, codes, QPLAN_BF16, rule, scale, zero, y);
    else if (dtype == QPLAN_F16)
        dequantize_biased_to(tile, codes, QPLAN_F16, rule, scale, zero, y);
    else
        dequantize_biased_to(tile, codes, QPLAN_F32, rule, scale, zero, y);
}

/* The types that vectors are loaded from and stored to. */
static inline bool has_vectors(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F32 || dtype == QPLAN_F16 || dtype == QPLAN_BF16;
}

static void store_vector(enum qplan_dtype dtype, size_t n, const void *y, void *dst)
{
    const size_t size = codec_of_plain(dtype)->n_bytes;
    unsigned char *to = dst;
    size_t i = 0;
    for (; has_vectors(dtype) && i + V_LANES <= n; i += V_LANES) {
        vf x = v_load((const float *)y + i);
        if (dtype == QPLAN_BF16)
            v_store_bf16(to + i * size, x);
        else if (dtype == QPLAN_F16)
            v_store_f16(to + i * size, x);
        else
            v_store_f32(to + i * size, x);
    }
    store_plain(dtype, n - i, (const float *)y + i, to + i * size);
}

static void round_vector(enum qplan_dtype dtype, size_t n, void *y_)
{
    float *y = y_;
    size_t i = 0;
    for (; dtype == QPLAN_BF16 && i + V_LANES <= n; i += V_LANES)
        v_store(y + i, v_rounded_to(QPLAN_BF16, 1, v_load(y + i)));
    for (; dtype == QPLAN_F16 && i + V_LANES <= n; i += V_LANES)
        v_store(y + i, v_rounded_to(QPLAN_F16, 1, v_load(y + i)));
    round_plain(dtype, n - i, y + i);
}

static void load_vector(enum qplan_dtype dtype, size_t n, const void *src, void *y)
{
    const size_t size = codec_of_plain(dtype)->n_bytes;
    const unsigned char *from = src;
    size_t i = 0;
    for (; has_vectors(dtype) && i + V_LANES <= n; i += V_LANES) {
        const unsigned char *p = from + i * size;
        v_store((float *)y + i, dtype == QPLAN_BF16  ? v_load_bf16(p)
                                : dtype == QPLAN_F16 ? v_load_f16(p)
                                                     : v_load_f32(p));
    }
    load_plain(dtype, n - i, from + i * size, (float *)y + i);
}

#include "vector_params.inc.h"

static void merge_vector(size_t n, void *lo, void *hi, const void *other_lo, const void *other_hi)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        float *low = (float *)lo + i, *high = (float *)hi + i;
        v_store(low, v_min(v_load((const float *)other_lo + i), v_load(low)));
        v_store(high, v_max(v_load((const float *)other_hi + i), v_load(high)));
    }
    merge_plain(n - i, (float *)lo + i, (float *)hi + i, (const float *)other_lo + i,
                (const float *)other_hi + i);
}
