"""The layout of AWQ for rows_quantized.py: as that of GPTQ, but without g_idx, with codes that have
no sign, and with words of eight rows, whose values are in SLOTS.
"""

import struct
from dataclasses import dataclass

import layout_gptq
from expect import words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, rename_config, set_config
from layout_qplan import Fault

SLOTS = (0, 4, 1, 5, 2, 6, 3, 7)        # of the values of a word


@dataclass(frozen=True)
class Grouped(Stored):
    bits: int = 4
    signed: bool = False
    symmetric: bool = False
    grain: tuple = ("g", 32)
    order: str = "none"


def in_words(lines):
    """Lines of codes, eight of them in a word."""
    return b"".join(struct.pack("<I", sum(u << 4 * slot for u, slot in zip(line[i:i + 8], SLOTS)))
                    for line in lines for i in range(0, len(line), 8))


class File(layout_gptq.File):
    stored_as = "gemm"

    def __init__(self, scheme, dtype=None, dims=(16, 64)):
        super().__init__(scheme, dtype, dims)

    def stored_codes(self, s):
        rows, cols = len(self.codes), len(self.codes[0])
        return "I32", (cols, rows // 8), in_words(list(zip(*self.codes)))

    def stored_zeros(self, s):
        lines = [self.zeros[g::self.n_groups] for g in range(self.n_groups)]
        return "I32", (self.n_groups, len(lines[0]) // 8), in_words(lines)

    def described(self):
        group = self.scheme.grain[1] if self.scheme.grain[0] == "g" else -1
        return {CONFIG: {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                         "version": "gemm", "modules_to_not_convert": None}}


class Layout(layout_gptq.Layout):
    name, method, base, file = "awq", "awq", "uint4", File
    lean = {"uint4-other": {
        "version": drop_config(f"{CONFIG}/version"), "GEMM": set_config(f"{CONFIG}/version", "GEMM"),
        "zero_point": drop_config(f"{CONFIG}/zero_point"),
        "w_bit": rename_config(f"{CONFIG}/bits", "w_bit"),
        "q_group_size": rename_config(f"{CONFIG}/group_size", "q_group_size"),
        "both-bits": set_config(f"{CONFIG}/w_bit", 4)}}
    valued = ("uint4", "uint4-other", "uint4-sym", "uint4-channel-other")
    with_wrong_parts = ("uint4", "uint4-other", "uint4-sym")
    spoiled = ("uint4", "uint4-other")
    sidecars = ("l.1.w.scales", "l.0.w.g_idx")
    schemes = {**dict(both(Grouped, uint4={}, uint4_g16={"grain": ("g", 16)})),
               "uint4-sym": Grouped(symmetric=True),
               "uint4-channel-other": Grouped(grain=("c", 0), recorded=False)}

    not_stored = ("int4:g32:f16", "int4:g32:asym:f16", "uint4:g32", "uint4:g32:bf16", "uint4:t:f16",
                  "uint4:c0:f16", "uint4:c1:f16", "uint4:b2x3:f16", "uint4:g16:f16", "uint4:g64:f16",
                  "uint4:g65:f16", "uint3:g32:f16", "uint8:g32:f16", "int8:g32:f16",
                  "uint4:g32:bias:f16", "uint4:g32:sym:bf16")

    def claims_of_config(self, s):
        yield from self.wrong_values({
            "bits": [0, 1, 2, 3, 5, 8, 16, 2 ** 64 + 4, -4, 4.5, "4", None, [], True],
            "group_size": [0, 0.5, -1, -2, -32, 1, 2, 16, 31, 64, 128, 32.5, "32", None, [], True, 2 ** 63,
                           2 ** 64 + 32, 2 ** 64 - 1, 1e3],
            "zero_point": [False, "true", 1, 0, None, []],
        })
        for key in ("bits", "group_size"):
            yield Fault(f"Q17-{key}-gone", drop_config(f"{CONFIG}/{key}"), ("config.json", key))
        for key in ("bits", "group_size", "zero_point", "version"):
            yield Fault(f"Q17-twice-{key}", edit_text('"quant_method"', f'"{key}": 4, "quant_method"'),
                        ("config.json", key))
        for key in ("w_bit", "q_group_size"):
            yield Fault(f"Q17-{key}", set_config(f"{CONFIG}/{key}", 8), ("config.json", key, "found '8'"))
        yield from self.claims_of_method(s, "compressed-tensors")
        yield Fault("Q17-method-gptq", set_config(f"{CONFIG}/quant_method", "gptq"), (self.in_config,))
        for i, value in enumerate(("", "Gemm", "gemv", "gemv_fast", "marlin", "exllama", 2, None, [])):
            yield self.unknown(f"Q17-version-{i}", set_config(f"{CONFIG}/version", value), s)

    def claims_of_both(self):
        yield from super(layout_gptq.Layout, self).claims_of_both()
        yield Fault("Q2-not-a-weight", self.not_a_weight,
                    ("'l.0.w'", words("not quantized by config.json")))
