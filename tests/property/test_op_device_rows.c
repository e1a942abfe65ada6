/*
 * test_op_device_rows.c - embeddings and bags on a device that is the device text as host C,
 * against the scalar kernels: random tables and bags of every dtype, mode and policy, empty ones
 * too; what a device without 64-bit floats does; and memory and copies that are theirs alone.
 */
#include "op_random.h"

#include <inttypes.h>
#include <limits.h>

#define N_PROBLEMS 6000

static const enum qplan_storage dtypes[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F16,
                                            QPLAN_STORAGE_BF16, QPLAN_STORAGE_F64};

/* ---- Random problems --------------------------------------------------------------------------
 */

/* The problem that is being made; what follows depends on what went before. */
static struct {
    enum qplan_storage dtype, index_dtype;
    int64_t n_rows, row_len, n_indices, n_bags, last_offset;
    bool skip;
    char numbers[2][24];
} now;

static void put_whole(enum qplan_storage dtype, int64_t value, unsigned char *to)
{
    memcpy(to, &value, qplan_storage_bits(dtype) / 8);
}

/* Now and then one of no row, which is refused or skipped. */
static void put_index(enum qplan_storage dtype, unsigned char *to)
{
    static const int64_t others[] = {-1, INT32_MAX, INT32_MIN};
    int64_t index = (int64_t)random_below(&seed, now.n_rows > 0 ? (uint64_t)now.n_rows : 1);
    if (random_below(&seed, now.skip ? 8 : 2000) == 0)
        index = others[random_below(&seed, 3)];
    put_whole(dtype, index, to);
}

/* Zeros first; steps of 0 make empty bags. */
static void put_offset(enum qplan_storage dtype, unsigned char *to)
{
    put_whole(dtype, now.last_offset, to);
    now.last_offset += (int64_t)random_below(&seed, 5);
    if (now.last_offset > now.n_indices)
        now.last_offset = now.n_indices;
}

/* Any row, of the bag or not, or none. */
static void put_where(enum qplan_storage dtype, unsigned char *to)
{
    put_whole(dtype, (int64_t)random_below(&seed, (uint64_t)now.n_rows + 1) - 1, to);
}

static void choose(void)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 8, 16, 24, 64, 65, 136};
    now.dtype = dtypes[random_below(&seed, 4)];
    now.index_dtype = random_below(&seed, 2) ? QPLAN_STORAGE_I32 : QPLAN_STORAGE_I64;
    now.n_rows = (int64_t)random_below(&seed, random_below(&seed, 4) ? 12 : 300);
    now.row_len = random_below(&seed, 30) ? lengths[random_below(&seed, COUNT(lengths))] : 0;
    now.n_indices = (int64_t)random_below(&seed, 80);
    now.last_offset = 0;
    now.skip = random_below(&seed, 3) == 0;
}

static void set_text_number(struct problem *p, const char *field, int64_t number)
{
    char *text = now.numbers[p->n_fields];
    (void)snprintf(text, sizeof now.numbers[0], "%" PRId64, number);
    set(p, field, text);
}

/* Numbers come first: there is room for two. */
static void add_fields(struct problem *p, bool backward)
{
    if (backward)
        set_text_number(p, "num_embeddings", now.n_rows);
    if (now.n_rows > 0 && random_below(&seed, 2))
        set_text_number(p, "padding_idx",
                        (int64_t)random_below(&seed, 2 * (uint64_t)now.n_rows) - now.n_rows);
    if (now.skip)
        set(p, "index_policy", "skip");
}

/* Indices by offsets or by rows. */
static void add_bags(struct problem *p, struct memory *m)
{
    const bool by_rows = random_below(&seed, 3) == 0, has_end = !by_rows && random_below(&seed, 2);
    const int64_t per_bag = (int64_t)random_below(&seed, 6);
    now.n_bags = (int64_t)random_below(&seed, 30);
    if (by_rows) {
        add_input(p, m, "indices", now.index_dtype, 2, SHAPE(now.n_bags, per_bag), put_index);
        return;
    }
    add_input(p, m, "indices", now.index_dtype, 1, SHAPE(now.n_indices), put_index);
    add_input(p, m, "offsets", now.index_dtype, 1, SHAPE(now.n_bags + has_end), put_offset);
    if (has_end)
        set(p, "include_last_offset", "true");
}

static void add_gradient(struct problem *p, struct memory *m, bool by_frequency)
{
    if (by_frequency)
        set(p, "scale_grad_by_freq", "true");
    if (random_below(&seed, 2))
        return;
    set(p, "accumulate", "true");
    add_input(p, m, "dweight", now.dtype, 2, SHAPE(now.n_rows, now.row_len), put_data);
}

static struct problem random_embedding(struct memory *m, bool backward)
{
    struct problem p = problem(backward ? "embedding_backward" : "embedding");
    add_fields(&p, backward);
    add_input(&p, m, "indices", now.index_dtype, 1, SHAPE(now.n_indices), put_index);
    if (backward)
        add_input(&p, m, "dout", now.dtype, 2, SHAPE(now.n_indices, now.row_len), put_data);
    else
        add_input(&p, m, "weight", now.dtype, 2, SHAPE(now.n_rows, now.row_len), put_data);
    if (backward)
        add_gradient(&p, m, random_below(&seed, 2));
    return p;
}

