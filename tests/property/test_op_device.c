/*
 * test_op_device.c - operators on a device that is the device text as host C: every case of
 * testdata/ops, the limits of its memory, and each call of its driver failing in turn.
 */
#include "tests/gpu/op_device.h"

#include "tests/gpu/host_backend.h"

#include <limits.h>

static void test_every_case(void **state)
{
    struct qplan_device device = host_device(&host_gpu);
    (void)state;
    check_device(&device, 0);
}

/* ---- A small problem --------------------------------------------------------------------------
 */

#define N 600

struct small {
    float input[N], output[N], scale[6];
    struct qplan_op_preference preference;
    struct qplan_error err;
    struct qplan_op *op;
};

static const int64_t data_shape[] = {6, 100}, scale_shape[] = {6};

static size_t list(struct small *s, const char *const names[3], struct qplan_tensor out[3])
{
    out[0] = (struct qplan_tensor){names[0], QPLAN_STORAGE_F32, 2, data_shape, NULL,
                                   s->input, sizeof s->input};
    out[1] = (struct qplan_tensor){names[1], QPLAN_STORAGE_F32, 1, scale_shape, NULL,
                                   s->scale, sizeof s->scale};
    out[2] = (struct qplan_tensor){names[2],  QPLAN_STORAGE_F32, 2, data_shape, NULL,
                                   s->output, sizeof s->output};
    return 3;
}

static const char *const fake_names[] = {"input", "scale", "output"};

static void make_small(struct small *s, struct qplan_device *device)
{
    *s = (struct small){.preference = QPLAN_OP_PREFERENCE_DEFAULT};
    s->preference.device = device;
    for (size_t i = 0; i < N; i++)
        s->input[i] = (float)i / 7 - 40;
    for (size_t i = 0; i < 6; i++)
        s->scale[i] = 0.25f + (float)i / 3;
    memset(s->output, FILLER, sizeof s->output);
}

static enum qplan_status select_small(struct small *s)
{
    struct qplan_tensor tensors[3];
    const struct qplan_op_desc desc = {"fake_quantize_per_token", NULL, 0, tensors,
                                       list(s, fake_names, tensors)};
    return qplan_op_select(&s->op, &desc, &s->preference, &s->err);
}

static enum qplan_status run_small(struct small *s)
{
    struct qplan_tensor tensors[3];
    const struct qplan_op_args args = {tensors, list(s, fake_names, tensors), NULL};
    const uint64_t n = qplan_op_workspace_size(s->op);
    void *workspace = malloc(n);
    const enum qplan_status status = qplan_op_run(s->op, NULL, workspace, n, &args, &s->err);
    free(workspace);
    return status;
}

/* ---- Limits -----------------------------------------------------------------------------------
 */

#define REFUSED(s, part)                                                                           \
    do {                                                                                           \
        assert_int_equal(select_small(s), QPLAN_ERR_DEVICE);                                       \
        assert_null((s)->op);                                                                      \
        if (!strstr((s)->err.message, part))                                                       \
            fail_msg("expected '%s' in: %s", part, (s)->err.message);                              \
    } while (0)

static void test_memory(void **state)
{
    struct qp_gpu gpu = host_gpu;
    struct qplan_device device = host_device(&gpu);
    struct small s;
    (void)state;
    make_small(&s, &device);
    assert_int_equal(select_small(&s), QPLAN_OK);
    const uint64_t needed = s.op->block.n_bytes;
    assert_string_equal(qplan_op_sku(s.op)->arch, "host-C");
    assert_int_equal(qplan_op_sku(s.op)->backend, QPLAN_BACKEND_OPENCL);
    qplan_op_free(s.op);
    device.memory_bytes = needed;
    assert_int_equal(select_small(&s), QPLAN_OK);
    qplan_op_free(s.op);
    device.memory_bytes = needed - 1;
    REFUSED(&s, "fake_quantize_per_token needs one block of");
    device.memory_bytes = gpu.info.memory_bytes;
    gpu.info.block_bytes = needed - 1;
    REFUSED(&s, "bytes of device memory: expected at most");
    gpu.info.block_bytes = 0;
    s.preference.max_workspace_bytes = 100; /* no room for the results */
    assert_int_equal(select_small(&s), QPLAN_ERR_UNSUPPORTED);
    assert_non_null(strstr(s.err.message, "so small a workspace"));
}

/* Offsets have 32 bits, whatever memory there is. */
static void test_four_gigabytes(void **state)
{
    struct qp_gpu gpu = host_gpu;
    gpu.info.memory_bytes = UINT64_C(1) << 40;
    struct qplan_device device = host_device(&gpu);
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    static const int64_t shape[] = {1 << 15, 1 << 14}, sets[] = {1 << 15};
    const struct qplan_tensor tensors[] = {
        {.name = "input", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = shape},
        {.name = "scale", .dtype = QPLAN_STORAGE_F32, .rank = 1, .shape = sets}};
    const struct qplan_op_desc desc = {"fake_quantize_per_token", NULL, 0, tensors, 2};
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    preference.device = &device;
    assert_int_equal(qplan_op_select(&op, &desc, &preference, &err), QPLAN_ERR_DEVICE);
    assert_non_null(strstr(err.message, "expected at most 4294967232"));
}

