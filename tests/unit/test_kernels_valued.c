/*
 * test_kernels_valued.c - codes of floats and tables: parameters, codes, decoded values and
 * verdicts of every kernel against the contract in its plainest form, and a walk over every code,
 * every midpoint between two, and what lies one step of the source type beside it.
 *
 * What a code stands for is written down here once more, from the definition of each type: codes
 * are those of the nearest value of a sorted list.
 */
#include "kernel_cases.h"

/* ---- What codes stand for -------------------------------------------------------------------- */

struct value {
    double value;
    uint8_t code;
};

/* The values of a type, ascending, each once: of two zeros that without a sign. */
struct values {
    const struct qp_code_type *type;
    size_t n;
    struct value all[256];
    unsigned sign; /* the bit of a code, 0 of a table */
};

static int compare_values(const void *a, const void *b)
{
    const double x = ((const struct value *)a)->value, y = ((const struct value *)b)->value;
    return (x > y) - (x < y);
}

/* A float of so many bits of exponent and mantissa, all codes up to the last being numbers. */
static void list_floats(struct values *v, int exp_bits, int man_bits, unsigned last)
{
    v->sign = 1u << (exp_bits + man_bits);
    for (unsigned size = 0; size <= last; size++) {
        const int exponent = (int)(size >> man_bits), bias = (1 << (exp_bits - 1)) - 1;
        const double mantissa = ldexp(size & ((1u << man_bits) - 1), -man_bits);
        const double value =
            exponent ? ldexp(1 + mantissa, exponent - bias) : ldexp(mantissa, 1 - bias);
        v->all[v->n++] = (struct value){value, (uint8_t)size};
        if (size)
            v->all[v->n++] = (struct value){-value, (uint8_t)(size | v->sign)};
    }
    qsort(v->all, v->n, sizeof v->all[0], compare_values);
}

static void list_nf4(struct values *v)
{
    for (unsigned i = 0; i < 16; i++)
        v->all[v->n++] = (struct value){(double)nf4[i], (uint8_t)i};
}

static struct values values_of(enum qplan_dtype dtype)
{
    struct values v = {.type = qp_code_type(dtype)};
    if (dtype == QPLAN_F8E4M3)
        list_floats(&v, 4, 3, 0x7e);
    else if (dtype == QPLAN_F8E5M2)
        list_floats(&v, 5, 2, 0x7b);
    else if (dtype == QPLAN_F4E2M1)
        list_floats(&v, 2, 1, 0x7);
    else
        list_nf4(&v);
    return v;
}

static const enum qplan_dtype code_dtypes[] = {QPLAN_F8E4M3, QPLAN_F8E5M2, QPLAN_F4E2M1, QPLAN_NF4};

/* The midpoint of a value and the next one: of a table as the working precision has it. */
static double midpoint(const struct values *v, size_t i, int precision)
{
    const double middle = (v->all[i].value + v->all[i + 1].value) / 2;
    return precision == 24 ? (double)(float)middle : middle;
}

/* The place of the value nearest to a quotient: half to the even code, of a table to the lower. */
static size_t place_of(const struct values *v, double t, int precision)
{
    size_t i = 0;
    while (i + 1 < v->n && t > midpoint(v, i, precision))
        i++;
    const bool is_tie = i + 1 < v->n && t == midpoint(v, i, precision);
    return i + (is_tie && v->sign && v->all[i].code % 2);
}

/* The code of x, NaN being taken for 0: with the sign of the quotient, also where that is 0. */
static uint8_t valued_code(const struct values *v, double x, double s, int precision)
{
    x = isnan(x) ? 0 : x;
    const bool is_negative = signbit(x) != signbit(s);
    double t = 0;
    if (isinf(x))
        t = is_negative ? -INFINITY : INFINITY;
    else if (x != 0)
        t = divide(x, s, precision);
    const uint8_t code = v->all[place_of(v, t, precision)].code;
    return (uint8_t)(code | (is_negative ? v->sign : 0));
}

static double valued_value(const struct qp_source_kernels *row, const struct values *v, double s,
                           uint8_t code)
{
    for (size_t i = 0; i < v->n; i++) {
        const double value = v->all[i].value;
        if (v->all[i].code != code && (code != v->sign || value != 0))
            continue;
        if (works_in_f32(row))
            return (double)(float)fmin(fmax(s * value, -(double)FLT_MAX), (double)FLT_MAX);
        const long double product = (long double)s * (long double)value;
        return (double)fminl(fmaxl(product, -(long double)DBL_MAX), (long double)DBL_MAX);
    }
    fail_msg("%s has no code 0x%02x", v->type->name, code);
    return 0;
}

