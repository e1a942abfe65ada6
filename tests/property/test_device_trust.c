/*
 * test_device_trust.c - what a device has shown is kept, whoever asked for it, and so is what it
 * did wrong: a job over tensors and an operator share one record. The device is the host, which can
 * be made to err.
 */
#include "tests/unit/support.h"

#include "lib/device/prove.h"
#include "lib/ops/op_device.h"
#include "tests/gpu/host_backend.h"

static size_t n_launches;
static bool errs;

static enum qplan_status counting_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                         struct qplan_error *err)
{
    n_launches++;
    return host_launch(lane, launch, err);
}

/* One other bit behind the status, which comes first. */
static enum qplan_status erring_copy(struct qp_lane *lane, enum qp_copy_way way,
                                     struct qp_span span, void *host, struct qplan_error *err)
{
    QP_TRY(host_copy(lane, way, span, host, err));
    if (errs && way == QP_COPY_OUT && span.n > 64)
        ((unsigned char *)host)[64] ^= 1;
    return QPLAN_OK;
}

static struct qp_backend backend;
static struct qp_gpu gpu;

static struct qplan_device make_device(void)
{
    backend = host_backend;
    backend.launch = counting_launch;
    backend.copy = erring_copy;
    gpu = host_gpu;
    gpu.backend = &backend;
    errs = false;
    return host_device(&gpu);
}

static struct qp_device_need need_of(enum qplan_dtype code)
{
    const struct qp_device_row row = {.kind = QP_KIND_QUANTIZE,
                                      .dtype = QPLAN_F32,
                                      .scheme = {.dtype = code, .scale_dtype = QPLAN_F32}};
    struct qp_device_need need = {.n_rows = 0};
    qp_need_add(&need, &row, UINT64_C(1) << 40, "w", 1);
    return need;
}

static enum qplan_status select_on(struct qplan_device *device, struct qplan_op **op,
                                   struct qplan_error *err)
{
    static const int64_t shape[] = {8, 64}, sets[] = {8};
    const struct qplan_tensor tensors[] = {
        {.name = "input", .dtype = QPLAN_STORAGE_F32, .rank = 2, .shape = shape},
        {.name = "scale", .dtype = QPLAN_STORAGE_F32, .rank = 1, .shape = sets}};
    const struct qplan_op_desc desc = {"quantize_per_token", NULL, 0, tensors, 2};
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    preference.device = device;
    return qplan_op_select(op, &desc, &preference, err);
}

/* ---- What was shown ---------------------------------------------------------------------------
 */

static void test_a_job_proves_what_is_new(void **state)
{
    struct qplan_device device = make_device();
    const struct qp_device_need first = need_of(QPLAN_INT8), second = need_of(QPLAN_UINT4);
    struct qplan_error err;
    (void)state;
    n_launches = 0;
    OK(qp_device_take(&device, &first, 1, &err), &err);
    const size_t n_first = n_launches;
    assert_true(n_first > 0 && device.used);
    OK(qp_device_take(&device, &first, 1, &err), &err);
    assert_int_equal(n_launches, n_first);
    OK(qp_device_take(&device, &second, 1, &err), &err);
    assert_true(n_launches > n_first);
}

static void test_an_operator_proves_what_is_new(void **state)
{
    struct qplan_device device = make_device();
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    n_launches = 0;
    OK(select_on(&device, &op, &err), &err);
    qplan_op_free(op);
    const size_t n_first = n_launches;
    assert_true(n_first > 0);
    OK(select_on(&device, &op, &err), &err);
    qplan_op_free(op);
    assert_int_equal(n_launches, n_first);
}

static enum qplan_status count_run(void *ctx, struct qplan_error *err)
{
    (void)err;
    ++*(size_t *)ctx;
    return QPLAN_OK;
}

/* Everything there is fits the record. What would not fit is proven whenever it is asked for. */
static void test_the_record(void **state)
{
    struct qplan_device device = make_device();
    const size_t room = COUNT(device.proven);
    struct qplan_error err;
    size_t n_runs = 0;
    (void)state;
    OK(qp_device_prove_all_rows(&device, &err), &err);
    OK(qp_op_prove_all(&device, NULL, &err), &err);
    printf("%zu of %zu places of the record are taken\n", device.n_proven, room);
    assert_true(device.n_proven < room);
    for (size_t i = 0; i < 2 * room; i++) /* each twice */
        OK(qp_device_prove(&device, (struct qp_device_proof){&n_runs, (uint32_t)i / 2}, count_run,
                           &n_runs, &err),
           &err);
    assert_int_equal(device.n_proven, room);
    assert_true(n_runs > room && n_runs < 2 * room);
}

/* ---- What was wrong ---------------------------------------------------------------------------
 */

#define REFUSED(call, err)                                                                         \
    do {                                                                                           \
        assert_int_equal(call, QPLAN_ERR_DEVICE);                                                  \
        assert_string_equal((err)->subject, "host");                                               \
        assert_non_null(strstr((err)->message, "the device does not compute as the CPU does"));    \
    } while (0)

/* Neither a job nor an operator uses it any more, though it does nothing wrong again. */
static void stays_refused(struct qplan_device *device)
{
    const struct qp_device_need need = need_of(QPLAN_INT8), nothing = {.n_rows = 0};
    struct qplan_error err;
    struct qplan_op *op;
    errs = false;
    REFUSED(qp_device_take(device, &need, 1, &err), &err);
    REFUSED(qp_device_take(device, &nothing, 1, &err), &err);
    REFUSED(select_on(device, &op, &err), &err);
    assert_false(device->used);
    device->backend = QPLAN_BACKEND_ANY; /* as one that auto has found */
    OK(qp_device_take(device, &need, 1, &err), &err);
    assert_false(device->used);
}

