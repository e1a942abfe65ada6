/*
 * test_calibrate.c - what runs promise to any calibrator: its passes, the order in which it sees
 * and merges, and codes that are right where it leaves values outside their range. The calibrators
 * here are made for the test and put into a plan.
 */
#include "own_folder.h"

#include "lib/plan/plan.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

static void bins_are_read(void **state)
{
    static const char *const bad[] = {
        "entropy:",    "entropy:63",   "entropy:8193", "entropy:0512", "entropy:20480",
        "entropy:1e3", "entropy:512 ", "entropy:-64",  "entropy:9",    "entropies"};
    const struct qplan_scheme int8 = scheme_of("int8:c0"), f8 = scheme_of("f8e4m3:c0"),
                              e8m0 = scheme_of("int8:g32:e8m0");
    struct qp_calibrator found;
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(qp_calibrator_read(bad[i], &found));
    assert_true(qp_calibrator_read("entropy:64", &found));
    assert_int_equal(found.state_bytes, 64 * 8);
    assert_true(qp_calibrator_read("entropy:8192", &found));
    assert_int_equal(found.parameter, 8192);
    assert_true(qp_calibrator_read("entropy", &found));
    assert_string_equal(found.name, "entropy:2048");
    assert_true(qp_calibrator_recorded("entropy:2048", &int8, &found));
    assert_false(qp_calibrator_recorded("entropy", &int8, &found));
    assert_false(qp_calibrator_recorded("entropy:2048+positive", &int8, &found));
    assert_false(qp_calibrator_recorded("entropy:2048", &f8, &found));
    assert_false(qp_calibrator_recorded("entropy:2048", &e8m0, &found));
}

static void rows_are_complete_and_found_by_name(void **state)
{
    const struct qp_calibrator *row;
    (void)state;
    struct qp_calibrator found;
    assert_false(qp_calibrator_read("none such", &found));
    for (size_t i = 0; (row = qp_calibrator_at(i)) != NULL; i++) {
        const bool has_parameter = row->bits > 0;
        assert_int_equal(qp_calibrator_read(row->name, &found), !has_parameter);
        assert_true(qp_calibrator_passes(row, 4) > 0 && row->see && row->merge && row->finish);
        assert_true(qp_calibrator_passes(row, 4) > 1 || row->state_bytes <= QP_MOST_STATE_BYTES);
    }
}

/* ---- A calibrator that clips --------------------------------------------------------------------
 */

static uint64_t see_nothing(const struct qp_calibration *c, unsigned pass,
                            const struct qp_tile *tile, const void *src, void *state)
{
    (void)c, (void)pass, (void)tile, (void)src, (void)state;
    return 0;
}

static void merge_nothing(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                          size_t first, const void *of_tile, size_t n)
{
    (void)c, (void)pass, (void)state, (void)n_all, (void)first, (void)of_tile, (void)n;
}

/* A scale so small that most quotients pass what sums with a large number can round. */
#define TINY 0x1p-30f

static size_t finish_tiny(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                          void *scale, int32_t *zero)
{
    (void)c, (void)pass, (void)state;
    for (size_t i = 0; i < n; i++) {
        ((float *)scale)[i] = TINY;
        zero[i] = 0;
    }
    return n;
}

static const struct qp_calibrator clipping = {.name = "clipping",
                                              .can_clip = true,
                                              .passes = 1,
                                              .state_bytes = 8,
                                              .see = see_nothing,
                                              .merge = merge_nothing,
                                              .finish = finish_tiny};

#define ROWS 192
#define COLS 4096

static float values[ROWS * COLS];

static void fill_values(void)
{
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = (float)((double)(i * 2654435761u % 20001) - 10000) / 64;
}

/* Quantizes the values by a calibrator and returns the bytes of the file. */
static unsigned char *quantize_by(const struct qp_calibrator *calibrator, const char *scheme,
                                  const struct qplan_run *run, size_t *n_bytes)
{
    const struct tensor tensors[] = {{"w", "F32", 2, {ROWS, COLS}, values, sizeof values}};
    const struct qplan_plan_options options = {.scheme = scheme_of(scheme)};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "out")};
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    write_checkpoint(in_folder(&folder, "in"), NULL, tensors, 1);
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    plan->tensors[0].calibrator = calibrator;
    OK(qplan_quantize(&report, plan, &how, run, &err), &err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return read_file(in_folder(&folder, "out"), n_bytes);
}

