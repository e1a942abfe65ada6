"""transformers decodes the experts of gpt-oss, in whose layout qplan writes nothing."""

import json

import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from torch_tensors import read, to_stored

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

FORMATS = ("mxfp4",)
DTYPE = None


def decode(folder, model, scratch):
    """What the function for experts gives, which is also what the loaded model has."""
    tensors = read(folder)
    network = getattr(transformers, model.architecture).from_pretrained(folder).state_dict()
    for name in [name for name in tensors if name.endswith("_blocks")]:
        name = name.removesuffix("_blocks")
        blocks, scales = tensors.pop(f"{name}_blocks"), tensors.pop(f"{name}_scales")
        tensors[name] = convert_moe_packed_tensors(blocks, scales)
        assert torch.equal(network[name], tensors[name]), name
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def make(source, model, out):
    """The model with random codes for its experts, as gpt-oss is published."""
    out.mkdir()
    tensors, generator = read(source), torch.Generator().manual_seed(3)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        shape = experts, rows, columns // 32
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), generator=generator).byte()
        tensors[f"{name}_scales"] = torch.randint(115, 125, shape, generator=generator).byte()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (out / "config.json").write_text(json.dumps(config))


TOOLS = {"random codes": (make, ("gpt-oss",))}
