/*
 * test_measure.c - large tensors, which are worked on in pieces by several workers: no byte and no
 * number depends on how the work was cut, the first offender is the first in the tensor, and all
 * are counted.
 */
#include "support.h"

#include <cjson/cJSON.h>

#define ROWS    601
#define COLS    333 /* odd: rows of 4-bit codes end inside a byte, units begin inside rows */
#define N_ELEMS (ROWS * COLS)
#define N_KEPT  300000

static struct folder folder;

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

/* Values of size 1, so that every set has the same scale. */
static int make_source(void **state)
{
    static float values[N_ELEMS];
    uint64_t seed = 1;
    (void)state;
    folder_make(&folder);
    for (size_t i = 0; i < N_ELEMS; i++)
        values[i] = random_below(&seed, 2) ? 1 : -1;
    const struct tensor tensors[] = {{"w", "F32", 2, {ROWS, COLS}, values, sizeof values},
                                     {"kept", "U8", 1, {N_KEPT}, NULL, N_KEPT}};
    write_checkpoint(path_of("s"), NULL, tensors, COUNT(tensors));
    return 0;
}

static int remove_source(void **state)
{
    (void)state;
    folder_remove(&folder);
    return 0;
}

/* ---- Damage ---------------------------------------------------------------------------------- */

/* Where the data of a tensor of the quantized file begins. */
static uint64_t begin_of(const char *name)
{
    struct qplan_checkpoint *file = open_checkpoint(path_of("q"));
    size_t n, i = 0;
    uint64_t n_header;
    unsigned char *bytes = read_file(path_of("q"), &n);
    memcpy(&n_header, bytes, sizeof n_header);
    free(bytes);
    while (strcmp(qplan_checkpoint_entry(file, i)->name, name) != 0)
        i++;
    uint64_t begin = 8 + n_header + qplan_checkpoint_entry(file, i)->begin;
    qplan_checkpoint_close(file);
    return begin;
}

/* Flips bits of a code. */
static void damage_code(uint64_t elem, uint64_t cols, bool packed, unsigned mask)
{
    uint64_t row = elem / cols, col = elem % cols;
    if (packed)
        flip_byte(path_of("q"), begin_of("w") + row * ((cols + 1) / 2) + col / 2,
                  (unsigned char)(col % 2 ? mask << 4 : mask));
    else
        flip_byte(path_of("q"), begin_of("w") + elem, (unsigned char)mask);
}

static const struct qplan_run runs[] = {
    {.threads = 1},
    {.threads = 1, .memory_bytes = 300000, .isa = QPLAN_ISA_SCALAR},
    {.threads = 2},
    {.threads = 3, .memory_bytes = 1 << 20},
    {.threads = 7, .memory_bytes = 4 << 20},
};

