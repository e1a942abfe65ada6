/*
 * source.inc.h - the kernels that read one float dtype, as a template: the specification.
 *
 * The including file defines what element.inc.h needs; WIDEN(bits), GET(p), UINT and SINT for
 * elements as integers, INF_BITS (of +Inf); LIMIT(bound); SOURCE_DTYPE; IN(op) of the working
 * precision. Plain C, one IEEE operation at a time; a faster kernel must give the same bits. Loops
 * have no branches and no calls, so that a compiler makes vectors of them: what is rare is found by
 * such a loop, and then done one by one.
 */

#include "element.inc.h"

/* ---- range ----------------------------------------------------------------------------------- */

/*
 * Of the bits of floats the largest as a signed integer is the largest value, or has a sign if all
 * have; the largest as an unsigned one is the least value, or has none if none has. Together with
 * 0, which every range includes, they are the ends; and a NaN or an infinity would be one of them.
 */
static inline bool NAME(tops_finite)(UINT low, SINT high)
{
    const UINT magnitude = (UINT)(low << 1) >> 1;
    return (magnitude < INF_BITS) & (high < (SINT)INF_BITS);
}

static inline void NAME(widen_range)(UINT low, SINT high, WORK *lo, WORK *hi)
{
    const WORK least = WIDEN(low), most = WIDEN((UINT)high);
    *lo = least < *lo ? least : *lo;
    *hi = most > *hi ? most : *hi;
}

static uint64_t NAME(range_of_run)(const unsigned char *src, size_t n, WORK *lo, WORK *hi)
{
    UINT low = 0;
    SINT high = 0;
    for (size_t i = 0; i < n; i++) {
        const UINT bits = GET(src + i * ELEM_BYTES);
        low = bits > low ? bits : low;
        high = (SINT)bits > high ? (SINT)bits : high;
    }
    if (!NAME(tops_finite)(low, high))
        return NAME(range_run)(src, n, lo, hi);
    NAME(widen_range)(low, high, lo, hi);
    return 0;
}

/* One column that is a set of its own, one by one; stride is that of the rows. */
static uint64_t NAME(range_of_column)(const unsigned char *src, size_t rows, size_t stride,
                                      WORK *lo, WORK *hi)
{
    uint64_t others = 0;
    for (size_t row = 0; row < rows; row++)
        others += NAME(range_run)(src + row * stride * ELEM_BYTES, 1, lo, hi);
    return others;
}

/* n <= TOGETHER columns that are sets of their own. */
static uint64_t NAME(range_of_columns)(const unsigned char *src, size_t rows, size_t stride,
                                       size_t n, WORK *lo, WORK *hi)
{
    UINT low[TOGETHER] = {0};
    SINT high[TOGETHER] = {0};
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < n; i++) {
            const UINT bits = GET(src + (row * stride + i) * ELEM_BYTES);
            low[i] = bits > low[i] ? bits : low[i];
            high[i] = (SINT)bits > high[i] ? (SINT)bits : high[i];
        }
    }
    uint64_t others = 0;
    for (size_t i = 0; i < n; i++) {
        if (NAME(tops_finite)(low[i], high[i]))
            NAME(widen_range)(low[i], high[i], &lo[i], &hi[i]);
        else
            others += NAME(range_of_column)(src + i * ELEM_BYTES, rows, stride, &lo[i], &hi[i]);
    }
    return others;
}

static uint64_t NAME(range)(const struct qp_tile *tile, const void *src, void *lo_, void *hi_)
{
    const unsigned char *from = src;
    WORK *lo = lo_, *hi = hi_;
    uint64_t others = 0;
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run) {
            const unsigned char *p = from + run.at * ELEM_BYTES;
            others += NAME(range_of_run)(p, run.n, &lo[run.set], &hi[run.set]);
        }
        return others;
    }
    FOR_EACH_BAND(tile, band)
    {
        for (size_t i = 0, next; i < tile->cols; i = next) {
            const unsigned char *p = from + (band.row * tile->cols + i) * ELEM_BYTES;
            const size_t set = band.set + i;
            next = after_together(i, tile->cols);
            others +=
                NAME(range_of_columns)(p, band.n_rows, tile->cols, next - i, &lo[set], &hi[set]);
        }
    }
    return others;
}

