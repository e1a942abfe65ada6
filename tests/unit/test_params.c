/*
 * test_params.c - quantization parameters: making, showing, statistics, checking.
 */
#include "params_cases.h"

/* ---- Making -----------------------------------------------------------------------------------
 */

static void test_constructors(void **state)
{
    struct qplan_params params;
    (void)state;
    OK(qplan_params_int8_symmetric(&params, NULL));
    assert_pair(&params, 1, 0);
    assert_int_equal(params.dtype, QPLAN_INT8);
    assert_int_equal(params.scheme, QPLAN_SYMMETRIC);
    assert_int_equal(params.scale_dtype, QPLAN_F32);
    assert_null(params.min_val);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);

    OK(qplan_params_uint8_asymmetric(&params, NULL));
    assert_pair(&params, 1, 128);
    assert_int_equal(params.scheme, QPLAN_ASYMMETRIC);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);

    OK(qplan_params_int4_symmetric(&params, NULL));
    assert_pair(&params, 1, 0);
    assert_int_equal(qplan_dtype_bits(params.dtype), 4);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);

    OK(qplan_params_new(&params, 255, 128, NULL));
    assert_pair(&params, 255, 128);
    assert_int_equal(params.dtype, QPLAN_UINT8);
    qplan_params_free(&params);

    OK(qplan_params_new(&params, 0.1, 3, NULL));
    assert_pair(&params, (double)0.1F, 3);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);
}

static void test_channel_and_block_wise(void **state)
{
    struct qplan_params params;
    (void)state;
    OK(qplan_params_channel_wise(&params, 64, QPLAN_INT8, NULL));
    assert_int_equal(qplan_params_num_parameter_sets(&params), 64);
    assert_true(qplan_params_is_per_channel(&params));
    for (size_t i = 0; i < 64; i++)
        assert_true(params.scale[i] == 1 && params.zero_point[i] == 0);
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);

    OK(qplan_params_block_wise(&params, 128, QPLAN_INT8, NULL));
    assert_int_equal(params.block_size, 128);
    assert_int_equal(qplan_params_num_parameter_sets(&params), 1);
    assert_false(qplan_params_is_per_channel(&params));
    OK(qplan_params_validate(&params, NULL));
    qplan_params_free(&params);
}

static void test_constructors_refuse(void **state)
{
    struct qplan_params params = {.block_size = 99};
    struct qplan_error err;
    (void)state;
    assert_int_equal(qplan_params_channel_wise(&params, 0, QPLAN_INT8, &err), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_channel_wise(&params, 1, QPLAN_F32, &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "found f32"));
    assert_int_equal(qplan_params_channel_wise(&params, 1, QPLAN_DTYPE_COUNT, &err),
                     QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_block_wise(&params, 0, QPLAN_INT8, &err), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_block_wise(&params, 8, QPLAN_BF16, &err), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_channel_wise(&params, SIZE_MAX / 2, QPLAN_INT8, &err),
                     QPLAN_ERR_MEMORY);
    assert_int_equal(params.block_size, 99);
}

static void test_copy_is_deep(void **state)
{
    struct qplan_params params = from_range(QPLAN_INT8, QPLAN_ASYMMETRIC, -1, 3), copy;
    (void)state;
    OK(qplan_params_copy(&copy, &params, NULL));
    double scale = params.scale[0];
    int32_t zero = params.zero_point[0];
    qplan_params_free(&params);
    assert_pair(&copy, scale, zero);
    assert_true(copy.min_val[0] == -1 && copy.max_val[0] == 3);
    qplan_params_free(&copy);
    assert_null(copy.scale);
    qplan_params_free(&copy);
    qplan_params_free(NULL);

    OK(qplan_params_int8_symmetric(&params, NULL));
    OK(qplan_params_copy(&copy, &params, NULL));
    assert_null(copy.min_val);
    qplan_params_free(&params);
    qplan_params_free(&copy);
}

