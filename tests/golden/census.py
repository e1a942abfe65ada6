"""Which stored tensors stand for a source tensor in each layout: a census of a quantized folder.

Engines start with a tensor missing and ignore those that they do not know, so that every stored
tensor is counted here: none lost, none renamed, none left over.
"""

import fnmatch
import json
import math
import re
from dataclasses import dataclass

import stored


@dataclass(frozen=True)
class Row:
    """A layout with a scheme, as `qplan quantize` is told."""
    format: str
    scheme: str
    flags: tuple = ()

    @property
    def arguments(self):
        return ("--format", self.format, "--scheme", self.scheme, *self.flags)

    @property
    def is_float(self):
        return "int" not in self.scheme

    @property
    def bits(self):
        return int(re.match(r"u?int(\d)", self.scheme)[1])

    @property
    def symmetric(self):
        return self.scheme.startswith("int") and ":asym" not in self.scheme

    def excludes(self, name):
        return any(fnmatch.fnmatch(name, pattern) for flag, pattern
                   in zip(self.flags, self.flags[1:]) if flag == "--exclude")

    @property
    def dynamic(self):
        """Whether compressed-tensors asks for activations of 8 bits."""
        return self.format == "compressed-tensors" and "none" not in self.flags and \
            ("dynamic" in self.flags or "fp8" in self.scheme)

    @property
    def packs(self):
        """Whether compressed-tensors packs the codes into words."""
        return self.format == "compressed-tensors" and "dynamic" not in self.flags

    def fits(self, shape):
        """Engines read rows of packed codes 32 values at a time, and whole blocks."""
        if self.scheme.endswith("b128x128"):
            return shape[0] % 128 == 0 and shape[1] % 128 == 0
        return not self.packs or self.is_float or shape[-1] % 32 == 0

    def groups(self, columns):
        found = re.search(r":g(\d+)", self.scheme)
        return columns // int(found[1]) if found else 1

    def __str__(self):
        return " ".join((self.format, self.scheme, *self.flags))


def words(elements, bits):
    return math.ceil(elements * bits / 32)


BLOCKS = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}


def fp8_scales(row, rows, columns):
    blocks = (math.ceil(rows / 128), math.ceil(columns / 128))
    return {"c0": (rows, 1), "t": (1,), "b128x128": blocks}[row.scheme.split(":")[1]]


