/*
 * test_kernels_check.c - the kernels that judge: check, sums and the error bound, of every row of
 * the table, against their definitions written out element by element.
 */
#include "kernel_cases.h"

#include "kernels/tiles/wide.h"

/* ---- check ----------------------------------------------------------------------------------- */

enum verdict { FITS, CLIPS, OFFENDS };

/* What an element is, given the ends of its set. */
static enum verdict judge(double x, double y, double least, double most, double bound)
{
    if (!isfinite(x)) {
        double wanted = isnan(x) ? 0 : x > 0 ? most : least;
        return y == wanted ? FITS : OFFENDS;
    }
    if (fabs(x - y) <= bound)
        return FITS;
    bool is_nearer_end = x > most ? x - most > bound && y == most : y == least;
    if (x <= most && !(least - x > bound))
        return OFFENDS;
    return is_nearer_end ? CLIPS : OFFENDS;
}

static void plain_check(const struct qp_source_kernels *row, const struct qp_tile *tile,
                        const void *src, const void *y, const struct qp_code_rule *rule,
                        const void *scale, const int32_t *zero, const double *bound,
                        struct qp_check *result)
{
    *result = (struct qp_check){0};
    for (size_t i = 0; i < tile->rows * tile->cols; i++) {
        size_t set = set_of(tile, i);
        double s = get_work(row, scale, set), x = source_value(row, src, i);
        double value = get_work(row, y, i);
        double first = decoded(row, s, rule->q_min - zero[set]);
        double last = decoded(row, s, rule->q_max - zero[set]);
        enum verdict verdict = judge(x, value, fmin(first, last), fmax(first, last), bound[set]);
        result->nonfinite += isfinite(x) ? 0 : 1;
        if (verdict == OFFENDS && result->offences++ == 0)
            result->first_offence = i;
        if (verdict != CLIPS)
            continue;
        if (result->clipped++ == 0)
            result->first_clipped = i;
        result->max_clip = fmax(result->max_clip, fabs(x - value));
    }
}

static void assert_same_check(const struct qp_source_kernels *row, const struct qp_check *a,
                              const struct qp_check *b)
{
    bool same = a->offences == b->offences && a->clipped == b->clipped &&
                a->nonfinite == b->nonfinite && a->max_clip == b->max_clip &&
                (a->offences == 0 || a->first_offence == b->first_offence) &&
                (a->clipped == 0 || a->first_clipped == b->first_clipped);
    if (!same)
        fail_msg("%s %s: expected %" PRIu64 " offences from %zu, %" PRIu64 " clipped from %zu by "
                 "%a, %" PRIu64 " not finite; found %" PRIu64 " from %zu, %" PRIu64 " from %zu by "
                 "%a, %" PRIu64,
                 qplan_dtype_name(row->dtype), qplan_isa_name(row->isa), a->offences,
                 a->first_offence, a->clipped, a->first_clipped, a->max_clip, a->nonfinite,
                 b->offences, b->first_offence, b->clipped, b->first_clipped, b->max_clip,
                 b->nonfinite);
}

/* Most values right, some a code off, some at the end of the range, some far off. */
static double pick_decoded(const struct qp_source_kernels *row, double x, double scale,
                           int32_t zero, const struct qp_code_rule *rule, uint64_t *seed)
{
    int32_t code = code_of(x, scale, zero, rule, precision_of(row));
    uint64_t kind = random_below(seed, 12);
    if (kind == 0)
        code += random_below(seed, 2) ? 1 : -1;
    else if (kind == 1)
        code = random_below(seed, 2) ? rule->q_min : rule->q_max;
    else if (kind == 2)
        code = (int32_t)random_below(seed, 256) - 128;
    return decoded(row, scale, code - zero);
}

static uint64_t turn;

static void check_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                       uint64_t *seed)
{
    const struct qp_code_rule picked = pick_rule(seed), *rule = &picked;
    size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place_bytes(&arrays.src, n * row->elem_bytes, turn++);
    void *y = place(&arrays.y, n * row->work_bytes);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    double *bound = place(&arrays.bound, n_sets * sizeof *bound);
    struct qp_check expected, found;
    for (size_t i = 0; i < n_sets; i++) {
        set_work(row, scale, i, pick_scale(false, seed));
        zero[i] = pick_zero(rule, seed);
    }
    row->work->bounds(n_sets, scale, zero, rule, bound);
    for (size_t i = 0; i < n; i++) {
        size_t set = set_of(tile, i);
        double s = get_work(row, scale, set);
        put_hard_value(row, src, i, s, rule, zero[set], seed);
        double x = source_value(row, src, i);
        set_work(row, y, i, pick_decoded(row, x, s, zero[set], rule, seed));
    }
    plain_check(row, tile, src, y, rule, scale, zero, bound, &expected);
    quantizer_of(row)->check(tile, src, y, rule, scale, zero, bound, &found);
    assert_same_check(row, &expected, &found);
}

