#!/usr/bin/env python3
"""The layouts that engines load, against folders that the engines' own libraries made.

    layouts.py --qplan PATH --data testdata [-v] [GOLDEN...]

A golden is a folder testdata/LAYOUT/NAME: source.safetensors, what a library made of it (encoded/)
and what it decodes that to (decoded.safetensors); origin.json says which library. Of each:

 - the decoder in numpy (decoders.py) gives the library's values, bit for bit;
 - `qplan dequantize` gives them too, in the decoder's own type and in the one of config.json, and
   where the groups of columns are in another order, or not stored;
 - `qplan quantize --requantize` makes of it what it makes of the library's values, and of folders
   as models are published (PUBLISHED) also what engines load;
 - `qplan verify` proves the codes of libraries that make the nearest (NEAREST);
 - what `qplan quantize` writes has exactly the stored tensors of the layout (census.py), numpy and
   `qplan dequantize` agree on their values, and `qplan verify` proves them;
 - `--arithmetic reference` writes the library's bytes.

Experts of gpt-oss, of random bytes and larger, are read in pieces of several sizes.

Formats and options that the program does not know are in AWAITED, where one that it knows may not
be.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True

import census
import decoders
import stored
from census import Row
from experts import divide_experts, split_experts

AWAITED = set()
WITHOUT_RECIPE = {"awq"}  # its tool goes by data
ZEROS_ALIKE = {"bitsandbytes", "modelopt"}  # whose tools may decode the code of -0 to 0
# Whose libraries make nearest codes; blocks of zeros of nvfp4 have the scale 0 in the latter two.
NEAREST = {"bitsandbytes/nf4-g32", "bitsandbytes/nf4-ragged", "comfyui/nvfp4", "mlx/nvfp4"}
PUBLISHED = {"fp8"}  # layouts that models are published in
# What layouts call numbers by which engines quantize the inputs of a layer.
INPUTS = {"compressed_tensors": ("input_scale", "input_zero_point", "input_global_scale"),
          "fp8": ("activation_scale", "input_scale"), "modelopt": ("input_scale",),
          "comfyui": ("input_scale",)}
IN_F32 = {"comfyui", "fp8", "modelopt"}  # decoders that give F32, whatever the source was

# How qplan is told to make each golden; those without a row are only read.
DYNAMIC = ("--activations", "dynamic")
ROWS = {
    "compressed_tensors/int2-g32": Row("compressed-tensors", "int2:g32"),
    "compressed_tensors/int3-g32": Row("compressed-tensors", "int3:g32"),
    "compressed_tensors/int4-channel": Row("compressed-tensors", "int4:c0"),
    "compressed_tensors/int4-channel-asym": Row("compressed-tensors", "int4:c0:asym"),
    "compressed_tensors/int4-g128": Row("compressed-tensors", "int4:g128"),
    "compressed_tensors/int4-g128-asym": Row("compressed-tensors", "int4:g128:asym"),
    "compressed_tensors/int4-g32": Row("compressed-tensors", "int4:g32"),
    "compressed_tensors/int4-g32-asym": Row("compressed-tensors", "int4:g32:asym"),
    "compressed_tensors/int4-g32-experts": Row("compressed-tensors", "int4:g32",
                                               ("--experts", "split")),
    "compressed_tensors/int6-channel": Row("compressed-tensors", "int6:c0"),
    "compressed_tensors/int8-channel": Row("compressed-tensors", "int8:c0"),
    "compressed_tensors/int8-channel-asym": Row("compressed-tensors", "int8:c0:asym"),
    "compressed_tensors/int8-g128": Row("compressed-tensors", "int8:g128"),
    "compressed_tensors/w8a8": Row("compressed-tensors", "int8:c0", DYNAMIC),
    "compressed_tensors/w8a8-asym": Row("compressed-tensors", "int8:c0:asym", DYNAMIC),
    "compressed_tensors/fp8-block": Row("compressed-tensors", "fp8:b128x128"),
    "compressed_tensors/fp8-dynamic": Row("compressed-tensors", "fp8:c0"),
    "compressed_tensors/fp8-tensor": Row("compressed-tensors", "fp8:t"),
    "compressed_tensors/fp8-weight-only": Row("compressed-tensors", "fp8:c0",
                                              ("--activations", "none")),
    "compressed_tensors/nvfp4a16": Row("compressed-tensors", "nvfp4"),
    "compressed_tensors/nvfp4a16-fused": Row("compressed-tensors", "nvfp4"),
    "compressed_tensors/mxfp4a16": Row("compressed-tensors", "mxfp4"),
    "compressed_tensors/mxfp8a16": Row("compressed-tensors", "mxfp8"),
    "fp8/block128": Row("fp8", "fp8:b128x128"),
    "modelopt/nvfp4": Row("modelopt", "nvfp4"),
    "gptq/int4-sym-g128": Row("gptq", "int4:g128"),
    "gptq/int8-sym-g32": Row("gptq", "int8:g32"),
    "gptq_v2/int4-asym-g32": Row("gptq_v2", "int4:g32:asym"),
    "gptq_v2/int8-asym-g128": Row("gptq_v2", "int8:g128:asym"),
    "awq/int4-g128": Row("awq", "uint4:g128"),
    "awq/int4-g32": Row("awq", "uint4:g32"),
    "mlx/affine-2bit-g64": Row("mlx", "uint2:g64"),
    "mlx/affine-3bit-g32": Row("mlx", "uint3:g32"),
    "mlx/affine-4bit-g128": Row("mlx", "uint4:g128"),
    "mlx/affine-4bit-g32": Row("mlx", "uint4:g32"),
    "mlx/affine-4bit-g64": Row("mlx", "uint4:g64"),
    "mlx/affine-5bit-g64": Row("mlx", "uint5:g64"),
    "mlx/affine-6bit-g128": Row("mlx", "uint6:g128"),
    "mlx/affine-8bit-g64": Row("mlx", "uint8:g64"),
    "mlx/mxfp4": Row("mlx", "mxfp4"),
    "mlx/mxfp8": Row("mlx", "mxfp8"),
    "mlx/nvfp4": Row("mlx", "nvfp4"),
    "comfyui/fp8-e4m3": Row("comfyui", "fp8:t"),
    "comfyui/fp8-e5m2": Row("comfyui", "f8e5m2:t"),
    "comfyui/mxfp8": Row("comfyui", "mxfp8"),
    "comfyui/nvfp4": Row("comfyui", "nvfp4"),
    "comfyui/int8-tensor": Row("comfyui", "int8:t"),
    "comfyui/int8-rows": Row("comfyui", "int8:c0"),
    "bitsandbytes/int8": Row("bitsandbytes", "int8:c0"),
    "bitsandbytes/nf4": Row("bitsandbytes", "nf4"),
    "bitsandbytes/nf4-g32": Row("bitsandbytes", "nf4:g32"),
    "bitsandbytes/nf4-ragged": Row("bitsandbytes", "nf4"),
    "bitsandbytes/nf4-double": Row("bitsandbytes", "nf4:double"),
    "bitsandbytes/nf4-double-many": Row("bitsandbytes", "nf4:double"),
}
# Tensors that mark old files of fp8, by golden: of some prefix, in some type.
OLD_MARKS = {"fp8-e4m3": ({"scaled_fp8": "F8_E4M3"}, {"model.scaled_fp8": "F32"},
                          {"model.scaled_fp8": "F8_E4M3", "other.scaled_fp8": "F8_E5M2"}),
             "fp8-e5m2": ({"model.layers.scaled_fp8": "F8_E5M2"}, {"scaled_fp8": "F8_E5M2"})}
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
TIMEOUT_SECONDS = 120


class Failure(Exception):
    """A check that did not hold; the text says which."""


class Program:
    def __init__(self, path):
        self.path = path

    def call(self, *args):
        return subprocess.run([self.path, *map(str, args)], capture_output=True, text=True,
                              timeout=TIMEOUT_SECONDS)

    def run(self, *args):
        done = self.call(*args)
        if done.returncode != 0:
            raise Failure(f"exit {done.returncode} of qplan {' '.join(map(str, args))}: "
                          f"{done.stderr.strip()[-500:]}")

    def knows(self, name):
        """Whether there is such a format or, with dashes in front, such an option."""
        asked = (name, "?") if name.startswith("--") else ("--format", name)
        said = self.call("quantize", *asked, "-q", "no-such-file").stderr
        return "unknown format" not in said and "unknown option" not in said


# ---- Folders -----------------------------------------------------------------------------------

def with_config(source, folder, change):
    """A copy of a folder, with a change made to its config."""
    shutil.copytree(source, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return folder


def without_dtype(config):
    config.pop("torch_dtype", None)


def source_folder(golden, folder):
    """The golden's source as the folder of a model, of which no type of its weights is known."""
    folder.mkdir()
    shutil.copy(golden / "source.safetensors", folder / "model.safetensors")
    experts = any("experts.gate_up_proj" in name for name in stored.read(folder))
    config = {"architectures": ["Qwen3MoeForCausalLM" if experts else "LlamaForCausalLM"],
              "model_type": "qwen3_moe" if experts else "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def source_file(golden, path):
    """The golden's source, in F32 where the library was given it so."""
    tensors = stored.read(golden / "source.safetensors")
    if "of F32 values" in json.loads((golden / "origin.json").read_text())["encode"]:
        tensors = {name: stored.packed("F32", stored.values(t)) for name, t in tensors.items()}
    stored.write(path, tensors)
    return path


def bytes_of_scales(tensor):
    """Exponents have two types that stand for the same bytes; qplan writes the older one."""
    return stored.Stored("U8", tensor.shape, tensor.data) if tensor.dtype == "F8_E8M0" else tensor


# ---- Checks ------------------------------------------------------------------------------------

def equal(a, b, zeros_alike):
    if not zeros_alike or a.dtype not in ("F32", "F16", "BF16") or (a.dtype, a.shape) != (b.dtype, b.shape):
        return a == b
    return np.array_equal(stored.values(a), stored.values(b))


def same(what, found, wanted, layout=None):
    """Whether two checkpoints hold the same tensors, bit for bit."""
    for name in sorted(set(found) | set(wanted)):
        if name not in found or name not in wanted:
            raise Failure(f"{what}: {name} is {'lost' if name in wanted else 'left over'}")
        a, b = found[name], wanted[name]
        if not equal(a, b, layout in ZEROS_ALIKE):
            raise Failure(f"{what}: {name} differs: {a.dtype} {a.shape}, "
                          f"expected {b.dtype} {b.shape}, {unequal(a, b)}")


def unequal(a, b):
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return "another type or shape"
    x, y = stored.values(a).ravel(), stored.values(b).ravel()
    at = (x != y).nonzero()[0]
    return (f"{len(at)} of {len(x)} values, the first at {at[0]}: {x[at[0]]}, expected {y[at[0]]}"
            if len(at) else "zeros of another sign")


def check_reading(qplan, golden, folder):
    decoded = stored.read(golden / "decoded.safetensors")
    plain = with_config(golden / "encoded", folder / "own", without_dtype)
    qplan.run("dequantize", "-q", "-o", folder / "own-values", plain)
    same("dequantize", stored.read(folder / "own-values"), decoded, golden.parent.name)

    config = json.loads((golden / "encoded" / "config.json").read_text())
    dtype = DTYPES[config["torch_dtype"]]
    kept = stored.read(golden / "encoded")
    wanted = {name: tensor if kept.get(name) == tensor or f"{name}.quant_map" in kept
              else stored.packed(dtype, stored.values(tensor)) for name, tensor in decoded.items()}
    qplan.run("dequantize", "-q", "-o", folder / "values", golden / "encoded")
    same(f"dequantize to {dtype}", stored.read(folder / "values"), wanted, golden.parent.name)


def check_inputs(qplan, golden, folder):
    """Numbers for the inputs of quantized layers are nothing without these: one, not two."""
    encoded = stored.read(golden / "encoded")
    decoded = stored.read(golden / "decoded.safetensors")
    made = with_config(golden / "encoded", folder / "with-inputs", without_dtype)
    one, two = stored.packed("F32", np.ones(1)), stored.Stored("F32", (2,), bytes(8))
    zero = stored.Stored("I8", (1,), b"\x80")
    layers = [name.removesuffix(".weight") for name, tensor in decoded.items()
              if encoded.get(name) != tensor and name.endswith(".weight")]
    kept = {f"{layers[0]}.{INPUTS[golden.parent.name][0]}": two, "norm.input_scale": one}
    more = {f"{layer}.{part}": zero if part.endswith("_zero_point") else one
            for layer in layers for part in INPUTS[golden.parent.name]}
    for index in made.glob("*.index.json"):
        index.unlink()
    stored.write(made / "model.safetensors", {**encoded, **more, **kept})
    qplan.run("dequantize", "-q", "-o", folder / "without-inputs", made)
    same("inputs", stored.read(folder / "without-inputs"), {**decoded, **kept}, golden.parent.name)
    source, plain = golden / "decoded.safetensors", folder / "decoded-with-inputs.safetensors"
    stored.write(plain, {**decoded, **kept})
    if qplan.call("verify", "-q", made, plain).returncode != \
            qplan.call("verify", "-q", golden / "encoded", source).returncode:
        raise Failure("inputs: another verdict of verify")


def check_requantizing(qplan, golden, folder):
    """In one stream, and from the values of the library: every tensor, and every record."""
    how = ("--select", "all", "--scheme", "int8:c0", "-q", "-o")
    plain = with_config(golden / "encoded", folder / "untyped", without_dtype)
    qplan.run("quantize", "--requantize", *how, folder / "anew", plain)
    qplan.run("quantize", *how, folder / "wanted.safetensors", golden / "decoded.safetensors")
    if (folder / "anew" / "model.safetensors").read_bytes() != \
            (folder / "wanted.safetensors").read_bytes():
        raise Failure("requantize: not what is made of the library's values")
    qplan.run("verify", "-q", folder / "anew", plain)


def check_publishing(qplan, golden, folder):
    """A folder as a model is published becomes one of packed integers, in one stream."""
    values = with_config(golden / "encoded", folder / "plain",
                         lambda config: config.pop("quantization_config"))
    qplan.run("dequantize", "-q", "-o", folder / "decoded", golden / "encoded")
    shutil.copy(folder / "decoded" / "model.safetensors", values)
    how = ("--preset", "w4a16", "-q", "-o")
    qplan.run("quantize", "--requantize", *how, folder / "w4a16", golden / "encoded")
    qplan.run("quantize", *how, folder / "w4a16-wanted", values)
    same("w4a16", stored.read(folder / "w4a16"), stored.read(folder / "w4a16-wanted"))
    if not any(name.endswith(".weight_packed") for name in stored.read(folder / "w4a16")):
        raise Failure("w4a16: nothing is packed")
    qplan.run("verify", "-q", folder / "w4a16", golden / "encoded")
    qplan.run("verify", "-q", folder / "w4a16", values)


def shuffled(name, tensor):
    """The groups of columns in another order, as tools store them that go by activations."""
    values = stored.values(tensor)
    return stored.packed("I32", values[np.argsort(np.arange(len(values)) * 2654435761 % 97)])


def changed_index(golden, folder, change):
    """The golden with what a change makes of each g_idx, or without it where that is None."""
    with_config(golden / "encoded", folder, without_dtype)
    tensors = {name: change(name, tensor) if name.endswith(".g_idx") else tensor
               for name, tensor in stored.read(folder).items()}
    stored.write(folder / "model.safetensors",
                 {name: tensor for name, tensor in tensors.items() if tensor})
    return folder


def check_old_form(qplan, golden, folder):
    """fp8 of ComfyUI as it was stored before layers had marks."""
    for i, marks in enumerate(OLD_MARKS.get(golden.name, ())):
        tensors = {}
        for name, tensor in stored.read(golden / "encoded").items():
            layer = name.removesuffix(".weight_scale")
            if layer != name:
                tensors[f"{layer}.scale_weight"] = stored.Stored("F32", (1,) * (i % 2), tensor.data)
                tensors[f"{layer}.scale_input"] = tensor
            elif not name.endswith(".comfy_quant"):
                tensors[name] = tensor
        wanted = stored.read(golden / "decoded.safetensors")
        for name, dtype in marks.items():
            tensors[name] = stored.Stored(dtype, (2,), bytes(2 * (4 if dtype == "F32" else 1)))
            if not any(layer.startswith(name.removesuffix("scaled_fp8")) for layer in wanted):
                wanted[name] = tensors[name]  # it marks nothing, and so is a tensor like others
        made, back = folder / f"old{i}.safetensors", folder / f"old{i}-values.safetensors"
        stored.write(made, tensors)
        qplan.run("dequantize", "-q", "-o", back, made)
        same("old form", stored.read(back), wanted)
        qplan.run("verify", "-q", made, back)


def check_header_form(qplan, golden, folder):
    """Marks of ComfyUI that are in the header, of all layers in one text."""
    tensors, layers, suffix = {}, {}, ".comfy_quant"
    for name, tensor in stored.read(golden / "encoded").items():
        if name.endswith(suffix):
            layers[name.removesuffix(suffix)] = json.loads(tensor.data)
        else:
            tensors[name] = tensor
    claim = "_quantization_metadata"
    metadata = {claim: json.dumps({"format_version": "1.0", "layers": layers}), "note": "kept"}
    made, back = folder / "header.safetensors", folder / "header-values.safetensors"
    stored.write(made, tensors, metadata)
    qplan.run("dequantize", "-q", "-o", back, made)
    same("header form", stored.read(back), stored.read(golden / "decoded.safetensors"))
    qplan.run("verify", "-q", made, back)
    qplan.run("quantize", "-q", "--requantize", "-o", folder / "header-again.safetensors", made)
    for path in (back, folder / "header-again.safetensors"):
        found = stored.metadata(path)
        if claim in found or found.get("note") != "kept":
            raise Failure(f"metadata of {path.name}: {sorted(found)}")


def check_scale_types(qplan, golden, folder):
    """fp8 as other tools store it: scales of 16 bits, and ones that are not the powers of two that
    config.json says they are."""
    for dtype in ("BF16", "F16", "F32"):
        for fmt in (None, "ue8m0"):
            back = folder / f"{dtype}-{fmt}-values"
            made = with_config(golden / "encoded", folder / f"{dtype}-{fmt}", lambda config: (
                without_dtype(config), config["quantization_config"].update({"scale_fmt": fmt} if fmt else {})))
            tensors = stored.read(made)
            for name in [name for name in tensors if name.endswith("_scale_inv")]:
                tensors[name] = stored.packed(dtype, stored.values(tensors[name]))
            stored.write(made / "model.safetensors", tensors)
            qplan.run("dequantize", "-q", "-o", back, made)
            same(f"scales of {dtype}, {fmt}", stored.read(back), decoders.decode(made))
            qplan.run("verify", "-q", made, back)


def check_description(qplan, golden, folder):
    """ModelOpt's folders whose config.json says nothing of the quantization, but another file."""
    made, back = folder / "beside", folder / "beside-values"
    with_config(golden / "encoded", made, lambda config: (without_dtype(config),
                                                          config.pop("quantization_config")))
    (made / "hf_quant_config.json").write_text(json.dumps(
        {"producer": {"name": "modelopt", "version": "0.29.0"},
         "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
                          "exclude_modules": ["lm_head"]}}))
    qplan.run("dequantize", "-q", "-o", back, made)
    same("description beside", stored.read(back), stored.read(golden / "decoded.safetensors"),
         golden.parent.name)
    if (back / "hf_quant_config.json").exists():
        raise Failure("description beside: it says that plain tensors are quantized")
    qplan.run("verify", "-q", made, back)
    qplan.run("quantize", "-q", "--requantize", "--scheme", "int8:c0", "-o", folder / "beside-anew", made)
    qplan.run("verify", "-q", folder / "beside-anew", made)


