"""NVIDIA ModelOpt: its decoder of nvfp4, and folders that it exports."""

import warnings

warnings.simplefilter("ignore")

import modelopt.torch.quantization as quantization
import torch
import transformers
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor import NVFP4QTensor

import models
from torch_tensors import read, to_stored

transformers.logging.set_verbosity_error()

FORMATS = ("modelopt",)
DTYPE = "f32"


def decode(folder, model, scratch):
    tensors = read(folder)
    for name in [name for name in tensors if name.endswith(".weight_scale_2")]:
        weight = name.removesuffix("_scale_2")
        codes, scale = tensors[weight], tensors.pop(f"{weight}_scale")
        shape = (*codes.shape[:-1], 2 * codes.shape[-1])
        tensors[weight] = NVFP4QTensor(shape, torch.float32, codes).dequantize(
            torch.float32, scale=scale, double_scale=tensors.pop(name), block_sizes={-1: 16})
        tensors.pop(f"{weight.removesuffix('.weight')}.input_scale", None)
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def tool(config):
    def make(source, model, out):
        network = getattr(transformers, model.architecture).from_pretrained(source)
        ask = lambda network: network(**models.inputs(model))
        quantization.quantize(network, config, ask)
        export_hf_checkpoint(network, export_dir=out)
    return make


TOOLS = {
    "export_hf_checkpoint W4A16": (tool(quantization.W4A16_NVFP4_CFG), ("llama", "tied")),
    "export_hf_checkpoint W4A4": (tool(quantization.NVFP4_DEFAULT_CFG), ("llama", "biased")),
}
