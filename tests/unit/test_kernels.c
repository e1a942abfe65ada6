/*
 * test_kernels.c - range, quantize and dequantize of every kernel in the table against the
 * contract, bit for bit: all geometries and lengths, odd addresses, nothing touched outside, hard
 * values. A kernel that is added to the table is tested here without a change.
 */
#include "kernel_cases.h"

static uint64_t turn; /* changes where buffers lie */

/* Fills scales and zero points of a tile; all scales of every second one are mild. */
static void pick_params(const struct qp_source_kernels *row, const struct qp_code_rule *rule,
                        size_t n_sets, void *scale, int32_t *zero, uint64_t *seed)
{
    const bool mild = random_below(seed, 2);
    for (size_t i = 0; i < n_sets; i++) {
        set_work(row, scale, i, pick_scale(mild, seed));
        zero[i] = pick_zero(rule, seed);
    }
}

#define CANARY 0xa5

/* Codes lie between bytes that must stay as they are. */
static void guard_codes(unsigned char *codes, size_t n)
{
    if (codes - arrays.codes.begin >= 16)
        memset(codes - 16, CANARY, 16);
    if ((size_t)(arrays.codes.end - codes) >= n + 16)
        memset(codes + n, CANARY, 16);
}

static void check_guard(const unsigned char *codes, size_t n)
{
    for (int i = 0; codes - arrays.codes.begin >= 16 && i < 16; i++)
        assert_int_equal(codes[i - 16], CANARY);
    for (size_t i = 0; (size_t)(arrays.codes.end - codes) >= n + 16 && i < 16; i++)
        assert_int_equal(codes[n + i], CANARY);
}

static void fail_at(const struct qp_source_kernels *row, const struct qp_tile *tile, size_t i,
                    double expected, double found)
{
    fail_msg("%s %s, tile %zux%zu bands of %zu sets of %zu skip %zu, element %zu: expected %a, "
             "found %a",
             qplan_dtype_name(row->dtype), qplan_isa_name(row->isa), tile->rows, tile->cols,
             tile->band_rows, tile->col_width, tile->col_skip, i, expected, found);
}

/* ---- quantize -------------------------------------------------------------------------------- */

static void check_codes(const struct qp_source_kernels *row, const struct qp_tile *tile,
                        const void *src, const struct qp_code_rule *rule, const void *scale,
                        const int32_t *zero)
{
    size_t n = tile->rows * tile->cols;
    uint8_t *codes = place_bytes(&arrays.codes, n, turn);
    guard_codes(codes, n);
    quantizer_of(row)->quantize(tile, src, rule, scale, zero, codes);
    check_guard(codes, n);
    for (size_t i = 0; i < n; i++) {
        size_t set = set_of(tile, i);
        int32_t expected = code_of(source_value(row, src, i), get_work(row, scale, set), zero[set],
                                   rule, precision_of(row));
        int32_t found = rule->type->is_signed ? (int8_t)codes[i] : codes[i];
        if (found != expected)
            fail_at(row, tile, i, expected, found);
    }
}

static void quantize_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                          uint64_t *seed)
{
    const struct qp_code_rule picked = pick_rule(seed), *rule = &picked;
    size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place_bytes(&arrays.src, n * row->elem_bytes, turn++ / 2);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    pick_params(row, rule, n_sets, scale, zero, seed);
    for (size_t i = 0; i < n; i++) {
        size_t set = set_of(tile, i);
        put_hard_value(row, src, i, get_work(row, scale, set), rule, zero[set], seed);
    }
    check_codes(row, tile, src, rule, scale, zero);
}

static void quantize_tiles(const struct qp_source_kernels *row)
{
    for_each_tile(row, quantize_tile);
}

static void codes_are_those_of_the_contract_for_every_geometry(void **state)
{
    (void)state;
    for_each_row(quantize_tiles);
}

static void quantize_lengths(const struct qp_source_kernels *row)
{
    uint64_t seed = 3;
    for (size_t n = 0; n <= 257; n++) {
        struct qp_tile tile = flat_tile(n);
        for (int i = 0; i < 4; i++)
            quantize_tile(row, &tile, &seed);
    }
    struct qp_tile large = flat_tile(MOST_ELEMS - 3);
    quantize_tile(row, &large, &seed);
}

static void codes_are_those_of_the_contract_for_every_length(void **state)
{
    (void)state;
    for_each_row(quantize_lengths);
}

