/*
 * test_op_bag.c - bags of rows and their gradient: the formulas, the same bits for every number of
 * threads, instruction set and layout, and what sums owe to each other.
 */
#include "op_support.h"

enum { V = 37, D = 2100, B = 29, N = 700 };

/* A problem: its indices, bags and fields. */
struct bags {
    int64_t indices[N], offsets[B + 1], max_indices[B * D];
    int64_t padding; /* -1 = none */
    bool has_end, skip;
    const char *mode;
};

static struct bags bags;
static float weight[V * D], dout[B * D], old[V * D];
static float output[B * D], dweight[V * D], again[V * D];

/* Empty bags are among them, and with an end some indices behind the last one. */
static void make_bags(uint64_t *seed, const char *mode, bool has_end, bool skip, int64_t padding)
{
    bags = (struct bags){.padding = padding, .has_end = has_end, .skip = skip, .mode = mode};
    for (size_t i = 0; i < N; i++) {
        bags.indices[i] = (int64_t)random_below(seed, V);
        if (skip && random_below(seed, 10) == 0)
            bags.indices[i] = random_below(seed, 2) ? -1 : V;
    }
    for (int64_t b = 1; b <= B; b++)
        bags.offsets[b] =
            bags.offsets[b - 1] + (b % 5 ? (int64_t)random_below(seed, 2 * N / B - 4) : 0);
    if (bags.offsets[B] > N)
        fail_msg("the bags are longer than the indices");
    for (size_t i = 0; i < B * D; i++)
        bags.max_indices[i] = (int64_t)random_below(seed, V + 1) - 1;
}

static int64_t bag_end(int64_t b)
{
    return b < B - 1 || bags.has_end ? bags.offsets[b + 1] : N;
}

static bool in_bag(int64_t index)
{
    return index >= 0 && index < V && index != bags.padding;
}

static void fill(uint64_t *seed, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)ldexp(random_signed(seed), (int)random_below(seed, 40));
}

static void set_fields(struct problem *p)
{
    set(p, "mode", bags.mode);
    set_number(p, "include_last_offset", bags.has_end);
    set(p, "index_policy", bags.skip ? "skip" : "error");
    if (bags.padding >= 0)
        set_number(p, "padding_idx", bags.padding);
}

static void add_bags(struct problem *p)
{
    add(p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(N), bags.indices);
    add(p, "offsets", QPLAN_STORAGE_I64, 1, SHAPE(B + bags.has_end), bags.offsets);
}

static void make_forward(struct problem *p)
{
    *p = problem("embedding_bag");
    set_fields(p);
    add(p, "weight", QPLAN_STORAGE_F32, 2, SHAPE(V, D), weight);
    add(p, "output", QPLAN_STORAGE_F32, 2, SHAPE(B, D), output);
    add_bags(p);
    if (strcmp(bags.mode, "max") == 0)
        add(p, "max_indices", QPLAN_STORAGE_I64, 2, SHAPE(B, D), bags.max_indices);
}

static void make_backward(struct problem *p, float *to)
{
    *p = problem("embedding_bag_backward");
    set_fields(p);
    set_number(p, "num_embeddings", V);
    add(p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(B, D), dout);
    add(p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, D), to);
    add_bags(p);
    if (strcmp(bags.mode, "max") == 0)
        add(p, "max_indices", QPLAN_STORAGE_I64, 2, SHAPE(B, D), bags.max_indices);
}

/* ---- Formulas ---------------------------------------------------------------------------------
 */

static void check_output(size_t b, size_t d)
{
    double sum = 0, count = 0;
    float best = 0;
    int64_t where = -1;
    for (int64_t i = bags.offsets[b]; i < bag_end((int64_t)b); i++) {
        if (!in_bag(bags.indices[i]))
            continue;
        const float x = weight[bags.indices[i] * D + (int64_t)d];
        sum += (double)x;
        count++;
        if (where < 0 || x > best) {
            best = x;
            where = bags.indices[i];
        }
    }
    if (strcmp(bags.mode, "mean") == 0 && count > 0)
        sum /= count;
    if (strcmp(bags.mode, "max") == 0)
        assert_int_equal(bags.max_indices[b * D + d], where);
    const float wanted = strcmp(bags.mode, "max") == 0 ? best : (float)sum;
    if (output[b * D + d] != wanted)
        fail_msg("bag %zu, column %zu: %a, expected %a", b, d, (double)output[b * D + d],
                 (double)wanted);
}

