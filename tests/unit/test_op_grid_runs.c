/*
 * test_op_grid_runs.c - grid samples and affine grids as runs: the same bits for every team,
 * instruction set, workspace and stride; what is refused; tensors without elements.
 */
#include "grid_support.h"

static const enum qplan_storage dtypes[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F64, QPLAN_STORAGE_F16,
                                            QPLAN_STORAGE_BF16};

/* ---- The same bits ----------------------------------------------------------------------------
 */

/* Outputs of a run, to compare others with. */
struct results {
    void *data[N_ROLES];
};

static struct results keep(const struct sample *s)
{
    struct results r = {{0}};
    for (int i = 0; i < N_ROLES; i++) {
        r.data[i] = malloc(s->n_bytes[i] + 1);
        assert_non_null(r.data[i]);
        memcpy(r.data[i], s->data[i], s->n_bytes[i]);
    }
    return r;
}

static void results_free(struct results *r)
{
    for (int i = 0; i < N_ROLES; i++)
        free(r->data[i]);
}

/* Runs both ways with outputs that are wrong before, and expects what was kept. */
static void expect_same(struct sample *s, const struct results *r)
{
    static const int outputs[] = {OUTPUT, DINPUT, DGRID};
    for (size_t i = 0; i < COUNT(outputs); i++)
        memset(s->data[outputs[i]], 0xa5, s->n_bytes[outputs[i]]);
    forward(s);
    backward(s);
    for (size_t i = 0; i < COUNT(outputs); i++)
        assert_memory_equal(s->data[outputs[i]], r->data[outputs[i]], s->n_bytes[outputs[i]]);
}

/* Whether both ways are content with a limit; they must keep to it. */
static bool is_enough(const struct sample *s, uint64_t limit)
{
    bool enough = true;
    for (int k = 0; k < 2; k++) {
        struct problem p;
        struct qplan_op *op;
        struct qplan_error err;
        sample_problem(&p, s, k);
        p.preference.max_workspace_bytes = limit;
        if (select_op(&p, &op, &err) == QPLAN_OK)
            assert_true(qplan_op_workspace_size(op) <= limit);
        else
            enough = false;
        qplan_op_free(op);
    }
    return enough;
}

/* The least workspace, with which bands are short and pixels are read tap by tap, and some more. */
static void check_limits(struct sample *s, const struct results *first)
{
    uint64_t least = 0, most = UINT64_C(1) << 30;
    while (least + 1 < most) {
        const uint64_t middle = least + (most - least) / 2;
        if (is_enough(s, middle))
            most = middle;
        else
            least = middle;
    }
    for (uint64_t limit = most; limit < most * 4; limit += most / 3) {
        s->preference.max_workspace_bytes = limit;
        expect_same(s, first);
    }
}

static void check_teams(struct sample *s)
{
    static const unsigned teams[] = {1, 2, 3, 7};
    s->preference = (struct qplan_op_preference)QPLAN_OP_PREFERENCE_DEFAULT;
    s->preference.threads = 1;
    s->preference.isa = QPLAN_ISA_SCALAR;
    forward(s);
    backward(s);
    struct results first = keep(s);
    for (size_t i = 0; i < COUNT(teams); i++) {
        s->preference = (struct qplan_op_preference)QPLAN_OP_PREFERENCE_DEFAULT;
        s->preference.threads = teams[i];
        expect_same(s, &first);
    }
    check_limits(s, &first);
    results_free(&first);
}

static void runs_give_the_same_bits(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (unsigned k = 0; k < 18; k++) {
        const int64_t in[] = {37, 41}, out[] = {23, 29}, in_3d[] = {9, 13, 11},
                      out_3d[] = {5, 9, 8};
        struct sample s = sample_make(2, dtypes[k % 4], 2, 1 + (int64_t)k, in, out, &seed);
        struct sample t = sample_make(3, dtypes[k % 4], 1, 18 - (int64_t)k, in_3d, out_3d, &seed);
        assert_true(set_rule(&s, k));
        check_teams(&s);
        if (set_rule(&t, k))
            check_teams(&t);
        sample_free(&s);
        sample_free(&t);
    }
}

/* A plane so large that few of its pixels are touched, and one channel: other ways to the bits. */
static void few_points_give_the_same_bits(void **state)
{
    const int64_t in[] = {300, 400}, out[] = {2, 3};
    uint64_t seed = 2;
    (void)state;
    for (unsigned k = 0; k < 18; k++) {
        struct sample s =
            sample_make(2, dtypes[k % 2], 1, 1 + (int64_t)(k % 3) * 4, in, out, &seed);
        set_rule(&s, k);
        check_teams(&s);
        sample_free(&s);
    }
}