/* Looks at the file with every run: the same report, and the first offender's words. */
static struct text check_runs(const char *source_name, const char *words, const char *count)
{
    struct text first = {0};
    for (size_t i = 0; i < COUNT(runs); i++) {
        struct qplan_checkpoint *file = open_checkpoint(path_of("q"));
        struct qplan_checkpoint *source = open_checkpoint(path_of(source_name));
        const struct qplan_inspect_options options = {.against = source, .prove = true};
        struct qplan_report *report;
        struct qplan_error err;
        struct text text = {0};
        assert_int_equal(qplan_inspect(&report, file, &options, &runs[i], &err), QPLAN_ERR_PROOF);
        if (!strstr(err.message, words) || !strstr(err.message, count))
            fail_msg("run %zu: expected \"%s\" %s, found \"%s\"", i, words, count, err.message);
        OK(qplan_report_write_json(report, text_add, &text, &err), &err);
        if (i == 0)
            first = text;
        else
            assert_string_equal(text.data, first.data);
        if (i > 0)
            text_free(&text);
        qplan_report_free(report);
        qplan_checkpoint_close(source);
        qplan_checkpoint_close(file);
    }
    return first;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static const char *const schemes[] = {"int8:c0", "int8:c1",  "uint8:t",  "int4:g7",
                                      "uint4:t", "int4:c-1", "int4:b7x5"};

static void quantize(const char *scheme)
{
    const struct qplan_run run = {.force = true};
    struct qplan_error err;
    OK(quantize_file(path_of("s"), path_of("q"), scheme, &run, &err), &err);
    OK(verify_file(path_of("q"), path_of("s"), &err), &err);
}

static void the_first_offender_of_all_units_is_named_and_all_are_counted(void **state)
{
    static const uint64_t places[][3] = {{0, 99999, N_ELEMS - 1},
                                         {8191, 8192, 150001},
                                         {131071, 131072, 131073},
                                         {50000, 58192, 66384},
                                         {N_ELEMS - 3, N_ELEMS - 2, N_ELEMS - 1}};
    (void)state;
    for (size_t i = 0; i < COUNT(schemes) * COUNT(places); i++) {
        const char *scheme = schemes[i / COUNT(places)];
        const uint64_t *at = places[i % COUNT(places)];
        bool packed = strstr(scheme, "int4") != NULL;
        char words[128];
        quantize(scheme);
        for (int k = 0; k < 3; k++) /* by half of the range, or by a quarter */
            damage_code(at[k], COLS, packed, (packed ? 4u : 0x40u) << (k == 1));
        (void)snprintf(words, sizeof words, "at [%" PRIu64 ",%" PRIu64 "]: source ", at[0] / COLS,
                       at[0] % COLS);
        struct text text = check_runs("s", words, "and 3 such elements in all");
        assert_non_null(strstr(text.data, "\"proven\":false"));
        /* The largest error is the second one. */
        (void)snprintf(words, sizeof words, "\"max_at\":[%" PRIu64 ",%" PRIu64 "]", at[1] / COLS,
                       at[1] % COLS);
        if (!strstr(text.data, words))
            fail_msg("%s: expected %s in %s", scheme, words, text.data);
        text_free(&text);
    }
}

/*
 * Rows, groups and blocks of very different scales, in whole lanes of the sums and not: each
 * element is judged by the bound of its own set, wherever its block of sums begins and ends.
 */
static void elements_are_judged_by_their_own_bounds(void **state)
{
    static const uint64_t lengths[] = {80, 336, 1040, 4096, 5504, 11008, 3529, 8191};
    static const char *const even[] = {"int8:c0", "int4:c0", "int4:g16", "int8:g48", "int4:b3x16"};
    static float values[60000];
    uint64_t seed = 9;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(lengths) * COUNT(even); i++) {
        const uint64_t cols = lengths[i / COUNT(even)], rows = COUNT(values) / cols;
        const char *scheme = even[i % COUNT(even)];
        if (strchr(scheme, 'g') && cols % 48)
            scheme = cols % 16 ? "int8:b1x16" : "int4:g16";
        /* Sizes change with the row, and but for channels also with the column. */
        for (size_t k = 0; k < rows * cols; k++) {
            const size_t place = k / cols * 7 + (strchr(scheme, 'c') ? 0 : k % cols / 48);
            values[k] = (float)ldexp(random_below(&seed, 2) ? 1 : -1, (int)(place % 5) * -6);
        }
        const struct tensor w = {"w", "F32", 2, {rows, cols}, values, rows * cols * 4};
        write_checkpoint(path_of("s2"), NULL, &w, 1);
        const struct qplan_run run = {.force = true};
        OK(quantize_file(path_of("s2"), path_of("q"), scheme, &run, &err), &err);
        OK(verify_file(path_of("q"), path_of("s2"), &err), &err);
        const bool packed = strstr(scheme, "int4") != NULL;
        uint64_t n = 0, first = 0;
        for (uint64_t at = random_below(&seed, 400); at < rows * cols; at += 1 + n * 97) {
            damage_code(at, cols, packed, packed ? 2 : 4);
            first = n++ ? first : at;
        }
        char words[128], count[64];
        (void)snprintf(words, sizeof words, "at [%" PRIu64 ",%" PRIu64 "]: source ", first / cols,
                       first % cols);
        (void)snprintf(count, sizeof count, "and %" PRIu64 " such elements in all", n);
        struct text text = check_runs("s2", words, count);
        text_free(&text);
    }
}

static void kept_tensors_are_compared_in_units_too(void **state)
{
    char words[128];
    (void)state;
    quantize("int8:t");
    uint64_t begin = begin_of("kept");
    static const uint64_t places[] = {65536, 200000, N_KEPT - 1};
    for (size_t i = 0; i < COUNT(places); i++)
        flip_byte(path_of("q"), begin + places[i], 0x11);
    (void)snprintf(words, sizeof words,
                   "expected byte 0, found 17 at byte %" PRIu64 " of the tensor", places[0]);
    struct text text = check_runs("s", words, "and 3 such bytes in all");
    text_free(&text);
}

