"""MLX on the CPU decodes folders, mlx-lm loads them, and its convert makes some."""

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.convert import convert
from mlx_lm.utils import load_model

import models
from mlx_folder import decode

FORMATS = ("mlx",)
DTYPE = None
CANNOT = (("*", "bert", "mlx-lm has no encoders"),)


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


def tool(bits, group, mode="affine"):
    def make(source, model, out):
        convert(str(source), str(out), quantize=True, q_bits=bits, q_group_size=group, q_mode=mode)
    return make


TOOLS = {
    "mlx_lm.convert 4 bits": (tool(4, 64), ("llama", "tied", "biased", "qwen3-moe", "mixtral")),
    "mlx_lm.convert 3 bits": (tool(3, 32), ("llama",)),
    "mlx_lm.convert 6 bits": (tool(6, 128), ("llama",)),
    "mlx_lm.convert 8 bits": (tool(8, 64), ("phi3",)),
    "mlx_lm.convert mxfp4": (tool(4, 32, "mxfp4"), ("llama", "qwen3-moe")),
    "mlx_lm.convert mxfp8": (tool(8, 32, "mxfp8"), ("llama", "tied")),
    "mlx_lm.convert nvfp4": (tool(4, 16, "nvfp4"), ("llama", "biased")),
}