static struct problem random_bag(struct memory *m, bool backward)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    struct problem p = problem(backward ? "embedding_bag_backward" : "embedding_bag");
    const size_t mode = random_below(&seed, 3);
    add_fields(&p, backward);
    set(&p, "mode", modes[mode]);
    add_bags(&p, m);
    if (!backward) {
        add_input(&p, m, "weight", now.dtype, 2, SHAPE(now.n_rows, now.row_len), put_data);
        return p;
    }
    add_input(&p, m, "dout", now.dtype, 2, SHAPE(now.n_bags, now.row_len), put_data);
    if (mode == 2)
        add_input(&p, m, "max_indices", QPLAN_STORAGE_I64, 2, SHAPE(now.n_bags, now.row_len),
                  put_where);
    add_gradient(&p, m, mode < 2 && random_below(&seed, 2));
    return p;
}

static void test_random_problems(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    size_t n_run = 0;
    (void)state;
    for (size_t i = 0; i < N_PROBLEMS; i++) {
        struct memory m = {.n = 0};
        choose();
        const struct problem p = i % 3 == 0 ? random_embedding(&m, i % 2) : random_bag(&m, i % 2);
        n_run += check_random(&p, &device, i);
        release(&m);
    }
    printf("%zu of %d ran\n", n_run, N_PROBLEMS);
    assert_true(n_run > N_PROBLEMS / 2 && n_run < N_PROBLEMS);
}

/* ---- A small gradient -------------------------------------------------------------------------
 */

static float dout[8][3], dweight[5][3];
static const int32_t indices[8] = {4, 0, 4, 4, 2, 0, 1, 4};

static void make_small(struct problem *p, struct qplan_device *device)
{
    *p = problem("embedding_backward");
    set(p, "num_embeddings", "5");
    add(p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(8, 3), dout);
    add(p, "indices", QPLAN_STORAGE_I32, 1, SHAPE(8), (void *)(uintptr_t)indices);
    p->preference.device = device;
}

/* The lists are in the block besides the arguments, and behind what is staged. */
static void test_memory_of_lists(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    struct problem p;
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    make_small(&p, &device);
    assert_int_equal(select_op(&p, &op, &err), QPLAN_OK);
    const uint64_t needed = op->block.n_bytes;
    const uint64_t lists = (5 + 1) * 8 + 16 + 8 * 8; /* each begins at a multiple of 64 */
    assert_int_equal(needed - op->block.scratch, lists);
    assert_true(qplan_op_workspace_size(op) >= qp_op_staging_bytes(op) + lists + 64);
    qplan_op_free(op);
    device.memory_bytes = needed - 1;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE,
          "embedding_backward needs one block of 448 bytes of device memory: expected at most 447",
          &err);
}

/* Sums need them; rows and maxima are copies, of f64 too. */
static void test_without_64_bit_floats(void **state)
{
    struct qp_gpu gpu = host_gpu;
    struct qplan_device device = host_device(&gpu);
    struct problem p;
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    gpu.info.has_fp64 = false;
    make_small(&p, &device);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE,
          "the device has no 64-bit floats, which embedding_backward needs", &err);
    for (size_t i = 0; i < 2; i++) {
        struct memory m = {.n = 0};
        choose();
        now.dtype = QPLAN_STORAGE_F64;
        now.n_rows = now.row_len = now.n_indices = 9;
        now.skip = true;
        p = i == 0 ? random_embedding(&m, false) : problem("embedding_bag");
        if (i == 1) {
            set(&p, "mode", "max");
            set(&p, "index_policy", "skip");
            add_bags(&p, &m);
            add_input(&p, &m, "weight", now.dtype, 2, SHAPE(9, 9), put_data);
        }
        assert_true(check_random(&p, &device, i));
        release(&m);
    }
}

/* ---- Copies that fail -------------------------------------------------------------------------
 */

static int copies_left;

static enum qplan_status few_copies(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                    void *host, struct qplan_error *err)
{
    if (copies_left-- == 0)
        return qp_fail(err, QPLAN_ERR_DEVICE, "host", "the device is lost");
    return host_copy(lane, way, span, host, err);
}

static void test_each_copy_fails(void **state)
{
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    struct qplan_device device = host_device(&gpu);
    struct problem p;
    struct qplan_error err;
    struct qplan_op *op;
    int n = 0;
    (void)state;
    backend.copy = few_copies;
    gpu.backend = &backend;
    copies_left = INT_MAX;
    make_small(&p, &device);
    for (size_t i = 0; i < 8; i++)
        dout[i][0] = (float)(i + 1);
    assert_int_equal(select_op(&p, &op, &err), QPLAN_OK);
    const uint64_t n_bytes = qplan_op_workspace_size(op);
    void *workspace = malloc(n_bytes);
    add(&p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(5, 3), dweight);
    const struct qplan_op_args args = {p.tensors, p.n_tensors, NULL};
    for (;; n++) {
        dweight[4][0] = -7;
        copies_left = n;
        if (qplan_op_run(op, NULL, workspace, n_bytes, &args, &err) == QPLAN_OK)
            break;
        assert_string_equal(err.message, "the device is lost");
        assert_true(dweight[4][0] == -7);
    }
    assert_int_equal(n, 5); /* status, dout, indices and lists in, all of it out */
    assert_true(dweight[4][0] == 1 + 3 + 4 + 8);
    free(workspace);
    qplan_op_free(op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems),
        cmocka_unit_test(test_memory_of_lists),
        cmocka_unit_test(test_without_64_bit_floats),
        cmocka_unit_test(test_each_copy_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
