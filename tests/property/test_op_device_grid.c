/*
 * test_op_device_grid.c - grid samples, affine grids and their gradients on a device that is the
 * device text as host C, against the scalar kernels: random shapes, points anywhere, any bits,
 * tensors with gaps or without elements, many taps on one pixel, and more lists than one round has.
 */
#include "tests/unit/grid_support.h"

#include "lib/ops/op_device.h"
#include "tests/gpu/host_backend.h"

#define N_SAMPLES 1500
#define N_AFFINE  400

static const enum qplan_storage dtypes[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F64, QPLAN_STORAGE_F16,
                                            QPLAN_STORAGE_BF16};
static uint64_t seed = 0x9e3779b97f4a7c15u;

/* ---- Both ways --------------------------------------------------------------------------------
 */

/* What a problem has in its buffers, outputs and what lies between elements too. */
static struct text keep_buffers(const struct problem *p)
{
    struct text all = {0};
    for (size_t i = 0; i < p->n_tensors; i++)
        (void)text_add(&all, p->tensors[i].data, (size_t)p->tensors[i].n_bytes);
    return all;
}

static void restore_buffers(const struct problem *p, const struct text *all)
{
    const char *from = (const char *)all->data;
    for (size_t i = 0; i < p->n_tensors; i++) {
        memcpy(p->tensors[i].data, from, (size_t)p->tensors[i].n_bytes);
        from += p->tensors[i].n_bytes;
    }
}

/* Runs on the CPU and on the device, from the same buffers to the same buffers and counts. */
static void same_on_device(struct problem *p, struct qplan_device *device, const char *what)
{
    struct text before = keep_buffers(p);
    struct qplan_error err;
    p->preference.isa = QPLAN_ISA_SCALAR;
    p->preference.threads = 1;
    OK(run_op(p, &err), &err);
    const struct qplan_op_counts counts = p->counts;
    struct text wanted = keep_buffers(p);
    restore_buffers(p, &before);
    p->preference.device = device;
    p->counts = (struct qplan_op_counts){0};
    OK(run_op(p, &err), &err);
    struct text found = keep_buffers(p);
    if (wanted.n > 0 && memcmp(wanted.data, found.data, wanted.n) != 0)
        fail_msg("%s %s: other bits", p->op, what);
    if (memcmp(&counts, &p->counts, sizeof counts) != 0)
        fail_msg("%s %s: other counts", p->op, what);
    restore_buffers(p, &before);
    p->preference.device = NULL;
    text_free(&before);
    text_free(&wanted);
    text_free(&found);
}

/* ---- Random samples ---------------------------------------------------------------------------
 */

static void put_bits(enum qplan_storage dtype, void *data, size_t i)
{
    const uint64_t bits = random_bits(&seed);
    memcpy((char *)data + i * elem_bytes(dtype), &bits, elem_bytes(dtype));
}

/* Near the image, on pixels and their edges, far away, or any bits. */
static void put_coordinate(enum qplan_storage dtype, void *data, size_t i, int64_t size)
{
    const double extent = (double)size;
    switch (random_below(&seed, 8)) {
    case 0:
        put_bits(dtype, data, i);
        break;
    case 1:
        put_value(dtype, data, i, random_signed(&seed) * 50);
        break;
    case 2:
        put_value(dtype, data, i,
                  ((double)random_below(&seed, 2 * (uint64_t)size + 5) - 2) / extent - 1);
        break;
    default:
        put_value(dtype, data, i, random_signed(&seed) * 1.4);
    }
}

static void put_datum(enum qplan_storage dtype, void *data, size_t i)
{
    if (random_below(&seed, 16) == 0)
        put_bits(dtype, data, i);
    else
        put_value(dtype, data, i, random_signed(&seed) * 100);
}

/* A sample with every element at step times its place, and strides to match. */
static void fill_sample(struct sample *s, size_t step, int64_t strides[N_ROLES][5])
{
    for (int r = 0; r < N_ROLES; r++) {
        const unsigned rank = s->n_axes + 2;
        int64_t next = (int64_t)step;
        for (unsigned i = rank; i-- > 0; next *= s->shape[r][i])
            strides[r][i] = next;
        free(s->data[r]);
        s->n_bytes[r] = s->n[r] * step * elem_bytes(s->dtype);
        s->data[r] = calloc(s->n_bytes[r] + 1, 1);
        assert_non_null(s->data[r]);
        s->stride[r] = step > 1 && s->n[r] > 0 ? strides[r] : NULL;
        for (size_t i = 0; i < s->n[r]; i++) {
            if (r == GRID)
                put_coordinate(s->dtype, s->data[r], i * step,
                               s->shape[INPUT][rank - 1 - i % s->n_axes]);
            else
                put_datum(s->dtype, s->data[r], i * step);
        }
    }
}