/* ---- Strides ----------------------------------------------------------------------------------
 */

/* Strides of a tensor whose axes lie in memory in another order, the fastest last, with gaps. */
static size_t make_strides(const int64_t *shape, unsigned rank, const unsigned *order,
                           int64_t *stride)
{
    int64_t step = 2;
    for (unsigned i = rank; i-- > 0;) {
        stride[order[i]] = step;
        step *= shape[order[i]];
    }
    return (size_t)step;
}

static size_t offset_of(const int64_t *shape, const int64_t *stride, unsigned rank, size_t flat)
{
    size_t off = 0;
    for (unsigned i = rank; i-- > 0; flat /= (size_t)shape[i])
        off += flat % (size_t)shape[i] * (size_t)stride[i];
    return off;
}

static void strides_give_the_same_bits(void **state)
{
    static const unsigned orders[][4] = {{0, 2, 3, 1}, {3, 2, 1, 0}, {1, 0, 3, 2}};
    const int64_t in[] = {11, 13}, out[] = {9, 7};
    uint64_t seed = 3;
    (void)state;
    for (unsigned k = 0; k < 18; k++) {
        struct sample s = sample_make(2, dtypes[k % 4], 2, 9, in, out, &seed), v = s;
        const size_t size = elem_bytes(s.dtype);
        int64_t stride[N_ROLES][4];
        s.accumulate = k % 2;
        set_rule(&s, k);
        for (int r = 0; r < N_ROLES; r++) { /* a copy with strides, made before the run */
            const size_t n = make_strides(s.shape[r], 4, orders[(k + (unsigned)r) % 3], stride[r]);
            v.data[r] = calloc(n, size);
            assert_non_null(v.data[r]);
            for (size_t i = 0; i < s.n[r]; i++)
                memcpy((char *)v.data[r] + offset_of(s.shape[r], stride[r], 4, i) * size,
                       (char *)s.data[r] + i * size, size);
            v.stride[r] = stride[r];
            v.n_bytes[r] = n * size;
        }
        v.mode = s.mode;
        v.padding = s.padding;
        v.align = s.align;
        v.accumulate = s.accumulate;
        forward(&s);
        forward(&v);
        backward(&s);
        backward(&v);
        for (int r = 0; r < N_ROLES; r++) {
            for (size_t i = 0; i < s.n[r]; i++)
                assert_memory_equal((char *)v.data[r] +
                                        offset_of(s.shape[r], stride[r], 4, i) * size,
                                    (char *)s.data[r] + i * size, size);
        }
        sample_free(&s);
        sample_free(&v);
    }
}

/* ---- Accumulating, and one gradient alone -----------------------------------------------------
 */

/* The old value is the last term, before the one rounding. */
static void old_values_are_the_last_term(void **state)
{
    uint64_t seed = 4;
    struct sample s = sample_make(2, QPLAN_STORAGE_F32, 1, 1, SHAPE(1, 1), SHAPE(1, 2), &seed);
    float *dout = s.data[DOUT], *dinput = s.data[DINPUT];
    (void)state;
    s.mode = 1;
    s.padding = 1;
    s.accumulate = true;
    dout[0] = 0x1p24f;
    dout[1] = 1; /* 2^24 + 1 is no f32 */
    dinput[0] = -0x1p24f;
    backward(&s);
    assert_true(dinput[0] == 1);
    sample_free(&s);
}

static void one_gradient_is_enough(void **state)
{
    const int64_t in[] = {5, 6}, out[] = {4, 3};
    uint64_t seed = 5;
    struct sample s = sample_make(2, QPLAN_STORAGE_F32, 1, 3, in, out, &seed);
    (void)state;
    backward(&s);
    struct results both = keep(&s);
    for (int k = 0; k < 2; k++) {
        const int role = k ? DGRID : DINPUT;
        struct problem p;
        struct qplan_error err;
        sample_problem(&p, &s, true);
        memset(s.data[role], 0xa5, s.n_bytes[role]);
        set(&p, k ? "need_dinput" : "need_dgrid", "false");
        add_role(&p, &s, role);
        OK(run_op(&p, &err), &err);
        assert_memory_equal(s.data[role], both.data[role], s.n_bytes[role]);
        add_role(&p, &s, k ? DINPUT : DGRID);
        FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "with these fields there is no such output",
              &err);
    }
    results_free(&both);
    sample_free(&s);
}

/* ---- No elements ------------------------------------------------------------------------------
 */

