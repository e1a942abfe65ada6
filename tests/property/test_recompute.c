/*
 * test_recompute.c - the proof computes parameters, and if asked codes, again from the source:
 * whatever the granularity, the memory and the number of threads, an honest file passes, and one
 * changed bit of a scale, a zero point or a code does not.
 */
#include "tests/unit/own_folder.h"

#define ROWS  300
#define COLS  701
#define ELEMS (ROWS * COLS)

static const char *const schemes[] = {
    "int8:c0",      "int8:c1",          "int8:t",           "int4:g32:bf16",   "uint4:g64",
    "int8:b7x50",   "uint8:c0",         "int8:t:asym:f16",  "uint8:b300x9",    "int4:g701",
    "uint8:c1:f16", "int3:g64",         "uint2:t",          "int6:b7x50:asym", "int8:g32:e8m0",
    "int8:t:e8m0",  "uint4:g32:f8e4m3", "int8:b7x50:f8e4m3"};

/* Bytes of a stored scale. */
static size_t scale_bytes(const char *scheme)
{
    return strstr(scheme, "e8m0") || strstr(scheme, "f8e4m3") ? 1 : strstr(scheme, "f16") ? 2 : 4;
}

static const struct qplan_run runs[] = {{.threads = 1, .memory_bytes = 1 << 20},
                                        {.threads = 3, .memory_bytes = 1 << 20},
                                        {.threads = 2}};

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

/* Tensors that are large, small and tiny: pieces, units and batches. */
static void write_source(void)
{
    static float values[ELEMS];
    uint64_t seed = 7;
    for (size_t i = 0; i < ELEMS; i++)
        values[i] = (float)(random_signed(&seed) * (i % 1000 == 0 ? 3 : 1));
    const struct tensor tensors[] = {{"w", "F32", 2, {ROWS, COLS}, values, sizeof values},
                                     {"v", "F32", 2, {COLS, ROWS}, values, sizeof values},
                                     {"u", "F32", 2, {20, 30}, values, 600 * 4},
                                     {"t", "F32", 3, {4, 5, 6}, values, 120 * 4}};
    write_checkpoint(path_of("s"), NULL, tensors, COUNT(tensors));
}

