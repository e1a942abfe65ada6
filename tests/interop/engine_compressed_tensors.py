"""compressed-tensors decodes folders; llm-compressor's model_free_ptq makes some."""

from compressed_tensors.entrypoints.convert import CompressedTensorsDequantizer, convert_checkpoint
from compressed_tensors.quantization import QuantizationScheme
from llmcompressor import model_free_ptq
from loguru import logger

import models
import stored

logger.remove()

FORMATS = ("compressed-tensors",)
DTYPE = None  # the type of the decoder is that of the model


def decode(folder, model, scratch):
    """It takes every `weight` for a quantized one, norms too, unless it is told otherwise."""
    names = stored.read(folder)
    plain = [name.removesuffix(".weight") for name in names if name.endswith(".weight")
             and f"{name}_scale" not in names]
    converter = CompressedTensorsDequantizer(folder, ignore=plain, dtype=models.dtype(model))
    convert_checkpoint(folder, scratch, converter, device="cpu", max_workers=1)
    return stored.read(scratch)


def scheme(bits, symmetric, group):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "dynamic": False,
               "strategy": "group" if group else "channel", "group_size": group}
    return {"targets": ["Linear"], "weights": weights, "format": "pack-quantized"}


def tool(scheme):
    def make(source, model, out):
        kept = ["lm_head", "re:.*embed.*", "re:.*norm.*", "re:.*mlp.gate$", "re:.*visual.*"]
        asked = scheme if isinstance(scheme, str) else QuantizationScheme.model_validate(scheme)
        model_free_ptq(source, out, scheme=asked, ignore=kept, device="cpu", max_workers=1)
    return make


TOOLS = {
    "model_free_ptq W4A16": (tool("W4A16"), ("llama", "tied", "qwen3-moe", "phi3", "qwen2-vl")),
    "model_free_ptq W4A16_ASYM": (tool("W4A16_ASYM"), ("llama",)),
    "model_free_ptq W8A16": (tool("W8A16"), ("llama",)),
    "model_free_ptq W8A8": (tool("W8A8"), ("llama",)),
    "model_free_ptq FP8_DYNAMIC": (tool("FP8_DYNAMIC"), ("llama", "phi3", "qwen3-moe")),
    "model_free_ptq FP8_BLOCK": (tool("FP8_BLOCK"), ("square", "llama")),
    "model_free_ptq NVFP4A16": (tool("NVFP4A16"), ("llama", "tied", "qwen3-moe")),
    "model_free_ptq MXFP4A16": (tool("MXFP4A16"), ("llama", "biased")),
    "model_free_ptq MXFP8A16": (tool("MXFP8A16"), ("llama", "biased")),
    "model_free_ptq 3 bits": (tool(scheme(3, True, 32)), ("llama",)),
    "model_free_ptq 5 bits": (tool(scheme(5, True, 64)), ("llama",)),
    "model_free_ptq 7 bits": (tool(scheme(7, True, None)), ("llama",)),
}
