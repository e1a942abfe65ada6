"""MLX on the CPU decodes the tensors of a folder."""

import json

import mlx.core as mx
import numpy as np

from stored import Stored

mx.set_default_device(mx.cpu)

NAMES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32",
         mx.uint8: "U8"}


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
        weight, scales = arrays.pop(f"{prefix}.weight"), arrays.pop(name)
        biases = arrays.pop(f"{prefix}.biases", None)  # float codes have none
        # The values of float codes are exact in either type of 16 bits.
        arrays[f"{prefix}.weight"] = mx.dequantize(
            weight, scales, biases, own["group_size"], own["bits"], own.get("mode", "affine"),
            dtype=None if biases is not None else getattr(mx, model.dtype))
    return {name: to_stored(array) for name, array in arrays.items()}