static void check_tiles(const struct qp_source_kernels *row)
{
    uint64_t seed = 9;
    for_each_tile(row, check_tile);
    for (size_t n = 0; n <= 257; n++) {
        struct qp_tile tile = flat_tile(n);
        check_tile(row, &tile, &seed);
    }
    struct qp_tile large = flat_tile(MOST_ELEMS - 1);
    check_tile(row, &large, &seed);
}

static void offences_and_clips_are_counted_and_found_by_every_kernel(void **state)
{
    (void)state;
    for_each_row(check_tiles);
}

/* A scale from a damaged file, which decodes to nothing that could be right. */
static void check_no_number(const struct qp_source_kernels *row)
{
    static const double scales[] = {NAN, INFINITY, -INFINITY, 0, -0.0};
    const struct qp_code_rule rule = rule_of(QPLAN_INT8, false);
    struct qp_tile tile = flat_tile(40);
    for (size_t s = 0; s < COUNT(scales); s++) {
        double scale, y[40], bound;
        int32_t zero = 0;
        struct qp_check found;
        uint8_t codes[40];
        set_work(row, &scale, 0, scales[s]);
        for (size_t i = 0; i < COUNT(codes); i++) {
            codes[i] = (uint8_t)(i + 1);
            put_source(row, arrays.src.begin, i, (double)(i + 1), 0);
        }
        row->work->bounds(1, &scale, NULL, &rule, &bound);
        quantizer_of(row)->dequantize(&tile, codes, &rule, &scale, &zero, y);
        quantizer_of(row)->check(&tile, arrays.src.begin, y, &rule, &scale, &zero, &bound, &found);
        assert_int_equal(found.offences, COUNT(codes));
        assert_int_equal(found.first_offence, 0);
    }
}

static void nothing_is_proven_with_a_scale_that_is_none(void **state)
{
    (void)state;
    for_each_row(check_no_number);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Sixteen lanes by index, then halves onto halves. */
static double lanes_sum(double lane[16])
{
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++)
            lane[i] += lane[i + width];
    }
    return lane[0];
}

static void plain_sums(const struct qp_source_kernels *row, const void *src, const void *y,
                       size_t n, struct qp_sums *result, long double exact[3])
{
    double lanes[3][16] = {{0}};
    *result = (struct qp_sums){.max_abs = -1};
    for (int k = 0; k < 3; k++)
        exact[k] = 0;
    for (size_t i = 0; i < n; i++) {
        double a = source_value(row, src, i), b = get_work(row, y, i), e = a - b;
        if (!isfinite(a))
            continue;
        const double squares[3] = {e * e, a * a, b * b};
        const long double wide[3] = {(long double)e * e, (long double)a * a, (long double)b * b};
        for (int k = 0; k < 3; k++) {
            lanes[k][i % 16] += squares[k];
            exact[k] += wide[k];
        }
        if (fabs(e) > result->max_abs) {
            result->max_abs = fabs(e);
            result->max_at = i;
        }
    }
    result->e2 = lanes_sum(lanes[0]);
    result->x2 = lanes_sum(lanes[1]);
    result->y2 = lanes_sum(lanes[2]);
}

static bool is_near(double found, long double exact)
{
    return fabsl((long double)found - exact) <= 1e-12L * fabsl(exact) + 1e-300L;
}

/* A value and what it decodes to; now and then no finite value, or an error seen before. */
static void put_summand(const struct qp_source_kernels *row, void *src, void *y, size_t i,
                        uint64_t *seed)
{
    uint64_t kind = random_below(seed, 40);
    put_source(row, src, i, random_signed(seed) * ldexp(1, (int)random_below(seed, 24) - 12), 0);
    double x = source_value(row, src, i);
    set_work(row, y, i, kind < 10 ? x + 0.25 : x + random_signed(seed) / 64);
    if (kind > 37)
        put_special(row, src, i, seed);
    x = source_value(row, src, i);
    if (isfinite(x) && fabs(x) > 1e18) /* the square is no number of f64 */
        put_source(row, src, i, 1, 0);
}

