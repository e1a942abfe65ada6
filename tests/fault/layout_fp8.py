"""The layout of fp8 with blocks of 128 by 128 for rows_quantized.py: a weight is its codes and
weight_scale_inv, which is multiplied with them. Scales that are powers of two are read, not written.
"""

import math
from dataclasses import dataclass

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, set_config
from layout_qplan import ALL, OTHER_SOURCE, Fault, clean, word

BLOCK = 128


@dataclass(frozen=True)
class Blocks(Stored):
    values: str = "F8E4M3"
    grain: tuple = ("b", BLOCK, BLOCK)


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=(5, 130)):
        super().__init__(scheme, dtype, dims)

    @staticmethod
    def scale_type(dtype):
        return "F32"

    @property
    def parts(self):
        found = {"codes": self.name, "scale": self.name + "_scale_inv"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        parts = model.quantize(dtype, dims, raw, scheme)
        sets = tuple(math.ceil(n / BLOCK) for n in dims)
        return {name: parts[""], name + "_scale_inv": ("F32", sets, parts["_scale"][2])}

    def described(self):
        return {CONFIG: {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                         "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": ["lm_head"]}}


class Layout(layout_folder.Layout):
    name, method, base, file = "fp8", "fp8", "blocks", File
    with_wrong_parts = spoiled = ("blocks", "blocks-other")
    need_layout_2 = ()
    lean = {"blocks-other": {"fmt": drop_config(f"{CONFIG}/fmt"),
                             "float": set_config(f"{CONFIG}/scale_fmt", "float")}}
    schemes = dict(both(Blocks, blocks={}))

    @staticmethod
    def set_code(file, row, col, value):
        file.set_bytes(file.name, row * file.dims[1] + col, bytes([value % 256]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def bad_zeros(scheme):
        return ()

    @staticmethod
    def dtypes(scheme):
        """Without a record weights are of the type that the model computes in."""
        return ("F32",) if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    @staticmethod
    def reshaped(file, role, dims):
        """As many scales are enough for one more row, and what the source has is another shape."""
        fits = role == "codes" and len(dims) == 2 and [math.ceil(n / BLOCK) for n in dims] == [1, 2]
        return OTHER_SOURCE if fits and not file.records else ALL

    # --- every claim of records and config.json, wrong ---

    def claims_of_schemes(self):
        for text in ("int8:c0", "int8:b128x128", "f8e5m2:b128x128", "f8e4m3:b64x128",
                     "f8e4m3:b128x64", "f8e4m3:t", "f8e4m3:c0", "f8e4m3:g130", "f8e4m3:b128x128:bf16",
                     "f8e4m3:b128x128:e8m0", "uint8:b128x128"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("130x5", "5x130x1", "1x5x130", "5x129", "5x131", "4x130", "650x1", "650",
                     "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        yield from self.wrong_values({
            "weight_block_size": ([128], [128, 64], [64, 128], [128, 128, 128], [128, "128"], [],
                                  128, "128x128", None, {}, [128.5, 128], [2 ** 64 + 128, 128]),
            "fmt": ("e5m2", "E4M3", "", 1, []),
            "scale_fmt": ("int", "UE8M0", "", 1, [], *(("ue8m0",) if s.recorded else ()))})
        yield Fault("Q17-block-gone", drop_config(f"{CONFIG}/weight_block_size"),
                    ("config.json", "weight_block_size", "found none"))
        for key in ("fmt", "quant_method", "weight_block_size"):
            yield Fault(f"Q17-twice-{key}", edit_text('"activation_scheme"', f'"{key}": 1, "activation_scheme"'),
                        ("config.json", key))
        yield from self.claims_of_method(s, "compressed-tensors")

    def claims_of_both(self):
        def stray(file):
            file.tensors["l.1.w.weight_scale_inv"] = file.tensors[file.parts["scale"]]

        def not_powers(file):
            file.config[CONFIG]["scale_fmt"] = "ue8m0"

        yield from super().claims_of_both()
        for scheme in self.spoiled:
            yield self.start_as(scheme, Fault("Q3-scales-of-nothing", stray,
                                              (tensor("l.1.w.weight_scale_inv"),)))
        yield self.start_as("blocks-other", Fault("Q8-no-power", not_powers,
                                                  (tensor("l.0.w.weight_scale_inv"),)))