def check_index(qplan, golden, folder):
    """GPTQ tells the group of each column: in any order, or not at all."""
    if not any(name.endswith(".g_idx") for name in stored.read(golden / "encoded")):
        return
    for what, change in (("any-order", shuffled), ("no-index", lambda name, tensor: None)):
        made, back = changed_index(golden, folder / what, change), folder / f"{what}-values"
        qplan.run("dequantize", "-q", "-o", back, made)
        same(what, stored.read(back), decoders.decode(made))
        qplan.run("verify", "-q", made, back)
        qplan.run("verify", "-q", "--memory", "8M", "--threads", "3", made, back)


def is_quantized(name):
    return name.endswith("_proj.weight")


def check_writing(qplan, golden, row, flags, folder):
    """What qplan writes; returns its tensors, and those of the library in its place."""
    if row.format == "comfyui":         # which has files, not folders
        source, suffix = source_file(golden, folder / "source.safetensors"), ".safetensors"
    else:
        source, suffix = source_folder(golden, folder / "source"), ""
    made, back = folder / f"made{suffix}", folder / f"made-values{suffix}"
    qplan.run("quantize", *row.arguments, *flags, "-q", "-o", made, source)
    plain = split_experts(stored.read(source), transposed=False)
    wrong = census.offences(row, plain, made, is_quantized)
    if wrong:
        raise Failure(f"census: {'; '.join(wrong[:5])}")
    qplan.run("dequantize", "-q", *(("--dtype", "f32") if row.format in IN_F32 else ()), "-o", back,
              made)
    same("dequantize against numpy", stored.read(back), decoders.decode(made))
    qplan.run("verify", "-q", made, source)
    library = {name: bytes_of_scales(t) for name, t in stored.read(golden / "encoded").items()}
    parts, kept = census.expected(row, plain, is_quantized)
    return stored.read(made), {**{name: library[name] for name in parts}, **kept}


