/*
 * sum.c - the scalar kernels of deterministic sums: the specification.
 */
#include "sum.h"

#include "gradient.h"
#include "kernels/dtypes/bf16/bf16.h"
#include "kernels/dtypes/f16/f16.h"
#include "kernels/dtypes/f32/f32.h"
#include "kernels/dtypes/f64/f64.h"

/* ---- Gradients --------------------------------------------------------------------------------
 */

static const struct gradient_row {
    enum qplan_dtype dtype;
    size_t n_bytes;
    bool (*store)(unsigned char *p, double x); /* whether a finite x became infinite */
} gradients[] = {
    {QPLAN_F64, 8, qp_gradient_f64},
    {QPLAN_F32, 4, qp_gradient_f32},
    {QPLAN_F16, 2, qp_gradient_f16},
    {QPLAN_BF16, 2, qp_gradient_bf16},
};

static const struct gradient_row *gradient_row(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (gradients[i].dtype != dtype)
        i++;
    return &gradients[i];
}

uint64_t qp_store_gradient(enum qplan_dtype dtype, size_t n, const double *x, void *dst)
{
    const struct gradient_row *row = gradient_row(dtype);
    uint64_t overflow = 0;
    for (size_t i = 0; i < n; i++)
        overflow += row->store((unsigned char *)dst + i * row->n_bytes, x[i]);
    return overflow;
}

/* ---- Sums that are exact enough in f64 --------------------------------------------------------
 */

static void plain_add_f64(size_t n, const double *terms, double *hi, double *lo)
{
    (void)lo;
    for (size_t i = 0; i < n; i++)
        hi[i] += terms[i];
}

static void plain_divide(size_t n, double divisor, double *hi, double *lo)
{
    (void)lo;
    for (size_t i = 0; i < n; i++)
        hi[i] /= divisor;
}

#define PLAIN(NAME, DTYPE, ELEM_BYTES)                                                             \
    static void add_##NAME(size_t n, const void *src, double *hi, double *lo)                      \
    {                                                                                              \
        (void)lo;                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            hi[i] += (double)qp_load_##NAME((const unsigned char *)src + i * (ELEM_BYTES));        \
    }                                                                                              \
                                                                                                   \
    static void add_rows_##NAME(size_t n, size_t n_rows, const void *const *rows, double *hi,      \
                                double *lo)                                                        \
    {                                                                                              \
        for (size_t i = 0; i < n_rows; i++)                                                        \
            add_##NAME(n, rows[i], hi, lo);                                                        \
    }                                                                                              \
                                                                                                   \
    static void add_over_##NAME(size_t n, const void *src, double divisor, double *hi, double *lo) \
    {                                                                                              \
        (void)lo;                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            hi[i] +=                                                                               \
                (double)qp_load_##NAME((const unsigned char *)src + i * (ELEM_BYTES)) / divisor;   \
    }                                                                                              \
                                                                                                   \
    static uint64_t finish_##NAME(size_t n, const double *hi, const double *lo, void *dst)         \
    {                                                                                              \
        (void)lo;                                                                                  \
        return qp_store_gradient(DTYPE, n, hi, dst);                                               \
    }                                                                                              \
                                                                                                   \
    const struct qp_sum_kernels qp_sum_##NAME = {                                                  \
        .dtype = (DTYPE),                                                                          \
        .isa = QPLAN_ISA_SCALAR,                                                                   \
        .add = add_##NAME,                                                                         \
        .add_rows = add_rows_##NAME,                                                               \
        .add_over = add_over_##NAME,                                                               \
        .add_f64 = plain_add_f64,                                                                  \
        .divide = plain_divide,                                                                    \
        .finish = finish_##NAME,                                                                   \
    };

PLAIN(f32, QPLAN_F32, 4)
PLAIN(f16, QPLAN_F16, 2)
PLAIN(bf16, QPLAN_BF16, 2)

/* ---- Sums that keep their errors --------------------------------------------------------------
 */

static void add_term(double *hi, double *lo, double x)
{
    struct qp_sum sum = {*hi, *lo};
    qp_sum_add(&sum, x);
    *hi = sum.hi;
    *lo = sum.lo;
}

static void exact_add_f64(size_t n, const double *terms, double *hi, double *lo)
{
    for (size_t i = 0; i < n; i++)
        add_term(&hi[i], &lo[i], terms[i]);
}

static void add_f64(size_t n, const void *src, double *hi, double *lo)
{
    for (size_t i = 0; i < n; i++)
        add_term(&hi[i], &lo[i], qp_load_f64((const unsigned char *)src + i * sizeof(double)));
}

static void add_rows_f64(size_t n, size_t n_rows, const void *const *rows, double *hi, double *lo)
{
    for (size_t i = 0; i < n_rows; i++)
        add_f64(n, rows[i], hi, lo);
}

static void add_over_f64(size_t n, const void *src, double divisor, double *hi, double *lo)
{
    for (size_t i = 0; i < n; i++)
        add_term(&hi[i], &lo[i],
                 qp_load_f64((const unsigned char *)src + i * sizeof(double)) / divisor);
}

static void exact_divide(size_t n, double divisor, double *hi, double *lo)
{
    for (size_t i = 0; i < n; i++) {
        hi[i] = qp_sum_value(&(struct qp_sum){hi[i], lo[i]}) / divisor;
        lo[i] = 0;
    }
}

static uint64_t finish_f64(size_t n, const double *hi, const double *lo, void *dst)
{
    for (size_t i = 0; i < n; i++) {
        const double value = qp_sum_value(&(struct qp_sum){hi[i], lo[i]});
        (void)qp_gradient_f64((unsigned char *)dst + i * sizeof value, value);
    }
    return 0;
}

const struct qp_sum_kernels qp_sum_f64 = {
    .dtype = QPLAN_F64,
    .isa = QPLAN_ISA_SCALAR,
    .keeps_errors = true,
    .add = add_f64,
    .add_rows = add_rows_f64,
    .add_over = add_over_f64,
    .add_f64 = exact_add_f64,
    .divide = exact_divide,
    .finish = finish_f64,
};

/* ---- The table --------------------------------------------------------------------------------
 */

static const struct qp_sum_kernels *const scalar_rows[] = {
    &qp_sum_f64, &qp_sum_f32, &qp_sum_f16, &qp_sum_bf16, NULL,
};

static const struct qp_sum_kernels *find(const struct qp_sum_kernels *const *rows,
                                         enum qplan_dtype dtype)
{
    while (*rows && (*rows)->dtype != dtype)
        rows++;
    return *rows;
}

const struct qp_sum_kernels *qp_sum_kernels(enum qplan_dtype dtype, enum qplan_isa isa)
{
    const enum qplan_isa best = qp_isa_detect();
    if (isa == QPLAN_ISA_BEST || isa > best)
        isa = best;
    const struct qp_sum_kernels *row = isa >= QPLAN_ISA_AVX2 ? find(qp_sum_avx2_rows, dtype) : NULL;
    return row ? row : find(scalar_rows, dtype);
}
