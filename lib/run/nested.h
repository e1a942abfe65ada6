/*
 * nested.h - scales that have scales, as they are stored: for every QP_NESTED_SETS of them in a row
 * one scale, and for each a code of 8 bits, for what lies between it and the offset of the tensor.
 */
#ifndef QP_RUN_NESTED_H
#define QP_RUN_NESTED_H

#include "lib/model/tensor.h"

/* What codes of scales stand for, ascending, the sums of neighbours, and what decoders give. */
struct qp_nest {
    float values[QP_NESTED_SETS];
    double limits[QP_NESTED_SETS - 1];
    unsigned zero; /* the code of the value 0 */
    float offset;  /* above 0 and not above the next */
    float most;    /* of a scale: no value of the tensor's type is larger */
};

/* Of a tensor whose scales have scales, with their offset. */
void qp_nest_make(struct qp_nest *nest, const struct qp_tensor *tensor, float offset);

/*
 * Codes of n scales, none of them below 0 or above nest->most, and the scales of each
 * QP_NESTED_SETS of them: the largest distance from the offset. A code is that of the nearest
 * value, the lower one of two; but if its scale would not be above 0, or too large, that of the
 * next value towards 0 whose scale is. Then each scale is replaced by the one that decoders
 * compute.
 */
void qp_nest_scales(const struct qp_nest *nest, size_t n, float *scale, float *of_scales,
                    uint8_t *codes);

#endif