static enum qplan_status verify(const char *name, bool exact, const struct qplan_run *run,
                                struct qplan_error *err)
{
    struct qplan_checkpoint *file = open_checkpoint(path_of(name));
    struct qplan_checkpoint *source = open_checkpoint(path_of("s"));
    const struct qplan_inspect_options options = {.against = source, .prove = true, .exact = exact};
    struct qplan_report *report;
    enum qplan_status status = qplan_inspect(&report, file, &options, run, err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
    qplan_checkpoint_close(source);
    return status;
}

/* The file "bad": "q" with one bit changed in an element of a stored tensor. */
static void change(const char *tensor, size_t elem, size_t elem_bytes)
{
    struct qplan_checkpoint *file = open_checkpoint(path_of("q"));
    size_t n;
    uint64_t n_header, at = 0;
    unsigned char *bytes = read_file(path_of("q"), &n);
    memcpy(&n_header, bytes, sizeof n_header);
    for (size_t i = 0; i < qplan_checkpoint_count(file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(file, i);
        if (strcmp(entry->name, tensor) == 0)
            at = 8 + n_header + entry->begin + elem * elem_bytes % (entry->end - entry->begin);
    }
    assert_true(at > 0);
    write_file(path_of("bad"), bytes, n);
    /* Of a scale of one byte not the lowest bit, with which the largest one would be none. */
    flip_byte(path_of("bad"), at, elem_bytes == 1 && strstr(tensor, "_scale") ? 4 : 1);
    free(bytes);
    qplan_checkpoint_close(file);
}

/* Refused in every run, for the same reason. */
static void assert_refused(const char *scheme, const char *tensor, bool exact)
{
    struct qplan_error first, err;
    for (size_t i = 0; i < COUNT(runs); i++) {
        const enum qplan_status status = verify("bad", exact, &runs[i], &err);
        if (status != QPLAN_ERR_PROOF)
            fail_msg("%s: a bit of %s is changed, and the proof says %d", scheme, tensor, status);
        if (i == 0)
            first = err;
        assert_string_equal(err.subject, first.subject);
        assert_string_equal(err.message, first.message);
    }
}

static void honest_files_are_proven(void **state)
{
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    (void)state;
    write_source();
    for (size_t k = 0; k < COUNT(schemes); k++) {
        OK(quantize_file(path_of("s"), path_of("q"), schemes[k], &force, &err), &err);
        for (size_t i = 0; i < COUNT(runs); i++) {
            OK(verify("q", false, &runs[i], &err), &err);
            OK(verify("q", true, &runs[i], &err), &err);
        }
    }
}

static void a_changed_scale_is_found(void **state)
{
    static const char *const tensors[] = {"w_scale", "v_scale", "u_scale", "t_scale"};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    uint64_t seed = 8;
    (void)state;
    write_source();
    for (size_t k = 0; k < COUNT(schemes); k++) {
        OK(quantize_file(path_of("s"), path_of("q"), schemes[k], &force, &err), &err);
        for (size_t i = 0; i < COUNT(tensors); i++) {
            change(tensors[i], (size_t)random_below(&seed, 1 << 20), scale_bytes(schemes[k]));
            assert_refused(schemes[k], tensors[i], false);
            assert_refused(schemes[k], tensors[i], true);
        }
    }
}

/* With scales that fit the changed factor as well as any other. */
static void a_changed_factor_is_found(void **state)
{
    static const char *const tensors[] = {"w_scale_2", "t_scale_2"};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    (void)state;
    write_source();
    for (size_t k = 0; k < COUNT(schemes); k++) {
        if (!strstr(schemes[k], "f8e4m3"))
            continue;
        OK(quantize_file(path_of("s"), path_of("q"), schemes[k], &force, &err), &err);
        for (size_t i = 0; i < COUNT(tensors); i++) {
            change(tensors[i], 0, 4);
            assert_refused(schemes[k], tensors[i], false);
            assert_refused(schemes[k], tensors[i], true);
        }
    }
}

static void a_changed_zero_point_is_found(void **state)
{
    static const char *const asymmetric[] = {"uint8:c0", "int8:t:asym:f16", "uint4:g64",
                                             "uint8:b300x9"};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    uint64_t seed = 9;
    (void)state;
    write_source();
    for (size_t k = 0; k < COUNT(asymmetric); k++) {
        OK(quantize_file(path_of("s"), path_of("q"), asymmetric[k], &force, &err), &err);
        change("w_zero_point", (size_t)random_below(&seed, 1 << 20), 1);
        assert_refused(asymmetric[k], "w_zero_point", false);
        change("t_zero_point", (size_t)random_below(&seed, 1 << 20), 1);
        assert_refused(asymmetric[k], "t_zero_point", false);
    }
}

static void a_changed_code_is_found(void **state)
{
    static const char *const tensors[] = {"w", "v", "u", "t"};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    uint64_t seed = 10;
    (void)state;
    write_source();
    for (size_t k = 0; k < COUNT(schemes); k++) {
        OK(quantize_file(path_of("s"), path_of("q"), schemes[k], &force, &err), &err);
        for (size_t i = 0; i < COUNT(tensors); i++) {
            change(tensors[i], (size_t)random_below(&seed, 1 << 20), 1);
            assert_refused(schemes[k], tensors[i], true);
        }
    }
}

/* A source on a tie has two nearest codes: the bound allows both, and only one is what is written.
 */
static void only_exact_tells_ties_apart(void **state)
{
    static const float values[4] = {127, 0.5f, -0.5f, 1};
    const struct tensor w = {"w", "F32", 2, {1, 4}, values, sizeof values};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    (void)state;
    write_checkpoint(path_of("s"), NULL, &w, 1);
    OK(quantize_file(path_of("s"), path_of("q"), "int8:c0:narrow", &force, &err), &err);
    change("w", 1, 1); /* 0.5 is stored as 0, and then as 1 */
    OK(verify("bad", false, NULL, &err), &err);
    assert_int_equal(verify("bad", true, NULL, &err), QPLAN_ERR_PROOF);
    assert_non_null(strstr(err.message, "at [0,1]: expected 0x00, found 0x01, and 1 such bytes"));
}

/* A record of f16 scales, and a source that needs more: what the file says cannot be. */
static void an_impossible_record_is_not_proven(void **state)
{
    float values[4] = {1, 2, 3, 4};
    const struct tensor w = {"w", "F32", 2, {1, 4}, values, sizeof values};
    const struct qplan_run force = {.force = true};
    struct qplan_error err;
    (void)state;
    write_checkpoint(path_of("s"), NULL, &w, 1);
    OK(quantize_file(path_of("s"), path_of("q"), "int8:t:f16", &force, &err), &err);
    for (size_t i = 0; i < 4; i++)
        values[i] = 1e30f;
    write_checkpoint(path_of("s"), NULL, &w, 1);
    assert_int_equal(verify("q", false, NULL, &err), QPLAN_ERR_PROOF);
    assert_int_equal(verify("q", true, NULL, &err), QPLAN_ERR_PROOF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_files_are_proven),
        cmocka_unit_test(a_changed_scale_is_found),
        cmocka_unit_test(a_changed_factor_is_found),
        cmocka_unit_test(a_changed_zero_point_is_found),
        cmocka_unit_test(a_changed_code_is_found),
        cmocka_unit_test(only_exact_tells_ties_apart),
        cmocka_unit_test(an_impossible_record_is_not_proven),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
