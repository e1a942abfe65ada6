/*
 * test_op_traps.c - the traps of the quantize family that other implementations fall into, by their
 * names in the contract, and what its operators refuse.
 */
#include "op_layout.h"

/* ---- The core ---------------------------------------------------------------------------------
 */

/* Runs an operator with one scale and zero point on n numbers, dout being 1 everywhere. */
static void run_one(const char *op, enum qplan_storage data, const double *from, size_t n, double s,
                    int32_t z, const struct qplan_op_field *range, double *to)
{
    static uint64_t x[64], dout[64], out[64], scale[1];
    struct qplan_error err;
    const bool backward = strstr(op, "_backward") != NULL;
    struct problem p = problem(op);
    p.fields[0] = range[0];
    p.fields[1] = range[1];
    p.n_fields = 2;
    if (!backward)
        set(&p, "nonfinite", "saturate");
    put(data, scale, 0, s);
    for (size_t i = 0; i < n; i++) {
        put(data, x, i, from[i]);
        put(data, dout, i, 1);
    }
    add(&p, "input", data, 1, SHAPE((int64_t)n), x);
    add(&p, "scale", data, 1, SHAPE(1), scale);
    add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(1), &z);
    add(&p, backward ? "dinput" : "output", data, 1, SHAPE((int64_t)n), out);
    if (backward)
        add(&p, "dout", data, 1, SHAPE((int64_t)n), dout);
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < n; i++)
        to[i] = get(data, out, i);
}

static const struct qplan_op_field small_range[] = {{.name = "q_min", .number = -2},
                                                    {.name = "q_max", .number = 3}};

/*
 * T1, T2: the mask is inclusive and is that of the emitted code, at every tie; the zero point is
 * added behind the rounding.
 */
static void t1_t2_mask_of_the_code(void **state)
{
    static const double from[] = {-4.5, -3.5, -3, -2.5, -0.5, 0.5, 1.5, 2, 2.5, 2.5000002};
    static const double code[] = {-2, -2, -2, -1, 1, 1, 3, 3, 3, 3};
    static const double mask[] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 0};
    double got[COUNT(from)];
    (void)state;
    for (size_t d = 0; d < 2; d++) { /* the last number needs f32 */
        run_one("fake_quantize_per_tensor", floats[d], from, COUNT(from), 1, 1, small_range, got);
        for (size_t i = 0; i < COUNT(from); i++)
            assert_true(got[i] == code[i] - 1);
        run_one("fake_quantize_per_tensor_backward", floats[d], from, COUNT(from), 1, 1,
                small_range, got);
        for (size_t i = 0; i < COUNT(from); i++)
            assert_true(got[i] == mask[i]);
        run_one("quantize_per_tensor_backward", floats[d], from, COUNT(from), 1, 1, small_range,
                got);
        for (size_t i = 0; i < COUNT(from); i++)
            assert_true(got[i] == mask[i]);
    }
}

/* T3, V4: f64 is f64 all the way, and says so. */
static void t3_v4_f64_is_f64(void **state)
{
    const double from[] = {2.5 + 1e-9};
    double got[1];
    struct qplan_op *op;
    struct qplan_error err;
    (void)state;
    run_one("fake_quantize_per_tensor", QPLAN_STORAGE_F64, from, 1, 1, 0, small_range, got);
    assert_true(got[0] == 3);
    for (size_t d = 0; d < COUNT(floats); d++) {
        struct problem p = problem("fake_quantize_learnable_per_tensor_backward");
        add(&p, "dout", floats[d], 1, SHAPE(1), NULL);
        add(&p, "input", floats[d], 1, SHAPE(1), NULL);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), NULL);
        OK(select_op(&p, &op, &err), &err);
        const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
        assert_string_equal(g->accumulator, floats[d] == QPLAN_STORAGE_F64 ? "f64x2" : "f64");
        assert_true(g->deterministic && g->bit_stable && g->thread_invariant);
        qplan_op_free(op);
    }
}

/* NaN and infinite data: mask 0; no wrap of huge quotients, whatever the zero point. */
static void special_values(void **state)
{
    static const double from[] = {NAN, INFINITY, -INFINITY, 3e38, -3e38, 3e9};
    double got[COUNT(from)];
    (void)state;
    for (int32_t z = -2; z <= 3; z++) {
        run_one("fake_quantize_per_tensor", QPLAN_STORAGE_F32, from, COUNT(from), 1, z, small_range,
                got);
        assert_true(got[0] == 0 && !signbit(got[0]));
        assert_true(got[1] == 3 - z && got[3] == 3 - z && got[5] == 3 - z);
        assert_true(got[2] == -2 - z && got[4] == -2 - z);
        run_one("fake_quantize_per_tensor_backward", QPLAN_STORAGE_F32, from, COUNT(from), 1, z,
                small_range, got);
        for (size_t i = 0; i < COUNT(from); i++)
            assert_true(got[i] == 0);
    }
}

