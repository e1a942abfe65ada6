/*
 * test_select.c - which tensors the selections take, by names of real models.
 */
#include "lib/plan/select.h"
#include "support.h"

static const struct qp_format plain = {.name = "plain"};

static const char *kept_as(const struct qp_format *format, const char *name, unsigned rank)
{
    static const uint64_t shape[] = {8, 8, 8, 8};
    const struct qp_tensor t = {.name = name,
                                .name_len = (uint32_t)strlen(name),
                                .shape = shape,
                                .rank = (uint8_t)rank,
                                .storage = QPLAN_STORAGE_BF16};
    return qp_selection_of(QPLAN_SELECT_LINEAR, format)->keeps(&t, format, false);
}

/* Projections that every engine loads quantized, by their names on the hub. */
static void linear_layers_of_blocks_are_taken(void **state)
{
    static const char *const names[] = {
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.31.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.gate_up_proj.weight",
        "model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.3.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.3.self_attn.q_b_proj.weight",
        "model.layers.3.mlp.experts.17.down_proj.weight",
        "model.layers.3.mlp.shared_experts.gate_proj.weight",
        "model.layers.0.block_sparse_moe.experts.7.w1.weight",
        "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "model.layers.0.linear_attn.out_proj.weight",
        "model.layers.0.conv.in_proj.weight",
        "model.layers.0.mlp.c_fc.weight",
        "model.language_model.layers.0.mlp.up_proj.weight",
        "bert.encoder.layer.0.attention.self.query.weight",
        "encoder.block.0.layer.0.SelfAttention.q.weight",
        "transformer.h.0.self_attention.query_key_value.weight",
        "transformer.h.0.attn.c_attn.weight",
        "layers.0.attention.wq.weight",
        "0.weight.0.weight",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *reason = kept_as(&plain, names[i], 2);
        if (reason)
            fail_msg("%s is kept: %s", names[i], reason);
    }
}

static void the_rest_is_kept_with_its_pattern(void **state)
{
    static const struct {
        const char *name, *reason;
        unsigned rank;
    } rows[] = {
        {"lm_head.weight", "pattern lm_head", 2},
        {"model.embed_tokens.weight", "pattern embed", 2},
        {"model.layers.0.input_layernorm.weight", "pattern norm", 2},
        {"model.layers.0.mlp.gate.weight", "pattern .gate.", 2},
        {"model.layers.0.mlp.gate.wg.weight", "pattern .gate.", 2},
        {"model.layers.0.block_sparse_moe.gate.weight", "pattern .gate.", 2},
        {"model.layers.0.mlp.router.weight", "pattern router", 2},
        {"model.layers.0.block_sparse_moe.router.layer.weight", "pattern router", 2},
        {"model.layers.0.mlp.shared_expert_gate.weight", "pattern shared_expert_gate", 2},
        {"model.layers.0.linear_attn.conv1d.weight", "pattern conv1d", 3},
        {"model.layers.0.linear_attn.in_proj_a.weight", "pattern .linear_attn.in_proj_a.", 2},
        {"model.layers.0.linear_attn.in_proj_ba.weight", "pattern .linear_attn.in_proj_ba.", 2},
        {"model.layers.0.mixer.A_log", "pattern A_log", 2},
        {"model.layers.0.self_attn.indexer.weights_proj.weight", "pattern .indexer.weights_proj.",
         2},
        {"mtp.layers.0.mlp.up_proj.weight", "pattern mtp", 2},
        {"model.layers.61.eh_proj.weight", "pattern .eh_proj.", 2},
        {"model.layers.61.shared_head.head.weight", "pattern .shared_head.", 2},
        {"visual.blocks.0.attn.qkv.weight", "pattern visual", 2},
        {"model.vision_tower.encoder.layers.0.mlp.fc1.weight", "pattern vision", 2},
        {"audio_tower.layers.0.fc1.weight", "pattern audio", 2},
        {"multi_modal_projector.layers.0.weight", "pattern projector", 2},
        {"vpm.encoder.layers.0.mlp.fc1.weight", "pattern .vpm.", 2},
        {"mlp1.1.weight", "pattern .mlp1.#.", 2},
        {"transformer.output_layer.weight", "pattern output_layer", 2},
        {"proj_out.weight", "pattern proj_out", 2},
        {"score.weight", "pattern .score.", 2},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
         "pattern .relative_attention_bias.", 2},
        {"model.layers.0.mlp.experts.gate_up_proj", "3-D experts", 3},
        {"model.layers.0.mlp.experts.down_proj.weight", "3-D experts", 3},
        {"model.layers.0.short.weight", "not 2-D", 3},
        {"model.layers.0.dt.weight", "not 2-D", 4},
        {"model.layers.0.mlp.up_proj.lora_A", "not a .weight", 2},
        {"model.layers.0.mlp.up_projweight", "not a .weight", 2},
        {"pooler.dense.weight", "outside blocks", 2},
        {"model.layers0.dense.weight", "outside blocks", 2},
        {"blocks.1a.dense.weight", "outside blocks", 2},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *reason = kept_as(&plain, rows[i].name, rows[i].rank);
        if (!reason || strcmp(reason, rows[i].reason) != 0)
            fail_msg("%s: expected %s, found %s", rows[i].name, rows[i].reason,
                     reason ? reason : "none");
    }
}

