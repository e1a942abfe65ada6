/*
 * test_params_traps.c - the traps of the quantization parameters, q1 to q10: what a plain reading
 * of their formulas gets wrong.
 */
#include "params_cases.h"

/* The code and the decoded value of x, in f32. */
static int32_t code_of(const struct qplan_params *params, float x)
{
    int32_t q_min, q_max;
    assert_true(qplan_dtype_range(params->dtype, &q_min, &q_max));
    float steps = rintf(x / (float)params->scale[0]) + (float)params->zero_point[0];
    return (int32_t)fminf(fmaxf(steps, (float)q_min), (float)q_max);
}

static float decoded(const struct qplan_params *params, float x)
{
    return (float)params->scale[0] * (float)(code_of(params, x) - params->zero_point[0]);
}

/* [-2, 2] in int8: the ends get -127 and 127, and the bound holds where the end is a tie. */
static void test_q1_absmax_may_saturate(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_INT8, QPLAN_SYMMETRIC, -2, 2);
    assert_pair(&params, (double)0.0156862754F, 0);
    assert_int_equal(code_of(&params, -2), -127);
    assert_int_equal(code_of(&params, 2), 127);
    qplan_params_free(&params);

    params = from_range(QPLAN_INT8, QPLAN_SYMMETRIC, -3, 3);
    double error = fabs(3.0 - (double)decoded(&params, 3));
    double bound = qplan_params_quantization_error_bound(&params, NULL);
    assert_int_equal(code_of(&params, 3), 127);
    assert_true(error > params.scale[0] / 2);
    assert_true(error <= bound);
    assert_true(bound < 1.001 * params.scale[0] / 2);
    qplan_params_free(&params);
}

/* A range without 0 is widened: its values keep apart. */
static void test_q2_range_is_widened_to_zero(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, 10, 20);
    assert_pair(&params, (double)(20.0F / 255), 0);
    double bound = qplan_params_quantization_error_bound(&params, NULL);
    for (float x = 10; x <= 20; x += 0.125F)
        assert_true(fabs((double)x - (double)decoded(&params, x)) <= bound);
    assert_true(bound < 0.04);
    qplan_params_free(&params);

    params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, -20, -10);
    assert_pair(&params, (double)(20.0F / 255), 255);
    qplan_params_free(&params);
}

static void test_q3_unsigned_symmetric_has_the_midpoint(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_UINT8, QPLAN_SYMMETRIC, -1, 1);
    assert_int_equal(params.zero_point[0], 128);
    assert_true(fabs(-1.0 - (double)decoded(&params, -1)) <=
                qplan_params_quantization_error_bound(&params, NULL));
    qplan_params_free(&params);
    params = from_range(QPLAN_UINT4, QPLAN_SYMMETRIC, -1, 1);
    assert_int_equal(params.zero_point[0], 8);
    qplan_params_free(&params);
}

static void test_q4_no_scale_underflows_or_overflows(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, 0, 0x1p-149);
    assert_pair(&params, (double)FLT_MIN, 0);
    qplan_params_free(&params);
    params = from_range(QPLAN_INT8, QPLAN_SYMMETRIC, -0x1p-149, 0);
    assert_pair(&params, (double)FLT_MIN, 0);
    qplan_params_free(&params);

    params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, (double)-3e38F, (double)3e38F);
    assert_pair(&params, (double)(3e38F / 127.5F), 128);
    qplan_params_free(&params);
    params = from_range(QPLAN_INT4, QPLAN_SYMMETRIC, (double)-FLT_MAX, (double)FLT_MAX);
    assert_pair(&params, (double)(FLT_MAX / 7.5F), 0);
    qplan_params_free(&params);

    double min = -DBL_MAX, max = DBL_MAX;
    OK(qplan_params_uint8_asymmetric(&params, NULL));
    params.scale_dtype = QPLAN_F64;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    assert_true(params.scale[0] == DBL_MAX / 127.5);
    assert_true(isfinite(qplan_params_quantization_error_bound(&params, NULL)));
    qplan_params_free(&params);
}

static void test_q5_failed_call_changes_nothing(void **state)
{
    struct qplan_params params;
    double min[] = {1, 2}, max[] = {4, 8};
    (void)state;
    OK(qplan_params_channel_wise(&params, 2, QPLAN_UINT8, NULL));
    params.scheme = QPLAN_LOGARITHMIC;
    OK(qplan_params_from_statistics(&params, min, max, 2, NULL));
    struct qplan_params before = params;
    double scale = params.scale[1];
    min[1] = -1;
    assert_int_equal(qplan_params_from_statistics(&params, min, max, 2, NULL), QPLAN_ERR_VALUE);
    assert_memory_equal(&params, &before, sizeof params);
    assert_true(params.min_val[1] == 2 && params.scale[1] == scale);
    qplan_params_free(&params);
    /* A cleared struct has no sets, but is no accident either. */
    assert_int_equal(qplan_params_validate(&params, NULL), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_from_statistics(&params, min, max, 1, NULL), QPLAN_ERR_INVALID);
}

static void test_q6_validate_knows_what_is_legal(void **state)
{
    struct qplan_params params;
    (void)state;
    OK(qplan_params_channel_wise(&params, 1, QPLAN_INT8, NULL));
    OK(qplan_params_validate(&params, NULL));
    params.scheme = QPLAN_BLOCK_WISE;
    assert_int_equal(qplan_params_validate(&params, NULL), QPLAN_ERR_INVALID);
    qplan_params_free(&params);

    params = from_range(QPLAN_UINT8, QPLAN_LOGARITHMIC, 10, 20);
    assert_int_equal(params.zero_point[0], -847);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);
}

