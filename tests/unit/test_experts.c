/*
 * test_experts.c - what the type of a model says of its experts, by names of real models.
 */
#include "formats/experts.h"
#include "support.h"

/* A checkpoint of which nothing is known but its config.json. */
struct model {
    struct qp_tree tree;
    struct qp_listing listing;
};

static void make_model(struct model *model, const char *config)
{
    *model = (struct model){.tree = {.name = "config.json"}};
    assert_int_equal(qp_tree_read(&model->tree, config, strlen(config)), QPLAN_OK);
    model->listing.config = &model->tree;
}

static struct qp_tensor tensor_of(const char *name, unsigned rank)
{
    static const uint64_t shape[] = {8, 8, 8};
    return (struct qp_tensor){.name = name,
                              .name_len = (uint32_t)strlen(name),
                              .shape = shape,
                              .rank = (uint8_t)rank,
                              .storage = QPLAN_STORAGE_BF16};
}

static void types_are_whole_words(void **state)
{
    static const struct {
        const char *config;
        bool is_llama4;
    } rows[] = {
        {"{\"model_type\":\"llama4_text\"}", true},
        {"{\"model_type\":\"llama4\",\"text_config\":{\"model_type\":\"llama4_text\"}}", true},
        {"{\"model_type\":\"llama4\"}", false},
        {"{\"model_type\":\"llama4_tex\"}", false},
        {"{\"model_type\":\"llama4_text x\"}", false},
        {"{\"model_type\":\"\"}", false},
        {"{\"model_type\":4}", false},
        {"{\"text_config\":[]}", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct model model;
        make_model(&model, rows[i].config);
        assert_int_equal(qp_is_model_type(&model.listing, "x llama4_text  y"), rows[i].is_llama4);
        assert_int_equal(qp_knows_experts(&model.listing), rows[i].is_llama4);
        qp_tree_free(&model.tree);
    }
    assert_false(qp_is_model_type(NULL, "llama4_text"));
}

/* Names as transformers and vLLM load them, found by loading such folders. */
static void fused_experts_get_the_names_of_single_ones(void **state)
{
    static const struct {
        const char *config, *name, *first, *last; /* NULL: it is not fused */
        unsigned rank;
        bool turned;
    } rows[] = {
        {"{\"model_type\":\"llama4_text\"}", "model.layers.0.feed_forward.experts.gate_up_proj",
         "model.layers.0.feed_forward.experts.7.gate_proj.weight",
         "model.layers.0.feed_forward.experts.7.up_proj.weight", 3, true},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.0.mlp.experts.down_proj",
         "model.layers.0.mlp.experts.7.down_proj.weight",
         "model.layers.0.mlp.experts.7.down_proj.weight", 3, false},
        {"{\"model_type\":\"granitemoehybrid\"}",
         "model.layers.0.block_sparse_moe.input_linear.weight",
         "model.layers.0.block_sparse_moe.experts.7.gate_proj.weight",
         "model.layers.0.block_sparse_moe.experts.7.up_proj.weight", 3, false},
        {"{\"model_type\":\"granitemoehybrid\"}", "model.layers.0.shared_mlp.input_linear.weight",
         NULL, NULL, 2, false},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.0.mlp.experts.down_proj", NULL, NULL, 2,
         false},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.0.mlp.experts.gate_up_proj_bias", NULL,
         NULL, 3, false},
        {"{\"model_type\":\"gpt_oss\"}", "model.layers.0.mlp.experts.gate_up_proj",
         "model.layers.0.mlp.experts.7.gate_up_proj.weight", NULL, 3, true},
        {"{\"model_type\":\"gpt_oss\"}", "model.layers.0.mlp.experts.gate_up_proj_bias", NULL, NULL,
         2, false},
    };
    struct qp_arena arena = {NULL};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qp_tensor t = tensor_of(rows[i].name, rows[i].rank);
        struct qp_fused_experts how;
        struct model model;
        make_model(&model, rows[i].config);
        assert_int_equal(qp_find_fused_experts(&model.listing, &t, &how), rows[i].first != NULL);
        for (unsigned k = 0; rows[i].first && k < how.n; k++)
            assert_string_equal(
                qp_expert_name(&arena, t.name, how.n_prefix, how.single, 7, how.projections[k]),
                k ? rows[i].last : rows[i].first);
        if (rows[i].first)
            assert_int_equal(how.turned, rows[i].turned);
        qp_tree_free(&model.tree);
    }
    qp_arena_free(&arena);
}

