/*
 * test_kernels_rows.c - every kernel of the table beside the scalar one: the same bits for any
 * input, numbers from damaged files included; arrays of every length between guard pages.
 */
#include "kernel_cases.h"

/* ---- Any number ------------------------------------------------------------------------------ */

/* A pattern of the working precision: ordinary, tiny, huge, or no number at all. */
static void put_any_work(const struct qp_source_kernels *row, void *array, size_t i, uint64_t *seed)
{
    static const double special[] = {0,        -0.0,           1,         -1,        0x1p-149,
                                     0x1p-126, 0x1.fffffep127, INFINITY,  -INFINITY, NAN,
                                     0x1p-14,  65504,          0x1.ffcp15};
    uint64_t kind = random_below(seed, 6), bits = random_bits(seed);
    if (kind == 0)
        set_work(row, array, i, special[random_below(seed, COUNT(special))]);
    else if (kind == 1)
        memcpy((char *)array + i * row->work_bytes, &bits, row->work_bytes);
    else
        set_work(row, array, i, ldexp(random_signed(seed), (int)random_below(seed, 50) - 25));
}

/* The same bits, or both no numbers. */
static void assert_same_work(const struct qp_source_kernels *row, const void *expected,
                             const void *found, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        double a = get_work(row, expected, i), b = get_work(row, found, i);
        if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
            fail_msg("%s of %s %s, element %zu of %zu: expected %a, found %a", what,
                     qplan_dtype_name(row->dtype), qplan_isa_name(row->isa), i, n, a, b);
    }
}

static const struct qp_source_kernels *scalar_of(const struct qp_source_kernels *row)
{
    return qp_source_kernels(row->dtype, QPLAN_ISA_SCALAR);
}

typedef void (*length_fn)(const struct qp_source_kernels *row, size_t n, uint64_t *seed);

static void for_each_length(const struct qp_source_kernels *row, length_fn check)
{
    uint64_t seed = 20;
    for (size_t n = 0; n <= 257; n++) {
        check(row, n, &seed);
        check(row, n, &seed);
    }
    check(row, 10007, &seed);
}

/* ---- load and store -------------------------------------------------------------------------- */

static void check_load(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    const struct qp_source_kernels *scalar = scalar_of(row);
    for (size_t k = 0; k < COUNT(source_dtypes); k++) {
        size_t size = qp_float_bytes(source_dtypes[k]);
        unsigned char *src = place_bytes(&arrays.src, n * size, random_bits(seed));
        void *expected = place(&arrays.lo, n * row->work_bytes);
        void *found = place(&arrays.hi, n * row->work_bytes);
        if (works_in_f32(row) && source_dtypes[k] == QPLAN_F64)
            continue; /* nothing in f32 comes from f64 */
        for (size_t i = 0; i < n * size; i++)
            src[i] = (unsigned char)random_bits(seed);
        scalar->work->load(source_dtypes[k], n, src, expected);
        row->work->load(source_dtypes[k], n, src, found);
        assert_same_work(row, expected, found, n, "load");
    }
}

static void check_store(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    const struct qp_source_kernels *scalar = scalar_of(row);
    void *y = place(&arrays.y, n * row->work_bytes);
    for (size_t i = 0; i < n; i++) {
        put_any_work(row, y, i, seed);
        if (isnan(get_work(row, y, i))) /* decoded values and scales never are */
            set_work(row, y, i, 1);
    }
    for (size_t k = 0; k < COUNT(source_dtypes); k++) {
        size_t size = qp_float_bytes(source_dtypes[k]);
        unsigned char *expected = place(&arrays.scale, n * size);
        unsigned char *found = place_bytes(&arrays.src, n * size, random_bits(seed));
        scalar->work->store(source_dtypes[k], n, y, expected);
        row->work->store(source_dtypes[k], n, y, found);
        assert_memory_equal(found, expected, n * size);
        void *back = place(&arrays.lo, n * row->work_bytes);
        void *rounded = place(&arrays.hi, n * row->work_bytes);
        if (works_in_f32(row) && source_dtypes[k] == QPLAN_F64)
            continue; /* nothing in f32 is rounded to f64 */
        memcpy(rounded, y, n * row->work_bytes);
        scalar->work->load(source_dtypes[k], n, expected, back);
        row->work->round(source_dtypes[k], n, rounded);
        assert_same_work(row, back, rounded, n, "round");
    }
}