/* One of the gradients, or both, with or without what is there already. */
static void add_gradients(struct problem *p, const struct sample *s)
{
    const uint64_t needed = random_below(&seed, 4);
    if (random_below(&seed, 2))
        set(p, "accumulate", "true");
    if (needed == 1)
        set(p, "need_dgrid", "false");
    else if (needed == 2)
        set(p, "need_dinput", "false");
    if (needed != 2)
        add_role(p, s, DINPUT);
    if (needed != 1)
        add_role(p, s, DGRID);
}

static int64_t random_extent(uint64_t most)
{
    return 1 + (int64_t)random_below(&seed, most);
}

static struct sample random_sample(int64_t strides[N_ROLES][5])
{
    const unsigned n_axes = 2 + (unsigned)random_below(&seed, 2);
    const uint64_t most = n_axes == 2 ? 20 : 8;
    const int64_t in[] = {random_extent(most), random_extent(most), random_extent(most)};
    const int64_t out[] = {random_extent(most), random_extent(most) - 1, random_extent(most)};
    const int64_t n_batch = (int64_t)random_below(&seed, 4);
    const int64_t n_channels = (int64_t)random_below(&seed, random_below(&seed, 4) ? 6 : 36);
    struct sample s =
        sample_make(n_axes, dtypes[random_below(&seed, 4)], n_batch, n_channels, in, out, &seed);
    set_rule(&s, (unsigned)random_below(&seed, n_axes == 2 ? 18 : 12));
    fill_sample(&s, 1 + random_below(&seed, 3) / 2, strides);
    return s;
}

static void test_samples(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    (void)state;
    for (int k = 0; k < N_SAMPLES; k++) {
        int64_t strides[N_ROLES][5];
        struct sample s = random_sample(strides);
        struct problem p;
        sample_problem(&p, &s, false);
        add_role(&p, &s, OUTPUT);
        same_on_device(&p, &device, modes[s.mode]);
        sample_problem(&p, &s, true);
        add_gradients(&p, &s);
        same_on_device(&p, &device, modes[s.mode]);
        sample_free(&s);
    }
}

/* ---- Lists ------------------------------------------------------------------------------------
 */

/* Groups may run in any order: here the last one first, so that lists are not filled in theirs. */
static enum qplan_status last_first(struct qp_lane *lane, const struct qp_launch *launch,
                                    struct qplan_error *err)
{
    (void)err;
    for (uint32_t i = launch->groups; i-- > 0;)
        host_kernels[launch->kernel].run(i, ((struct host_lane *)lane)->block, launch->args);
    return QPLAN_OK;
}

/* Sums of these lose what comes between large numbers of both signs, with errors kept or not. */
static void fill_cancelling(const struct sample *s, int role)
{
    const double large = s->dtype == QPLAN_STORAGE_F64 ? 0x1p300 : 0x1p100;
    for (size_t i = 0; i < s->n[role]; i++) {
        const size_t at = i % 500;
        const double x = at == 0 ? large : at == 1 ? 0x1p90 : at == 299 ? -0x1p90 : -large;
        put_value(s->dtype, s->data[role], i, at < 2 || at == 299 || at == 300 ? x : 1);
    }
}

/* All taps are in the last corner. */
static void test_many_taps_on_a_pixel(void **state)
{
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    struct qplan_device device = host_device(&host_gpu);
    const int64_t in[] = {6, 5}, out[] = {40, 50};
    (void)state;
    backend.launch = last_first;
    gpu.backend = &backend;
    device.gpu = &gpu;
    for (unsigned k = 0; k < 3; k++) {
        struct sample s = sample_make(2, dtypes[k % 2], 2, 3, in, out, &seed);
        struct problem p;
        s.mode = k;
        s.padding = 1;
        for (size_t i = 0; i < s.n[GRID]; i++)
            put_value(s.dtype, s.data[GRID], i, 5 + random_signed(&seed));
        fill_cancelling(&s, DOUT);
        sample_problem(&p, &s, true);
        add_role(&p, &s, DINPUT);
        add_role(&p, &s, DGRID);
        same_on_device(&p, &device, "in a corner");
        sample_free(&s);
    }
}

/* The lists of these batches do not fit into what more than one batch may take. */
static void test_rounds(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    const int64_t in[] = {1700, 1700}, out[] = {50, 60};
    struct sample s = sample_make(2, QPLAN_STORAGE_BF16, 3, 1, in, out, &seed);
    struct problem p;
    struct qplan_op *op;
    struct qplan_error err;
    (void)state;
    sample_problem(&p, &s, true);
    add_role(&p, &s, DINPUT);
    add_role(&p, &s, DGRID);
    p.preference.device = &device;
    OK(select_op(&p, &op, &err), &err);
    const uint64_t lists = op->block.n_bytes - op->block.scratch;
    assert_true(lists > (UINT64_C(40) << 20) && lists < (UINT64_C(64) << 20));
    qplan_op_free(op);
    p.preference.device = NULL;
    same_on_device(&p, &device, "in rounds");
    sample_free(&s);
}