static void forward_is_the_formula(void **state)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    struct qplan_error err;
    uint64_t seed = 1;
    (void)state;
    fill(&seed, weight, V * D);
    for (int k = 0; k < 24; k++) {
        make_bags(&seed, modes[k % 3], k / 3 % 2, k / 6 % 2, k / 12 ? 5 : -1);
        struct problem p;
        make_forward(&p);
        OK(run_op(&p, &err), &err);
        for (size_t i = 0; i < B * D; i++)
            check_output(i / D, i % D);
        uint64_t skipped = 0;
        for (size_t i = 0; i < N; i++)
            skipped += bags.indices[i] < 0 || bags.indices[i] >= V;
        assert_int_equal(p.counts.skipped, skipped);
    }
}

static double bag_size(int64_t b)
{
    double n = 0;
    for (int64_t i = bags.offsets[b]; i < bag_end(b); i++)
        n += in_bag(bags.indices[i]);
    return n;
}

/* The gradient of one element; each term is a quotient in f64 where the mode is mean. */
static float gradient(int64_t row, size_t d, bool by_frequency, bool accumulate)
{
    double sum = 0, frequency = 0;
    for (int64_t b = 0; b < B; b++) {
        const double x = (double)dout[(size_t)b * D + d];
        if (strcmp(bags.mode, "max") == 0) {
            sum += bags.max_indices[(size_t)b * D + d] == row && row != bags.padding ? x : 0;
            continue;
        }
        const double size = strcmp(bags.mode, "mean") == 0 ? bag_size(b) : 1;
        for (int64_t i = bags.offsets[b]; i < bag_end(b); i++) {
            if (bags.indices[i] == row && row != bags.padding)
                sum += x / size;
        }
    }
    for (size_t i = 0; i < N; i++)
        frequency += bags.indices[i] == row;
    if (by_frequency && frequency > 0)
        sum /= frequency;
    return (float)(accumulate ? sum + (double)old[(size_t)row * D + d] : sum);
}

static void backward_is_the_formula(void **state)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    struct qplan_error err;
    uint64_t seed = 2;
    (void)state;
    fill(&seed, dout, B * D);
    fill(&seed, old, V * D);
    for (int k = 0; k < 24; k++) {
        const bool by_frequency = k % 3 < 2 && k / 3 % 2, accumulate = k / 6 % 2;
        make_bags(&seed, modes[k % 3], k % 2, k / 12, k / 12 ? -1 : 7);
        struct problem p;
        make_backward(&p, dweight);
        set_number(&p, "scale_grad_by_freq", by_frequency);
        set_number(&p, "accumulate", accumulate);
        memcpy(dweight, old, sizeof old);
        OK(run_op(&p, &err), &err);
        for (size_t i = 0; i < V * D; i += 1 + random_below(&seed, 40)) {
            const float wanted = gradient((int64_t)(i / D), i % D, by_frequency, accumulate);
            if (dweight[i] != wanted)
                fail_msg("case %d, row %zu, column %zu: %a, expected %a", k, i / D, i % D,
                         (double)dweight[i], (double)wanted);
        }
    }
}

/* ---- Invariance -------------------------------------------------------------------------------
 */

