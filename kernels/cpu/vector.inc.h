/*
 * vector.inc.h - the loops of one source dtype in the vector vocabulary, for f32 working precision.
 *
 * The including file has included a vocabulary and defines what element.inc.h needs, V_LOAD(p),
 * SOURCE_DTYPE, ISA and WORK_KERNELS; for a 16-bit dtype also INFINITY_BITS, the bits of +Inf.
 * Every result is bit for bit that of source.inc.h.
 */

#include "element.inc.h"

/* ---- range -------------------------------------------------------------------------------------
 */

#ifdef INFINITY_BITS

/* As integers, twice as many at a time: floats of one format sort like their bits. */
static uint64_t NAME(range_long)(const unsigned char *src, size_t n, float *lo, float *hi)
{
    vh least = vh_set(0), most = vh_set(0), magnitude = vh_set(0);
    size_t i = 0;
    for (; i + 2 * V_LANES <= n; i += 2 * V_LANES) {
        vh x = vh_load(src + i * ELEM_BYTES), sortable = vh_sortable(x);
        magnitude = vh_max(magnitude, vh_magnitude(x));
        least = vh_min(least, sortable);
        most = vh_max(most, sortable);
    }
    if (vh_reduce_max(magnitude) >= INFINITY_BITS) /* rare: one by one */
        return NAME(range_run)(src, n, lo, hi);
    const int16_t ends[2] = {vh_reduce_min(least), vh_reduce_max(most)};
    for (int k = 0; k < 2; k++) { /* back from sortable order, and in as if they were elements */
        uint16_t bits = (uint16_t)(ends[k] ^ (ends[k] < 0 ? 0x7fff : 0));
        unsigned char p[2] = {(unsigned char)(bits & 255), (unsigned char)(bits >> 8)};
        (void)NAME(range_run)(p, 1, lo, hi);
    }
    return NAME(range_run)(src + i * ELEM_BYTES, n - i, lo, hi);
}

#else

static uint64_t NAME(range_long)(const unsigned char *src, size_t n, float *lo, float *hi)
{
    vf least = v_set(0), most = v_set(0);
    int all = 1;
    size_t i = 0;
    for (; i + V_LANES <= n && all; i += V_LANES) {
        vf x = v_finite_or_zero(V_LOAD(src + i * ELEM_BYTES), &all);
        least = v_min(least, x);
        most = v_max(most, x);
    }
    if (!all) /* rare: one by one */
        return NAME(range_run)(src, n, lo, hi);
    float low = v_reduce_min(least), high = v_reduce_max(most);
    *lo = low < *lo ? low : *lo;
    *hi = high > *hi ? high : *hi;
    return NAME(range_run)(src + i * ELEM_BYTES, n - i, lo, hi);
}

#endif

/* One row of columns that are sets of their own. */
static uint64_t NAME(range_columns)(const unsigned char *src, size_t n, float *lo, float *hi)
{
    uint64_t others = 0;
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        int all;
        vf x = v_finite_or_zero(V_LOAD(src + i * ELEM_BYTES), &all);
        if (!all) {
            for (size_t k = i; k < i + V_LANES; k++)
                others += NAME(range_run)(src + k * ELEM_BYTES, 1, &lo[k], &hi[k]);
            continue;
        }
        /* Adding 0 makes a negative zero positive, as the comparison of one element does. */
        v_store(lo + i, v_add(v_min(x, v_load(lo + i)), v_set(0)));
        v_store(hi + i, v_add(v_max(x, v_load(hi + i)), v_set(0)));
    }
    for (; i < n; i++)
        others += NAME(range_run)(src + i * ELEM_BYTES, 1, &lo[i], &hi[i]);
    return others;
}

static uint64_t NAME(range)(const struct qp_tile *tile, const void *src, void *lo_, void *hi_)
{
    const unsigned char *from = src;
    float *lo = lo_, *hi = hi_;
    uint64_t others = 0;
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            size_t first = row / tile->band_rows * tile->cols;
            others +=
                NAME(range_columns)((const unsigned char *)src + row * tile->cols * ELEM_BYTES,
                                    tile->cols, lo + first, hi + first);
        }
        return others;
    }
    FOR_EACH_RUN (tile, run) {
        const unsigned char *p = from + run.at * ELEM_BYTES;
        others += NAME(range_long)(p, run.n, &lo[run.set], &hi[run.set]);
    }
    return others;
}

