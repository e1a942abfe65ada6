"""The layouts of GPTQ, with zero points stored less 1 and as they are, for rows_quantized.py.

A weight [out,in] is qweight, words of 32 bits down its rows, qzeros, such words down the rows of a
group, scales [groups,out], and g_idx, the group of each column. Codes have half their range added.
"""

import itertools
import struct
from dataclasses import dataclass

import layout_folder
import model
from expect import tensor, words
from layout_folder import (CONFIG, Stored, both, drop_config, edit_text, nest, pack_words,
                           rename_config, set_config, transposed)
from layout_qplan import ALL, HONEST, ONLY_PROOF, OTHER_SOURCE, Fault, clean, word


@dataclass(frozen=True)
class Grouped(Stored):
    """A scheme, and how the columns of a row are its groups."""
    bits: int = 4
    grain: tuple = ("g", 32)
    order: str = "usual"                # "any": groups are not neighbours; "none": no g_idx
    dynamic: bool = False               # config.json has its numbers apart


def one_less(raw, bits):
    """Each word of zero points less 1 in every one of them, as one number that borrows."""
    ones = sum(1 << i for i in range(0, 32, bits))
    return b"".join(struct.pack("<I", (w - ones) % 2 ** 32) for w, in struct.iter_unpack("<I", raw))


