#!/usr/bin/env python3
"""`--arithmetic reference` of float codes against the tools themselves, byte for byte.

    recipes.py --qplan PROGRAM [-v] TOOL

TOOL is a key of TOOLS. For F32, F16 and BF16 a few models of one block hold values of one kind
each: random ones, ties, zeros of both signs, the largest and the smallest numbers, any bits. What
`qplan quantize` writes must be the tool's bytes, and `qplan verify` must prove it. What qplan
refuses is in REFUSED, and nothing else, so that the list stays true.

Exit 77, with the reason, where the environment or a package is missing.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
SAID = ("makes no scale of set", "makes no factor of its scales")


def enter(tool):
    """Starts this program again in the environment of the tool."""
    venv = BUILD / "interop-venv"
    if pathlib.Path(sys.prefix).resolve() == venv.resolve():
        return
    if not (venv / "bin" / "python3").exists():
        print(f"skipped: no build/{venv.name}; scripts/test.sh --interop makes it")
        sys.exit(77)
    home = BUILD / "interop-home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1",
           "PYTHONPATH": str(HERE.parent / "golden")}
    python = str(venv / "bin" / "python3")
    os.execve(python, [python, *sys.argv], env)


# ---- Values ------------------------------------------------------------------------------------

ROWS, COLS = 128, 256
ATTENTION = [f"model.layers.0.self_attn.{n}_proj.weight" for n in "qkvo"]
NAMES = (*ATTENTION, "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
         "model.layers.0.mlp.experts.3.gate_proj.weight",
         "model.layers.0.mlp.experts.3.up_proj.weight")


def any_bits(rng, dtype):
    """Every finite number is as likely as another; each row has those up to some size."""
    bits = rng.integers(0, 2 ** 32, (ROWS, COLS), dtype=np.uint32)
    if dtype == "F16":
        halves = (bits >> 16).astype(np.uint16).view(np.float16)
        return np.where(np.isfinite(halves), halves, 1).astype(np.float32)
    wide = bits.view(np.float32)
    wide = np.where(np.abs(wide) < 1e38, wide, 1).astype(np.float32)
    with np.errstate(under="ignore"):
        most = np.ldexp(1.0, rng.integers(-100, 120, (ROWS, 1))).astype(np.float32)
        return np.where(np.abs(wide) < most, wide, most / 3)


def values(kind, rng, dtype):
    normal = rng.standard_normal((ROWS, COLS), dtype=np.float32)
    signs = rng.choice(np.float32([-1, 1]), (ROWS, COLS))
    if kind == "random":
        return normal * np.float32(0.02) * np.float32(rng.choice([1, 3, 0.1]))
    if kind == "ties":
        powers = np.ldexp(1.0, rng.integers(-4, 4, (ROWS, COLS // 16))).repeat(16, 1)
        return (signs * rng.integers(0, 25, (ROWS, COLS)) / 4 * powers).astype(np.float32)
    if kind == "zeros":
        kept = rng.random((ROWS, COLS // 32)).repeat(32, 1) < 0.5
        return np.where(kept, normal, signs * np.float32(0))
    if kind == "all zeros":
        return signs * np.float32(0)
    if kind == "huge":
        return normal * np.float32(5000 if dtype == "F16" else 1e37)
    if kind == "largest":
        return normal * np.float32(14000 if dtype == "F16" else 7e37)
    if kind == "small":
        return normal * np.float32(1e-4)
    if kind == "tiny":
        return normal * np.float32(1e-7 if dtype == "F16" else 1e-30)
    if kind == "subnormal":
        return normal * np.float32(1e-39)
    return any_bits(rng, dtype)


KINDS = ("random", "ties", "zeros", "all zeros", "huge", "largest", "small", "tiny", "subnormal",
         "any bits")


def model(kind, dtype, seed, format_):
    """MLX wants experts stacked: a layout that does has none here."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        return {name: stored.packed(dtype, values(kind, rng, dtype)) for name in NAMES
                if format_ != "mlx" or ".experts." not in name}


def as_torch(tensor):
    import torch
    from torch_tensors import NAMES as TYPES
    dtype = {name: dtype for dtype, name in TYPES.items()}[tensor.dtype]
    return torch.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(tensor.shape)


def raw(tensor):
    """The bytes of a tensor of torch."""
    import torch
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


# ---- Tools -------------------------------------------------------------------------------------
# Each gives, for all tensors of a model, the bytes of what it stores, by name; None where it fails.

