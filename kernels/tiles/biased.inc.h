/*
 * biased.inc.h - biased codes of a tile of one source dtype: the specification. source.inc.h
 * includes it and says what must be defined.
 */

static void NAME(biased_run)(const unsigned char *restrict src, size_t n, WORK scale, WORK bias,
                             WORK most, uint8_t *restrict codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = NAME(biased_code)(NAME(at)(src, i), scale, bias, most);
}

static void NAME(quantize_biased)(const struct qp_tile *tile, const void *src,
                                  const struct qp_code_rule *rule, const void *scale,
                                  const int32_t *zero, uint8_t *codes)
{
    const unsigned char *from = src;
    FOR_EACH_RUN (tile, run)
        NAME(biased_run)
    (from + run.at * ELEM_BYTES, run.n, ((const WORK *)scale)[run.set],
     (WORK)qp_bias(zero[run.set]), (WORK)rule->q_max, codes + run.at);
}

static const struct qp_quantizer NAME(biased) = {
    .dtype = SOURCE_DTYPE,
    .kind = QP_CODES_BIASED,
    .isa = QPLAN_ISA_SCALAR,
    .params = IN(biased_params),
    .quantize = NAME(quantize_biased),
    .dequantize = IN(dequantize_biased),
    .check = NAME(check),
};