def nested_scales(sizes, values, most):
    """Codes of scales, their scales, the offset, and the scales that decoders get."""
    offset = max(np.float32(math.fsum(sizes.tolist()) / len(sizes)), np.float32(2**-149))
    codes, scales, found = [], [], []
    for group in (sizes[i:i + 256] - offset for i in range(0, len(sizes), 256)):
        scales.append(np.abs(group).max())
        for distance in group.astype(np.float64):
            code = np.abs(distance - values.astype(np.float64) * (scales[-1] or 1)).argmin()
            scale = values[code] * scales[-1] + offset
            while not 0 < scale <= most:
                code += 1 if values[code] < 0 else -1
                scale = values[code] * scales[-1] + offset
            codes.append(code)
            found.append(scale)
    return codes, scales, offset, np.array(found, np.float32)


def check_nested(made, source):
    """Every byte of what has scales of scales, against numpy."""
    mosts = {"F16": 65504.0, "BF16": float.fromhex("0x1.fep127"), "F32": float(np.finfo("f4").max)}
    middles = (decoders.NF4[1:] + decoders.NF4[:-1]) / np.float32(2)
    names = [name.removesuffix(".nested_absmax") for name in made if name.endswith(".nested_absmax")]
    for name in names:
        x = stored.values(source[name]).astype(np.float32).reshape(-1)
        groups = np.pad(x, (0, -len(x) % 64)).reshape(-1, 64)
        values = stored.values(made[f"{name}.nested_quant_map"])
        codes, scales, offset, found = nested_scales(np.abs(groups).max(axis=1), values,
                                                     mosts[source[name].dtype])
        nibbles = np.searchsorted(middles, groups / found[:, None], "left").reshape(-1)[:len(x)]
        nibbles = np.append(nibbles, [7] * (len(x) % 2)).astype(np.uint8)
        state = json.loads(made[f"{name}.quant_state.bitsandbytes__nf4"].data)
        same_bytes = {"absmax": np.array(codes, np.uint8), "nested_absmax": np.array(scales, "<f4")}
        if any(bytes(made[f"{name}.{part}"].data) != array.tobytes()
               for part, array in same_bytes.items()) or state["nested_offset"] != float(offset) or \
                bytes(made[name].data) != (nibbles[::2] << 4 | nibbles[1::2]).tobytes():
            raise Failure(f"nested: {name} is not what numpy makes")
    if not names:
        raise Failure("nested: nothing has scales of scales")


