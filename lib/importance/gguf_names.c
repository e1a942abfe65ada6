/*
 * gguf_names.c - what llama.cpp calls the weights of a model: blk.0.attn_q.weight is
 * model.layers.0.self_attn.q_proj.weight elsewhere. Rows may be in another order there; columns,
 * which importance is of, are not.
 */
#include "importance.h"

#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is behind the number of a layer; experts without their number. */
static const struct {
    const char *here, *there;
} layer_names[] = {
    {"self_attn.q_proj.weight", "attn_q"},
    {"self_attn.k_proj.weight", "attn_k"},
    {"self_attn.v_proj.weight", "attn_v"},
    {"self_attn.o_proj.weight", "attn_output"},
    {"self_attn.qkv_proj.weight", "attn_qkv"},
    {"self_attn.q_a_proj.weight", "attn_q_a"},
    {"self_attn.q_b_proj.weight", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa"},
    {"self_attn.kv_b_proj.weight", "attn_kv_b"},
    {"mlp.gate_proj.weight", "ffn_gate"},
    {"mlp.up_proj.weight", "ffn_up"},
    {"mlp.down_proj.weight", "ffn_down"},
    {"mlp.gate_up_proj.weight", "ffn_up"},
    {"mlp.gate.weight", "ffn_gate_inp"},
    {"mlp.experts.gate_proj.weight", "ffn_gate_exps"},
    {"mlp.experts.up_proj.weight", "ffn_up_exps"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp"},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp"},
    {"block_sparse_moe.experts.w1.weight", "ffn_gate_exps"},
    {"block_sparse_moe.experts.w3.weight", "ffn_up_exps"},
    {"block_sparse_moe.experts.w2.weight", "ffn_down_exps"},
};

/* Takes "WORD" and a number and a dot; moves *at behind it. */
static bool take_number(const char **at, const char *word, uint64_t *out)
{
    const size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    const size_t digits = strspn(*at + n, "0123456789");
    if (digits == 0 || (*at)[n + digits] != '.' || !qp_parse_u64_n(*at + n, digits, out))
        return false;
    *at += n + digits + 1;
    return true;
}

/* Copies what is behind the number of a layer, without that of an expert. */
static bool drop_expert(const char *from, char out[QP_GGUF_NAME], uint64_t *matrix)
{
    const char *experts = strstr(from, ".experts."), *rest = experts ? experts + 1 : from;
    *matrix = 0;
    if (experts && !take_number(&rest, "experts.", matrix))
        return false;
    const int n =
        experts ? snprintf(out, QP_GGUF_NAME, "%.*s.experts.%s", (int)(experts - from), from, rest)
                : snprintf(out, QP_GGUF_NAME, "%s", from);
    return n > 0 && n < QP_GGUF_NAME;
}

static bool layer_name(const char *tensor, char out[QP_GGUF_NAME], uint64_t *matrix)
{
    const char *layers = strstr(tensor, "layers.");
    char rest[QP_GGUF_NAME];
    uint64_t layer;
    if (!layers || (layers != tensor && layers[-1] != '.') ||
        !take_number(&layers, "layers.", &layer) || !drop_expert(layers, rest, matrix))
        return false;
    for (size_t i = 0; i < sizeof layer_names / sizeof layer_names[0]; i++) {
        if (strcmp(rest, layer_names[i].here) != 0)
            continue;
        (void)snprintf(out, QP_GGUF_NAME, "blk.%" PRIu64 ".%s.weight", layer, layer_names[i].there);
        return true;
    }
    return false;
}

bool qp_gguf_name(const char *tensor, char out[QP_GGUF_NAME], uint64_t *matrix)
{
    *matrix = 0;
    if (strcmp(tensor, "lm_head.weight") == 0) {
        (void)snprintf(out, QP_GGUF_NAME, "output.weight");
        return true;
    }
    if (strcmp(tensor, "model.embed_tokens.weight") == 0) {
        (void)snprintf(out, QP_GGUF_NAME, "token_embd.weight");
        return true;
    }
    return layer_name(tensor, out, matrix);
}