static void test_q7_every_set_has_its_own_statistics(void **state)
{
    struct qplan_params params;
    const double min[] = {-1, 0, -10}, max[] = {1, 255, 0};
    (void)state;
    OK(qplan_params_block_wise(&params, 4, QPLAN_UINT8, NULL));
    OK(qplan_params_from_statistics(&params, min, max, 3, NULL));
    assert_int_equal(qplan_params_num_parameter_sets(&params), 3);
    assert_true(qplan_params_is_per_channel(&params));
    assert_true(params.scale[0] == (double)(2.0F / 255) && params.zero_point[0] == 127);
    assert_true(params.scale[1] == 1 && params.zero_point[1] == 0);
    assert_true(params.scale[2] == (double)(10.0F / 255) && params.zero_point[2] == 255);
    assert_true(params.min_val[2] == -10 && params.max_val[1] == 255);
    /* 12 elements in blocks of 4 have 3 sets, whatever the params had before. */
    assert_true(qplan_params_effective_compression_ratio(&params, 12) == 48.0 / (12 + 24));
    qplan_params_free(&params);
}

static void test_q8_bound_includes_clipping(void **state)
{
    struct qplan_params params;
    bool known;
    (void)state;
    /* Scales given by hand, statistics beyond what the codes reach. */
    params = from_range(QPLAN_INT8, QPLAN_SYMMETRIC, -1, 1);
    params.max_val[0] = 2;
    double clip = 2 - params.scale[0] * 127;
    double bound = qplan_params_quantization_error_bound(&params, &known);
    assert_true(known);
    assert_true(bound > clip && bound < clip * 1.001);
    qplan_params_free(&params);

    OK(qplan_params_int8_symmetric(&params, NULL));
    bound = qplan_params_quantization_error_bound(&params, &known);
    assert_false(known);
    assert_true(bound > 0.5 && bound < 0.5001);
    (void)qplan_params_quantization_error_bound(&params, NULL);
    params.scale[0] = NAN;
    assert_true(isinf(qplan_params_quantization_error_bound(&params, &known)));
    qplan_params_free(&params);

    /* Logarithmic: relative to the value, so it grows with the largest one. */
    params = from_range(QPLAN_UINT8, QPLAN_LOGARITHMIC, 1, 1000);
    bound = qplan_params_quantization_error_bound(&params, &known);
    assert_true(known && bound >= 1000 * expm1(params.scale[0] / 2) && bound < 14);
    qplan_params_free(&params);
}

static void test_q9_two_compression_ratios(void **state)
{
    static const struct {
        enum qplan_dtype dtype;
        double ratio;
    } rows[] = {{QPLAN_INT8, 4},  {QPLAN_UINT8, 4},  {QPLAN_INT4, 8},   {QPLAN_UINT4, 8},
                {QPLAN_INT16, 2}, {QPLAN_UINT16, 2}, {QPLAN_BINARY, 32}};
    struct qplan_params params;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        OK(qplan_params_channel_wise(&params, 1, rows[i].dtype, NULL));
        assert_true(qplan_params_compression_ratio(&params) == rows[i].ratio);
        qplan_params_free(&params);
    }
    OK(qplan_params_block_wise(&params, 128, QPLAN_INT4, NULL));
    assert_true(qplan_params_compression_ratio(&params) == 8);
    assert_true(qplan_params_effective_compression_ratio(&params, 1 << 20) == 512.0 / 72);
    assert_true(qplan_params_effective_compression_ratio(&params, 3) == 12.0 / (2 + 8));
    assert_true(qplan_params_effective_compression_ratio(&params, 0) == 0);
    assert_true(qplan_params_effective_compression_ratio(&params, UINT64_MAX) > 7.1);
    qplan_params_free(&params);
}

/* lo / s = -0.5 and -1.5: the even integer wins, 0 and -2. */
static void test_q10_zero_point_rounds_half_to_even(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, -0.5, 254.5);
    assert_pair(&params, 1, 0);
    qplan_params_free(&params);
    params = from_range(QPLAN_UINT8, QPLAN_ASYMMETRIC, -1.5, 253.5);
    assert_pair(&params, 1, 2);
    qplan_params_free(&params);
    params = from_range(QPLAN_INT8, QPLAN_ASYMMETRIC, -2.5, 252.5);
    assert_pair(&params, 1, -126);
    qplan_params_free(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_q1_absmax_may_saturate),
        cmocka_unit_test(test_q2_range_is_widened_to_zero),
        cmocka_unit_test(test_q3_unsigned_symmetric_has_the_midpoint),
        cmocka_unit_test(test_q4_no_scale_underflows_or_overflows),
        cmocka_unit_test(test_q5_failed_call_changes_nothing),
        cmocka_unit_test(test_q6_validate_knows_what_is_legal),
        cmocka_unit_test(test_q7_every_set_has_its_own_statistics),
        cmocka_unit_test(test_q8_bound_includes_clipping),
        cmocka_unit_test(test_q9_two_compression_ratios),
        cmocka_unit_test(test_q10_zero_point_rounds_half_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
