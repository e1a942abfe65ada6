/*
 * test_op_device_check.c - a device that proved itself and then computes wrong: operators see it in
 * the units that the CPU does again, refuse it, and write nothing. A device that is right is never
 * refused, though every unit is looked at.
 */
#include "tests/gpu/op_device.h"

#include "lib/ops/quant.h"
#include "tests/gpu/host_backend.h"

/* ---- A device that errs -----------------------------------------------------------------------
 */

/* Bytes of what comes back whose lowest bit is turned. They may end behind it. */
static struct qp_span wrong;

static enum qplan_status wrong_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                    void *host, struct qplan_error *err)
{
    unsigned char *bytes = host;
    QP_TRY(host_copy(lane, way, span, host, err));
    for (uint64_t i = wrong.off; way == QP_COPY_OUT && i < span.n && i - wrong.off < wrong.n; i++)
        bytes[i] ^= 1;
    return QPLAN_OK;
}

static struct qp_backend backend;
static struct qp_gpu gpu;

static struct qplan_device make_device(uint64_t checked_every)
{
    backend = host_backend;
    backend.copy = wrong_copy;
    gpu = host_gpu;
    gpu.backend = &backend;
    wrong = (struct qp_span){0, 0};
    struct qplan_device device = host_device(&gpu);
    device.checked_every = checked_every;
    return device;
}

/* Behind the status, which comes first. */
#define RESULTS 64

/* ---- Every case -------------------------------------------------------------------------------
 */

static void test_right(void **state)
{
    struct qplan_device device = make_device(1);
    (void)state;
    check_device(&device, 0);
}

static void check_wrong(const char *name, const struct golden *g, void *ctx)
{
    struct device_walk *walk = ctx;
    const struct way way = {QPLAN_ISA_BEST, 2, true, walk->n_cases % 2, walk->device};
    struct outcome found;
    if (!has_device_kernel(g->info))
        return;
    wrong.n = 0;
    enum qplan_status status = run_golden(g, &way, &found); /* and proves it */
    const bool counts = status == QPLAN_OK && found.out.n > 0;
    text_free(&found.out);
    if (!counts)
        return;
    wrong = (struct qp_span){RESULTS, UINT64_MAX};
    status = run_golden(g, &way, &found);
    if (status != QPLAN_ERR_DEVICE || !strstr(found.err.message, "not compute as the CPU does"))
        fail_msg("%s: %s", name, qplan_status_name(status));
    check_unwritten(g, &found.out);
    text_free(&found.out);
    atomic_store(&walk->device->differs, false);
    walk->n_cases++;
}

static void test_wrong(void **state)
{
    struct qplan_device device = make_device(1);
    struct device_walk walk = {.device = &device};
    (void)state;
    each_golden(check_wrong, &walk);
    printf("%zu wrong results refused\n", walk.n_cases);
    assert_true(walk.n_cases > 200);
}

/* ---- One unit ---------------------------------------------------------------------------------
 */

#define ROWS   6
#define COLS   5000 /* four units */
#define FILLED (ROWS * COLS)

struct problem {
    float input[FILLED], scale[ROWS];
    signed char output[FILLED];
    int32_t zero[ROWS];
    struct qplan_op *op;
    struct qplan_error err;
};

static const int64_t shape[] = {ROWS, COLS};
static const char *const dynamic = "dynamic_quantize_per_token";

/* The scale is an input of one operator and an output of the other. */
static void select_op(struct problem *p, const char *name, struct qplan_device *device)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    const struct qplan_tensor tensors[] = {
        {"input", QPLAN_STORAGE_F32, 2, shape, NULL, p->input, sizeof p->input},
        {"scale", QPLAN_STORAGE_F32, 1, shape, NULL, p->scale, sizeof p->scale}};
    const struct qplan_op_desc desc = {name, NULL, 0, tensors, name == dynamic ? 1 : 2};
    preference.device = device;
    for (size_t i = 0; i < FILLED; i++)
        p->input[i] = (float)(i % 701) / 7 - 40;
    for (size_t i = 0; i < ROWS; i++)
        p->scale[i] = 0.5f;
    OK(qplan_op_select(&p->op, &desc, &preference, &p->err), &p->err);
}

