"""Decoders of the layouts in numpy: the tensors of a folder to those that it stands for.

Written from the layouts' descriptions, not from qplan's code, and proven by layouts.py on folders
that the libraries of the layouts made and decoded. `decode` finds the layout in config.json.
"""

import json
import math
import pathlib
import re

import numpy as np

import floats
import stored


def unpack(words, bits, count):
    """Codes of a dense stream of bits in the words of each row, lowest bits first."""
    bytes_ = np.ascontiguousarray(words).view(np.uint8).reshape(words.shape[0], -1)
    stream = np.unpackbits(bytes_, axis=1, bitorder="little")[:, :count * bits]
    weights = 1 << np.arange(bits)
    return stream.reshape(words.shape[0], count, bits) @ weights


def product(dtype, codes, zeros, scales, groups):
    """(code - zero) * scale in the type of the scale; groups gives the column of the scale."""
    return stored.rounded(dtype, (codes - zeros[:, groups]).astype(np.float32) * scales[:, groups])


def group_of_column(columns, groups):
    return np.arange(columns) // (columns // groups)


# ---- compressed-tensors ------------------------------------------------------------------------

def compressed_tensors_packed(name, parts, args):
    rows, columns = stored.values(parts["weight_shape"]).tolist()
    bits = args["num_bits"]
    codes = unpack(stored.values(parts["weight_packed"]), bits, columns) - (1 << bits - 1)
    scales = stored.values(parts["weight_scale"])
    zeros = np.zeros_like(scales, np.int64)
    if "weight_zero_point" in parts:
        words = np.ascontiguousarray(stored.values(parts["weight_zero_point"]).T)
        zeros = unpack(words, bits, rows).T - (1 << bits - 1)
    dtype = parts["weight_scale"].dtype
    groups = group_of_column(columns, scales.shape[1])
    return stored.packed(dtype, product(dtype, codes, zeros, scales, groups))


def compressed_tensors_plain(name, parts, args):
    codes = stored.values(parts["weight"]).astype(np.int64)
    scales = stored.values(parts["weight_scale"])
    zeros = (stored.values(parts["weight_zero_point"]).astype(np.int64)
             if "weight_zero_point" in parts else np.zeros_like(scales, np.int64))
    dtype = parts["weight_scale"].dtype
    groups = group_of_column(codes.shape[1], scales.shape[1])
    return stored.packed(dtype, product(dtype, codes, zeros, scales, groups))


def compressed_tensors_floats(name, parts, args):
    if args["strategy"] == "tensor_group":
        scales = floats.values_of(parts["weight_scale"])
        return floats.blocks(floats.nibbles(parts["weight_packed"]),
                             scales / stored.values(parts["weight_global_scale"]))
    if args["strategy"] == "group":
        codes = (floats.nibbles(parts["weight_packed"]) if "weight_packed" in parts
                 else floats.values_of(parts["weight"]))
        return floats.blocks(codes, floats.powers(stored.values(parts["weight_scale"])))
    scales = stored.values(parts["weight_scale"])
    return floats.fp8(parts["weight"], scales.reshape(scales.shape if scales.ndim == 2 else (1, 1)),
                      parts["weight_scale"].dtype)


def compressed_tensors(tensors, config):
    groups = list(config["quantization_config"]["config_groups"].values())
    args = groups[0]["weights"]
    if args["type"] == "float":
        for key in (".weight_packed", ".weight"):
            yield from with_parts(tensors, key, ("weight_scale", "weight_global_scale"),
                                  lambda name, parts: compressed_tensors_floats(name, parts, args))
        return
    yield from with_parts(tensors, ".weight_packed", ("weight_scale", "weight_shape",
                                                      "weight_zero_point"),
                          lambda name, parts: compressed_tensors_packed(name, parts, args))
    yield from with_parts(tensors, ".weight", ("weight_scale", "weight_zero_point"),
                          lambda name, parts: compressed_tensors_plain(name, parts, args))


# ---- GPTQ and AWQ ------------------------------------------------------------------------------

def gptq_zeros(words, bits, count, v1):
    """Version 1 stores one less. Words of 2, 4 and 8 bits are counted up whole: with carries."""
    if v1 and bits != 3:
        ones = sum(1 << at for at in range(0, 32, bits))
        words = (words.view(np.uint32).astype(np.uint64) + ones).astype(np.uint32)
    zeros = unpack(words, bits, count)
    return zeros + 1 & 7 if v1 and bits == 3 else zeros


