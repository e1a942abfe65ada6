/*
 * vector_range.inc.h - the ranges of a tile of one source dtype in the vector vocabulary.
 * vector.inc.h includes it and says what must be defined.
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

/* The tops of n elements. No element of the signed ones has a sign: 0 is one of them. */
static inline struct NAME(tops) NAME(tops_of)(const unsigned char *src, size_t n)
{
    struct NAME(tops) even = {vb_zero(), vb_zero()}, odd = even;
    size_t i = 0;
    if (n >= 2 * PER_VECTOR) {
        even.u = even.s = vb_load(src);
        odd.u = odd.s = vb_load(src + V_BYTES);
        i = 2 * PER_VECTOR;
    }
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
    const vb most = V_BITS(max_s)(even.s, odd.s);
    return (struct NAME(tops)){V_BITS(max_u)(even.u, odd.u), V_BITS(max_s)(most, vb_zero())};
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

/* A set of n columns in some rows; stride is that of the rows, in elements. */
static uint64_t NAME(range_set)(const unsigned char *src, size_t rows, size_t stride, size_t n,
                                float *lo, float *hi)
{
    uint64_t others = 0;
    for (size_t row = 0; row < rows; row++)
        others += NAME(range_long)(src + row * stride * ELEM_BYTES, n, lo, hi);
    return others;
}

/* V_LANES such sets side by side: their tops become ranges at once. */
static uint64_t NAME(range_sets)(const unsigned char *src, size_t rows, size_t stride, size_t n,
                                 float *lo, float *hi)
{
    vb both[V_LANES]; /* the tops of either kind, in halves */
    unsigned char low[V_LANES * ELEM_BYTES], high[V_LANES * ELEM_BYTES];
    for (size_t row = 0; row < rows; row++) {
        for (size_t k = 0; k < V_LANES; k++) {
            const size_t at = row * stride + k * n;
            const struct NAME(tops) tops = NAME(tops_of)(src + at * ELEM_BYTES, n);
            const vb met = V_BITS(meet)(tops.u, tops.s);
            both[k] = row ? V_BITS(max_u)(both[k], met) : met;
        }
    }
    V_BITS(store_tops)(low, high, both);
    if (NAME(widen)(low, high, lo, hi))
        return 0;
    uint64_t others = 0;
    for (size_t k = 0; k < V_LANES; k++)
        others += NAME(range_set)(src + k * n * ELEM_BYTES, rows, stride, n, &lo[k], &hi[k]);
    return others;
}

/* So long that finding the top of a run counts for little. */
#define LONG_RUN 1024

/* The ranges of n_sets sets side by side, of n columns each. */
static uint64_t NAME(range_band)(const unsigned char *src, size_t rows, size_t stride,
                                 size_t n_sets, size_t n, float *lo, float *hi)
{
    uint64_t others = 0;
    size_t k = 0;
    for (; n < LONG_RUN && k + V_LANES <= n_sets; k += V_LANES)
        others += NAME(range_sets)(src + k * n * ELEM_BYTES, rows, stride, n, lo + k, hi + k);
    for (; k < n_sets; k++)
        others += NAME(range_set)(src + k * n * ELEM_BYTES, rows, stride, n, &lo[k], &hi[k]);
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

/* Sets of several columns, the first of which is whole. */
static uint64_t NAME(range_bands)(const struct qp_tile *tile, const unsigned char *src, float *lo,
                                  float *hi)
{
    const size_t cols = tile->cols, width = tile->col_width, n_sets = cols / width;
    const size_t whole = n_sets * width;
    uint64_t others = 0;
    FOR_EACH_BAND(tile, band)
    {
        const unsigned char *p = src + band.row * cols * ELEM_BYTES, *rest = p + whole * ELEM_BYTES;
        float *low = lo + band.set, *high = hi + band.set;
        others += NAME(range_band)(p, band.n_rows, cols, n_sets, width, low, high);
        if (whole < cols)
            others +=
                NAME(range_set)(rest, band.n_rows, cols, cols - whole, low + n_sets, high + n_sets);
    }
    return others;
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
        return NAME(range_band)(from, 1, 0, tile->rows * (tile->cols / width), width, lo, hi);
    if (tile->col_skip == 0)
        return NAME(range_bands)(tile, from, lo, hi);
    FOR_EACH_RUN (tile, run) {
        const unsigned char *p = from + run.at * ELEM_BYTES;
        others += NAME(range_long)(p, run.n, &lo[run.set], &hi[run.set]);
    }
    return others;
}

#undef PER_VECTOR
#undef PER_LINE
#undef LONG_RUN
#undef SIGN_BIT
