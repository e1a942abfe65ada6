"""The layout of compressed-tensors for rows_quantized.py: folders as qplan writes them, with
records, and as other tools do, without; and every claim of config.json wrong.

Codes have half their range added. Packed ones are a dense stream of bits along a row, in words of 32
bits; zero points likewise, but down columns. W8A8 has a signed byte for each code and zero point.
"""

import struct
from dataclasses import dataclass

import layout_folder
import model
from expect import tensor, words
from layout_folder import (CONFIG, Stored, both, drop_config, edit_text, pack_words, set_config,
                           transposed)
from layout_qplan import ALL, OTHER_SOURCE, Fault, clean, word

GROUP = "config_groups/group_0"
WEIGHTS = GROUP + "/weights"
ALL_FORMATS = ("dense", "fakequant", "marlin-24", "sparse-bitmask", "pack-quantized", "int-quantized",
               "naive-quantized", "float-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
               "mxfp8-quantized")


@dataclass(frozen=True)
class Packed(Stored):
    """A scheme, and whether its codes are bytes."""
    as_bytes: bool = False
    active: bool = True                 # bytes: config.json says that activations are quantized

    @property
    def is_block(self):
        return bool(self.values) and self.grain[0] == "g"

    @property
    def format(self):
        if self.is_block:
            return {16: "nvfp4-pack-quantized", 32: "mxfp8-quantized" if self.as_bytes
                    else "mxfp4-pack-quantized"}[self.grain[1]]
        if not self.as_bytes:
            return "pack-quantized"
        return "int-quantized" if not self.values else \
            "float-quantized" if self.active else "naive-quantized"


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=None):
        self.block = scheme.scale if scheme.is_block else None
        super().__init__(scheme, dtype, dims or ((5, 64) if scheme.is_block else (5, 36)))

    def scale_type(self, dtype):
        return self.block or layout_folder.FolderFile.scale_type(dtype)

    @property
    def parts(self):
        found = {"codes": self.name + "_packed" * (not self.scheme.as_bytes),
                 "scale": self.name + "_scale", "shape": self.name + "_shape",
                 "zero": self.name + "_zero_point", "factor": self.name + "_global_scale"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored_floats(self, name, scheme, dtype, dims, raw):
        parts = model.quantize(dtype, dims, raw, scheme)
        out = {name + "_packed" * (not scheme.as_bytes): parts[""], name + "_scale": parts["_scale"]}
        if scheme.grain[0] == "c":
            out[name + "_scale"] = (scheme.scale, (dims[0], 1), parts["_scale"][2])
        if "_scale_2" in parts:
            out[name + "_global_scale"] = ("F32", (1,), parts["_scale_2"][2])
        return out

    def stored(self, name, scheme, dtype, dims, raw):
        if scheme.values:
            return self.stored_floats(name, scheme, dtype, dims, raw)
        codes, params, *_ = model.coded(dtype, dims, raw, scheme)
        rows, cols = dims
        bits, half, sets = scheme.bits, 2 ** (scheme.bits - 1), len(params) // rows
        scales = model.encode(scheme.scale, [s for s, _ in params])
        out = {name + "_scale": (scheme.scale, (rows, sets), scales)}
        zeros = [z for _, z in params]
        if scheme.as_bytes:
            out[name] = ("I8", dims, bytes(c % 256 for c in codes))
            if not scheme.symmetric:
                out[name + "_zero_point"] = ("I8", (rows, sets), bytes(z % 256 for z in zeros))
            return out
        lines = [[c + half for c in codes[r * cols:][:cols]] for r in range(rows)]
        out[name + "_packed"] = ("I32", (rows, (cols * bits + 31) // 32), pack_words(lines, bits))
        out[name + "_shape"] = ("I64", (2,), struct.pack("<2q", *dims))
        if not scheme.symmetric:
            n = (rows * bits + 31) // 32
            columns = [[zeros[r * sets + g] + half for r in range(rows)] for g in range(sets)]
            out[name + "_zero_point"] = ("I32", (n, sets),
                                         transposed(pack_words(columns, bits), n, sets))
        return out

    def described(self):
        s, grouped = self.scheme, self.scheme.grain[0] == "g"
        kind = "float" if s.values else "int"
        strategy = {"t": "tensor", "c": "channel", "g": "group", "b": "block"}[s.grain[0]]
        weights = {"num_bits": s.bits, "type": kind, "symmetric": s.symmetric,
                   "strategy": "tensor_group" if s.scale == "F8E4M3" else strategy,
                   "group_size": s.grain[1] if grouped else None, "dynamic": False,
                   "actorder": None, "observer": "minmax"}
        if s.grain[0] == "b":
            weights["block_structure"] = list(s.grain[1:])
        token = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "token",
                 "group_size": None, "dynamic": True, "observer": None}
        active = s.as_bytes and s.active and not s.is_block
        group = {"targets": ["Linear"], "weights": weights, "output_activations": None,
                 "input_activations": token if active else None}
        return {CONFIG: {"quant_method": "compressed-tensors", "quantization_status": "compressed",
                         "format": s.format,
                         "config_groups": {"group_0": group}, "ignore": ["lm_head"],
                         "kv_cache_scheme": None, "global_compression_ratio": None}}


def mixed(file):
    """Of groups that are stored in several ways each says its own."""
    file.config[CONFIG]["config_groups"]["group_0"]["format"] = file.config[CONFIG]["format"]
    file.config[CONFIG]["format"] = "mixed-precision"


GROUPS, ASYM = {"grain": ("g", 4)}, {"symmetric": False}
FP8 = {"values": "F8E4M3", "as_bytes": True}
FP4 = {"values": "F4E2M1", "bits": 4}
BLOCKS = {"nvfp4": {**FP4, "scale": "F8E4M3", "grain": ("g", 16), "divides": True},
          "mxfp4": {**FP4, "scale": "E8M0", "grain": ("g", 32)},
          "mxfp8": {**FP8, "scale": "E8M0", "grain": ("g", 32)}}
FLOATS = tuple(name + end for name in ("fp8", "fp8-tensor", "fp8-block", *BLOCKS)
               for end in ("", "-other"))


class Layout(layout_folder.Layout):
    name, method, base, file = "compressed-tensors", "compressed-tensors", "int8", File
    need_layout_2 = ("int3",)
    inputs = ".input_scale", ".input_zero_point", ".input_global_scale"
    with_inputs = "w8a8-other", "nvfp4-other"
    spoiled = ("int8", "int8-other", "int4-asym", "int4-asym-other", "w8a8-other")
    lean = {"w8a8-other": {"naive": set_config(f"{CONFIG}/format", "naive-quantized")},
            "int8-other": {"targets": set_config(f"{CONFIG}/{GROUP}/targets", ["re:.*[.]w$"]),
                           "class": set_config(f"{CONFIG}/{GROUP}/targets", ["Conv2d", "Linear"]),
                           "format": drop_config(f"{CONFIG}/format"),
                           "mixed": mixed,
                           "no-format": set_config(f"{CONFIG}/{GROUP}/format", None)} | {key: drop_config(f"{CONFIG}/{WEIGHTS}/{key}")
                           for key in ("num_bits", "type", "symmetric", "strategy", "group_size")},
            "int4-asym-other": {key: drop_config(f"{CONFIG}/{WEIGHTS}/{key}")
                                for key in ("type", "strategy", "actorder")}}
    with_wrong_parts = ("int8", "int4-asym", "int4-asym-other", "int3-other", "w8a8",
                        "w8a8-other", "w8a8-asym-other", *FLOATS)
    schemes = dict(both(
        Packed, int8={}, int8_asym={**GROUPS, **ASYM}, int4={"bits": 4, **GROUPS},
        int4_asym={"bits": 4, **GROUPS, **ASYM}, int4_channel={"bits": 4}, int2={"bits": 2, **GROUPS},
        int3={"bits": 3, **GROUPS}, int5={"bits": 5}, int6={"bits": 6, "grain": ("g", 6)},
        int7={"bits": 7}, w8a8={"as_bytes": True}, w8a8_asym={"as_bytes": True, **ASYM},
        fp8=FP8, fp8_tensor={**FP8, "grain": ("t",)}, fp8_block={**FP8, "grain": ("b", 128, 128)},
        fp8_alone={**FP8, "active": False}, **BLOCKS))

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        s, name = file.scheme, file.parts["codes"]
        if s.values and not s.as_bytes:
            at, shift = row * file.dims[1] // 2 + col // 2, col % 2 * 4
            old = file.tensors[name][2][at]
            return file.set_bytes(name, at, bytes([old & ~(15 << shift) | value % 16 << shift]))
        if s.as_bytes:
            return file.set_bytes(name, row * file.dims[1] + col, bytes([value % 256]))
        n = (file.dims[1] * s.bits + 31) // 32 * 4
        line = int.from_bytes(file.tensors[name][2][row * n:][:n], "little")
        line &= ~((2 ** s.bits - 1) << col * s.bits)
        line |= value + 2 ** (s.bits - 1) << col * s.bits
        return file.set_bytes(name, row * n, line.to_bytes(n, "little"))

    @staticmethod
    def set_pad(file, row):
        if file.scheme.as_bytes or file.scheme.values or file.dims[1] * file.scheme.bits % 32 == 0:
            return False
        name = file.parts["codes"]
        at = (row + 1) * ((file.dims[1] * file.scheme.bits + 31) // 32 * 4) - 1
        file.set_bytes(name, at, bytes([file.tensors[name][2][at] | 0x80]))
        return True

    @staticmethod
    def set_zero_pad(file):
        if file.scheme.as_bytes or file.scheme.symmetric or file.dims[0] * file.scheme.bits % 32 == 0:
            return False
        name = file.parts["zero"]
        file.set_bytes(name, -1, bytes([file.tensors[name][2][-1] | 0x80]))
        return True

    @staticmethod
    def bad_scales(file):
        """Other tools give blocks of zeros the scale 0."""
        bad = dict(layout_folder.Layout.bad_scales(file))
        if file.scheme.scale == "F8E4M3" and not file.records:
            del bad["zero"]
        return bad

    @staticmethod
    def reshaped(file, role, dims):
        """One scale fits every matrix, and that of a block each that is no larger."""
        fits = role == "codes" and len(dims) == 2 and 0 not in dims and file.scheme.as_bytes and (
            file.scheme.grain == ("t",) or file.scheme.grain[0] == "b" and max(dims) <= 128)
        return OTHER_SOURCE if fits and not file.records else ALL

    @staticmethod
    def bad_zeros(scheme):
        return ()                       # only asymmetric schemes have stored zero points

    # --- every claim of records and config.json, wrong ---

    def claims(self):
        yield from super().claims()
        yield from self.claims_of_words()
        yield from self.claims_of_text()
        yield from self.claims_of_metadata()

    def claims_of_schemes(self):
        """Records that are records, but not of these tensors."""
        for text in ("uint8:c0", "uint8:c0:sym", "int8:c0:narrow", "int8:t", "int8:c1", "int8:b2x3",
                     "int7:c0", "int4:c0", "int4:g4", "int8:g4", "int8:g12", "int8:g5", "int8:c0:asym",
                     "int3:c0:asym", "int8:c0:f16", "int8:c0:bf16"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.name,))
        for text in ("F16", "BF16"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text), (self.file.name,))
        yield Fault("Q6-source-dtype-F64", word(2, "F64"),
                    (self.file.name, words("not that of the source")), OTHER_SOURCE)
        for text in ("36x5", "5x36x1", "1x5x36", "5x35", "5x37", "4x36", "180x1", "180",
                     "5x9223372036854775807", "5x2305843009213693952"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.name,))

    def claims_of_config(self, s):
        group_size = s.grain[1] if s.grain[0] == "g" else None
        wrong = {
            "num_bits": [b for b in range(10) if b != s.bits] + [16, 64, 2 ** 64 + s.bits, -s.bits,
                         s.bits + 0.5, str(s.bits), None, [], True],
            "type": ["float", "INT", "", 1, None, []],
            "symmetric": [not s.symmetric, "false", "true", 0, 1, None, []],
            "strategy": ["tensor", "block", "token", "tensor_group", "attn_head", "", "Group", 1, [],
                         "channel" if group_size else "group"],
            "actorder": ["group"],
            "dynamic": [True, "local", "false", 0, 1, []],
        }
        formats = [f for f in ALL_FORMATS if f != s.format and not (
            s.as_bytes and f == "naive-quantized")] + ["", "x", s.format.upper(), 7, True, [], {}]
        yield from self.wrong_values({
            "format": [*formats, None, "mixed-precision"],
            f"{GROUP}/targets": [[], ["Conv2d"], ["Conv1d", "Conv3d"], [1], [None], "Linear", 1, {}, None],
            f"{GROUP}/input_activations": ["x", 1, True, []],
            f"{GROUP}/output_activations": ["x", 1, True, []]})
        for i, value in enumerate((*formats, "mixed-precision")):
            yield Fault(f"Q17-own-format-{i}", set_config(f"{CONFIG}/{GROUP}/format", value),
                        (self.in_config,))
        if group_size:
            yield Fault("Q17-group_size-gone", drop_config(f"{CONFIG}/{WEIGHTS}/group_size"),
                        ("config.json", "group_size", "found none"))
            wrong["group_size"] = [0, 1, 2, 3, 5, 6, 8, 12, 24, -4, 4.5, "4", None, 2 ** 63, 2 ** 64 + 4]
        yield from self.wrong_values({f"{WEIGHTS}/{key}": values for key, values in wrong.items()})
        yield from self.wrong_values({"config_groups": (
            {}, [], None, 1, "x", {"a": None}, {"a": 1}, {"a": {}}, {"a": {"weights": None}},
            {"a": {"weights": []}})})
        yield Fault("Q17-groups-gone", drop_config(f"{CONFIG}/config_groups"), ("config.json",))
        yield Fault("Q17-groups-65", many_groups, ("config.json", 64))
        yield from self.claims_of_method(s, "awq")
        for key in ("num_bits", "symmetric", "strategy", "group_size"):
            yield Fault(f"Q17-twice-{key}", edit_text('"weights": {', f'"weights": {{"{key}": 8, '),
                        ("config.json", key))

    def claims_of_both(self):
        def stray(file):
            file.tensors[file.name + "_zero_point"] = ("I32", (2, 1), bytes(8))

        def not_a_weight(file):
            """Engines look for weights: parts of another name are nothing to them."""
            for name in file.parts.values():
                file.tensors[name.replace(file.name, "z")] = file.tensors[name]
            file.records["z"] = file.records[file.name]

        def other_shape(shape):
            def spoil(file):
                file.tensors[file.parts["shape"]] = ("I64", (2,), struct.pack("<2q", *shape))
            return spoil

        def alone(file):
            """Only the record speaks of the tensor."""
            file.config_text = False
            other_shape((5, 35))(file)

        yield from super().claims_of_both()
        yield Fault("Q5-shape-values-alone", alone, (tensor("l.0.w.weight_shape"), words("values")))
        yield Fault("Q2-not-a-weight", not_a_weight, ("'z'", words("not quantized by config.json")))
        yield Fault("Q3-stray-zero-points", stray, (self.file.name,))
        for i, dims in enumerate(((5, 31), (5, 37), (4, 36), (6, 36), (-5, 36), (5, -36), (0, 36),
                                  (5, 0), (36, 5), (5, 2 ** 62), (5, 2 ** 63 - 1), (5, -2 ** 63),
                                  (5, 36 + 2 ** 32), (5, 36 + 2 ** 61))):
            for scheme in ("int8", "int8-other", "int4-asym-other", "int3-other"):
                yield self.start_as(scheme, Fault(f"Q5-shape-values-{i}", other_shape(dims),
                                                  (self.file.name,)))


def many_groups(file):
    groups = file.config[CONFIG]["config_groups"]
    groups.update({f"group_{i}": groups["group_0"] for i in range(65)})