class File(layout_folder.FolderFile):
    stored_as = "gptq"

    def __init__(self, scheme, dtype=None, dims=None):
        super().__init__(scheme, dtype or ("F32" if scheme.recorded else "F16"),
                         dims or ((32, 32) if scheme.bits == 3 else (16, 64)))

    @staticmethod
    def scale_type(dtype):
        return "F16"

    @property
    def parts(self):
        found = {"codes": "qweight", "zero": "qzeros", "scale": "scales", "index": "g_idx"}
        return {role: f"{self.stem}.{end}" for role, end in found.items()
                if f"{self.stem}.{end}" in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        """Columns are put beside the others of their group, coded, and put back."""
        rows, cols = dims
        self.n_groups = cols // scheme.grain[1] if scheme.grain[0] == "g" else 1
        step = self.n_groups if scheme.order == "any" else 1
        columns = [c for first in range(step) for c in range(first, cols, step)]
        values = model.decode(dtype, raw)
        beside = model.encode(dtype, [values[r * cols + c] for r in range(rows) for c in columns])
        codes, params, *_ = model.coded(dtype, dims, beside, scheme)
        self.codes = [[0] * cols for _ in range(rows)]
        for (r, i), code in zip(itertools.product(range(rows), range(cols)), codes):
            self.codes[r][columns[i]] = code
        self.zeros = [z for _, z in params]
        scales = model.encode("F16", [params[r * self.n_groups + g][0] for g in range(self.n_groups)
                                      for r in range(rows)])
        out = {self.stem + ".qweight": self.stored_codes(scheme),
               self.stem + ".qzeros": self.stored_zeros(scheme),
               self.stem + ".scales": ("F16", (self.n_groups, rows), scales)}
        if scheme.order != "none":
            groups = [columns.index(c) * self.n_groups // cols for c in range(cols)]
            out[self.stem + ".g_idx"] = ("I32", (cols,), struct.pack(f"<{cols}i", *groups))
        return out

    def stored_codes(self, s):
        half = 2 ** (s.bits - 1)
        lines = [[c + half for c in row] for row in self.codes]
        n, rows = (len(lines[0]) * s.bits + 31) // 32, len(lines)
        return "I32", (n, rows), transposed(pack_words(lines, s.bits), n, rows)

    def stored_zeros(self, s):
        n, less, half = self.n_groups, self.stored_as == "gptq", 2 ** (s.bits - 1)
        alone = less and s.bits == 3    # such zero points straddle words: each is less 1 by itself
        lines = [[(z + half - alone) % 2 ** s.bits for z in self.zeros[g::n]] for g in range(n)]
        raw = pack_words(lines, s.bits)
        return ("I32", (n, (len(lines[0]) * s.bits + 31) // 32),
                one_less(raw, s.bits) if less and not alone else raw)

    def described(self):
        s, numbers = self.scheme, {}
        numbers["bits"] = s.bits
        numbers["group_size"] = s.grain[1] if s.grain[0] == "g" else -1
        out = {"quant_method": "gptq", **numbers, "desc_act": s.order == "any", "sym": s.symmetric,
               "checkpoint_format": self.stored_as, "lm_head": False}
        if s.dynamic:
            out.update(bits=8, group_size=64, dynamic={"+:.*[.]w$": numbers})
        return {CONFIG: out}


class FileV2(File):
    stored_as = "gptq_v2"


ASYM, CHANNEL = {"symmetric": False}, {"grain": ("c", 0)}


class Layout(layout_folder.Layout):
    name, method, base, file = "gptq", "gptq", "int4", File
    valued = ("int4", "int8-channel", "int4-asym-other", "int3-other", "int4-order-asym-other",
              "int4-no-index-other")
    lean = {"int4": {"nested": nest},
            "int4-other": {
        "sym": drop_config(f"{CONFIG}/sym"), "dynamic": set_config(f"{CONFIG}/dynamic", {}),
        "no-dynamic": set_config(f"{CONFIG}/dynamic", None),
        "desc_act": drop_config(f"{CONFIG}/desc_act"),
        "checkpoint_format": drop_config(f"{CONFIG}/checkpoint_format")},
        "int4-dynamic-other": {"all-rows": set_config(f"{CONFIG}/group_size", -1)}}
    with_wrong_parts = ("int4", "int4-other", "int4-asym-other", "int4-dynamic-other", "int3-other",
                        "int8-channel")
    spoiled = ("int4", "int4-other", "int4-asym-other", "int8-channel-other")
    sidecars, orphans = ("l.1.w.scales",), ("l.1.w.qzeros", "l.1.w.g_idx")
    schemes = {
        **dict(both(Grouped, int4={}, int8={"bits": 8}, int4_channel=CHANNEL,
                    int8_channel={"bits": 8, **CHANNEL}, int4_dynamic={"dynamic": True})),
        "int2-other": Grouped(bits=2, recorded=False), "int4-asym-other": Grouped(recorded=False, **ASYM),
        "int3-other": Grouped(bits=3, grain=("g", 16), recorded=False),
        "int3-asym-other": Grouped(bits=3, recorded=False, **CHANNEL, **ASYM),
        "int4-order-other": Grouped(order="any", recorded=False),
        "int4-order-asym-other": Grouped(order="any", recorded=False, **ASYM),
        "int4-no-index-other": Grouped(order="none", recorded=False),
    }

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        file.codes[row][col] = value
        file.tensors[file.parts["codes"]] = file.stored_codes(file.scheme)

    @staticmethod
    def set_zero(file, i, value):
        file.zeros[i] = value
        file.tensors[file.parts["zero"]] = file.stored_zeros(file.scheme)

    def set_scale(self, file, i, value):
        row, group = divmod(i, file.n_groups)
        super().set_scale(file, group * file.dims[0] + row, value)

    @staticmethod
    def set_pad(file, row):
        return False                    # there are as many columns as words have room for

    @staticmethod
    def gone(file, role):
        """Other tools leave groups out that are neighbours."""
        return HONEST if role == "index" and not file.records else ALL

    @staticmethod
    def dtypes(scheme):
        """Without a record weights are of the type of their scales."""
        return ("F16",) if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    # --- every claim of records and config.json, wrong ---

    not_stored = ("uint4:g32", "uint4:g32:sym:f16", "int4:g32", "int4:g32:bf16", "int4:g32:narrow:f16",
                  "int4:t:f16", "int4:c1:f16", "int4:b2x3:f16", "int4:g16:f16", "int4:g33:f16",
                  "int3:g32:f16", "int2:g32:f16", "int8:g32:f16", "int4:g64:f16", "int4:g128:f16",
                  "int4:c0:f16", "int4:g32:asym:f16")

    def claims_of_schemes(self):
        """Records that are records, but not of these tensors."""
        for text in self.not_stored:
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("64x16", "16x64x1", "1x16x64", "16x63", "16x65", "15x64", "17x64", "1024x1", "1024",
                     "16x9223372036854775807", "16x2305843009213693952", "8x128"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        wrong = {
            "bits": [b for b in range(10) if b != s.bits] + [16, 32, 64, 2 ** 64 + s.bits, -s.bits, -1,
                     s.bits + 0.5, str(s.bits), None, [], True],
            "group_size": [0, 0.5, -2, -32, 1, 2, 16, 31, 32.5, "32", "-1", None, [], True, 2 ** 63,
                           2 ** 64 + 32, 2 ** 64 - 1, 1e3],
            "sym": ["true", "false", "", 0, 1, None, [], {}],
        }
        if not s.symmetric:
            wrong["sym"].append(True)
        elif s.recorded and self.name == "gptq":
            wrong["sym"].append(False)
        wrong["group_size"] += [-1, 64] if s.grain[0] == "g" else [32]
        yield from self.wrong_values(wrong)
        for key in ("bits", "group_size"):
            yield Fault(f"Q17-{key}-gone", drop_config(f"{CONFIG}/{key}"), ("config.json", key))
        for key in ("bits", "group_size", "sym"):
            yield Fault(f"Q17-twice-{key}", edit_text('"quant_method"', f'"{key}": 4, "quant_method"'),
                        ("config.json", key))
        yield from self.claims_of_method(s, "compressed-tensors")
        for i, value in enumerate(("", "GPTQ", "marlin", "gemm", "exllama", 2, None, [], {})):
            yield self.unknown(f"Q17-format-{i}",
                               set_config(f"{CONFIG}/checkpoint_format", value), s)
        other = "gptq_v2" if self.name == "gptq" else "gptq"
        yield Fault("Q17-formats", set_config(f"{CONFIG}/format", other), ("config.json", "format"))
        untold = not s.recorded and not s.symmetric     # every zero point may be one more or less
        yield Fault("Q17-checkpoint_format", set_config(f"{CONFIG}/checkpoint_format", other),
                    () if untold else (self.in_config,), ONLY_PROOF if untold else ALL)

    def without_method(self, gone, s):
        """Bits and a group size are what MLX says."""
        return Fault("Q17-method-gone", gone, (words("mlx|quantized weights"),))

    @staticmethod
    def not_a_weight(file):
        """A record of the module, not of its weight."""
        file.records = {file.stem: file.records[file.name]}

    def claims_of_both(self):
        def set_group(column, group):
            def spoil(file):
                file.set_bytes(file.parts["index"], column * 4, struct.pack("<i", group))
            return spoil

        yield from super().claims_of_both()
        yield Fault("Q2-not-a-weight", self.not_a_weight,
                    ("'l.0.w'", words("not quantized by config.json")))
        for column, usual in ((0, 0), (31, 0), (32, 1), (63, 1)):
            for group in {-1, -2 ** 31, 2 ** 31 - 1, 2, 1 - usual}:
                bad = Fault(f"Q3-group-{column}-{group}", set_group(column, group),
                            (tensor("l.0.w.g_idx"), words(f"column {column}\\b.* found {group}$")))
                yield bad
                if group not in (0, 1):
                    yield self.start_as("int4-other", bad)
                    yield self.start_as("int4-order-other", bad)


class LayoutV2(Layout):
    name, file = "gptq_v2", FileV2
    lean = {"int4-other": {
        "format": rename_config(f"{CONFIG}/checkpoint_format", "format"),
        "both-formats": set_config(f"{CONFIG}/format", "gptq_v2")}}
    schemes = {**Layout.schemes,
               **dict(both(Grouped, int4_asym=ASYM, int8_asym={"bits": 8, **ASYM},
                           int4_channel_asym={**CHANNEL, **ASYM}))}
    valued = ("int4", "int8-asym", "int4-channel-asym-other", "int2-other", "int3-asym-other")
    with_wrong_parts = ("int4-asym", "int4-asym-other", "int2-other")
    spoiled = ("int4", "int4-asym-other")