/* ---- quantize -------------------------------------------------------------------------------- */

static void NAME(quantize_run)(const unsigned char *restrict src, size_t n, WORK scale,
                               int32_t zero, const struct qp_code_rule *rule,
                               uint8_t *restrict codes)
{
    const WORK least = (WORK)(rule->q_min - zero), most = (WORK)(rule->q_max - zero);
    for (size_t i = 0; i < n; i++)
        codes[i] = NAME(code)(NAME(at)(src, i), scale, zero, least, most);
}

/* A row of columns that are sets of their own. */
static void NAME(quantize_columns)(const unsigned char *restrict src, size_t n,
                                   const WORK *restrict scale, const int32_t *restrict zero,
                                   const struct qp_code_rule *rule, uint8_t *restrict codes)
{
    const int32_t q_min = rule->q_min, q_max = rule->q_max;
    for (size_t i = 0; i < n; i++)
        codes[i] = NAME(code)(NAME(at)(src, i), scale[i], zero[i], (WORK)(q_min - zero[i]),
                              (WORK)(q_max - zero[i]));
}

static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale_, const int32_t *zero,
                           uint8_t *codes)
{
    const unsigned char *from = src;
    const WORK *scale = scale_;
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run) {
            const unsigned char *p = from + run.at * ELEM_BYTES;
            NAME(quantize_run)(p, run.n, scale[run.set], zero[run.set], rule, codes + run.at);
        }
        return;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = row * tile->cols, set = row / tile->band_rows * tile->cols;
        const unsigned char *p = from + at * ELEM_BYTES;
        NAME(quantize_columns)(p, tile->cols, scale + set, zero + set, rule, codes + at);
    }
}

/* ---- check ----------------------------------------------------------------------------------- */

/* Whether n elements surely fit: if not, they are judged one by one. */
static bool NAME(all_within)(const unsigned char *src, const WORK *y, size_t n, WORK limit)
{
    unsigned outside = 0;
    for (size_t i = 0; i < n; i++)
        outside |= !(ABS(NAME(at)(src, i) - y[i]) <= limit);
    return !outside;
}

static void NAME(check_set)(const unsigned char *src, const WORK *y, size_t at, size_t n,
                            const struct NAME(sets) * sets, size_t set, struct qp_check *result)
{
    const WORK limit = LIMIT(sets->bound[set]);
    for (size_t i = at, next; i < at + n; i = next) {
        next = after_together(i, at + n);
        if (!NAME(all_within)(src + i * ELEM_BYTES, y + i, next - i, limit))
            NAME(check_run)(src, y, i, next, sets, set, result);
    }
}

/* Whether n columns that are sets of their own surely fit. */
static bool NAME(columns_within)(const unsigned char *src, const WORK *y, size_t n,
                                 const double *bound)
{
    unsigned outside = 0;
    for (size_t i = 0; i < n; i++)
        outside |= !(ABS(NAME(at)(src, i) - y[i]) <= LIMIT(bound[i]));
    return !outside;
}

/* Judges a row of n columns that are sets of their own, from the set `first` on. */
static void NAME(check_columns)(const unsigned char *src, const WORK *y, size_t at, size_t n,
                                const struct NAME(sets) * sets, size_t first,
                                struct qp_check *result)
{
    for (size_t i = 0, next; i < n; i = next) {
        next = after_together(i, n);
        if (NAME(columns_within)(src + (at + i) * ELEM_BYTES, y + at + i, next - i,
                                 sets->bound + first + i))
            continue;
        for (size_t k = i; k < next; k++)
            NAME(check_run)(src, y, at + k, at + k + 1, sets, first + k, result);
    }
}

