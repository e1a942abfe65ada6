"""bitsandbytes decodes folders; transformers makes some with it."""

import bitsandbytes.functional
import transformers

from torch_tensors import read, to_stored

FORMATS = ("bitsandbytes",)
DTYPE = "f32"


def decode(folder, model, scratch):
    tensors = read(folder)
    for name in [name for name in tensors if name.endswith(".SCB")]:
        prefix = name.removesuffix(".SCB")
        stats, codes = tensors.pop(name), tensors.pop(f"{prefix}.weight")
        tensors.pop(f"{prefix}.weight_format")
        tensors[f"{prefix}.weight"] = bitsandbytes.functional.int8_vectorwise_dequant(codes, stats)
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def make(source, model, out):
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    network = getattr(transformers, model.architecture).from_pretrained(
        source, quantization_config=config, device_map="cpu")
    network.save_pretrained(out)


TOOLS = {"save_pretrained": (make, ("llama", "tied", "biased", "phi3", "bert", "mixtral"))}
