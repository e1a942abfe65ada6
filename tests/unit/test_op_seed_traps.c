/*
 * test_op_seed_traps.c - what other implementations of these operators were found to get wrong,
 * one test each: V1-V3, V6, V7 of the life cycle, T4-T10 of single operators. The traps of the
 * quantize family that need more cases are in test_op_traps.c, those of parameters in
 * test_params_traps.c.
 */
#include "op_support.h"

#include <math.h>

#define F32 QPLAN_STORAGE_F32
#define F64 QPLAN_STORAGE_F64
#define I64 QPLAN_STORAGE_I64

/* ---- The life cycle ---------------------------------------------------------------------------
 */

static void v1_strides_are_read(void **state)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, scale[2] = {1, 1};
    int8_t q[6];
    const int64_t stride[2] = {1, 2};
    struct qplan_error err;
    struct problem p = problem("quantize_per_channel");
    (void)state;
    add(&p, "input", F32, 2, SHAPE(2, 3), x)->stride = stride; /* a transposed view */
    add(&p, "scale", F32, 1, SHAPE(2), scale);
    add(&p, "output", QPLAN_STORAGE_I8, 2, SHAPE(2, 3), q);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_memory_equal(q, ((int8_t[]){1, 3, 5, 2, 4, 6}), sizeof q);
}

/* A sample of a 2-D image of one channel, all in f64. */
static void add_sample(struct problem *p, double *image, int64_t side, double *grid, double *out)
{
    add(p, "input", F64, 4, SHAPE(1, 1, side, side), image);
    add(p, "grid", F64, 4, SHAPE(1, 1, 1, 2), grid);
    add(p, "output", F64, 4, SHAPE(1, 1, 1, 1), out);
}

static void v2_short_buffers_are_refused(void **state)
{
    double image[4] = {0}, grid[2] = {0}, out = 7;
    struct qplan_error err;
    struct problem p = problem("grid_sample_2d");
    (void)state;
    add_sample(&p, image, 2, grid, &out);
    p.tensors[0].n_bytes--;
    FAILS(run_op(&p, &err), QPLAN_ERR_BUFFER, "'input'", &err);
    assert_true(out == 7);
}

static void v3_sizes_have_64_bits(void **state)
{
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem("quantize_per_tensor"), q = p;
    (void)state;
    add(&p, "input", F32, 2, SHAPE(INT64_C(1) << 20, INT64_C(1) << 13), NULL);
    add(&p, "scale", F32, 1, SHAPE(1), NULL);
    assert_int_equal(select_op(&p, &op, &err), QPLAN_OK);
    struct qplan_tensor output;
    assert_true(qplan_op_output(op, 0, &output));
    assert_true(output.shape[0] * output.shape[1] == INT64_C(1) << 33);
    qplan_op_free(op);
    add(&q, "input", F32, 2, SHAPE(INT64_C(1) << 40, INT64_C(1) << 40), NULL);
    add(&q, "scale", F32, 1, SHAPE(1), NULL);
    FAILS(select_op(&q, &op, &err), QPLAN_ERR_INVALID, "'input'", &err);
}

static void v6_codes_must_fit_their_type(void **state)
{
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem("quantize_per_tensor");
    (void)state;
    set_number(&p, "q_max", 255);
    add(&p, "input", F32, 1, SHAPE(4), NULL);
    add(&p, "scale", F32, 1, SHAPE(1), NULL);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "q_max", &err);
}

static void v7_empty_sums_are_written(void **state)
{
    float dweight[4] = {7, 7, 7, 7};
    struct qplan_error err;
    struct problem p = problem("embedding_backward");
    (void)state;
    set_number(&p, "num_embeddings", 2);
    add(&p, "dout", F32, 2, SHAPE(0, 2), NULL);
    add(&p, "indices", I64, 1, SHAPE(0), NULL);
    add(&p, "dweight", F32, 2, SHAPE(2, 2), dweight);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_memory_equal(dweight, ((float[4]){0}), sizeof dweight);
}

/* ---- Embedding --------------------------------------------------------------------------------
 */

static void t4_the_padding_row_is_as_stored(void **state)
{
    float weight[4] = {1, 2, 3, 4}, output[4], dweight[4];
    int64_t indices[2] = {1, 0};
    struct qplan_error err;
    struct problem p = problem("embedding"), back = problem("embedding_backward");
    (void)state;
    set_number(&p, "padding_idx", -1); /* the last row */
    add(&p, "weight", F32, 2, SHAPE(2, 2), weight);
    add(&p, "indices", I64, 1, SHAPE(2), indices);
    add(&p, "output", F32, 2, SHAPE(2, 2), output);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_memory_equal(output, ((float[]){3, 4, 1, 2}), sizeof output);
    set_number(&back, "num_embeddings", 2);
    set_number(&back, "padding_idx", -1);
    add(&back, "dout", F32, 2, SHAPE(2, 2), weight);
    add(&back, "indices", I64, 1, SHAPE(2), indices);
    add(&back, "dweight", F32, 2, SHAPE(2, 2), dweight);
    assert_int_equal(run_op(&back, &err), QPLAN_OK);
    assert_memory_equal(dweight, ((float[]){3, 4, 0, 0}), sizeof dweight);
}

static void t5_the_first_maximum_wins(void **state)
{
    float weight[3] = {5, 5, 1}, output;
    int64_t indices[3] = {2, 1, 0}, chosen;
    struct qplan_error err;
    struct problem p = problem("embedding_bag");
    (void)state;
    set(&p, "mode", "max");
    add(&p, "weight", F32, 2, SHAPE(3, 1), weight);
    add(&p, "indices", I64, 2, SHAPE(1, 3), indices);
    add(&p, "output", F32, 2, SHAPE(1, 1), &output);
    add(&p, "max_indices", I64, 2, SHAPE(1, 1), &chosen);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_true(output == 5 && chosen == 1);
}

