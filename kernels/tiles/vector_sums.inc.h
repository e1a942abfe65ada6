/*
 * vector_sums.inc.h - the sums over the errors of one source dtype in the vector vocabulary.
 * vector.inc.h includes it and says what must be defined.
 */

/* The rest of a block, behind its last 16 elements, goes into the first lanes. */
static double NAME(sums_rest)(const unsigned char *src, const float *y, size_t n,
                              double lanes[3][16])
{
    double most = -1;
    for (size_t i = 0; i < n; i++) {
        double x = (double)NAME(at)(src, i), e = x - (double)y[i];
        lanes[0][i] += e * e;
        lanes[1][i] += x * x;
        lanes[2][i] += (double)y[i] * (double)y[i];
        most = fabs(e) > most ? fabs(e) : most;
    }
    return most;
}

/* The errors of one vector from i on, or the elements themselves, and the largest so far. */
static inline void NAME(error)(const unsigned char *src, const float *y, size_t i, int exact,
                               float *out, vf *most)
{
    const vf x = V_LOAD(src + i * ELEM_BYTES), e = v_sub(x, v_load(y + i));
    v_store(out + i, exact ? e : x);
    *most = v_max(v_abs(e), *most);
}

/*
 * The first step of a chunk: the errors of n elements in f32, or the elements themselves. Returns
 * the largest error. exact is a constant where this is called.
 */
static inline vf NAME(errors)(const unsigned char *src, const float *y, size_t n, int exact,
                              float *out)
{
    vf most[4] = {v_set(-1), v_set(-1), v_set(-1), v_set(-1)}; /* a maximum takes some cycles */
    size_t i = 0;
    for (; i + 4 * V_LANES <= n; i += 4 * V_LANES) {
        for (size_t k = 0; k < 4; k++)
            NAME(error)(src, y, i + k * V_LANES, exact, out, &most[k]);
    }
    for (; i < n; i += V_LANES)
        NAME(error)(src, y, i, exact, out, &most[0]);
    return v_max(v_max(most[0], most[1]), v_max(most[2], most[3]));
}

/*
 * The share of the step from 0 to the next y up to which errors are exact in f32: x is then so near
 * y that both are multiples of a number of which their difference has at most 2^24.
 */
#define EXACT_SHARE (ELEM_BYTES == 2 ? 0.75f : 0.5f * (1 - 0x1p-22f))

/* The elements of a chunk, and what is known of their runs ahead. */
struct NAME(chunk) {
    const unsigned char *src;
    const float *y;
    size_t at, n; /* in the block; multiples of 16 */
    const struct qp_sums_wish *wish;
    const float *fine; /* for each run of the block: errors that are within bounds, and exact */
    float *values;     /* room for the errors; or the elements, if those are not exact */
};

/* The run of the first element of a chunk, and where a run ends in it. */
static inline size_t NAME(first_run)(const struct NAME(chunk) * chunk)
{
    return (chunk->at + chunk->wish->skip) / chunk->wish->width;
}

static inline size_t NAME(run_end)(const struct NAME(chunk) * chunk, size_t run)
{
    return qp_run_end(chunk->wish, run, chunk->at + chunk->n) - chunk->at;
}

/*
 * The errors of a chunk beside the sums of as many elements of the one before it; whether all are
 * fine. Out of line like other loops that add.
 */
static __attribute__((noinline)) bool NAME(errors_beside)(const struct NAME(chunk) * chunk,
                                                          const struct NAME(chunk) * before,
                                                          struct v_sums *sums)
{
    struct v_sum_lanes lanes = sums->lanes;
    const unsigned char *src = chunk->src;
    const float *y = chunk->y, *before_y = before->y, *before_e = before->values;
    float *values = chunk->values;
    vm fine = v_at_most(v_set(0), v_set(0));
    vf largest = sums->most;
    size_t i = 0;
    for (size_t run = NAME(first_run)(chunk); i < chunk->n; run++) {
        const size_t end = NAME(run_end)(chunk, run);
        vf most = v_set(-1);
        for (; i < end; i += 16) {
            for (size_t k = 0; k < 16; k += V_LANES)
                NAME(error)(src, y, i + k, 1, values, &most);
            add_exact(&lanes, before_y + i, before_e + i);
        }
        fine = vm_and(fine, v_at_most(most, v_set(chunk->fine[run])));
        largest = v_max(most, largest);
    }
    sums->lanes = lanes;
    sums->most = largest;
    return vm_all(fine);
}

/* The errors of a chunk alone, judged by bounds and for exactness each. */
static void NAME(judge_chunk)(const struct NAME(chunk) * chunk, struct v_sums *sums)
{
    const struct qp_sums_wish *wish = chunk->wish;
    size_t i = 0;
    for (size_t run = NAME(first_run)(chunk); i < chunk->n; run++) {
        const size_t end = NAME(run_end)(chunk, run);
        const vf most =
            NAME(errors)(chunk->src + i * ELEM_BYTES, chunk->y + i, end - i, 1, chunk->values + i);
        const vf exact = v_set(EXACT_SHARE * fabsf(((const float *)wish->step)[run]));
        sums->most = v_max(most, sums->most);
        sums->within = vm_and(sums->within, v_at_most(most, v_set(sure_limit(wish->bound[run]))));
        sums->exact = vm_and(sums->exact, v_at_most(most, exact));
        i = end;
    }
}

static void NAME(fine_errors)(const struct qp_sums_wish *wish, size_t n, float *fine)
{
    const float *step = wish->step;
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const vf exact = v_mul(v_set(EXACT_SHARE), v_abs(v_load(step + i)));
        v_store(fine + i, v_min(exact, v_sure_limits(wish->bound + i)));
    }
    for (; i < n; i++) {
        const float limit = sure_limit(wish->bound[i]), exact = EXACT_SHARE * fabsf(step[i]);
        fine[i] = exact < limit ? exact : limit;
    }
}

