"""Tiny random models of several architectures, as transformers saves them.

MODELS has a row for each: how its config is made, which tensors a quantizer of linear layers takes,
and what else a loader must be told. Weights are random with a fixed seed and large enough that no
layer's answer vanishes.
"""

import json
import re
from dataclasses import dataclass, field

import tokenizers
import torch
import transformers

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
    dtype: torch.dtype = torch.bfloat16
    fused: bool = False  # experts are stored in one tensor, [experts, in, out]

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

MODELS = {model.name: model for model in (
    Model("llama", "LlamaForCausalLM", "LlamaConfig", {**BASE}, DENSE, shards="400KB"),
    Model("tied", "Qwen3ForCausalLM", "Qwen3Config",
          {**BASE, "tie_word_embeddings": True, "head_dim": 32}, DENSE),
    Model("biased", "Qwen2ForCausalLM", "Qwen2Config", {**BASE}, DENSE, dtype=torch.float16),
    Model("qwen3-moe", "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
          {**BASE, "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": []},
          rf"model\.layers\.\d+\.({ATTENTION}|mlp\.experts\.\d+\.(gate|up|down)_proj)\.weight",
          shards="500KB", extra={**ROPE, "num_experts": 4}),
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
           "layer_types": ["full_attention", "full_attention"]},
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


def make(model, folder):
    """Saves the model; the same bytes each time."""
    torch.manual_seed(20261118)
    config = getattr(transformers, model.config)(**model.settings)
    network = getattr(transformers, model.architecture)(config).to(model.dtype)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() >= 2:
                # The answers of a layer have the size of its inputs.
                parameter.copy_(torch.randn(parameter.shape) * parameter.shape[-1] ** -0.5)
            elif "bias" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.1)
    network.save_pretrained(folder, **({"max_shard_size": model.shards} if model.shards else {}))
    make_tokenizer(folder)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, **model.extra}, indent=2) + "\n")


def make_tokenizer(folder):
    """One word for each id: some tools take no model without a tokenizer."""
    words = {f"w{i}": i for i in range(BASE["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", bos_token="w1",
                                         eos_token="w2", pad_token="w0").save_pretrained(folder)


IDS = torch.randint(3, 300, (1, 24), generator=torch.Generator().manual_seed(1))


def inputs(model):
    """What the model is asked by every engine; one with a vision tower sees a picture."""
    if model.name != "qwen2-vl":
        return {"input_ids": IDS}
    generator = torch.Generator().manual_seed(2)
    ids = IDS.clone()
    ids[0, 3], ids[0, 4:8], ids[0, 8] = 310, 313, 311
    return {"input_ids": ids, "image_grid_thw": torch.tensor([[1, 4, 4]]),
            "mm_token_type_ids": (ids == 313).int(),
            "pixel_values": torch.randn(16, 3 * 2 * 14 * 14, generator=generator).to(model.dtype)}