def compressed_tensors(scheme, source):
    from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
    from llmcompressor.entrypoints.model_free.converter import ModelFreePtqConverter
    from llmcompressor.entrypoints.model_free.validate import validate_config
    presets = {"fp8:c0": "FP8_DYNAMIC", "fp8:b128x128": "FP8_BLOCK", "nvfp4": "NVFP4A16",
               "mxfp4": "MXFP4A16", "mxfp8": "MXFP8A16"}
    if scheme == "fp8:t":
        asked = preset_name_to_scheme("FP8_DYNAMIC", ["Linear"])
        asked.weights.strategy = "tensor"
    else:
        asked = preset_name_to_scheme(presets[scheme], ["Linear"])
    config = validate_config(QuantizationConfig(config_groups={"group": asked}, ignore=[]), None, ())
    made = ModelFreePtqConverter(config).process({n: as_torch(t) for n, t in source.items()})
    return {name: raw(tensor) for name, tensor in made.items() if not name.endswith("zero_point")}


def transformers(scheme, source):
    from types import SimpleNamespace
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    config = SimpleNamespace(weight_block_size=(128, 128), scale_fmt=None)
    operation = Fp8Quantize(SimpleNamespace(quantization_config=config))
    made = operation.convert({name: as_torch(t) for name, t in source.items()})
    return {name: raw(tensor) for name, tensor in made.items()}


def mlx(scheme, source):
    import mlx.core as mx
    mx.set_default_device(mx.cpu)
    dtypes = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
    group, bits = {"nvfp4": (16, 4), "mxfp4": (32, 4), "mxfp8": (32, 8)}[scheme]
    made = {}
    for name, tensor in source.items():
        plain = mx.array(np.frombuffer(tensor.data, np.uint8)).view(dtypes[tensor.dtype])
        weight, scales = mx.quantize(plain.reshape(tensor.shape), group, bits, mode=scheme)
        made[name] = np.array(weight).tobytes()
        made[name.replace(".weight", ".scales")] = np.array(scales).tobytes()
    return made


def modelopt(scheme, source):
    import torch
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
    weights = {name: as_torch(tensor) for name, tensor in source.items()}
    factors = {name: NVFP4QTensor.get_weights_scaling_factor_2(w) for name, w in weights.items()}
    made = {}
    for name, weight in weights.items():
        prefix, word = name.removesuffix(".weight").rsplit(".", 1)
        family = next((f for f in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
                       if word in f), (word,))
        factor = torch.stack([factors[f"{prefix}.{w}.weight"] for w in family]).max()
        codes, scales, _ = NVFP4QTensor.quantize(weight, 16, weights_scaling_factor_2=factor)
        made |= {name: raw(codes._quantized_data), f"{name}_scale": raw(scales),
                 f"{name}_scale_2": raw(factor)}
    return made


def comfyui(scheme, source):
    import torch
    from comfy_kitchen.tensor import (TensorCoreFP8Layout, TensorCoreMXFP8Layout,
                                      TensorCoreNVFP4Layout, TensorWiseINT8Layout)
    layout, options = {
        "fp8:t": (TensorCoreFP8Layout, {}),
        "f8e5m2:t": (TensorCoreFP8Layout, {"dtype": torch.float8_e5m2}),
        "int8:t": (TensorWiseINT8Layout, {"per_channel": False}),
        "int8:c0": (TensorWiseINT8Layout, {"per_channel": True}),
        "nvfp4": (TensorCoreNVFP4Layout, {}),
        "mxfp8": (TensorCoreMXFP8Layout, {}),
    }[scheme]
    made = {}
    for name, tensor in source.items():
        codes, params = layout.quantize(as_torch(tensor), **options)
        parts = layout.state_dict_tensors(codes, params)
        made |= {name + suffix: raw(part) for suffix, part in parts.items()}
    return made


FLOATS = ("fp8:c0", "fp8:t", "fp8:b128x128", "nvfp4", "mxfp4", "mxfp8")
TOOLS = {
    "compressed-tensors": (compressed_tensors, FLOATS),
    "fp8": (transformers, ("fp8:b128x128",)),
    "mlx": (mlx, ("nvfp4", "mxfp4", "mxfp8")),
    "modelopt": (modelopt, ("nvfp4",)),
    "comfyui": (comfyui, ("fp8:t", "f8e5m2:t", "int8:t", "int8:c0", "nvfp4", "mxfp8")),
}


