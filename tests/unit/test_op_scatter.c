/*
 * test_op_scatter.c - the kernel of table gradients that adds in any order: who picks it, what it
 * promises, and that it keeps that. And what limits of the workspace do to its ordered sibling.
 */
#include "op_support.h"

#include <float.h>

enum { V = 5, D = 600, N = 4000, B = 1000 };

static int64_t indices[N], offsets[B];
static float dout[N * D], dweight[V * D], again[V * D];

/* Small integers, whose sums are exact in any order. */
static void fill(uint64_t *seed)
{
    for (size_t i = 0; i < N; i++)
        indices[i] = (int64_t)random_below(seed, V);
    for (size_t i = 0; i < B; i++)
        offsets[i] = (int64_t)(i * (N / B));
    for (size_t i = 0; i < N * D; i++)
        dout[i] = (float)random_below(seed, 33) - 16;
}

/* An embedding, or bags of N / B with their offsets. */
static void make(struct problem *p, bool bags, float *to, bool deterministic, uint64_t limit)
{
    *p = problem(bags ? "embedding_bag_backward" : "embedding_backward");
    set_number(p, "num_embeddings", V);
    add(p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(bags ? B : N, D), dout);
    add(p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(N), indices);
    if (bags)
        add(p, "offsets", QPLAN_STORAGE_I64, 1, SHAPE(B), offsets);
    add(p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, D), to);
    p->preference.deterministic = deterministic;
    p->preference.max_workspace_bytes = limit;
}

static void picked_only_where_allowed_and_needed(void **state)
{
    static const struct {
        bool deterministic;
        uint64_t limit;
        bool scatters;
    } preferences[] = {{true, UINT64_MAX, false}, {false, UINT64_MAX, false}, {false, 0, true}};
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p;
    (void)state;
    for (size_t i = 0; i < COUNT(preferences) * 2; i++) {
        const bool scatters = preferences[i / 2].scatters;
        make(&p, i % 2, dweight, preferences[i / 2].deterministic, preferences[i / 2].limit);
        OK(select_op(&p, &op, &err), &err);
        const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
        assert_true(g->deterministic == !scatters && g->bit_stable == !scatters);
        assert_true(g->thread_invariant == !scatters && !g->correctly_rounded);
        assert_string_equal(g->math_precision, scatters ? "f32" : "f64");
        assert_string_equal(g->accumulator, scatters ? "f32" : "f64");
        assert_true((qplan_op_workspace_size(op) == 0) == scatters);
        qplan_op_free(op);
    }
    make(&p, false, dweight, true, 0);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED,
          "no kernel with so small a workspace: expected a limit of at least ", &err);
    /* The frequency must be counted somewhere. */
    make(&p, false, dweight, false, 63);
    set(&p, "scale_grad_by_freq", "true");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED, "at least 128 bytes, found 63", &err);
    /* No such kernel for half precision: it would lose too much. */
    make(&p, false, dweight, false, 0);
    p.tensors[0].dtype = p.tensors[2].dtype = QPLAN_STORAGE_F16;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED, "so small a workspace", &err);
}

/* The limit that the message names is enough. */
static void limits_are_honest(void **state)
{
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p;
    (void)state;
    make(&p, true, dweight, true, 0);
    assert_int_equal(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED);
    const char *number = strstr(err.message, "at least ");
    assert_non_null(number);
    const uint64_t least = strtoull(number + strlen("at least "), NULL, 10);
    p.preference.max_workspace_bytes = least - 1;
    assert_int_equal(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED);
    p.preference.max_workspace_bytes = least;
    OK(select_op(&p, &op, &err), &err);
    assert_true(qplan_op_workspace_size(op) == least);
    qplan_op_free(op);
}

