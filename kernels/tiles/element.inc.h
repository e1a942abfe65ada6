/*
 * element.inc.h - what a kernel does to one element of one float dtype: the core of the numeric
 * contract. The scalar loops are made of these, and faster loops use them for what is left over.
 *
 * The including file defines NAME(op), ELEM_BYTES, LOAD(p), WORK (float or double), WORK_MAX and
 * STEPS(x).
 */

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
 * The ends of what a set can represent, and the error that is allowed in between. With a scale
 * below 0 the least code stands for the most.
 */
struct NAME(ends) {
    WORK least, most;
    double bound;
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
    const WORK scale = sets->scale[set];
    const int32_t zero = sets->zero[set];
    const WORK first = scale * (WORK)(sets->rule->q_min - zero);
    const WORK last = scale * (WORK)(sets->rule->q_max - zero);
    const WORK least = scale < 0 ? last : first, most = scale < 0 ? first : last;
    return (struct NAME(ends)){least < -WORK_MAX ? -WORK_MAX : least,
                               most > WORK_MAX ? WORK_MAX : most, sets->bound[set]};
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
        WORK wanted = x > 0 ? ends->most : x < 0 ? ends->least : (WORK)0;
        return y == wanted ? NAME(fits) : NAME(offends);
    }
    double error = fabs((double)x - (double)y);
    if (error <= ends->bound)
        return NAME(fits);
    bool above = (double)x - (double)ends->most > ends->bound && y == ends->most;
    bool below = (double)ends->least - (double)x > ends->bound && y == ends->least;
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