static void load_lengths(const struct qp_source_kernels *row)
{
    for_each_length(row, check_load);
    for_each_length(row, check_store);
}

static void loading_and_storing_are_the_same_bits_at_every_length(void **state)
{
    (void)state;
    for_each_row(load_lengths);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void check_bounds(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    void *scale = place(&arrays.scale, n * row->work_bytes);
    double *expected = place(&arrays.lo, n * sizeof(double));
    double *found = place(&arrays.hi, n * sizeof(double));
    const struct qp_code_rule rule = pick_rule(seed);
    int32_t *zero = place(&arrays.zero, n * sizeof *zero);
    for (size_t i = 0; i < n; i++)
        put_any_work(row, scale, i, seed);
    for (size_t i = 0; i < n; i++)
        zero[i] = pick_zero(&rule, seed);
    scalar_of(row)->work->bounds(n, scale, zero, &rule, expected);
    row->work->bounds(n, scale, zero, &rule, found);
    for (size_t i = 0; i < n; i++)
        assert_true(found[i] == expected[i] || (isnan(found[i]) && isnan(expected[i])));
}

static void bound_lengths(const struct qp_source_kernels *row)
{
    for_each_length(row, check_bounds);
}

static void bounds_are_the_same_for_any_scale(void **state)
{
    (void)state;
    for_each_row(bound_lengths);
}

/* ---- params and merge ------------------------------------------------------------------------ */

/* A range around 0 that is finite. */
static void put_range(const struct qp_source_kernels *row, void *lo, void *hi, size_t i,
                      uint64_t *seed)
{
    void *const ends[] = {lo, hi};
    for (int k = 0; k < 2; k++) {
        put_any_work(row, ends[k], i, seed);
        double x = get_work(row, ends[k], i);
        x = isfinite(x) ? fabs(x) : 0;
        set_work(row, ends[k], i, k ? x : -x);
    }
}

static void check_params(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    const struct qp_code_rule picked = pick_rule(seed), *rule = &picked;
    void *lo = place(&arrays.lo, n * row->work_bytes), *hi = place(&arrays.hi, n * row->work_bytes);
    void *scale = place(&arrays.scale, n * row->work_bytes);
    void *expected = place(&arrays.y, n * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n * sizeof *zero);
    int32_t *expected_zero = place(&arrays.bound, n * sizeof *zero);
    for (size_t i = 0; i < n; i++)
        put_range(row, lo, hi, i, seed);
    size_t good = quantizer_of(scalar_of(row))->params(rule, n, lo, hi, expected, expected_zero);
    assert_int_equal(quantizer_of(row)->params(rule, n, lo, hi, scale, zero), good);
    assert_same_work(row, expected, scale, good, "params");
    assert_memory_equal(zero, expected_zero, good * sizeof *zero);
}

static void check_merge(const struct qp_source_kernels *row, size_t n, uint64_t *seed)
{
    void *lo = place(&arrays.lo, n * row->work_bytes), *hi = place(&arrays.hi, n * row->work_bytes);
    void *other_lo = place(&arrays.scale, n * row->work_bytes);
    void *other_hi = place(&arrays.y, n * row->work_bytes);
    double *low = (double *)(void *)arrays.bound.begin, *high = (double *)(void *)arrays.src.begin;
    for (size_t i = 0; i < n; i++) {
        put_range(row, lo, hi, i, seed);
        put_range(row, other_lo, other_hi, i, seed);
        low[i] = fmin(get_work(row, lo, i), get_work(row, other_lo, i));
        high[i] = fmax(get_work(row, hi, i), get_work(row, other_hi, i));
    }
    row->work->merge(n, lo, hi, other_lo, other_hi);
    for (size_t i = 0; i < n; i++)
        assert_true(get_work(row, lo, i) == low[i] && get_work(row, hi, i) == high[i]);
}

static void param_lengths(const struct qp_source_kernels *row)
{
    for_each_length(row, check_params);
    for_each_length(row, check_merge);
}

static void parameters_and_merged_ranges_are_the_same_at_every_length(void **state)
{
    (void)state;
    for_each_row(param_lengths);
}

/* ---- Damaged files --------------------------------------------------------------------------- */

/* Decodes and judges with scales and zero points that no quantizer writes. */
static void check_damage(const struct qp_source_kernels *row, const struct qp_tile *tile,
                         uint64_t *seed)
{
    const struct qp_quantizer *quantizer = quantizer_of(row),
                              *scalar = quantizer_of(scalar_of(row));
    const struct qp_code_rule picked = pick_rule(seed), *rule = &picked;
    size_t n = tile->rows * tile->cols, n_sets = qp_tile_sets(tile);
    void *src = place(&arrays.src, n * row->elem_bytes),
         *scale = place(&arrays.scale, n_sets * row->work_bytes);
    int32_t *zero = place(&arrays.zero, n_sets * sizeof *zero);
    double *bound = place(&arrays.bound, n_sets * sizeof *bound);
    uint8_t *codes = place(&arrays.codes, n);
    void *expected_y = place(&arrays.lo, n * row->work_bytes),
         *y = place(&arrays.y, n * row->work_bytes);
    struct qp_check expected, found;
    for (size_t i = 0; i < n_sets; i++) {
        put_any_work(row, scale, i, seed);
        zero[i] = rule->type->is_signed ? (int8_t)random_bits(seed) : (uint8_t)random_bits(seed);
    }
    for (size_t i = 0; i < n; i++) {
        double s = get_work(row, scale, set_of(tile, i));
        codes[i] = (uint8_t)random_bits(seed);
        put_hard_value(row, src, i, isfinite(s) ? s : 1, rule, 0, seed);
        if (random_below(seed, 3) == 0) { /* no error at all */
            codes[i] = (uint8_t)zero[set_of(tile, i)];
            put_source(row, src, i, 0, 0);
        }
    }
    scalar->dequantize(tile, codes, rule, scale, zero, expected_y);
    quantizer->dequantize(tile, codes, rule, scale, zero, y);
    assert_same_work(row, expected_y, y, n, "dequantize");
    scalar_of(row)->work->bounds(n_sets, scale, zero, rule, bound);
    scalar->check(tile, src, y, rule, scale, zero, bound, &expected);
    quantizer->check(tile, src, y, rule, scale, zero, bound, &found);
    assert_int_equal(found.offences, expected.offences);
    assert_int_equal(found.clipped, expected.clipped);
    assert_int_equal(found.nonfinite, expected.nonfinite);
    assert_true(found.offences == 0 || found.first_offence == expected.first_offence);
    assert_true(found.clipped == 0 || found.first_clipped == expected.first_clipped);
    assert_memory_equal(&found.max_clip, &expected.max_clip, sizeof found.max_clip);
}

static void damage_tiles(const struct qp_source_kernels *row)
{
    for_each_tile(row, check_damage);
}

static void damaged_parameters_are_judged_the_same(void **state)
{
    (void)state;
    for_each_row(damage_tiles);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void the_table_has_a_row_for_every_type_and_level(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(source_dtypes); i++) {
        for (unsigned isa = QPLAN_ISA_SCALAR; isa <= QPLAN_ISA_AVX512; isa++) {
            const struct qp_source_kernels *row =
                qp_source_kernels(source_dtypes[i], (enum qplan_isa)isa);
            assert_non_null(row);
            assert_int_equal(row->dtype, source_dtypes[i]);
            assert_true((unsigned)row->isa <= isa);
            assert_int_equal(row->elem_bytes, qp_float_bytes(row->dtype));
            assert_int_equal(row->work->work, row->dtype == QPLAN_F64 ? QPLAN_F64 : QPLAN_F32);
            assert_int_equal(row->work_bytes, row->work->work_bytes);
            assert_int_equal(row->work_bytes, row->dtype == QPLAN_F64 ? 8 : 4);
        }
        assert_int_equal(scalar_of(qp_source_kernels(source_dtypes[i], QPLAN_ISA_BEST))->isa,
                         QPLAN_ISA_SCALAR);
    }
    assert_null(qp_source_kernels(QPLAN_INT8, QPLAN_ISA_BEST));
}

static void every_kind_of_codes_has_a_quantizer_at_every_level(void **state)
{
    (void)state;
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        const enum qp_code_kind kind = type->kind;
        for (size_t i = 0; i < COUNT(source_dtypes); i++) {
            for (unsigned isa = QPLAN_ISA_SCALAR; isa <= QPLAN_ISA_AVX512; isa++) {
                const struct qp_quantizer *row =
                    qp_quantizer(source_dtypes[i], kind, (enum qplan_isa)isa);
                assert_non_null(row);
                assert_int_equal(row->dtype, source_dtypes[i]);
                assert_int_equal(row->kind, kind);
                assert_true((unsigned)row->isa <= isa);
            }
        }
        assert_null(qp_quantizer(QPLAN_INT8, kind, QPLAN_ISA_BEST));
    }
}

