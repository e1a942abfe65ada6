/*
 * test_kernels_params.c - scale and zero point from a range, in both working precisions and for
 * every stored dtype; and two 4-bit codes in a byte.
 */
#include "kernel_cases.h"

/* ---- Known values ---------------------------------------------------------------------------- */

struct known {
    struct qplan_scheme scheme;
    double lo, hi, scale;
    int32_t zero;
};

enum { WHOLE, NARROW };
enum { SYMMETRIC, ASYMMETRIC };

#define SCHEME(code, is_narrow, is_asymmetric, scale)                                              \
    {                                                                                              \
        .dtype = (code), .narrow = (is_narrow), .asymmetric = (is_asymmetric),                     \
        .scale_dtype = (scale)                                                                     \
    }

static const struct known known[] = {
    /* symmetric: the largest magnitude over half the steps */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), -2, 2, 0x1.010102p-6, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), -1, 3, 0x1.818182p-6, 0},
    {SCHEME(QPLAN_INT4, WHOLE, SYMMETRIC, QPLAN_F32), -1, 0, 0x1.111112p-3, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, SYMMETRIC, QPLAN_F32), -2, 1, 0x1.010102p-6, 128},
    {SCHEME(QPLAN_UINT4, WHOLE, SYMMETRIC, QPLAN_F32), 0, 1, 0x1.111112p-3, 8},
    /* narrow: over the largest code */
    {SCHEME(QPLAN_INT8, NARROW, SYMMETRIC, QPLAN_F32), -1, 1, 0x1.020408p-7, 0},
    {SCHEME(QPLAN_INT4, NARROW, SYMMETRIC, QPLAN_F32), -1, 1, 0x1.24924ap-3, 0},
    {SCHEME(QPLAN_INT4, NARROW, ASYMMETRIC, QPLAN_F32), -1, 2, 0x1.b6db6ep-3, -2},
    {SCHEME(QPLAN_INT8, NARROW, ASYMMETRIC, QPLAN_F32), -3, 1, 0x1.020408p-6, 63},
    /* asymmetric: the width over the steps, 0 always inside */
    {SCHEME(QPLAN_INT8, WHOLE, ASYMMETRIC, QPLAN_F32), -1, 3, 0x1.010102p-6, -64},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F32), -1, 3, 0x1.010102p-6, 64},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F32), 0, 20, 0x1.414142p-4, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F32), -20, 0, 0x1.414142p-4, 255},
    {SCHEME(QPLAN_INT4, WHOLE, ASYMMETRIC, QPLAN_F32), -0.5, 0.25, 0x1.99999ap-5, 2},
    /* nearly a tie: the scale is a little more than 2/15, so the quotient is above -7.5 */
    {SCHEME(QPLAN_UINT4, WHOLE, ASYMMETRIC, QPLAN_F32), -1, 1, 0x1.111112p-3, 7},
    /* nothing but zeros */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), 0, 0, 1, 0},
    {SCHEME(QPLAN_INT8, WHOLE, ASYMMETRIC, QPLAN_F32), -0.0, 0, 1, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F32), 0, 0, 1, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, SYMMETRIC, QPLAN_F32), 0, 0, 1, 128},
    {SCHEME(QPLAN_UINT4, WHOLE, SYMMETRIC, QPLAN_F32), 0, 0, 1, 8},
    /* the ends of f32: the width overflows, the scale does not */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), -(double)FLT_MAX, 1, 0x1.0101p121, 0},
    {SCHEME(QPLAN_INT4, WHOLE, SYMMETRIC, QPLAN_F32), 0, (double)FLT_MAX, 0x1.11111p125, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F32), -(double)FLT_MAX, (double)FLT_MAX,
     0x1.0101p121, 128},
    {SCHEME(QPLAN_INT8, WHOLE, ASYMMETRIC, QPLAN_BF16), -(double)FLT_MAX, (double)FLT_MAX,
     0x1.02p121, -1},
    /* too small: the least normal of the stored dtype */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), 0, 0x1p-149, 0x1p-126, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F32), -0x1p-120, 0, 0x1p-126, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F16), -0x1p-8, 0, 0x1p-14, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_BF16), -0x1p-149, 0, 0x1p-126, 0},
    {SCHEME(QPLAN_UINT8, WHOLE, ASYMMETRIC, QPLAN_F16), -0x1p-20, 0x1p-20, 0x1p-14, 0},
    /* up to the next value of the stored dtype: 4/255 and 1/7.5 */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F16), -2, 2, 0x1.014p-6, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_BF16), -2, 2, 0x1.02p-6, 0},
    {SCHEME(QPLAN_INT4, WHOLE, SYMMETRIC, QPLAN_BF16), -1, 1, 0x1.12p-3, 0},
    {SCHEME(QPLAN_INT4, WHOLE, SYMMETRIC, QPLAN_F16), -1, 1, 0x1.114p-3, 0},
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_BF16), -127.5, 0, 1, 0}, /* exact: stays */
    {SCHEME(QPLAN_INT8, WHOLE, SYMMETRIC, QPLAN_F16), 0, 65504 * 127.5, 65504, 0},
};