/* Finite values that came with their scale, which is what a kernel may be told. */
static void quantize_bounded(const struct qp_source_kernels *row, const struct qp_tile *tile,
                             uint64_t *seed)
{
    struct qp_code_rule rule = pick_rule(seed);
    size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place_bytes(&arrays.src, n * row->elem_bytes, turn++ / 2);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    for (size_t i = 0; i < n_sets; i++) { /* in the range of every source type */
        const double sign = random_below(seed, 2) ? -1 : 1;
        set_work(row, scale, i, sign * (double)(float)ldexp(1.5 + random_signed(seed) / 2, -7));
        zero[i] = pick_zero(&rule, seed);
    }
    for (size_t i = 0; i < n; i++) {
        double s = get_work(row, scale, set_of(tile, i)), steps = (double)random_below(seed, 1021);
        int ulps = steps == 510 ? 0 : (int)random_below(seed, 3) - 1; /* below 0 is no number */
        put_source(row, src, i, s * (steps / 2 - 255), ulps);
        if (random_below(seed, 30) == 0)
            put_source(row, src, i, random_signed(seed) * 0x1p-1000, 0);
    }
    rule.bounded = true;
    check_codes(row, tile, src, &rule, scale, zero);
}

static void quantize_bounded_tiles(const struct qp_source_kernels *row)
{
    uint64_t seed = 14;
    for_each_tile(row, quantize_bounded);
    for (size_t n = 0; n <= 257; n++) {
        struct qp_tile tile = flat_tile(n);
        quantize_bounded(row, &tile, &seed);
    }
}

static void codes_are_the_same_where_the_values_are_known_to_be_bounded(void **state)
{
    (void)state;
    for_each_row(quantize_bounded_tiles);
}

/* More sets than a kernel prepares at a time, in runs of whole vectors and others. */
static void quantize_many_sets(const struct qp_source_kernels *row)
{
    static const struct qp_tile tiles[] = {
        {1, 8 * 521, 1, 8, 0},   {1, 16 * 521, 1, 16, 0}, {2, 32 * 259, 1, 32, 0},
        {3, 64 * 130, 1, 64, 0}, {600, 16, 1, 16, 0},     {600, 32, 1, 40, 0},
        {3, 8 * 300, 2, 8, 3},   {4, 16 * 270, 2, 16, 0}, {2, 20 * 270, 1, 20, 7},
        {3, 32 * 260, 3, 32, 0}, {3, 600, 2, 1, 0},       {1, 32 * 260, 1, 32, 16},
    };
    uint64_t seed = 15;
    for (size_t i = 0; i < COUNT(tiles) * 8; i++) {
        quantize_tile(row, &tiles[i / 8], &seed);
        quantize_bounded(row, &tiles[i / 8], &seed);
    }
}

