/*
 * test_family.c - tensors that engines load as one agree, or the plan is refused.
 */
#include "lib/plan/plan.h"
#include "own_folder.h"

#define BLOCK "m.layers.0."

/* An attention, a feed-forward layer, MLA, two experts and a tensor that is of no family. */
static const struct tensor model[] = {
    {BLOCK "self_attn.q_proj.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "self_attn.k_proj.weight", "F32", 2, {4, 8}, NULL, 128},
    {BLOCK "self_attn.v_proj.weight", "F32", 2, {4, 8}, NULL, 128},
    {BLOCK "self_attn.o_proj.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "self_attn.q_a_proj.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "self_attn.kv_a_proj_with_mqa.weight", "F32", 2, {6, 8}, NULL, 192},
    {BLOCK "mlp.gate_proj.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "mlp.up_proj.weight", "F32", 2, {8, 6}, NULL, 192},
    {BLOCK "mlp.experts.0.w1.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "mlp.experts.0.w2.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "mlp.experts.10.w1.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "mlp.experts.10.w2.weight", "F32", 2, {8, 8}, NULL, 256},
    {BLOCK "mlp.experts.10.w2.bias", "F32", 1, {8}, NULL, 32},
    {"m.layers.1.self_attn.q_proj.weight", "F32", 2, {8, 8}, NULL, 256},
};

struct planned {
    struct qplan_checkpoint *checkpoint;
    struct qplan_plan *plan;
    struct qplan_error err;
};

static struct planned plan_with(const struct qplan_plan_options *options)
{
    const char *path = in_folder(&folder, "m.safetensors");
    write_checkpoint(path, NULL, model, COUNT(model));
    struct planned p = {.checkpoint = open_checkpoint(path)};
    const enum qplan_status status = qplan_plan_make(&p.plan, p.checkpoint, options, &p.err);
    assert_int_equal(status == QPLAN_OK, p.plan != NULL);
    assert_true(status == QPLAN_OK || status == QPLAN_ERR_INVALID);
    return p;
}

static void free_planned(struct planned *p)
{
    qplan_plan_free(p->plan);
    qplan_checkpoint_close(p->checkpoint);
}

static const struct qp_plan_tensor *tensor_of(const struct planned *p, const char *name)
{
    const struct qp_plan_tensor *t = qp_plan_find(p->plan, name, strlen(name));
    assert_non_null(t);
    return t;
}

static void assert_kept(const struct planned *p, const char *name, const char *reason)
{
    const struct qp_plan_tensor *t = tensor_of(p, name);
    if (qp_is_quantized(t) || strcmp(t->reason, reason) != 0)
        fail_msg("%s: %s", name, t->reason ? t->reason : "quantized");
}

static void assert_quantized(const struct planned *p, const char *name)
{
    if (!qp_is_quantized(tensor_of(p, name)))
        fail_msg("%s: %s", name, tensor_of(p, name)->reason);
}

/* ---- Divided by what is asked ---------------------------------------------------------------- */

static void a_divided_family_is_refused_by_name(void **state)
{
    static const struct {
        const char *rules, *family;
    } rows[] = {
        {"*.k_proj.* keep\n* int8", BLOCK "self_attn.{q_proj,k_proj,v_proj}.weight"},
        {"*.v_proj.* int8:t\n* int8", BLOCK "self_attn.{q_proj,k_proj,v_proj}.weight"},
        {"*.up_proj.* int8:t\n* int8", BLOCK "mlp.{gate_proj,up_proj}.weight"},
        {"*.kv_a_proj* int8:t\n* int8", BLOCK "self_attn.{q_a_proj,kv_a_proj_with_mqa}.weight"},
        {"*.experts.10.w2.* keep\n* int8", BLOCK "mlp.experts.*.weight"},
        {"*.experts.*.w2.* int8:t\n* int8", BLOCK "mlp.experts.*.weight"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                             .select = QPLAN_SELECT_LINEAR,
                                             .rules = rows[i].rules,
                                             .n_rules = strlen(rows[i].rules)};
        struct planned p = plan_with(&options);
        assert_null(p.plan);
        if (!strstr(p.err.message, rows[i].family))
            fail_msg("expected %s in: %s", rows[i].family, p.err.message);
        free_planned(&p);

        options.select = QPLAN_SELECT_ALL; /* nothing fuses tensors of the native layout */
        p = plan_with(&options);
        assert_non_null(p.plan);
        free_planned(&p);
    }
}

static void the_message_says_who_divides_it(void **state)
{
    const char *exclude[] = {"*.0.*k_proj*"};
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .select = QPLAN_SELECT_LINEAR,
                                               .exclude = exclude,
                                               .n_exclude = 1};
    (void)state;
    struct planned p = plan_with(&options);
    assert_string_equal(p.err.message,
                        "the family " BLOCK
                        "self_attn.{q_proj,k_proj,v_proj}.weight is divided: '" BLOCK
                        "self_attn.k_proj.weight' is kept by 'exclude:*.0.*k_proj*', '" BLOCK
                        "self_attn.q_proj.weight' is int8:c0 by 'select:linear'");
    assert_non_null(strstr(p.err.hint, "one scheme"));
    free_planned(&p);
}

/* Another layer, and what is beside a family, may have schemes of their own. */
static void families_are_of_one_prefix(void **state)
{
    static const char rules[] = "*.1.* int8:t\n*.o_proj.* keep\n*.q_a* int4:g2\n*.kv_a* int4:g2\n"
                                "*.experts.* int8:g4\n* int8\n";
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .select = QPLAN_SELECT_LINEAR,
                                               .rules = rules,
                                               .n_rules = sizeof rules - 1};
    (void)state;
    struct planned p = plan_with(&options);
    OK(p.plan ? QPLAN_OK : QPLAN_ERR_INVALID, &p.err);
    assert_int_equal(p.plan->n_quantized, COUNT(model) - 2);
    free_planned(&p);
}

/* ---- Divided by shapes and the layout -------------------------------------------------------- */

static void where_one_does_not_divide_all_are_kept(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8:g4"),
                                         .select = QPLAN_SELECT_LINEAR,
                                         .indivisible = QPLAN_INDIVISIBLE_KEEP};
    (void)state;
    struct planned p = plan_with(&options);
    OK(p.plan ? QPLAN_OK : QPLAN_ERR_INVALID, &p.err);
    assert_kept(&p, BLOCK "mlp.up_proj.weight", "indivisible");
    assert_kept(&p, BLOCK "mlp.gate_proj.weight", "indivisible");
    assert_string_equal(tensor_of(&p, BLOCK "mlp.gate_proj.weight")->rule, "select:linear");
    assert_quantized(&p, BLOCK "self_attn.q_proj.weight");
    assert_int_equal(p.plan->n_quantized, COUNT(model) - 3);
    free_planned(&p);

    options.select = QPLAN_SELECT_ALL;
    p = plan_with(&options);
    assert_kept(&p, BLOCK "mlp.up_proj.weight", "indivisible");
    assert_quantized(&p, BLOCK "mlp.gate_proj.weight");
    free_planned(&p);
}

