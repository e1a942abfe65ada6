"""The layout fp8 for rows_quantized.py: a weight is bytes, and weight_scale_inv has a float for each
block of 128 by 128. Scales that are powers of two are in rows_powers.py.
"""

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, nest, set_config
from layout_qplan import ALL, OTHER_SOURCE, Fault, clean, word


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=(3, 130)):
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
        return {name: parts[""], name + "_scale_inv": parts["_scale"]}

    def described(self):
        return {CONFIG: {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                         "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}}


class Layout(layout_folder.Layout):
    name, method, base, file = "fp8", "fp8", "fp8", File
    need_layout_2 = ("fp8",)
    inputs, with_inputs = (".activation_scale", ".input_scale"), ("fp8-other",)
    with_wrong_parts = spoiled = ("fp8", "fp8-other")
    lean = {"fp8": {"nested": nest},
            "fp8-other": {"float": set_config(f"{CONFIG}/scale_fmt", "float"),
                          **{key: drop_config(f"{CONFIG}/{key}") for key in
                             ("fmt", "activation_scheme", "modules_to_not_convert")}}}
    orphans = ()
    schemes = dict(both(Stored, fp8={"values": "F8E4M3", "grain": ("b", 128, 128)}))

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        file.set_bytes(file.name, row * file.dims[1] + col, bytes([value]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def reshaped(file, role, dims):
        """A block has up to 128 rows."""
        fits = role == "codes" and dims == (file.dims[0] + 1, file.dims[1])
        return OTHER_SOURCE if fits and not file.records else ALL

    # --- every claim of records and config.json, wrong ---

    def claims(self):
        yield from super().claims()
        yield from self.claims_of_words()
        yield from self.claims_of_metadata()

    def claims_of_schemes(self):
        """Records that are records, but not of these tensors."""
        for text in ("f8e5m2:b128x128", "f8e4m3:c0", "f8e4m3:t", "f8e4m3:b3x130", "f8e4m3:b64x128",
                     "f8e4m3:b128x64", "f8e4m3:b256x256", "f8e4m3:g128", "f8e4m3:b128x128:f16",
                     "f8e4m3:b128x128:bf16", "f8e4m3:b128x128:e8m0", "int8:b128x128",
                     "uint8:b128x128:asym"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("130x3", "3x130x1", "1x3x130", "3x129", "3x131", "2x130", "390x1", "390",
                     "3x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        yield from self.wrong_values({
            "weight_block_size": ([], [128], [128, 128, 128], [128, 64], [64, 128], [1, 128], [0, 0],
                                  [-128, 128], [128.5, 128], ["128", "128"], "128x128", 128, None, {},
                                  [128, None], [2 ** 64 + 128, 128]),
            "fmt": ("e5m2", "E4M3", "", 1, None, [], "e4m3fnuz"),
            "scale_fmt": ("e8m0", "UE8M0", "", 1, None, [])})
        yield Fault("Q17-block-gone", drop_config(f"{CONFIG}/weight_block_size"),
                    ("config.json", "weight_block_size", "found none"))
        for key in ("weight_block_size", "quant_method"):
            yield Fault(f"Q17-twice-{key}", edit_text('"fmt"', f'"{key}": [128, 128], "fmt"'),
                        ("config.json", key))
        yield from self.claims_of_method(s, "awq")

    def claims_of_both(self):
        def stray(name, *stored):
            def spoil(file):
                file.tensors[name] = stored
            return spoil

        yield from super().claims_of_both()
        for scheme in self.spoiled:
            for name, fault in {
                    "scales": stray("l.1.w.weight_scale_inv", "F32", (1, 1), bytes(4)),
                    "codes": stray("l.1.w.weight", "F8_E4M3", (2, 2), bytes(4)),
                    "flat": stray("l.1.w.weight", "F8_E4M3", (4,), bytes(4)),
                    "none": stray("l.1.w.weight", "F8_E4M3", (0, 4), b"")}.items():
                yield self.start_as(scheme, Fault(f"Q3-stray-{name}", fault, (words("'l.1.w.weight"),)))
