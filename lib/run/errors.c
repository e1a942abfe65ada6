/*
 * errors.c - the squared errors of codes that were just made. Cuts of a tensor fall on the limits
 * of runs (QP_ERROR_RUN), the sum of a run has one order, and sums of runs are exact: so the whole
 * is the same however the tensor was cut, and whoever did which piece.
 */
#include "lib/base/check.h"
#include "strips.h"

#include <math.h>

/* The weighted sum of a run, in lanes as the kernels have them. */
static double weighted_error(const struct qp_worker *w, const char *x, const char *y, size_t n,
                             const float *weights)
{
    const struct qp_work_kernels *f64 =
        qp_source_kernels(QPLAN_F64, w->context->job->run->isa)->work;
    double source[QP_ERROR_RUN], decoded[QP_ERROR_RUN], lanes[4] = {0};
    f64->load(w->kernels->dtype, n, x, source);
    f64->load(w->kernels->work->work, n, y, decoded);
    for (size_t i = 0; i < n; i++) {
        const double error = isfinite(source[i]) ? source[i] - decoded[i] : 0;
        lanes[i % 4] += (double)weights[i] * error * error;
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

static double plain_error(const struct qp_worker *w, const char *x, const char *y, size_t n)
{
    const struct qp_sums_wish wish = {.floor = INFINITY}; /* nobody asks for the largest error */
    struct qp_sums sums;
    w->kernels->sums(x, y, n, &wish, &sums);
    return sums.e2;
}

void qp_worker_measure(const struct qp_worker *w, const uint8_t *codes, const void *scale,
                       const int32_t *zero)
{
    const struct qp_piece *piece = &w->piece;
    const struct qp_tensor *source = w->unit->tensor->source;
    const uint64_t last_len = source->shape[source->rank - 1]; /* weights are of the last axis */
    const float *weights = w->unit->tensor->importance;
    const char *x = w->src, *y = w->b->decoded;
    w->quantizer->dequantize(&piece->tile, codes, &w->rule, scale, zero, w->b->decoded);
    for (uint64_t row = 0; row < piece->n_rows; row++) {
        for (uint64_t col = 0, n; col < piece->n_cols; col += n) {
            const uint64_t at = (piece->col + col) % last_len;
            n = qp_min_u64(QP_ERROR_RUN - at % QP_ERROR_RUN, last_len - at);
            n = qp_min_u64(n, piece->n_cols - col);
            qp_exact_add(w->b->error, weights ? weighted_error(w, x, y, (size_t)n, weights + at)
                                              : plain_error(w, x, y, (size_t)n));
            x += n * w->kernels->elem_bytes;
            y += n * w->kernels->work_bytes;
        }
    }
}