/* ---- Grid samples -----------------------------------------------------------------------------
 */

static void t6_f64_is_f64(void **state)
{
    const double fine = 1 + 0x1p-40;
    double image[1] = {fine}, grid[2] = {0, 0}, out = 0;
    struct qplan_error err;
    struct problem p = problem("grid_sample_2d");
    (void)state;
    add_sample(&p, image, 1, grid, &out);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_true(out == fine);
}

static void t7_any_coordinate_is_defined(void **state)
{
    static const double far[] = {1e30, -1e30, 1e300, -1e300};
    double image[4] = {1, 2, 3, 4}, grid[2], out;
    struct qplan_error err;
    struct problem p = problem("grid_sample_2d"), border = p;
    (void)state;
    add_sample(&p, image, 2, grid, &out);
    add_sample(&border, image, 2, grid, &out);
    set(&border, "padding_mode", "border");
    grid[0] = NAN;
    grid[1] = 0;
    out = 7;
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    assert_true(out == 0);
    for (size_t i = 0; i < 4; i++) {
        grid[0] = grid[1] = far[i];
        assert_int_equal(run_op(&p, &err), QPLAN_OK);
        assert_true(out == 0);
        assert_int_equal(run_op(&border, &err), QPLAN_OK);
        assert_true(out == (far[i] > 0 ? 4 : 1));
    }
}

/* channels may be 0: then nothing is summed. */
static void run_backward(int64_t channels, double *dinput, double *dgrid)
{
    double image[4] = {1, 2, 3, 4}, grid[2] = {0.25, 0.5}, dout[1] = {1};
    struct qplan_error err;
    struct problem p = problem("grid_sample_2d_backward");
    add(&p, "dout", F64, 4, SHAPE(1, channels, 1, 1), dout);
    add(&p, "input", F64, 4, SHAPE(1, channels, 2, 2), image);
    add(&p, "grid", F64, 4, SHAPE(1, 1, 1, 2), grid);
    add(&p, "dinput", F64, 4, SHAPE(1, channels, 2, 2), dinput);
    add(&p, "dgrid", F64, 4, SHAPE(1, 1, 1, 2), dgrid);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
}

static void t8_gradients_overwrite(void **state)
{
    double dinput[4] = {9, 9, 9, 9}, dgrid[2] = {9, 9}, again[4] = {0}, fresh[2] = {0};
    (void)state;
    run_backward(1, dinput, dgrid);
    run_backward(1, again, fresh);
    assert_memory_equal(dinput, again, sizeof dinput);
    assert_memory_equal(dgrid, fresh, sizeof dgrid);
    assert_true(fresh[0] != 0 && fresh[1] != 0);
    run_backward(0, dinput, dgrid);
    assert_true(dgrid[0] == 0 && dgrid[1] == 0);
}

static void t9_images_have_pixels(void **state)
{
    double grid[2] = {0}, out = 7;
    struct qplan_error err;
    struct problem p = problem("grid_sample_2d");
    (void)state;
    add_sample(&p, NULL, 0, grid, &out);
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'input'", &err);
    assert_true(out == 7);
}

/* ---- Dequantize -------------------------------------------------------------------------------
 */

/* The code that comes back after a trip through a value of some dtype. */
static int8_t there_and_back(int8_t code, enum qplan_storage dtype, const char *name, bool *exact)
{
    float scale = 1.0078125f;
    int32_t zero = -128;
    int8_t back;
    uint32_t value;
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem("dequantize_per_tensor"), q = problem("quantize_per_tensor");
    set(&p, "output_dtype", name);
    add(&p, "input", QPLAN_STORAGE_I8, 1, SHAPE(1), &code);
    add(&p, "scale", F32, 1, SHAPE(1), &scale);
    add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(1), &zero);
    add(&p, "output", dtype, 1, SHAPE(1), &value);
    assert_int_equal(select_op(&p, &op, &err), QPLAN_OK);
    *exact = qplan_op_precision_guarantee(op)->correctly_rounded;
    qplan_op_free(op);
    assert_int_equal(run_op(&p, &err), QPLAN_OK);
    add(&q, "input", dtype, 1, SHAPE(1), &value);
    add(&q, "scale", F32, 1, SHAPE(1), &scale);
    add(&q, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(1), &zero);
    add(&q, "output", QPLAN_STORAGE_I8, 1, SHAPE(1), &back);
    assert_int_equal(run_op(&q, &err), QPLAN_OK);
    return back;
}

/* 255 steps of 1.0078125 round to 256 in bf16, which is 254 steps; no guarantee says otherwise. */
static void t10_bf16_does_not_bring_every_code_back(void **state)
{
    bool exact;
    (void)state;
    assert_int_equal(there_and_back(127, QPLAN_STORAGE_BF16, "bf16", &exact), 126);
    assert_false(exact);
    assert_int_equal(there_and_back(127, F32, "f32", &exact), 127);
    assert_true(exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v1_strides_are_read),
        cmocka_unit_test(v2_short_buffers_are_refused),
        cmocka_unit_test(v3_sizes_have_64_bits),
        cmocka_unit_test(v6_codes_must_fit_their_type),
        cmocka_unit_test(v7_empty_sums_are_written),
        cmocka_unit_test(t4_the_padding_row_is_as_stored),
        cmocka_unit_test(t5_the_first_maximum_wins),
        cmocka_unit_test(t6_f64_is_f64),
        cmocka_unit_test(t7_any_coordinate_is_defined),
        cmocka_unit_test(t8_gradients_overwrite),
        cmocka_unit_test(t9_images_have_pixels),
        cmocka_unit_test(t10_bf16_does_not_bring_every_code_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