static void check_known(const struct qp_source_kernels *row)
{
    for (size_t i = 0; i < COUNT(known); i++) {
        const struct known *k = &known[i];
        const struct qp_code_rule rule = qp_code_rule(&k->scheme);
        double lo, hi, scale;
        int32_t zero;
        set_work(row, &lo, 0, k->lo);
        set_work(row, &hi, 0, k->hi);
        assert_int_equal(quantizer_of(row)->params(&rule, 1, &lo, &hi, &scale, &zero), 1);
        double found = get_work(row, &scale, 0);
        if (rule.scale_dtype == QPLAN_F32 && !works_in_f32(row)) {
            /* f64 finds the scale itself more precisely: at most one step of f32 apart */
            assert_true(fabs(found - k->scale) <= k->scale * 0x1p-22);
            if (found != k->scale)
                continue;
        }
        if (found != k->scale || zero != k->zero)
            fail_msg("row %zu, %s: expected (%a, %d), found (%a, %d)", i,
                     qplan_dtype_name(row->dtype), k->scale, k->zero, found, zero);
    }
}

static void known_ranges_have_known_parameters(void **state)
{
    (void)state;
    for_each_row(check_known);
}

/* ---- The contract ---------------------------------------------------------------------------- */

/* The least value of a 16-bit format that is not below x. */
static double round_up_16(double x, unsigned exp_bits, unsigned man_bits)
{
    uint16_t low = 0, high = (uint16_t)((((1u << exp_bits) - 1) << man_bits) - 1);
    if (x > load_bits(high, exp_bits, man_bits))
        return INFINITY;
    while (low < high) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (load_bits(middle, exp_bits, man_bits) >= x)
            high = middle;
        else
            low = (uint16_t)(middle + 1);
    }
    return load_bits(high, exp_bits, man_bits);
}

/* The least f32 that is not below x: the bits behind the 24th are cut off, then one is added. */
static double round_up_f32(double x)
{
    uint64_t bits, rest = ((uint64_t)1 << 29) - 1;
    if (x < 0x1p-126)
        return 0x1p-126;
    memcpy(&bits, &x, sizeof bits);
    bits = bits & rest ? (bits | rest) + 1 : bits;
    memcpy(&x, &bits, sizeof bits);
    return x > (double)FLT_MAX ? INFINITY : x;
}

static double stored_scale(double scale, enum qplan_dtype dtype)
{
    if (dtype == QPLAN_F32)
        return round_up_f32(scale);
    bool is_f16 = dtype == QPLAN_F16;
    double up = is_f16 ? round_up_16(scale, 5, 10) : round_up_16(scale, 8, 7);
    return fmax(up, is_f16 ? 0x1p-14 : 0x1p-126);
}

/* Rounds to the working precision; the argument has few enough bits for one rounding to be right.
 */
static double to_work(const struct qp_source_kernels *row, double x)
{
    return works_in_f32(row) ? (double)(float)x : x;
}