static void a_layout_keeps_more_and_has_its_own_default(void **state)
{
    static const struct qp_keep keeps[] = {QP_KEEP(".experts.#."), {NULL, NULL}};
    static const struct qp_format engine = {.name = "engine", .select = "linear", .keeps = keeps};
    const char *const expert = "model.layers.0.mlp.experts.0.up_proj.weight";
    (void)state;
    assert_null(kept_as(&plain, expert, 2));
    assert_string_equal(kept_as(&engine, expert, 2), "pattern .experts.#.");
    assert_null(kept_as(&engine, "model.layers.0.mlp.up_proj.weight", 2));
    assert_string_equal(qp_selection_of(QPLAN_SELECT_USUAL, &plain)->rule, "select:all");
    assert_string_equal(qp_selection_of(QPLAN_SELECT_USUAL, &engine)->rule, "select:linear");
    assert_string_equal(qp_selection_of(QPLAN_SELECT_ALL, &engine)->rule, "select:all");
}

static void patterns_are_found_where_they_are(void **state)
{
    static const struct {
        const char *name, *pattern;
        size_t begin, end; /* end 0: nowhere */
    } rows[] = {
        {"a.b", "a", 0, 1},
        {"a.b", ".a.", 0, 2},
        {"a.b", ".b", 1, 3},
        {"a.b", ".b.", 0, 0},
        {"xa.a.b", ".a.", 2, 5},
        {"a.12.b", ".#.", 1, 5},
        {"12.b", ".#.", 0, 3},
        {"a.1x.2.b", ".#.", 4, 7},
        {"a.1", ".#.", 0, 0},
        {"", "a", 0, 0},
        {"", ".a", 0, 0},
        {"aab", "ab", 1, 3},
        {"a.experts.b.experts.0.c", ".experts.#.", 11, 22},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t begin, end;
        const bool found =
            qp_name_find(rows[i].name, strlen(rows[i].name), rows[i].pattern, &begin, &end);
        assert_int_equal(found, rows[i].end > 0);
        if (found && (begin != rows[i].begin || end != rows[i].end))
            fail_msg("%s in %s: %zu to %zu", rows[i].pattern, rows[i].name, begin, end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_of_blocks_are_taken),
        cmocka_unit_test(the_rest_is_kept_with_its_pattern),
        cmocka_unit_test(a_layout_keeps_more_and_has_its_own_default),
        cmocka_unit_test(patterns_are_found_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