static void test_print(void **state)
{
    struct qplan_params params;
    char text[256], small[8];
    const double min[] = {-1, -2, 0}, max[] = {1, 0, 4};
    (void)state;
    OK(qplan_params_new(&params, 0.5, 3, NULL));
    const char *expected = "uint8 asymmetric, 1 set, scale 0.5, zero point 3";
    assert_int_equal(qplan_params_print(&params, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    assert_int_equal(qplan_params_print(&params, small, sizeof small), strlen(expected));
    assert_string_equal(small, "uint8 a");
    assert_int_equal(qplan_params_print(&params, NULL, 0), strlen(expected));
    qplan_params_free(&params);

    OK(qplan_params_block_wise(&params, 16, QPLAN_UINT4, NULL));
    OK(qplan_params_from_statistics(&params, min, max, 3, NULL));
    (void)qplan_params_print(&params, text, sizeof text);
    assert_non_null(strstr(text, "uint4 block_wise, blocks of 16, 3 sets, scale 0.13333"));
    assert_non_null(strstr(text, ", zero point 0 to 15, min -2.0 to 0.0, max 0.0 to 4.0"));
    qplan_params_free(&params);
}

/* ---- From statistics --------------------------------------------------------------------------
 */

static void test_symmetric_scales(void **state)
{
    static const struct {
        enum qplan_dtype dtype;
        double min, max;
        float scale;
    } rows[] = {
        {QPLAN_INT8, -2, 2, 2.0F / 127.5F},
        {QPLAN_INT8, -1, 0.5, 1.0F / 127.5F},
        {QPLAN_INT8, 10, 20, 20.0F / 127.5F},
        {QPLAN_INT4, -7, 8, 8.0F / 7.5F},
        {QPLAN_INT4, -7.5, 7.5, 1},
        {QPLAN_UINT8, -2, 2, 2.0F / 127.5F},
        {QPLAN_INT16, -3, 1, 3.0F / 32767.5F},
        {QPLAN_UINT16, -3, 1, 3.0F / 32767.5F},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_params params =
            from_range(rows[i].dtype, QPLAN_SYMMETRIC, rows[i].min, rows[i].max);
        int32_t midpoint = rows[i].dtype == QPLAN_UINT8    ? 128
                           : rows[i].dtype == QPLAN_UINT16 ? 32768
                                                           : 0;
        assert_pair(&params, (double)rows[i].scale, midpoint);
        qplan_params_free(&params);
    }
}

static void test_asymmetric_scales(void **state)
{
    static const struct {
        enum qplan_dtype dtype;
        double min, max;
        float scale;
        int32_t zero;
    } rows[] = {
        {QPLAN_UINT8, -2, 2, 4.0F / 255, 127},
        {QPLAN_UINT8, 0, 255, 1, 0},
        {QPLAN_UINT8, -0.0010000000474974513, 3, 0.011768626980483532F, 0},
        {QPLAN_INT8, 0, 255, 1, -128},
        {QPLAN_INT8, -255, 0, 1, 127},
        {QPLAN_INT4, -8, 7, 1, 0},
        {QPLAN_UINT4, -15, 0, 1, 15},
        {QPLAN_UINT16, -1, 65534, 1, 1},
    };
    static const enum qplan_param_scheme schemes[] = {QPLAN_ASYMMETRIC, QPLAN_LINEAR,
                                                      QPLAN_CHANNEL_WISE, QPLAN_BLOCK_WISE};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t k = 0; k < COUNT(schemes); k++) {
            struct qplan_params params =
                from_range(rows[i].dtype, schemes[k], rows[i].min, rows[i].max);
            assert_pair(&params, (double)rows[i].scale, rows[i].zero);
            qplan_params_free(&params);
        }
    }
}

static void test_zero_range(void **state)
{
    static const struct {
        enum qplan_dtype dtype;
        enum qplan_param_scheme scheme;
        int32_t zero;
    } rows[] = {
        {QPLAN_INT8, QPLAN_SYMMETRIC, 0},    {QPLAN_INT8, QPLAN_ASYMMETRIC, 0},
        {QPLAN_UINT8, QPLAN_SYMMETRIC, 128}, {QPLAN_UINT8, QPLAN_ASYMMETRIC, 0},
        {QPLAN_UINT4, QPLAN_SYMMETRIC, 8},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_params params = from_range(rows[i].dtype, rows[i].scheme, -0.0, 0.0);
        assert_pair(&params, 1, rows[i].zero);
        qplan_params_free(&params);
    }
}

static void test_narrow_range(void **state)
{
    struct qplan_params params;
    double min = -2, max = 1;
    (void)state;
    OK(qplan_params_int8_symmetric(&params, NULL));
    params.narrow_range = true;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    assert_pair(&params, (double)(2.0F / 127), 0);
    params.scheme = QPLAN_ASYMMETRIC;
    min = 0;
    max = 254;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    assert_pair(&params, 1, -127);
    params.dtype = QPLAN_UINT8;
    assert_int_equal(qplan_params_from_statistics(&params, &min, &max, 1, NULL), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_validate(&params, NULL), QPLAN_ERR_INVALID);
    qplan_params_free(&params);
}

static void test_f64_is_not_narrowed(void **state)
{
    struct qplan_params params;
    double min = -0.1, max = 0.3;
    (void)state;
    OK(qplan_params_uint8_asymmetric(&params, NULL));
    params.scale_dtype = QPLAN_F64;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    assert_pair(&params, (0.3 - -0.1) / 255, 64);
    assert_true(params.min_val[0] == -0.1);
    params.scale_dtype = QPLAN_F32;
    OK(qplan_params_from_statistics(&params, &min, &max, 1, NULL));
    assert_pair(&params, (double)((0.3F - -0.1F) / 255), 64);
    assert_true(params.min_val[0] == (double)-0.1F);
    qplan_params_free(&params);
}

