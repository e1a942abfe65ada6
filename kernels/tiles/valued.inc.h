/*
 * valued.inc.h - codes of floats and tables of a tile of one source dtype: the specification.
 * source.inc.h includes it and says what must be defined.
 */

static inline void NAME(valued_run)(const unsigned char *restrict src, size_t n, WORK scale,
                                    const struct VALUED *v, bool is_book, uint8_t *restrict codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = NAME(valued_code)(NAME(at)(src, i), scale, v, is_book);
}

static void NAME(quantize_valued)(const struct qp_tile *tile, const void *src,
                                  const struct qp_code_rule *rule, const void *scale,
                                  const int32_t *zero, uint8_t *codes)
{
    const struct VALUED v = CODES(valued_of)(rule->type);
    (void)zero;
    FOR_EACH_RUN (tile, run) {
        const unsigned char *from = (const unsigned char *)src + run.at * ELEM_BYTES;
        const WORK s = ((const WORK *)scale)[run.set];
        if (rule->kind == QP_CODES_BOOK)
            NAME(valued_run)(from, run.n, s, &v, true, codes + run.at);
        else
            NAME(valued_run)(from, run.n, s, &v, false, codes + run.at);
    }
}

/*
 * Whether n elements surely fit: each decodes to what its own code stands for, and no quotient is
 * beyond the reach of the largest value. None is then infinite, or NaN.
 */
static inline bool NAME(all_nearest)(const unsigned char *src, const WORK *y, size_t n, WORK scale,
                                     const struct VALUED *v, bool is_book)
{
    const WORK most = (WORK)sure_end(v->type);
    unsigned outside = 0;
    for (size_t i = 0; i < n; i++) {
        const WORK t = NAME(at)(src, i) / scale, near = CODES(valued_near)(t, v, is_book);
        outside |= !(CODES(finite)(scale * near) == y[i]) | !(ABS(t) <= most);
    }
    return !outside;
}

static void NAME(check_valued)(const struct qp_tile *tile, const void *src, const void *y_,
                               const struct qp_code_rule *rule, const void *scale,
                               const int32_t *zero, const double *bound, struct qp_check *result)
{
    const struct VALUED v = CODES(valued_of)(rule->type);
    const struct NAME(sets) sets = {rule, scale, zero, bound};
    const WORK *y = y_;
    *result = (struct qp_check){0};
    FOR_EACH_RUN (tile, run) {
        const WORK s = ((const WORK *)scale)[run.set];
        const bool has_scale = bound[run.set] >= 0;
        for (size_t i = run.at, next; i < run.at + run.n; i = next) {
            const unsigned char *from = (const unsigned char *)src + i * ELEM_BYTES;
            next = after_together(i, run.at + run.n);
            const bool fits = rule->kind == QP_CODES_BOOK
                                  ? NAME(all_nearest)(from, y + i, next - i, s, &v, true)
                                  : NAME(all_nearest)(from, y + i, next - i, s, &v, false);
            if (!has_scale || !fits)
                NAME(check_run)(src, y, i, next, &sets, run.set, result);
        }
    }
}

#define VALUED_ROW(KIND)                                                                           \
    {                                                                                              \
        .dtype = SOURCE_DTYPE, .kind = (KIND), .isa = QPLAN_ISA_SCALAR,                            \
        .params = IN(valued_params), .quantize = NAME(quantize_valued),                            \
        .dequantize = IN(dequantize_valued), .check = NAME(check_valued),                          \
    }

static const struct qp_quantizer NAME(floats) = VALUED_ROW(QP_CODES_FLOAT);
static const struct qp_quantizer NAME(book) = VALUED_ROW(QP_CODES_BOOK);

#undef VALUED_ROW