/* ---- Limits -----------------------------------------------------------------------------------
 */

static void test_memory(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    const int64_t in[] = {30, 40}, out[] = {20, 70};
    struct sample s = sample_make(2, QPLAN_STORAGE_F64, 2, 3, in, out, &seed);
    struct problem p;
    struct qplan_op *op;
    struct qplan_error err;
    (void)state;
    sample_problem(&p, &s, true);
    p.preference.device = &device;
    OK(select_op(&p, &op, &err), &err);
    device.memory_bytes = op->block.n_bytes;
    qplan_op_free(op);
    OK(select_op(&p, &op, &err), &err);
    qplan_op_free(op);
    device.memory_bytes--;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE, "grid_sample_2d_backward needs one block of",
          &err);
    sample_free(&s);
}

static void test_fp64(void **state)
{
    struct qp_gpu gpu = host_gpu;
    gpu.info.has_fp64 = false;
    struct qplan_device device = host_device(&host_gpu);
    const int64_t in[] = {3, 4}, out[] = {2, 2};
    struct sample s = sample_make(2, QPLAN_STORAGE_F16, 1, 1, in, out, &seed);
    struct problem p;
    struct qplan_op *op;
    struct qplan_error err;
    (void)state;
    device.gpu = &gpu;
    for (int k = 0; k < 2; k++) {
        sample_problem(&p, &s, k);
        p.preference.device = &device;
        FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE, "no 64-bit floats, which grid_sample_2d",
              &err);
    }
    sample_free(&s);
}

/* Without channels an image may be larger than any block: the points have a gradient of 0. */
static void test_no_channels(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    const int64_t in[] = {INT64_C(1) << 40, 7}, out[] = {3, 5};
    for (unsigned k = 0; k < 18; k++) {
        struct sample s = sample_make(2, dtypes[k % 4], 2, 0, in, out, &seed);
        struct problem p;
        (void)state;
        set_rule(&s, k);
        sample_problem(&p, &s, true);
        add_role(&p, &s, DINPUT);
        add_role(&p, &s, DGRID);
        same_on_device(&p, &device, "without channels");
        sample_free(&s);
    }
}

/* ---- Affine grids -----------------------------------------------------------------------------
 */

static void *random_data(enum qplan_storage dtype, size_t n)
{
    void *data = malloc(n * elem_bytes(dtype) + 1);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        put_datum(dtype, data, i);
    return data;
}

static void one_affine_grid(struct qplan_device *device, unsigned n_axes, bool is_backward)
{
    static const char *const names[2][2] = {{"affine_grid_2d", "affine_grid_2d_backward"},
                                            {"affine_grid_3d", "affine_grid_3d_backward"}};
    static const char *const fields[] = {"out_w", "out_h", "out_d"};
    const enum qplan_storage dtype = dtypes[random_below(&seed, 4)];
    const int64_t n_batch = (int64_t)random_below(&seed, 4);
    const int64_t theta_shape[] = {n_batch, n_axes, n_axes + 1};
    int64_t shape[5] = {n_batch};
    size_t n = (size_t)n_batch * n_axes;
    struct problem p = problem(names[n_axes - 2][is_backward]);
    for (unsigned i = 0; i < n_axes; i++) {
        shape[n_axes - i] = random_extent(n_axes == 2 ? 40 : 12);
        n *= (size_t)shape[n_axes - i];
        set_number(&p, fields[i], shape[n_axes - i]);
    }
    shape[n_axes + 1] = n_axes;
    set(&p, "align_corners", random_below(&seed, 2) ? "true" : "false");
    void *points = random_data(dtype, n);
    void *theta = random_data(dtype, (size_t)n_batch * n_axes * (n_axes + 1));
    if (is_backward)
        add(&p, "dout", dtype, n_axes + 2, shape, points);
    add(&p, is_backward ? "dtheta" : "theta", dtype, 3, theta_shape, theta);
    if (!is_backward)
        add(&p, "output", dtype, n_axes + 2, shape, points);
    same_on_device(&p, device, "affine");
    free(points);
    free(theta);
}

static void test_affine_grids(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    (void)state;
    for (int k = 0; k < N_AFFINE; k++)
        one_affine_grid(&device, 2 + (unsigned)k % 2, k / 2 % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),      cmocka_unit_test(test_many_taps_on_a_pixel),
        cmocka_unit_test(test_rounds),       cmocka_unit_test(test_memory),
        cmocka_unit_test(test_fp64),         cmocka_unit_test(test_no_channels),
        cmocka_unit_test(test_affine_grids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
