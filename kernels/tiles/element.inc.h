/*
 * element.inc.h - what a kernel does to one element of one float dtype: the core of the numeric
 * contract. The scalar loops are made of these, and faster loops use them for what is left over.
 *
 * The including file defines NAME(op), ELEM_BYTES, LOAD(p), WORK (float or double), WORK_MAX,
 * STEPS(x) and CODES(op), a function of kernels/codes in that precision.
 */

#define VALUED CODES(valued)

static inline WORK NAME(at)(const unsigned char *src, size_t i)
{
    return LOAD(src + i * ELEM_BYTES);
}

static inline bool NAME(finite)(WORK x)
{
    return x >= -WORK_MAX && x <= WORK_MAX;
}

/* Widens a range by n elements; returns the number of those that are not finite. */
static inline uint64_t NAME(range_run)(const unsigned char *src, size_t n, WORK *lo, WORK *hi)
{
    WORK least = *lo, most = *hi;
    uint64_t others = 0;
    for (size_t i = 0; i < n; i++) {
        WORK x = NAME(at)(src, i);
        if (!NAME(finite)(x)) {
            others++;
            continue;
        }
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    *lo = least;
    *hi = most;
    return others;
}

/*
 * The core: round half to even of x / s, zero point added after rounding, clamped. The clamp comes
 * first, to integers that the type holds exactly, so it cannot change the result.
 */
static inline uint8_t NAME(code)(WORK x, WORK scale, int32_t zero, WORK least, WORK most)
{
    const WORK number = x == x ? x : (WORK)0; /* NaN takes the zero point */
    WORK t = number / scale;
    t = t < least ? least : t;
    t = t > most ? most : t;
    return (uint8_t)(STEPS(t) + zero);
}

/*
 * Biased codes: round half to even of (x - bias) / s, clamped. NaN is taken for 0. A difference
 * that overflows lies outside the codes, since their whole width is finite.
 */
static inline uint8_t NAME(biased_code)(WORK x, WORK scale, WORK bias, WORK most)
{
    const WORK number = x == x ? x : (WORK)0;
    WORK t = (number - bias) / scale;
    t = t < 0 ? (WORK)0 : t;
    t = t > most ? most : t;
    return (uint8_t)STEPS(t);
}

/* Codes of floats and tables: that of the value nearest to x / s. NaN is taken for 0. */
static inline uint8_t NAME(valued_code)(WORK x, WORK scale, const struct VALUED *v, bool is_book)
{
    const WORK number = x == x ? x : (WORK)0;
    return CODES(valued_code)(number / scale, v, is_book);
}

/*
 * The ends of what a set can represent, and the error that is allowed in between. With a scale
 * below 0 the least code stands for the most.
 */
struct NAME(ends) {
    WORK least, most;
    double bound;
    double zero_bound; /* the error of what NaN becomes: without a bias 0 is one of the values */
    WORK scale;
    const struct qp_code_rule *rule;
};

/* What a check knows of all sets. */
struct NAME(sets) {
    const struct qp_code_rule *rule;
    const WORK *scale;
    const int32_t *zero;
    const double *bound;
};

static inline struct NAME(ends) NAME(ends_of)(const struct NAME(sets) * sets, size_t set)
{
    const struct qp_code_rule *rule = sets->rule;
    const bool is_biased = rule->kind == QP_CODES_BIASED, is_valued = qp_is_valued(rule->kind);
    const WORK scale = sets->scale[set], largest = (WORK)rule->type->largest;
    const WORK bias = is_biased ? (WORK)qp_bias(sets->zero[set]) : (WORK)0;
    const int32_t zero = is_biased ? 0 : sets->zero[set];
    const WORK first = is_valued ? scale * -largest : scale * (WORK)(rule->q_min - zero) + bias;
    const WORK last = is_valued ? scale * largest : scale * (WORK)(rule->q_max - zero) + bias;
    const WORK least = scale < 0 ? last : first, most = scale < 0 ? first : last;
    return (struct NAME(ends)){least < -WORK_MAX ? -WORK_MAX : least,
                               most > WORK_MAX ? WORK_MAX : most,
                               sets->bound[set],
                               is_biased ? sets->bound[set] : 0,
                               scale,
                               rule};
}

/* The error that is allowed to x: of linear codes in all of a set, else by the code of y. */
static inline double NAME(bound_of)(WORK x, WORK y, const struct NAME(ends) * ends)
{
    if (!qp_is_valued(ends->rule->kind))
        return ends->bound;
    const struct VALUED v = CODES(valued_of)(ends->rule->type);
    return CODES(valued_bound)(x, y, ends->scale, &v);
}

enum NAME(verdict) { NAME(fits), NAME(clips), NAME(offends) };

static inline enum NAME(verdict)
    NAME(judge)(WORK x, WORK y, const struct NAME(ends) * ends, struct qp_check *result)
{
    if (!NAME(finite)(x))
        result->nonfinite++;
    if (!(ends->bound >= 0)) /* no scale at all */
        return NAME(offends);
    if (!NAME(finite)(x)) {
        if (x != x)
            return fabs((double)y) <= ends->zero_bound ? NAME(fits) : NAME(offends);
        return y == (x > 0 ? ends->most : ends->least) ? NAME(fits) : NAME(offends);
    }
    const double error = fabs((double)x - (double)y), bound = NAME(bound_of)(x, y, ends);
    if (error <= bound)
        return NAME(fits);
    bool above = (double)x - (double)ends->most > bound && y == ends->most;
    bool below = (double)ends->least - (double)x > bound && y == ends->least;
    if (!above && !below)
        return NAME(offends);
    result->max_clip = error > result->max_clip ? error : result->max_clip;
    return NAME(clips);
}

/* Judges the elements from .. to of a tile, all of one set. */
static inline void NAME(check_run)(const unsigned char *src, const WORK *y, size_t from, size_t to,
                                   const struct NAME(sets) * sets, size_t set,
                                   struct qp_check *result)
{
    const struct NAME(ends) ends = NAME(ends_of)(sets, set);
    for (size_t i = from; i < to; i++) {
        enum NAME(verdict) verdict = NAME(judge)(NAME(at)(src, i), y[i], &ends, result);
        if (verdict == NAME(offends) && result->offences++ == 0)
            result->first_offence = i;
        if (verdict == NAME(clips) && result->clipped++ == 0)
            result->first_clipped = i;
    }
}

/* Looks for the largest error, and the first element that has it, above what there is. */
static inline void NAME(find_largest)(const void *src, const WORK *y, size_t n,
                                      struct qp_sums *result)
{
    for (size_t i = 0; i < n; i++) {
        WORK x = NAME(at)(src, i);
        double size = fabs((double)x - (double)y[i]);
        if (NAME(finite)(x) && size > result->max_abs) {
            result->max_abs = size;
            result->max_at = i;
        }
    }
}

/* Sums over a block in the fixed order: lanes by index, then the tree. Not all of it is finite. */
static inline void NAME(sums_block)(const void *src, const void *y_, size_t n,
                                    const struct qp_sums_wish *wish, struct qp_sums *result)
{
    double e2[16] = {0}, x2[16] = {0}, y2[16] = {0};
    for (size_t i = 0; i < n; i++) {
        WORK source = NAME(at)(src, i);
        if (!NAME(finite)(source))
            continue;
        double x = (double)source, y = (double)((const WORK *)y_)[i];
        double e = x - y;
        e2[i % 16] += e * e;
        x2[i % 16] += x * x;
        y2[i % 16] += y * y;
    }
    *result = (struct qp_sums){tree16(e2), tree16(x2), tree16(y2), wish->floor, 0, false};
    NAME(find_largest)(src, y_, n, result);
}
