/*
 * test_plan_sources.c - checkpoints that no plan is made for: quantized before, by whatever tool,
 * or with a tensor where a sidecar would go.
 */
#include "own_folder.h"

/* What planning says of a checkpoint of these tensors. */
static enum qplan_status plan_of(const char *metadata, const struct tensor *tensors, size_t n,
                                 struct qplan_error *err)
{
    const char *path = in_folder(&folder, "q.safetensors");
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    struct qplan_plan *plan;
    write_checkpoint(path, metadata, tensors, n);
    struct qplan_checkpoint *checkpoint = open_checkpoint(path);
    enum qplan_status status = qplan_plan_make(&plan, checkpoint, &options, err);
    assert_int_equal(plan != NULL, status == QPLAN_OK);
    qplan_plan_free(plan);
    qplan_checkpoint_close(checkpoint);
    return status;
}

static void a_sidecar_must_not_take_a_name_of_the_source(void **state)
{
    static const char *const sidecars[] = {"w_scale", "w_zero_point"};
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(sidecars); i++) {
        struct tensor tensors[] = {{"w", "F32", 2, {2, 2}, NULL, 16},
                                   {sidecars[i], "F32", 1, {2}, NULL, 8}};
        assert_int_equal(plan_of(NULL, tensors, 2, &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, "name collision"));
        assert_non_null(strstr(err.message, "'w'"));
        assert_non_null(strstr(err.message, sidecars[i]));
    }
    /* No collision where the tensor is kept anyway. */
    struct tensor kept[] = {{"w", "F32", 1, {4}, NULL, 16}, {"w_scale", "F32", 1, {2}, NULL, 8}};
    OK(plan_of(NULL, kept, 2, &err), &err);
}

static void checkpoints_that_were_quantized_before_are_refused(void **state)
{
    static const char *const pairs[][3] = {
        {"w", "I8", "w_scale"},
        {"l.weight", "U8", "l.weight_scale"},
        {"l.weight", "I32", "l.scales"},
        {"l.weight", "F8_E4M3", "l.weight_scale_inv"},
        {"w", "F8_E5M2", "w_scale"},
        {"l.weight", "U8", "l.weight.absmax"},
        {"l.gate_blocks", "U8", "l.gate_scales"},
        {"l.weight", "F8_E4M3", "l.scale_weight"},
        {"l.qweight", "I8", "x"},
        {"l.weight_packed", "I8", "x"},
    };
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        size_t n_bytes = strcmp(pairs[i][1], "I32") == 0 ? 16 : 4;
        struct tensor tensors[] = {{pairs[i][0], pairs[i][1], 2, {2, 2}, NULL, n_bytes},
                                   {pairs[i][2], "F32", 1, {2}, NULL, 8}};
        if (plan_of(NULL, tensors, 2, &err) != QPLAN_ERR_INVALID)
            fail_msg("%s %s with %s was accepted", pairs[i][0], pairs[i][1], pairs[i][2]);
        assert_non_null(strstr(err.message, "already quantized"));
    }
}

/* The rule speaks of names, however long they are. */
static void quantized_tensors_with_long_names_are_noticed_too(void **state)
{
    char stem[1200], scale[1210];
    struct qplan_error err;
    (void)state;
    memset(stem, 'n', sizeof stem - 1);
    stem[sizeof stem - 1] = '\0';
    (void)snprintf(scale, sizeof scale, "%s_scale", stem);
    struct tensor tensors[] = {{stem, "I8", 2, {2, 2}, NULL, 4}, {scale, "F32", 1, {2}, NULL, 8}};
    assert_int_equal(plan_of(NULL, tensors, 2, &err), QPLAN_ERR_INVALID);
}

static void plain_checkpoints_with_similar_names_are_not_refused(void **state)
{
    struct tensor floats[] = {{"norm", "F32", 1, {2}, NULL, 8},
                              {"norm_scale", "F32", 1, {2}, NULL, 8}};
    struct tensor integers[] = {{"ids", "I64", 1, {2}, NULL, 16},
                                {"other_scale", "F32", 1, {2}, NULL, 8}};
    struct qplan_error err;
    (void)state;
    OK(plan_of(NULL, floats, 2, &err), &err);
    OK(plan_of(NULL, integers, 2, &err), &err);
}

static void the_native_layout_is_refused_with_a_hint(void **state)
{
    struct tensor plain = {"w", "F32", 2, {2, 2}, NULL, 16};
    struct qplan_error err;
    (void)state;
    assert_int_equal(
        plan_of("{\"qplan.layout\":\"1\",\"qplan.numerics\":\"1\",\"qplan.tensors\":\"{}\"}",
                &plain, 1, &err),
        QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "already quantized"));
    assert_int_equal(err.advice, QPLAN_ADVICE_DEQUANTIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sidecar_must_not_take_a_name_of_the_source),
        cmocka_unit_test(checkpoints_that_were_quantized_before_are_refused),
        cmocka_unit_test(quantized_tensors_with_long_names_are_noticed_too),
        cmocka_unit_test(plain_checkpoints_with_similar_names_are_not_refused),
        cmocka_unit_test(the_native_layout_is_refused_with_a_hint),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