static void test_number_of_sets(void **state)
{
    struct qplan_params params;
    const double min[] = {-1, -2, -3}, max[] = {1, 2, 3};
    (void)state;
    OK(qplan_params_int8_symmetric(&params, NULL));
    assert_int_equal(qplan_params_from_statistics(&params, min, max, 0, NULL), QPLAN_ERR_INVALID);
    assert_int_equal(qplan_params_from_statistics(&params, min, max, 3, NULL), QPLAN_ERR_INVALID);
    qplan_params_free(&params);

    /* A scheme of one set that has been given three keeps three. */
    OK(qplan_params_channel_wise(&params, 3, QPLAN_INT8, NULL));
    params.scheme = QPLAN_SYMMETRIC;
    OK(qplan_params_from_statistics(&params, min, max, 3, NULL));
    assert_int_equal(qplan_params_num_parameter_sets(&params), 3);
    assert_int_equal(qplan_params_from_statistics(&params, min, max, 2, NULL), QPLAN_ERR_INVALID);
    OK(qplan_params_from_statistics(&params, min, max, 1, NULL));
    assert_int_equal(qplan_params_num_parameter_sets(&params), 1);
    qplan_params_free(&params);
}

static void test_refused_statistics(void **state)
{
    static const struct {
        enum qplan_param_scheme scheme;
        double min, max;
        const char *message;
    } rows[] = {
        {QPLAN_ASYMMETRIC, 1, 0, "min_val[1]: expected at most the largest value, found 1.0"},
        {QPLAN_ASYMMETRIC, NAN, 0, "min_val[1]: expected a finite"},
        {QPLAN_ASYMMETRIC, 0, NAN, "max_val[1]: expected a finite"},
        {QPLAN_ASYMMETRIC, -INFINITY, 0, "min_val[1]: expected a finite"},
        {QPLAN_ASYMMETRIC, 0, INFINITY, "max_val[1]: expected a finite"},
        {QPLAN_ASYMMETRIC, 0, 1e39, "max_val[1]: expected a finite f32 number, found 1e+39"},
        {QPLAN_LOGARITHMIC, 0, 1, "min_val[1]: expected a positive"},
        {QPLAN_LOGARITHMIC, -1, 1, "min_val[1]: expected a positive"},
        {QPLAN_LOGARITHMIC, 1e-60, 1, "min_val[1]: expected a positive"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_params params;
        struct qplan_error err = {0};
        double min[] = {1, rows[i].min}, max[] = {1, rows[i].max};
        OK(qplan_params_channel_wise(&params, 2, QPLAN_UINT8, NULL));
        params.scheme = rows[i].scheme;
        assert_int_equal(qplan_params_from_statistics(&params, min, max, 2, &err), QPLAN_ERR_VALUE);
        if (!strstr(err.message, rows[i].message))
            fail_msg("found %s, expected %s", err.message, rows[i].message);
        assert_pair(&params, 1, 0);
        assert_null(params.min_val);
        qplan_params_free(&params);
    }
}

static void test_logarithmic(void **state)
{
    (void)state;
    struct qplan_params params = from_range(QPLAN_UINT8, QPLAN_LOGARITHMIC, (double)0.01F, 10);
    assert_true(fabs(params.scale[0] - 0.027089236304163933) <= 1e-7);
    assert_int_equal(params.zero_point[0], 170);
    double bound = qplan_params_quantization_error_bound(&params, NULL);
    assert_true(bound >= 10 * expm1(params.scale[0] / 2));
    assert_true(fabs(bound - 0.13636762127460011) <= 1e-4 * 0.137);
    qplan_params_free(&params);

    params = from_range(QPLAN_UINT8, QPLAN_LOGARITHMIC, 0.5, 8);
    assert_int_equal(params.zero_point[0], 64);
    qplan_params_free(&params);

    /* One value: the step is 1, the first code is its logarithm. */
    params = from_range(QPLAN_INT8, QPLAN_LOGARITHMIC, 100, 100);
    assert_pair(&params, 1, -128 - 5);
    qplan_params_free(&params);
}

/* Two huge neighbours: the first code is so many steps from 0 that no int32 counts them. */
static void test_logarithmic_zero_point_overflow(void **state)
{
    struct qplan_params params;
    struct qplan_error err;
    double min = 1e300, max = nextafter(1e300, INFINITY) * (1 + 1e-12);
    (void)state;
    OK(qplan_params_uint8_asymmetric(&params, NULL));
    params.scheme = QPLAN_LOGARITHMIC;
    params.scale_dtype = QPLAN_F64;
    assert_int_equal(qplan_params_from_statistics(&params, &min, &max, 1, &err), QPLAN_ERR_VALUE);
    assert_non_null(strstr(err.message, "zero_point[0]"));
    assert_pair(&params, 1, 128);
    qplan_params_free(&params);
}

/* ---- Checking ---------------------------------------------------------------------------------
 */

/* Spoils one member of good parameters; each row of the test below is one of these. */
typedef void (*spoil_fn)(struct qplan_params *params);

static void spoil_dtype(struct qplan_params *params)
{
    params->dtype = QPLAN_F32;
}

static void spoil_binary(struct qplan_params *params)
{
    params->dtype = QPLAN_BINARY;
}

static void spoil_scheme(struct qplan_params *params)
{
    params->scheme = (enum qplan_param_scheme)99;
}

static void spoil_scale_dtype(struct qplan_params *params)
{
    params->scale_dtype = QPLAN_BF16;
}

static void spoil_count(struct qplan_params *params)
{
    params->n_sets = 0;
}

static void spoil_block_size(struct qplan_params *params)
{
    params->scheme = QPLAN_BLOCK_WISE;
}

static void spoil_zero_scale(struct qplan_params *params)
{
    params->scale[2] = 0;
}

static void spoil_nan_scale(struct qplan_params *params)
{
    params->scale[1] = NAN;
}

static void spoil_scale_precision(struct qplan_params *params)
{
    params->scale[1] = 0.1;
}

static void spoil_zero_point(struct qplan_params *params)
{
    params->zero_point[2] = 128;
}

static void spoil_symmetry(struct qplan_params *params)
{
    params->scheme = QPLAN_SYMMETRIC;
    params->zero_point[0] = 0;
    params->zero_point[1] = 1;
}

static void spoil_min(struct qplan_params *params)
{
    params->min_val[1] = 7;
}

static void test_validate_names_member_and_index(void **state)
{
    static const struct {
        spoil_fn spoil;
        enum qplan_status status;
        const char *message;
    } rows[] = {
        {spoil_dtype, QPLAN_ERR_INVALID, "dtype"},
        {spoil_binary, QPLAN_ERR_INVALID, "dtype"},
        {spoil_scheme, QPLAN_ERR_INVALID, "scheme"},
        {spoil_scale_dtype, QPLAN_ERR_INVALID, "scale_dtype"},
        {spoil_count, QPLAN_ERR_INVALID, "n_sets"},
        {spoil_block_size, QPLAN_ERR_INVALID, "block_size"},
        {spoil_zero_scale, QPLAN_ERR_VALUE, "scale[2]"},
        {spoil_nan_scale, QPLAN_ERR_VALUE, "scale[1]"},
        {spoil_scale_precision, QPLAN_ERR_VALUE, "scale[1]: expected an f32 number, found 0.1"},
        {spoil_zero_point, QPLAN_ERR_VALUE, "zero_point[2]: expected a code of the dtype"},
        {spoil_symmetry, QPLAN_ERR_VALUE, "zero_point[1]"},
        {spoil_min, QPLAN_ERR_VALUE, "min_val[1]"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_params params;
        struct qplan_error err = {0};
        const double min[] = {-1, -2, -3}, max[] = {1, 2, 3};
        OK(qplan_params_channel_wise(&params, 3, QPLAN_INT8, NULL));
        OK(qplan_params_from_statistics(&params, min, max, 3, NULL));
        OK(qplan_params_validate(&params, NULL));
        rows[i].spoil(&params);
        assert_int_equal(qplan_params_validate(&params, &err), rows[i].status);
        if (strncmp(err.message, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("found %s, expected %s", err.message, rows[i].message);
        bool known = true;
        assert_true(isinf(qplan_params_quantization_error_bound(&params, &known)));
        assert_false(known);
        qplan_params_free(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constructors),
        cmocka_unit_test(test_channel_and_block_wise),
        cmocka_unit_test(test_constructors_refuse),
        cmocka_unit_test(test_copy_is_deep),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_symmetric_scales),
        cmocka_unit_test(test_asymmetric_scales),
        cmocka_unit_test(test_zero_range),
        cmocka_unit_test(test_narrow_range),
        cmocka_unit_test(test_f64_is_not_narrowed),
        cmocka_unit_test(test_number_of_sets),
        cmocka_unit_test(test_refused_statistics),
        cmocka_unit_test(test_logarithmic),
        cmocka_unit_test(test_logarithmic_zero_point_overflow),
        cmocka_unit_test(test_validate_names_member_and_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
