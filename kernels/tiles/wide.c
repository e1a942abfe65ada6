/*
 * wide.c - which sums of a block can be trusted, and those that cannot made again. Plain C, and the
 * same for every instruction set and device.
 */
#include "wide.h"

#include "codecs.h"

/* ---- Trust ------------------------------------------------------------------------------------
 */

/*
 * Within these no term of a sum is lost that matters, and no number of such sums overflows. Only
 * f64 values have squares outside.
 */
#define LEAST 0x1p-900
#define MOST  0x1p900

static bool in_range(double sum)
{
    return sum >= LEAST && sum <= MOST;
}

/* Whether the sum of x y keeps its bits when it is made from squares. Without x or y it is 0. */
static bool in_proportion(double x2, double y2)
{
    const double most = (double)(1 << QP_WIDE_PROPORTION);
    return x2 == 0 || y2 == 0 || !(x2 > most * y2 || y2 > most * x2);
}

bool qp_wide_take(struct qp_wide_sums *result, enum qplan_dtype dtype, const struct qp_sums *sums)
{
    const double e2 = sums->e2, x2 = sums->x2, y2 = sums->y2;
    *result = (struct qp_wide_sums){{e2, 0}, {x2, 0}, {y2, 0}, {(x2 + y2 - e2) / 2, 0}};
    if (dtype == QPLAN_F64 && !(in_range(e2) && in_range(x2) && in_range(y2)))
        return false;
    return in_proportion(x2, y2);
}

/* ---- Sums -------------------------------------------------------------------------------------
 */

struct block {
    const struct qp_source_kernels *kernels;
    const void *src, *y;
    size_t n;
};

/* An element for each lane. One that is not finite is 0 and decodes to 0, and so is none. */
struct line {
    double x[16], y[16];
};

static struct line line_at(const struct block *b, size_t at)
{
    const struct qp_source_kernels *k = b->kernels;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const size_t n = b->n - at < 16 ? b->n - at : 16;
    struct line line = {{0}, {0}};
    f64->load(k->dtype, n, (const char *)b->src + at * k->elem_bytes, line.x);
    f64->load(k->work->work, n, (const char *)b->y + at * k->work_bytes, line.y);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(line.x[i]))
            line.x[i] = line.y[i] = 0;
    }
    return line;
}

/* The largest of each kind. */
struct tops {
    double e, x, y;
};

static double larger(double top, double value)
{
    return fabs(value) > top ? fabs(value) : top;
}

static struct tops find_tops(const struct block *b)
{
    struct tops tops = {0, 0, 0};
    for (size_t at = 0; at < b->n; at += 16) {
        const struct line line = line_at(b, at);
        for (int i = 0; i < 16; i++) {
            tops.e = larger(tops.e, line.x[i] - line.y[i]);
            tops.x = larger(tops.x, line.x[i]);
            tops.y = larger(tops.y, line.y[i]);
        }
    }
    return tops;
}

/* The difference of two finite numbers may be one above all doubles. */
#define ABOVE_ALL (DBL_MAX_EXP + 1)

static int exponent_of(double top)
{
    int exponent = ABOVE_ALL;
    if (isfinite(top))
        (void)frexp(top, &exponent);
    return exponent;
}

/* (x - y) / 2^exponent. */
static double error_of(double x, double y, int exponent)
{
    if (exponent == ABOVE_ALL)
        return ldexp(x, -exponent) - ldexp(y, -exponent);
    return ldexp(x - y, -exponent);
}

void qp_wide_sums(struct qp_wide_sums *result, const struct qp_source_kernels *kernels,
                  const void *src, const void *y_, size_t n)
{
    const struct block block = {kernels, src, y_, n};
    const struct tops tops = find_tops(&block);
    const int e_exp = exponent_of(tops.e), x_exp = exponent_of(tops.x), y_exp = exponent_of(tops.y);
    double e2[16] = {0}, x2[16] = {0}, y2[16] = {0}, xy[16] = {0};
    for (size_t at = 0; at < n; at += 16) {
        const struct line line = line_at(&block, at);
        for (int i = 0; i < 16; i++) {
            const double e = error_of(line.x[i], line.y[i], e_exp);
            const double x = ldexp(line.x[i], -x_exp), y = ldexp(line.y[i], -y_exp);
            e2[i] += e * e;
            x2[i] += x * x;
            y2[i] += y * y;
            xy[i] += x * y;
        }
    }
    *result = (struct qp_wide_sums){{tree16(e2), 2 * e_exp},
                                    {tree16(x2), 2 * x_exp},
                                    {tree16(y2), 2 * y_exp},
                                    {tree16(xy), x_exp + y_exp}};
}

/* ---- Weighted sums ----------------------------------------------------------------------------
 */

/* The weights of a line of elements; the next column is moved behind it. */
static void take_weights(struct qp_column_weights *weights, double line[16])
{
    for (int i = 0; i < 16; i++) {
        line[i] = weights->of ? (double)weights->of[weights->first] : 1;
        weights->first = weights->first + 1 == weights->n ? 0 : weights->first + 1;
    }
}

void qp_wide_weighted(struct qp_weighted_sums *result, const struct qp_source_kernels *kernels,
                      const void *src, const void *y, size_t n, struct qp_column_weights weights)
{
    const struct block block = {kernels, src, y, n};
    const bool is_wide = kernels->dtype == QPLAN_F64; /* no other type has squares that are lost */
    const struct tops tops = is_wide ? find_tops(&block) : (struct tops){0, 0, 0};
    const int e_exp = is_wide ? exponent_of(tops.e) : 0, x_exp = is_wide ? exponent_of(tops.x) : 0;
    double e2[16] = {0}, x2[16] = {0}, w[16];
    for (size_t at = 0; at < n; at += 16) {
        const struct line line = line_at(&block, at);
        take_weights(&weights, w);
        for (int i = 0; i < 16; i++) {
            const double e =
                is_wide ? error_of(line.x[i], line.y[i], e_exp) : line.x[i] - line.y[i];
            const double x = is_wide ? ldexp(line.x[i], -x_exp) : line.x[i];
            e2[i] += w[i] * (e * e);
            x2[i] += w[i] * (x * x);
        }
    }
    *result = (struct qp_weighted_sums){{tree16(e2), 2 * e_exp}, {tree16(x2), 2 * x_exp}};
}
