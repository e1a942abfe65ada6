/*
 * mse_judge.c - the errors of the real quantizer, with parameters as they are stored.
 */
#include "mse.h"

#include "kernels/tiles/runs.h"

/* Room for the values of a run. */
struct judged {
    double scale[QP_VALUES_RUN], decoded[QP_VALUES_RUN];
    int32_t zero[QP_VALUES_RUN];
    uint8_t codes[QP_VALUES_RUN];
};

/* The least power of 2 that is not below the elements of any set, by its exponent. */
int qp_mse_elems_bits(const struct qp_calibration *c)
{
    int bits = 0;
    while (bits < 63 && c->set_elems >> bits > 1)
        bits++;
    return bits + 1;
}

/* Bits behind the point of an error, so that the sum of those of a set fits. */
static int error_bits(const struct qp_calibration *c)
{
    const int n = qp_mse_elems_bits(c);
    return n < 12 ? 46 : 58 - n;
}

/* The parameters that a set is judged by: of a level, or of a part; minmax's where it has none. */
static struct qp_mse_params params_of(const struct qp_mse_seeing *s,
                                      const struct qp_mse_known *known, unsigned which)
{
    struct qp_mse_scale scale;
    if (s->pass.move == QP_MSE_JUDGE)
        return known->last[which];
    return qp_mse_scale(s->c, known, s->pass.part, which, &scale) ? scale.params : known->last[0];
}

static void quantize_run(const struct qp_mse_seeing *s, const struct qp_values_run *run,
                         unsigned which, struct judged *j)
{
    const struct qp_mse_known *known = qp_mse_known_of(s->c) + run->set;
    const bool is_f64 = s->c->kernels->work_bytes == sizeof(double);
    for (size_t i = 0; i < qp_tile_sets(&run->tile); i++) {
        const struct qp_mse_params params = params_of(s, &known[i], which);
        if (is_f64)
            j->scale[i] = params.scale;
        else
            ((float *)j->scale)[i] = (float)params.scale;
        j->zero[i] = params.zero;
    }
    s->quantizer->quantize(&run->tile, run->values, s->c->rule, j->scale, j->zero, j->codes);
    s->quantizer->dequantize(&run->tile, j->codes, s->c->rule, j->scale, j->zero, j->decoded);
}

static int64_t error_of(const struct qp_mse_seeing *s, const struct qp_values_run *run,
                        const void *decoded, size_t at, size_t n, double unit)
{
    const int bits = error_bits(s->c);
    const float *weights = run->weights ? run->weights + at : NULL;
    const void *values = run->values;
    if (s->c->kernels->work_bytes == sizeof(double))
        return s->kernels->errors_f64(n, (const double *)values + at, (const double *)decoded + at,
                                      weights, unit, bits);
    return s->kernels->errors_f32(n, (const float *)values + at, (const float *)decoded + at,
                                  weights, unit, bits);
}

void qp_mse_judge(const struct qp_mse_seeing *s, const struct qp_values_run *run)
{
    const unsigned n = s->pass.move == QP_MSE_JUDGE ? s->c->calibrator->level + 1
                                                    : qp_mse_n_scales(s->c, s->pass.part);
    const struct qp_mse_known *known = qp_mse_known_of(s->c);
    struct judged j;
    for (unsigned which = 0; which < n; which++) {
        quantize_run(s, run, which, &j);
        FOR_EACH_RUN (&run->tile, part) {
            const size_t set = run->set + part.set;
            s->states[set].errors[which] +=
                error_of(s, run, j.decoded, part.at, part.n, known[set].unit);
        }
    }
}