/*
 * Sets that are larger than a tile, columns that are too short to be read alone, more sets than a
 * tile has room for: read twice and in pieces with little memory, in one go with more.
 */
static void tensors_that_do_not_fit_a_tile_become_the_same_bytes(void **state)
{
    static const struct {
        uint64_t rows, cols;
    } shapes[] = {{5, 40000}, {300, 600}, {1, 200001}, {3001, 60}, {66667, 3}};
    static float values[200100];
    uint64_t seed = 6;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = (float)(random_signed(&seed) * ldexp(1, (int)(i / 37 % 30) - 15));
    for (size_t i = 0; i < COUNT(shapes) * COUNT(schemes); i++) {
        const uint64_t rows = shapes[i / COUNT(schemes)].rows,
                       cols = shapes[i / COUNT(schemes)].cols;
        const char *scheme = schemes[i % COUNT(schemes)];
        const struct tensor w = {"w", "F32", 2, {rows, cols}, values, rows * cols * 4};
        write_checkpoint(path_of("s2"), NULL, &w, 1);
        for (size_t k = 0; k < COUNT(runs); k++) {
            struct qplan_run run = runs[k];
            run.force = true;
            OK(quantize_file(path_of("s2"), path_of(k ? "other" : "q2"), scheme, &run, &err), &err);
            if (k && !same_files(path_of("q2"), path_of("other")))
                fail_msg("%" PRIu64 "x%" PRIu64 " %s: run %zu differs", rows, cols, scheme, k);
        }
        OK(verify_file(path_of("q2"), path_of("s2"), &err), &err);
    }
}

/* The sums of many blocks against long double. */
static void sums_of_many_blocks_are_right(void **state)
{
    static float values[N_ELEMS];
    uint64_t seed = 5;
    long double e2 = 0, x2 = 0;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < N_ELEMS; i++) {
        double x = random_signed(&seed) * 127.5;
        values[i] = (float)(i == 0 ? 127.5 : x); /* the scale is 1 */
        long double e = (long double)values[i] - rint((double)values[i]);
        e = i == 0 ? 0.5L : e;
        e2 += e * e;
        x2 += (long double)values[i] * values[i];
    }
    const struct tensor w = {"w", "F32", 2, {ROWS, COLS}, values, sizeof values};
    write_checkpoint(path_of("s2"), NULL, &w, 1);
    const struct qplan_run run = {.force = true};
    OK(quantize_file(path_of("s2"), path_of("q2"), "int8:t", &run, &err), &err);
    struct qplan_checkpoint *file = open_checkpoint(path_of("q2"));
    struct qplan_checkpoint *source = open_checkpoint(path_of("s2"));
    const struct qplan_inspect_options options = {.against = source};
    struct qplan_report *report;
    struct text text = {0};
    OK(qplan_inspect(&report, file, &options, NULL, &err), &err);
    OK(qplan_report_write_json(report, text_add, &text, &err), &err);
    cJSON *json = cJSON_Parse(text.data);
    const cJSON *totals = cJSON_GetObjectItem(json, "totals");
    double rms = cJSON_GetObjectItem(totals, "rms")->valuedouble;
    double sqnr = cJSON_GetObjectItem(totals, "sqnr_db")->valuedouble;
    assert_true(fabsl(rms - sqrtl(e2 / N_ELEMS)) < 1e-12L);
    assert_true(fabsl(sqnr - 10 * log10l(x2 / e2)) < 1e-10L);
    cJSON_Delete(json);
    text_free(&text);
    qplan_report_free(report);
    qplan_checkpoint_close(source);
    qplan_checkpoint_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_offender_of_all_units_is_named_and_all_are_counted),
        cmocka_unit_test(elements_are_judged_by_their_own_bounds),
        cmocka_unit_test(kept_tensors_are_compared_in_units_too),
        cmocka_unit_test(tensors_that_do_not_fit_a_tile_become_the_same_bytes),
        cmocka_unit_test(sums_of_many_blocks_are_right),
    };
    return cmocka_run_group_tests(tests, make_source, remove_source);
}
