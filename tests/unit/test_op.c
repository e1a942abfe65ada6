/*
 * test_op.c - the life of an operator: what select, can_implement and run refuse, what they answer,
 * and that nothing is written when they refuse.
 */
#include "op_support.h"

static float x[6] = {1, -2, 3, -4, 5, -6};
static float s[2] = {0.5f, 2};
static int32_t z[2] = {1, -1};
static int8_t q[6];

/* quantize_per_channel of [2,3] on axis 0. */
static void small(struct problem *p)
{
    *p = problem("quantize_per_channel");
    memset(q, 99, sizeof q);
    add(p, "input", QPLAN_STORAGE_F32, 2, SHAPE(2, 3), x);
    add(p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(2), s);
    add(p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(2), z);
    add(p, "output", QPLAN_STORAGE_I8, 2, SHAPE(2, 3), q);
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < COUNT(q); i++)
        assert_int_equal(q[i], 99);
}

static void runs(void **state)
{
    static const int8_t codes[6] = {3, -3, 7, -3, 1, -4};
    struct problem p;
    struct qplan_error err;
    (void)state;
    small(&p);
    OK(run_op(&p, &err), &err);
    assert_memory_equal(q, codes, sizeof q);
    /* Without zero points; outputs need not be in the descriptor. */
    static const int8_t plain[6] = {2, -4, 6, -2, 2, -3};
    struct qplan_op *op;
    const struct qplan_op_desc desc = {p.op, NULL, 0, p.tensors, 2};
    OK(qplan_op_select(&op, &desc, NULL, &err), &err);
    void *workspace = malloc(qplan_op_workspace_size(op));
    const struct qplan_tensor tensors[] = {p.tensors[3], p.tensors[1], p.tensors[0]};
    const struct qplan_op_args args = {tensors, 3, NULL};
    OK(qplan_op_run(op, NULL, workspace, qplan_op_workspace_size(op), &args, &err), &err);
    assert_memory_equal(q, plain, sizeof q);
    free(workspace);
    qplan_op_free(op);
    qplan_op_free(NULL);
}

static void answers(void **state)
{
    struct problem p;
    struct qplan_error err;
    struct qplan_op *op;
    struct qplan_tensor out = {0};
    char text[256];
    (void)state;
    small(&p);
    p.preference.isa = QPLAN_ISA_SCALAR;
    OK(select_op(&p, &op, &err), &err);
    assert_true(qplan_op_output(op, 0, &out));
    assert_string_equal(out.name, "output");
    assert_int_equal(out.dtype, QPLAN_STORAGE_I8);
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.shape[1], 3);
    assert_false(qplan_op_output(op, 1, &out));
    const struct qplan_op_sku *sku = qplan_op_sku(op);
    (void)qplan_op_sku_print(sku, text, sizeof text);
    assert_string_equal(text, "quantize/quantize_per_channel/F32,F32,I32>I8/cpu/scalar");
    const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
    (void)qplan_op_guarantee_print(g, text, sizeof text);
    assert_string_equal(text, "f32, deterministic, bit-stable, thread-invariant");
    struct qplan_op_sku other = *sku;
    assert_true(qplan_op_sku_hash(&other) == qplan_op_sku_hash(sku));
    other.guarantee.deterministic = false;
    assert_true(qplan_op_sku_hash(&other) != qplan_op_sku_hash(sku));
    qplan_op_free(op);
}

/* ---- Select -----------------------------------------------------------------------------------
 */

static void select_refuses(void **state)
{
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p;
    (void)state;
    small(&p);
    p.op = "nope";
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "unknown operator 'nope'", &err);
    assert_null(op);
    small(&p);
    set(&p, "axes", "0");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "unknown field 'axes'", &err);
    small(&p);
    set_number(&p, "axis", 0);
    set(&p, "axis", "0");
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "axis: given more than once", &err);
    small(&p);
    set_number(&p, "output_dtype", 0);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "output_dtype: expected int8", &err);
    small(&p);
    set_number(&p, "axis", 2);
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "axis: no such axis", &err);
    small(&p);
    p.tensors[1].name = "scales";
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "unknown tensor 'scales'", &err);
    small(&p);
    p.tensors[1].name = "input";
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'input': given more than once", &err);
    small(&p);
    p.tensors[1].dtype = QPLAN_STORAGE_I32;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'scale': wrong dtype: expected F32", &err);
    small(&p);
    p.tensors[1].dtype = QPLAN_STORAGE_F64;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'scale': wrong dtype", &err);
    small(&p);
    p.shapes[1][0] = 3;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'scale': wrong shape: expected [2]", &err);
    small(&p);
    p.shapes[0][0] = -1;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'input': negative extent", &err);
    small(&p);
    p.shapes[0][0] = p.shapes[0][1] = INT64_C(1) << 40;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'input': too large", &err);
    small(&p);
    p.tensors[0].rank = QPLAN_MAX_RANK + 1;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'input': rank too high", &err);
    small(&p);
    p.tensors[3].dtype = QPLAN_STORAGE_U8;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'output': wrong dtype: expected I8", &err);
    small(&p);
    p.n_tensors = 1;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_INVALID, "'scale': missing", &err);
    assert_int_equal(select_op(&p, &op, NULL), QPLAN_ERR_INVALID); /* the error may be NULL */
}

