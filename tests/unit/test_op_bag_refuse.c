/*
 * test_op_bag_refuse.c - what bags, tables and parameters refuse: status, argument, place, what was
 * expected and found, and that nothing is written. And the kernels that other preferences pick.
 */
#include "op_support.h"

/* Three rows of two columns, four indices in two bags. */
struct case_row {
    const char *op;
    const char *field, *value; /* NULL = none */
    int64_t indices[4], offsets[3];
    int64_t n_offsets; /* 0 = indices are [2,2] */
    int64_t max_indices[4];
    enum qplan_status status;
    const char *message;
};

#define FORWARD  "embedding_bag"
#define BACKWARD "embedding_bag_backward"
#define LAST     "include_last_offset", "true"
#define GOOD                                                                                       \
    {                                                                                              \
        0, 1, 2, 0                                                                                 \
    }

static const struct case_row rows[] = {
    {FORWARD,
     NULL,
     NULL,
     {0, 1, 3, -1},
     {0, 2},
     2,
     {0},
     QPLAN_ERR_VALUE,
     "'indices': no such row: expected at least 0 and below 3, found 3 at [2], flat index 2"},
    {BACKWARD,
     NULL,
     NULL,
     {0, 1, 2, -1},
     {0, 2},
     0,
     {0},
     QPLAN_ERR_VALUE,
     "found -1 at [1,1], flat index 3"},
    {BACKWARD,
     LAST,
     {0, 1, 2, 9},
     {0, 1, 2},
     3,
     {0},
     QPLAN_ERR_VALUE,
     "found 9 at [3], flat index 3"},
    {FORWARD,
     NULL,
     NULL,
     GOOD,
     {1, 2},
     2,
     {0},
     QPLAN_ERR_VALUE,
     "'offsets': the first bag begins elsewhere: expected 0, found 1 at [0], flat index 0"},
    {BACKWARD,
     LAST,
     GOOD,
     {0, 3, 2},
     3,
     {0},
     QPLAN_ERR_VALUE,
     "'offsets': out of order or range: expected at least 3, the one before, and at most 4, the "
     "number of indices, found 2 at [2], flat index 2"},
    {FORWARD, NULL, NULL, GOOD, {0, 5}, 2, {0}, QPLAN_ERR_VALUE, "found 5 at [1], flat index 1"},
    {FORWARD, NULL, NULL, GOOD, {0, -1}, 2, {0}, QPLAN_ERR_VALUE, "found -1 at [1], flat index 1"},
    {BACKWARD,
     "mode",
     "max",
     GOOD,
     {0, 2},
     2,
     {0, 1, 3, -1},
     QPLAN_ERR_VALUE,
     "'max_indices': out of range: expected -1 to 2, found 3 at [1,0], flat index 2"},
    {BACKWARD,
     "mode",
     "max",
     GOOD,
     {0, 2},
     2,
     {0, 1, 2, -2},
     QPLAN_ERR_VALUE,
     "found -2 at [1,1], flat index 3"},
    {FORWARD,
     LAST,
     GOOD,
     {0},
     0,
     {0},
     QPLAN_ERR_INVALID,
     "include_last_offset: there are no offsets: expected false, found true"},
    {FORWARD,
     "padding_idx",
     "-4",
     GOOD,
     {0, 2},
     2,
     {0},
     QPLAN_ERR_INVALID,
     "padding_idx: no such row: expected one of 3 rows or none, found -4"},
    {FORWARD,
     "mode",
     "median",
     GOOD,
     {0, 2},
     2,
     {0},
     QPLAN_ERR_USAGE,
     "mode: expected sum, mean or max, found 'median'"},
    {BACKWARD,
     LAST,
     GOOD,
     {0, 2},
     2,
     {0},
     QPLAN_ERR_INVALID,
     "'dout': wrong shape: expected [1,2], a row for each bag, found [2,2]"},
};