/* A gradient of 100 / 0.001 is too large for f16: infinite, and counted. NaN does not leak. */
static void gradients_overflow_and_do_not_leak(void **state)
{
    uint64_t x[1], dout[1], out[1], s[1];
    uint16_t *x16 = (uint16_t *)x, *d16 = (uint16_t *)dout;
    struct qplan_error err;
    (void)state;
    put(QPLAN_STORAGE_F16, s, 0, 0.001);
    put(QPLAN_STORAGE_F16, x16, 0, 0);
    put(QPLAN_STORAGE_F16, x16, 1, 1000); /* outside */
    put(QPLAN_STORAGE_F16, d16, 0, 100);
    put(QPLAN_STORAGE_F16, d16, 1, NAN);
    struct problem p = problem("quantize_per_tensor_backward");
    add(&p, "dout", QPLAN_STORAGE_F16, 1, SHAPE(2), dout);
    add(&p, "input", QPLAN_STORAGE_F16, 1, SHAPE(2), x);
    add(&p, "scale", QPLAN_STORAGE_F16, 1, SHAPE(1), s);
    add(&p, "dinput", QPLAN_STORAGE_F16, 1, SHAPE(2), out);
    OK(run_op(&p, &err), &err);
    assert_true(isinf(get(QPLAN_STORAGE_F16, out, 0)) && get(QPLAN_STORAGE_F16, out, 1) == 0);
    assert_int_equal(p.counts.overflow, 1);
}

/* ---- Refusals ---------------------------------------------------------------------------------
 */

struct refused {
    float x[6], s[6], out[6];
    int32_t z[6];
};

static void make_refused(struct problem *p, struct refused *r, const char *op, int64_t n_sets)
{
    *p = problem(op);
    for (int i = 0; i < 6; i++) {
        r->x[i] = r->s[i] = (float)(i + 1);
        r->out[i] = 77;
        r->z[i] = 0;
    }
    add(p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(2, 3), r->x);
    add(p, "input", QPLAN_STORAGE_F32, 2, SHAPE(2, 3), r->x);
    add(p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(n_sets), r->s);
    add(p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(n_sets), r->z);
    add(p, "dinput", QPLAN_STORAGE_F32, 2, SHAPE(2, 3), r->out);
}

/* V5: a backward operator checks what its forward one does. */
static void v5_backward_checks_as_much(void **state)
{
    static const char *const op = "quantize_per_channel_backward";
    struct refused r;
    struct problem p;
    struct qplan_error err;
    (void)state;
    make_refused(&p, &r, op, 2);
    set(&p, "q_min", "5");
    set(&p, "q_max", "4");
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "q_max: below q_min", &err);
    make_refused(&p, &r, op, 2);
    set(&p, "q_max", "8388609");
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "q_max: out of range", &err);
    make_refused(&p, &r, op, 2);
    set(&p, "axis", "2");
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "axis", &err);
    make_refused(&p, &r, op, 3);
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'scale'", &err);
    make_refused(&p, &r, op, 2);
    r.s[1] = 0;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "'scale': no scale", &err);
    make_refused(&p, &r, op, 2);
    r.z[1] = 128;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "'zero_point': out of range", &err);
    make_refused(&p, &r, op, 2);
    set(&p, "nonfinite", "saturate");
    FAILS(run_op(&p, &err), QPLAN_ERR_USAGE, "unknown field", &err);
    for (int i = 0; i < 6; i++)
        assert_true(r.out[i] == 77);
}

static void tensors_that_do_not_fit(void **state)
{
    static const char *const op = "fake_quantize_per_channel_backward";
    static double wide[6] = {1, 1, 1, 1, 1, 1};
    struct refused r;
    struct problem p;
    struct qplan_error err;
    (void)state;
    make_refused(&p, &r, op, 2);
    p.shapes[1][0] = 3;
    p.shapes[1][1] = 2;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'input'", &err);
    make_refused(&p, &r, op, 2);
    p.tensors[1].dtype = QPLAN_STORAGE_F16;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'input': wrong dtype", &err);
    make_refused(&p, &r, op, 2);
    p.tensors[2].dtype = QPLAN_STORAGE_F64;
    p.tensors[2].data = wide;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'scale': wrong dtype", &err);
    make_refused(&p, &r, "fake_quantize_learnable_per_channel_backward", 2);
    p.n_tensors = 4;
    p.tensors[3].dtype = QPLAN_STORAGE_F16;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'zero_point': wrong dtype", &err);
    make_refused(&p, &r, "dequantize_per_channel_backward", 2);
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "unknown tensor", &err);
}

/* An absent zero point is 0 and checked; one of floats is clamped to the codes. */
static void absent_zero_points(void **state)
{
    float x[2] = {3, 100}, s = 1, out[2] = {77, 77};
    struct qplan_error err;
    (void)state;
    for (int learnable = 0; learnable < 2; learnable++) {
        struct problem p =
            problem(learnable ? "fake_quantize_learnable_per_tensor" : "fake_quantize_per_tensor");
        set(&p, "q_min", "5");
        set(&p, "q_max", "9");
        add(&p, "input", QPLAN_STORAGE_F32, 1, SHAPE(2), x);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), &s);
        add(&p, "output", QPLAN_STORAGE_F32, 1, SHAPE(2), out);
        if (learnable)
            OK(run_op(&p, &err), &err);
        else
            FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "found none, which means 0", &err);
        assert_true(learnable ? out[0] == 3 && out[1] == 4 : out[0] == 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t1_t2_mask_of_the_code),
        cmocka_unit_test(t3_v4_f64_is_f64),
        cmocka_unit_test(special_values),
        cmocka_unit_test(gradients_overflow_and_do_not_leak),
        cmocka_unit_test(v5_backward_checks_as_much),
        cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(absent_zero_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