static void sums_of_nothing_are_zero(void **state)
{
    const int64_t in[] = {4, 5}, out[] = {3, 2}, none[] = {0, 2};
    uint64_t seed = 6;
    struct sample no_channels = sample_make(2, QPLAN_STORAGE_F32, 2, 0, in, out, &seed);
    struct sample no_points = sample_make(2, QPLAN_STORAGE_F64, 2, 3, in, none, &seed);
    struct sample no_batch = sample_make(2, QPLAN_STORAGE_F16, 0, 3, in, out, &seed);
    (void)state;
    forward(&no_channels);
    backward(&no_channels);
    for (size_t i = 0; i < no_channels.n[DGRID]; i++)
        assert_true(get_value(no_channels.dtype, no_channels.data[DGRID], i) == 0);
    forward(&no_points);
    backward(&no_points);
    for (size_t i = 0; i < no_points.n[DINPUT]; i++)
        assert_true(get_value(no_points.dtype, no_points.data[DINPUT], i) == 0);
    forward(&no_batch);
    backward(&no_batch);
    sample_free(&no_channels);
    sample_free(&no_points);
    sample_free(&no_batch);
}

/* ---- Refusals ---------------------------------------------------------------------------------
 */

/* A sample of one tensor's shape changed, and the message that it gives. */
static void refuses_shape(int role, const int64_t *shape, bool is_backward, const char *part)
{
    const int64_t in[] = {4, 5}, out[] = {3, 2};
    uint64_t seed = 7;
    struct sample s = sample_make(2, QPLAN_STORAGE_F32, 2, 3, in, out, &seed);
    struct qplan_op *op;
    struct qplan_error err;
    struct problem p;
    memcpy(s.shape[role], shape, 4 * sizeof *shape);
    sample_problem(&p, &s, is_backward);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, part, &err);
    assert_null(op);
    sample_free(&s);
}

static void shapes_are_checked(void **state)
{
    (void)state;
    refuses_shape(INPUT, SHAPE(2, 3, 0, 5), false, "expected H above 0, found 0");
    refuses_shape(INPUT, SHAPE(2, 3, 4, 0), true, "expected W above 0, found 0");
    refuses_shape(GRID, SHAPE(1, 3, 2, 2), false, "'grid'");
    refuses_shape(GRID, SHAPE(2, 3, 2, 3), false, "'grid'");
    refuses_shape(DOUT, SHAPE(2, 4, 3, 2), true, "'dout'");
    refuses_shape(DOUT, SHAPE(2, 3, 3, 3), true, "'dout'");
    refuses_shape(INPUT, SHAPE(0, 0, INT64_C(1) << 30, INT64_C(1) << 30), false, "2^63 bits");
}

static void fields_are_checked(void **state)
{
    const int64_t in[] = {4, 5, 6}, out[] = {3, 2, 2};
    uint64_t seed = 8;
    struct sample s = sample_make(3, QPLAN_STORAGE_F32, 1, 1, in, out, &seed);
    struct qplan_op *op;
    struct qplan_error err;
    (void)state;
    struct problem p;
    s.mode = 2;
    sample_problem(&p, &s, false);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "expected bilinear or nearest", &err);
    s.mode = 0;
    sample_problem(&p, &s, true);
    set(&p, "need_dinput", "false");
    set(&p, "need_dgrid", "false");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "no gradient is needed", &err);
    sample_problem(&p, &s, false);
    p.tensors[1].dtype = QPLAN_STORAGE_F64;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'grid'", &err);
    sample_problem(&p, &s, true);
    set(&p, "accumulate", "true");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "with accumulate it is an input", &err);
    sample_problem(&p, &s, true);
    p.preference.max_workspace_bytes = 1000;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED, "bytes, found 1000", &err);
    sample_free(&s);
}

static void guarantees_say_what_is_done(void **state)
{
    static const struct {
        enum qplan_storage dtype;
        bool backward;
        const char *math, *accumulator;
    } cases[] = {
        {QPLAN_STORAGE_F32, false, "f32", "f64"},
        {QPLAN_STORAGE_BF16, true, "f32", "f64"},
        {QPLAN_STORAGE_F64, false, "f64", "f64"},
        {QPLAN_STORAGE_F64, true, "f64", "f64x2"},
    };
    const int64_t in[] = {4, 5}, out[] = {3, 2};
    uint64_t seed = 9;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sample s = sample_make(2, cases[i].dtype, 1, 1, in, out, &seed);
        struct problem p;
        struct qplan_op *op;
        struct qplan_error err;
        sample_problem(&p, &s, cases[i].backward);
        OK(select_op(&p, &op, &err), &err);
        const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
        assert_string_equal(g->math_precision, cases[i].math);
        assert_string_equal(g->accumulator, cases[i].accumulator);
        assert_true(g->deterministic && g->bit_stable && g->thread_invariant);
        qplan_op_free(op);
        sample_free(&s);
    }
}