static void check_sums(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    void *src = place_bytes(&arrays.src, n * row->elem_bytes, turn++);
    void *y = place(&arrays.y, n * row->work_bytes);
    struct qp_sums expected, found;
    long double exact[3];
    for (size_t i = 0; i < n; i++)
        put_summand(row, src, y, i, seed);
    plain_sums(row, src, y, n, &expected, exact);
    row->sums(src, y, n, &(struct qp_sums_wish){.floor = -1}, &found);
    assert_true(found.e2 == expected.e2 && found.x2 == expected.x2 && found.y2 == expected.y2);
    assert_true(found.max_abs == expected.max_abs);
    assert_int_equal(found.max_at, expected.max_at);
    assert_true(is_near(found.e2, exact[0]) && is_near(found.x2, exact[1]));
    assert_true(is_near(found.y2, exact[2]));
    assert_false(found.within);
    struct qp_wide_sums wide; /* the same bits in another form */
    qp_wide_sums(&wide, row, src, y, n);
    assert_true(ldexp(wide.e2.value, wide.e2.exponent) == expected.e2);
    assert_true(ldexp(wide.x2.value, wide.x2.exponent) == expected.x2);
    assert_true(ldexp(wide.y2.value, wide.y2.exponent) == expected.y2);
}

/* The place of the largest error is looked for only where it is larger than the floor. */
static void check_floor(const struct qp_source_kernels *row)
{
    enum { N = 300 };
    double y[N];
    struct qp_sums all, found;
    uint64_t seed = 15;
    for (size_t i = 0; i < N; i++)
        put_summand(row, arrays.src.begin, y, i, &seed);
    row->sums(arrays.src.begin, y, N, &(struct qp_sums_wish){.floor = -1}, &all);
    const double floors[] = {-1, 0, nextafter(all.max_abs, 0), all.max_abs, 1e9};
    for (size_t i = 0; i < COUNT(floors); i++) {
        row->sums(arrays.src.begin, y, N, &(struct qp_sums_wish){.floor = floors[i]}, &found);
        assert_memory_equal(&found.e2, &all.e2, 3 * sizeof(double));
        assert_true(found.max_abs == fmax(floors[i], all.max_abs));
        assert_int_equal(found.max_at, floors[i] < all.max_abs ? all.max_at : 0);
    }
}

/*
 * Errors of one size all along, and now and then one that f32 does not tell from them: the first
 * that is above the floor is found, and none where there is none.
 */
static void check_equal_errors(const struct qp_source_kernels *row)
{
    enum { N = 1000 };
    double y[N];
    uint64_t seed = 16;
    for (int round = 0; round < 20; round++) {
        struct qp_sums expected, found;
        long double exact[3];
        for (size_t i = 0; i < N; i++) {
            const bool is_tiny = round % 2 && random_below(&seed, N / 4) == 0;
            put_source(row, arrays.src.begin, i, is_tiny ? 0x1p-30 : (double)(i % 7), 0);
            set_work(row, y, i, is_tiny ? -0.25 : (double)(i % 7) - (i % 3 ? 0.25 : -0.25));
        }
        plain_sums(row, arrays.src.begin, y, N, &expected, exact);
        const double floors[] = {-1, 0.25, nextafter(0.25, 0), expected.max_abs};
        for (size_t i = 0; i < COUNT(floors); i++) {
            row->sums(arrays.src.begin, y, N, &(struct qp_sums_wish){.floor = floors[i]}, &found);
            assert_true(found.max_abs == fmax(floors[i], expected.max_abs));
            assert_int_equal(found.max_at, floors[i] < expected.max_abs ? expected.max_at : 0);
        }
    }
}

/* Blocks in runs with a step each, as sums want them. */
struct runs {
    size_t n, width, skip;
    void *src, *y;
    double bound[QP_BLOCK / 16], step[QP_BLOCK / 16]; /* steps in working precision */
    struct qp_sums_wish wish;
};

/*
 * How far an element is from what it decodes to, in steps. In f32 such differences are exact up to
 * the middle between two steps or a little beyond it, and then no longer.
 */
enum reach { NEAR, BEYOND, FAR, N_REACHES };

static double random_place(uint64_t *seed, enum reach reach)
{
    switch (random_below(seed, 4 + (uint64_t)reach)) {
    case 0:
        return 0.5;
    case 1:
        return 0.5 + (double)random_below(seed, 9) * 0x1p-14 - 0x1p-12;
    case 4:
        return 0.7 + (double)random_below(seed, 100) / 30;
    case 5:
        return (double)random_below(seed, 1000);
    default:
        return random_signed(seed) / 2;
    }
}

