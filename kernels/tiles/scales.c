/*
 * scales.c - stored scales and the scales that they stand for. Plain C, and the same for every
 * instruction set.
 */
#include "kernels/kernel.h"

#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#include <float.h>

void qp_load_scales(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                    const void *stored, void *scale)
{
    double *f64 = scale;
    float *f32 = scale;
    work->load(rule->scale_dtype, n, stored, scale);
    if (rule->scale_dtype != QPLAN_F8E4M3)
        return;
    for (size_t i = 0; work->work == QPLAN_F64 && i < n; i++)
        f64[i] = (double)qp_with_factor(rule, (float)f64[i]);
    for (size_t i = 0; work->work != QPLAN_F64 && i < n; i++)
        f32[i] = qp_with_factor(rule, f32[i]);
}

/* Loops without a way out, which compilers make vectors of. NaN is not above 0. */
bool qp_scales_are_above_0(const struct qp_work_kernels *work, size_t n, const void *scale)
{
    const double *f64 = scale;
    const float *f32 = scale;
    int good = 1;
    for (size_t i = 0; work->work == QPLAN_F64 && i < n; i++)
        good &= (f64[i] > 0) & (f64[i] <= DBL_MAX);
    for (size_t i = 0; work->work != QPLAN_F64 && i < n; i++)
        good &= (f32[i] > 0) & (f32[i] <= FLT_MAX);
    return good;
}

/* What a scale is stored as, before it is rounded. */
static inline float without_factor(float scale, float factor, bool divides)
{
    return divides ? scale * factor : scale / factor;
}

/*
 * A scale with a factor is off the product by at most 2^-24 of it, as factors are large enough for
 * every product to be normal; so its quotient is nearest to the number that was multiplied.
 */
void qp_store_scales(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                     const void *scale, void *stored)
{
    const double *f64 = scale;
    const float *f32 = scale, factor = rule->factor;
    const bool divides = rule->divides, is_f64 = work->work == QPLAN_F64;
    uint8_t *bytes = stored;
    if (rule->scale_dtype != QPLAN_F8E4M3) {
        work->store(rule->scale_dtype, n, scale, stored);
        return;
    }
    for (size_t i = 0; is_f64 && i < n; i++)
        bytes[i] = qp_narrow_f8e4m3(without_factor((float)f64[i], factor, divides));
    for (size_t i = 0; !is_f64 && i < n; i++)
        bytes[i] = qp_narrow_f8e4m3(without_factor(f32[i], factor, divides));
}
