/*
 * vector.inc.h - the loops of one source dtype in the vector vocabulary, for f32 working precision.
 *
 * The including file has included a vocabulary and defines what element.inc.h needs, V_LOAD(p),
 * V_BITS(word) for elements as integers, INFINITY_BITS (of
 * +Inf), SOURCE_DTYPE, ISA, WORK_KERNELS.
 * Every result is bit for bit that of source.inc.h.
 */

#include "element.inc.h"

/* ---- range -------------------------------------------------------------------------------------
 */

#define PER_VECTOR (V_BYTES / ELEM_BYTES)
#define SIGN_BIT   (1u << (8 * ELEM_BYTES - 1))

/*
 * Of the bits of floats the largest as a signed integer is the largest value, or has a sign if all
 * have; the largest as an unsigned one is the least value, or has none if none has. Together with
 * 0, which every range includes, they are the ends; and a NaN or an infinity would be one of them.
 */
struct NAME(tops) {
    vb u, s;
};

static inline void NAME(raise)(struct NAME(tops) * tops, vb x)
{
    tops->u = V_BITS(max_u)(tops->u, x);
    tops->s = V_BITS(max_s)(tops->s, x);
}

/* The element of these bits. */
static inline float NAME(of_bits)(uint32_t bits)
{
    unsigned char p[ELEM_BYTES];
    for (int k = 0; k < ELEM_BYTES; k++)
        p[k] = (unsigned char)(bits >> (8 * k) & 255);
    return NAME(at)(p, 0);
}

/* The tops of n elements. No element of the signed ones has a sign: they begin at 0. */
static inline struct NAME(tops) NAME(tops_of)(const unsigned char *src, size_t n)
{
    struct NAME(tops) even = {vb_zero(), vb_zero()}, odd = even;
    size_t i = 0;
    for (; i + 2 * PER_VECTOR <= n; i += 2 * PER_VECTOR) {
        NAME(raise)(&even, vb_load(src + i * ELEM_BYTES));
        NAME(raise)(&odd, vb_load(src + i * ELEM_BYTES + V_BYTES));
    }
    if (i + PER_VECTOR <= n) {
        NAME(raise)(&even, vb_load(src + i * ELEM_BYTES));
        i += PER_VECTOR;
    }
    if (i < n)
        NAME(raise)(&odd, vb_load_part(src + i * ELEM_BYTES, (n - i) * ELEM_BYTES));
    return (struct NAME(tops)){V_BITS(max_u)(even.u, odd.u), V_BITS(max_s)(even.s, odd.s)};
}

static uint64_t NAME(range_long)(const unsigned char *src, size_t n, float *lo, float *hi)
{
    const struct NAME(tops) tops = NAME(tops_of)(src, n);
    const uint32_t low = V_BITS(top_u)(tops.u), high = V_BITS(top_u)(tops.s);
    if ((low & ~SIGN_BIT) >= INFINITY_BITS || high >= INFINITY_BITS) /* rare: one by one */
        return NAME(range_run)(src, n, lo, hi);
    const float least = NAME(of_bits)(low), most = NAME(of_bits)(high);
    *lo = least < *lo ? least : *lo;
    *hi = most > *hi ? most : *hi;
    return 0;
}

/* Columns that are sets of their own, one by one; stride is that of the rows, in elements. */
static uint64_t NAME(range_few)(const unsigned char *src, size_t rows, size_t stride, size_t n,
                                float *lo, float *hi)
{
    uint64_t others = 0;
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < n; i++)
            others += NAME(range_run)(src + (row * stride + i) * ELEM_BYTES, 1, &lo[i], &hi[i]);
    }
    return others;
}

/* Widens V_LANES ranges by as many tops of either kind; false, where one is not finite. */
static inline bool NAME(widen)(const unsigned char *low, const unsigned char *high, float *lo,
                               float *hi)
{
    int low_finite, high_finite;
    const vf least = v_finite_or_zero(V_LOAD(low), &low_finite);
    const vf most = v_finite_or_zero(V_LOAD(high), &high_finite);
    if (!low_finite || !high_finite)
        return false;
    /* Adding 0 makes a negative zero positive, as the comparison of one element does. */
    v_store(lo, v_add(v_min(least, v_load(lo)), v_set(0)));
    v_store(hi, v_add(v_max(most, v_load(hi)), v_set(0)));
    return true;
}

#define PER_LINE (2 * PER_VECTOR)

/* V_LANES runs of n elements, one behind the other, each a set: their tops become ranges at once.
 */
