"""The layout of MLX for rows_quantized.py: codes without a sign in words of 32 bits along a row, and
a scale and a bias for each group. config.json says so under two keys.
"""

from dataclasses import dataclass

import layout_folder
import model
from expect import words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, nest, pack_words, set_config
from layout_qplan import ALL, OTHER_SOURCE, Fault, clean, word

NEWER = "quantization"


@dataclass(frozen=True)
class Affine(Stored):
    bits: int = 4
    signed: bool = False
    symmetric: bool = False
    bias: bool = True
    grain: tuple = ("g", 32)
    own: bool = False                   # config.json has its numbers under its name
    mode: str = "affine"


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=(5, 64)):
        self.block = scheme.scale if scheme.values else None
        super().__init__(scheme, dtype, dims)

    def scale_type(self, dtype):
        return self.block or layout_folder.FolderFile.scale_type(dtype)

    @property
    def parts(self):
        found = {"codes": "weight", "scale": "scales", "bias": "biases"}
        return {role: f"{self.stem}.{end}" for role, end in found.items()
                if f"{self.stem}.{end}" in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        codes, params, sets, factor = model.coded(dtype, dims, raw, scheme)
        self.codes = [codes[r * dims[1]:][:dims[1]] for r in range(dims[0])]
        if scheme.values:
            scales = model.stored_scales([s for s, _ in params], sets, scheme, factor)["_scale"]
            return {name: self.stored_codes(scheme), self.stem + ".scales": ("U8", *scales[1:])}
        return {name: self.stored_codes(scheme),
                self.stem + ".scales": (scheme.scale, sets,
                                        model.encode(scheme.scale, [s for s, _ in params])),
                self.stem + ".biases": (scheme.scale, sets,
                                        model.encode(scheme.scale, [b for _, b in params]))}

    def stored_codes(self, s):
        shape = len(self.codes), len(self.codes[0]) * s.bits // 32
        return "U32", shape, pack_words(self.codes, s.bits)

    def described(self):
        numbers = {"group_size": self.scheme.grain[1], "bits": self.scheme.bits}
        out = {**numbers, "mode": self.scheme.mode}
        if self.scheme.own:
            out = {"group_size": 64, "bits": 8, "mode": "affine", self.stem: numbers}
        return {NEWER: dict(out), CONFIG: dict(out)}


FLOAT = {"bias": False, "symmetric": True, "signed": True}
BLOCKS = {
    "nvfp4": {**FLOAT, "values": "F4E2M1", "scale": "F8E4M3", "grain": ("g", 16), "alone": True,
              "mode": "nvfp4"},
    "mxfp4": {**FLOAT, "values": "F4E2M1", "scale": "E8M0", "mode": "mxfp4"},
    "mxfp8": {**FLOAT, "values": "F8E4M3", "bits": 8, "scale": "E8M0", "mode": "mxfp8"},
}
FLOATS = tuple(name + end for name in BLOCKS for end in ("", "-other"))


class Layout(layout_folder.Layout):
    name, base, file, config = "mlx", "uint4", File, NEWER
    lean = {"uint4": {"nested": nest},
            "uint4-other": {
        "older": drop_config(NEWER), "newer": drop_config(CONFIG),
        "mode": drop_config(f"{NEWER}/mode"), "older-empty": set_config(CONFIG, {}),
        "older-of-another": set_config(f"{CONFIG}/bits", 4),
        "own": set_config(f"{NEWER}/l.0.w", True)}}
    valued = ("uint4", "uint4-other", "uint3-other", "uint6", "uint8-other", "uint4-g64", *FLOATS)
    with_wrong_parts = ("uint4", "uint4-other", "uint3-other", "uint4-own-other", *FLOATS)
    spoiled = ("uint4", "uint4-other", "uint3-other", "mxfp4-other", "nvfp4")
    sidecars = ("l.1.w.scales", "l.1.w.biases")
    schemes = dict(both(Affine, uint4={}, uint2={"bits": 2}, uint3={"bits": 3}, uint5={"bits": 5},
                        uint6={"bits": 6}, uint8={"bits": 8}, uint4_g64={"grain": ("g", 64)},
                        uint4_own={"own": True}, **BLOCKS))

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        file.codes[row][col] = value
        file.tensors[file.name] = file.stored_codes(file.scheme)

    @staticmethod
    def set_pad(file, row):
        return False                    # groups are whole words

    @staticmethod
    def bad_scales(file):
        """Other tools count down from a bias as well, and give blocks of zeros the scale 0."""
        bad = layout_folder.Layout.bad_scales(file)
        allowed = () if file.records else ("minus",) if file.scheme.bias else \
            ("zero",) if file.scheme.scale == "F8E4M3" else ()
        return {name: value for name, value in bad.items() if name not in allowed}

    @staticmethod
    def other_scales(scheme):
        """Under no factor the largest scale is not the largest number."""
        return {"tiny": 2.0 ** -6, "other": 3.0} if scheme.scale == "F8E4M3" else \
            layout_folder.Layout.other_scales(scheme)

    @staticmethod
    def bad_zeros(scheme):
        return ()

    # --- every claim of records and config.json, wrong ---

    def claims_of_schemes(self):
        """Records that are records, but not of these tensors."""
        for text in ("uint4:g32", "uint4:g32:sym:f16", "uint4:g32:bias:f16", "uint4:g32:bias:bf16",
                     "int4:g32", "uint4:t:bias", "uint4:c0:bias", "uint4:b2x3:bias", "uint4:g16:bias",
                     "uint4:g64:bias", "uint4:g128:bias", "uint2:g64:bias", "uint2:g32:bias",
                     "uint7:g32:bias", "uint8:g32:bias"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text), (self.file.stem,))
        yield Fault("Q6-source-dtype-F64", word(2, "F64"),
                    (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("64x5", "5x64x1", "1x5x64", "5x63", "5x65", "5x32", "5x96", "4x64", "320x1", "320",
                     "5x9223372036854775807", "5x2305843009213693952"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        def set_both(**numbers):
            def spoil(file):
                for key in (NEWER, CONFIG):
                    file.config[key].update(numbers)
            return spoil

        wrong = {"bits": [b for b in range(10) if b != s.bits] + [16, 32, 2 ** 64 + s.bits, -s.bits,
                          s.bits + 0.5, str(s.bits), None, [], True],
                 "group_size": [size for size in (0, 1, 16, 31, 32, 33, 64, 128, 256, -1, -32, 32.5, "32",
                                                  None, [], True, 2 ** 63, 2 ** 64 + 32)
                                if size != s.grain[1]],
                 "mode": [mode for mode in ("affine", "mxfp4", "nvfp4", "mxfp8", "", "Affine", 1, None, [])
                          if mode != s.mode]}
        yield from self.wrong_values(wrong)
        yield from self.wrong_values({self.file.stem: (
            False, None, 1, "x", [], {}, {"bits": 8}, {"bits": s.bits, "group_size": 64},
            {"bits": s.bits, "group_size": 32, "mode": "mxfp4" if s.bias else "affine"},
            {"group_size": 32, "bits": True})})
        for key, values in wrong.items():
            for i, value in enumerate(values if key != "mode" else ()):
                yield Fault(f"Q17-both-{key}-{i}", set_both(**{key: value}), (self.in_config,))
        for key in ("bits", "group_size"):
            yield Fault(f"Q17-older-{key}", set_config(f"{CONFIG}/{key}", 128), ("config.json", key))
            yield self.unknown(f"Q17-{key}-gone", drop_config(f"{NEWER}/{key}"), s)
            yield Fault(f"Q17-twice-{key}",
                        edit_text(f'"{NEWER}": {{', f'"{NEWER}": {{"{key}": 4, '), ("config.json", key))
        if s.bits == 4 and s.bias:      # as many words, of twice as many columns
            yield Fault("Q17-2-bits-g64", set_both(bits=2, group_size=64),
                        (self.file.stem,) if s.recorded else (words("shape"),),
                        ALL if s.recorded else OTHER_SOURCE)
