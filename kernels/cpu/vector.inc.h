/*
 * vector.inc.h - the loops of one source dtype in the vector vocabulary, for f32 working precision.
 *
 * The including file has included a vocabulary and defines what element.inc.h needs, V_LOAD(p),
 * V_BITS(word) for elements as integers, INFINITY_BITS (of +Inf), SOURCE_DTYPE, ISA, WORK_KERNELS.
 * Every result is bit for bit that of source.inc.h.
 */

#include "element.inc.h"

#include "vector_quantize.inc.h"
#include "vector_range.inc.h"

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

/* One vector of these, from i on. */
static inline void NAME(error)(const unsigned char *src, const float *y, size_t i, int exact,
                               float *out, vf *most)
{
    const vf x = V_LOAD(src + i * ELEM_BYTES), e = v_sub(x, v_load(y + i));
    v_store(out + i, exact ? e : x);
    *most = v_max(v_abs(e), *most);
}

/*
 * The first step of a chunk: the errors of n elements in f32, or the elements themselves. Returns
 * the largest error. exact is a constant where this is called.
 */
static inline vf NAME(errors)(const unsigned char *src, const float *y, size_t n, int exact,
                              float *out)
{
    vf most[4] = {v_set(-1), v_set(-1), v_set(-1), v_set(-1)}; /* a maximum takes some cycles */
    size_t i = 0;
    for (; i + 4 * V_LANES <= n; i += 4 * V_LANES) {
        for (size_t k = 0; k < 4; k++)
            NAME(error)(src, y, i + k * V_LANES, exact, out, &most[k]);
    }
    for (; i < n; i += V_LANES)
        NAME(error)(src, y, i, exact, out, &most[0]);
    return v_max(v_max(most[0], most[1]), v_max(most[2], most[3]));
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

#undef CHECKED
#undef EXACT_SHARE
#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef V_LOAD
#undef V_BITS
#undef INFINITY_BITS
