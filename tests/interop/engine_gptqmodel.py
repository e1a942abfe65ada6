"""GPTQModel decodes GPTQ and AWQ folders, and makes some by rounding to nearest, or by data."""

import json
import os

# Its pool of threads cannot be made on a machine with two.
os.cpu_count = lambda: 8

import torch
from gptqmodel import GPTQModel, QuantizeConfig
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
from gptqmodel.quantization.config import FORMAT, RTNConfig
from gptqmodel.utils.model_dequant import dequantize_model

import stored
from torch_tensors import read, to_stored

FORMATS = ("gptq", "gptq_v2", "awq")
DTYPE = "f16"


def decode_awq(folder, config):
    """Its decoder of folders gives other values for AWQ than its kernels: hence theirs."""
    tensors = read(folder)
    group = config["group_size"]
    for name in [name for name in tensors if name.endswith(".qweight")]:
        prefix = name.removesuffix(".qweight")
        qweight, qzeros, scales = (tensors.pop(f"{prefix}.{part}")
                                   for part in ("qweight", "qzeros", "scales"))
        tensors[f"{prefix}.weight"] = dequantize_gemm(qweight, qzeros, scales, 4, group).T
    return {name: to_stored(tensor) for name, tensor in tensors.items()}


def decode(folder, model, scratch):
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    if config["quant_method"] == "awq":
        return decode_awq(folder, config)
    dequantize_model(folder, scratch, target_dtype=torch.float16)
    # It converts what is not quantized, too: that is compared by the census, byte for byte.
    kept = stored.read(folder)
    return {name: kept.get(name, tensor) for name, tensor in stored.read(scratch).items()}


def tool(format_, bits, group, symmetric):
    def make(source, model, out):
        config = RTNConfig(bits=bits, group_size=group, format=format_, sym=symmetric,
                           offload_to_disk=False)
        network = GPTQModel.load(str(source), config)
        network.quantize(calibration=None)
        network.save(str(out))
        if format_ == FORMAT.GEMM:
            name_awq(out / "config.json", group)
    return make


def by_data(source, model, out):
    """The columns with the largest inputs come first, so that groups are in no order of columns."""
    config = QuantizeConfig(bits=4, group_size=32, desc_act=True, act_group_aware=False,
                            offload_to_disk=False)
    generator = torch.Generator().manual_seed(4)
    texts = [{"input_ids": torch.randint(3, 300, (1, 48), generator=generator),
              "attention_mask": torch.ones(1, 48, dtype=torch.int64)} for _ in range(16)]
    network = GPTQModel.load(str(source), config)
    network.quantize(calibration=texts, batch_size=1)
    network.save(str(out))


def name_awq(path, group):
    """It calls such a folder gptq, in the format gemm, which no loader knows."""
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": group,
                                     "zero_point": True, "version": "gemm"}
    path.write_text(json.dumps(config))


TOOLS = {
    "RTN gptq 4 bits": (tool(FORMAT.GPTQ, 4, 128, True), ("llama", "biased", "phi3")),
    "RTN gptq 2 bits": (tool(FORMAT.GPTQ, 2, 32, True), ("llama",)),
    "RTN gptq 3 bits": (tool(FORMAT.GPTQ, 3, 64, True), ("llama",)),
    "RTN gptq 8 bits": (tool(FORMAT.GPTQ, 8, 64, True), ("tied",)),
    "RTN gptq_v2 4 bits": (tool(FORMAT.GPTQ_V2, 4, 64, False), ("llama",)),
    "GPTQ by data": (by_data, ("llama",)),
    "RTN awq": (tool(FORMAT.GEMM, 4, 64, False), ("llama",)),
}
