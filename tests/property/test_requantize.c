/*
 * test_requantize.c - decoding and quantizing again: where the largest code of every set is used,
 * the same codes come back; a decoded file has the names, types and shapes of the source.
 */
#include "tests/unit/own_folder.h"

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

static void dequantize(const char *from, const char *to, const enum qplan_dtype *dtype)
{
    const struct qplan_run run = {.threads = 3, .memory_bytes = 1 << 20, .force = true};
    struct qplan_report *report;
    struct qplan_error err;
    struct qplan_checkpoint *file = open_checkpoint(from);
    OK(qplan_dequantize(&report, file, to, dtype, &run, &err), &err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

#define MOST_ELEMS 4000

static float values[MOST_ELEMS];

/* A random f32 tensor; rows may be zero, tiny or huge. */
static void write_source(uint64_t rows, uint64_t cols, uint64_t *seed)
{
    for (uint64_t i = 0; i < rows * cols; i++) {
        double x = random_signed(seed);
        uint64_t kind = i / cols % 6;
        values[i] = (float)(kind == 0 ? 0 : kind == 1 ? x * 0x1p-140 : kind == 2 ? x * 1e30 : x);
    }
    const struct tensor tensors[] = {{"w", "F32", 2, {rows, cols}, values, rows * cols * 4},
                                     {"kept", "F16", 1, {3}, "abcdef", 6}};
    write_checkpoint(path_of("s"), "{\"a\":\"b\",\"format\":\"np\"}", tensors, COUNT(tensors));
}

/* The bytes of a tensor of a file. */
static unsigned char *tensor_bytes(const char *path, const char *name, size_t *n)
{
    struct qplan_checkpoint *file = open_checkpoint(path);
    size_t n_file;
    uint64_t n_header;
    unsigned char *bytes = read_file(path, &n_file), *found = NULL;
    memcpy(&n_header, bytes, sizeof n_header);
    for (size_t i = 0; i < qplan_checkpoint_count(file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(file, i);
        if (strcmp(entry->name, name) != 0)
            continue;
        *n = (size_t)(entry->end - entry->begin);
        found = malloc(*n + 1);
        assert_non_null(found);
        memcpy(found, bytes + 8 + n_header + entry->begin, *n);
    }
    assert_non_null(found);
    free(bytes);
    qplan_checkpoint_close(file);
    return found;
}

static bool same_tensor(const char *a, const char *b, const char *name)
{
    size_t n_a, n_b;
    unsigned char *x = tensor_bytes(a, name, &n_a), *y = tensor_bytes(b, name, &n_b);
    bool same = n_a == n_b && memcmp(x, y, n_a) == 0;
    free(x);
    free(y);
    return same;
}

/*
 * A narrow symmetric range with a scale of f32 puts the largest magnitude on the largest code, so
 * the scale of the decoded values is the old one up to a rounding, which moves no code.
 */
static void narrow_codes_survive_another_round(void **state)
{
    static const char *const schemes[] = {"int8:c0:narrow", "int8:t:narrow",    "int8:g16:narrow",
                                          "int4:g7:narrow", "int4:b5x9:narrow", "int4:c1:narrow",
                                          "int2:g7:narrow", "int3:c0:narrow",   "int6:b5x9:narrow"};
    const struct qplan_run run = {.force = true};
    uint64_t seed = 1;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < 120; i++) {
        const char *scheme = schemes[(size_t)i % COUNT(schemes)];
        write_source(1 + random_below(&seed, 40), 1 + random_below(&seed, 100), &seed);
        OK(quantize_file(path_of("s"), path_of("q"), scheme, &run, &err), &err);
        dequantize(path_of("q"), path_of("d"), NULL);
        OK(quantize_file(path_of("d"), path_of("again"), scheme, &run, &err), &err);
        if (!same_tensor(path_of("q"), path_of("again"), "w"))
            fail_msg("%s: other codes", scheme);
        assert_true(same_tensor(path_of("q"), path_of("again"), "w_zero_point"));
    }
}

/* Values 0 .. 255 times a scale use both ends of an unsigned range. */
static void asymmetric_codes_survive_another_round(void **state)
{
    static const char *const schemes[] = {"uint8:c0", "int8:c0:asym", "uint8:t", "uint8:g256:f16"};
    const struct qplan_run run = {.force = true};
    struct qplan_error err;
    (void)state;
    for (size_t k = 0; k < COUNT(schemes); k++) {
        for (int zero = 0; zero <= 255; zero += 15) {
            for (int i = 0; i < 256; i++)
                values[i] = 0.0625f * (float)(i - zero);
            const struct tensor w = {"w", "F32", 2, {1, 256}, values, 256 * sizeof values[0]};
            write_checkpoint(path_of("s"), NULL, &w, 1);
            OK(quantize_file(path_of("s"), path_of("q"), schemes[k], &run, &err), &err);
            dequantize(path_of("q"), path_of("d"), NULL);
            assert_true(same_tensor(path_of("s"), path_of("d"), "w")); /* nothing was lost */
            OK(quantize_file(path_of("d"), path_of("again"), schemes[k], &run, &err), &err);
            assert_true(same_files(path_of("q"), path_of("again")));
        }
    }
}

static void a_decoded_file_is_a_plain_checkpoint(void **state)
{
    static const struct {
        const char *name;
        enum qplan_storage storage;
    } rows[] = {
        {"f32", QPLAN_STORAGE_F32}, {"f16", QPLAN_STORAGE_F16}, {"bf16", QPLAN_STORAGE_BF16}};
    const struct qplan_run run = {.force = true};
    uint64_t seed = 3;
    struct qplan_error err;
    (void)state;
    write_source(11, 13, &seed);
    OK(quantize_file(path_of("s"), path_of("q"), "int4:g5", &run, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        enum qplan_dtype dtype;
        assert_true(qplan_dtype_parse(rows[i].name, &dtype));
        dequantize(path_of("q"), path_of("d"), &dtype);
        struct qplan_checkpoint *file = open_checkpoint(path_of("d"));
        assert_int_equal(qplan_checkpoint_count(file), 2);
        const struct qplan_entry *kept = qplan_checkpoint_entry(file, 0);
        const struct qplan_entry *w = qplan_checkpoint_entry(file, 1);
        assert_string_equal(kept->name, "kept");
        assert_int_equal(kept->storage, QPLAN_STORAGE_F16);
        assert_int_equal(w->storage, rows[i].storage);
        assert_true(w->rank == 2 && w->shape[0] == 11 && w->shape[1] == 13);
        assert_string_equal(qplan_checkpoint_metadata(file, "a", NULL), "b");
        assert_null(qplan_checkpoint_metadata(file, "qplan.layout", NULL));
        assert_null(qplan_checkpoint_metadata(file, "qplan.tensors", NULL));
        qplan_checkpoint_close(file);
        assert_true(same_tensor(path_of("s"), path_of("d"), "kept"));
    }
}

static void what_is_not_quantized_cannot_be_decoded(void **state)
{
    const enum qplan_dtype wrong = QPLAN_F64;
    struct qplan_report *report;
    struct qplan_error err;
    uint64_t seed = 4;
    const struct qplan_run run = {.force = true};
    (void)state;
    write_source(3, 3, &seed);
    struct qplan_checkpoint *plain = open_checkpoint(path_of("s"));
    assert_int_equal(qplan_dequantize(&report, plain, path_of("x"), NULL, NULL, &err),
                     QPLAN_ERR_INVALID);
    assert_null(report);
    qplan_checkpoint_close(plain);
    OK(quantize_file(path_of("s"), path_of("q"), "int8", &run, &err), &err);
    struct qplan_checkpoint *file = open_checkpoint(path_of("q"));
    assert_int_equal(qplan_dequantize(&report, file, path_of("x"), &wrong, NULL, &err),
                     QPLAN_ERR_USAGE);
    assert_int_equal(qplan_dequantize(&report, file, path_of("q"), NULL, &run, &err),
                     QPLAN_ERR_USAGE);
    assert_null(report);
    assert_false(file_exists(path_of("x")));
    qplan_checkpoint_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_codes_survive_another_round),
        cmocka_unit_test(asymmetric_codes_survive_another_round),
        cmocka_unit_test(a_decoded_file_is_a_plain_checkpoint),
        cmocka_unit_test(what_is_not_quantized_cannot_be_decoded),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