static void threads_and_levels_do_not_show(void **state)
{
    static const unsigned teams[] = {1, 2, 3, 7};
    static const char *const modes[] = {"sum", "mean", "max"};
    static float first[B * D];
    static int64_t rows[B * D];
    struct qplan_error err;
    uint64_t seed = 3;
    (void)state;
    fill(&seed, weight, V * D);
    fill(&seed, dout, B * D);
    for (int k = 0; k < 24; k++) {
        if (k % 8 == 0)
            make_bags(&seed, modes[k / 8], false, false, 3);
        struct problem p, q;
        make_forward(&p);
        make_backward(&q, k % 8 ? again : dweight);
        p.preference.threads = q.preference.threads = teams[k % 4];
        p.preference.isa = q.preference.isa = k / 4 % 2 ? QPLAN_ISA_SCALAR : QPLAN_ISA_BEST;
        OK(run_op(&p, &err), &err);
        OK(run_op(&q, &err), &err);
        if (k % 8 == 0) {
            memcpy(first, output, sizeof output);
            memcpy(rows, bags.max_indices, sizeof rows);
            continue;
        }
        assert_memory_equal(first, output, sizeof output);
        assert_memory_equal(rows, bags.max_indices, sizeof rows);
        assert_memory_equal(dweight, again, sizeof again);
    }
}

/* Every tensor with its columns apart, indices and offsets with gaps. */
static void strided_is_contiguous(void **state)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    static float turned_weight[D * V], turned_output[D * B], turned_dout[D * B];
    static float turned_dweight[D * V];
    static int64_t turned_rows[D * B], wide_indices[3 * N], wide_offsets[2 * B];
    static const int64_t by_v[] = {1, V}, by_b[] = {1, B}, three[] = {3}, two[] = {2};
    struct qplan_error err;
    uint64_t seed = 4;
    (void)state;
    fill(&seed, weight, V * D);
    fill(&seed, dout, B * D);
    for (int k = 0; k < 3; k++) {
        make_bags(&seed, modes[k], false, false, -1);
        struct problem p, q;
        make_forward(&p);
        make_backward(&q, dweight);
        OK(run_op(&p, &err), &err);
        OK(run_op(&q, &err), &err);
        for (size_t i = 0; i < V * D; i++)
            turned_weight[i % D * V + i / D] = weight[i];
        for (size_t i = 0; i < B * D; i++) {
            turned_dout[i % D * B + i / D] = dout[i];
            turned_rows[i % D * B + i / D] = bags.max_indices[i];
        }
        for (size_t i = 0; i < N; i++)
            wide_indices[3 * i] = bags.indices[i];
        for (size_t i = 0; i < B; i++)
            wide_offsets[2 * i] = bags.offsets[i];
        void *const data[2][5] = {
            {turned_weight, turned_output, wide_indices, wide_offsets, turned_rows},
            {turned_dout, turned_dweight, wide_indices, wide_offsets, turned_rows}};
        const int64_t *const strides[2][5] = {{by_v, by_b, three, two, by_b},
                                              {by_b, by_v, three, two, by_b}};
        const uint64_t sizes[2][5] = {
            {sizeof turned_weight, sizeof turned_output, sizeof wide_indices, sizeof wide_offsets,
             sizeof turned_rows},
            {sizeof turned_dout, sizeof turned_dweight, sizeof wide_indices, sizeof wide_offsets,
             sizeof turned_rows}};
        for (size_t i = 0; i < p.n_tensors; i++) {
            p.tensors[i].data = data[0][i];
            p.tensors[i].stride = strides[0][i];
            p.tensors[i].n_bytes = sizes[0][i];
            q.tensors[i].data = data[1][i];
            q.tensors[i].stride = strides[1][i];
            q.tensors[i].n_bytes = sizes[1][i];
        }
        OK(run_op(&q, &err), &err);
        OK(run_op(&p, &err), &err);
        for (size_t i = 0; i < V * D; i++)
            assert_memory_equal(&turned_dweight[i % D * V + i / D], &dweight[i], sizeof(float));
        for (size_t i = 0; i < B * D; i++) {
            assert_memory_equal(&turned_output[i % D * B + i / D], &output[i], sizeof(float));
            assert_int_equal(turned_rows[i % D * B + i / D], bags.max_indices[i]);
        }
    }
}

/* ---- What sums owe to each other --------------------------------------------------------------
 */

static void fill_integers(uint64_t *seed, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)random_below(seed, 201) - 100;
}

