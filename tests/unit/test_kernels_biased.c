/*
 * test_kernels_biased.c - codes with a bias: parameters, codes, decoded values and verdicts of
 * every kernel against the contract in its plainest form, and levels against each other.
 */
#include "kernel_cases.h"

#include "kernels/codes/biased.h"

static const enum qplan_dtype unsigned_types[] = {QPLAN_UINT2, QPLAN_UINT3, QPLAN_UINT4,
                                                  QPLAN_UINT5, QPLAN_UINT6, QPLAN_UINT8};
static const enum qplan_dtype scale_types[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16};

static struct qp_code_rule biased_rule(uint64_t *seed)
{
    const struct qplan_scheme scheme = {
        .dtype = unsigned_types[random_below(seed, COUNT(unsigned_types))],
        .asymmetric = random_below(seed, 4) > 0,
        .bias = true,
        .scale_dtype = scale_types[random_below(seed, COUNT(scale_types))]};
    return qp_code_rule(&scheme);
}

static const struct qp_quantizer *biased_of(const struct qp_source_kernels *row)
{
    return qp_quantizer(row->dtype, QP_CODES_BIASED, row->isa);
}

static const struct qp_source_kernels *scalar_of(const struct qp_source_kernels *row)
{
    return qp_source_kernels(row->dtype, QPLAN_ISA_SCALAR);
}

/* The bits of a float type that are next to those of a value of it; both are above 0. */
static double beside(enum qplan_dtype dtype, double x, int ulps)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    unsigned char bytes[8] = {0};
    uint64_t bits = 0;
    f64->store(dtype, 1, &x, bytes);
    memcpy(&bits, bytes, qp_float_bytes(dtype));
    return value_of_bits(dtype, bits + (uint64_t)(int64_t)ulps);
}

