/*
 * test_largest.c - scales that are stored as the value of the largest code: rows that have none,
 * rows at the ends of what a scale can be, and sources of every type, through the layout of
 * bitsandbytes.
 */
#include "own_folder.h"

#include "kernels/codes/largest.h"
#include "lib/plan/plan.h"

#include <float.h>
#include <math.h>

#define ROWS 8
#define COLS 640

/* A value of each row, from which all of its values are made. */
static const double ordinary[ROWS] = {0, 1, 0.02, 3e-7, 1e-30, 1e-38, 700, 6e4};

static void value_to(const char *dtype, double value, size_t i, void *out)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    const uint16_t upper = (uint16_t)(bits >> 16);
    if (strcmp(dtype, "F64") == 0)
        memcpy((char *)out + 8 * i, &value, 8);
    else if (strcmp(dtype, "F32") == 0)
        memcpy((char *)out + 4 * i, &narrow, 4);
    else
        memcpy((char *)out + 2 * i, &upper, 2);
}

static void write_model(const char *dtype, size_t size, const double of_row[ROWS])
{
    static const char config[] = "{\"model_type\": \"llama\"}\n";
    static double data[ROWS * COLS];
    struct tensor tensors[] = {{"m.0.a.weight", dtype, 2, {ROWS, COLS}, data, size * ROWS * COLS}};
    for (size_t i = 0; i < ROWS * COLS; i++) {
        const double share = ((double)(i * 2654435761u % 4001) - 2000) / 2000;
        value_to(dtype, of_row[i / COLS] * (i % COLS ? share : 1), i, data);
    }
    (void)mkdir(in_folder(&folder, "model"), 0777);
    write_file(in_folder(&folder, "model/config.json"), config, sizeof config - 1);
    write_checkpoint(in_folder(&folder, "model/model.safetensors"), NULL, tensors, COUNT(tensors));
}

/* Quantizes and proves; then the stored scales are in out. */
static enum qplan_status quantize(const struct qplan_plan_options *options, uint64_t memory,
                                  float out[ROWS], struct qplan_error *err)
{
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "out"),
                                               .verify = true};
    const struct qplan_run run = {.threads = 2, .memory_bytes = memory, .force = true};
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "model"));
    struct qplan_plan *plan;
    struct qplan_report *report;
    OK(qplan_plan_make(&plan, source, options, err), err);
    const enum qplan_status status = qplan_quantize(&report, plan, &how, &run, err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    if (status != QPLAN_OK)
        return status;
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "out"));
    const struct qp_part *scale = qp_tensor_part(&file->tensors[0], QP_SCALE);
    assert_true(scale->of_largest);
    OK(qp_source_read(&file->source, scale->entry, 0, out, ROWS * sizeof *out, err), err);
    qplan_checkpoint_close(file);
    return QPLAN_OK;
}

static const struct {
    const char *dtype;
    size_t size;
} types[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}};

static void rows_of_every_size_are_stored_and_proven(void **state)
{
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .format = "bitsandbytes"};
    float found[ROWS];
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(types); i++) {
        write_model(types[i / 2].dtype, types[i / 2].size, ordinary);
        OK(quantize(&options, i % 2 ? 0 : 4 << 20, found, &err), &err);
        assert_true(found[0] == 127); /* as if its step were 1 */
        for (size_t row = 1; row < ROWS; row++) {
            const double close = types[i / 2].size == 2 ? 0.008 : 1e-6; /* the source is rounded */
            const double expected =
                ordinary[row] > 127 * (double)FLT_MIN ? ordinary[row] : 127 * (double)FLT_MIN;
            assert_true(fabs((double)found[row] - expected) <= close * expected);
        }
    }
}

static void the_reference_stores_zeros_and_f16(void **state)
{
    static const double of_row[ROWS] = {0, 1, 0.02, 1e-30, 65504, 2, 2, 2};
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .format = "bitsandbytes",
                                               .arithmetic = QPLAN_ARITHMETIC_REFERENCE};
    float found[ROWS];
    struct qplan_error err;
    (void)state;
    write_model("F32", 4, of_row);
    OK(quantize(&options, 0, found, &err), &err);
    assert_true(found[0] == 0 && found[1] == 1 && found[3] == 0 && found[4] == 65504);
    assert_true(found[2] == 0x1.47cp-6f); /* 0.02 in f16 */
}

static void what_no_decoder_gets_back_is_refused(void **state)
{
    static const double too_large[ROWS] = {1, 2e36, 2.8e36}, for_f16[ROWS] = {1, 65504, 65520};
    struct qplan_plan_options options = {.scheme = scheme_of("int8"), .format = "bitsandbytes"};
    float found[ROWS];
    struct qplan_error err;
    (void)state;
    write_model("F32", 4, too_large);
    assert_int_equal(quantize(&options, 0, found, &err), QPLAN_ERR_VALUE);
    assert_non_null(strstr(err.message, "set 2"));
    options.arithmetic = QPLAN_ARITHMETIC_REFERENCE;
    write_model("F32", 4, for_f16);
    assert_int_equal(quantize(&options, 0, found, &err), QPLAN_ERR_VALUE);
    assert_non_null(strstr(err.message, "set 2"));
}

static void infinite_values_become_the_largest_code(void **state)
{
    static const double of_row[ROWS] = {1, INFINITY, -INFINITY, NAN, 0.3, 0, 7, 9};
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .format = "bitsandbytes",
                                               .nonfinite = QPLAN_NONFINITE_SATURATE};
    float found[ROWS];
    struct qplan_error err;
    (void)state;
    write_model("F32", 4, of_row);
    OK(quantize(&options, 0, found, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_size_are_stored_and_proven),
        cmocka_unit_test(the_reference_stores_zeros_and_f16),
        cmocka_unit_test(what_no_decoder_gets_back_is_refused),
        cmocka_unit_test(infinite_values_become_the_largest_code),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