/* The names of the parameters of the model in mlx-lm. */
static void experts_of_gpt_oss_are_divided(void **state)
{
    static const char gpt_oss[] = "{\"model_type\":\"gpt_oss\"}";
    static const struct {
        const char *config, *name, *first, *last; /* NULL: it is not divided, or has one */
        unsigned rank;
    } rows[] = {
        {gpt_oss, "m.mlp.experts.gate_up_proj", ".mlp.experts.gate_proj.weight",
         ".mlp.experts.up_proj.weight", 3},
        {gpt_oss, "m.mlp.experts.gate_up_proj_bias", ".mlp.experts.gate_proj.bias",
         ".mlp.experts.up_proj.bias", 2},
        {gpt_oss, "m.mlp.experts.down_proj", ".mlp.experts.down_proj.weight", NULL, 3},
        {gpt_oss, "m.mlp.experts.down_proj_bias", ".mlp.experts.down_proj.bias", NULL, 2},
        {gpt_oss, "m.mlp.experts.down_proj", NULL, NULL, 2},
        {gpt_oss, "m.mlp.experts.down_proj_bias", NULL, NULL, 3},
        {gpt_oss, "m.mlp.experts.down_proj.weight", NULL, NULL, 3},
        {"{\"model_type\":\"qwen3_moe\"}", "m.mlp.experts.down_proj", NULL, NULL, 3},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qp_tensor t = tensor_of(rows[i].name, rows[i].rank);
        struct qp_divided how;
        struct model model;
        make_model(&model, rows[i].config);
        assert_int_equal(qp_find_divided_experts(&model.listing, &t, &how), rows[i].first != NULL);
        if (rows[i].first) {
            assert_int_equal(how.n_prefix, 1);
            assert_int_equal(how.n, rows[i].last ? 2 : 1);
            assert_string_equal(how.names[0], rows[i].first);
        }
        if (rows[i].last)
            assert_string_equal(how.names[1], rows[i].last);
        qp_tree_free(&model.tree);
    }
}

/* Stacks as mlx-lm names them when it loads plain ones. */
static void single_experts_belong_to_stacks(void **state)
{
    static const struct {
        const char *config, *name, *stack; /* NULL: it is not stacked */
        uint64_t number;
    } rows[] = {
        {"{\"model_type\":\"mixtral\"}", "model.layers.1.block_sparse_moe.experts.10.w3.weight",
         ".switch_mlp.up_proj", 10},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts.0.down_proj.weight",
         ".switch_mlp.down_proj", 0},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts.0.w1.weight", NULL, 0},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts..gate_proj.weight", NULL, 0},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts.0.weight", NULL, 0},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts.1.gate_proj.bias", NULL, 0},
        {"{\"model_type\":\"qwen3_moe\"}",
         "model.layers.1.mlp.experts.99999999999999999999.gate_proj.weight", NULL, 0},
        {"{\"model_type\":\"qwen3_moe\"}", "model.layers.1.mlp.experts.1_gate_proj.weight", NULL,
         0},
        {"{\"model_type\":\"llama\"}", "model.layers.1.mlp.experts.1.gate_proj.weight", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qp_tensor t = tensor_of(rows[i].name, 2);
        struct qp_single how;
        struct model model;
        make_model(&model, rows[i].config);
        assert_int_equal(qp_find_single(&model.listing, &t, &how), rows[i].stack != NULL);
        if (rows[i].stack) {
            assert_string_equal(how.stack, rows[i].stack);
            assert_int_equal(how.number, rows[i].number);
        }
        qp_tree_free(&model.tree);
    }
}

