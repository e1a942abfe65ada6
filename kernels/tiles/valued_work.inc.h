/*
 * valued_work.inc.h - parameters and decoded values of floats and tables in one working precision:
 * the specification. work.inc.h includes it and says what must be defined.
 */

static inline size_t NAME(valued_params)(const struct qp_code_rule *rule, size_t n, const void *lo,
                                         const void *hi, void *scale_, int32_t *zero)
{
    const struct scale_row *row = scale_row(rule->scale_dtype);
    const WORK largest = (WORK)rule->type->largest;
    WORK *scale = scale_;
    for (size_t i = 0; i < n; i++) {
        const WORK least = ((const WORK *)lo)[i], most = ((const WORK *)hi)[i];
        const WORK exact = CODES(valued_scale)(least, most, largest);
        scale[i] = NAME(scale_of_set)(exact, most > -least ? most : -least, rule, row);
        if (!(scale[i] <= WORK_MAX))
            return i;
        zero[i] = 0;
    }
    return n;
}

static inline void NAME(valued_values)(const uint8_t *restrict codes, size_t n, WORK scale,
                                       const struct qp_code_type *type, bool is_book,
                                       WORK *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = FINITE(scale * CODES(value)(codes[i], type, is_book));
}

static inline void NAME(dequantize_valued)(const struct qp_tile *tile, const uint8_t *codes,
                                           const struct qp_code_rule *rule, const void *scale,
                                           const int32_t *zero, void *y)
{
    (void)zero;
    FOR_EACH_RUN (tile, run) {
        const WORK s = ((const WORK *)scale)[run.set];
        WORK *to = (WORK *)y + run.at;
        if (rule->kind == QP_CODES_BOOK)
            NAME(valued_values)(codes + run.at, run.n, s, rule->type, true, to);
        else
            NAME(valued_values)(codes + run.at, run.n, s, rule->type, false, to);
    }
}
