/*
 * nested.c - codes of scales. Limits are compared without a rounding: a sum of two neighbours has
 * few bits, and so has its product with a float.
 */
#include "nested.h"

#include "kernels/kernel.h"
#include "lib/base/check.h"

#include <float.h>
#include <math.h>

void qp_nest_make(struct qp_nest *nest, const struct qp_tensor *tensor, float offset)
{
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    const enum qplan_dtype dtype = qp_decoder_dtype(tensor);
    const float largest = FLT_MAX;
    float stored;
    f32->load(QPLAN_F32, QP_NESTED_SETS, qp_tensor_part(tensor, QP_SCALE)->nested, nest->values);
    for (unsigned i = 0; i + 1 < QP_NESTED_SETS; i++)
        nest->limits[i] = (double)nest->values[i] + (double)nest->values[i + 1];
    for (nest->zero = 0; nest->values[nest->zero] < 0;)
        nest->zero++;
    f32->store(dtype, 1, &largest, &stored); /* which stays finite */
    f32->load(dtype, 1, &stored, &nest->most);
    nest->offset = offset;
}

/* The nearest value to distance / of_scales: the number of limits below it. */
static unsigned nearest(const struct qp_nest *nest, float distance, float of_scales)
{
    const double twice = 2 * (double)distance, size = of_scales > 0 ? (double)of_scales : 1;
    unsigned low = 0, high = QP_NESTED_SETS - 1;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (twice > nest->limits[middle] * size)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static float decode(const struct qp_nest *nest, unsigned code, float of_scales)
{
    const float product = nest->values[code] * of_scales;
    return product + nest->offset;
}

static void nest_group(const struct qp_nest *nest, size_t n, float *scale, float *of_scales,
                       uint8_t *codes)
{
    *of_scales = 0;
    for (size_t i = 0; i < n; i++)
        *of_scales = fmaxf(*of_scales, fabsf(scale[i] - nest->offset));
    for (size_t i = 0; i < n; i++) {
        unsigned code = nearest(nest, scale[i] - nest->offset, *of_scales);
        scale[i] = decode(nest, code, *of_scales);
        while (!(scale[i] > 0 && scale[i] <= nest->most)) { /* the offset is such a scale */
            code = code < nest->zero ? code + 1 : code - 1;
            scale[i] = decode(nest, code, *of_scales);
        }
        codes[i] = (uint8_t)code;
    }
}

void qp_nest_scales(const struct qp_nest *nest, size_t n, float *scale, float *of_scales,
                    uint8_t *codes)
{
    for (size_t at = 0; at < n; at += QP_NESTED_SETS)
        nest_group(nest, (size_t)qp_min_u64(QP_NESTED_SETS, n - at), scale + at,
                   &of_scales[at / QP_NESTED_SETS], codes + at);
}