static void codes_are_those_of_the_contract_for_many_sets(void **state)
{
    (void)state;
    for_each_row(quantize_many_sets);
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* All n values of src as one set. */
static void check_values(const struct qp_source_kernels *row, const void *src, size_t n,
                         const struct qp_code_rule *rule, double scale, int32_t zero)
{
    struct qp_tile tile = flat_tile(n);
    double work;
    set_work(row, &work, 0, scale);
    check_codes(row, &tile, src, rule, &work, &zero);
}

/* The least normal and its neighbour, those of f16, 1, 4/255, 1/7.5, 1/127, and large ones. */
static const double hard_scales[] = {
    0x1p-126,      0x1.000002p-126, 0x1p-14,       0x1.004p-14, 1,       0x1.010102p-6,
    0x1.111112p-3, 0x1.020408p-7,   0x1.99999ap-4, 65504,       0x1p100, 0x1.fffffep127};

static void quantize_ties_of(const struct qp_source_kernels *row, const struct qp_code_rule *rule,
                             double scale)
{
    const int32_t third = rule->q_min + (rule->q_max - rule->q_min) / 3;
    const int32_t zero = rule->asymmetric ? third : rule->type->is_signed ? 0 : rule->q_max / 2;
    void *src = arrays.src.begin;
    size_t n = 0;
    for (int32_t steps = rule->q_min - zero - 2; steps <= rule->q_max - zero + 2; steps++) {
        for (int ulps = -2; ulps <= 2; ulps++)
            put_source(row, src, n++, scale * (steps + 0.5), ulps);
    }
    check_values(row, src, n, rule, scale, zero);
}

static void quantize_ties(const struct qp_source_kernels *row)
{
    struct qp_code_rule rule;
    for (size_t r = 0; rule_at(r, &rule); r++) {
        for (size_t s = 0; s < COUNT(hard_scales); s++) {
            quantize_ties_of(row, &rule, hard_scales[s]);
            quantize_ties_of(row, &rule, -hard_scales[s]);
        }
    }
}

static void ties_and_their_neighbours_round_half_to_even_at_every_code(void **state)
{
    (void)state;
    for_each_row(quantize_ties);
}

/* Every 16-bit value, and every 16-bit upper half of a wider one. */
static void quantize_patterns(const struct qp_source_kernels *row)
{
    const struct qp_code_rule int8 = rule_of(QPLAN_INT8, false), uint4 = rule_of(QPLAN_UINT4, true);
    unsigned char *src = arrays.src.begin;
    unsigned shift = row->elem_bytes * 8u - 16;
    uint64_t seed = 4, low_half = ((uint64_t)1 << shift) - 1;
    for (size_t s = 0; s < COUNT(hard_scales); s++) {
        for (uint64_t i = 0; i < 65536; i++) {
            uint64_t bits = i << shift | (random_bits(&seed) & low_half);
            memcpy(src + i * row->elem_bytes, &bits, row->elem_bytes);
        }
        check_values(row, src, 65536, &int8, hard_scales[s], 0);
        check_values(row, src, 65536, &int8, -hard_scales[s], 0);
        check_values(row, src, 65536, &uint4, hard_scales[s], 3);
        check_values(row, src, 65536, &uint4, -hard_scales[s], 3);
    }
}

static void all_patterns_of_16_bits_have_the_code_of_the_contract(void **state)
{
    (void)state;
    for_each_row(quantize_patterns);
}

/* Scales 1 and -1, zero point 1, codes -2 .. 3: written out by hand. */
static void quantize_goldens(const struct qp_source_kernels *row)
{
    struct qp_code_rule rule = rule_of(QPLAN_INT8, true);
    static const double x[] = {-4.5, -3.5, -3, -2.5, -0.5, 0.5, 1.5, 2, 2.5, 2.515625};
    static const int8_t expected[][COUNT(x)] = {{-2, -2, -2, -1, 1, 1, 3, 3, 3, 3},
                                                {3, 3, 3, 3, 1, 1, -1, -1, -1, -2}};
    struct qp_tile tile = flat_tile(COUNT(x));
    double scale;
    int32_t zero = 1;
    int8_t codes[COUNT(x)];
    rule.q_min = -2;
    rule.q_max = 3;
    for (size_t i = 0; i < COUNT(x); i++)
        put_source(row, arrays.src.begin, i, x[i], 0);
    for (size_t s = 0; s < COUNT(expected); s++) {
        set_work(row, &scale, 0, s == 0 ? 1 : -1);
        quantizer_of(row)->quantize(&tile, arrays.src.begin, &rule, &scale, &zero,
                                    (uint8_t *)codes);
        assert_memory_equal(codes, expected[s], sizeof codes);
    }
}

static void the_zero_point_is_added_after_rounding(void **state)
{
    (void)state;
    for_each_row(quantize_goldens);
}

/* ---- range ----------------------------------------------------------------------------------- */

/* The ranges of a tile, one element at a time; they start from what is in lo and hi. */
static uint64_t plain_range(const struct qp_source_kernels *row, const struct qp_tile *tile,
                            const void *src, double *lo, double *hi)
{
    uint64_t others = 0;
    for (size_t i = 0; i < tile->rows * tile->cols; i++) {
        double x = source_value(row, src, i);
        size_t set = set_of(tile, i);
        if (!isfinite(x)) {
            others++;
            continue;
        }
        lo[set] = x < lo[set] ? x : lo[set];
        hi[set] = x > hi[set] ? x : hi[set];
    }
    return others;
}

/* Compares the ranges of what is in src with those found one element at a time. */
static void check_ranges(const struct qp_source_kernels *row, const struct qp_tile *tile,
                         const unsigned char *src)
{
    size_t n_sets = qp_tile_sets(tile);
    void *lo = place(&arrays.lo, n_sets * row->work_bytes);
    void *hi = place(&arrays.hi, n_sets * row->work_bytes);
    double *low = (double *)(void *)arrays.scale.begin, *high = (double *)(void *)arrays.y.begin;
    for (size_t i = 0; i < n_sets; i++) { /* some ranges are wide already */
        low[i] = i % 3 == 1 ? -1 : 0;
        high[i] = i % 3 == 2 ? 3 : 0;
        set_work(row, lo, i, low[i]);
        set_work(row, hi, i, high[i]);
    }
    uint64_t expected = plain_range(row, tile, src, low, high);
    assert_int_equal(row->range(tile, src, lo, hi), expected);
    for (size_t i = 0; i < n_sets; i++) {
        double found_lo = get_work(row, lo, i), found_hi = get_work(row, hi, i);
        if (memcmp(&found_lo, &low[i], sizeof found_lo) != 0)
            fail_at(row, tile, i, low[i], found_lo);
        if (memcmp(&found_hi, &high[i], sizeof found_hi) != 0)
            fail_at(row, tile, i, high[i], found_hi);
    }
}

static void range_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                       uint64_t *seed)
{
    size_t n = tile->rows * tile->cols;
    unsigned char *src = place_bytes(&arrays.src, n * row->elem_bytes, turn++);
    const struct qp_code_rule rule = rule_of(QPLAN_INT8, false);
    for (size_t i = 0; i < n; i++)
        put_hard_value(row, src, i, 0x1p-4, &rule, 0, seed);
    check_ranges(row, tile, src);
}