/* Kernels trust values to fit the scale only where the calibrator cannot clip. */
static void values_outside_the_codes_are_clipped_at_every_level(void **state)
{
    static const enum qplan_isa levels[] = {QPLAN_ISA_SCALAR, QPLAN_ISA_AVX2, QPLAN_ISA_AVX512};
    (void)state;
    fill_values();
    for (size_t l = 0; l < COUNT(levels); l++) {
        const struct qplan_run run = {.threads = 2, .isa = levels[l], .force = true};
        size_t n_bytes;
        if (levels[l] > qp_isa_detect())
            continue;
        unsigned char *bytes = quantize_by(&clipping, "int8:c0", &run, &n_bytes);
        const int8_t *codes = NULL;
        struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "out"));
        const struct qplan_entry *entry = qp_tensor_part(&file->tensors[0], QP_CODES)->entry;
        codes = (const int8_t *)bytes + file->source.files[0].header_bytes + entry->begin;
        for (size_t i = 0; i < COUNT(values); i++) {
            const double code = nearbyint((double)values[i] / (double)TINY);
            const double clipped = code < -128 ? -128 : code > 127 ? 127 : code;
            if (codes[i] != (int8_t)clipped)
                fail_msg("level %d, element %zu: expected %g, found %d", (int)levels[l], i, clipped,
                         codes[i]);
        }
        qplan_checkpoint_close(file);
        free(bytes);
    }
}

/* ---- A calibrator with passes that depend on their order ----------------------------------------
 */

/*
 * Two passes of sums in single precision: the second begins with what the first has left.
 * Floating-point sums show any change of order. The state of a set: the sum of a pass.
 */
static uint64_t see_sums(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                         const void *src, void *state)
{
    static atomic_uint n_calls;
    float *sums = state;
    const float *x = src;
    const float *known = c->known;
    if (atomic_fetch_add(&n_calls, 1) % 2 ==
        0) /* so that the next piece is ready before this one */
        (void)usleep(3000);
    for (size_t row = 0; row < tile->rows; row++) {
        for (size_t col = 0; col < tile->cols; col++) {
            const size_t set = row / tile->band_rows * qp_tile_cols(tile) +
                               (tile->col_skip + col) / tile->col_width;
            sums[set] += fabsf(x[row * tile->cols + col]) / (3 + (pass ? known[set] : 0));
        }
    }
    return 0;
}

static void merge_sums(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                       size_t first, const void *of_tile, size_t n)
{
    float *sums = state;
    const float *others = of_tile;
    (void)c;
    (void)pass;
    assert_true(first + n <= n_all);
    for (size_t i = 0; i < n; i++)
        sums[first + i] = sums[first + i] * 0.75f + others[i];
}

static size_t finish_sums(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                          void *scale, int32_t *zero)
{
    const float *sums = state;
    float *known = c->known;
    for (size_t i = 0; pass == 0 && i < n; i++)
        known[i] = sums[i];
    for (size_t i = 0; pass == 1 && i < n; i++) {
        ((float *)scale)[i] = 1 + known[i] + sums[i] / 7;
        zero[i] = 0;
    }
    return n;
}

static const struct qp_calibrator summing = {.name = "summing",
                                             .can_clip = true,
                                             .passes = 2,
                                             .state_bytes = sizeof(float),
                                             .known_bytes = sizeof(float),
                                             .see = see_sums,
                                             .merge = merge_sums,
                                             .finish = finish_sums};

/* Tiles are of one size here, so only the order of merging could change the sums. */
static void pieces_are_merged_in_their_order_in_every_pass(void **state)
{
    static const char *const many_pieces[] = {"int8:t", "int8:c1"};
    (void)state;
    fill_values();
    for (size_t s = 0; s < COUNT(many_pieces); s++) {
        const struct qplan_run one = {.threads = 1, .force = true};
        size_t n_one, n_many;
        unsigned char *expected = quantize_by(&summing, many_pieces[s], &one, &n_one);
        for (unsigned threads = 2; threads < 9; threads++) {
            const struct qplan_run many = {.threads = threads, .force = true};
            unsigned char *found = quantize_by(&summing, many_pieces[s], &many, &n_many);
            assert_int_equal(n_many, n_one);
            assert_memory_equal(found, expected, n_one);
            free(found);
        }
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_found_by_name),
        cmocka_unit_test(bins_are_read),
        cmocka_unit_test(values_outside_the_codes_are_clipped_at_every_level),
        cmocka_unit_test(pieces_are_merged_in_their_order_in_every_pass),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
