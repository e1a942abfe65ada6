/*
 * test_op_embedding.c - rows by index and their gradient: copies, the order of sums, one rounding,
 * what is counted, and the same bits for every number of threads.
 */
#include "op_support.h"

#include "kernels/ops/sum.h"

enum { V = 23, N = 4000, D = 1500 };

static int64_t indices[N];
static float dout[N * 7];

static void fill(uint64_t *seed)
{
    for (size_t i = 0; i < N; i++)
        indices[i] = (int64_t)random_below(seed, V);
    for (size_t i = 0; i < COUNT(dout); i++)
        dout[i] = (float)ldexp(random_signed(seed), (int)random_below(seed, 40));
}

/* dweight of [N,7] gradients; the fields are those of the problem. */
static void backward(struct problem *p, float *dweight, unsigned threads)
{
    struct qplan_error err;
    add(p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(N, 7), dout);
    add(p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(N), indices);
    add(p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, 7), dweight);
    set_number(p, "num_embeddings", V);
    p->preference.threads = threads;
    OK(run_op(p, &err), &err);
}

/* The formula: f64, ascending, the division behind the sum, the old value last. */
static float formula(int64_t row, size_t col, int64_t padding, bool by_frequency, const float *old)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < N; i++) {
        if (indices[i] != row || row == padding)
            continue;
        sum += (double)dout[i * 7 + col];
        count++;
    }
    if (by_frequency && count > 0)
        sum /= count;
    return (float)(old ? sum + (double)*old : sum);
}

static void backward_is_the_formula(void **state)
{
    static const unsigned teams[] = {1, 2, 3, 7};
    static float dweight[V * 7], old[V * 7];
    uint64_t seed = 1;
    (void)state;
    fill(&seed);
    for (size_t i = 0; i < V * 7; i++)
        old[i] = (float)random_signed(&seed) * 1e6f;
    for (int k = 0; k < 32; k++) {
        const bool by_frequency = k & 1, accumulate = k & 2, pads = k & 4;
        struct problem p = problem("embedding_backward");
        set_number(&p, "scale_grad_by_freq", by_frequency);
        set(&p, "accumulate", accumulate ? "true" : "false");
        if (pads)
            set_number(&p, "padding_idx", 5 - V);
        memcpy(dweight, old, sizeof old);
        backward(&p, dweight, teams[k / 8]);
        for (size_t i = 0; i < V * 7; i++)
            assert_true(dweight[i] == formula((int64_t)(i / 7), i % 7, pads ? 5 : -1, by_frequency,
                                              accumulate ? &old[i] : NULL));
    }
}

static void indices_are_checked(void **state)
{
    static float dweight[V * 7];
    struct qplan_error err;
    uint64_t seed = 2;
    struct problem p = problem("embedding_backward");
    (void)state;
    fill(&seed);
    indices[17] = -1;
    indices[3999] = V;
    dweight[0] = 99;
    add(&p, "dout", QPLAN_STORAGE_F32, 3, SHAPE(40, 100, 7), dout);
    add(&p, "indices", QPLAN_STORAGE_I64, 2, SHAPE(40, 100), indices);
    add(&p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, 7), dweight);
    set_number(&p, "num_embeddings", V);
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE,
          "'indices': no such row: expected at least 0 and below 23, found -1 at [0,17], flat "
          "index 17",
          &err);
    assert_true(dweight[0] == 99);
    set(&p, "index_policy", "skip");
    OK(run_op(&p, &err), &err);
    assert_int_equal(p.counts.skipped, 2);
    for (size_t i = 0; i < V * 7; i++)
        assert_true(dweight[i] == formula((int64_t)(i / 7), i % 7, -1, false, NULL));
}

/* ---- Sums -------------------------------------------------------------------------------------
 */

/* One row of the table gets all terms. */
static double sum_f64(const double *terms, int64_t n)
{
    static int32_t zeros[16];
    double result = 0;
    struct qplan_error err;
    struct problem p = problem("embedding_backward");
    set_number(&p, "num_embeddings", 1);
    add(&p, "dout", QPLAN_STORAGE_F64, 2, SHAPE(n, 1), (double *)(uintptr_t)terms);
    add(&p, "indices", QPLAN_STORAGE_I32, 1, SHAPE(n), zeros);
    add(&p, "dweight", QPLAN_STORAGE_F64, 2, SHAPE(1, 1), &result);
    OK(run_op(&p, &err), &err);
    return result;
}

static void f64_sums_keep_their_errors(void **state)
{
    const double small[] = {1e16, 1, -1e16}, tiny[] = {1, 0x1p-53, 0x1p-53, 0x1p-53, 0x1p-53};
    const double infinite[] = {1, INFINITY, 2}, both[] = {INFINITY, 1, -INFINITY};
    const double large[] = {0x1p1023, 0x1p1023};
    (void)state;
    assert_true(sum_f64(small, 3) == 1);
    assert_true(sum_f64(tiny, 5) == 1 + 0x1p-51);
    assert_true(sum_f64(infinite, 3) == INFINITY);
    assert_true(isnan(sum_f64(both, 3)));
    assert_true(sum_f64(large, 2) == INFINITY);
}