static void levels_are_found_by_name(void **state)
{
    struct qplan_error err;
    (void)state;
    for (unsigned isa = QPLAN_ISA_SCALAR; isa <= QPLAN_ISA_AVX512; isa++) {
        enum qplan_isa found = QPLAN_ISA_BEST;
        bool has = isa <= (unsigned)qp_isa_detect();
        enum qplan_status status =
            qplan_isa_parse(qplan_isa_name((enum qplan_isa)isa), &found, &err);
        assert_int_equal(status, has ? QPLAN_OK : QPLAN_ERR_USAGE);
        assert_int_equal(found, has ? isa : QPLAN_ISA_BEST);
        assert_true((unsigned)qplan_isa_used((enum qplan_isa)isa) <= isa);
    }
    enum qplan_isa unused;
    assert_int_equal(qplan_isa_parse("AVX2", &unused, &err), QPLAN_ERR_USAGE);
    assert_int_equal(qplan_isa_parse("", &unused, NULL), QPLAN_ERR_USAGE);
    assert_null(qplan_isa_name(QPLAN_ISA_BEST));
}

/* The tests walk the levels that this CPU has; what it lacks is named, not passed over. */
static void every_level_has_been_walked(void **state)
{
    (void)state;
    const unsigned best = (unsigned)qp_isa_detect();
    for (unsigned isa = best + 1; isa <= QPLAN_ISA_AVX512; isa++)
        print_message("skipped: %s: this CPU does not have it\n",
                      qplan_isa_name((enum qplan_isa)isa));
    if (best < QPLAN_ISA_AVX512)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_and_storing_are_the_same_bits_at_every_length),
        cmocka_unit_test(bounds_are_the_same_for_any_scale),
        cmocka_unit_test(parameters_and_merged_ranges_are_the_same_at_every_length),
        cmocka_unit_test(damaged_parameters_are_judged_the_same),
        cmocka_unit_test(the_table_has_a_row_for_every_type_and_level),
        cmocka_unit_test(every_kind_of_codes_has_a_quantizer_at_every_level),
        cmocka_unit_test(levels_are_found_by_name),
        cmocka_unit_test(every_level_has_been_walked),
    };
    return cmocka_run_group_tests(tests, arrays_make, arrays_free);
}