/*
 * Every other step is a power of two: half of it then has twice the bits below it that it has. It
 * comes with the sign of a scale.
 */
static double random_step(uint64_t *seed, size_t run)
{
    const double step = (run % 2 ? 1 : 1.5 + random_signed(seed) / 2);
    return step * ldexp(random_below(seed, 2) ? -1 : 1, (int)(run % 13) - 10);
}

/* A bound is a little more than what its run needs. */
static void fill_runs(const struct qp_source_kernels *row, struct runs *runs, enum reach reach,
                      uint64_t *seed)
{
    for (size_t i = 0; i < runs->n; i++) {
        const size_t k = (i + runs->skip) / runs->width;
        if (i == 0 || (i + runs->skip) % runs->width == 0) {
            set_work(row, runs->step, k, random_step(seed, k + runs->n / runs->width));
            runs->bound[k] = 0;
        }
        const double step = get_work(row, runs->step, k), sign = random_signed(seed) < 0 ? -1 : 1;
        set_work(row, runs->y, i, step * ((double)random_below(seed, 17) - 8));
        const double x = get_work(row, runs->y, i) + sign * step * random_place(seed, reach);
        /* Not below 0: that would be a NaN. */
        put_source(row, runs->src, i, x, fabs(x) < 0x1p-20 ? 0 : (int)random_below(seed, 5) - 2);
        const double e = fabs(source_value(row, runs->src, i) - get_work(row, runs->y, i));
        runs->bound[k] = fmax(runs->bound[k], e * (1 + 0x1p-20));
    }
    runs->wish = (struct qp_sums_wish){-1, runs->width, runs->skip, runs->bound, runs->step};
}

static void check_run_sums(const struct qp_source_kernels *row, const struct runs *runs)
{
    struct qp_sums expected, found;
    long double exact[3];
    plain_sums(row, runs->src, runs->y, runs->n, &expected, exact);
    row->sums(runs->src, runs->y, runs->n, &runs->wish, &found);
    assert_memory_equal(&found.e2, &expected.e2, 3 * sizeof(double));
    assert_true(found.max_abs == expected.max_abs);
    assert_int_equal(found.max_at, expected.max_at);
    assert_true(found.within);
    struct qp_sums_wish wish = runs->wish;
    wish.floor = nextafter(expected.max_abs, 0);
    row->sums(runs->src, runs->y, runs->n, &wish, &found);
    assert_true(found.max_abs == expected.max_abs);
    assert_int_equal(found.max_at, expected.max_at);
}

/* Bounds that are all kept, then each of them missed by a little, then what is no number. */
static void check_runs(const struct qp_source_kernels *row, size_t n, size_t width, size_t skip,
                       enum reach reach, uint64_t *seed)
{
    static struct runs runs;
    struct qp_sums found;
    runs.n = n;
    runs.width = width;
    runs.skip = skip;
    runs.src = place_bytes(&arrays.src, n * row->elem_bytes, turn++);
    runs.y = place(&arrays.y, n * row->work_bytes);
    fill_runs(row, &runs, reach, seed);
    check_run_sums(row, &runs);
    for (size_t k = 0; k < (skip + n + width - 1) / width; k++) {
        const double kept = runs.bound[k];
        runs.bound[k] *= 1 - 0x1p-18;
        row->sums(runs.src, runs.y, n, &runs.wish, &found);
        assert_false(found.within);
        runs.bound[k] = kept;
    }
    set_work(row, runs.y, random_below(seed, n), NAN);
    row->sums(runs.src, runs.y, n, &runs.wish, &found);
    assert_false(found.within);
    put_source(row, runs.src, random_below(seed, n), INFINITY, 0);
    row->sums(runs.src, runs.y, n, &runs.wish, &found);
    assert_false(found.within);
}

static void bound_blocks(const struct qp_source_kernels *row)
{
    static const size_t widths[] = {16, 32, 48, 128, 256, 768, 1024, QP_BLOCK};
    uint64_t seed = 21;
    for (size_t i = 0; i < COUNT(widths); i++) {
        for (int reach = 0; reach < N_REACHES; reach++) {
            const size_t skip = 16 * (size_t)random_below(&seed, widths[i] / 16);
            check_runs(row, widths[i], widths[i], 0, (enum reach)reach, &seed);
            check_runs(row, QP_BLOCK, widths[i], 0, (enum reach)reach, &seed);
            check_runs(row, QP_BLOCK, widths[i], skip, (enum reach)reach, &seed);
            check_runs(row, 16 + 16 * (size_t)random_below(&seed, QP_BLOCK / 16), widths[i], skip,
                       (enum reach)reach, &seed);
        }
    }
}

