"""transformers' own blocks of fp8: its decoder of folders, and folders that it saves."""

import torch
import transformers
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

from torch_tensors import read, to_stored

transformers.logging.set_verbosity_error()

FORMATS = ("fp8",)
DTYPE = "f32"


def decode(folder, model, scratch):
    tensors = read(folder)
    decoder = Fp8Dequantize(None)
    for name in [name for name in tensors if name.endswith(".weight_scale_inv")]:
        weight = name.removesuffix("_scale_inv")
        tensors[weight] = decoder._dequantize_one(tensors[weight], tensors.pop(name), torch.float32)
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


class AnyDevice(FineGrainedFP8HfQuantizer):
    """Its kernels want a GPU, which quantizing and saving do without."""

    def validate_environment(self, *args, **kwargs):
        pass


def tool(**settings):
    def make(source, model, out):
        config = transformers.FineGrainedFP8Config(**settings)
        transformers.quantizers.auto.AUTO_QUANTIZER_MAPPING["fp8"] = AnyDevice
        network = getattr(transformers, model.architecture).from_pretrained(
            source, quantization_config=config, device_map="cpu")
        network.save_pretrained(out)
    return make


# Of experts it saves each alone and their scales together, which nothing loads.
TOOLS = {"save_pretrained": (tool(), ("square", "bert", "phi3"))}
