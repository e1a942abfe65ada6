#!/usr/bin/env python3
"""A folder for each rule of qplan lint that breaks it, and one that breaks none.

    lint.py --qplan PATH

Folders are written by hand. Each function of BREAKS takes a good one, breaks one thing of it, and
is named after its rule; a rule of `qplan help rules` without such a function fails by name. What is
found must be that rule, as often as the function returns (True: at least once), and nothing else
but what the function names.
"""

import argparse
import copy
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from layout_bitsandbytes import nested_map
from model import NF4

FORMAT_BITS = {"F8_E4M3": 1, "I32": 4, "I8": 1, "U8": 1, "I64": 8, "U32": 4, "BF16": 2, "F16": 2, "F32": 4}
LAYER = "model.layers.0."
LINEAR = {"self_attn.q_proj": (64, 128), "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128),
          "self_attn.o_proj": (128, 128), "mlp.gate_proj": (64, 128), "mlp.up_proj": (64, 128)}
PLAIN = {"model.embed_tokens.weight": (64, 128), "model.norm.weight": (128,),
         LAYER + "input_layernorm.weight": (128,)}


def bf16(value):
    return struct.pack("<f", value)[2:]


def file_bytes(tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        n = FORMAT_BITS[dtype]
        for extent in shape:
            n *= extent
        assert n == len(values), (name, shape, len(values))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + n]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Folder:
    """A small Llama in compressed-tensors: bits, groups of 32 (0: rows), symmetric or not."""

    def __init__(self, bits=4, group=32, symmetric=True, dynamic=False, linear=None):
        self.tensors, self.files, self.metadata = {}, {}, None
        self.options, self.codes = [], 0
        for name, shape in PLAIN.items():
            n = 1
            for extent in shape:
                n *= extent
            self.tensors[name] = ("BF16", shape, bf16(0.5) * n)
        for name, shape in (LINEAR if linear is None else linear).items():
            name = name if name.startswith(("model.", "h.")) else LAYER + name
            self.quantize(name, shape, bits, group, symmetric, dynamic)
        weights = {"num_bits": bits, "type": "int", "symmetric": symmetric,
                   "strategy": "group" if group else "channel", "group_size": group or None,
                   "dynamic": False, "actorder": None, "observer": "minmax"}
        activations = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token",
                       "group_size": None, "dynamic": True, "observer": None}
        self.group = {"targets": ["Linear"], "weights": weights,
                      "input_activations": activations if dynamic else None,
                      "output_activations": None}
        self.quantization = {"quant_method": "compressed-tensors",
                             "format": "int-quantized" if dynamic else "pack-quantized",
                             "quantization_status": "compressed",
                             "config_groups": {"group_0": self.group}, "ignore": ["lm_head"]}
        self.config = {"model_type": "llama", "dtype": "bfloat16",
                       "quantization_config": self.quantization}

    def quantize(self, module, shape, bits=4, group=32, symmetric=True, dynamic=False):
        rows, cols = shape
        sets = cols // group if group else 1
        w = f"{module}.weight"
        if dynamic:
            self.tensors[w] = ("I8", shape, bytes(range(256)) * (rows * cols // 256))
        else:
            words = (cols * bits + 31) // 32
            pattern = bytes((7 * i + 3) % 256 for i in range(4 * rows * words))
            self.tensors[f"{w}_packed"] = ("I32", (rows, words), pattern)
            self.tensors[f"{w}_shape"] = ("I64", (2,), struct.pack("<2q", rows, cols))
        self.tensors[f"{w}_scale"] = ("BF16", (rows, sets), bf16(0.01) * (rows * sets))
        if not symmetric:
            words = (rows * bits + 31) // 32
            self.tensors[f"{w}_zero_point"] = ("I32", (words, sets), b"\x88" * (4 * words * sets))

    def keep(self, module, shape=(64, 128)):
        for name in [name for name in self.tensors if name.startswith(module + ".weight")]:
            del self.tensors[name]
        self.tensors[module + ".weight"] = ("BF16", shape, bf16(0.5) * (shape[0] * shape[1]))

    def spoil(self, name, at, value):
        dtype, shape, values = self.tensors[name]
        self.tensors[name] = (dtype, shape, values[:2 * at] + bf16(value) + values[2 * at + 2:])

    def write(self, path):
        path.mkdir()
        model = file_bytes(self.tensors, self.metadata)
        for name, text in {"model.safetensors": model, "config.json": json.dumps(self.config),
                           **self.files}.items():
            if text is not None:
                (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())


Q = LAYER + "self_attn.q_proj"
SCALE = Q + ".weight_scale"


def native(zero_points=0, scales=(1, 2, 3, 4), method="minmax", scheme="int8:c0", codes=bytes(range(32))):
    """The native layout, as its manual page has it: one tensor, by rows, symmetric."""
    folder = Folder(linear={})
    folder.files["config.json"] = json.dumps({"model_type": "llama"})
    folder.tensors = {"l.0.w": ("I8", (4, 8), codes),
                      "l.0.w_scale": ("F32", (4,), struct.pack("<4f", *scales)),
                      "l.0.w_zero_point": ("I8", (4,), bytes([0, 0, 0, zero_points]))}
    folder.metadata = {"format": "pt", "qplan.layout": "1" if method == "minmax" else "2", "qplan.numerics": "1",
                       "qplan.tensors": json.dumps({"l.0.w": f"{scheme} {method} F32 4x8"})}
    return folder


def sharded(folder, in_index):
    """Two shards and an index that may put a tensor into the wrong one."""
    names = sorted(folder.tensors)
    halves = names[:len(names) // 2], names[len(names) // 2:]
    weight_map = {}
    for i, half in enumerate(halves):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        folder.files[file] = file_bytes({name: folder.tensors[name] for name in half})
        weight_map.update(dict.fromkeys(half, file))
    total = sum(len(values) for _, _, values in folder.tensors.values())
    folder.files["model.safetensors"] = None
    folder.files["model.safetensors.index.json"] = json.dumps(
        {"metadata": {"total_size": total}, "weight_map": {**weight_map, **in_index(weight_map)}})
    return folder


def two_groups(targets):
    """q, k and v of 8 bits, the rest of 4, in two groups with these targets."""
    folder = Folder()
    for name in "qkv":
        folder.quantize(f"{LAYER}self_attn.{name}_proj", (64, 128), bits=8)
    second = copy.deepcopy(folder.group)
    second["weights"]["num_bits"] = 8
    folder.group["targets"], second["targets"] = targets
    folder.quantization["config_groups"]["group_1"] = second
    return folder


# Each yields a folder and what must be found of its rule: True, or how often; others besides.
def L01():
    yield sharded(Folder(), lambda m: {Q + ".weight_shape": min(m.values())}), 1


def L02():
    folder = Folder()
    folder.quantization["config_groups"]["group_0"]["weights"]["group_size"] = 64
    yield folder, 1
    folder = Folder()
    folder.tensors[SCALE] = ("F32", (64, 4), struct.pack("<f", 1) * 256)
    folder.tensors[Q + ".weight_packed"] = ("I32", (64, 15), bytes(4 * 64 * 15))
    yield folder, 1


def L03():
    folder = sharded(Folder(), lambda m: {})
    folder.files["extra.safetensors"] = file_bytes({"x": ("BF16", (1,), bf16(1))})
    yield folder, 1


def L04():
    folder = Folder()
    folder.files["quantize_config.json"] = "{}"
    yield folder, 1
    folder = modelopt()                 # config.json counts, whatever the other file holds
    folder.files["hf_quant_config.json"] = "{"
    yield folder, 1


def L05():
    folder = Folder()
    folder.tensors[Q + ".weight"] = ("BF16", (64, 128), bf16(0.5) * 64 * 128)
    yield folder, 1


def L06():
    folder = Folder()
    folder.tensors["model.layers.0.x.weight_g_idx"] = ("I32", (4,), bytes(16))
    yield folder, 1
    for name in (".weight_scale_2", ".weight_scale_inv", ".weight_global_scale", ".scale_weight"):
        folder = gptq(engine=None)
        folder.tensors["model.layers.0.x" + name] = ("F32", (1,), ONE)
        yield folder, 1


def L07():
    for value in (float("nan"), float("inf"), float("-inf")):
        folder = Folder()
        folder.spoil(SCALE, 5, value)
        yield folder, 1
        for n_nested in (0, 1):
            yield nested(n_nested, value), 1
        folder = mlx()
        folder.spoil(LAYER + "mlp.up_proj.biases", 255, value)
        yield folder, 1
    for kind, value in (("nvfp4", 0x7f), ("nvfp4", 0xff), ("mxfp4", 0xff), ("mxfp8", 0xff)):
        yield with_byte(float_folder(kind), SCALE, 5, value), 1
    yield with_byte(modelopt(), SCALE, 5, 0x7f), 1


def L08():
    folder = Folder()
    folder.spoil(SCALE, 0, 0.0)
    yield folder, 1
    yield with_byte(float_folder("nvfp4"), SCALE, 5, 0), 1
    yield with_byte(modelopt(), SCALE, 5, 0), 1
    for scale, at, value in ((0, 47, 0x10), (0, 40, 0x01), (0x80, 40, 0)):
        folder = zero_block(float_folder("nvfp4"), Q + ".weight_packed", scale)
        yield with_byte(folder, Q + ".weight_packed", at, value), 1
    yield with_byte(zero_block(modelopt(), Q + ".weight"), SCALE, 6, 0), 1


def L09():
    yield native(scales=(1, -2, 3, -4), method="mse:fast"), 1


def L10():
    yield native(zero_points=1), 1


def L11():
    folder = two_groups([["re:.*mlp[.].*$", "re:.*[ovk]_proj$"], ["re:.*[q]_proj$"]])
    for name in "kv":
        folder.quantize(f"{LAYER}self_attn.{name}_proj", (64, 128), bits=4)
    yield folder, 1
    folder = Folder()
    folder.keep(Q)
    folder.quantization["ignore"].append(Q)
    yield folder, 1
    folder = modelopt()
    for suffix in ("_scale", "_scale_2"):
        del folder.tensors[f"{Q}.weight{suffix}"]
    folder.keep(Q)
    yield folder, 1


def L12():
    folder = Folder(linear={"h.0.attn.c_attn": (64, 128), "h.0.mlp.c_fc": (64, 128)})
    folder.config["model_type"] = "gpt2"
    yield folder, 2


def L13():
    folder = Folder()
    del folder.tensors["model.embed_tokens.weight"]
    folder.quantize("model.embed_tokens", (64, 128))
    yield folder, 1


def L15():
    for folder, name in ((float_folder("nvfp4"), "weight_global_scale"), (modelopt(), "weight_scale_2")):
        dtype, shape, _ = folder.tensors[f"{Q}.{name}"]
        folder.tensors[f"{Q}.{name}"] = (dtype, shape, struct.pack("<f", 2))
        yield folder, 1
    folder = float_folder("nvfp4", EXPERTS)     # gate and up of an expert, but not all experts
    for name in list(folder.tensors):
        if "experts.1." in name and name.endswith("global_scale"):
            folder.tensors[name] = ("F32", (1,), struct.pack("<f", 3 + ("up" in name)))
    yield folder, 1


def L16():
    for stored in (("F32", (), ONE), ("F32", (1, 1), ONE), ("BF16", (1,), bf16(1)), ("F32", (2,), ONE * 2)):
        folder = float_folder("nvfp4")
        folder.tensors[Q + ".weight_global_scale"] = stored
        yield folder, 1


def L17():
    for value in (None, "torch.float32", "torch.float8_e8m0fnu"):
        folder = float_folder("mxfp8")
        folder.group["weights"]["scale_dtype"] = value
        yield folder, 1
    del folder.group["weights"]["scale_dtype"]
    yield folder, 1


def L18():
    folder = float_folder("fp8")
    folder.group["input_activations"] = None
    yield folder, 1
    folder = float_folder("fp8")
    folder.quantization["format"] = "naive-quantized"
    yield folder, 1


def L19():
    folder = Folder()
    for name in "kv":
        folder.tensors[f"{LAYER}self_attn.{name}_scale"] = ("BF16", [1], bf16(1.0))
    yield folder, 2
    told = copy.deepcopy(folder)
    told.quantization["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    yield told, 0
    told = Folder()
    told.quantization["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    yield told, 1
    told = Folder()
    told.quantization["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": True}
    yield told, 0


def L52():
    yield float_folder("nvfp4", EXPERTS, engine="transformers"), len(EXPERTS)


def L53():
    linear = {LAYER + "mlp.down_proj": (128, 200), LAYER + "self_attn.o_proj": (100, 128)}
    yield float_folder("fp8-block", linear, engine="vllm"), 2
    yield float_folder("fp8-block", linear, engine="sglang"), 2


def L54():
    yield float_folder("mxfp8", EXPERTS, engine="transformers"), len(EXPERTS)


def L20():
    for status in (None, "frozen"):
        folder = Folder()
        folder.quantization["quantization_status"] = status
        yield folder, 1
    del folder.quantization["quantization_status"]
    yield folder, 1


def L21():
    folder = Folder(bits=8, group=0, dynamic=True)
    folder.group["input_activations"] = None
    yield folder, 1


def L22():
    folder = Folder()
    folder.quantization["format"] = "int-quantized"
    folder.group["input_activations"] = {"num_bits": 8, "dynamic": True, "strategy": "token"}
    yield folder, len(LINEAR)
    folder = Folder(bits=8, group=0, dynamic=True)
    folder.group["format"] = "pack-quantized"
    yield folder, len(LINEAR)


def L23():
    folder = Folder()
    folder.tensors[Q + ".weight_zero_point"] = ("I32", (8, 4), b"\x88" * 128)
    yield folder, 1


def L24():
    folder = Folder(symmetric=False)
    del folder.tensors[Q + ".weight_zero_point"]
    yield folder, 1


def L25():
    shapes = (None, ("I32", (2,), struct.pack("<2i", 64, 128)), ("I64", (1, 2), bytes(16)),
              ("I64", (2,), struct.pack("<2q", 63, 128)), ("I64", (2,), struct.pack("<2q", -1, 128)))
    for shape in shapes:
        folder = Folder()
        folder.tensors[Q + ".weight_shape"] = shape
        if not shape:
            del folder.tensors[Q + ".weight_shape"]
        yield folder, 1


def L26():
    folder = Folder()
    folder.group["weights"]["colour"] = 1
    folder.group["name"] = "x"
    yield folder, 2


def L27():
    folder = Folder()
    folder.group["weights"]["actorder"] = "group"
    yield folder, 1


def L28():
    yield Folder(bits=3), len(LINEAR)
    yield Folder(bits=7), len(LINEAR)


def L29():
    for ignore in ([], ["lm_head.x"], ["re:lm_hea$"]):
        folder = Folder()
        folder.quantization["ignore"] = ignore
        yield folder, 1
    folder = Folder()
    folder.tensors["bert.cls.predictions.bias"] = ("BF16", (2,), bf16(1) * 2)
    yield folder, 1


def L30():
    for ignore in ("re:.*mlp.gate$", "down_proj", "re:mlp[.]up", "re:.*dow[^m-p]_proj$"):
        folder = Folder()
        folder.keep(LAYER + "mlp.down_proj", (128, 64))
        folder.quantization["ignore"].append(ignore)
        yield folder, 1


def L31():
    for ignore in (LAYER + "self_attn.o_proj", "re:.*o_proj", "re:(model|x)[.]layers.\\d+.*o_proj$"):
        folder = Folder()
        folder.quantization["ignore"].append(ignore)
        yield folder, 1


def L32():
    folder = Folder()
    folder.group["targets"] = ["re:.*self_attn.*", "re:.*mlp[.]gate_.*"]
    yield folder, 1
    yield two_groups([["re:.*self_attn.*"], ["re:.*mlp.*"]]), 5


def L33():
    for pattern in ("re:(?!x)lm_head", "re:a{2,3}", "re:(", "re:(?P<x>a)\\1", "re:" + "(" * 20 + ")" * 20):
        folder = Folder()
        folder.quantization["ignore"].append(pattern)
        yield folder, 1


def L34():
    folder = Folder()
    folder.config["dtype"] = "float16"
    yield folder, len(LINEAR)


def L40():
    for engine in ("mlx", "comfyui"):
        folder = Folder()
        folder.options = ["--for", engine]
        yield folder, 1
    for engine in ("vllm", "sglang", "transformers", "mlx", "comfyui"):
        folder = native()
        folder.options = ["--for", engine]
        yield folder, 1


def L41():
    folder = Folder(symmetric=False)
    folder.options = ["--for", "transformers"]
    yield folder, len(LINEAR)


EXPERTS = {f"model.layers.0.mlp.experts.{i}.{name}_proj": (64, 128) for i in range(2)
           for name in ("gate", "up")}


def L42():
    folder = Folder(bits=8, group=0, dynamic=True, linear=EXPERTS)
    folder.options = ["--for", "transformers"]
    yield folder, len(EXPERTS)


def L43():
    folder = Folder(bits=2)
    folder.options = ["--for", "sglang"]
    yield folder, len(LINEAR)


def L44():
    folder = Folder(group=16)
    folder.options = ["--for", "vllm"]
    yield folder, len(LINEAR)


def L45():
    folder = Folder(linear={"mlp.down_proj": (96, 128), "self_attn.o_proj": (64, 160)})
    folder.options = ["--for", "vllm"]
    yield folder, 2


def gptq(bits=4, symmetric=True, linear=None, engine="vllm"):
    """GPTQ as its libraries have it (the second version): words down rows, scales transposed."""
    folder = Folder(linear={"mlp.up_proj": (64, 128)})
    folder.tensors = {name: t for name, t in folder.tensors.items() if ".mlp." not in name}
    for module, (rows, cols) in (linear or {LAYER + "mlp.up_proj": (64, 128)}).items():
        folder.tensors[module + ".qweight"] = ("I32", (cols * bits // 32, rows),
                                               b"\x5a" * (cols * bits // 8 * rows))
        word = {2: b"\xaa", 4: b"\x88", 8: b"\x80"}[bits]
        folder.tensors[module + ".qzeros"] = ("I32", (cols // 32, rows * bits // 32),
                                              word * (cols // 32 * rows * bits // 8))
        folder.tensors[module + ".scales"] = ("F16", (cols // 32, rows),
                                              struct.pack("<e", 0.01) * (cols // 32 * rows))
        folder.tensors[module + ".g_idx"] = ("I32", (cols,), struct.pack(
            f"<{cols}i", *(i // 32 for i in range(cols))))
    folder.config["quantization_config"] = {
        "quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": False,
        "sym": symmetric, "checkpoint_format": "gptq_v2", "lm_head": False}
    folder.options = ["--for", engine] if engine else []
    return folder


def L46():
    yield gptq(linear=EXPERTS, engine="transformers"), len(EXPERTS)


def L47():
    yield gptq(symmetric=False), 1


def L48():
    yield gptq(bits=2), 1


def bitsandbytes(skipped=("lm_head",), linear=None, engine="transformers"):
    """LLM.int8, with one layer that is kept."""
    folder = Folder()
    folder.tensors = {name: t for name, t in folder.tensors.items() if name in PLAIN}
    folder.keep(LAYER + "mlp.down_proj", (128, 64))
    for module, (rows, cols) in (linear or {LAYER + "mlp.up_proj": (64, 128)}).items():
        folder.tensors[module + ".weight"] = ("I8", (rows, cols), b"\x81\x7f" * (rows * cols // 2))
        folder.tensors[module + ".SCB"] = ("F32", (rows,), struct.pack("<f", 0.5) * (rows - 1) + bytes(4))
        folder.tensors[module + ".weight_format"] = ("U8", (), b"\0")
    folder.config["quantization_config"] = {
        "quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
        "llm_int8_skip_modules": None if skipped is None else list(skipped)}
    folder.options = ["--for", engine]
    return folder


def four_bits(rows, cols, width=64, engine="transformers"):
    """nf4 of bitsandbytes: groups go on from row to row."""
    folder, weight, n = bitsandbytes(["lm_head", DOWN], engine=engine), LAYER + "mlp.up_proj.weight", rows * cols
    folder.tensors = {name: t for name, t in folder.tensors.items() if ".up_proj." not in name}
    state = json.dumps({"quant_type": "nf4", "blocksize": width, "dtype": "bfloat16",
                        "shape": [rows, cols]}).encode()
    folder.tensors[weight] = ("U8", (n // 2, 1), b"\x5a" * (n // 2))
    folder.tensors[weight + ".absmax"] = ("F32", (-(-n // width),), ONE * -(-n // width))
    folder.tensors[weight + ".quant_map"] = ("F32", (16,), struct.pack("<16f", *NF4))
    folder.tensors[weight + ".quant_state.bitsandbytes__nf4"] = ("U8", (len(state),), state)
    folder.config["quantization_config"].update(load_in_8bit=False, load_in_4bit=True, bnb_4bit_quant_type="nf4")
    return folder


def nested(at, value):
    """nf4:double: 512 groups, whose scales are codes of a table, with two scales of their own."""
    folder, weight = four_bits(256, 128), LAYER + "mlp.up_proj.weight"
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [256, 128],
                        "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}).encode()
    folder.tensors[weight + ".quant_state.bitsandbytes__nf4"] = ("U8", (len(state),), state)
    folder.tensors[weight + ".absmax"] = ("U8", (512,), b"\x80" * 512)
    folder.tensors[weight + ".nested_absmax"] = ("F32", (2,), struct.pack(
        "<2f", *(value if i == at else 0.25 for i in range(2))))
    folder.tensors[weight + ".nested_quant_map"] = ("F32", (256,), nested_map())
    return folder


def awq(skip=None, linear=None, engine=None):
    """AWQ (gemm): words along rows of the transposed codes."""
    folder = Folder(linear={})
    for module, (rows, cols) in (linear or {LAYER + "mlp.up_proj": (64, 128)}).items():
        folder.tensors[module + ".qweight"] = ("I32", (cols, rows // 8), b"\x5a" * (cols * rows // 2))
        folder.tensors[module + ".qzeros"] = ("I32", (cols // 32, rows // 8),
                                              b"\x88" * (cols // 32 * rows // 2))
        folder.tensors[module + ".scales"] = ("F16", (cols // 32, rows),
                                              struct.pack("<e", 0.01) * (cols // 32 * rows))
    folder.config["quantization_config"] = {
        "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": skip}
    folder.options = ["--for", engine] if engine else []
    return folder


def mlx(module=LAYER + "mlp.up_proj"):
    """MLX: words along rows, a scale and a bias for each group of 32."""
    folder = Folder(linear={})
    folder.tensors[module + ".weight"] = ("U32", (64, 16), b"\x5a" * (64 * 64))
    folder.tensors[module + ".scales"] = ("BF16", (64, 4), bf16(0.01) * 256)
    folder.tensors[module + ".biases"] = ("BF16", (64, 4), bf16(-0.08) * 256)
    del folder.config["quantization_config"]
    folder.config["quantization"] = {"bits": 4, "group_size": 32}
    return folder


def fp8(rows=128, cols=256, scales=(0.5, 2.0), scale_fmt="ue8m0", dtype="F32"):
    """fp8 in blocks of 128 by 128, with scales that may be meant to be powers of two."""
    pack = {"F32": lambda v: struct.pack("<f", v), "F16": lambda v: struct.pack("<e", v), "BF16": bf16}[dtype]
    folder, module = Folder(linear={}), LAYER + "mlp.up_proj"
    folder.tensors[module + ".weight"] = ("F8_E4M3", (rows, cols), b"\x3a" * (rows * cols))
    folder.tensors[module + ".weight_scale_inv"] = (
        dtype, ((rows + 127) // 128, (cols + 127) // 128), b"".join(map(pack, scales)))
    folder.config["quantization_config"] = {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128], "scale_fmt": scale_fmt}
    return folder


# Of compressed-tensors: num_bits, strategy, group_size, scale_dtype, format.
FLOATS = {"nvfp4": (4, "tensor_group", 16, "torch.float8_e4m3fn", "nvfp4-pack-quantized"),
          "mxfp4": (4, "group", 32, "torch.uint8", "mxfp4-pack-quantized"),
          "mxfp8": (8, "group", 32, "torch.uint8", "mxfp8-quantized"),
          "fp8": (8, "channel", None, None, "float-quantized"),
          "fp8-block": (8, "block", None, None, "float-quantized")}
ONE = struct.pack("<f", 1)


def float_parts(kind, rows, cols):
    """Suffixes of M.weight and what is stored under them, as compressed-tensors has it."""
    bits, _, group, _, _ = FLOATS[kind]
    codes = ("_packed", ("U8", (rows, cols // 2), b"\x3a" * (rows * cols // 2))) if bits == 4 else \
        ("", ("F8_E4M3", (rows, cols), b"\x3a" * (rows * cols)))
    if not group:
        sets = (rows, 1) if kind == "fp8" else (-(-rows // 128), -(-cols // 128))
        return dict([codes, ("_scale", ("BF16", sets, bf16(0.01) * (sets[0] * sets[1])))])
    n = rows * cols // group
    scale = ("F8_E4M3", b"\x38") if kind == "nvfp4" else ("U8", b"\x7f")
    factor = {"_global_scale": ("F32", (1,), ONE)} if kind == "nvfp4" else {}
    return {**dict([codes, ("_scale", (scale[0], (rows, cols // group), scale[1] * n))]), **factor}


def float_folder(kind, linear=None, engine=None):
    """A folder of compressed-tensors with codes of floats."""
    bits, strategy, group, scale, format = FLOATS[kind]
    folder = Folder(bits=8, group=0, dynamic=kind.startswith("fp8"), linear={})
    for module, (rows, cols) in (linear or {LAYER + name: dims for name, dims in LINEAR.items()}).items():
        for suffix, stored in float_parts(kind, rows, cols).items():
            folder.tensors[f"{module}.weight{suffix}"] = stored
    folder.group["weights"].update(num_bits=bits, type="float", strategy=strategy, group_size=group,
                                   **({"scale_dtype": scale} if scale else {}),
                                   **({"block_structure": [128, 128]} if kind == "fp8-block" else {}))
    folder.quantization["format"] = format
    folder.options = ["--for", engine] if engine else []
    return folder


def modelopt(linear=None, engine=None):
    folder = Folder(linear={})
    for module, (rows, cols) in (linear or {LAYER + name: dims for name, dims in LINEAR.items()}).items():
        parts = float_parts("nvfp4", rows, cols)
        folder.tensors[f"{module}.weight"] = parts["_packed"]
        folder.tensors[f"{module}.weight_scale"] = parts["_scale"]
        folder.tensors[f"{module}.weight_scale_2"] = ("F32", (), ONE)
    folder.config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4",
                                            "group_size": 16, "ignore": ["lm_head"]}
    folder.options = ["--for", engine] if engine else []
    return folder


def beside(kv=None):
    """ModelOpt, described in a file of its own."""
    folder = modelopt()
    del folder.config["quantization_config"]
    folder.files["hf_quant_config.json"] = json.dumps({"quantization": {
        "quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": kv, "exclude_modules": ["lm_head"]}})
    return folder


def with_byte(folder, name, at, value):
    dtype, shape, raw = folder.tensors[name]
    folder.tensors[name] = (dtype, shape, raw[:at] + bytes([value]) + raw[at + 1:])
    return folder


def zero_block(folder, codes, scale=0):
    """The sixth block of nvfp4 has a scale of 0 and codes of 0 and -0."""
    for i in range(8):
        with_byte(folder, codes, 40 + i, (0, 0x80, 8, 0x88)[i % 4])
    return with_byte(folder, SCALE, 5, scale)


DOWN = LAYER + "mlp.down_proj"


def L64():
    """Without a record that says otherwise, scales are above 0."""
    folder = Folder()
    folder.spoil(SCALE, 255, -0.5)
    yield folder, 1
    folder = bitsandbytes(["lm_head", DOWN])
    folder.tensors[LAYER + "mlp.up_proj.SCB"] = ("F32", (64,), struct.pack("<f", -0.5) * 64)
    yield folder, 1
    yield with_byte(float_folder("nvfp4"), SCALE, 5, 0xb8), 1
    yield with_byte(modelopt(), SCALE, 5, 0xb8), 1
    yield fp8(scales=(0.5, -2.0)), 1
    yield native(scales=(1, 2, -3, 4)), 1
    yield native(scales=(1, 2, -3, 4), method="mse:fast+positive"), 1
    for i in (0, 1):
        yield nested(i, -1.0), 1


def L65():
    for value in (0x7f, 0xff):
        for at in (0, 127 * 256 + 255):
            yield with_byte(fp8(), LAYER + "mlp.up_proj.weight", at, value), 1
        for kind in ("fp8", "fp8-block", "mxfp8"):
            yield with_byte(float_folder(kind), Q + ".weight", 64 * 128 - 1, value), 1
    yield native(scheme="int8:c0:narrow", codes=bytes(31) + b"\x80"), 1


def L14():
    for scales in ((0.5, 0.75), (3.0, 1.0), (1.0, 1.0000001), (0.1, 0.2)):
        yield fp8(scales=scales), 1
        yield fp8(scales=scales, dtype="BF16"), 1 if scales != (1.0, 1.0000001) else 0


def L35():
    for skip in (None, [], ["down"], ["mlp.down_pro"], ["mlp"], [LAYER + "mlp.down"]):
        folder = awq(skip)
        folder.keep(DOWN, (128, 64))
        yield folder, 1
    for skip in (None, ["lm_head"], ["lm_head", "mlp.down", "own_projection", "down_proj.", "ayers.0"]):
        yield bitsandbytes(skip), 1


def L36():
    for text in ("mlp.up_proj", ".*up_proj", "model[.]layers", ""):
        yield bitsandbytes(["lm_head", DOWN, text]), 1
    for skip in (["up_proj"], [LAYER + "mlp"], ["model"], [".*up_proj"], ["model[.]layers[.]\\d+"]):
        yield awq(skip), 1


def L37():
    yield awq(["mlp.up"], engine="vllm"), 1
    yield awq(["mlp.gate"], {LAYER + "mlp.gate_proj": (64, 128)}, engine="vllm"), 1


def L38():
    for lists in (None, [["mlp.up_proj", "mlp.down_proj"]], [["mlp.up_proj"], ["_proj"]]):
        folder = gptq(engine="transformers")
        folder.keep(DOWN, (128, 64))
        folder.config["quantization_config"]["modules_in_block_to_quantize"] = lists
        yield folder, 1
    folder = gptq(engine="transformers")
    folder.config["quantization_config"]["modules_in_block_to_quantize"] = [["mlp.down_proj"]]
    yield folder, 1


def L39():
    folder = gptq(engine=None)
    folder.keep("lm_head", (64, 128))
    folder.config["quantization_config"]["lm_head"] = True
    yield folder, 1
    yield gptq(linear={"lm_head": (64, 128)}, engine=None), 1


def L49():
    for module in (LAYER + "mlp.experts.0.up_proj", LAYER + "self_attn.kv_b_proj",
                   "visual.blocks.0.mlp.fc1", "model.vision_tower.layers.0.fc1"):
        yield mlx(module), 1
    for model_type, n in (("qwen3_moe", 1), ("gpt_oss", 1), ("unheard_of", 0)):
        folder = mlx()                      # and beside it experts as transformers has them
        folder.config["model_type"] = model_type
        for fused, shape in (("gate_up_proj", (2, 128, 64)), ("down_proj", (2, 64, 64))):
            folder.tensors[LAYER + "mlp.experts." + fused] = ("BF16", shape, bf16(0.5) * math.prod(shape))
        folder.keep("visual.blocks.0.mlp.fc1")
        yield folder, n


def L50():
    folder = mlx()
    folder.config["rope_parameters"] = {"rope_theta": 10000.0}
    yield folder, 1


def L51():
    yield fp8(100), 1
    yield fp8(cols=200, scale_fmt="float", scales=(0.3, 3.0)), 1


def L60():
    yield bitsandbytes([DOWN]), 1           # the head, which is tied
    folder = bitsandbytes([DOWN, "cls.predictions.decoder"])
    folder.keep("lm_head")
    yield folder, 1


def L61():
    yield bitsandbytes(["lm_head", DOWN], EXPERTS), len(EXPERTS)


def L62():
    yield bitsandbytes(["lm_head", DOWN], {LAYER + "self_attn.kv_b_proj": (64, 128)}), 1


def L63():
    for shape in ((8, 48, 32), (3, 160), (64, 32), (64, 200), (2, 64, 128)):
        yield four_bits(*shape), 1


def good():
    """Nothing is found in these, but for the rules named."""
    yield Folder(), []
    yield Folder(symmetric=False), []
    yield Folder(bits=8, group=0), []
    yield Folder(bits=8, group=0, dynamic=True), []
    yield native(), []
    yield gptq(), []
    yield gptq(bits=8), []
    yield gptq(symmetric=False, engine=None), []
    yield gptq(linear=EXPERTS), []
    for text in (DOWN, "mlp.down_proj", "down_proj", ".*[.]down_proj", "(.*[.])?mlp[.]down_proj",
                 "layers.0.mlp.down_proj"):
        yield bitsandbytes(["lm_head", text]), []
    yield bitsandbytes(["lm_head", "(?=model).*down_proj"]), ["L33"]
    yield bitsandbytes(["lm_head", DOWN], {LAYER + "mlp.up_proj": (64, 96)}), []
    yield four_bits(3, 160, engine="sglang"), []
    for shape in ((3, 192), (64, 96, 32), (1, 160)):
        yield four_bits(*shape), []
    yield bitsandbytes(["lm_head", DOWN], EXPERTS, "sglang"), []
    for lists in ([["mlp.up_proj"]], [["x"], ["layers.0.mlp.up_proj"]]):
        folder = gptq(engine="transformers")
        folder.keep(DOWN, (128, 64))
        folder.keep("visual.blocks.0.mlp.fc1")
        folder.keep(LAYER + "mlp.gate")
        folder.config["quantization_config"]["modules_in_block_to_quantize"] = lists
        yield folder, []
    folder = gptq(engine=None)
    folder.keep("lm_head")
    yield folder, []
    yield awq(), []
    for skip in ([DOWN], ["mlp.down_proj"], [LAYER + "mlp.down_.*"], ["(.*[.])?down_proj$"],
                 ["layers.0.mlp.down_proj"], ["model.model.layers.0.mlp.down_proj"]):
        folder = awq(skip, engine="transformers")
        folder.keep(DOWN, (128, 64))
        folder.keep(LAYER + "mlp.gate")
        folder.keep("lm_head")
        yield folder, []
    folder = awq(["(?=model).*down_proj"])
    folder.keep(DOWN, (128, 64))
    yield folder, ["L33"]
    yield awq(["mlp.gate"], {LAYER + "mlp.gate_proj": (64, 128)}), []
    yield fp8(), []
    yield fp8(scale_fmt="float", scales=(0.3, 3.0)), []
    for dtype in ("BF16", "F16"):
        yield fp8(scale_fmt="float", scales=(0.3, 3.0), dtype=dtype), []
    for engine in ("vllm", "sglang", "transformers"):
        folder = fp8(scales=(2.0 ** -149, 2.0 ** 127))
        folder.options = ["--for", engine]
        yield folder, []
    yield mlx(), []
    folder = mlx()
    folder.config.update(rope_parameters={"rope_theta": 10000.0}, rope_theta=10000.0)
    yield folder, []
    yield sharded(Folder(), lambda m: {}), []
    for kind in FLOATS:
        yield float_folder(kind), []
        yield float_folder(kind, {LAYER + "mlp.down_proj": (256, 128)}, engine="vllm"), []
    yield float_folder("nvfp4", EXPERTS), []
    yield float_folder("mxfp8", EXPERTS), []
    yield float_folder("mxfp8", engine="transformers"), []
    yield float_folder("mxfp4", EXPERTS, engine="transformers"), []
    yield float_folder("fp8", EXPERTS, engine="sglang"), []
    folder = float_folder("fp8")
    folder.group["input_activations"] = None
    folder.quantization["format"] = "naive-quantized"
    yield folder, []
    yield modelopt(), []
    yield modelopt(engine="vllm"), []
    yield zero_block(modelopt(), Q + ".weight"), []
    yield beside(), []
    yield beside(kv="FP8"), ["L19"]
    yield zero_block(float_folder("nvfp4"), Q + ".weight_packed"), []
    yield modelopt(EXPERTS), []
    yield two_groups([["re:.*mlp.*", "re:.*o_proj$"], ["re:.*self_attn[.][qkv]_proj"]]), []
    yield two_groups([["Linear"], [f"{LAYER}self_attn.{name}_proj" for name in "qkv"]]), []
    for engine in ("vllm", "sglang", "transformers"):
        folder = Folder()
        folder.options = ["--for", engine]
        yield folder, []
    for ignore in (LAYER + "mlp.down_proj", "re:.*down_proj", "re:.*?mlp[.]down_\\w+$",
                   "re:(?:x|model)\\.layers\\.\\d+\\.mlp\\.down_proj", "re:layers[.]0[.]mlp[.]d",
                   "re:.*dow[^a-m]_proj$", "re:.*[\\.\\]-]down_proj"):
        folder = Folder()
        folder.keep(LAYER + "mlp.down_proj", (128, 64))
        folder.quantization["ignore"].append(ignore)
        yield folder, []
    folder = Folder()  # a pattern that is not understood may mean the layer
    folder.keep(LAYER + "mlp.down_proj", (128, 64))
    folder.quantization["ignore"].append("re:(?=model).*down_proj")
    yield folder, ["L33"]
    folder = Folder()
    folder.quantize("lm_head", (64, 128))
    folder.quantization["ignore"] = []
    yield folder, []


# Rules that a fault of another rule also breaks.
BESIDE = {"L05": {"L11", "L30"}, "L28": {"L43"}, "L43": {"L28"}, "L12": {"L29"}}


def lint(qplan, folder, path):
    folder.write(path)
    run = subprocess.run([qplan, "lint", *folder.options, "--json", path], capture_output=True,
                         text=True, timeout=60)
    if not run.stdout:
        return run.returncode, [], run.stderr
    document = json.loads(run.stdout)
    assert document["schema"] == "qplan-lint/1"
    found = document["findings"]
    assert document["errors"] == sum(f["severity"] == "error" for f in found)
    assert document["warnings"] == sum(f["severity"] == "warning" for f in found)
    assert run.returncode == (1 if document["errors"] else 0), run.returncode
    return run.returncode, found, run.stdout


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = str(pathlib.Path(parser.parse_args().qplan).resolve())
    page = subprocess.run([qplan, "help", "rules"], capture_output=True, text=True, check=True).stdout
    rules = re.findall(r"^  (L\d\d) ", page, re.M)
    problems = [f"{rule}: no folder breaks it" for rule in rules if rule not in globals()]
    problems += [] if rules else ["no rules in qplan help rules"]
    n = 0
    with tempfile.TemporaryDirectory() as root:
        cases = [(rule, *case) for rule in rules if rule in globals() for case in globals()[rule]()]
        for rule, folder, expected in cases + [(None, *case) for case in good()]:
            n += 1
            code, found, text = lint(qplan, folder, pathlib.Path(root) / f"f{n}")
            ids = [f["id"] for f in found]
            if rule is None:
                if sorted(set(ids)) != expected:
                    problems.append(f"good folder {n}: expected {expected}, found {text}")
                continue
            others = set(ids) - {rule} - BESIDE.get(rule, set())
            if ids.count(rule) != expected or others:
                problems.append(f"{rule}: expected {expected}, found {code} {text}")
    print("\n".join(problems) or f"{n} folders, {len(rules)} rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