static uint64_t NAME(range_runs)(const unsigned char *src, size_t n, float *lo, float *hi)
{
    vb u[V_LANES], s[V_LANES];
    unsigned char low[V_LANES * ELEM_BYTES], high[V_LANES * ELEM_BYTES];
    for (size_t k = 0; k < V_LANES; k++) {
        const struct NAME(tops) tops = NAME(tops_of)(src + k * n * ELEM_BYTES, n);
        u[k] = tops.u;
        s[k] = tops.s;
    }
    V_BITS(store_tops)(low, u);
    V_BITS(store_tops)(high, s);
    if (NAME(widen)(low, high, lo, hi))
        return 0;
    uint64_t others = 0;
    for (size_t k = 0; k < V_LANES; k++)
        others += NAME(range_long)(src + k * n * ELEM_BYTES, n, &lo[k], &hi[k]);
    return others;
}

/* So long that finding the top of a run counts for little. */
#define LONG_RUN 1024

/* n_runs runs of n elements, one behind the other, each a set. */
static uint64_t NAME(range_even)(const unsigned char *src, size_t n_runs, size_t n, float *lo,
                                 float *hi)
{
    uint64_t others = 0;
    size_t k = 0;
    for (; n < LONG_RUN && k + V_LANES <= n_runs; k += V_LANES)
        others += NAME(range_runs)(src + k * n * ELEM_BYTES, n, lo + k, hi + k);
    for (; k < n_runs; k++)
        others += NAME(range_long)(src + k * n * ELEM_BYTES, n, &lo[k], &hi[k]);
    return others;
}

/* A cache line of such columns: tops first, then all their ranges at once. */
static uint64_t NAME(range_line)(const unsigned char *src, size_t rows, size_t stride, float *lo,
                                 float *hi)
{
    struct NAME(tops) left = {vb_zero(), vb_zero()}, right = left;
    unsigned char low[2 * V_BYTES], high[2 * V_BYTES];
    for (size_t row = 0; row < rows; row++) {
        const unsigned char *p = src + row * stride * ELEM_BYTES;
        NAME(raise)(&left, vb_load(p));
        NAME(raise)(&right, vb_load(p + V_BYTES));
    }
    vb_store(low, left.u);
    vb_store(low + V_BYTES, right.u);
    vb_store(high, left.s);
    vb_store(high + V_BYTES, right.s);
    for (size_t i = 0; i < PER_LINE; i += V_LANES) {
        /* Rare; what is in a range already may be in it again. */
        if (!NAME(widen)(low + i * ELEM_BYTES, high + i * ELEM_BYTES, lo + i, hi + i))
            return NAME(range_few)(src, rows, stride, PER_LINE, lo, hi);
    }
    return 0;
}

static uint64_t NAME(range_columns)(const unsigned char *src, size_t rows, size_t cols, float *lo,
                                    float *hi)
{
    uint64_t others = 0;
    size_t i = 0;
    for (; i + PER_LINE <= cols; i += PER_LINE)
        others += NAME(range_line)(src + i * ELEM_BYTES, rows, cols, lo + i, hi + i);
    return others + NAME(range_few)(src + i * ELEM_BYTES, rows, cols, cols - i, lo + i, hi + i);
}

static uint64_t NAME(range)(const struct qp_tile *tile, const void *src, void *lo_, void *hi_)
{
    const unsigned char *from = src;
    float *lo = lo_, *hi = hi_;
    uint64_t others = 0;
    if (tile->col_width == 1) {
        FOR_EACH_BAND(tile, band)
        {
            const unsigned char *p = from + band.row * tile->cols * ELEM_BYTES;
            others += NAME(range_columns)(p, band.n_rows, tile->cols, lo + band.set, hi + band.set);
        }
        return others;
    }
    const size_t width = qp_even_runs(tile);
    if (width)
        return NAME(range_even)(from, tile->rows * (tile->cols / width), width, lo, hi);
    FOR_EACH_RUN (tile, run) {
        const unsigned char *p = from + run.at * ELEM_BYTES;
        others += NAME(range_long)(p, run.n, &lo[run.set], &hi[run.set]);
    }
    return others;
}

/* ---- quantize ----------------------------------------------------------------------------------
 */

/*
 * V_CODES elements, each vector of them with its own scales, each pair with its own zero points.
 * way is a constant where this is called.
 */
static inline void NAME(quantize_step)(const unsigned char *src, const struct v_scale scale[4],
                                       const vh above[2], const struct v_code_ends *ends,
                                       enum v_way way, uint8_t *codes)
{
    vf q[4];
    for (size_t k = 0; k < 4; k++)
        q[k] = v_quotient(V_LOAD(src + k * V_LANES * ELEM_BYTES), &scale[k], way);
    v_store_codes(codes, q, above, ends, way == V_BOUNDED);
}