def check_golden(qplan, golden, row, folder):
    """Everything about one golden that is not awaited; returns what that was."""
    same("numpy", decoders.decode(golden / "encoded"), stored.read(golden / "decoded.safetensors"),
         golden.parent.name)
    config = json.loads((golden / "encoded" / "config.json").read_text())
    method = config.get("quantization_config", {}).get("quant_method", "mlx")
    if AWAITED & {method, row.format if row else method}:
        return "decoder"
    for step in ("read", "own", "reference"):
        (folder / step).mkdir()
    check_reading(qplan, golden, folder / "read")
    check_index(qplan, golden, folder / "read")
    if golden.parent.name in INPUTS:
        check_inputs(qplan, golden, folder / "read")
    if f"{golden.parent.name}/{golden.name}" in NEAREST:
        qplan.run("verify", "-q", golden / "encoded", source_folder(golden, folder / "plain"))
    check_old_form(qplan, golden, folder / "read")
    if golden.parent.name == "comfyui":
        check_header_form(qplan, golden, folder / "read")
    if (golden.parent.name, golden.name) == ("fp8", "block128"):
        check_scale_types(qplan, golden, folder / "read")
    if golden.parent.name == "modelopt":
        check_description(qplan, golden, folder / "read")
    check_requantizing(qplan, golden, folder / "read")
    if method in PUBLISHED:
        check_publishing(qplan, golden, folder / "read")
    if not row or AWAITED & set(row.flags):
        return "decoder, read"
    check_writing(qplan, golden, row, (), folder / "own")
    if row.scheme.endswith(":double"):  # the tool's mean depends on the CPU and on threads
        check_nested(stored.read(folder / "own" / "made"), stored.read(golden / "source.safetensors"))
        return "decoder, read, written"
    if row.format in WITHOUT_RECIPE:
        return "decoder, read, written"
    same("reference", *check_writing(qplan, golden, row, ("--arithmetic", "reference"),
                                     folder / "reference"))
    return "decoder, read, written, reference"


