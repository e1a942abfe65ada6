#!/usr/bin/env python3
"""The codes of `--calibrate ldlq` against those of GPTQModel: of one layer, the same inputs and the
same scales and zero points.

    check_gptq.py --qplan PROGRAM

GPTQModel sums in f32 and goes by the inverse: where a value is next to the middle of two codes it may
take the other one, and then all later ones of that row follow.

Exit 77, with the reason, where the environment of the interop tests is missing.
"""

import argparse
import os
import pathlib
import sys
import tempfile

import run
from check_statistics import call

NAME = "model.layers.0.mlp.up_proj.weight"
ROWS, COLS, TOKENS, GROUP = 512, 512, 4096, 128
LEAST = 0.999  # of all codes


def make(folder):
    """A layer, and inputs that go together, some of which are much larger than others."""
    import torch
    from safetensors.torch import save_file
    generator = torch.Generator().manual_seed(20261119)
    mixed = torch.eye(COLS) + torch.randn(COLS, COLS, generator=generator) * 0.05
    sizes = torch.exp2(torch.rand(COLS, generator=generator) * 4 - 2)
    inputs = torch.randn(TOKENS, COLS, generator=generator) @ mixed * sizes
    weight = torch.randn(ROWS, COLS, generator=generator) * 0.02
    save_file({NAME: weight}, folder / "m.safetensors")
    save_file({f"{NAME}.hessian": (inputs.double().T @ inputs.double()).float()},
              folder / "h.safetensors")
    return weight, inputs


def by_gptqmodel(weight, inputs, bits, scales, zeros):
    """The values that it makes of a layer with the parameters given."""
    os.cpu_count = lambda: 8  # its pool of threads cannot be made on a machine with two
    import torch
    from gptqmodel.quantization import QuantizeConfig
    from gptqmodel.quantization.gptq import GPTQ
    from gptqmodel.quantization.quantizer import Quantizer

    class Given(Quantizer):
        def find_params(self, x, weight=False):
            """A group is a view of the whole matrix."""
            group = x.storage_offset() // GROUP
            self.scale = scales[:, group:group + 1]
            self.zero = zeros[:, group:group + 1] + 2.0 ** (bits - 1)

    config = QuantizeConfig(bits=bits, group_size=GROUP, sym=True, desc_act=True,
                            act_group_aware=False, damp_percent=0.01)
    config.static_groups = True
    layer = torch.nn.Linear(COLS, ROWS, bias=False)
    layer.weight.data.copy_(weight)
    gptq = GPTQ(layer, config)
    gptq.quantizer = Given(config)
    gptq.quantizer.configure(perchannel=True)
    gptq.add_batch(inputs[None], None)
    return gptq.quantize()[0]


def compare(qplan, folder, weight, inputs, scheme, bits):
    """The share of codes that are the same."""
    from safetensors.torch import load_file
    call(qplan, "quantize", "-q", "--force", "--scheme", scheme, "--calibrate", "ldlq", "--hessian",
         folder / "h.safetensors", "-o", folder / "o.safetensors", folder / "m.safetensors")
    call(qplan, "dequantize", "-q", "--force", "-o", folder / "v.safetensors",
         folder / "o.safetensors")
    parts, values = load_file(folder / "o.safetensors"), load_file(folder / "v.safetensors")[NAME]
    scales = parts[f"{NAME}_scale"].float()
    zeros = parts[f"{NAME}_zero_point"].float() if ":asym" in scheme else 0 * scales
    found = by_gptqmodel(weight, inputs, bits, scales, zeros)
    away = (found.float() - values) / scales.abs().repeat_interleave(GROUP, 1)
    return float((away.abs() < 0.5).double().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", required=True, type=lambda path: pathlib.Path(path).resolve())
    qplan = parser.parse_args().qplan
    run.enter("gptqmodel")
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weight, inputs = make(folder)
        for scheme, bits in (("int4:g128:f32", 4), ("int4:g128:asym:f32", 4), ("int3:g128:asym:f32", 3)):
            same = compare(qplan, folder, weight, inputs, scheme, bits)
            bad += same < LEAST
            print(f"{scheme:20} {same:.4%} of the codes are the same: "
                  f"{'good' if same >= LEAST else f'FAILED, expected {LEAST:.1%}'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