/* Nearest even, infinite where too large, one NaN; and how many became infinite. */
static void gradients_are_stored(void **state)
{
    const double x[] = {65519.99, 65520, -1e30, INFINITY, -(double)NAN, 0x1p-25, 0x1.8p-24, -0.0};
    const uint16_t f16[] = {0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7e00, 0x0000, 0x0002, 0x8000};
    const double y[] = {0x1.ffp127, 0x1.fefp127, 1e300, -(double)NAN, 0x1p-134, 0x1.8p-133};
    const uint16_t bf16[] = {0x7f80, 0x7f7f, 0x7f80, 0x7fc0, 0x0000, 0x0002};
    const double w[] = {1e39, -(double)NAN, 0x1.fffffefp127, 1};
    const uint32_t f32[] = {0x7f800000, 0x7fc00000, 0x7f7fffff, 0x3f800000};
    uint16_t h[8];
    uint32_t f[4];
    (void)state;
    assert_int_equal(qp_store_gradient(QPLAN_F16, COUNT(x), x, h), 2);
    assert_memory_equal(h, f16, sizeof f16);
    assert_int_equal(qp_store_gradient(QPLAN_BF16, COUNT(y), y, h), 2);
    assert_memory_equal(h, bf16, sizeof bf16);
    assert_int_equal(qp_store_gradient(QPLAN_F32, COUNT(w), w, f), 1);
    assert_memory_equal(f, f32, sizeof f32);
}

static void overflow_is_counted(void **state)
{
    static uint16_t terms[4] = {0x7bff, 0x7bff, 0x3c00, 0x3c00}, result[2];
    static int64_t rows[4] = {0, 0, 1, 1};
    struct qplan_error err;
    struct problem p = problem("embedding_backward");
    (void)state;
    set_number(&p, "num_embeddings", 2);
    add(&p, "dout", QPLAN_STORAGE_F16, 2, SHAPE(4, 1), terms);
    add(&p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(4), rows);
    add(&p, "dweight", QPLAN_STORAGE_F16, 2, SHAPE(2, 1), result);
    OK(run_op(&p, &err), &err);
    assert_int_equal(result[0], 0x7c00);
    assert_int_equal(result[1], 0x4000);
    assert_int_equal(p.counts.overflow, 1);
}

/* ---- Views ------------------------------------------------------------------------------------
 */

/* Wide rows of a turned table: pieces, gathered and scattered. */
static void strided_is_contiguous(void **state)
{
    static uint16_t weight[V * D], turned[D * V], out[50 * D], apart[50 * D];
    static float grad[50 * D], grad_turned[D * 50], dweight[V * D], dweight_turned[D * V];
    static const int64_t by_v[] = {1, V}, by_n[] = {1, 50}, by_out[] = {1, 50};
    struct qplan_error err;
    uint64_t seed = 5;
    (void)state;
    fill(&seed);
    for (size_t i = 0; i < V * D; i++)
        weight[i] = turned[i % D * V + i / D] = (uint16_t)random_bits(&seed);
    for (size_t i = 0; i < 50 * D; i++)
        grad[i] = grad_turned[i % D * 50 + i / D] = (float)random_signed(&seed);
    struct problem p = problem("embedding");
    add(&p, "weight", QPLAN_STORAGE_BF16, 2, SHAPE(V, D), weight);
    add(&p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(50), indices);
    add(&p, "output", QPLAN_STORAGE_BF16, 2, SHAPE(50, D), out);
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < 50; i++)
        assert_memory_equal(out + i * D, weight + indices[i] * D, D * 2);
    p.tensors[0].data = turned;
    p.tensors[0].stride = by_v;
    p.tensors[2].data = apart;
    p.tensors[2].stride = by_out;
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < 50 * D; i++)
        assert_int_equal(apart[i % D * 50 + i / D], out[i]);

    p = problem("embedding_backward");
    set_number(&p, "num_embeddings", V);
    add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(50, D), grad);
    add(&p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(50), indices);
    add(&p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, D), dweight);
    OK(run_op(&p, &err), &err);
    p.tensors[0].data = grad_turned;
    p.tensors[0].stride = by_n;
    p.tensors[2].data = dweight_turned;
    p.tensors[2].stride = by_v;
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < V * D; i++)
        assert_true(dweight_turned[i % D * V + i / D] == dweight[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backward_is_the_formula),    cmocka_unit_test(indices_are_checked),
        cmocka_unit_test(f64_sums_keep_their_errors), cmocka_unit_test(gradients_are_stored),
        cmocka_unit_test(overflow_is_counted),        cmocka_unit_test(strided_is_contiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