static enum qplan_status run_op(struct problem *p)
{
    const struct qplan_tensor tensors[] = {
        {"input", QPLAN_STORAGE_F32, 2, shape, NULL, p->input, sizeof p->input},
        {"scale", QPLAN_STORAGE_F32, 1, shape, NULL, p->scale, sizeof p->scale},
        {"output", QPLAN_STORAGE_I8, 2, shape, NULL, p->output, sizeof p->output},
        {"zero_point", QPLAN_STORAGE_I32, 1, shape, NULL, p->zero, sizeof p->zero}};
    const bool makes_zero = strcmp(qplan_op_sku(p->op)->op, dynamic) == 0;
    const struct qplan_op_args args = {tensors, makes_zero ? 4 : 3, NULL};
    const uint64_t n = qplan_op_workspace_size(p->op);
    void *workspace = malloc(n);
    memset(p->output, FILLER, sizeof p->output);
    const enum qplan_status status = qplan_op_run(p->op, NULL, workspace, n, &args, &p->err);
    free(workspace);
    return status;
}

static void assert_unwritten(const struct problem *p)
{
    for (size_t i = 0; i < FILLED; i++)
        assert_int_equal((unsigned char)p->output[i], FILLER);
}

/* The first unit of a device is looked at, then one in so many. */
static void test_which_units(void **state)
{
    struct qplan_device device = make_device(0);
    struct problem *p = calloc(1, sizeof *p);
    (void)state;
    select_op(p, "quantize_per_token", &device);
    wrong = (struct qp_span){RESULTS + QP_QUANT_UNIT - 1, 1};
    assert_int_equal(run_op(p), QPLAN_ERR_DEVICE);
    assert_string_equal(p->err.subject, "host");
    assert_string_equal(p->err.message, "the device does not compute as the CPU does: "
                                        "quantize_per_token of F32 on host C, driver none");
    assert_unwritten(p);
    wrong.n = 0;
    assert_int_equal(run_op(p), QPLAN_ERR_DEVICE); /* and stays refused */
    assert_unwritten(p);
    atomic_store(&device.differs, false);
    wrong = (struct qp_span){RESULTS, UINT64_MAX};
    assert_int_equal(run_op(p), QPLAN_OK); /* units 4 to 7 */
    assert_int_equal(atomic_load(&device.n_tiles), 8);
    atomic_store(&device.n_tiles, 999);
    wrong = (struct qp_span){RESULTS, QP_QUANT_UNIT}; /* unit 999 */
    assert_int_equal(run_op(p), QPLAN_OK);
    atomic_store(&device.n_tiles, 999);
    wrong = (struct qp_span){RESULTS + QP_QUANT_UNIT, 1}; /* unit 1000 */
    assert_int_equal(run_op(p), QPLAN_ERR_DEVICE);
    qplan_op_free(p->op);
    free(p);
}

/* Scales are made of whole sets; codes are looked at with the scales of the device. */
static void test_made_parameters(void **state)
{
    struct qplan_device device = make_device(0);
    struct problem *p = calloc(1, sizeof *p);
    const uint64_t scale = RESULTS + (FILLED + 63) / 64 * 64, zero = scale + 64;
    const uint64_t places[] = {RESULTS, scale, zero};
    (void)state;
    select_op(p, dynamic, &device);
    assert_int_equal(run_op(p), QPLAN_OK);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        device.checked_every = 1;
        wrong = (struct qp_span){places[i], 1};
        assert_int_equal(run_op(p), QPLAN_ERR_DEVICE);
        assert_unwritten(p);
        atomic_store(&device.differs, false);
    }
    qplan_op_free(p->op);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_which_units),
        cmocka_unit_test(test_made_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