static void add_row_tensors(struct problem *p, const struct case_row *row, float *in, float *out)
{
    const bool forward = strcmp(row->op, FORWARD) == 0;
    const bool max = row->field && strcmp(row->value, "max") == 0;
    add(p, forward ? "weight" : "dout", QPLAN_STORAGE_F32, 2, SHAPE(forward ? 3 : 2, 2), in);
    if (row->n_offsets) {
        add(p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(4), (void *)(uintptr_t)row->indices);
        add(p, "offsets", QPLAN_STORAGE_I64, 1, SHAPE(row->n_offsets),
            (void *)(uintptr_t)row->offsets);
    } else {
        add(p, "indices", QPLAN_STORAGE_I64, 2, SHAPE(2, 2), (void *)(uintptr_t)row->indices);
    }
    if (max)
        add(p, "max_indices", QPLAN_STORAGE_I64, 2, SHAPE(2, 2),
            (void *)(uintptr_t)row->max_indices);
    add(p, forward ? "output" : "dweight", QPLAN_STORAGE_F32, 2, SHAPE(forward ? 2 : 3, 2), out);
}

static void bags_refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        static float in[6];
        float out[6] = {9, 9, 9, 9, 9, 9};
        struct qplan_error err;
        struct problem p = problem(rows[i].op);
        if (rows[i].field)
            set(&p, rows[i].field, rows[i].value);
        if (strcmp(rows[i].op, BACKWARD) == 0)
            set_number(&p, "num_embeddings", 3);
        add_row_tensors(&p, &rows[i], in, out);
        FAILS(run_op(&p, &err), rows[i].status, rows[i].message, &err);
        for (size_t k = 0; k < COUNT(out); k++)
            assert_true(out[k] == 9);
    }
}

static void mode_and_fields_must_fit(void **state)
{
    static float dout[4];
    static int64_t indices[4], where[4];
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem(BACKWARD);
    (void)state;
    set_number(&p, "num_embeddings", 3);
    add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(2, 2), dout);
    add(&p, "indices", QPLAN_STORAGE_I64, 2, SHAPE(2, 2), indices);
    set(&p, "mode", "max");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID,
          "'max_indices': missing: with mode max it is an input", &err);
    add(&p, "max_indices", QPLAN_STORAGE_I64, 2, SHAPE(2, 1), where);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID,
          "'max_indices': wrong shape: expected [2,2], that of dout, found [2,1]", &err);
    p.shapes[2][1] = 2;
    set(&p, "scale_grad_by_freq", "true");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID,
          "scale_grad_by_freq: a maximum is not divided: expected false with mode max", &err);
    p.fields[1].text = "mean";
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'max_indices': not of this mode", &err);
    p.n_tensors--;
    OK(select_op(&p, &op, &err), &err);
    qplan_op_free(op);
    p.shapes[1][1] = 3;
    p.tensors[1].rank = 1;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'offsets': missing", &err);
}

/* ---- Parameters -------------------------------------------------------------------------------
 */

static void ranges_are_checked(void **state)
{
    static const struct {
        const char *scheme;
        double min, max;
        const char *message;
    } bad[] = {
        {"asymmetric", 2, 1,
         "'min': no range of numbers: expected at most the largest value, "
         "found 2.0 at [299], flat index 299"},
        {"symmetric", NAN, 1, "'min': no range of numbers: expected a finite number, found nan"},
        {"linear", 0, INFINITY, "'max': no range of numbers: expected a finite number, found inf"},
        {"logarithmic", 0, 1,
         "'min': no range of numbers: expected a positive number "
         "(logarithmic), found 0.0 at [299], flat index 299"},
        {"logarithmic", 1e300, 1.0000000001e300, "'min': its zero point: expected a 32-bit number"},
    };
    static double min[300], max[300], scale[300], bound[300];
    static int32_t zero[300];
    (void)state;
    for (size_t i = 0; i < 300; i++)
        min[i] = max[i] = 1;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct qplan_error err;
        struct problem p = problem("params_from_statistics");
        set(&p, "dtype", "int8");
        set(&p, "scheme", bad[i].scheme);
        add(&p, "min", QPLAN_STORAGE_F64, 1, SHAPE(300), min);
        add(&p, "max", QPLAN_STORAGE_F64, 1, SHAPE(300), max);
        add(&p, "scale", QPLAN_STORAGE_F64, 1, SHAPE(300), scale);
        add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(300), zero);
        add(&p, "error_bound", QPLAN_STORAGE_F64, 1, SHAPE(300), bound);
        min[299] = bad[i].min;
        max[299] = bad[i].max;
        FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, bad[i].message, &err);
        for (size_t k = 0; k < 300; k++)
            assert_true(scale[k] == 0 && zero[k] == 0 && bound[k] == 0);
    }
}

