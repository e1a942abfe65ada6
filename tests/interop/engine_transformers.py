"""transformers loads folders on the CPU and computes logits."""

import torch
import transformers

import models

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

FORMATS = ("compressed-tensors", "gptq", "gptq_v2", "awq", "bitsandbytes", "fp8")
EXPERTS = ("qwen3-moe", "mixtral", "deepseek-v3")
CANNOT = (
    *(("compressed-tensors * dynamic", name, "it cannot stack experts with activations")
      for name in EXPERTS),
    *(("gptq*", name, "it leaves experts at random values") for name in EXPERTS),
    *(("awq*", name, "it leaves experts at random values") for name in EXPERTS),
    *(("compressed-tensors nvfp4", name, "it loses the factor of the scales of experts")
      for name in EXPERTS),
    ("compressed-tensors mxfp8", "qwen3-moe", "it decodes no mxfp8 of experts"),
    ("gptq*", "bert", "it knows no blocks of BERT"),
)


def logits(folder, model, row):
    settings = {}
    if row and row.packs and not row.symmetric:
        # transformers 5.23 has no room for packed zero points unless it decodes at once.
        settings["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    network, report = getattr(transformers, model.architecture).from_pretrained(
        folder, output_loading_info=True, **settings)
    wrong = {kind: sorted(names)[:3] for kind, names in report.items() if names}
    if wrong:
        raise ValueError(f"transformers reports {wrong}")
    with torch.no_grad():
        return network.eval()(**models.inputs(model)).logits.float()


def distance(row, model):
    if row.dynamic:
        return 0.06
    if row.format in ("compressed-tensors", "fp8"):  # it decodes fp8 where there is no GPU
        return 0.0
    # A router may choose another expert after the smallest of differences.
    return 0.15 if model.name in EXPERTS else 0.04


TOOLS = {}