static void exact_sums_are_the_ordered_ones(void **state)
{
    static const unsigned teams[] = {1, 2, 3, 7};
    struct qplan_error err;
    struct problem p;
    uint64_t seed = 1;
    (void)state;
    fill(&seed);
    for (int k = 0; k < 32; k++) {
        const bool bags = k & 1, accumulate = k & 2, pads = k & 4;
        for (int scatters = 0; scatters < 2; scatters++) {
            float *to = scatters ? again : dweight;
            for (size_t i = 0; i < V * D; i++)
                to[i] = (float)i;
            make(&p, bags, to, !scatters, scatters ? 0 : UINT64_MAX);
            set_number(&p, "accumulate", accumulate);
            if (pads)
                set_number(&p, "padding_idx", 2);
            if (bags && !pads)
                set(&p, "mode", "mean"); /* of four: exact too */
            p.preference.threads = teams[k / 8];
            OK(run_op(&p, &err), &err);
        }
        assert_memory_equal(dweight, again, sizeof again);
    }
}

/* What is not exact is near: n terms, each rounded to f32. */
static void other_sums_are_near(void **state)
{
    struct qplan_error err;
    struct problem p;
    uint64_t seed = 2;
    (void)state;
    fill(&seed);
    for (size_t i = 0; i < N * D; i++)
        dout[i] = (float)random_signed(&seed);
    make(&p, false, dweight, true, UINT64_MAX);
    set(&p, "scale_grad_by_freq", "true");
    OK(run_op(&p, &err), &err);
    make(&p, false, again, false, 128);
    set(&p, "scale_grad_by_freq", "true");
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < V * D; i++)
        assert_true(fabsf(dweight[i] - again[i]) < 1e-5f);
}

/* Strided, f64, skipped indices, and sums that become infinite. */
static void the_rest_is_the_same(void **state)
{
    static double terms[4 * 3], turned[3 * 2];
    static int32_t rows[4] = {1, -7, 1, 0};
    static const int64_t by_row[] = {1, 2};
    const double wanted[3 * 2] = {7, 4, 8, INFINITY, 9, 10};
    const double values[4 * 3] = {1, DBL_MAX, 3, 0, 0, 0, 3, DBL_MAX, 7, 7, 8, 9};
    struct qplan_error err;
    struct problem p = problem("embedding_backward");
    (void)state;
    memcpy(terms, values, sizeof terms);
    set_number(&p, "num_embeddings", 2);
    set(&p, "index_policy", "skip");
    add(&p, "dout", QPLAN_STORAGE_F64, 2, SHAPE(4, 3), terms);
    add(&p, "indices", QPLAN_STORAGE_I32, 1, SHAPE(4), rows);
    add(&p, "dweight", QPLAN_STORAGE_F64, 2, SHAPE(2, 3), turned);
    p.tensors[2].stride = by_row;
    p.preference.deterministic = false;
    p.preference.max_workspace_bytes = 0;
    OK(run_op(&p, &err), &err);
    assert_memory_equal(turned, wanted, sizeof wanted);
    assert_int_equal(p.counts.skipped, 1);
    assert_int_equal(p.counts.overflow, 1);
    rows[0] = 2;
    memset(turned, 0, sizeof turned);
    p.fields[1].text = "error";
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "found 2 at [0], flat index 0", &err);
    assert_true(turned[0] == 0);
}

/* An embedding copies without a workspace, whatever the strides. */
static void embedding_needs_no_workspace(void **state)
{
    static float table[V * D];
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p = problem("embedding");
    (void)state;
    add(&p, "weight", QPLAN_STORAGE_F32, 2, SHAPE(V, D), table);
    add(&p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(N), indices);
    p.preference.max_workspace_bytes = 0;
    OK(select_op(&p, &op, &err), &err);
    assert_int_equal(qplan_op_workspace_size(op), 0);
    qplan_op_free(op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picked_only_where_allowed_and_needed),
        cmocka_unit_test(limits_are_honest),
        cmocka_unit_test(exact_sums_are_the_ordered_ones),
        cmocka_unit_test(other_sums_are_near),
        cmocka_unit_test(the_rest_is_the_same),
        cmocka_unit_test(embedding_needs_no_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