/* The operator and qplan_params_from_statistics are one mechanism. */
static void parameters_are_those_of_the_struct(void **state)
{
    static const char *const schemes[] = {"symmetric",   "asymmetric",   "linear",
                                          "logarithmic", "channel_wise", "block_wise"};
    static const char *const dtypes[] = {"int8", "uint8", "int4", "uint4", "int16", "uint16"};
    static float min[600], max[600], scale[600];
    static double wide_min[600], wide_max[600], bound[600];
    static int32_t zero[600];
    uint64_t seed = 1;
    (void)state;
    for (size_t k = 0; k < COUNT(schemes) * COUNT(dtypes); k++) {
        struct qplan_error err;
        struct qplan_params params;
        struct problem p = problem("params_from_statistics");
        const size_t scheme = k % COUNT(schemes);
        for (size_t i = 0; i < 600; i++) {
            const float a = (float)ldexp(random_signed(&seed), (int)random_below(&seed, 60) - 30);
            const float b = (float)ldexp(random_signed(&seed), (int)random_below(&seed, 60) - 30);
            min[i] = scheme == 3 ? fminf(fabsf(a), fabsf(b)) : fminf(a, b);
            max[i] = scheme == 3 ? fmaxf(fabsf(a), fabsf(b)) : fmaxf(a, b);
            wide_min[i] = (double)min[i];
            wide_max[i] = (double)max[i];
        }
        set(&p, "dtype", dtypes[k / COUNT(schemes)]);
        set(&p, "scheme", schemes[scheme]);
        if (scheme == 5)
            set_number(&p, "block_size", 32);
        p.preference.threads = 3;
        add(&p, "min", QPLAN_STORAGE_F32, 1, SHAPE(600), min);
        add(&p, "max", QPLAN_STORAGE_F32, 1, SHAPE(600), max);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(600), scale);
        add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(600), zero);
        add(&p, "error_bound", QPLAN_STORAGE_F64, 1, SHAPE(600), bound);
        OK(run_op(&p, &err), &err);
        enum qplan_dtype dtype;
        assert_true(qplan_dtype_parse(dtypes[k / COUNT(schemes)], &dtype));
        OK(qplan_params_channel_wise(&params, 600, dtype, &err), &err);
        params.scheme = (enum qplan_param_scheme)scheme;
        params.block_size = scheme == 5 ? 32 : 0;
        OK(qplan_params_from_statistics(&params, wide_min, wide_max, 600, &err), &err);
        double largest = 0;
        for (size_t i = 0; i < 600; i++) {
            assert_true((double)scale[i] == params.scale[i] && zero[i] == params.zero_point[i]);
            largest = bound[i] > largest ? bound[i] : largest;
        }
        assert_true(largest == qplan_params_quantization_error_bound(&params, NULL));
        qplan_params_free(&params);
    }
}

/* Only the logarithm is the host's; the guarantee of each problem says so. */
static void the_logarithm_is_not_bit_stable(void **state)
{
    static float one[1] = {1};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct qplan_error err;
        struct qplan_op *op;
        struct problem p = problem("params_from_statistics");
        set(&p, "dtype", "int8");
        set(&p, "scheme", k ? "logarithmic" : "symmetric");
        add(&p, "min", QPLAN_STORAGE_F32, 1, SHAPE(1), one);
        add(&p, "max", QPLAN_STORAGE_F32, 1, SHAPE(1), one);
        OK(select_op(&p, &op, &err), &err);
        const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
        assert_true(g->deterministic && g->thread_invariant && g->bit_stable == !k);
        assert_string_equal(g->math_precision, "f32");
        qplan_op_free(op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bags_refuse),
        cmocka_unit_test(mode_and_fields_must_fit),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(parameters_are_those_of_the_struct),
        cmocka_unit_test(the_logarithm_is_not_bit_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
