/*
 * biased_work.inc.h - parameters and decoded values of biased codes in one working precision:
 * the specification. work.inc.h includes it and says what must be defined.
 */

/* ---- params ---------------------------------------------------------------------------------- */

/* The largest value of the stored dtype that is not above lo <= 0; -infinity if there is none. */
static inline WORK NAME(stored_bias)(WORK lo, const struct scale_row *row)
{
    if (!((double)-lo <= row->largest))
        return (WORK)-INFINITY;
    return (WORK)(0 - row->round_up((double)-lo)); /* of 0 a 0 without a sign */
}

/*
 * A stored scale with which codes from a bias on reach hi, enlarged until they do; infinity where
 * the width of all codes does not fit the dtype, as decoders form the product of a scale and a code
 * in it.
 */
static inline WORK NAME(covering_scale)(WORK bias, WORK hi, int32_t q_max,
                                        const struct scale_row *row)
{
    WORK scale = NAME(stored_scale)((hi - bias) / (WORK)q_max, row);
    while ((double)scale * q_max <= row->largest && scale * (WORK)(q_max + 1) <= WORK_MAX) {
        if (COVERS(bias, scale, hi, q_max + 1))
            return scale;
        scale = NAME(stored_scale)(NEXT_UP(scale), row);
    }
    return (WORK)INFINITY;
}

/* Where codes are symmetric, half of them are below 0. Infinity as above. */
static inline WORK NAME(halved_scale)(WORK lo, WORK hi, int32_t q_max, const struct scale_row *row)
{
    const WORK scale = NAME(stored_scale)(SCALE_OF(lo, hi, 0, q_max, false), row);
    return (double)scale * q_max <= row->largest ? scale : (WORK)INFINITY;
}

static inline size_t NAME(biased_params)(const struct qp_code_rule *rule, size_t n, const void *lo_,
                                         const void *hi_, void *scale_, int32_t *zero)
{
    const struct scale_row *row = scale_row(rule->scale_dtype);
    const WORK *lo = lo_, *hi = hi_;
    const int32_t half = (rule->q_max + 1) / 2;
    WORK *scale = scale_;
    for (size_t i = 0; i < n; i++) {
        WORK bias = NAME(stored_bias)(lo[i], row);
        if (!rule->asymmetric)
            scale[i] = NAME(halved_scale)(lo[i], hi[i], rule->q_max, row);
        else if (lo[i] == hi[i]) /* zeros alone */
            scale[i] = 1;
        else
            scale[i] = NAME(covering_scale)(bias, hi[i], rule->q_max, row);
        if (!(scale[i] <= WORK_MAX))
            return i;
        if (!rule->asymmetric)
            bias = -scale[i] * (WORK)half; /* exact: a power of 2 */
        zero[i] = qp_bias_bits((float)bias);
    }
    return n;
}

/* ---- dequantize ------------------------------------------------------------------------------ */

static void NAME(biased_run)(const uint8_t *restrict codes, size_t n,
                             const struct qp_code_rule *rule, WORK scale, WORK bias,
                             WORK *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = scale * (WORK)codes[i];
    if (rule->rounds)
        NAME(round)(rule->scale_dtype, n, y);
    for (size_t i = 0; i < n; i++)
        y[i] = FINITE(y[i] + bias);
    if (rule->rounds)
        NAME(round)(rule->scale_dtype, n, y);
}

static inline void NAME(dequantize_biased)(const struct qp_tile *tile, const uint8_t *codes,
                                           const struct qp_code_rule *rule, const void *scale,
                                           const int32_t *zero, void *y)
{
    FOR_EACH_RUN (tile, run)
        NAME(biased_run)
    (codes + run.at, run.n, rule, ((const WORK *)scale)[run.set], (WORK)qp_bias(zero[run.set]),
     (WORK *)y + run.at);
}
