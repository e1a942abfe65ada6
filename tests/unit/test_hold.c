/*
 * test_hold.c - rows that are held in memory where a layout turns codes: with plenty of memory and
 * with so little that nothing is held, files, proofs and decoded values are the same.
 */
#include "own_folder.h"

#include "lib/plan/plan.h"
#include "lib/store/hold.h"

/* Some pieces of any job, whose cuts fall on no multiple of a row, nor of words that go down. */
#define ROWS ((size_t)1440)
#define COLS ((size_t)800)

static float values[ROWS * COLS];

static const struct layout {
    const char *format, *scheme;
} layouts[] = {{"gptq", "int4:g32"},
               {"gptq", "int8:c0"},
               {"gptq_v2", "int4:g32:asym"},
               {"awq", "uint4:g32"},
               {"awq", "uint4:g32:sym"}};

/* With the memory of the first nothing is held. */
static const struct qplan_run runs[] = {
    {.threads = 1, .memory_bytes = (uint64_t)640 << 10, .force = true},
    {.threads = 1, .force = true},
    {.threads = 3, .force = true},
    {.threads = 1, .memory_bytes = (uint64_t)4 << 20, .force = true},
    {.threads = 2, .memory_bytes = (uint64_t)8 << 20, .isa = QPLAN_ISA_SCALAR, .force = true}};

static void write_source(void)
{
    static const char config[] = "{\"model_type\": \"llama\", \"torch_dtype\": \"float32\"}\n";
    const struct tensor tensor = {"m.0.a.weight", "F32", 2, {ROWS, COLS}, values, sizeof values};
    uint32_t seed = 11;
    for (size_t i = 0; i < ROWS * COLS; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((double)seed / 4294967296.0 - 0.4);
    }
    (void)mkdir(in_folder(&folder, "model"), 0777);
    write_file(in_folder(&folder, "model/config.json"), config, sizeof config - 1);
    write_checkpoint(in_folder(&folder, "model/model.safetensors"), NULL, &tensor, 1);
}

static void quantize_to(const char *out, const struct layout *layout, const struct qplan_run *run)
{
    const struct qplan_plan_options options = {.scheme = scheme_of(layout->scheme),
                                               .format = layout->format};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, out)};
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "model"));
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    assert_int_equal(plan->n_quantized, 1);
    OK(qplan_quantize(&report, plan, &how, run, &err), &err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
}

static enum qplan_status dequantize_to(const char *out, const struct qplan_run *run,
                                       struct qplan_error *err)
{
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "first"));
    struct qplan_report *report;
    const enum qplan_status status =
        qplan_dequantize(&report, file, in_folder(&folder, out), NULL, run, err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
    return status;
}

static int append(void *ctx, const void *bytes, size_t n)
{
    char *text = ctx;
    const size_t there = strlen(text);
    assert_true(there + n < 16384);
    memcpy(text + there, bytes, n);
    text[there + n] = 0;
    return 0;
}

/* The report of a proof, which may have failed, as text. */
static void prove(const struct qplan_run *run, char text[16384])
{
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "first"));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "model"));
    const struct qplan_inspect_options options = {.against = source, .prove = true};
    struct qplan_report *report = NULL;
    struct qplan_error err;
    (void)qplan_inspect(&report, file, &options, run, &err);
    assert_non_null(report);
    text[0] = 0;
    OK(qplan_report_write_json(report, append, text, &err), &err);
    qplan_report_free(report);
    qplan_checkpoint_close(source);
    qplan_checkpoint_close(file);
}

/* What a proof finds is the same for every run. */
static void check_proofs(bool is_right)
{
    static char expected[16384], found[16384];
    prove(&runs[0], expected);
    assert_int_equal(strstr(expected, "\"proven\":true") != NULL, is_right);
    for (size_t k = 1; k < COUNT(runs); k++) {
        prove(&runs[k], found);
        assert_string_equal(found, expected);
    }
}

static void check_layout(const struct layout *layout)
{
    struct qplan_error err;
    struct stat st;
    quantize_to("first", layout, &runs[0]);
    OK(dequantize_to("plain", &runs[0], &err), &err);
    for (size_t k = 1; k < COUNT(runs); k++) {
        quantize_to("again", layout, &runs[k]);
        assert_true(same_files(in_folder(&folder, "again/model.safetensors"),
                               in_folder(&folder, "first/model.safetensors")));
        OK(dequantize_to("again", &runs[k], &err), &err);
        assert_true(same_files(in_folder(&folder, "again/model.safetensors"),
                               in_folder(&folder, "plain/model.safetensors")));
    }
    check_proofs(true);
    const char *first = in_folder(&folder, "first/model.safetensors");
    assert_int_equal(stat(first, &st), 0);
    flip_byte(first, (uint64_t)st.st_size / 3, 0x77); /* of the codes, which are most of it */
    check_proofs(false);
}

static void nothing_depends_on_what_is_held(void **state)
{
    (void)state;
    write_source();
    for (size_t i = 0; i < COUNT(layouts); i++)
        check_layout(&layouts[i]);
}

/* ---- How much fits ----------------------------------------------------------------------------
 */

static void no_more_is_held_than_fits(void **state)
{
    (void)state;
    quantize_to("first", &layouts[3], &runs[1]);
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "first"));
    const struct qp_tensor *t = &file->tensors[0];
    struct qp_hold hold;
    static char room[1 << 20];
    assert_int_equal(qp_tall_rows(t), 8);
    assert_int_equal(qp_hold_rows(t, 0), 0);
    for (size_t n_bytes = 4096; n_bytes <= sizeof room; n_bytes += 4096 + 12) {
        const uint64_t rows = qp_hold_rows(t, n_bytes);
        assert_int_equal(rows % 8, 0);
        for (uint64_t row = 0; rows > 0 && row < 9; row++) {
            qp_hold_make(&hold, t, row, rows, true, room);
            const struct qp_held *last = &hold.held[hold.n - 1];
            assert_int_equal(hold.n, 3); /* codes, zero points and scales */
            assert_true((size_t)(last->image - room) + qp_place_image_bytes(last->part->place,
                                                                            last->part->matrix,
                                                                            &last->rect) <=
                        n_bytes);
        }
        const uint64_t n = qp_hold_elems(t, n_bytes, 4096);
        assert_true(n % 4096 == 0 && n >= 4096);
        assert_true(n == 4096 || n <= QP_HELD_ELEMS(n_bytes));
    }
    qplan_checkpoint_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_depends_on_what_is_held),
        cmocka_unit_test(no_more_is_held_than_fits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