static void test_after_a_wrong_proof(void **state)
{
    struct qplan_device device = make_device();
    const struct qp_device_need need = need_of(QPLAN_INT8);
    struct qplan_error err;
    (void)state;
    errs = true;
    REFUSED(qp_device_take(&device, &need, 1, &err), &err);
    stays_refused(&device);
}

static void test_after_a_wrong_example(void **state)
{
    struct qplan_device device = make_device();
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    errs = true;
    REFUSED(select_on(&device, &op, &err), &err);
    stays_refused(&device);
}

/* One tile of a job, which is looked at again. */
static void test_after_a_wrong_tile(void **state)
{
    enum { ROWS = 4, COLS = 64 };
    static float src[ROWS * COLS], lo[ROWS], hi[ROWS], scale[ROWS], stored[ROWS];
    static int32_t zero[ROWS];
    static uint8_t codes[ROWS * COLS];
    struct qplan_device device = make_device();
    const struct qp_device_need need = need_of(QPLAN_INT8);
    const struct qplan_scheme scheme = qp_row_of(need.rows[0]).scheme;
    const struct qp_device_work work = {.dtype = QPLAN_F32,
                                        .tile = {ROWS, COLS, 1, COLS, 0},
                                        .rule = qp_code_rule(&scheme),
                                        .last_len = COLS};
    const struct qp_device_scratch scratch = {lo, hi, scale, zero, stored, codes};
    void *buffer = malloc(qp_device_made_bytes(sizeof src));
    struct qp_device_made made;
    struct qp_lane *lane;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < ROWS * COLS; i++)
        src[i] = (float)i - 100;
    OK(qp_device_take(&device, &need, 1, &err), &err);
    OK(backend.alloc(&lane, &gpu, qp_device_block_bytes(sizeof src), &err), &err);
    OK(qp_device_quantize(lane, &work, src, buffer, &made, &err), &err);
    OK(qp_device_check_quantized(&device, &work, src, &made, &scratch, &err), &err);
    errs = true;
    OK(qp_device_quantize(lane, &work, src, buffer, &made, &err), &err);
    REFUSED(qp_device_check_quantized(&device, &work, src, &made, &scratch, &err), &err);
    backend.free(lane);
    free(buffer);
    stays_refused(&device);
}

/* One unit of an operator, which is looked at again. */
static void test_after_a_wrong_unit(void **state)
{
    static float input[8 * 64], scale[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static int8_t output[8 * 64];
    static const int64_t shape[] = {8, 64};
    const struct qplan_tensor tensors[] = {
        {"input", QPLAN_STORAGE_F32, 2, shape, NULL, input, sizeof input},
        {"scale", QPLAN_STORAGE_F32, 1, shape, NULL, scale, sizeof scale},
        {"output", QPLAN_STORAGE_I8, 2, shape, NULL, output, sizeof output}};
    const struct qplan_op_args args = {tensors, COUNT(tensors), NULL};
    struct qplan_device device = make_device();
    struct qplan_error err;
    struct qplan_op *op;
    (void)state;
    OK(select_on(&device, &op, &err), &err);
    const uint64_t n = qplan_op_workspace_size(op);
    void *workspace = malloc(n);
    errs = true;
    REFUSED(qplan_op_run(op, NULL, workspace, n, &args, &err), &err);
    stays_refused(&device);
    device.backend = QPLAN_BACKEND_OPENCL;
    REFUSED(qplan_op_run(op, NULL, workspace, n, &args, &err), &err);
    free(workspace);
    qplan_op_free(op);
}

/* ---- More kinds of work than are kept ---------------------------------------------------------
 */

static void test_more_rows_than_room(void **state)
{
    static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    struct {
        struct qp_device_need need;
        char behind[1 << 16]; /* where rows that do not fit would go */
    } *room = calloc(1, sizeof *room);
    struct qplan_device device = make_device();
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(floats) * 2 * 2 * 4 * 2 * 14; i++) {
        const struct qp_device_row row = {.kind = QP_KIND_QUANTIZE,
                                          .dtype = floats[i % 4],
                                          .scheme = {.dtype = qp_code_types[i / 128].dtype,
                                                     .asymmetric = i / 4 % 2,
                                                     .narrow = i / 8 % 2,
                                                     .bias = i / 64 % 2,
                                                     .scale_dtype = floats[i / 16 % 4]}};
        qp_need_add(&room->need, &row, 1, "w", 1);
        assert_true(room->need.n_rows <= QP_MOST_ROWS);
    }
    for (size_t i = 0; i < sizeof room->behind; i++)
        assert_int_equal(room->behind[i], 0);
    assert_int_equal(qp_device_take(&device, &room->need, 1, &err), QPLAN_ERR_DEVICE);
    assert_non_null(strstr(err.message, "kinds of work"));
    free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_proves_what_is_new),
        cmocka_unit_test(test_an_operator_proves_what_is_new),
        cmocka_unit_test(test_the_record),
        cmocka_unit_test(test_after_a_wrong_proof),
        cmocka_unit_test(test_after_a_wrong_example),
        cmocka_unit_test(test_after_a_wrong_tile),
        cmocka_unit_test(test_after_a_wrong_unit),
        cmocka_unit_test(test_more_rows_than_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