# Cases in which a tool makes what does not decode, or to other values, and why.
INFINITE = "what values are multiplied with is infinite: codes are the largest, and no numbers of 0"
NO_FACTOR = "the factor is 0, and scales are no numbers"
REFUSED = (
    ("compressed-tensors mx*, *, largest", "the power above the largest value is infinite"),
    ("compressed-tensors mx*, F16, any bits", "the power above the largest value is infinite"),
    ("fp8 *, F32, subnormal", INFINITE),
    ("fp8 *, BF16, subnormal", INFINITE),
    ("mlx mx*, F32, subnormal", "exponents of scales wrap around"),
    ("mlx mxfp4, BF16, subnormal", "exponents of scales wrap around"),
    ("modelopt *, *, all zeros", NO_FACTOR),
    ("modelopt *, F16, subnormal", NO_FACTOR),
    ("comfyui f*:t, *, all zeros", INFINITE),
    ("comfyui f*:t, *, subnormal", INFINITE),
    ("comfyui f*:t, F16, tiny", INFINITE),
    ("comfyui f*:t, F16, small", INFINITE),
    ("comfyui f8e5m2:t, F16, random", INFINITE),
    ("comfyui nvfp4, *, all zeros", NO_FACTOR),
    ("comfyui nvfp4, BF16, subnormal", NO_FACTOR),
    ("comfyui nvfp4, F16, subnormal", NO_FACTOR),
    ("comfyui nvfp4, F16, tiny", NO_FACTOR),
    ("comfyui mxfp8, BF16, subnormal", "the least scale is taken for 0"),
    ("comfyui mxfp8, F32, subnormal", "the least scale is taken for 0"),
)


# ---- Comparison --------------------------------------------------------------------------------

class Failure(Exception):
    """A check that did not hold; the text says which."""


def call(qplan, *args):
    return subprocess.run([qplan, *map(str, args)], capture_output=True, text=True, timeout=120)


def differences(found, wanted):
    for name in sorted(set(found) | set(wanted)):
        a, b = found.get(name), wanted.get(name)
        if a is None or b is None:
            yield f"{name} is {'lost' if a is None else 'left over'}"
        elif a != b:
            x, y = np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8)
            at = (x != y).nonzero()[0] if len(x) == len(y) else [0]
            yield (f"{name}: {len(at)} of {len(y)} bytes, the first at {at[0]}: {x[at[0]]}, "
                   f"expected {y[at[0]]}")


def write_source(source, format_, folder):
    if format_ == "comfyui":
        stored.write(folder / "source.safetensors", source)
        return folder / "source.safetensors", folder / "made.safetensors"
    (folder / "source").mkdir()
    stored.write(folder / "source" / "model.safetensors", source)
    (folder / "source" / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    return folder / "source", folder / "made"


def check(qplan, tool, case, source, folder):
    format_, scheme, refused = case
    path, made = write_source(source, format_, folder)
    done = call(qplan, "quantize", "--format", format_, "--scheme", scheme, "--arithmetic",
                "reference", "--select", "all", "-q", "-o", made, path)
    if refused:
        if done.returncode != 3 or not any(reason in done.stderr for reason in SAID):
            raise Failure(f"exit {done.returncode}, expected a refusal: {refused}")
        return f"refused: {refused}"
    if done.returncode != 0:
        raise Failure(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
    found = {name: tensor.data for name, tensor in stored.read(made).items()
             if not name.endswith(".comfy_quant")}
    wrong = list(differences(found, tool(scheme, source)))
    if wrong:
        raise Failure("; ".join(wrong[:3]))
    proof = call(qplan, "verify", "-q", made, path)
    if proof.returncode != 0 or "proven: every code" not in proof.stdout:
        raise Failure(f"verify: exit {proof.returncode}: {proof.stderr.strip()[-300:]}")
    return "equal"


def run(qplan, tool, format_, scheme, dtype, kind, seed, verbose):
    """Whether one case holds."""
    name = f"{format_} {scheme}, {dtype}, {kind}"
    refused = next((why for pattern, why in REFUSED if fnmatch.fnmatch(name, pattern)), None)
    try:
        with tempfile.TemporaryDirectory() as folder:
            said = check(qplan, tool, (format_, scheme, refused), model(kind, dtype, seed, format_),
                         pathlib.Path(folder))
    except Failure as problem:
        print(f"FAILED {name}, {seed}: {problem}", flush=True)
        return False
    if verbose:
        print(f"{name}, {seed}: {said}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    parser.add_argument("tool", choices=TOOLS)
    args = parser.parse_args()
    tool, schemes = TOOLS[args.tool]
    cases = [(scheme, dtype, kind, seed) for scheme in schemes for dtype in ("BF16", "F16", "F32")
             for kind in KINDS for seed in range(args.seeds)
             if args.only in f"{scheme}, {dtype}, {kind}"]
    try:
        held = [run(args.qplan.resolve(), tool, args.tool, *case, args.verbose) for case in cases]
    except ImportError as problem:
        print(f"skipped: {problem}")
        return 77
    print(f"{sum(held)} passed, {len(held) - sum(held)} failed")
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    enter(sys.argv[-1])
    import numpy as np
    import stored
    warnings.simplefilter("ignore")
    sys.exit(main())
