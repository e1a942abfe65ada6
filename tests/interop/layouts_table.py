"""Which schemes of which layouts are tried on which models, and what qplan refuses.

A layout is added by its rows here and, where an engine of its own decodes it, an engine_*.py.
"""

import fnmatch

from model_table import MODELS
from census import Row

ALL = tuple(name for name, model in MODELS.items() if not (model.fused or model.joins))
FILES = ("tied", "biased", "phi3")  # whose checkpoint is one file
DYNAMIC = ("--activations", "dynamic")
WEIGHTS_ONLY = ("--activations", "none")
SPLIT = ("--experts", "split")
LEAST = ("--calibrate", "mse")  # with scales of either sign, where a layout has them
PARTLY = ("--exclude", "*.down_proj.weight")  # blocks of which some layers are quantized

# A row, and the models that it is tried on.
ROWS = (
    (Row("compressed-tensors", "int4:g128"), ALL),
    (Row("compressed-tensors", "int8:c0", DYNAMIC), ALL),
    (Row("compressed-tensors", "int4:g128:asym"), ("llama", "phi3")),
    (Row("compressed-tensors", "int4:g32"), ("llama", "biased")),
    (Row("compressed-tensors", "int4:g32:asym"), ("llama",)),
    (Row("compressed-tensors", "int4:c0"), ("llama",)),
    (Row("compressed-tensors", "int4:c0:asym"), ("llama",)),
    (Row("compressed-tensors", "int8:c0"), ("llama", "mixtral")),
    (Row("compressed-tensors", "int8:g128"), ("llama",)),
    (Row("compressed-tensors", "int8:g128:asym"), ("llama",)),
    (Row("compressed-tensors", "int8:c0:asym"), ("llama",)),
    (Row("compressed-tensors", "int8:c0:asym", DYNAMIC), ("llama",)),
    (Row("compressed-tensors", "int2:g32"), ("llama",)),
    (Row("compressed-tensors", "int3:g32"), ("llama",)),
    (Row("compressed-tensors", "int5:g32"), ("llama",)),
    (Row("compressed-tensors", "int6:g128"), ("llama",)),
    (Row("compressed-tensors", "int7:c0"), ("llama",)),
    (Row("compressed-tensors", "int4:g128", PARTLY), ("llama",)),
    (Row("compressed-tensors", "int4:g128", LEAST), ("llama", "biased")),
    (Row("compressed-tensors", "int8:c0", (*DYNAMIC, *LEAST)), ("llama",)),
    (Row("compressed-tensors", "int4:g128", SPLIT), ("llama4",)),
    (Row("compressed-tensors", "fp8:c0"), ALL),
    (Row("compressed-tensors", "fp8:c0", WEIGHTS_ONLY), ("llama", "biased", "qwen2-vl")),
    (Row("compressed-tensors", "fp8:c0", PARTLY), ("llama",)),
    (Row("compressed-tensors", "fp8:t"), ("llama", "qwen3-moe")),
    (Row("compressed-tensors", "fp8:t", WEIGHTS_ONLY), ("llama",)),
    (Row("compressed-tensors", "fp8:b128x128"), ("llama", "square", "phi3", "qwen3-moe")),
    (Row("compressed-tensors", "fp8:b128x128", LEAST), ("square",)),
    (Row("compressed-tensors", "nvfp4"), ALL),
    (Row("compressed-tensors", "nvfp4", LEAST), ("llama",)),
    (Row("compressed-tensors", "mxfp4"), ("llama", "biased", "phi3", "qwen3-moe", "bert")),
    (Row("compressed-tensors", "mxfp8"), ("llama", "biased", "phi3", "qwen3-moe", "bert")),
    (Row("fp8", "fp8:b128x128"), ALL),
    (Row("fp8", "fp8:b128x128", PARTLY), ("square",)),
    (Row("fp8", "fp8:b128x128", LEAST), ("square",)),
    (Row("modelopt", "nvfp4"), ALL),
    (Row("modelopt", "nvfp4", PARTLY), ("llama",)),
    (Row("modelopt", "nvfp4", LEAST), ("llama",)),
    (Row("gptq", "int4:g128"), ALL),
    (Row("gptq", "int4:g32"), ("llama",)),
    (Row("gptq", "int4:g64"), ("llama",)),
    (Row("gptq", "int4:c0"), ("llama",)),
    (Row("gptq", "int8:g128"), ("llama", "biased")),
    (Row("gptq", "int8:g32"), ("llama",)),
    (Row("gptq", "int8:c0"), ("llama",)),
    (Row("gptq", "int4:g128", PARTLY), ("llama",)),
    (Row("gptq", "int4:g128", LEAST), ("llama", "biased")),
    (Row("gptq_v2", "int4:g128"), ("llama",)),
    (Row("gptq_v2", "int4:g64:asym"), ("llama", "phi3")),
    (Row("gptq_v2", "int4:g32:asym"), ("llama",)),
    (Row("gptq_v2", "int4:c0:asym"), ("llama",)),
    (Row("gptq_v2", "int4:g64:asym", LEAST), ("llama",)),
    (Row("gptq_v2", "int8:g128:asym"), ("llama",)),
    (Row("gptq_v2", "int8:c0"), ("llama",)),
    (Row("awq", "uint4:g128"), ALL),
    (Row("awq", "uint4:g32"), ("llama", "biased")),
    (Row("awq", "uint4:g64"), ("llama",)),
    (Row("awq", "uint4:g128:sym"), ("llama",)),
    (Row("awq", "uint4:g128", LEAST), ("llama",)),
    (Row("awq", "uint4:g128", PARTLY), ("llama",)),
    (Row("mlx", "uint4:g64"), (*ALL, "qwen3-moe-fused", "llama4", "gpt-oss")),
    (Row("mlx", "uint4:g32"), ("llama",)),
    (Row("mlx", "uint4:g128"), ("llama",)),
    (Row("mlx", "uint4:g64:sym"), ("llama",)),
    (Row("mlx", "uint4:g64", LEAST), ("llama", "tied")),
    (Row("mlx", "uint2:g64"), ("llama",)),
    (Row("mlx", "uint3:g32"), ("llama", "biased")),
    (Row("mlx", "uint5:g64"), ("llama",)),
    (Row("mlx", "uint6:g128"), ("llama",)),
    (Row("mlx", "uint8:g64"), ("llama", "tied")),
    (Row("mlx", "uint4:g64", PARTLY), ("llama",)),
    (Row("mlx", "nvfp4"), ("llama", "tied", "qwen3-moe", "mixtral")),
    (Row("mlx", "nvfp4", LEAST), ("llama",)),
    (Row("mlx", "mxfp4"), ("llama", "biased", "phi3", "qwen3-moe", "gpt-oss")),
    (Row("mlx", "mxfp8"), ("llama", "tied", "qwen3-moe")),
    (Row("bitsandbytes", "nf4"), ALL),
    (Row("bitsandbytes", "nf4", PARTLY), ("llama",)),
    (Row("bitsandbytes", "nf4:g128"), ("llama",)),
    (Row("bitsandbytes", "nf4:g32"), ("llama",)),
    (Row("bitsandbytes", "nf4:g4096"), ("llama",)),
    (Row("bitsandbytes", "nf4", LEAST), ("llama", "biased")),
    (Row("bitsandbytes", "nf4:double"), ("llama", "tied", "biased")),
    (Row("bitsandbytes", "nf4:g128:double"), ("llama",)),
    (Row("bitsandbytes", "nf4", ("--arithmetic", "reference")), ("llama", "biased")),
    (Row("bitsandbytes", "int8:c0"), ALL),
    (Row("bitsandbytes", "int8:c0", PARTLY), ("llama",)),
    (Row("bitsandbytes", "int8:c0", LEAST), ("llama",)),
    (Row("comfyui", "fp8:t"), FILES),
    (Row("comfyui", "f8e5m2:t"), FILES),
    (Row("comfyui", "int8:t"), FILES),
    (Row("comfyui", "int8:c0"), FILES),
    (Row("comfyui", "int8:c0", LEAST), ("tied",)),
    (Row("comfyui", "fp8:t", LEAST), ("tied",)),
    (Row("comfyui", "nvfp4"), FILES),
    (Row("comfyui", "nvfp4", LEAST), ("tied",)),
    (Row("comfyui", "mxfp8"), FILES),
)

# Formats and models that qplan refuses with exit 3, and why.
REFUSED = (
    ("*", "gpt2", "Conv1D weights are transposed: no linear layer is left"),
    ("mlx", "deepseek-v3", "mlx-lm quantizes kv_b_proj of MLA anew when it loads"),
    ("mlx", "qwen2-vl", "mlx-lm has no vision tower"),
    ("mlx", "llama4", "mlx-lm knows no experts in text models of llama4"),
)


def refused(row, model):
    """Why qplan refuses to make this folder, or None."""
    return next((reason for format_, name, reason in REFUSED
                 if fnmatch.fnmatch(row.format, format_) and name == model.name), None)


def cases(engine):
    """The rows and models that an engine is tried on."""
    for row, names in ROWS:
        if row.format in engine.FORMATS:
            for name in names:
                if name in getattr(engine, "MODELS", MODELS):
                    yield row, MODELS[name]
