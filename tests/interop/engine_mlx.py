"""MLX on the CPU decodes folders, mlx-lm loads them, and its convert makes some."""

import json

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.convert import convert
from mlx_lm.utils import load_model

import models
from stored import Stored

mx.set_default_device(mx.cpu)

FORMATS = ("mlx",)
DTYPE = None
NAMES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32"}
CANNOT = (("*", "bert", "mlx-lm has no encoders"),)


def to_stored(array):
    # numpy has no type of its own for bf16.
    plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
    return Stored(NAMES[array.dtype], tuple(array.shape), np.array(plain).tobytes())


def decode(folder, model, scratch):
    config = json.loads((folder / "config.json").read_text())["quantization"]
    arrays = {}
    for file in sorted(folder.glob("*.safetensors")):
        arrays.update(mx.load(str(file)))
    for name in [name for name in arrays if name.endswith(".scales")]:
        prefix = name.removesuffix(".scales")
        own = config.get(prefix, config)
        weight, scales, biases = (arrays.pop(f"{prefix}.{part}")
                                  for part in ("weight", "scales", "biases"))
        arrays[f"{prefix}.weight"] = mx.dequantize(weight, scales, biases, own["group_size"],
                                                   own["bits"])
    return {name: to_stored(array) for name, array in arrays.items()}


def logits(folder, model, row):
    network, _ = load_model(folder, lazy=False, strict=True)
    network.set_dtype(mx.float32)
    answer = network(mx.array(models.inputs(model)["input_ids"].numpy()))
    return torch.from_numpy(np.array(answer.astype(mx.float32)))


def distance(row, model):
    """The dequantized folder is rounded to the model's type, of which the f32 sums know nothing.

    A router may choose another expert after the smallest of differences.
    """
    return 0.15 if "experts" in model.linear else 0.03


def tool(bits, group):
    def make(source, model, out):
        convert(str(source), str(out), quantize=True, q_bits=bits, q_group_size=group)
    return make


TOOLS = {
    "mlx_lm.convert 4 bits": (tool(4, 64), ("llama", "tied", "biased", "qwen3-moe", "mixtral")),
    "mlx_lm.convert 3 bits": (tool(3, 32), ("llama",)),
    "mlx_lm.convert 6 bits": (tool(6, 128), ("llama",)),
    "mlx_lm.convert 8 bits": (tool(8, 64), ("phi3",)),
}
