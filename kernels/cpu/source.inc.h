/*
 * source.inc.h - the kernels that read one float dtype, as a template: the specification.
 *
 * The including file defines NAME(op), SOURCE_DTYPE, ELEM_BYTES, LOAD(p), and of the working
 * precision WORK (float or double), WORK_MAX, RNE(x) and WORK_KERNELS.
 * Plain scalar C, one IEEE operation at a time; a faster kernel must give the same bits.
 */

static inline WORK NAME(at)(const unsigned char *src, size_t i)
{
    return LOAD(src + i * ELEM_BYTES);
}

static inline bool NAME(finite)(WORK x)
{
    return x >= -WORK_MAX && x <= WORK_MAX;
}

/* ---- range ---------------------------------------------------------------------------------- */

static uint64_t NAME(range_run)(const unsigned char *src, size_t n, WORK *lo, WORK *hi)
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

static uint64_t NAME(range)(const struct qp_tile *tile, const void *src, void *lo_, void *hi_)
{
    WORK *lo = lo_, *hi = hi_;
    uint64_t others = 0;
    FOR_EACH_RUN (tile, run)
        others += NAME(range_run)((const unsigned char *)src + run.at * ELEM_BYTES, run.n,
                                  &lo[run.set], &hi[run.set]);
    return others;
}

/* ---- quantize ------------------------------------------------------------------------------- */

/*
 * The core: round half to even of x / s, zero point added after rounding, clamped. The clamp comes
 * first, to integers that the type holds exactly, so it cannot change the result.
 */
static inline uint8_t NAME(code)(WORK x, WORK scale, int32_t zero, WORK least, WORK most)
{
    WORK t = x / scale;
    t = t < least ? least : t;
    t = t > most ? most : t;
    t = x == x ? t : (WORK)0; /* NaN takes the zero point */
    return (uint8_t)((int32_t)RNE(t) + zero);
}

static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                           uint8_t *codes)
{
    FOR_EACH_RUN (tile, run) {
        const unsigned char *from = (const unsigned char *)src + run.at * ELEM_BYTES;
        const WORK s = ((const WORK *)scale)[run.set];
        const int32_t z = zero[run.set];
        const WORK least = (WORK)(rule->q_min - z), most = (WORK)(rule->q_max - z);
        for (size_t i = 0; i < run.n; i++)
            codes[run.at + i] = NAME(code)(NAME(at)(from, i), s, z, least, most);
    }
}

/* ---- check ---------------------------------------------------------------------------------- */

/* The ends of what a set can represent. */
struct NAME(ends) {
    WORK least, most;
    double bound;
};

static struct NAME(ends)
    NAME(ends_of)(const struct qp_code_rule *rule, WORK scale, int32_t zero, double bound)
{
    WORK least = scale * (WORK)(rule->q_min - zero), most = scale * (WORK)(rule->q_max - zero);
    return (struct NAME(ends)){least < -WORK_MAX ? -WORK_MAX : least,
                               most > WORK_MAX ? WORK_MAX : most, bound};
}

enum NAME(verdict) { NAME(fits), NAME(clips), NAME(offends) };

static enum NAME(verdict)
    NAME(judge)(WORK x, WORK y, const struct NAME(ends) * ends, struct qp_check *result)
{
    if (!NAME(finite)(x)) {
        result->nonfinite++;
        WORK wanted = x > 0 ? ends->most : x < 0 ? ends->least : (WORK)0;
        return y == wanted ? NAME(fits) : NAME(offends);
    }
    double error = (double)x - (double)y;
    error = error < 0 ? -error : error;
    if (error <= ends->bound)
        return NAME(fits);
    bool above = (double)x - (double)ends->most > ends->bound && y == ends->most;
    bool below = (double)ends->least - (double)x > ends->bound && y == ends->least;
    if (!above && !below)
        return NAME(offends);
    result->max_clip = error > result->max_clip ? error : result->max_clip;
    return NAME(clips);
}

static void NAME(check)(const struct qp_tile *tile, const void *src, const void *y,
                        const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                        const double *bound, struct qp_check *result)
{
    *result = (struct qp_check){0};
    FOR_EACH_RUN (tile, run) {
        const struct NAME(ends) ends =
            NAME(ends_of)(rule, ((const WORK *)scale)[run.set], zero[run.set], bound[run.set]);
        for (size_t i = run.at; i < run.at + run.n; i++) {
            enum NAME(verdict) verdict =
                NAME(judge)(NAME(at)(src, i), ((const WORK *)y)[i], &ends, result);
            if (verdict == NAME(offends) && result->offences++ == 0)
                result->first_offence = i;
            if (verdict == NAME(clips) && result->clipped++ == 0)
                result->first_clipped = i;
        }
    }
}

/* ---- sums ----------------------------------------------------------------------------------- */

static void NAME(sums)(const void *src, const void *y_, size_t n, struct qp_sums *result)
{
    double e2[16] = {0}, x2[16] = {0}, y2[16] = {0}, xy[16] = {0};
    double max_abs = -1;
    size_t max_at = 0;
    for (size_t i = 0; i < n; i++) {
        WORK source = NAME(at)(src, i);
        if (!NAME(finite)(source))
            continue;
        double x = (double)source, y = (double)((const WORK *)y_)[i];
        double e = x - y;
        e2[i % 16] += e * e;
        x2[i % 16] += x * x;
        y2[i % 16] += y * y;
        xy[i % 16] += x * y;
        double magnitude = e < 0 ? -e : e;
        if (magnitude > max_abs) {
            max_abs = magnitude;
            max_at = i;
        }
    }
    *result = (struct qp_sums){tree16(e2), tree16(x2), tree16(y2), tree16(xy), max_abs, max_at};
}

static const struct qp_source_kernels NAME(source) = {
    .dtype = SOURCE_DTYPE,
    .isa = QPLAN_ISA_SCALAR,
    .elem_bytes = ELEM_BYTES,
    .work_bytes = sizeof(WORK),
    .work = &WORK_KERNELS,
    .range = NAME(range),
    .quantize = NAME(quantize),
    .check = NAME(check),
    .sums = NAME(sums),
};

#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef WORK
#undef WORK_MAX
#undef RNE
#undef WORK_KERNELS