def compressed_tensors_floats(row, dtype, rows, columns):
    if row.scheme not in BLOCKS:
        return {"weight": ("F8_E4M3", (rows, columns)),
                "weight_scale": (dtype, fp8_scales(row, rows, columns))}
    scales = (rows, columns // BLOCKS[row.scheme])
    if row.scheme == "nvfp4":
        return {"weight_packed": ("U8", (rows, columns // 2)),
                "weight_scale": ("F8_E4M3", scales), "weight_global_scale": ("F32", (1,))}
    codes = {"weight_packed": ("U8", (rows, columns // 2))} if row.scheme == "mxfp4" else \
        {"weight": ("F8_E4M3", (rows, columns))}
    return {**codes, "weight_scale": ("U8", scales)}


def compressed_tensors(row, dtype, rows, columns):
    if row.is_float:
        return compressed_tensors_floats(row, dtype, rows, columns)
    groups = row.groups(columns)
    scale = {"weight_scale": (dtype, (rows, groups))}
    if not row.packs:
        zero = {} if row.symmetric else {"weight_zero_point": ("I8", (rows, groups))}
        return {"weight": ("I8", (rows, columns)), **scale, **zero}
    zero = {} if row.symmetric else {"weight_zero_point": ("I32", (words(rows, row.bits), groups))}
    return {"weight_packed": ("I32", (rows, words(columns, row.bits))), **scale, **zero,
            "weight_shape": ("I64", (2,))}


def gptq(row, dtype, rows, columns):
    groups = row.groups(columns)
    return {"qweight": ("I32", (words(columns, row.bits), rows)),
            "qzeros": ("I32", (groups, words(rows, row.bits))),
            "scales": ("F16", (groups, rows)), "g_idx": ("I32", (columns,))}


def awq(row, dtype, rows, columns):
    groups = row.groups(columns)
    return {"qweight": ("I32", (columns, words(rows, 4))),
            "qzeros": ("I32", (groups, words(rows, 4))), "scales": ("F16", (groups, rows))}


def mlx(row, dtype, *shape):
    *leading, columns = shape
    if row.is_float:
        bits = 8 if row.scheme == "mxfp8" else 4
        return {"weight": ("U32", (*leading, words(columns, bits))),
                "scales": ("U8", (*leading, columns // BLOCKS[row.scheme]))}
    groups = (*leading, row.groups(columns))
    return {"weight": ("U32", (*leading, words(columns, row.bits))), "scales": (dtype, groups),
            "biases": (dtype, groups)}


def bitsandbytes(row, dtype, rows, columns):
    if row.scheme.startswith("nf4"):
        n, group = rows * columns, int((re.search(r":g(\d+)", row.scheme) or (0, 64))[1])
        name = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
        state = json.dumps({"quant_type": "nf4", "blocksize": group, "dtype": name, "shape": (rows, columns)})
        parts = {"weight": ("U8", (math.ceil(n / 2), 1)), "weight.quant_map": ("F32", (16,)),
                 "weight.absmax": ("F32", (math.ceil(n / group),)),
                 "weight.quant_state.bitsandbytes__nf4": ("U8", (len(state),))}
        if not row.scheme.endswith(":double"):
            return parts
        room = len(', "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": ') + 32
        return {**parts, "weight.absmax": ("U8", (math.ceil(n / group),)),
                "weight.nested_absmax": ("F32", (math.ceil(math.ceil(n / group) / 256),)),
                "weight.nested_quant_map": ("F32", (256,)),
                "weight.quant_state.bitsandbytes__nf4": ("U8", (len(state) + room,))}
    return {"weight": ("I8", (rows, columns)), "SCB": ("F32", (rows,)), "weight_format": ("U8", ())}


def fp8(row, dtype, rows, columns):
    return {"weight": ("F8_E4M3", (rows, columns)),
            "weight_scale_inv": ("F32", fp8_scales(row, rows, columns))}


def modelopt(row, dtype, rows, columns):
    return {"weight": ("U8", (rows, columns // 2)), "weight_scale": ("F8_E4M3", (rows, columns // 16)),
            "weight_scale_2": ("F32", ())}


def up_to(n, multiple):
    return math.ceil(n / multiple) * multiple


def comfyui(row, dtype, rows, columns):
    codes, format = {"int8": ("I8", "int8_tensorwise"), "fp8": ("F8_E4M3", "float8_e4m3fn"),
                     "f8e5m2": ("F8_E5M2", "float8_e5m2"), "mxfp8": ("F8_E4M3", "mxfp8"),
                     "nvfp4": ("U8", "nvfp4")}[row.scheme.split(":")[0]]
    mark = {"comfy_quant": ("U8", (len('{"format": ""}') + len(format),))}
    if row.scheme in BLOCKS:
        scales = (up_to(rows, 128), up_to(columns // BLOCKS[row.scheme], 4))
        return {"weight": (codes, (rows, columns // 2 if codes == "U8" else columns)), **mark,
                "weight_scale": ("F8_E4M3" if codes == "U8" else "U8", scales),
                **({"weight_scale_2": ("F32", ())} if codes == "U8" else {})}
    scales = () if ":t" in row.scheme else (rows, 1)
    return {"weight": (codes, (rows, columns)), "weight_scale": ("F32", scales), **mark}


PARTS = {"compressed-tensors": compressed_tensors, "gptq": gptq, "gptq_v2": gptq, "awq": awq,
         "mlx": mlx, "bitsandbytes": bitsandbytes, "comfyui": comfyui, "fp8": fp8,
         "modelopt": modelopt}


def expected(row, source, is_quantized):
    """Name -> (dtype, shape) of each stored tensor, and the kept ones as they are."""
    found, kept = {}, {}
    for name, tensor in source.items():
        if is_quantized(name) and not row.excludes(name) and row.fits(tensor.shape):
            prefix = name.removesuffix(".weight")
            for part, what in PARTS[row.format](row, tensor.dtype, *tensor.shape).items():
                found[f"{prefix}.{part}"] = what
        else:
            kept[name] = tensor
    return found, kept


def offences(row, source, folder, is_quantized):
    """What is wrong with the stored tensors of a folder, in words."""
    parts, kept = expected(row, source, is_quantized)
    output = stored.read(folder)
    wanted = set(parts) | set(kept)
    return ([f"lost: {name}" for name in sorted(wanted - set(output))] +
            [f"left over: {name}" for name in sorted(set(output) - wanted)] +
            [f"{name}: {output[name].dtype} {output[name].shape}, expected {parts[name]}"
             for name in sorted(set(parts) & set(output))
             if (output[name].dtype, output[name].shape) != parts[name]] +
            [f"changed: {name}" for name in sorted(set(kept) & set(output))
             if output[name] != kept[name]])