static void test_fp64(void **state)
{
    struct qp_gpu gpu = host_gpu;
    gpu.info.has_fp64 = false;
    struct qplan_device device = host_device(&gpu);
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    const struct qplan_tensor tensors[] = {
        {.name = "dout", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = data_shape},
        {.name = "input", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = data_shape},
        {.name = "scale", .dtype = QPLAN_STORAGE_F32, .rank = 1, .shape = scale_shape}};
    struct qplan_op_desc desc = {"fake_quantize_learnable_per_token_backward", NULL, 0, tensors, 3};
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    preference.device = &device;
    assert_int_equal(qplan_op_select(&op, &desc, &preference, &err), QPLAN_ERR_DEVICE);
    assert_non_null(strstr(err.message, "no 64-bit floats, which fake_quantize_learnable"));
    desc.op = "fake_quantize_per_token_backward"; /* no sums: f32 is enough */
    assert_int_equal(qplan_op_select(&op, &desc, &preference, &err), QPLAN_OK);
    qplan_op_free(op);
}

/* auto: the CPU where copying does not pay, and where the device cannot do it. */
static void test_auto(void **state)
{
    struct qp_gpu gpu = host_gpu;
    gpu.info.memory_bytes = UINT64_C(1) << 40;
    struct qplan_device device = host_device(&gpu);
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    int64_t shape[] = {1 << 14, 1 << 13};
    const struct qplan_tensor tensors[] = {
        {.name = "dout", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = shape},
        {.name = "input", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = shape},
        {.name = "scale", .dtype = QPLAN_STORAGE_F32, .rank = 1, .shape = shape}};
    const struct qplan_op_desc desc = {"fake_quantize_learnable_per_token_backward", NULL, 0,
                                       tensors, 3};
    (void)state;
    device.backend = QPLAN_BACKEND_ANY;
    preference.device = &device;
    preference.threads = 1;
    for (int i = 0; i < 3; i++) {
        struct qplan_error err;
        struct qplan_op *op;
        gpu.info.has_fp64 = i != 1;
        shape[0] >>= i == 2 ? 4 : 0;
        OK(qplan_op_select(&op, &desc, &preference, &err), &err);
        assert_int_equal(qplan_op_sku(op)->backend,
                         i == 0 ? QPLAN_BACKEND_OPENCL : QPLAN_BACKEND_CPU);
        qplan_op_free(op);
    }
}

/* ---- A driver that fails ----------------------------------------------------------------------
 */

/* Counts down with every call; the one that meets 0 fails. */
static int until_failure;

static bool fails_now(void)
{
    return until_failure-- == 0;
}

static enum qplan_status fail_call(struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_DEVICE, "host", "the device is lost");
}

static enum qplan_status lost_alloc(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                                    struct qplan_error *err)
{
    *out = NULL;
    return fails_now() ? fail_call(err) : host_alloc(out, gpu, n_bytes, err);
}

static enum qplan_status lost_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                   void *host, struct qplan_error *err)
{
    return fails_now() ? fail_call(err) : host_copy(lane, way, span, host, err);
}

static enum qplan_status lost_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                     struct qplan_error *err)
{
    return fails_now() ? fail_call(err) : host_launch(lane, launch, err);
}

static enum qplan_status lost_sync(struct qp_lane *lane, struct qplan_error *err)
{
    return fails_now() ? fail_call(err) : host_sync(lane, err);
}

static bool is_filler(const struct small *s)
{
    const unsigned char *bytes = (const unsigned char *)s->output;
    size_t i = 0;
    while (i < sizeof s->output && bytes[i] == FILLER)
        i++;
    return i == sizeof s->output;
}

static void test_each_call_fails(void **state)
{
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    struct qplan_device device = host_device(&gpu);
    struct small s;
    int n_failures = 0;
    (void)state;
    backend.alloc = lost_alloc;
    backend.copy = lost_copy;
    backend.launch = lost_launch;
    backend.sync = lost_sync;
    gpu.backend = &backend;
    until_failure = INT_MAX;
    make_small(&s, &device);
    assert_int_equal(select_small(&s), QPLAN_OK);
    for (;; n_failures++) {
        until_failure = n_failures;
        if (run_small(&s) == QPLAN_OK)
            break;
        assert_string_equal(s.err.message, "the device is lost");
        assert_true(is_filler(&s));
    }
    assert_false(is_filler(&s));
    assert_true(n_failures >= 7); /* alloc, three copies in, a launch, a copy out, a sync */
    qplan_op_free(s.op);
}

/* A proof that does not come to its end is none. */
static void test_each_call_of_a_proof_fails(void **state)
{
    struct qp_backend backend = host_backend;
    struct qp_gpu gpu = host_gpu;
    struct small s;
    int n_failures = 0;
    (void)state;
    backend.alloc = lost_alloc;
    backend.copy = lost_copy;
    backend.launch = lost_launch;
    backend.sync = lost_sync;
    gpu.backend = &backend;
    for (;; n_failures++) {
        struct qplan_device device = host_device(&gpu);
        until_failure = n_failures;
        make_small(&s, &device);
        if (select_small(&s) == QPLAN_OK)
            break;
        assert_string_equal(s.err.message, "the device is lost");
        assert_int_equal(device.n_proven, 0);
    }
    assert_true(n_failures > 10);
    qplan_op_free(s.op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_four_gigabytes),
        cmocka_unit_test(test_fp64),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_each_call_fails),
        cmocka_unit_test(test_each_call_of_a_proof_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