static void preference_is_kept(void **state)
{
    struct qplan_error err;
    struct qplan_op *op;
    struct problem p;
    (void)state;
    small(&p);
    p.preference.backend = (enum qplan_backend)9;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE, "no backend has the number 9", &err);
    OK(qplan_device_open(&p.preference.device, "opencl:999", 0, &err), &err);
    p.preference.backend = QPLAN_BACKEND_CUDA;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_DEVICE, "expected cuda, found opencl", &err);
    p.preference.backend = QPLAN_BACKEND_CPU; /* then no device is asked for anything */
    OK(select_op(&p, &op, &err), &err);
    assert_int_equal(qplan_op_sku(op)->backend, QPLAN_BACKEND_CPU);
    qplan_op_free(op);
    qplan_device_close(p.preference.device);
    p.preference.device = NULL;
    p.preference.threads = 4;
    OK(select_op(&p, &op, &err), &err);
    const uint64_t four = qplan_op_workspace_size(op);
    qplan_op_free(op);
    p.preference.max_workspace_bytes = four - 1; /* fewer workers then */
    OK(select_op(&p, &op, &err), &err);
    assert_true(qplan_op_workspace_size(op) < four);
    qplan_op_free(op);
    p.preference.max_workspace_bytes = 0;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_UNSUPPORTED, "so small a workspace", &err);
    p.preference.threads = 1025;
    FAILS(select_op(&p, &op, &err), QPLAN_ERR_USAGE, "threads", &err);
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

static void buffers_are_checked(void **state)
{
    struct qplan_error err;
    struct problem p;
    static const int64_t negative[] = {-3, 1}, same[] = {0, 1}, wide[] = {INT64_MAX, 1};
    (void)state;
    small(&p);
    p.tensors[0].n_bytes--;
    FAILS(run_op(&p, &err), QPLAN_ERR_BUFFER,
          "'input': buffer too short: expected 24 bytes, found 23", &err);
    small(&p);
    p.tensors[0].stride = wide;
    FAILS(run_op(&p, &err), QPLAN_ERR_BUFFER, "'input': strides that no buffer can hold", &err);
    small(&p);
    p.tensors[0].data = NULL;
    FAILS(run_op(&p, &err), QPLAN_ERR_BUFFER, "'input': no buffer", &err);
    small(&p);
    p.tensors[0].data = (char *)x + 1;
    FAILS(run_op(&p, &err), QPLAN_ERR_MISALIGNED, "'input': misaligned", &err);
    small(&p);
    p.tensors[0].stride = negative;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'input': negative stride", &err);
    small(&p);
    p.tensors[3].stride = same;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'output': an output overlaps itself", &err);
    small(&p);
    p.tensors[3].data = (char *)x + 20;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'output': overlaps 'input'", &err);
    small(&p);
    p.tensors[3].data = s;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "'output': overlaps 'scale'", &err);
    assert_untouched();
}

/* can_implement compares with what was selected. */
static void arguments_must_be_those_selected(void **state)
{
    struct qplan_error err;
    struct problem p;
    struct qplan_op *op;
    (void)state;
    small(&p);
    OK(select_op(&p, &op, &err), &err);
    struct qplan_op_args args = {p.tensors, p.n_tensors, NULL};
    OK(qplan_op_can_implement(op, &args, &err), &err);
    p.tensors[1].dtype = QPLAN_STORAGE_F16;
    FAILS(qplan_op_can_implement(op, &args, &err), QPLAN_ERR_INVALID, "'scale': not the dtype",
          &err);
    p.tensors[1].dtype = QPLAN_STORAGE_F32;
    p.shapes[0][0] = 1;
    FAILS(qplan_op_can_implement(op, &args, &err), QPLAN_ERR_INVALID, "'input': not the shape",
          &err);
    p.shapes[0][0] = 2;
    args.n_tensors = 3;
    FAILS(qplan_op_can_implement(op, &args, &err), QPLAN_ERR_INVALID, "'output': missing", &err);
    p.tensors[2].name = "zeros";
    FAILS(qplan_op_can_implement(op, &args, &err), QPLAN_ERR_INVALID, "unknown tensor 'zeros'",
          &err);
    small(&p);
    args.n_tensors = 4;
    FAILS(qplan_op_run(op, NULL, NULL, 0, &args, &err), QPLAN_ERR_WORKSPACE, "found 0", &err);
    FAILS(qplan_op_run(op, (struct qplan_stream *)&p, NULL, 0, &args, &err), QPLAN_ERR_INVALID,
          "streams", &err);
    qplan_op_free(op);
    /* A zero point that the problem does not have is no detail to pass over. */
    p.n_tensors = 2;
    OK(select_op(&p, &op, &err), &err);
    FAILS(qplan_op_can_implement(op, &args, &err), QPLAN_ERR_INVALID, "'zero_point': not part",
          &err);
    p.tensors[2].data = NULL;
    OK(qplan_op_can_implement(op, &args, &err), &err);
    qplan_op_free(op);
    assert_untouched();
}