/* ---- quantize ----------------------------------------------------------------------------------
 */

static void NAME(quantize_rest)(const unsigned char *src, size_t n, float s, int32_t z,
                                const struct qp_code_rule *rule, uint8_t *codes)
{
    const float least = (float)(rule->q_min - z), most = (float)(rule->q_max - z);
    for (size_t i = 0; i < n; i++)
        codes[i] = NAME(code)(NAME(at)(src, i), s, z, least, most);
}

/* bounded is a constant where this is called, so there are two loops of it. */
static inline void NAME(quantize_long)(const unsigned char *src, size_t n, float s, int32_t z,
                                       const struct qp_code_rule *rule, int bounded, uint8_t *codes)
{
    const struct v_code_rule codes_rule = v_code_rule(z, rule->q_min, rule->q_max);
    const vf scale = v_set(s);
    size_t i = 0;
    for (; i + V_CODES <= n; i += V_CODES) {
        vf q[4];
        for (int k = 0; k < 4; k++)
            q[k] = v_div(V_LOAD(src + (i + (size_t)k * V_LANES) * ELEM_BYTES), scale);
        v_store_codes(codes + i, q, &codes_rule, bounded);
    }
    NAME(quantize_rest)(src + i * ELEM_BYTES, n - i, s, z, rule, codes + i);
}

/* A row of columns that are sets of their own. */
static void NAME(quantize_columns)(const unsigned char *src, size_t n, const float *s,
                                   const int32_t *z, const struct qp_code_rule *rule,
                                   uint8_t *codes)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        vf q = v_div(V_LOAD(src + i * ELEM_BYTES), v_load(s + i));
        v_store_codes_each(codes + i, q, vi_load(z + i), rule->q_min, rule->q_max);
    }
    for (; i < n; i++)
        NAME(quantize_rest)(src + i * ELEM_BYTES, 1, s[i], z[i], rule, codes + i);
}

static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                           uint8_t *codes)
{
    const unsigned char *from = src;
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            size_t first = row / tile->band_rows * tile->cols, at = row * tile->cols;
            const float *s = (const float *)scale + first;
            const unsigned char *p = from + at * ELEM_BYTES;
            NAME(quantize_columns)(p, tile->cols, s, zero + first, rule, codes + at);
        }
        return;
    }
    FOR_EACH_RUN (tile, run) {
        const unsigned char *p = from + run.at * ELEM_BYTES;
        const float s = ((const float *)scale)[run.set];
        if (rule->bounded)
            NAME(quantize_long)(p, run.n, s, zero[run.set], rule, 1, codes + run.at);
        else
            NAME(quantize_long)(p, run.n, s, zero[run.set], rule, 0, codes + run.at);
    }
}

/* ---- check -------------------------------------------------------------------------------------
 */

/* Judges n elements of one set from at on; whole vectors that surely fit are not looked at. */
static void NAME(check_long)(const unsigned char *src, const float *y, size_t at, size_t n,
                             const struct NAME(ends) * ends, struct qp_check *result)
{
    const vf limit = v_set(sure_limit(ends->bound));
    size_t i = at;
    for (; i + V_LANES <= at + n; i += V_LANES) {
        if (!v_all_within(V_LOAD(src + i * ELEM_BYTES), v_load(y + i), limit))
            NAME(check_run)(src, y, i, i + V_LANES, ends, result);
    }
    NAME(check_run)(src, y, i, at + n, ends, result);
}

/* The same for a row of columns that are sets of their own; first is the set of its first one. */
static void NAME(check_columns)(const unsigned char *src, const float *y, size_t at, size_t n,
                                size_t first, const struct check_sets *sets,
                                struct qp_check *result)
{
    float limits[V_LANES];
    for (size_t i = 0; i < n; i += V_LANES) {
        size_t end = i + V_LANES < n ? i + V_LANES : n;
        for (size_t k = i; k < end; k++)
            limits[k - i] = sure_limit(sets->bound[first + k]);
        if (end - i == V_LANES &&
            v_all_within(V_LOAD(src + (at + i) * ELEM_BYTES), v_load(y + at + i), v_load(limits)))
            continue;
        for (size_t k = i; k < end; k++) {
            const size_t set = first + k;
            const struct NAME(ends) ends =
                NAME(ends_of)(sets->rule, sets->scale[set], sets->zero[set], sets->bound[set]);
            NAME(check_run)(src, y, at + k, at + k + 1, &ends, result);
        }
    }
}