def random_experts(folder):
    """A folder of gpt-oss as models are published: experts of random codes, and a plain bias."""
    random, layer = np.random.default_rng(7), "model.layers.0.mlp.experts."
    tensors = {layer + "gate_up_proj_bias": stored.packed("BF16", random.normal(size=(5, 384)))}
    for name, (rows, blocks) in {"gate_up_proj": (384, 5), "down_proj": (160, 6)}.items():
        codes = random.integers(0, 256, (5, rows, blocks, 16), np.uint8)
        scales = random.integers(100, 140, (5, rows, blocks), np.uint8)
        tensors[f"{layer}{name}_blocks"] = stored.Stored("U8", codes.shape, codes.tobytes())
        tensors[f"{layer}{name}_scales"] = stored.Stored("U8", scales.shape, scales.tobytes())
    folder.mkdir()
    stored.write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "gpt_oss", "torch_dtype": "bfloat16",
         "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}))
    return folder


def check_experts(qplan, scratch):
    """Experts whose columns are read in pieces that end inside of experts and behind them."""
    made = random_experts(scratch / "experts")
    wanted = decoders.decode(made)
    for i, limits in enumerate((("--threads", "1"), ("--memory", "400K", "--threads", "3"))):
        back, anew = scratch / f"back{i}", scratch / f"anew{i}"
        qplan.run("dequantize", "-q", *limits, "-o", back, made)
        same("experts", stored.read(back), wanted)
        qplan.run("verify", "-q", *limits, made, back)
        for k, how in enumerate((("int8:c0",), ("int4:g32",), ("int8:c0", "--experts", "split"),
                                 ("uint4:g32", "--format", "mlx"), ("mxfp4", "--format", "mlx"))):
            out = scratch / f"{anew.name}-{k}"
            qplan.run("quantize", "--requantize", "-q", *limits, "--scheme", *how, "-o", out, made)
            qplan.run("quantize", "-q", "--scheme", *how, "-o", f"{out}-wanted", back)
            if (out / "model.safetensors").read_bytes() != \
                    pathlib.Path(f"{out}-wanted/model.safetensors").read_bytes():
                raise Failure(f"experts: {' '.join(how)} is not what is made of their values")
            qplan.run("verify", "-q", *limits, out, made)
        qplan.run("dequantize", "-q", "-o", f"{out}-values", out)
        same("divided experts", stored.read(f"{out}-values"), divide_experts(wanted))