static double plain_scale(const struct qp_source_kernels *row, const struct qp_code_rule *rule,
                          double lo, double hi)
{
    double steps = rule->q_max - rule->q_min, width = to_work(row, hi - lo);
    int precision = precision_of(row);
    if (lo == hi)
        return 1;
    if (!rule->asymmetric)
        return divide(fmax(-lo, hi), steps / 2, precision);
    if (isinf(width))
        return divide(to_work(row, hi / 2 - lo / 2), steps / 2, precision);
    return divide(width, steps, precision);
}

static int32_t plain_zero(const struct qp_source_kernels *row, const struct qp_code_rule *rule,
                          double lo, double hi, double scale)
{
    if (!rule->asymmetric)
        return rule->type->is_signed ? 0 : (rule->q_max + 1) / 2;
    if (lo == hi)
        return 0;
    int32_t zero = rule->q_min - divide_to_integer(lo, scale, precision_of(row));
    return zero < rule->q_min ? rule->q_min : zero > rule->q_max ? rule->q_max : zero;
}

static void check_range(const struct qp_source_kernels *row, const struct qp_code_rule *rule,
                        double lo, double hi)
{
    double low, high, scale;
    int32_t zero = 99;
    set_work(row, &low, 0, lo);
    set_work(row, &high, 0, hi);
    lo = get_work(row, &low, 0);
    hi = get_work(row, &high, 0);
    double expected = stored_scale(plain_scale(row, rule, lo, hi), rule->scale_dtype);
    size_t n = quantizer_of(row)->params(rule, 1, &low, &high, &scale, &zero);
    assert_int_equal(n, isinf(expected) ? 0 : 1);
    if (n == 0)
        return;
    int32_t expected_zero = plain_zero(row, rule, lo, hi, expected);
    if (get_work(row, &scale, 0) != expected || zero != expected_zero)
        fail_msg("[%a, %a] %d..%d %s: expected (%a, %d), found (%a, %d)", lo, hi, rule->q_min,
                 rule->q_max, qplan_dtype_name(rule->scale_dtype), expected, expected_zero,
                 get_work(row, &scale, 0), zero);
}

static void check_ranges(const struct qp_source_kernels *row)
{
    uint64_t seed = 12;
    int widest = works_in_f32(row) ? 126 : 1020;
    for (int i = 0; i < 200000; i++) {
        struct qp_code_rule rule = pick_rule(&seed);
        int exponent = (int)random_below(&seed, 60) - 30;
        if (i % 8 == 0)
            exponent = (int)random_below(&seed, 2 * (uint64_t)widest) - widest;
        double lo = -fabs(ldexp(random_signed(&seed), exponent));
        double hi = fabs(ldexp(random_signed(&seed), exponent + (int)random_below(&seed, 5) - 2));
        lo = i % 7 == 0 ? 0 : lo;
        hi = i % 11 == 0 ? 0 : hi;
        check_range(row, &rule, lo, hi);
    }
}

static void parameters_are_those_of_the_contract(void **state)
{
    (void)state;
    for_each_row(check_ranges);
}

/* The first set that does not fit is named, whatever comes behind it. */
static void check_overflow(const struct qp_source_kernels *row)
{
    static const double largest[] = {65504, 65504.1, 1e6};
    struct qp_code_rule rule = rule_of(QPLAN_INT8, false);
    double lo[3], hi[3], scale[3];
    int32_t zero[3];
    rule.scale_dtype = QPLAN_F16;
    for (size_t first = 0; first < 3; first++) {
        for (size_t i = 0; i < 3; i++) {
            set_work(row, lo, i, 0);
            set_work(row, hi, i, i < first ? largest[0] * 127.5 : largest[1 + i % 2] * 127.5);
        }
        assert_int_equal(quantizer_of(row)->params(&rule, 3, lo, hi, scale, zero), first);
    }
    assert_int_equal(quantizer_of(row)->params(&rule, 0, lo, hi, scale, zero), 0);
    rule.scale_dtype = QPLAN_F32; /* f64 data alone can be too large for f32 */
    set_work(row, hi, 0, works_in_f32(row) ? (double)FLT_MAX : 1e300);
    assert_int_equal(quantizer_of(row)->params(&rule, 1, lo, hi, scale, zero),
                     works_in_f32(row) ? 1 : 0);
}