/* The experts of a stack as transformers names them. */
static void stacks_have_the_experts_of_one_projection(void **state)
{
    static const struct {
        const char *config, *name, *expert; /* NULL: its experts have no known names */
        unsigned rank;
    } rows[] = {
        {"{\"model_type\":\"mixtral\"}",
         "model.layers.1.block_sparse_moe.switch_mlp.down_proj.weight",
         "model.layers.1.block_sparse_moe.experts.7.w2.weight", 3},
        {"{\"model_type\":\"phimoe\"}", "model.layers.1.block_sparse_moe.switch_mlp.up_proj.weight",
         "model.layers.1.block_sparse_moe.experts.7.w3.weight", 3},
        {"{\"model_type\":\"qwen2_moe\"}", "model.layers.1.mlp.switch_mlp.gate_proj.weight",
         "model.layers.1.mlp.experts.7.gate_proj.weight", 3},
        {"{\"model_type\":\"qwen2_moe\"}", "model.layers.1.mlp.switch_mlp.gate_proj.weight", NULL,
         2},
        {"{\"model_type\":\"qwen2_moe\"}", "model.layers.1.mlp.switch_mlp.gate_proj.bias", NULL, 3},
        {"{\"model_type\":\"qwen2_moe\"}", "model.layers.1.mlp.switch_mlp.w1.weight", NULL, 3},
        {"{\"model_type\":\"jamba\"}", "model.layers.1.mlp.switch_mlp.gate_proj.weight", NULL, 3},
    };
    struct qp_arena arena = {NULL};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qp_tensor t = tensor_of(rows[i].name, rows[i].rank);
        struct qp_fused_experts how;
        struct model model;
        make_model(&model, rows[i].config);
        assert_int_equal(qp_find_stack(&model.listing, &t, &how), rows[i].expert != NULL);
        if (rows[i].expert) {
            assert_string_equal(
                qp_expert_name(&arena, t.name, how.n_prefix, how.single, 7, how.projections[0]),
                rows[i].expert);
            assert_int_equal(how.n, 1);
            assert_false(how.turned);
        }
        qp_tree_free(&model.tree);
    }
    qp_arena_free(&arena);
}

/* No model has such names, which are text up to the NUL alone. */
static void names_with_a_nul_are_those_of_no_experts(void **state)
{
    static const char single[] = "m.mlp.experts.0.up_proj.weight\0.weight";
    static const char stack[] = "m.switch_mlp.up_proj.weight\0.switch_mlp.up_proj.weight";
    static const char fused[] = "m.mlp.experts.down_proj\0.mlp.experts.down_proj";
    struct qp_tensor t = tensor_of(single, 2);
    struct model model;
    struct qp_single how;
    struct qp_fused_experts all;
    (void)state;
    make_model(&model, "{\"model_type\":\"qwen3_moe\"}");
    assert_true(qp_find_single(&model.listing, &t, &how));
    t.name_len = sizeof single - 1;
    assert_false(qp_find_single(&model.listing, &t, &how));
    t = tensor_of(fused, 3);
    assert_true(qp_find_fused_experts(&model.listing, &t, &all));
    t.name_len = sizeof fused - 1;
    assert_false(qp_find_fused_experts(&model.listing, &t, &all));
    t = tensor_of(stack, 3);
    assert_true(qp_find_stack(&model.listing, &t, &all));
    t.name_len = sizeof stack - 1;
    assert_false(qp_find_stack(&model.listing, &t, &all));
    qp_tree_free(&model.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_whole_words),
        cmocka_unit_test(fused_experts_get_the_names_of_single_ones),
        cmocka_unit_test(experts_of_gpt_oss_are_divided),
        cmocka_unit_test(single_experts_belong_to_stacks),
        cmocka_unit_test(stacks_have_the_experts_of_one_projection),
        cmocka_unit_test(names_with_a_nul_are_those_of_no_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
