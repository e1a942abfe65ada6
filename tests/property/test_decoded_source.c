/*
 * test_decoded_source.c - a quantized checkpoint as a source: what is made of it in one stream is,
 * byte for byte, what two steps give, dequantize and then quantize, for every layout of the
 * registry; and it is proven against either.
 */
#include "tests/unit/own_folder.h"

#include "lib/store/checkpoint.h"

#include <sys/stat.h>

#define ROWS 96
#define COLS 1088 /* more than a tile of the least size holds, and not a multiple of 128 */

static uint16_t values[ROWS * COLS];

/* A folder with three BF16 matrices and a vector. */
static void write_source(void)
{
    static const char config[] = "{\"model_type\": \"llama\", \"torch_dtype\": \"bfloat16\"}\n";
    const struct tensor tensors[] = {
        {"m.0.a.weight", "BF16", 2, {ROWS, COLS}, values, sizeof values},
        {"m.0.b.weight", "BF16", 2, {COLS, ROWS}, values, sizeof values},
        {"m.0.c.weight", "BF16", 2, {32, 64}, values + 5, 4096},
        {"m.0.norm", "BF16", 1, {64}, values + 9, 128},
    };
    uint64_t seed = 11;
    for (size_t i = 0; i < COUNT(values); i++) {
        const float x = (float)random_signed(&seed);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
    (void)mkdir(in_folder(&folder, "model"), 0777);
    write_file(in_folder(&folder, "model/config.json"), config, sizeof config - 1);
    write_checkpoint(in_folder(&folder, "model/model.safetensors"), NULL, tensors, COUNT(tensors));
}

struct wish {
    const char *format, *scheme, *exclude;
};

/* Quantizes a folder as wished; false if the layout does not store the scheme. */
static bool quantize(const char *from, const char *to, const struct wish *wish, bool decode,
                     unsigned threads)
{
    const struct qplan_plan_options options = {.scheme = scheme_of(wish->scheme),
                                               .format = wish->format,
                                               .select = QPLAN_SELECT_ALL,
                                               .exclude = &wish->exclude,
                                               .n_exclude = wish->exclude ? 1 : 0,
                                               .indivisible = QPLAN_INDIVISIBLE_KEEP};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, to), .verify = true};
    const struct qplan_run run = {.threads = threads, .memory_bytes = 4 << 20, .force = true};
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, from));
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    if (decode)
        OK(qplan_checkpoint_decode(source, &err), &err);
    const enum qplan_status status = qplan_plan_make(&plan, source, &options, &err);
    assert_true(status == QPLAN_OK || status == QPLAN_ERR_USAGE || status == QPLAN_ERR_INVALID);
    if (status == QPLAN_OK) {
        OK(qplan_quantize(&report, plan, &how, &run, &err), &err);
        qplan_report_free(report);
    }
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return status == QPLAN_OK;
}

/* The type that decoders of the layout of a file work in. */
static enum qplan_dtype decoder_dtype(const char *from)
{
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, from));
    const struct qp_tensor *t = &file->tensors[0];
    const enum qplan_dtype dtype = t->scheme && t->rounds && t->scheme->scale_dtype != QPLAN_F32
                                       ? t->scheme->scale_dtype
                                       : QPLAN_BF16;
    qplan_checkpoint_close(file);
    return dtype;
}

static void dequantize(const char *from, const char *to)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    const enum qplan_dtype dtype = decoder_dtype(from);
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, from));
    struct qplan_report *report;
    struct qplan_error err;
    OK(qplan_dequantize(&report, file, in_folder(&folder, to), &dtype, &run, &err), &err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

static enum qplan_status verify(const char *path, const char *source, bool exact,
                                struct qplan_error *err)
{
    const struct qplan_run run = {.threads = 2, .memory_bytes = 4 << 20};
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, path));
    struct qplan_checkpoint *against = open_checkpoint(in_folder(&folder, source));
    struct qplan_report *report = NULL;
    OK(qplan_checkpoint_decode(against, err), err);
    const struct qplan_inspect_options options = {
        .against = against, .prove = true, .exact = exact, .allow_unquantized = true};
    const enum qplan_status status = qplan_inspect(&report, file, &options, &run, err);
    qplan_report_free(report);
    qplan_checkpoint_close(against);
    qplan_checkpoint_close(file);
    return status;
}