/* ---- Affine grids -----------------------------------------------------------------------------
 */

/* The formula in long double, to a unit of the last place or less. */
static void affine_points_are_the_formula(void **state)
{
    enum { H = 7, W = 1200, N = 2 };
    static float theta[N * 6], got[N * H * W * 2], dtheta[N * 6];
    static const unsigned teams[] = {1, 2, 3, 7};
    uint64_t seed = 10;
    (void)state;
    for (size_t i = 0; i < COUNT(theta); i++)
        theta[i] = (float)random_signed(&seed);
    for (size_t k = 0; k < 2 * COUNT(teams); k++) {
        const bool align = k & 1;
        struct problem p = problem("affine_grid_2d"), q = problem("affine_grid_2d_backward");
        struct qplan_error err;
        set_number(&p, "out_h", H);
        set_number(&p, "out_w", W);
        set(&p, "align_corners", align ? "true" : "false");
        memcpy(q.fields, p.fields, sizeof p.fields);
        q.n_fields = p.n_fields;
        p.preference.threads = q.preference.threads = teams[k / 2];
        add(&p, "theta", QPLAN_STORAGE_F32, 3, SHAPE(N, 2, 3), theta);
        add(&p, "output", QPLAN_STORAGE_F32, 4, SHAPE(N, H, W, 2), got);
        add(&q, "dout", QPLAN_STORAGE_F32, 4, SHAPE(N, H, W, 2), got);
        add(&q, "dtheta", QPLAN_STORAGE_F32, 3, SHAPE(N, 2, 3), dtheta);
        OK(run_op(&p, &err), &err);
        OK(run_op(&q, &err), &err);
        long double sums[N * 6] = {0};
        for (size_t i = 0; i < COUNT(got); i++) {
            const size_t n = i / (H * W * 2), a = i % 2, x = i / 2 % W, y = i / (2 * W) % H;
            const long double bx =
                align ? 2.L * (long double)x / (W - 1) - 1 : (2.L * (long double)x + 1) / W - 1;
            const long double by =
                align ? 2.L * (long double)y / (H - 1) - 1 : (2.L * (long double)y + 1) / H - 1;
            const float *t = theta + n * 6 + a * 3;
            const long double want = t[0] * bx + t[1] * by + t[2];
            assert_true(fabsl((long double)got[i] - want) <= 0x1.0001p-24L * fabsl(want) + 1e-14L);
            sums[n * 6 + a * 3] += got[i] * bx;
            sums[n * 6 + a * 3 + 1] += got[i] * by;
            sums[n * 6 + a * 3 + 2] += got[i];
        }
        for (size_t i = 0; i < COUNT(dtheta); i++)
            assert_true(fabsl(dtheta[i] - sums[i]) <= 0x1.0001p-24L * fabsl(sums[i]) + 1e-9L);
    }
}

static void affine_fields_are_checked(void **state)
{
    double theta[12] = {0};
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem("affine_grid_3d");
    (void)state;
    add(&p, "theta", QPLAN_STORAGE_F64, 3, SHAPE(1, 3, 4), theta);
    set_number(&p, "out_d", 1);
    set_number(&p, "out_h", 2);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "out_w", &err);
    set_number(&p, "out_w", 0);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "out_w", &err);
    p.fields[2].number = 4;
    OK(select_op(&p, &op, &err), &err);
    assert_string_equal(qplan_op_precision_guarantee(op)->math_precision, "f64");
    qplan_op_free(op);
    p.shapes[0][1] = 2;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'theta'", &err);
    p = problem("affine_grid_2d_backward");
    add(&p, "dout", QPLAN_STORAGE_F64, 4, SHAPE(1, 2, 3, 2), theta);
    set_number(&p, "out_h", 3);
    set_number(&p, "out_w", 2);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'dout'", &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_give_the_same_bits),
        cmocka_unit_test(few_points_give_the_same_bits),
        cmocka_unit_test(strides_give_the_same_bits),
        cmocka_unit_test(old_values_are_the_last_term),
        cmocka_unit_test(one_gradient_is_enough),
        cmocka_unit_test(sums_of_nothing_are_zero),
        cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(fields_are_checked),
        cmocka_unit_test(guarantees_say_what_is_done),
        cmocka_unit_test(affine_points_are_the_formula),
        cmocka_unit_test(affine_fields_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