/* Runs of one length and finite values: some all positive, some all negative, some of zeros. */
static void range_runs(const struct qp_source_kernels *row, size_t n_runs, size_t width,
                       uint64_t *seed)
{
    const struct qp_tile as_rows = {n_runs, width, 1, width, 0};
    const struct qp_tile as_groups = {1, n_runs * width, 1, width, 0};
    unsigned char *src = place_bytes(&arrays.src, n_runs * width * row->elem_bytes, turn++);
    for (size_t i = 0; i < n_runs * width; i++) {
        const double size = ldexp(random_signed(seed), (int)random_below(seed, 20) - 10);
        const size_t kind = i / width % 5;
        const double x = kind == 0   ? fabs(size)
                         : kind == 1 ? -fabs(size)
                         : kind == 2 ? copysign(0, size)
                                     : size;
        put_source(row, src, i, x, 0);
    }
    check_ranges(row, &as_rows, src);
    check_ranges(row, &as_groups, src);
    put_special(row, src, random_below(seed, n_runs * width), seed);
    check_ranges(row, &as_rows, src);
}

static void range_even_runs(const struct qp_source_kernels *row)
{
    static const size_t widths[] = {16, 32, 48, 64, 128, 192, 1024};
    uint64_t seed = 7;
    for (size_t i = 0; i < COUNT(widths); i++) {
        for (size_t n_runs = 1; n_runs <= 35 && n_runs * widths[i] <= MOST_ELEMS; n_runs++)
            range_runs(row, n_runs, widths[i], &seed);
    }
}

static void ranges_of_even_runs_are_exact(void **state)
{
    (void)state;
    for_each_row(range_even_runs);
}

static void range_tiles(const struct qp_source_kernels *row)
{
    uint64_t seed = 5;
    for_each_tile(row, range_tile);
    for (size_t n = 0; n <= 257; n++) {
        struct qp_tile tile = flat_tile(n);
        range_tile(row, &tile, &seed);
    }
    struct qp_tile large = flat_tile(MOST_ELEMS - 5);
    range_tile(row, &large, &seed);
}

static void ranges_are_exact_and_skip_what_is_not_finite(void **state)
{
    (void)state;
    for_each_row(range_tiles);
}

/* ---- dequantize ------------------------------------------------------------------------------ */

static void dequantize_tile(const struct qp_source_kernels *row, const struct qp_tile *tile,
                            uint64_t *seed)
{
    const struct qp_code_rule picked = pick_rule(seed), *rule = &picked;
    size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    uint8_t *codes = place_bytes(&arrays.codes, n, turn++ / 2);
    void *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    void *y = place(&arrays.y, n * row->work_bytes);
    pick_params(row, rule, n_sets, scale, zero, seed);
    for (size_t i = 0; i < n; i++) /* from a file any byte may come */
        codes[i] = (uint8_t)random_bits(seed);
    quantizer_of(row)->dequantize(tile, codes, rule, scale, zero, y);
    for (size_t i = 0; i < n; i++) {
        size_t set = set_of(tile, i);
        int32_t code = rule->type->is_signed ? (int8_t)codes[i] : codes[i];
        double expected = decoded(row, get_work(row, scale, set), code - zero[set]);
        double found = get_work(row, y, i);
        if (memcmp(&found, &expected, sizeof found) != 0) /* the sign of 0 included */
            fail_at(row, tile, i, expected, found);
    }
}

static void dequantize_tiles(const struct qp_source_kernels *row)
{
    uint64_t seed = 6;
    for_each_tile(row, dequantize_tile);
    for (size_t n = 0; n <= 257; n++) {
        struct qp_tile tile = flat_tile(n);
        dequantize_tile(row, &tile, &seed);
    }
    struct qp_tile large = flat_tile(MOST_ELEMS - 7);
    dequantize_tile(row, &large, &seed);
}

static void decoded_values_are_rounded_once_and_finite(void **state)
{
    (void)state;
    for_each_row(dequantize_tiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_the_contract_for_every_geometry),
        cmocka_unit_test(codes_are_those_of_the_contract_for_every_length),
        cmocka_unit_test(codes_are_those_of_the_contract_for_many_sets),
        cmocka_unit_test(codes_are_the_same_where_the_values_are_known_to_be_bounded),
        cmocka_unit_test(ties_and_their_neighbours_round_half_to_even_at_every_code),
        cmocka_unit_test(all_patterns_of_16_bits_have_the_code_of_the_contract),
        cmocka_unit_test(the_zero_point_is_added_after_rounding),
        cmocka_unit_test(ranges_are_exact_and_skip_what_is_not_finite),
        cmocka_unit_test(ranges_of_even_runs_are_exact),
        cmocka_unit_test(decoded_values_are_rounded_once_and_finite),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