def check_table(qplan, goldens):
    """The tables of this test against the program and against the goldens that there are."""
    for name in sorted(AWAITED | set(census.PARTS)):
        if qplan.knows(name) and name in AWAITED:
            raise Failure(f"qplan knows {name}: take it off AWAITED")
        if not qplan.knows(name) and name not in AWAITED:
            raise Failure(f"qplan does not know {name}")
    for name in sorted(set(ROWS) - set(goldens)):
        raise Failure(f"{name} has a row and no folder")


def jobs(qplan, data, scratch):
    """Pairs of a name and a function that raises Failure."""
    goldens = {str(path.parent.relative_to(data)): path.parent
               for path in sorted(data.glob("*/*/origin.json"))}
    yield "table", lambda: check_table(qplan, goldens)
    yield "experts", lambda: check_experts(qplan, scratch)
    for name, golden in goldens.items():
        folder = scratch / name
        folder.mkdir(parents=True)
        yield name, lambda n=name, g=golden, f=folder: check_golden(qplan, g, ROWS.get(n), f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("golden", nargs="*", help="only these, such as mlx/affine-4bit-g64")
    args = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, job in jobs(Program(args.qplan.resolve()), args.data.resolve(),
                              pathlib.Path(scratch)):
            if args.golden and name not in args.golden:
                continue
            try:
                how = job()
                passed += 1
                if args.verbose and how:
                    print(f"{name}: {how}")
            except (Failure, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as problem:
                failed += 1
                print(f"FAILED {name}: {problem}", flush=True)
    print(f"{passed} passed, {failed} failed; awaited: {', '.join(sorted(AWAITED)) or 'none'}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