static void NAME(check)(const struct qp_tile *tile, const void *src, const void *y,
                        const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                        const double *bound, struct qp_check *result)
{
    const struct check_sets sets = {rule, scale, zero, bound};
    *result = (struct qp_check){0};
    if (tile->col_width == 1) {
        for (size_t row = 0; row < tile->rows; row++) {
            size_t first = row / tile->band_rows * tile->cols, at = row * tile->cols;
            NAME(check_columns)(src, y, at, tile->cols, first, &sets, result);
        }
        return;
    }
    FOR_EACH_RUN (tile, run) {
        const size_t set = run.set;
        const struct NAME(ends) ends = NAME(ends_of)(rule, sets.scale[set], zero[set], bound[set]);
        NAME(check_long)(src, y, run.at, run.n, &ends, result);
    }
}

/* ---- sums --------------------------------------------------------------------------------------
 */

/* 16 elements from i on, of the source and of the decoded values. */
static inline struct v_lanes16 NAME(source16)(const unsigned char *src, size_t i)
{
    return v_widen16(V_LOAD(src + i * ELEM_BYTES), V_LOAD(src + (i + V_LANES) * ELEM_BYTES));
}

static inline struct v_lanes16 NAME(decoded16)(const float *y, size_t i)
{
    return v_widen16(v_load(y + i), v_load(y + i + V_LANES));
}

/* The rest of a block, behind its last 16 elements, goes into the first lanes. */
static void NAME(sums_rest)(const unsigned char *src, const float *y, size_t n, double lanes[4][16],
                            double *max_abs)
{
    for (size_t i = 0; i < n; i++) {
        double x = (double)NAME(at)(src, i), e = x - (double)y[i];
        lanes[0][i] += e * e;
        lanes[1][i] += x * x;
        lanes[2][i] += (double)y[i] * (double)y[i];
        lanes[3][i] += x * (double)y[i];
        *max_abs = fabs(e) > *max_abs ? fabs(e) : *max_abs;
    }
}

/* Two passes over a block, which the first-level cache holds: four sums want too many registers. */
static void NAME(sums)(const void *src, const void *y, size_t n, double floor,
                       struct qp_sums *result)
{
    struct v_lanes16 e2 = v_zero16(), x2 = v_zero16(), y2 = v_zero16(), xy = v_zero16();
    vd largest = vd_set(-1);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        struct v_lanes16 x = NAME(source16)(src, i), e = v_sub16(x, NAME(decoded16)(y, i));
        v_add_product16(&e2, e, e);
        v_add_product16(&x2, x, x);
        largest = v_max_abs16(largest, e);
    }
    for (size_t k = 0; k < i; k += 16) {
        struct v_lanes16 x = NAME(source16)(src, k), d = NAME(decoded16)(y, k);
        v_add_product16(&y2, d, d);
        v_add_product16(&xy, x, d);
    }
    double lanes[4][16], max_abs = vd_reduce_max(largest);
    v_store16(lanes[0], &e2);
    v_store16(lanes[1], &x2);
    v_store16(lanes[2], &y2);
    v_store16(lanes[3], &xy);
    const unsigned char *rest = (const unsigned char *)src + i * ELEM_BYTES;
    NAME(sums_rest)(rest, (const float *)y + i, n - i, lanes, &max_abs);
    *result = (struct qp_sums){tree16(lanes[0]), tree16(lanes[1]), tree16(lanes[2]),
                               tree16(lanes[3]), max_abs,          0};
    /* Squares of finite f32 values cannot overflow: then there was another. Rare: one by one. */
    if (!(result->x2 <= DBL_MAX))
        NAME(sums_block)(src, y, n, floor, result);
    else if (max_abs > floor)
        result->max_at = NAME(find_error)(src, y, n, max_abs);
}

static const struct qp_source_kernels NAME(source) = {
    .dtype = SOURCE_DTYPE,
    .isa = ISA,
    .elem_bytes = ELEM_BYTES,
    .work_bytes = sizeof(float),
    .work = &WORK_KERNELS,
    .range = NAME(range),
    .quantize = NAME(quantize),
    .check = NAME(check),
    .sums = NAME(sums),
};

#undef INFINITY_BITS
#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef V_LOAD