/* n < V_CODES elements, filled up with zeros. */
static inline void NAME(quantize_rest)(const unsigned char *src, size_t n,
                                       const struct v_scale scale[4], const vh above[2],
                                       const struct v_code_ends *ends, enum v_way way,
                                       uint8_t *codes)
{
    unsigned char from[V_CODES * ELEM_BYTES] = {0};
    uint8_t to[V_CODES];
    memcpy(from, src, n * ELEM_BYTES);
    NAME(quantize_step)(from, scale, above, ends, way, to);
    memcpy(codes, to, n);
}

/* n elements of one set, the k-th of a few. */
static inline void NAME(quantize_run)(const unsigned char *src, size_t n,
                                      const struct few_sets *few, size_t k,
                                      const struct v_code_ends *ends, enum v_way way,
                                      uint8_t *codes)
{
    const struct v_scale one = v_scale_of(few, k), scale[4] = {one, one, one, one};
    const vh all = vh_set((int16_t)few->above[k]), above[2] = {all, all};
    size_t i = 0;
    for (; i + V_CODES <= n; i += V_CODES)
        NAME(quantize_step)(src + i * ELEM_BYTES, scale, above, ends, way, codes + i);
    if (i < n)
        NAME(quantize_rest)(src + i * ELEM_BYTES, n - i, scale, above, ends, way, codes + i);
}

/* V_CODES elements of sets from k on, each of which has one vector or two. */
static inline void NAME(quantize_short)(const unsigned char *src, size_t width,
                                        const struct few_sets *few, size_t k,
                                        const struct v_code_ends *ends, enum v_way way,
                                        uint8_t *codes)
{
    const size_t second = k + (width == V_LANES), third = k + 2 * V_LANES / width;
    const size_t set[4] = {k, second, third, third + second - k};
    struct v_scale scale[4];
    vi above[4];
    for (size_t i = 0; i < 4; i++) {
        scale[i] = v_scale_of(few, set[i]);
        above[i] = vi_set(few->above[set[i]]);
    }
    const vh pairs[2] = {vh_narrow(above[0], above[1]), vh_narrow(above[2], above[3])};
    NAME(quantize_step)(src, scale, pairs, ends, way, codes);
}

/* A part of a row: n elements in runs of `width`, the first of which lacks `skip`. */
static inline void NAME(quantize_runs)(const unsigned char *src, size_t n, size_t width,
                                       size_t skip, const struct few_sets *few,
                                       const struct v_code_ends *ends, enum v_way way,
                                       uint8_t *codes)
{
    size_t i = 0, k = 0;
    if (skip == 0 && (width == V_LANES || width == 2 * V_LANES)) {
        for (; i + V_CODES <= n; i += V_CODES, k += V_CODES / width)
            NAME(quantize_short)(src + i * ELEM_BYTES, width, few, k, ends, way, codes + i);
    }
    for (; i < n; k++) {
        const size_t most = width - (k == 0 ? skip : 0), len = n - i < most ? n - i : most;
        NAME(quantize_run)(src + i * ELEM_BYTES, len, few, k, ends, way, codes + i);
        i += len;
    }
}

/* n <= FEW_SETS columns of a row that are sets of their own. */
static inline void NAME(quantize_columns)(const unsigned char *src, size_t n,
                                          const struct few_sets *few,
                                          const struct v_code_ends *ends, enum v_way way,
                                          uint8_t *codes)
{
    for (size_t i = 0; i < n; i += V_CODES) {
        struct v_scale scale[4];
        vh above[2];
        for (size_t k = 0; k < 4; k++) {
            const size_t at = i + k * V_LANES;
            scale[k] =
                (struct v_scale){v_load(few->s + at), v_load(few->hi + at), v_load(few->lo + at)};
        }
        for (size_t k = 0; k < 2; k++) {
            const int32_t *from = few->above + i + 2 * k * V_LANES;
            above[k] = vh_narrow(vi_load(from), vi_load(from + V_LANES));
        }
        const unsigned char *from = src + i * ELEM_BYTES;
        if (n - i >= V_CODES)
            NAME(quantize_step)(from, scale, above, ends, way, codes + i);
        else
            NAME(quantize_rest)(from, n - i, scale, above, ends, way, codes + i);
    }
}