static double number_near_1(uint64_t *seed)
{
    return ldexp(1.5 + random_signed(seed) / 2, (int)random_below(seed, 8) - 4);
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* Long doubles hold sums of such numbers exactly: none is below 2^-60 of another. */
static void check_covering(const struct qp_code_rule *rule, double lo, double hi, double scale,
                           double bias)
{
    const enum qplan_dtype dtype = rule->scale_dtype;
    const long double top = (long double)bias + (long double)rule->q_max * (long double)scale;
    assert_true(bias <= lo && top >= (long double)hi);
    assert_true(beside(dtype, scale, 0) == scale && -beside(dtype, -bias, 0) == bias);
    if (lo < 0)
        assert_true(-beside(dtype, -bias, -1) > lo); /* none nearer is below */
    const double before = beside(dtype, scale, -3);  /* difference and quotient are rounded */
    if ((long double)bias + (long double)rule->q_max * (long double)before >= (long double)hi)
        fail_msg("a scale far below %a covers %a to %a too", scale, lo, hi);
}

static void check_params(const struct qp_source_kernels *row)
{
    uint64_t seed = 5;
    for (int i = 0; i < 20000; i++) {
        const struct qp_code_rule rule = biased_rule(&seed);
        double lo[1], hi[1], scale[1];
        int32_t zero = -1;
        const double least = random_below(&seed, 4) ? -number_near_1(&seed) : 0;
        const double most = random_below(&seed, 4) || least == 0 ? number_near_1(&seed) : 0;
        set_work(row, lo, 0, least);
        set_work(row, hi, 0, most);
        assert_int_equal(biased_of(row)->params(&rule, 1, lo, hi, scale, &zero), 1);
        const double s = get_work(row, scale, 0), b = (double)qp_bias(zero);
        if (rule.asymmetric)
            check_covering(&rule, get_work(row, lo, 0), get_work(row, hi, 0), s, b);
        else
            assert_true(b == -s * (rule.q_max + 1) / 2 &&
                        s * rule.q_max / 2 >= fmax(-least, most) * (1 - 0x1p-22));
    }
}

static void scales_cover_the_range_from_the_bias_on_and_hardly_more(void **state)
{
    (void)state;
    for_each_row(check_params);
}

static void check_edges(const struct qp_source_kernels *row)
{
    const struct qplan_scheme scheme = {
        .dtype = QPLAN_UINT4, .asymmetric = true, .bias = true, .scale_dtype = QPLAN_F16};
    struct qp_code_rule rule = qp_code_rule(&scheme);
    static const struct {
        double lo, hi;
        bool fits;
        double scale, bias;
    } cases[] = {
        {0, 0, true, 1, 0},     /* zeros alone */
        {-15, 0, true, 1, -15}, /* values that codes hit */
        {0, 7.5, true, 0.5, 0},
        {-1, 14, true, 1, -1},
        {0, 0x1p-30, true, 0x1p-14, 0}, /* the least normal scale */
        {0, 65504, false, 0, 0},        /* 15 scales would be above the largest number */
        {0, 65500 * 0.9375, true, 4094, 0},
        {-65504, 65504, false, 0, 0},
        {-65505, 0, false, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        double lo[1], hi[1], scale[1];
        int32_t zero;
        set_work(row, lo, 0, cases[i].lo);
        set_work(row, hi, 0, cases[i].hi);
        assert_int_equal(biased_of(row)->params(&rule, 1, lo, hi, scale, &zero), cases[i].fits);
        if (!cases[i].fits)
            continue;
        assert_true(get_work(row, scale, 0) == cases[i].scale);
        assert_true((double)qp_bias(zero) == cases[i].bias &&
                    !signbit(0.0 + cases[i].bias) == !signbit(qp_bias(zero)));
    }
}

static void edges_of_ranges_are_as_they_should_be(void **state)
{
    (void)state;
    for_each_row(check_edges);
}

/* ---- Codes and values ------------------------------------------------------------------------ */

/* The code of x: (x - bias) / s, both rounded, then to the nearest integer. */
static int32_t biased_code(const struct qp_source_kernels *row, double x, double s, double b,
                           const struct qp_code_rule *rule)
{
    x = isnan(x) ? 0 : x;
    if (isinf(x))
        return (x > 0) == (s > 0) ? rule->q_max : 0;
    const double d = works_in_f32(row) ? (double)(float)(x - b) : x - b;
    if (isinf(d))
        return (d > 0) == (s > 0) ? rule->q_max : 0;
    const int32_t code = divide_to_integer(d, s, precision_of(row));
    return code < 0 ? 0 : code > rule->q_max ? rule->q_max : code;
}

/* A number in the stored type, if decoders work in it. */
static double rounded(const struct qp_code_rule *rule, double x)
{
    unsigned char bytes[8] = {0};
    uint64_t bits = 0;
    if (!rule->rounds)
        return x;
    qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work->store(rule->scale_dtype, 1, &x, bytes);
    memcpy(&bits, bytes, qp_float_bytes(rule->scale_dtype));
    return value_of_bits(rule->scale_dtype, bits);
}

/* scale * q + bias with a rounding each, to the stored type too if decoders do so. */
static double biased_value(const struct qp_source_kernels *row, double s, int32_t q, double b,
                           const struct qp_code_rule *rule)
{
    const double sum = rounded(rule, decoded(row, s, q)) + b;
    return rounded(rule, works_in_f32(row) ? (double)(float)sum : sum);
}

static void put_inside(const struct qp_source_kernels *row, void *src, size_t i, double s, double b,
                       const struct qp_code_rule *rule, uint64_t *seed)
{
    put_source(row, src, i, b + s * (0.5 + random_signed(seed) / 2) * rule->q_max, 0);
}

static void put_value(const struct qp_source_kernels *row, void *src, size_t i, double s, double b,
                      const struct qp_code_rule *rule, uint64_t *seed)
{
    const double steps = (double)random_below(seed, (uint64_t)rule->q_max + 5) - 2;
    const uint64_t kind = random_below(seed, 10);
    if (kind == 0)
        put_special(row, src, i, seed);
    else
        put_source(row, src, i,
                   b + s * (kind < 5   ? steps + 0.5
                            : kind < 7 ? steps
                                       : 0),
                   (int)random_below(seed, 3) - 1);
}

static void check_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                       uint64_t *seed)
{
    struct qp_code_rule rule = biased_rule(seed);
    const struct qp_quantizer *quantizer = biased_of(row), *plain = biased_of(scalar_of(row));
    const size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place(&arrays.src, n * row->elem_bytes), *y = place(&arrays.y, n * row->work_bytes);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    double *bound = place(&arrays.bound, n_sets * sizeof *bound);
    uint8_t *codes = place(&arrays.codes, n);
    struct qp_check found, expected;
    rule.rounds = random_below(seed, 2);
    rule.bounded = random_below(seed, 2);
    for (size_t i = 0; i < n_sets; i++) {
        const double s = pick_scale(true, seed);
        set_work(row, scale, i, s);
        zero[i] = qp_bias_bits((float)(s * 20 * random_signed(seed)));
    }
    for (size_t i = 0; i < n; i++) {
        const size_t set = set_of(tile, i);
        (rule.bounded ? put_inside : put_value)(row, src, i, get_work(row, scale, set),
                                                (double)qp_bias(zero[set]), &rule, seed);
    }
    quantizer->quantize(tile, src, &rule, scale, zero, codes);
    for (size_t i = 0; i < n; i++) {
        const size_t set = set_of(tile, i);
        const double s = get_work(row, scale, set), b = (double)qp_bias(zero[set]);
        assert_int_equal(codes[i], biased_code(row, source_value(row, src, i), s, b, &rule));
    }
    quantizer->dequantize(tile, codes, &rule, scale, zero, y);
    for (size_t i = 0; i < n; i++) {
        const size_t set = set_of(tile, i);
        const double s = get_work(row, scale, set), b = (double)qp_bias(zero[set]);
        assert_true(get_work(row, y, i) == biased_value(row, s, codes[i], b, &rule));
    }
    rule.rounds = false;
    quantizer->dequantize(tile, codes, &rule, scale, zero, y);
    row->work->bounds(n_sets, scale, zero, &rule, bound);
    quantizer->check(tile, src, y, &rule, scale, zero, bound, &found);
    plain->check(tile, src, y, &rule, scale, zero, bound, &expected);
    assert_int_equal(found.offences, expected.offences);
    assert_int_equal(found.clipped, expected.clipped);
    assert_int_equal(found.nonfinite, expected.nonfinite);
    assert_memory_equal(&found.max_clip, &expected.max_clip, sizeof found.max_clip);
}

static void check_tiles(const struct qp_source_kernels *row)
{
    for_each_tile(row, check_tile);
}

static void codes_and_values_are_those_of_the_contract(void **state)
{
    (void)state;
    for_each_row(check_tiles);
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

/* Every value from ends of the codes on is judged right, and one beside its code is not. */
static void check_verdicts(const struct qp_source_kernels *row)
{
    const struct qplan_scheme scheme = {
        .dtype = QPLAN_UINT4, .asymmetric = true, .bias = true, .scale_dtype = QPLAN_F32};
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_tile tile = flat_tile(4);
    /* x, its code with scale 0.5 and bias -3, clipped or an offence */
    static const double xs[] = {-3, 4.5, 0.2, 5.5};
    static const uint8_t right[] = {0, 15, 6, 15};
    double scale[1], y[4], bound;
    int32_t zero = qp_bias_bits(-3);
    struct qp_check found;
    uint8_t codes[4];
    set_work(row, scale, 0, 0.5);
    for (size_t i = 0; i < 4; i++)
        put_source(row, arrays.src.begin, i, xs[i], 0);
    biased_of(row)->quantize(&tile, arrays.src.begin, &rule, scale, &zero, codes);
    assert_memory_equal(codes, right, sizeof right);
    row->work->bounds(1, scale, &zero, &rule, &bound);
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        codes[2] = (uint8_t)(right[2] + wrong);
        biased_of(row)->dequantize(&tile, codes, &rule, scale, &zero, y);
        biased_of(row)->check(&tile, arrays.src.begin, y, &rule, scale, &zero, &bound, &found);
        assert_int_equal(found.offences, wrong);
        assert_true(!wrong || found.first_offence == 2);
        assert_int_equal(found.clipped, 1);
        assert_int_equal(found.first_clipped, 3);
        assert_true(found.max_clip == 1);
    }
}

static void verdicts_know_the_ends_of_biased_codes(void **state)
{
    (void)state;
    for_each_row(check_verdicts);
}

/* A bias far away from 0, as other tools make them, is not judged by what its scale alone allows.
 */
static void bounds_allow_what_a_large_bias_costs(void **state)
{
    const struct qplan_scheme scheme = {
        .dtype = QPLAN_UINT4, .asymmetric = true, .bias = true, .scale_dtype = QPLAN_F32};
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_work_kernels *work = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    const float scale[3] = {1, 1, 1};
    const int32_t zero[3] = {0, qp_bias_bits(-16), qp_bias_bits(1000016)};
    double bound[3];
    (void)state;
    work->bounds(3, scale, zero, &rule, bound);
    assert_true(bound[0] == bound[1]);
    assert_true(bound[2] >= bound[0] + 1000000 * 0x1p-22);
    assert_true(bound[2] <= bound[0] + 1000000 * 0x1p-22 + 0x1p-50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_cover_the_range_from_the_bias_on_and_hardly_more),
        cmocka_unit_test(edges_of_ranges_are_as_they_should_be),
        cmocka_unit_test(codes_and_values_are_those_of_the_contract),
        cmocka_unit_test(verdicts_know_the_ends_of_biased_codes),
        cmocka_unit_test(bounds_allow_what_a_large_bias_costs),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
