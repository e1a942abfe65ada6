/*
 * work.inc.h - the kernels of one working precision, as a template: the specification.
 *
 * The including file defines NAME(op), WORK, WORK_MAX, SCALE_OF, ZERO_OF and
 * BOUND_SHIFT.
 */

/* ---- params ---------------------------------------------------------------------------------- */

/* Infinity when the scale does not fit its dtype. */
static inline WORK NAME(stored_scale)(WORK scale, enum qplan_dtype dtype)
{
    const struct scale_row *row = scale_row(dtype);
    if (!((double)scale <= row->largest))
        return (WORK)INFINITY;
    /* Up, never to nearest: with a smaller scale the largest value would lie outside the codes. */
    double up = row->round_up((double)scale);
    return (WORK)(up < row->least_normal ? row->least_normal : up);
}

static inline size_t NAME(params)(const struct qp_code_rule *rule, size_t n, const void *lo_,
                                  const void *hi_, void *scale_, int32_t *zero)
{
    const WORK *lo = lo_, *hi = hi_;
    WORK *scale = scale_;
    for (size_t i = 0; i < n; i++) {
        WORK exact = SCALE_OF(lo[i], hi[i], rule->q_min, rule->q_max, rule->asymmetric);
        scale[i] = NAME(stored_scale)(exact, rule->scale_dtype);
        if (!(scale[i] <= WORK_MAX))
            return i;
        zero[i] = ZERO_OF(lo[i], hi[i], scale[i], rule->q_min, rule->q_max, rule->asymmetric,
                          rule->is_signed);
    }
    return n;
}

static inline void NAME(merge)(size_t n, void *lo_, void *hi_, const void *other_lo,
                               const void *other_hi)
{
    WORK *lo = lo_, *hi = hi_;
    for (size_t i = 0; i < n; i++) {
        WORK least = ((const WORK *)other_lo)[i], most = ((const WORK *)other_hi)[i];
        lo[i] = least < lo[i] ? least : lo[i];
        hi[i] = most > hi[i] ? most : hi[i];
    }
}

/* ---- dequantize ------------------------------------------------------------------------------ */

static inline WORK NAME(decode)(WORK scale, int32_t difference)
{
    WORK y = scale * (WORK)difference;
    y = y > WORK_MAX ? WORK_MAX : y;
    return y < -WORK_MAX ? -WORK_MAX : y;
}

static inline void NAME(dequantize)(const struct qp_tile *tile, const uint8_t *codes,
                                    bool is_signed, const void *scale, const int32_t *zero, void *y)
{
    FOR_EACH_RUN (tile, run) {
        const WORK s = ((const WORK *)scale)[run.set];
        for (size_t i = run.at; i < run.at + run.n; i++) {
            int32_t code = is_signed ? (int8_t)codes[i] : codes[i];
            ((WORK *)y)[i] = NAME(decode)(s, code - zero[run.set]);
        }
    }
}

/* ---- load, store, bound ---------------------------------------------------------------------- */

static inline void NAME(load)(enum qplan_dtype dtype, size_t n, const void *src, void *y)
{
    const struct codec_row *codec = codec_row(dtype);
    for (size_t i = 0; i < n; i++)
        ((WORK *)y)[i] = (WORK)codec->load((const unsigned char *)src + i * codec->n_bytes);
}

static inline void NAME(store)(enum qplan_dtype dtype, size_t n, const void *y, void *dst)
{
    const struct codec_row *codec = codec_row(dtype);
    for (size_t i = 0; i < n; i++)
        codec->store((unsigned char *)dst + i * codec->n_bytes, (double)((const WORK *)y)[i]);
}

/*
 * s/2 + s * 2^k + 2^-149 with every rounding known: each sum is of a larger and a smaller positive
 * term, so what it lost is exactly larger - sum + smaller, and the result is raised if that is > 0.
 */
static inline void NAME(bounds)(size_t n, const void *scale, unsigned bits, double *out)
{
    const double share = ldexp(1.0, (int)bits - BOUND_SHIFT), tiny = 0x1p-149;
    for (size_t i = 0; i < n; i++) {
        const double s = (double)((const WORK *)scale)[i], half = s * 0.5, slack = s * share;
        const double first = half + slack, first_lost = half - first + slack;
        const double sum = first + tiny, sum_lost = first - sum + tiny;
        const double up = first_lost + sum_lost > 0 ? next_up(sum) : sum;
        out[i] = s > 0 && s <= (double)WORK_MAX ? up : -1;
    }
}

#undef NAME
#undef WORK
#undef WORK_MAX
#undef SCALE_OF
#undef ZERO_OF
#undef BOUND_SHIFT
