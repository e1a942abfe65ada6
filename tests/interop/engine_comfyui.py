"""comfy-kitchen, with which ComfyUI reads files of quantized layers, and files made with it."""

import json

import torch
from comfy_kitchen.tensor import (TensorCoreFP8Layout, TensorCoreMXFP8Layout, TensorCoreNVFP4Layout,
                                  TensorWiseINT8Layout)
from safetensors.torch import save_file

from torch_tensors import read, to_stored

FORMATS = ("comfyui",)
DTYPE = "f32"
# What a mark calls a layer, the class of its layout, and how that is asked to make one.
KINDS = {
    "float8_e4m3fn": (TensorCoreFP8Layout, {"dtype": torch.float8_e4m3fn}),
    "float8_e5m2": (TensorCoreFP8Layout, {"dtype": torch.float8_e5m2}),
    "int8_tensorwise": (TensorWiseINT8Layout, {}),
    "mxfp8": (TensorCoreMXFP8Layout, {}),
    "nvfp4": (TensorCoreNVFP4Layout, {}),
}


def decode(file, model, scratch):
    tensors = read(file)
    for name in [name for name in tensors if name.endswith(".comfy_quant")]:
        weight = name.removesuffix("comfy_quant") + "weight"
        mark = json.loads(bytes(tensors.pop(name).tolist()))
        tensors[weight] = decode_layer(mark["format"], tensors[weight],
                                       tensors.pop(f"{weight}_scale"),
                                       tensors.pop(f"{weight}_scale_2", None))
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def decode_layer(kind, codes, scale, factor):
    layout = KINDS[kind][0]
    shape = {"orig_dtype": torch.float32, "orig_shape": tuple(codes.shape)}
    if factor is not None:
        parameters = layout.Params(scale=factor, block_scale=scale, **shape)
    elif kind == "mxfp8":
        parameters = layout.Params(scale=scale.view(torch.float8_e8m0fnu), **shape)
    else:
        parameters = layout.Params(scale=scale, **shape)
    return layout.dequantize(codes, parameters)


def tool(kind, **more):
    """Its layouts quantize a tensor; the names and the mark are those of ComfyUI."""
    layout, settings = KINDS[kind]

    def make(source, model, out):
        tensors = read(source)
        for name in [name for name in tensors if model.quantizes("comfyui", name)]:
            codes, parameters = layout.quantize(tensors.pop(name), **settings, **more)
            for suffix, part in layout.state_dict_tensors(codes, parameters).items():
                tensors[name + suffix] = plain_type(part)
            mark = json.dumps({"format": kind}).encode()
            tensors[name.removesuffix("weight") + "comfy_quant"] = torch.tensor(list(mark),
                                                                                dtype=torch.uint8)
        save_file(tensors, out)
    return make


def plain_type(tensor):
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e8m0fnu else tensor.contiguous()


TOOLS = {
    "comfy-kitchen fp8": (tool("float8_e4m3fn"), ("tied", "biased")),
    "comfy-kitchen e5m2": (tool("float8_e5m2"), ("tied",)),
    "comfy-kitchen int8": (tool("int8_tensorwise"), ("tied",)),
    "comfy-kitchen int8 rows": (tool("int8_tensorwise", per_channel=True), ("tied", "phi3")),
    "comfy-kitchen mxfp8": (tool("mxfp8"), ("tied", "biased")),
    "comfy-kitchen nvfp4": (tool("nvfp4"), ("tied", "biased")),
}