static void same_in_both(const char *name)
{
    char one[64], two[64];
    (void)snprintf(one, sizeof one, "stream/%s", name);
    (void)snprintf(two, sizeof two, "steps/%s", name);
    char *path = strdup(in_folder(&folder, one));
    if (!path || !same_files(path, in_folder(&folder, two)))
        fail_msg("%s differs", name);
    free(path);
}

/* All granularities: strips of bands and of columns, pieces in passes, and decoded copies. */
static const struct wish wishes[] = {
    {"qplan", "int8:c0", NULL},
    {"qplan", "int8:c1", "*.a.*"},
    {"qplan", "uint4:t", NULL},
    {"qplan", "int4:g64:asym:bf16", "*.c.*"},
    {"qplan", "int8:b32x32", NULL},
    {"qplan", "int8:c0", "*"},
    {"compressed-tensors", "int4:g64", "*.b.*"},
    {"compressed-tensors", "int8:c0", NULL},
};

static void check_source(const char *format, const char *scheme)
{
    const struct wish made = {format, scheme, NULL};
    struct qplan_error err;
    if (!quantize("model", "source", &made, false, 1))
        return;
    dequantize("source", "plain");
    for (size_t i = 0; i < COUNT(wishes); i++) {
        assert_true(quantize("plain", "steps", &wishes[i], false, 1));
        assert_true(quantize("source", "stream", &wishes[i], true, i % 2 ? 1 : 3));
        same_in_both("model.safetensors");
        same_in_both("config.json");
        OK(verify("stream", "source", i % 2, &err), &err);
        OK(verify("stream", "plain", true, &err), &err);
    }
}

static void a_stream_gives_what_two_steps_give(void **state)
{
    static const char *const schemes[] = {"int8:c0", "int4:g32:asym", "uint4:g64"};
    const struct qp_format *format;
    (void)state;
    write_source();
    for (size_t i = 0; (format = qp_format_at(i)) != NULL; i++) {
        for (size_t k = 0; k < COUNT(schemes); k++)
            check_source(format->name, schemes[k]);
    }
}

/* A byte of the file, or of a code of the source, that is another one is found. */
static void a_changed_byte_is_found(void **state)
{
    const struct wish made = {"qplan", "int8:c0", NULL}, kept = {"qplan", "int8:c0", "*.b.*"};
    struct qplan_error err;
    (void)state;
    write_source();
    assert_true(quantize("model", "source", &made, false, 1));
    assert_true(quantize("source", "stream", &kept, true, 1));
    OK(verify("stream", "source", false, &err), &err);
    /* Codes of the last matrix in either file, then those of one that is only decoded. */
    static const struct {
        const char *file;
        size_t from_end;
    } changed[] = {{"stream/model.safetensors", 1000},
                   {"source/model.safetensors", 1000},
                   {"source/model.safetensors", 9000}};
    for (size_t i = 0; i < COUNT(changed); i++) {
        const char *path = in_folder(&folder, changed[i].file);
        size_t n;
        free(read_file(path, &n));
        flip_byte(path, n - changed[i].from_end, 0x40);
        assert_int_equal(verify("stream", "source", true, &err), QPLAN_ERR_PROOF);
        flip_byte(path, n - changed[i].from_end, 0x40);
        OK(verify("stream", "source", true, &err), &err);
    }
}

static void a_quantized_source_that_is_not_decoded_is_refused(void **state)
{
    const struct wish made = {"qplan", "int8:c0", NULL};
    const struct qplan_plan_options options = {.scheme = scheme_of("int8:c0")};
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    (void)state;
    write_source();
    assert_true(quantize("model", "source", &made, false, 1));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "source"));
    const struct qplan_inspect_options against = {.against = source};
    assert_int_equal(qplan_plan_make(&plan, source, &options, &err), QPLAN_ERR_INVALID);
    assert_int_equal(err.advice, QPLAN_ADVICE_DEQUANTIZE);
    assert_int_equal(qplan_inspect(&report, source, &against, NULL, &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "itself quantized"));
    qplan_checkpoint_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_gives_what_two_steps_give),
        cmocka_unit_test(a_changed_byte_is_found),
        cmocka_unit_test(a_quantized_source_that_is_not_decoded_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