/* ---- Values -----------------------------------------------------------------------------------
 */

static void values_are_checked_first(void **state)
{
    struct qplan_error err;
    struct problem p;
    (void)state;
    small(&p);
    s[1] = 0;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE,
          "'scale': no scale: expected a finite number above 0, "
          "found 0.0 at [1], flat index 1",
          &err);
    s[1] = -INFINITY;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "found -inf", &err);
    s[1] = 2;
    z[1] = 128;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE,
          "'zero_point': out of range: expected -128 to 127, found 128 at [1], flat index 1", &err);
    z[1] = -1;
    x[4] = NAN;
    x[5] = INFINITY;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE,
          "'input': 2 values are not finite: expected none, found NaN at [1,1], flat index 4",
          &err);
    assert_untouched();
    set(&p, "nonfinite", "saturate");
    OK(run_op(&p, &err), &err);
    assert_int_equal(p.counts.nonfinite, 2);
    assert_int_equal(q[4], -1);
    assert_int_equal(q[5], 127);
    x[4] = 5;
    x[5] = -6;
    /* No zero point is a zero point of 0. */
    small(&p);
    p.tensors[2] = p.tensors[3];
    p.n_tensors = 3;
    set(&p, "q_min", "1");
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "found none, which means 0", &err);
    assert_untouched();
}

static void empty_is_fine(void **state)
{
    struct qplan_error err;
    struct problem p = problem("quantize_per_group");
    (void)state;
    set_number(&p, "group_size", 4);
    add(&p, "input", QPLAN_STORAGE_BF16, 3, SHAPE(2, 0, 8), NULL);
    add(&p, "scale", QPLAN_STORAGE_F32, 3, SHAPE(2, 0, 2), NULL);
    add(&p, "output", QPLAN_STORAGE_I8, 3, SHAPE(2, 0, 8), NULL);
    OK(run_op(&p, &err), &err);
    p.fields[0].number = 3;
    FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "group_size: does not divide", &err);
    /* Parameters without data are looked at all the same. */
    p = problem("quantize_per_channel");
    add(&p, "input", QPLAN_STORAGE_F32, 2, SHAPE(2, 0), NULL);
    add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(2), s);
    add(&p, "output", QPLAN_STORAGE_I8, 2, SHAPE(2, 0), NULL);
    OK(run_op(&p, &err), &err);
    /* A sum over nothing is 0, and is written. */
    float dweight[4] = {1, 2, 3, 4};
    p = problem("embedding_backward");
    set_number(&p, "num_embeddings", 2);
    add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(0, 2), NULL);
    add(&p, "indices", QPLAN_STORAGE_I64, 1, SHAPE(0), NULL);
    add(&p, "dweight", QPLAN_STORAGE_F32, 2, SHAPE(2, 2), dweight);
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < COUNT(dweight); i++)
        assert_true(dweight[i] == 0);
}

/* ---- The table --------------------------------------------------------------------------------
 */

/* What the framework expects of every row. */
static void rows_are_sound(void **state)
{
    const struct qplan_op_info *info;
    (void)state;
    for (size_t i = 0; (info = qplan_op_at(i)) != NULL; i++) {
        struct qplan_op_sku sku;
        bool picked, any = false;
        assert_ptr_equal(qplan_op_find(info->name), info);
        assert_true(info->n_fields <= 12 && info->n_arguments <= 8);
        assert_true(*info->summary && *info->formula && *info->oracle && *info->category);
        assert_int_equal(info->arguments[0].direction, QPLAN_OP_IN);
        for (size_t f = 0; f < info->n_fields; f++) {
            assert_true(*info->fields[f].about);
            assert_true(info->fields[f].type != QPLAN_FIELD_NAME || info->fields[f].names);
            assert_true(info->fields[f].type != QPLAN_FIELD_INT ||
                        info->fields[f].least < info->fields[f].most);
        }
        for (size_t k = 0; qplan_op_kernel(info, k, QPLAN_ISA_BEST, &sku, &picked); k++)
            any |= picked;
        if (!any)
            fail_msg("%s: no kernel", info->name);
    }
    assert_null(qplan_op_find("nope"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs),
        cmocka_unit_test(answers),
        cmocka_unit_test(select_refuses),
        cmocka_unit_test(preference_is_kept),
        cmocka_unit_test(buffers_are_checked),
        cmocka_unit_test(arguments_must_be_those_selected),
        cmocka_unit_test(values_are_checked_first),
        cmocka_unit_test(empty_is_fine),
        cmocka_unit_test(rows_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