static const char *not_expert_10(const struct qp_tensor *tensor)
{
    return strstr(tensor->name, "experts.10.w2") ? "row length not a multiple of 32" : NULL;
}

static void where_the_layout_cannot_store_one_all_are_kept(void **state)
{
    const struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                               .select = QPLAN_SELECT_LINEAR};
    struct qp_format picky = *qp_format_find("qplan");
    (void)state;
    picky.misfit = not_expert_10;
    struct planned p = plan_with(&options);
    OK(p.plan ? QPLAN_OK : QPLAN_ERR_INVALID, &p.err);
    p.plan->format = &picky;
    OK(qp_plan_check(p.plan, &p.err), &p.err);
    assert_int_equal(p.plan->n_quantized, COUNT(model) - 5);
    assert_kept(&p, BLOCK "mlp.experts.0.w1.weight", "row length not a multiple of 32");
    assert_kept(&p, BLOCK "mlp.experts.10.w2.weight", "row length not a multiple of 32");
    assert_kept(&p, BLOCK "mlp.experts.10.w2.bias", "rank 1");
    free_planned(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_divided_family_is_refused_by_name),
        cmocka_unit_test(the_message_says_who_divides_it),
        cmocka_unit_test(families_are_of_one_prefix),
        cmocka_unit_test(where_one_does_not_divide_all_are_kept),
        cmocka_unit_test(where_the_layout_cannot_store_one_all_are_kept),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
