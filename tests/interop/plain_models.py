"""Some of the models of model_table.py by numpy alone, where no transformers can be had.

Names and shapes are those that transformers saves; weights are random with a fixed seed.
"""

import json
import zlib

import numpy as np

import stored

DTYPES = {"bfloat16": "BF16", "float16": "F16"}


def attention(prefix, model):
    """The tensors of an attention: name -> shape."""
    s = model.settings
    width, head = s["hidden_size"], s.get("head_dim", s["hidden_size"] // s["num_attention_heads"])
    queries, keys = head * s["num_attention_heads"], head * s["num_key_value_heads"]
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    if model.name == "phi3":
        rows = {"qkv_proj": queries + 2 * keys}
    shapes = {f"{prefix}.{name}.weight": (n, width) for name, n in rows.items()}
    if model.name == "biased":
        shapes |= {f"{prefix}.{name}.bias": (n,) for name, n in rows.items()}
    if "head_dim" in s:
        shapes |= {f"{prefix}.{name}_norm.weight": (head,) for name in "qk"}
    return {**shapes, f"{prefix}.o_proj.weight": (width, queries)}


def gated(prefix, names, width, inner):
    """A layer of gate, up and down, by whatever names."""
    gate, up, down = names
    return {f"{prefix}.{gate}.weight": (inner, width), f"{prefix}.{up}.weight": (inner, width),
            f"{prefix}.{down}.weight": (width, inner)}


def feed_forward(prefix, model):
    s = model.settings
    width, inner = s["hidden_size"], s["intermediate_size"]
    if model.name == "phi3":
        return {f"{prefix}.mlp.gate_up_proj.weight": (2 * inner, width),
                f"{prefix}.mlp.down_proj.weight": (width, inner)}
    if model.name not in EXPERTS:
        return gated(f"{prefix}.mlp", ("gate_proj", "up_proj", "down_proj"), width, inner)
    layer, names, count = EXPERTS[model.name]
    shapes = {f"{prefix}.{layer}.gate.weight": (s[count], width)}
    for i in range(s[count]):
        shapes |= gated(f"{prefix}.{layer}.experts.{i}", names, width,
                        s.get("moe_intermediate_size", inner))
    return shapes


# Of models with experts: their layer, the names of an expert's weights, and what counts them.
EXPERTS = {"qwen3-moe": ("mlp", ("gate_proj", "up_proj", "down_proj"), "num_experts"),
           "mixtral": ("block_sparse_moe", ("w1", "w3", "w2"), "num_local_experts")}
TYPES = {"llama": "llama", "square": "llama", "tied": "qwen3", "biased": "qwen2", "phi3": "phi3",
         "qwen3-moe": "qwen3_moe", "mixtral": "mixtral"}


def shapes_of(model):
    s = model.settings
    table = (s["vocab_size"], s["hidden_size"])
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (s["hidden_size"],)}
    if not s.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = table
    for i in range(s["num_hidden_layers"]):
        prefix = f"model.layers.{i}"
        shapes |= attention(f"{prefix}.self_attn", model) | feed_forward(prefix, model)
        shapes |= {f"{prefix}.{name}_layernorm.weight": (s["hidden_size"],)
                   for name in ("input", "post_attention")}
    return shapes


def make(model, folder):
    """Saves the model; the same bytes each time."""
    folder.mkdir()
    tensors = {}
    for name, shape in shapes_of(model).items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        tensors[name] = stored.packed(DTYPES[model.dtype],
                                      random.standard_normal(shape, np.float32) * shape[-1] ** -0.5)
    stored.write(folder / "model.safetensors", tensors)
    config = {**model.settings, **model.extra, "architectures": [model.architecture],
              "model_type": TYPES[model.name], "torch_dtype": model.dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