/* The rows of a band, a few sets at a time. */
static inline void NAME(quantize_band)(const struct quantize_job *job, const struct qp_band *band,
                                       const unsigned char *src, enum v_way way, uint8_t *codes)
{
    const struct qp_tile *tile = &job->tile;
    const size_t sets = qp_tile_cols(tile), width = tile->col_width;
    struct few_sets few = {{0}, {0}, {0}, {0}};
    for (size_t k = 0, col = 0; k < sets; k += FEW_SETS) {
        const size_t n = sets - k < FEW_SETS ? sets - k : FEW_SETS, set = band->set + k;
        const size_t skip = k == 0 ? tile->col_skip : 0, left = tile->cols - col;
        const size_t n_cols = n * width - skip < left ? n * width - skip : left;
        few_sets_of(job->rule, job->scale + set, job->zero + set, n, &few);
        for (size_t row = 0; row < band->n_rows; row++) {
            const size_t at = row * tile->cols + col;
            const unsigned char *from = src + at * ELEM_BYTES;
            if (width == 1)
                NAME(quantize_columns)(from, n, &few, &job->ends, way, codes + at);
            else
                NAME(quantize_runs)(from, n_cols, width, skip, &few, &job->ends, way, codes + at);
        }
        col += n_cols;
    }
}

static inline void NAME(quantize_tile)(const struct quantize_job *job, const unsigned char *src,
                                       enum v_way way, uint8_t *codes)
{
    FOR_EACH_BAND(&job->tile, band)
    {
        const size_t at = band.row * job->tile.cols;
        NAME(quantize_band)(job, &band, src + at * ELEM_BYTES, way, codes + at);
    }
}

/* A loop for each way. */
static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                           uint8_t *codes)
{
    const size_t width = qp_even_runs(tile);
    const struct qp_tile row = {1, tile->rows * tile->cols, 1, width, 0};
    const struct quantize_job job = {width ? row : *tile, rule, scale, zero,
                                     v_ends_of(rule->q_min, rule->q_max)};
    const enum v_way way = v_way_of(rule, scale, qp_tile_sets(tile));
    if (way == V_BOUNDED)
        NAME(quantize_tile)(&job, src, V_BOUNDED, codes);
    else if (way == V_CLAMP)
        NAME(quantize_tile)(&job, src, V_CLAMP, codes);
    else
        NAME(quantize_tile)(&job, src, V_DIVIDE, codes);
}

/* ---- check -------------------------------------------------------------------------------------
 */

#define CHECKED (4 * V_LANES)

/* Judges n elements of one set from at on; those that surely fit are not looked at. */
static void NAME(check_long)(const unsigned char *src, const float *y, size_t at, size_t n,
                             const struct NAME(ends) * ends, struct qp_check *result)
{
    const vf limit = v_set(sure_limit(ends->bound));
    size_t i = at;
    for (; i + CHECKED <= at + n; i += CHECKED) {
        vm within[4];
        for (size_t k = 0; k < 4; k++) {
            size_t j = i + k * V_LANES;
            within[k] = v_within(V_LOAD(src + j * ELEM_BYTES), v_load(y + j), limit);
        }
        if (!vm_all(vm_and(vm_and(within[0], within[1]), vm_and(within[2], within[3]))))
            NAME(check_run)(src, y, i, i + CHECKED, ends, result);
    }
    for (; i + V_LANES <= at + n; i += V_LANES) {
        if (!vm_all(v_within(V_LOAD(src + i * ELEM_BYTES), v_load(y + i), limit)))
            NAME(check_run)(src, y, i, i + V_LANES, ends, result);
    }
    NAME(check_run)(src, y, i, at + n, ends, result);
}