static struct qp_code_rule rule_of_type(const struct values *v, enum qplan_dtype scale_dtype)
{
    return qp_code_rule(
        &(struct qplan_scheme){.dtype = v->type->dtype, .scale_dtype = scale_dtype});
}

static const struct qp_quantizer *valued_of(const struct qp_source_kernels *row,
                                            const struct values *v)
{
    return qp_quantizer(row->dtype, v->type->kind, row->isa);
}

/* ---- The walk -------------------------------------------------------------------------------- */

#define MOST_STEPS (256 * 2 * 3 + 64)

/* Every value and every midpoint times a scale, and one step of the source type beside each. */
static size_t put_steps(const struct qp_source_kernels *row, const struct values *v, double scale,
                        void *src)
{
    const double beyond[] = {0.0, -0.0, 1.01, 1.5, 1e9, INFINITY, NAN};
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        for (int ulps = -1; ulps <= 1; ulps++) {
            if (v->all[i].value != 0)
                put_source(row, src, n++, scale * v->all[i].value, ulps);
            if (i + 1 < v->n)
                put_source(row, src, n++, scale * midpoint(v, i, precision_of(row)), ulps);
        }
    }
    for (size_t i = 0; i < COUNT(beyond); i++) {
        put_source(row, src, n++, scale * v->type->largest * beyond[i], 0);
        put_source(row, src, n++, -scale * v->type->largest * beyond[i], 0);
    }
    assert_true(n <= MOST_STEPS);
    return n;
}

static void walk_with(const struct qp_source_kernels *row, const struct values *v, double scale)
{
    const struct qp_quantizer *quantizer = valued_of(row, v);
    const struct qp_code_rule rule = rule_of_type(v, QPLAN_F32);
    unsigned char src[MOST_STEPS * 8];
    uint8_t codes[MOST_STEPS];
    double s, y[MOST_STEPS], bound;
    int32_t zero = 0;
    struct qp_check found;
    const size_t n = put_steps(row, v, scale, src);
    const struct qp_tile tile = flat_tile(n);
    set_work(row, &s, 0, scale);
    quantizer->quantize(&tile, src, &rule, &s, &zero, codes);
    quantizer->dequantize(&tile, codes, &rule, &s, &zero, y);
    for (size_t i = 0; i < n; i++) {
        const double x = source_value(row, src, i);
        const uint8_t code = valued_code(v, x, scale, precision_of(row));
        if (codes[i] != code)
            fail_msg("%s: the code of %a / %a is 0x%02x, not 0x%02x", v->type->name, x, scale, code,
                     codes[i]);
        assert_true(get_work(row, y, i) == valued_value(row, v, scale, code));
    }
    row->work->bounds(1, &s, &zero, &rule, &bound);
    quantizer->check(&tile, src, y, &rule, &s, &zero, &bound, &found);
    assert_int_equal(found.offences, 0);
}

/* Scales are such that quotients are exact, and such that they are not. */
static void walk(const struct qp_source_kernels *row)
{
    static const double scales[] = {
        1, -0.25, 0x1.8p-3, 0x1.010102p-6, -0x1.fffffep3, 0x1.555556p-20};
    for (size_t i = 0; i < COUNT(code_dtypes); i++) {
        const struct values v = values_of(code_dtypes[i]);
        for (size_t k = 0; k < COUNT(scales); k++)
            walk_with(row, &v, scales[k]);
    }
}