static void NAME(check)(const struct qp_tile *tile, const void *src, const void *y,
                        const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                        const double *bound, struct qp_check *result)
{
    const struct NAME(sets) sets = {rule, scale, zero, bound};
    *result = (struct qp_check){0};
    if (tile->col_width > 1) {
        FOR_EACH_RUN (tile, run)
            NAME(check_set)(src, y, run.at, run.n, &sets, run.set, result);
        return;
    }
    for (size_t row = 0; row < tile->rows; row++) {
        const size_t at = row * tile->cols, set = row / tile->band_rows * tile->cols;
        NAME(check_columns)(src, y, at, tile->cols, &sets, set, result);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds n <= 16 elements, each to its lane. */
static inline void NAME(add_lanes)(struct sum_lanes *restrict sum,
                                   const unsigned char *restrict src, const WORK *restrict y_,
                                   size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const double x = (double)NAME(at)(src, k), y = (double)y_[k], e = x - y;
        sum->e2[k] += e * e;
        sum->x2[k] += x * x;
        sum->y2[k] += y * y;
        sum->most[k] = fabs(e) > sum->most[k] ? fabs(e) : sum->most[k];
    }
}

/* Adds n elements that begin at a multiple of 16; returns the largest error. */
static double NAME(add_part)(struct sum_lanes *sum, const unsigned char *src, const WORK *y,
                             size_t n)
{
    double largest = -1;
    size_t i = 0;
    for (int k = 0; k < 16; k++)
        sum->most[k] = -1;
    for (; i + 16 <= n; i += 16)
        NAME(add_lanes)(sum, src + i * ELEM_BYTES, y + i, 16);
    NAME(add_lanes)(sum, src + i * ELEM_BYTES, y + i, n - i);
    for (int k = 0; k < 16; k++)
        largest = sum->most[k] > largest ? sum->most[k] : largest;
    return largest;
}

static void NAME(sums)(const void *src, const void *y, size_t n, const struct qp_sums_wish *wish,
                       struct qp_sums *result)
{
    const unsigned char *from = src;
    struct sum_lanes sum = {.e2 = {0}};
    double most = -1;
    bool within = wish->width > 0;
    for (size_t i = 0, run = 0, end; i < n; i = end, run++) {
        end = wish->width ? qp_run_end(wish, run, n) : n;
        const double largest =
            NAME(add_part)(&sum, from + i * ELEM_BYTES, (const WORK *)y + i, end - i);
        most = largest > most ? largest : most;
        within = within && (WORK)largest <= LIMIT(wish->bound[run]);
    }
    /* No comparison sees an error that is a NaN, but its sum does. */
    const double e2 = tree16(sum.e2);
    *result = (struct qp_sums){e2, tree16(sum.x2),         tree16(sum.y2), wish->floor,
                               0,  within && e2 <= DBL_MAX};
    /* An element that is not finite leaves no finite square: rare, one by one. */
    if (!(result->x2 <= DBL_MAX))
        NAME(sums_block)(src, y, n, wish, result);
    else if (most > wish->floor)
        NAME(find_largest)(src, y, n, result);
}

static const struct qp_source_kernels NAME(source) = {
    .dtype = SOURCE_DTYPE,
    .isa = QPLAN_ISA_SCALAR,
    .elem_bytes = ELEM_BYTES,
    .work_bytes = sizeof(WORK),
    .work = &IN(work),
    .range = NAME(range),
    .sums = NAME(sums),
};

static const struct qp_quantizer NAME(linear) = {
    .dtype = SOURCE_DTYPE,
    .kind = QP_CODES_LINEAR,
    .isa = QPLAN_ISA_SCALAR,
    .params = IN(params),
    .quantize = NAME(quantize),
    .dequantize = IN(dequantize),
    .check = NAME(check),
};

#include "biased.inc.h"
#include "valued.inc.h"

#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef WIDEN
#undef GET
#undef UINT
#undef SINT
#undef INF_BITS
#undef LIMIT
#undef WORK
#undef WORK_MAX
#undef STEPS
#undef CODES
#undef VALUED
#undef IN