static void sums_tell_whether_errors_keep_to_bounds(void **state)
{
    (void)state;
    for_each_row(bound_blocks);
}

static void errors_below_the_floor_are_not_looked_for(void **state)
{
    (void)state;
    for_each_row(check_floor);
    for_each_row(check_equal_errors);
}

static void sum_blocks(const struct qp_source_kernels *row)
{
    uint64_t seed = 10;
    for (size_t n = 0; n <= 257; n++)
        check_sums(row, n, &seed);
    for (size_t n = QP_BLOCK - 17; n <= QP_BLOCK; n++)
        check_sums(row, n, &seed);
}

static void sums_have_the_one_order_that_is_documented(void **state)
{
    (void)state;
    for_each_row(sum_blocks);
}

/* 1e8, 1, -1e8: any other order of adding gives another last bit. */
static void sum_bad_order(const struct qp_source_kernels *row)
{
    enum { N = 1000 };
    double y[N];
    struct qp_sums expected, found;
    long double exact[3];
    for (size_t i = 0; i < N; i++) {
        put_source(row, arrays.src.begin, i, i % 3 == 0 ? 3e4 : i % 3 == 1 ? 1.25 : -3e4, 0);
        set_work(row, y, i, 0.001 * (double)i);
    }
    plain_sums(row, arrays.src.begin, y, N, &expected, exact);
    row->sums(arrays.src.begin, y, N, &(struct qp_sums_wish){.floor = -1}, &found);
    assert_memory_equal(&found.e2, &expected.e2, 3 * sizeof(double));
}

static void sums_of_values_that_cancel_are_the_same_bits(void **state)
{
    (void)state;
    for_each_row(sum_bad_order);
}

/* ---- bound ----------------------------------------------------------------------------------- */

/*
 * Whether candidate is above, at or below s * reach + s * 2^k + 2^-149, exactly: s > 0 has 24 bits
 * and a reach 25 at the most, so every difference here fits 64 bits.
 */
static int compare_bound(double candidate, double s, double reach, int k)
{
    long double rest = (long double)candidate - (long double)s * (long double)reach;
    rest -= ldexpl((long double)s, k);
    return (rest > 0x1p-149L) - (rest < 0x1p-149L);
}

static void check_bound(const struct qp_source_kernels *row, double s,
                        const struct qp_code_type *type)
{
    const struct qp_code_rule rule = {.type = type};
    int k = type->span - (works_in_f32(row) ? 21 : 50);
    double work, bound;
    set_work(row, &work, 0, s);
    row->work->bounds(1, &work, NULL, &rule, &bound);
    double lower = nextafter(nextafter(bound, 0), 0);
    s = fabs(s);
    if (compare_bound(bound, s, type->reach, k) < 0 || compare_bound(lower, s, type->reach, k) > 0)
        fail_msg("the bound of scale %a with %s is %a", s, type->name, bound);
}

static void check_bounds(const struct qp_source_kernels *row)
{
    uint64_t seed = 11;
    for (int exponent = -126; exponent < 128; exponent++) {
        for (int i = 0; i < 40; i++) {
            double s = (double)(float)ldexp(1.5 + random_signed(&seed) / 2, exponent);
            s = i == 0 ? ldexp(1, exponent) : i == 1 ? ldexp(0x1.fffffep0, exponent) : s;
            if (s > (double)FLT_MAX)
                continue;
            for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
                check_bound(row, s, type);
                check_bound(row, -s, type);
            }
        }
    }
}

static void the_bound_is_rounded_up_by_at_most_two_steps(void **state)
{
    (void)state;
    if (LDBL_MANT_DIG < 64)
        skip();
    for_each_row(check_bounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offences_and_clips_are_counted_and_found_by_every_kernel),
        cmocka_unit_test(nothing_is_proven_with_a_scale_that_is_none),
        cmocka_unit_test(sums_have_the_one_order_that_is_documented),
        cmocka_unit_test(sums_tell_whether_errors_keep_to_bounds),
        cmocka_unit_test(errors_below_the_floor_are_not_looked_for),
        cmocka_unit_test(sums_of_values_that_cancel_are_the_same_bits),
        cmocka_unit_test(the_bound_is_rounded_up_by_at_most_two_steps),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
