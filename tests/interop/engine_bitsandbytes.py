"""bitsandbytes decodes folders; transformers makes some with it."""

import functools

import bitsandbytes.functional
import torch
import transformers

from torch_tensors import read, to_stored

FORMATS = ("bitsandbytes",)
DTYPE = "f32"


def decode_4bit(tensors, name):
    """A weight of 4 bits as f32. Kernels of some CPUs make the other zero of it."""
    parts = {key: tensors.pop(key) for key in list(tensors) if key.startswith(f"{name}.")}
    state = bitsandbytes.functional.QuantState.from_dict(parts, torch.device("cpu"))
    return bitsandbytes.functional.dequantize_4bit(tensors.pop(name), state).float() + 0


def decode(folder, model, scratch):
    tensors = read(folder)
    for name in [name.split(".quant_state.")[0] for name in tensors if ".quant_state." in name]:
        tensors[name] = decode_4bit(tensors, name)
    for name in [name for name in tensors if name.endswith(".SCB")]:
        prefix = name.removesuffix(".SCB")
        stats, codes = tensors.pop(name), tensors.pop(f"{prefix}.weight")
        tensors.pop(f"{prefix}.weight_format")
        tensors[f"{prefix}.weight"] = bitsandbytes.functional.int8_vectorwise_dequant(codes, stats)
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def make(source, model, out, **how):
    config = transformers.BitsAndBytesConfig(**how or {"load_in_8bit": True})
    network = getattr(transformers, model.architecture).from_pretrained(
        source, quantization_config=config, device_map="cpu")
    network.save_pretrained(out)


MAKE_4BIT = functools.partial(make, load_in_4bit=True)
TOOLS = {"save_pretrained": (make, ("llama", "tied", "biased", "phi3", "bert", "mixtral")),
         "save_pretrained nf4": (functools.partial(MAKE_4BIT, bnb_4bit_quant_type="nf4"),
                                 ("llama", "tied", "biased", "phi3", "bert", "mixtral")),
         "save_pretrained double": (functools.partial(MAKE_4BIT, bnb_4bit_quant_type="nf4",
                                                      bnb_4bit_use_double_quant=True), ("llama", "tied")),
         "save_pretrained fp4": (functools.partial(MAKE_4BIT, bnb_4bit_quant_type="fp4"), ("llama", "tied"))}