static void a_scale_that_does_not_fit_is_named(void **state)
{
    (void)state;
    for_each_row(check_overflow);
}

/* ---- Many sets ------------------------------------------------------------------------------- */

#define SETS 37

/* An end of a range: 0, a small integer times a power of 2, so that quotients may be exact, or any.
 */
static double pick_end(uint64_t *seed, int widest)
{
    const int exponent = (int)random_below(seed, 2 * (uint64_t)widest) - widest;
    const uint64_t way = random_below(seed, 8);
    if (way == 0)
        return 0;
    return way < 4 ? ldexp((double)random_below(seed, 256), exponent)
                   : ldexp(fabs(random_signed(seed)), exponent);
}

/* Sets have the parameters that each has alone, up to the first that has none. */
static void check_together(const struct qp_source_kernels *row,
                           const struct qp_quantizer *quantizer, const struct qp_code_rule *rule,
                           uint64_t *seed)
{
    const size_t size = row->work_bytes;
    const int widest = random_below(seed, 4) ? 6 : 140;
    double lo[SETS], hi[SETS], scale[SETS], alone;
    int32_t zero[SETS], zero_alone;
    for (size_t i = 0; i < SETS; i++) {
        set_work(row, lo, i, fmax(-pick_end(seed, widest), -(double)FLT_MAX));
        set_work(row, hi, i, fmin(pick_end(seed, widest), (double)FLT_MAX));
    }
    const size_t n = quantizer->params(rule, SETS, lo, hi, scale, zero);
    for (size_t i = 0; i < SETS && i <= n; i++) {
        const size_t good = quantizer->params(rule, 1, (char *)lo + i * size, (char *)hi + i * size,
                                              &alone, &zero_alone);
        assert_int_equal(good, i < n ? 1 : 0);
        if (i < n && (memcmp((char *)scale + i * size, &alone, size) != 0 || zero[i] != zero_alone))
            fail_msg("[%a, %a] %s, %s: expected (%a, %d), found (%a, %d)", get_work(row, lo, i),
                     get_work(row, hi, i), qplan_dtype_name(row->dtype),
                     qplan_dtype_name(rule->scale_dtype), get_work(row, &alone, 0), zero_alone,
                     get_work(row, scale, i), zero[i]);
    }
}

static void check_many(const struct qp_source_kernels *row)
{
    uint64_t seed = 77;
    for (int i = 0; i < 4000; i++) {
        struct qp_code_rule rule = pick_rule(&seed);
        check_together(row, quantizer_of(row), &rule, &seed);
        if (rule.type->is_signed)
            continue;
        rule.kind = QP_CODES_BIASED;
        check_together(row, qp_quantizer(row->dtype, QP_CODES_BIASED, row->isa), &rule, &seed);
    }
}

static void many_sets_have_the_parameters_of_each_alone(void **state)
{
    (void)state;
    for_each_row(check_many);
}

/* ---- Two codes in a byte --------------------------------------------------------------------- */

typedef void (*codes_fn)(const struct qp_code_kernels *row);

static void for_each_code_row(codes_fn check)
{
    const struct qp_code_kernels *last = NULL;
    for (unsigned isa = QPLAN_ISA_SCALAR; isa <= (unsigned)qp_isa_detect(); isa++) {
        const struct qp_code_kernels *row = qp_code_kernels((enum qplan_isa)isa);
        if (row != last)
            check(row);
        last = row;
    }
}