/* The same for a row of columns that are sets of their own; first is the set of its first one. */
static void NAME(check_columns)(const unsigned char *src, const float *y, size_t at, size_t n,
                                size_t first, const struct check_sets *sets,
                                struct qp_check *result)
{
    for (size_t i = 0; i < n; i += V_LANES) {
        size_t end = i + V_LANES < n ? i + V_LANES : n;
        if (end - i == V_LANES &&
            vm_all(v_within(V_LOAD(src + (at + i) * ELEM_BYTES), v_load(y + at + i),
                            v_sure_limits(sets->bound + first + i))))
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

/* The rest of a block, behind its last 16 elements, goes into the first lanes. */
static double NAME(sums_rest)(const unsigned char *src, const float *y, size_t n,
                              double lanes[3][16])
{
    double most = -1;
    for (size_t i = 0; i < n; i++) {
        double x = (double)NAME(at)(src, i), e = x - (double)y[i];
        lanes[0][i] += e * e;
        lanes[1][i] += x * x;
        lanes[2][i] += (double)y[i] * (double)y[i];
        most = fabs(e) > most ? fabs(e) : most;
    }
    return most;
}

/*
 * The first step of a chunk: the errors of n elements in f32, or the elements themselves. Returns
 * the largest error. exact is a constant where this is called.
 */
static inline vf NAME(errors)(const unsigned char *src, const float *y, size_t n, int exact,
                              float *out)
{
    vf most = v_set(-1);
    for (size_t i = 0; i < n; i += 16) {
        for (size_t k = 0; k < 16; k += V_LANES) {
            const vf x = V_LOAD(src + (i + k) * ELEM_BYTES), e = v_sub(x, v_load(y + i + k));
            v_store(out + i + k, exact ? e : x);
            most = v_max(v_abs(e), most);
        }
    }
    return most;
}

/*
 * The share of the step from 0 to the next y up to which errors are exact in f32: x is then so near
 * y that both are multiples of a number of which their difference has at most 2^24.
 */
#define EXACT_SHARE (ELEM_BYTES == 2 ? 0.75f : 0.5f * (1 - 0x1p-22f))

/* A chunk of n elements, from at on, with bounds. */
static void NAME(sums_bounded)(const unsigned char *src, const float *y, size_t at, size_t n,
                               const struct qp_sums_wish *wish, struct v_sums *sums)
{
    float values[SUMS_CHUNK]; /* errors; or elements, if those are not exact */
    const float *step = wish->step;
    const size_t width = wish->width;
    size_t i = 0;
    for (size_t k = at / width; i < n; k++) {
        const size_t end = (k + 1) * width < at + n ? (k + 1) * width - at : n;
        const vf most =
            NAME(errors)(src + (at + i) * ELEM_BYTES, y + at + i, end - i, 1, values + i);
        sums->most = v_max(most, sums->most);
        sums->within = vm_and(sums->within, v_at_most(most, v_set(sure_limit(wish->bound[k]))));
        sums->exact = vm_and(sums->exact, v_at_most(most, v_set(EXACT_SHARE * step[k])));
        i = end;
    }
    if (vm_all(sums->exact)) {
        add_exact_chunk(&sums->lanes, y + at, values, n);
        return;
    }
    (void)NAME(errors)(src + at * ELEM_BYTES, y + at, n, 0, values);
    add_any_chunk(&sums->lanes, y + at, values, n);
}

static void NAME(sums_unbounded)(const unsigned char *src, const float *y, size_t at, size_t n,
                                 struct v_sums *sums)
{
    float x[SUMS_CHUNK];
    sums->most = v_max(NAME(errors)(src + at * ELEM_BYTES, y + at, n, 0, x), sums->most);
    add_any_chunk(&sums->lanes, y + at, x, n);
}

static void NAME(sums)(const void *src, const void *y_, size_t n, const struct qp_sums_wish *wish,
                       struct qp_sums *result)
{
    const size_t whole = n - n % 16;
    const float *y = y_;
    struct v_sums sums;
    double lanes[3][16];
    begin_sums(&sums, wish->width > 0);
    for (size_t i = 0; i < whole; i += SUMS_CHUNK) {
        const size_t left = whole - i < SUMS_CHUNK ? whole - i : SUMS_CHUNK;
        if (wish->width)
            NAME(sums_bounded)(src, y, i, left, wish, &sums);
        else
            NAME(sums_unbounded)(src, y, i, left, &sums);
    }
    store_sums(lanes, &sums.lanes);
    const unsigned char *rest = (const unsigned char *)src + whole * ELEM_BYTES;
    const double most = NAME(sums_rest)(rest, y + whole, n - whole, lanes);
    const double e2 = tree16(lanes[0]), x2 = tree16(lanes[1]), y2 = tree16(lanes[2]);
    /* No comparison sees an error that is a NaN, but its sum does. */
    const bool within = vm_all(sums.within) && e2 <= DBL_MAX;
    *result = (struct qp_sums){e2, x2, y2, wish->floor, 0, within};
    /* Squares of finite f32 values cannot overflow: then there was another. Rare: one by one. */
    if (!(x2 <= DBL_MAX))
        NAME(sums_block)(src, y, n, wish, result);
    else if (most > wish->floor || largest_of(&sums) > wish->floor)
        NAME(find_largest)(src, y, n, result);
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

#undef PER_VECTOR
#undef PER_LINE
#undef LONG_RUN
#undef CHECKED
#undef EXACT_SHARE
#undef SIGN_BIT
#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef V_LOAD
#undef V_BITS
#undef INFINITY_BITS