/* n elements, a multiple of 16, with bounds. */
static void NAME(sums_bounded)(const unsigned char *src, const float *y, size_t n,
                               const struct qp_sums_wish *wish, struct v_sums *sums)
{
    float fine[QP_BLOCK / 16], values[2][SUMS_CHUNK];
    struct NAME(chunk) before = {.n = 0}; /* whose errors are known, but not yet summed */
    NAME(fine_errors)(wish, (wish->skip + n + wish->width - 1) / wish->width, fine);
    for (size_t at = 0; at < n; at += SUMS_CHUNK) {
        const struct NAME(chunk) chunk = {.src = src + at * ELEM_BYTES,
                                          .y = y + at,
                                          .at = at,
                                          .n = n - at < SUMS_CHUNK ? n - at : SUMS_CHUNK,
                                          .wish = wish,
                                          .fine = fine,
                                          .values = values[at / SUMS_CHUNK % 2]};
        if (!before.n || !NAME(errors_beside)(&chunk, &before, sums))
            NAME(judge_chunk)(&chunk, sums);
        if (before.n > chunk.n)
            add_exact_chunk(&sums->lanes, before.y + chunk.n, before.values + chunk.n,
                            before.n - chunk.n);
        before = chunk;
        if (!vm_all(sums->exact)) {
            (void)NAME(errors)(chunk.src, chunk.y, chunk.n, 0, chunk.values);
            add_any_chunk(&sums->lanes, chunk.y, chunk.values, chunk.n);
            before.n = 0;
        }
    }
    if (before.n)
        add_exact_chunk(&sums->lanes, before.y, before.values, before.n);
}

static void NAME(sums_unbounded)(const unsigned char *src, const float *y, size_t n,
                                 struct v_sums *sums)
{
    float x[SUMS_CHUNK];
    for (size_t at = 0; at < n; at += SUMS_CHUNK) {
        const size_t left = n - at < SUMS_CHUNK ? n - at : SUMS_CHUNK;
        const vf most = NAME(errors)(src + at * ELEM_BYTES, y + at, left, 0, x);
        sums->most = v_max(most, sums->most);
        add_any_chunk(&sums->lanes, y + at, x, left);
    }
}

/*
 * Whether all differences of n elements, a multiple of V_LANES, are exact in f32: what each leaves
 * of its element, and of what that decodes to, tells.
 */
static inline bool NAME(are_exact)(const unsigned char *src, const float *y, size_t n)
{
    vf left = v_set(0);
    for (size_t i = 0; i < n; i += V_LANES) {
        const vf x = V_LOAD(src + i * ELEM_BYTES), decoded = v_load(y + i);
        const vf e = v_sub(x, decoded), of_y = v_sub(x, e), of_x = v_add(e, of_y);
        left = v_max(v_add(v_abs(v_sub(x, of_x)), v_abs(v_sub(of_y, decoded))), left);
    }
    return vm_all(v_at_most(left, v_set(0)));
}

/* Whether no error of SEARCHED elements is above a limit, as f32 can tell. */
static inline bool NAME(none_above)(const unsigned char *src, const float *y, double limit)
{
    float e[SEARCHED];
    const double most = (double)v_top(NAME(errors)(src, y, SEARCHED, 1, e));
    return most * ROUNDED_UP <= limit || (most <= limit && NAME(are_exact)(src, y, SEARCHED));
}

/* Looks for the largest error, and the first element that has it, above what there is. */
static void NAME(find_above)(const unsigned char *src, const float *y, size_t n,
                             struct qp_sums *result)
{
    for (size_t i = 0, m; i < n; i += m) {
        m = n - i < SEARCHED ? n - i : SEARCHED;
        const unsigned char *from = src + i * ELEM_BYTES;
        if (m == SEARCHED && NAME(none_above)(from, y + i, result->max_abs))
            continue;
        struct qp_sums part = {.max_abs = result->max_abs};
        NAME(find_largest)(from, y + i, m, &part);
        if (part.max_abs > result->max_abs) {
            result->max_abs = part.max_abs;
            result->max_at = i + part.max_at;
        }
    }
}

static void NAME(sums)(const void *src, const void *y_, size_t n, const struct qp_sums_wish *wish,
                       struct qp_sums *result)
{
    const size_t whole = n - n % 16;
    const float *y = y_;
    struct v_sums sums;
    double lanes[3][16];
    begin_sums(&sums, wish->width > 0);
    if (wish->width)
        NAME(sums_bounded)(src, y, whole, wish, &sums);
    else
        NAME(sums_unbounded)(src, y, whole, &sums);
    store_sums(lanes, &sums.lanes);
    const unsigned char *rest = (const unsigned char *)src + whole * ELEM_BYTES;
    const double most = NAME(sums_rest)(rest, y + whole, n - whole, lanes);
    const double e2 = tree16(lanes[0]), x2 = tree16(lanes[1]), y2 = tree16(lanes[2]);
    /* No comparison sees an error that is a NaN, but its sum does. */
    const bool within = vm_all(sums.within) && e2 <= DBL_MAX;
    *result = (struct qp_sums){e2, x2, y2, wish->floor, 0, within};
    /* Squares of finite f32 values cannot overflow: then there was another. Rare: one by one. */
    if (!(x2 <= DBL_MAX))
        NAME(sums_block)(src, y, n, wish, result);
    else if (most > wish->floor || largest_of(&sums) > wish->floor)
        NAME(find_above)(src, y, n, result);
}

#undef EXACT_SHARE