/* Packs n random codes between guard pages, to a place of their own or over themselves. */
static void check_packing(const struct qp_code_kernels *row, size_t n, bool in_place,
                          uint64_t *seed)
{
    size_t n_bytes = (n + 1) / 2;
    uint8_t *codes = place(&arrays.codes, n), *packed = place(&arrays.src, n_bytes);
    uint8_t *back = place(&arrays.zero, n), *nibbles = arrays.y.begin;
    packed = in_place ? codes : packed;
    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)random_bits(seed); /* the upper half is not part of a code */
        nibbles[i] = codes[i] & 15;
    }
    row->pack4(codes, n, 0, packed);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(i % 2 ? packed[i / 2] >> 4 : packed[i / 2] & 15, nibbles[i]);
    if (n % 2)
        assert_int_equal(packed[n / 2] >> 4, 0);
    if (n % 2)
        packed[n / 2] |= 0xf0; /* not looked at */
    row->unpack4(packed, n, 0, 0, back);
    assert_memory_equal(back, nibbles, n);
    row->unpack4(packed, n, 8, 8, back);
    for (size_t i = 0; i < n; i++)
        assert_int_equal((int8_t)back[i], nibbles[i] < 8 ? nibbles[i] : nibbles[i] - 16);
    row->unpack4(packed, n, 8, 0, back);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(back[i], (nibbles[i] + 8) % 16);
    row->pack4(back, n, 8, packed); /* two flips are none */
    if (n % 2)
        assert_int_equal(packed[n / 2] >> 4, 0);
    row->unpack4(packed, n, 0, 8, back);
    for (size_t i = 0; i < n; i++)
        assert_int_equal((int8_t)back[i], nibbles[i] - 8);
}

static void pack_lengths(const struct qp_code_kernels *row)
{
    uint64_t seed = 13;
    for (size_t n = 0; n <= 514; n++) {
        check_packing(row, n, false, &seed);
        check_packing(row, n, true, &seed);
    }
    check_packing(row, 100001, false, &seed);
    check_packing(row, 100001, true, &seed);
}

static void codes_of_4_bits_survive_packing(void **state)
{
    (void)state;
    for_each_code_row(pack_lengths);
}

/* Codes that follow packed ones are packed to lie before themselves, at any distance. */
static void pack_down(const struct qp_code_kernels *row)
{
    uint8_t bytes[400], expected[400];
    for (size_t distance = 0; distance < 70; distance++) {
        for (size_t n = 1; n < 300; n += 7) {
            for (size_t i = 0; i < n; i++)
                bytes[distance + i] = (uint8_t)(i * 37 + n) & 15;
            qp_code_kernels(QPLAN_ISA_SCALAR)->pack4(bytes + distance, n, 0, expected);
            row->pack4(bytes + distance, n, 0, bytes);
            assert_memory_equal(bytes, expected, (n + 1) / 2);
        }
    }
}

static void packing_may_move_codes_down(void **state)
{
    (void)state;
    for_each_code_row(pack_down);
}

/* Packed bytes wait at the end of the buffer that their codes fill. */
static void unpack_over(const struct qp_code_kernels *row)
{
    uint8_t bytes[400], packed[200], expected[400];
    for (size_t room = 0; room < 70; room++) {
        for (size_t n = 1; n < 300; n += 7) {
            size_t n_bytes = (n + 1) / 2, at = n + room - n_bytes;
            for (size_t i = 0; i < n_bytes; i++)
                packed[i] = (uint8_t)(i * 73 + n);
            memcpy(bytes + at, packed, n_bytes);
            qp_code_kernels(QPLAN_ISA_SCALAR)->unpack4(packed, n, 8, 8, expected);
            row->unpack4(bytes + at, n, 8, 8, bytes);
            assert_memory_equal(bytes, expected, n);
        }
    }
}

static void unpacking_may_overlap_what_is_read_already(void **state)
{
    (void)state;
    for_each_code_row(unpack_over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sets_have_the_parameters_of_each_alone),
        cmocka_unit_test(known_ranges_have_known_parameters),
        cmocka_unit_test(parameters_are_those_of_the_contract),
        cmocka_unit_test(a_scale_that_does_not_fit_is_named),
        cmocka_unit_test(codes_of_4_bits_survive_packing),
        cmocka_unit_test(packing_may_move_codes_down),
        cmocka_unit_test(unpacking_may_overlap_what_is_read_already),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