/* <dout, F(x)> = <dweight, x>, exactly, where all numbers are small integers. */
static void gradient_is_the_adjoint(void **state)
{
    struct qplan_error err;
    uint64_t seed = 5;
    (void)state;
    for (int k = 0; k < 4; k++) {
        int64_t left = 0, right = 0;
        make_bags(&seed, k % 2 ? "max" : "sum", k / 2, k / 2, k / 2 ? 4 : -1);
        fill_integers(&seed, weight, V * D);
        fill_integers(&seed, dout, B * D);
        struct problem p;
        make_forward(&p);
        OK(run_op(&p, &err), &err);
        struct problem q;
        make_backward(&q, dweight);
        OK(run_op(&q, &err), &err);
        for (size_t i = 0; i < B * D; i++)
            left += (int64_t)dout[i] * (int64_t)output[i];
        for (size_t i = 0; i < V * D; i++)
            right += (int64_t)dweight[i] * (int64_t)weight[i];
        assert_true(left == right && left != 0);
    }
}

/* The order of the bags does not matter to sums that are exact. */
static void exact_sums_are_free_of_order(void **state)
{
    static int64_t turned[N];
    static float turned_dout[B * D];
    struct qplan_error err;
    uint64_t seed = 6;
    (void)state;
    make_bags(&seed, "sum", false, false, -1);
    fill_integers(&seed, dout, B * D);
    for (int64_t b = 0; b < B; b++)
        bags.offsets[b] = b * (N / B);
    bags.offsets[B - 1] = N - N / B; /* the one before is longer */
    struct problem p;
    make_backward(&p, dweight);
    OK(run_op(&p, &err), &err);
    int64_t at = 0, begins[B];
    for (int64_t b = B - 1; b >= 0; b--) {
        begins[B - 1 - b] = at;
        for (int64_t i = bags.offsets[b]; i < bag_end(b); i++)
            turned[at++] = bags.indices[i];
        memcpy(turned_dout + (B - 1 - b) * D, dout + b * D, D * sizeof *dout);
    }
    memcpy(bags.indices, turned, sizeof turned);
    memcpy(bags.offsets, begins, sizeof begins);
    memcpy(dout, turned_dout, sizeof dout);
    make_backward(&p, again);
    OK(run_op(&p, &err), &err);
    assert_memory_equal(dweight, again, sizeof again);
}

/* Bags of one index are an embedding, forward and backward, to the bit. */
static void single_indices_are_an_embedding(void **state)
{
    static float rows[N * 3], grads[N * 3], table[V * 3], a[V * 3], b[V * 3], bag_rows[N * 3];
    struct qplan_error err;
    uint64_t seed = 7;
    (void)state;
    make_bags(&seed, "sum", false, true, -1);
    fill(&seed, table, V * 3);
    fill(&seed, grads, N * 3);
    for (int k = 0; k < 2; k++) {
        struct problem p = problem(k ? "embedding_bag" : "embedding");
        set(&p, "index_policy", "skip");
        add(&p, "weight", QPLAN_STORAGE_F32, 2, SHAPE(V, 3), table);
        add(&p, "indices", QPLAN_STORAGE_I64, k ? 2 : 1, SHAPE(N, 1), bags.indices);
        add(&p, "output", QPLAN_STORAGE_F32, 2, SHAPE(N, 3), k ? bag_rows : rows);
        OK(run_op(&p, &err), &err);
        p = problem(k ? "embedding_bag_backward" : "embedding_backward");
        set(&p, "index_policy", "skip");
        set_number(&p, "num_embeddings", V);
        set_number(&p, "scale_grad_by_freq", 1);
        add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(N, 3), grads);
        add(&p, "indices", QPLAN_STORAGE_I64, k ? 2 : 1, SHAPE(N, 1), bags.indices);
        add(&p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(V, 3), k ? b : a);
        OK(run_op(&p, &err), &err);
    }
    assert_memory_equal(rows, bag_rows, sizeof rows);
    assert_memory_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_the_formula),
        cmocka_unit_test(backward_is_the_formula),
        cmocka_unit_test(threads_and_levels_do_not_show),
        cmocka_unit_test(strided_is_contiguous),
        cmocka_unit_test(gradient_is_the_adjoint),
        cmocka_unit_test(exact_sums_are_free_of_order),
        cmocka_unit_test(single_indices_are_an_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
