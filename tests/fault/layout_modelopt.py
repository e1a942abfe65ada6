"""The layout of ModelOpt for rows_quantized.py: a weight of nvfp4 is its codes, two in a byte,
weight_scale, a byte for each block of 16, and weight_scale_2, the factor of these.
"""

from dataclasses import dataclass

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text
from layout_qplan import ALL, OTHER_SOURCE, Fault, clean, word

GROUP = 16


@dataclass(frozen=True)
class Blocks(Stored):
    bits: int = 4
    values: str = "F4E2M1"
    grain: tuple = ("g", GROUP)


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=(5, 96)):
        super().__init__(scheme, dtype, dims)

    @staticmethod
    def scale_type(dtype):
        return "F8E4M3"

    @property
    def parts(self):
        found = {"codes": self.name, "scale": self.name + "_scale", "factor": self.name + "_scale_2"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        parts = model.quantize(dtype, dims, raw, scheme)
        return {name: parts[""], name + "_scale": parts["_scale"],
                name + "_scale_2": ("F32", (), parts["_scale_2"][2])}

    def described(self):
        return {CONFIG: {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": GROUP,
                         "ignore": ["lm_head"]}}


class Layout(layout_folder.Layout):
    name, method, base, file = "modelopt", "modelopt", "nvfp4", File
    with_wrong_parts = spoiled = ("nvfp4", "nvfp4-other")
    need_layout_2 = ()
    orphans = ()
    schemes = dict(both(Blocks, nvfp4={}))

    @staticmethod
    def set_code(file, row, col, value):
        at, shift = row * file.dims[1] // 2 + col // 2, 4 if col % 2 else 0
        old = file.tensors[file.name][2][at]
        file.set_bytes(file.name, at, bytes([old & ~(15 << shift) | value % 16 << shift]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def bad_zeros(scheme):
        return ()

    @staticmethod
    def bad_scales(file):
        """Other tools give blocks of zeros the scale 0."""
        bad = dict(layout_folder.Layout.bad_scales(file))
        if not file.records:
            del bad["zero"]
        return bad

    @staticmethod
    def dtypes(scheme):
        """Without a record weights are of the type that the model computes in."""
        return ("F32",) if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    # --- every claim of records and config.json, wrong ---

    def claims_of_schemes(self):
        for text in ("int4:g16", "uint4:g16", "int8:c0", "nf4:g16", "f4e2m1:g32:e8m0", "f4e2m1:g16",
                     "f4e2m1:g16:e8m0", "f4e2m1:g8:f8e4m3", "f4e2m1:g32:f8e4m3", "f4e2m1:c0:f8e4m3",
                     "f8e4m3:g16:f8e4m3"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("96x5", "5x96x1", "1x5x96", "5x80", "5x112", "4x96", "480x1", "480",
                     "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        yield from self.wrong_values({
            "quant_algo": ("FP8", "NVFP4_AWQ", "nvfp4", "MIXED_PRECISION", "", 1, None, [])})
        yield Fault("Q17-algo-gone", drop_config(f"{CONFIG}/quant_algo"),
                    ("config.json", "quant_algo", "found none"))
        for key in ("quant_algo", "quant_method"):
            yield Fault(f"Q17-twice-{key}", edit_text('"group_size"', f'"{key}": 1, "group_size"'),
                        ("config.json", key))
        yield from self.claims_of_method(s, "fp8")

    def claims_of_both(self):
        def stray(end):
            def spoil(file):
                file.tensors[f"l.1.w.weight{end}"] = file.tensors[file.name + end]
            return spoil

        def without(end):
            def spoil(file):
                for part in ("", "_scale", "_scale_2"):
                    file.tensors[f"l.1.w.weight{part}"] = file.tensors[file.name + part]
                del file.tensors[f"l.1.w.weight{end}"]
            return spoil

        yield from super().claims_of_both()
        for scheme in self.spoiled:
            for end in ("_scale", "_scale_2"):
                yield self.start_as(scheme, Fault(f"Q3-stray{end}", stray(end),
                                                  (tensor(f"l.1.w.weight{end}"),)))
            for end in ("", "_scale", "_scale_2"):
                yield self.start_as(scheme, Fault(f"Q3-without{end}", without(end), ("l.1.w.weight",)))