static void every_code_and_every_midpoint_is_told_from_its_neighbours(void **state)
{
    (void)state;
    for_each_row(walk);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Bounded: nothing but numbers that the codes reach. */
static void put_hard(const struct qp_source_kernels *row, void *src, size_t i, double s,
                     const struct values *v, bool bounded, uint64_t *seed)
{
    const size_t at = (size_t)random_below(seed, v->n - 1);
    const uint64_t kind = random_below(seed, 10);
    if (kind == 0 && bounded)
        put_source(row, src, i, -0.0, 0);
    else if (kind == 0)
        put_special(row, src, i, seed);
    else if (kind < 4)
        put_source(row, src, i, s * midpoint(v, at, precision_of(row)),
                   (int)random_below(seed, 3) - 1);
    else if (kind < 6)
        put_source(row, src, i, s * v->all[at].value, 0);
    else
        put_source(row, src, i, s * v->type->largest * (bounded ? 0.99 : 1.1) * random_signed(seed),
                   0);
    if (bounded && !isfinite(source_value(row, src, i))) /* one step above the largest f16 */
        put_source(row, src, i, 0, 0);
}

static void check_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                       uint64_t *seed)
{
    const struct values v = values_of(code_dtypes[random_below(seed, COUNT(code_dtypes))]);
    struct qp_code_rule rule = rule_of_type(&v, QPLAN_F32);
    const struct qp_quantizer *quantizer = valued_of(row, &v);
    const struct qp_quantizer *plain =
        valued_of(qp_source_kernels(row->dtype, QPLAN_ISA_SCALAR), &v);
    const size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place(&arrays.src, n * row->elem_bytes), *y = place(&arrays.y, n * row->work_bytes);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    double *bound = place(&arrays.bound, n_sets * sizeof *bound);
    uint8_t *codes = place(&arrays.codes, n);
    struct qp_check found, expected;
    rule.bounded = random_below(seed, 2);
    for (size_t i = 0; i < n_sets; i++) {
        set_work(row, scale, i, pick_scale(true, seed));
        zero[i] = 0;
    }
    for (size_t i = 0; i < n; i++)
        put_hard(row, src, i, get_work(row, scale, set_of(tile, i)), &v, rule.bounded, seed);
    quantizer->quantize(tile, src, &rule, scale, zero, codes);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(codes[i],
                         valued_code(&v, source_value(row, src, i),
                                     get_work(row, scale, set_of(tile, i)), precision_of(row)));
    if (n > 0 && random_below(seed, 2)) /* a code that may be wrong */
        codes[random_below(seed, n)] = v.all[random_below(seed, v.n)].code;
    quantizer->dequantize(tile, codes, &rule, scale, zero, y);
    for (size_t i = 0; i < n; i++)
        assert_true(get_work(row, y, i) ==
                    valued_value(row, &v, get_work(row, scale, set_of(tile, i)), codes[i]));
    row->work->bounds(n_sets, scale, zero, &rule, bound);
    if (random_below(seed, 8) == 0)
        bound[random_below(seed, n_sets)] = -1;
    quantizer->check(tile, src, y, &rule, scale, zero, bound, &found);
    plain->check(tile, src, y, &rule, scale, zero, bound, &expected);
    assert_int_equal(found.offences, expected.offences);
    assert_int_equal(found.first_offence, expected.first_offence);
    assert_int_equal(found.clipped, expected.clipped);
    assert_int_equal(found.first_clipped, expected.first_clipped);
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

/* Scales from the least normal one to the largest: values that overflow, and that are subnormal. */
static void check_ends(const struct qp_source_kernels *row)
{
    static const double scales[] = {0x1p-126, 0x1.fffffep-120, 0x1p94,         0x1.000002p94,
                                    0x1p112,  0x1p127,         0x1.fffffep127, -0x1p126};
    for (size_t i = 0; i < COUNT(code_dtypes) * COUNT(scales); i++) {
        const struct values v = values_of(code_dtypes[i / COUNT(scales)]);
        const struct qp_code_rule rule = rule_of_type(&v, QPLAN_F32);
        const double scale = scales[i % COUNT(scales)];
        uint8_t codes[256];
        double s, y[256];
        const int32_t zero = 0;
        const struct qp_tile tile = flat_tile(v.n);
        for (size_t k = 0; k < v.n; k++)
            codes[k] = v.all[k].code;
        set_work(row, &s, 0, scale);
        valued_of(row, &v)->dequantize(&tile, codes, &rule, &s, &zero, y);
        for (size_t k = 0; k < v.n; k++)
            assert_true(get_work(row, y, k) == valued_value(row, &v, scale, codes[k]));
    }
}

static void values_are_clipped_to_finite_ones(void **state)
{
    (void)state;
    for_each_row(check_ends);
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* The largest size of a range over the largest value, rounded up to the type of the scale. */
static void check_params(const struct qp_source_kernels *row)
{
    static const enum qplan_dtype scale_types[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16};
    uint64_t seed = 3;
    for (int i = 0; i < 4000; i++) {
        const struct values v = values_of(code_dtypes[random_below(&seed, COUNT(code_dtypes))]);
        const enum qplan_dtype dtype = scale_types[random_below(&seed, COUNT(scale_types))];
        const struct qp_code_rule rule = rule_of_type(&v, dtype);
        const size_t n = 1 + (size_t)random_below(&seed, 40);
        double lo[40], hi[40], scale[40];
        int32_t zero[40];
        for (size_t k = 0; k < n; k++) {
            const double size = ldexp(2 + random_signed(&seed), (int)random_below(&seed, 12));
            const double other = random_below(&seed, 2) ? size : size / 3;
            const bool is_zero = random_below(&seed, 10) == 0;
            set_work(row, lo, k, is_zero ? 0 : -other);
            set_work(row, hi, k, is_zero ? 0 : size);
        }
        assert_int_equal(valued_of(row, &v)->params(&rule, n, lo, hi, scale, zero), n);
        for (size_t k = 0; k < n; k++) {
            const double s = get_work(row, scale, k), most = get_work(row, hi, k);
            const double exact = divide(most, v.type->largest, precision_of(row));
            const double unit = dtype == QPLAN_F32   ? 0x1p-23
                                : dtype == QPLAN_F16 ? 0x1p-10
                                                     : 0x1p-7;
            assert_int_equal(zero[k], 0);
            if (most == 0)
                assert_true(s == 1);
            else if (exact > 0x1p-14)
                assert_true(s >= exact && s <= exact * (1 + unit) && (float)s == s);
        }
    }
}

static void scales_make_the_largest_value_the_largest_code(void **state)
{
    (void)state;
    for_each_row(check_params);
}

/* ---- Small scales ---------------------------------------------------------------------------- */

/* The power of two of the size less that of the largest value, one more from 7/4 of it on. */
static double power_scale(const struct values *v, double size)
{
    int of_size, of_largest;
    const double part = frexp(size, &of_size);
    (void)frexp(v->type->largest, &of_largest);
    const double s = ldexp(part >= 0.875 ? 2 : 1, of_size - of_largest);
    return size == 0 ? 1 : s < 0x1p-126 ? 0x1p-126 : s;
}

static double in_precision(double x, int precision)
{
    return precision == 24 ? (double)(float)x : x;
}

/* A number of f8e4m3 as a scale: rounded once, in f32. */
static double scale_of_number(const struct qp_code_rule *rule, double number)
{
    const float x = (float)number;
    return (double)(rule->divides ? x / rule->factor : x * rule->factor);
}

/* The number that is nearest to what is wanted, or the first behind it that is enough. */
static double factor_scale(const struct values *v, const struct qp_code_rule *rule, double size,
                           int precision)
{
    const struct values stored = values_of(QPLAN_F8E4M3);
    const double exact = in_precision(size / v->type->largest, precision);
    const double factor = (double)rule->factor;
    const double wanted = in_precision(rule->divides ? exact * factor : exact / factor, precision);
    const double enough = in_precision(size / (v->type->largest + v->type->reach), precision);
    if (size == 0)
        return scale_of_number(rule, 1);
    size_t i = place_of(&stored, wanted, precision);
    i = i < stored.n / 2 + 1 ? stored.n / 2 + 1 : i; /* the least above 0 */
    while (i < stored.n && scale_of_number(rule, stored.all[i].value) < enough)
        i++;
    return i < stored.n ? scale_of_number(rule, stored.all[i].value) : INFINITY;
}

static void check_small_params(const struct qp_source_kernels *row)
{
    uint64_t seed = 5;
    for (int i = 0; i < 3000; i++) {
        const struct values v = values_of(code_dtypes[random_below(&seed, 3)]);
        const bool powers = i % 2;
        struct qp_code_rule rule = rule_of_type(&v, powers ? QPLAN_E8M0 : QPLAN_F8E4M3);
        const size_t n = 1 + (size_t)random_below(&seed, 70);
        double lo[70], hi[70], scale[70];
        int32_t zero[70];
        size_t end = n;
        rule.divides = random_below(&seed, 2);
        rule.factor =
            (float)ldexp(1.5 + random_signed(&seed) / 2, (int)random_below(&seed, 20) - 10);
        for (size_t k = 0; k < n; k++) {
            const double fits = rule.divides ? 1 / (double)rule.factor : (double)rule.factor;
            const int least = powers ? -149 : -12, width = powers ? 276 : 20;
            const double size = (powers ? 1 : fits * v.type->largest) *
                                ldexp(1.5 + random_signed(&seed) / 2,
                                      (int)random_below(&seed, (uint64_t)width) + least);
            const double near = random_below(&seed, 4) ? size : ldexp(7, ilogb(size) - 2);
            set_work(row, lo, k, random_below(&seed, 2) ? -near : -near / 3);
            set_work(row, hi, k, get_work(row, lo, k) == -near ? near / 4 : near);
            if (random_below(&seed, 10) == 0) {
                set_work(row, lo, k, random_below(&seed, 2) ? 0.0 : -0.0);
                set_work(row, hi, k, 0);
            }
        }
        const size_t done = valued_of(row, &v)->params(&rule, n, lo, hi, scale, zero);
        for (size_t k = 0; k < end; k++) {
            const double size = fmax(-get_work(row, lo, k), get_work(row, hi, k));
            const double expected =
                powers ? power_scale(&v, size) : factor_scale(&v, &rule, size, precision_of(row));
            end = isinf(expected) ? k : end;
            if (k < end) {
                assert_true(get_work(row, scale, k) == expected);
                assert_int_equal(zero[k], 0);
            }
        }
        assert_int_equal(done, end);
    }
}

static void small_scales_are_those_of_the_contract(void **state)
{
    (void)state;
    for_each_row(check_small_params);
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

/* The offences of an element x that decodes to y. */
static uint64_t offences_of(const struct qp_source_kernels *row, const struct values *v, double x,
                            double scale, double y)
{
    const struct qp_code_rule rule = rule_of_type(v, QPLAN_F32);
    const struct qp_tile one = flat_tile(1);
    const int32_t zero = 0;
    double s, decoded_to, bound;
    struct qp_check found;
    set_work(row, &s, 0, scale);
    set_work(row, &decoded_to, 0, y);
    put_source(row, arrays.src.begin, 0, x, 0);
    row->work->bounds(1, &s, &zero, &rule, &bound);
    valued_of(row, v)->check(&one, arrays.src.begin, &decoded_to, &rule, &s, &zero, &bound, &found);
    return found.offences;
}

/*
 * A value is within its bound up to the midpoint on either side and a little more, and not beyond:
 * also where the gap below is half of that above. Numbers that f16 holds only as subnormal ones
 * are left out.
 */
static void check_verdicts(const struct qp_source_kernels *row)
{
    const double scale = 0x1p-5; /* products are exact */
    for (size_t i = 0; i < COUNT(code_dtypes); i++) {
        const struct values v = values_of(code_dtypes[i]);
        for (size_t k = 0; k + 1 < v.n; k++) {
            const double low = scale * v.all[k].value, high = scale * v.all[k + 1].value;
            const double gap = high - low;
            if (row->dtype == QPLAN_F16 && gap < 0x1p-14)
                continue;
            assert_int_equal(offences_of(row, &v, low + gap * 0.4375, scale, low), 0);
            assert_int_equal(offences_of(row, &v, low + gap * 0.5625, scale, low), 1);
            assert_int_equal(offences_of(row, &v, high - gap * 0.4375, scale, high), 0);
            assert_int_equal(offences_of(row, &v, high - gap * 0.5625, scale, high), 1);
        }
    }
}

static void a_verdict_goes_by_the_reach_of_each_code(void **state)
{
    (void)state;
    for_each_row(check_verdicts);
}

/*
 * An element of a set with a scale and what it decodes to: near a midpoint of two values, or the
 * end that the largest value reaches, as f32 can tell it, and either of the two; or anything.
 */
static void put_verdict(const struct qp_source_kernels *row, const struct values *v, double scale,
                        void *src, void *y, size_t i, uint64_t *seed)
{
    const size_t k = (size_t)random_below(seed, v->n - 1);
    const double low = v->all[k].value, high = v->all[k + 1].value, middle = (low + high) / 2;
    const double end = (v->type->largest + v->type->reach) * (random_below(seed, 2) ? 1 : -1);
    const bool is_end = random_below(seed, 8) == 0;
    const double t = is_end ? end : random_below(seed, 3) ? middle : low;
    const double value =
        is_end ? copysign(v->type->largest, end) : v->all[k + random_below(seed, 2)].value;
    const int ulps = (int)random_below(seed, 13) - 6;
    put_source(row, src, i, scale * t, random_below(seed, 2) && scale * t != 0 ? ulps : 0);
    if (random_below(seed, 200) == 0)
        put_special(row, src, i, seed);
    set_work(row, y, i, fmin(fmax(scale * value, -(double)FLT_MAX), (double)FLT_MAX));
}

/* A check of a tile finds what the checks of its elements find, each of which is looked at alone.
 */
static void check_together(const struct qp_source_kernels *row, const struct qp_tile *tile,
                           uint64_t *seed)
{
    const struct values v = values_of(code_dtypes[random_below(seed, COUNT(code_dtypes))]);
    const struct qp_code_rule rule = rule_of_type(&v, QPLAN_F32);
    const struct qp_quantizer *const alone = qp_quantizer(row->dtype, v.type->kind, QPLAN_ISA_BEST);
    const size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    const struct qp_tile one = flat_tile(1);
    unsigned char *const src =
        place_bytes(&arrays.src, n * row->elem_bytes, random_below(seed, 16));
    char *const y = place(&arrays.y, n * row->work_bytes);
    char *const scale = place(&arrays.scale, n_sets * row->work_bytes);
    double *const bound = place(&arrays.bound, n_sets * sizeof *bound);
    int32_t *const zero = place(&arrays.zero, n_sets * sizeof *zero);
    struct qp_check found, expected = {0};
    if (random_below(seed, 4)) /* some of all tiles */
        return;
    for (size_t k = 0; k < n_sets; k++) {
        zero[k] = 0;
        set_work(row, scale, k, random_below(seed, 3) ? pick_scale(false, seed) : 0x1p-5);
    }
    row->work->bounds(n_sets, scale, zero, &rule, bound);
    for (size_t i = 0; i < n; i++)
        put_verdict(row, &v, get_work(row, scale, set_of(tile, i)), src, y, i, seed);
    valued_of(row, &v)->check(tile, src, y, &rule, scale, zero, bound, &found);
    for (size_t i = 0; i < n; i++) {
        const size_t set = set_of(tile, i);
        struct qp_check part;
        alone->check(&one, src + i * row->elem_bytes, y + i * row->work_bytes, &rule,
                     scale + set * row->work_bytes, zero, bound + set, &part);
        if (part.offences && expected.offences++ == 0)
            expected.first_offence = i;
        if (part.clipped && expected.clipped++ == 0)
            expected.first_clipped = i;
        expected.nonfinite += part.nonfinite;
        expected.max_clip = fmax(expected.max_clip, part.max_clip);
    }
    assert_int_equal(found.offences, expected.offences);
    assert_int_equal(found.first_offence, expected.first_offence);
    assert_int_equal(found.clipped, expected.clipped);
    assert_int_equal(found.first_clipped, expected.first_clipped);
    assert_int_equal(found.nonfinite, expected.nonfinite);
    assert_true(found.max_clip == expected.max_clip);
}

static void check_tiles_together(const struct qp_source_kernels *row)
{
    for_each_tile(row, check_together);
}

static void a_verdict_does_not_depend_on_neighbours(void **state)
{
    (void)state;
    for_each_row(check_tiles_together);
}

/* What lies beyond the largest value by more than half of the last gap is clipped. */
static void check_clips(const struct qp_source_kernels *row)
{
    for (size_t i = 0; i < COUNT(code_dtypes); i++) {
        const struct values v = values_of(code_dtypes[i]);
        const struct qp_code_rule rule = rule_of_type(&v, QPLAN_F32);
        const double gap = v.all[v.n - 1].value - v.all[v.n - 2].value;
        const struct qp_tile tile = flat_tile(2);
        const int32_t zero = 0;
        double s, y[2], bound;
        struct qp_check found;
        set_work(row, &s, 0, 1);
        row->work->bounds(1, &s, &zero, &rule, &bound);
        put_source(row, arrays.src.begin, 0, v.type->largest + gap * 0.4375, 0);
        put_source(row, arrays.src.begin, 1, v.type->largest + gap * 0.75, 0);
        set_work(row, y, 0, v.type->largest);
        set_work(row, y, 1, v.type->largest);
        valued_of(row, &v)->check(&tile, arrays.src.begin, y, &rule, &s, &zero, &bound, &found);
        assert_int_equal(found.offences, 0);
        assert_int_equal(found.clipped, 1);
        assert_int_equal(found.first_clipped, 1);
    }
}

static void what_is_beyond_the_reach_of_the_last_code_is_clipped(void **state)
{
    (void)state;
    for_each_row(check_clips);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_and_every_midpoint_is_told_from_its_neighbours),
        cmocka_unit_test(codes_and_values_are_those_of_the_contract),
        cmocka_unit_test(values_are_clipped_to_finite_ones),
        cmocka_unit_test(scales_make_the_largest_value_the_largest_code),
        cmocka_unit_test(small_scales_are_those_of_the_contract),
        cmocka_unit_test(a_verdict_goes_by_the_reach_of_each_code),
        cmocka_unit_test(a_verdict_does_not_depend_on_neighbours),
        cmocka_unit_test(what_is_beyond_the_reach_of_the_last_code_is_clipped),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
