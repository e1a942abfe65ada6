"""Tiny models of several architectures: how each is configured, and what of it is quantized.

MODELS has a row for each: how its config is made, which tensors a quantizer of linear layers takes,
and what else a loader must be told. models.py makes them with transformers, plain_models.py some of
them with numpy alone.
"""

import re
from dataclasses import dataclass, field

BASE = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=320, max_position_embeddings=64, bos_token_id=1,
            eos_token_id=2, pad_token_id=0)
# transformers 5 writes rope_parameters, from which mlx-lm does not take it for every model.
ROPE = {"rope_theta": 10000.0}


@dataclass(frozen=True)
class Model:
    name: str
    architecture: str  # a class of transformers
    config: str
    settings: dict
    linear: str        # what of the stored names, whole, is a linear layer inside a block
    shards: str = None # the largest shard that transformers shall write
    extra: dict = field(default_factory=dict)  # what mlx-lm and vLLM want in config.json besides
    dtype: str = "bfloat16"
    fused: bool = False  # experts are stored in one tensor, [experts, in, out]
    joins: bool = False  # saved one by one, they are put into one tensor here, [experts, out, in]

    def quantizes(self, format_, name):
        """Whether a quantizer for this layout takes the tensor."""
        if format_ == "mlx":  # embeddings and the head, too; no norm
            return name.endswith(".weight") and "norm" not in name.lower()
        if format_ == "bitsandbytes" and (".experts." in name or ".kv_b_proj." in name):
            return False
        return re.fullmatch(self.linear, name) is not None


ATTENTION = r"self_attn\.[qkvo]_proj"
MLP = r"mlp\.(gate|up|down)_proj"
DENSE = rf"model\.layers\.\d+\.({ATTENTION}|{MLP})\.weight"

NOTHING = r"(?!)"

QWEN3_MOE = ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
             {**BASE, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2,
              "moe_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": []},
             rf"model\.layers\.\d+\.({ATTENTION}|mlp\.experts\.\d+\.(gate|up|down)_proj)\.weight")

MODELS = {model.name: model for model in (
    Model("llama", "LlamaForCausalLM", "LlamaConfig", {**BASE}, DENSE, shards="400KB"),
    Model("square", "LlamaForCausalLM", "LlamaConfig", {**BASE, "num_key_value_heads": 4}, DENSE),
    Model("tied", "Qwen3ForCausalLM", "Qwen3Config",
          {**BASE, "tie_word_embeddings": True, "head_dim": 32}, DENSE),
    Model("biased", "Qwen2ForCausalLM", "Qwen2Config", {**BASE}, DENSE, dtype="float16"),
    Model("qwen3-moe", *QWEN3_MOE, shards="500KB", extra={**ROPE, "num_experts": 4}),
    Model("qwen3-moe-fused", *QWEN3_MOE, extra={**ROPE, "num_experts": 4}, joins=True),
    Model("mixtral", "MixtralForCausalLM", "MixtralConfig",
          {**BASE, "num_local_experts": 4, "num_experts_per_tok": 2},
          rf"model\.layers\.\d+\.({ATTENTION}|block_sparse_moe\.experts\.\d+\.w[123])\.weight"),
    Model("phi3", "Phi3ForCausalLM", "Phi3Config", {**BASE},
          r"model\.layers\.\d+\.(self_attn\.(qkv|o)_proj|mlp\.(gate_up|down)_proj)\.weight"),
    Model("deepseek-v3", "DeepseekV3ForCausalLM", "DeepseekV3Config",
          {**BASE, "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 128,
           "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
           "moe_intermediate_size": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
           "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
          r"model\.layers\.\d+\.(self_attn\.(q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj)"
          r"|mlp\.(experts\.\d+\.|shared_experts\.)?(gate|up|down)_proj)\.weight"),
    Model("llama4", "Llama4ForCausalLM", "Llama4TextConfig",
          {**BASE, "head_dim": 32, "intermediate_size": 128, "intermediate_size_mlp": 256,
           "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1},
          rf"model\.layers\.\d+\.({ATTENTION}|feed_forward\.(shared_expert|experts\.\d+)\."
          r"(gate|up|down)_proj)\.weight", fused=True),
    Model("gpt-oss", "GptOssForCausalLM", "GptOssConfig",
          {**BASE, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
           "layer_types": ["sliding_attention", "full_attention"]},
          rf"model\.layers\.\d+\.{ATTENTION}\.weight", fused=True),
    Model("bert", "BertForMaskedLM", "BertConfig",
          {k: v for k, v in BASE.items() if k != "num_key_value_heads"},
          r"bert\.encoder\.layer\.\d+\.(attention\.self\.(query|key|value)|attention\.output\.dense"
          r"|intermediate\.dense|output\.dense)\.weight"),
    Model("gpt2", "GPT2LMHeadModel", "GPT2Config",
          {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 320, "n_positions": 64,
           "bos_token_id": 1, "eos_token_id": 2},
          NOTHING),  # Conv1D weights are [in, out]: no loader takes them as a linear layer's
    Model("qwen2-vl", "Qwen2VLForConditionalGeneration", "Qwen2VLConfig",
          {"text_config": {**BASE, "rope_parameters":
                           {"rope_type": "default", "mrope_section": [4, 6, 6],
                            "rope_theta": 10000.0}},
           "vision_config": {"depth": 1, "embed_dim": 64, "hidden_size": 128, "num_heads": 2,
                             "mlp_ratio": 2, "patch_size": 14},
           "vision_start_token_id": 310, "vision_end_token_id": 311, "vision_token_id": 312,
           "image_token_id": 313, "video_token_id": 314},
          rf"model\.(language_model\.)?layers\.\d+\.({ATTENTION}|{MLP})\.weight"),
)}