def gptq_module(name, parts, args):
    bits, v1 = args["bits"], args.get("checkpoint_format", "gptq") == "gptq"
    words = np.ascontiguousarray(stored.values(parts["qweight"]).T)
    codes = unpack(words, bits, words.shape[1] * 32 // bits)
    scales = stored.values(parts["scales"]).T
    zeros = gptq_zeros(stored.values(parts["qzeros"]), bits, codes.shape[0], v1).T
    groups = (stored.values(parts["g_idx"]) if "g_idx" in parts
              else group_of_column(codes.shape[1], scales.shape[1]))
    return stored.packed("F16", product("F16", codes, zeros, scales, groups))


def gptq(tensors, config):
    args = config["quantization_config"]
    yield from with_parts(tensors, ".qweight", ("qzeros", "scales", "g_idx"),
                          lambda name, parts: gptq_module(name, parts, args))


AWQ_COLUMN_OF_NIBBLE = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_columns(words):
    """The codes of rows of words; nibble k of word c is column 8 c + AWQ_COLUMN_OF_NIBBLE[k]."""
    nibbles = unpack(words, 4, 8 * words.shape[1]).reshape(words.shape[0], -1, 8)
    return nibbles[:, :, np.argsort(AWQ_COLUMN_OF_NIBBLE)].reshape(words.shape[0], -1)


def awq_module(name, parts):
    codes = awq_columns(stored.values(parts["qweight"])).T
    zeros = awq_columns(stored.values(parts["qzeros"])).T
    scales = stored.values(parts["scales"]).T
    groups = group_of_column(codes.shape[1], scales.shape[1])
    return stored.packed("F16", product("F16", codes, zeros, scales, groups))


def awq(tensors, config):
    yield from with_parts(tensors, ".qweight", ("qzeros", "scales"), awq_module)


# ---- MLX ---------------------------------------------------------------------------------------

def mlx_floats(parts, mode):
    raw = stored.values(parts["scales"])
    codes = parts["weight"]
    rows = int(np.prod(codes.shape[:-1]))
    flat = stored.Stored("U8", (rows,), codes.data)
    values = (floats.E4M3[floats.bytes_of(flat, (rows, -1))] if mode == "mxfp8"
              else floats.nibbles(flat))
    scales = floats.E4M3[raw] if mode == "nvfp4" else floats.powers(raw)
    found = floats.blocks(values, scales.reshape(rows, -1))
    return stored.Stored("BF16", (*codes.shape[:-1], values.shape[1]), found.data)


def mlx_module(name, parts, config):
    """Bits follow from shapes, as in the library; the group size is the config's."""
    args = config["quantization"]
    args = args.get(name.removesuffix(".weight")) or args
    if args.get("mode", "affine") != "affine":
        return mlx_floats(parts, args["mode"])
    scales, biases = (stored.values(parts[part]) for part in ("scales", "biases"))
    columns = scales.shape[-1] * args["group_size"]
    words = stored.values(parts["weight"])
    bits = words.shape[-1] * 32 // columns
    codes = unpack(words.reshape(-1, words.shape[-1]), bits, columns).astype(np.float32)
    dtype = parts["scales"].dtype
    groups = group_of_column(columns, scales.shape[-1])
    scales, biases = (array.reshape(len(codes), -1)[:, groups] for array in (scales, biases))
    found = stored.rounded(dtype, stored.rounded(dtype, codes * scales) + biases)
    return stored.packed(dtype, found.reshape(*words.shape[:-1], columns))


def mlx(tensors, config):
    yield from with_parts(tensors, ".weight", ("scales", "biases"),
                          lambda name, parts: mlx_module(name, parts, config))


# ---- bitsandbytes ------------------------------------------------------------------------------

def bitsandbytes_module(name, parts):
    codes = stored.values(parts["weight"]).astype(np.float32)
    scaled = codes * stored.values(parts["SCB"])[:, None]
    return stored.packed("F32", scaled * np.float32(1 / 127))


NF4 = np.array([0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0,
                0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3,
                0x3f800000], np.uint32).view(np.float32)
FP4 = np.array([0, .0625, 8, 12, 4, 6, 2, 3, 0, -.0625, -8, -12, -4, -6, -2, -3], np.float32) / \
    np.float32(12)
STATE = re.compile(r"(.*)\.quant_state\.bitsandbytes__(nf4|fp4)")


def bitsandbytes_4bit(tensors, name, book, state):
    nibbles = np.frombuffer(tensors.pop(name).data, np.uint8)
    codes = np.stack([nibbles >> 4, nibbles & 15], axis=1).reshape(-1)[:math.prod(state["shape"])]
    scales = stored.values(tensors.pop(f"{name}.absmax"))
    if "nested_offset" in state:
        nested = stored.values(tensors.pop(f"{name}.nested_absmax"))
        values = stored.values(tensors.pop(f"{name}.nested_quant_map"))[scales]
        scales = values * np.repeat(nested, 256)[:len(scales)] + np.float32(state["nested_offset"])
    tensors.pop(f"{name}.quant_map")
    found = book[codes] * np.repeat(scales, state["blocksize"])[:len(codes)]
    dtype = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[state["dtype"]]
    return stored.packed(dtype, found.reshape(state["shape"]))


def bitsandbytes(tensors, config):
    for state in sorted(tensors):
        found = STATE.fullmatch(state)
        if found:
            yield found[1], bitsandbytes_4bit(tensors, found[1], NF4 if found[2] == "nf4" else FP4,
                                              json.loads(tensors.pop(state).data))
    yield from with_parts(tensors, ".weight", ("SCB", "weight_format"), bitsandbytes_module)


# ---- fp8 and ModelOpt --------------------------------------------------------------------------

def fp8_module(name, parts):
    scales = stored.values(parts["weight_scale_inv"])
    return floats.fp8(parts["weight"], floats.powers(scales) if scales.dtype == np.uint8 else scales,
                      "F32")


def fp8(tensors, config):
    yield from with_parts(tensors, ".weight", ("weight_scale_inv",), fp8_module)


def modelopt_module(name, parts):
    factor = stored.values(parts["weight_scale_2"])
    return floats.blocks(floats.nibbles(parts["weight"]),
                         floats.values_of(parts["weight_scale"]) * factor, "F32")


def modelopt(tensors, config):
    yield from with_parts(tensors, ".weight", ("weight_scale", "weight_scale_2"), modelopt_module)


# ---- gpt-oss -----------------------------------------------------------------------------------

def mxfp4(tensors, config):
    """Experts are stored [experts, out, in], and transformers has them [experts, in, out]."""
    for name in [name for name in sorted(tensors) if name.endswith("_blocks")]:
        name = name.removesuffix("_blocks")
        codes, scales = tensors.pop(f"{name}_blocks"), tensors.pop(f"{name}_scales")
        experts, rows, blocks, _ = codes.shape
        flat = stored.Stored("U8", (experts * rows, blocks * 16), codes.data)
        powers = floats.powers(stored.values(scales)).reshape(experts * rows, blocks)
        found = stored.values(floats.blocks(floats.nibbles(flat), powers, "F32"))
        yield name, stored.packed("BF16", found.reshape(experts, rows, -1).transpose(0, 2, 1))


# ---- ComfyUI -----------------------------------------------------------------------------------

def comfyui_blocks(weight, parts):
    codes = floats.values_of(weight) if weight.dtype != "U8" else \
        floats.nibbles(stored.Stored("U8", weight.shape, swapped(weight.data)))
    width = 32 if weight.dtype != "U8" else 16
    scales = floats.unswizzled(parts["weight_scale"], len(codes), codes.shape[1] // width)
    if weight.dtype != "U8":
        return floats.blocks(codes, floats.powers(scales), "F32")
    return floats.blocks(codes, floats.E4M3[scales] * stored.values(parts["weight_scale_2"]), "F32")


def swapped(data):
    """Bytes whose halves change places: in ComfyUI the first code is in the high one."""
    raw = np.frombuffer(data, np.uint8)
    return (raw << 4 | raw >> 4).astype(np.uint8).tobytes()


def comfyui_module(name, parts):
    if json.loads(parts["comfy_quant"].data)["format"] in ("mxfp8", "nvfp4"):
        return comfyui_blocks(parts["weight"], parts)
    scales = stored.values(parts["weight_scale"])
    weight = parts["weight"]
    codes = stored.values(weight).astype(np.float32) if weight.dtype == "I8" else \
        floats.values_of(weight)
    return stored.packed("F32", codes * scales)


def comfyui(tensors, config):
    return with_parts(tensors, ".comfy_quant", ("weight", "weight_scale", "weight_scale_2"),
                      comfyui_module)


# ---- All of them -------------------------------------------------------------------------------

def with_parts(tensors, key, others, module):
    """Takes from the tensors those of each module that is quantized, and yields its weight."""
    for name in sorted(tensors):
        prefix = name.removesuffix(key)
        found = [part for part in others if f"{prefix}.{part}" in tensors]
        if name.endswith(key) and found:
            parts = {part: tensors.pop(f"{prefix}.{part}") for part in (key[1:], *found)}
            yield f"{prefix}.weight", module(f"{prefix}.weight", parts)


DECODERS = {"compressed-tensors": compressed_tensors, "gptq": gptq, "awq": awq,
            "bitsandbytes": bitsandbytes, "fp8": fp8, "modelopt": modelopt,
            "mxfp4": mxfp4}


def decode(folder):
    """The tensors that a quantized folder, or file, stands for."""
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    tensors = stored.read(folder)
    method = config.get("quantization_config", {}).get("quant_method")
    decoder = DECODERS.get(method, mlx if "quantization" in config else None)
    if any(name.endswith(".comfy_quant") for name in tensors):
        decoder = comfyui
    if not decoder:
        raise ValueError(f"{folder}: no layout in config.json or in names")
    found = dict(decoder(tensors, config))
    return {**tensors, **found}
