"""The layout of ModelOpt for rows_quantized.py: a weight is two codes in a byte, weight_scale has a
byte for each 16 of them, and weight_scale_2 is the factor of all these.
"""

import layout_folder
import model
from expect import words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, nest, set_config
from layout_qplan import OTHER_SOURCE, Fault, clean, word

GROUP = "config_groups/group_0/weights"


class File(layout_folder.FolderFile):
    def __init__(self, scheme, dtype="F32", dims=(5, 48)):
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
        weights = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
        groups = {"group_0": {"input_activations": None, "weights": weights, "targets": ["Linear"]}}
        return {CONFIG: {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": 16,
                         "config_groups": groups, "ignore": ["lm_head"],
                         "producer": {"name": "modelopt"}}}


class Layout(layout_folder.Layout):
    name, method, base, file = "modelopt", "modelopt", "nvfp4", File
    need_layout_2 = ("nvfp4",)
    inputs, with_inputs = (".input_scale",), ("nvfp4-other",)
    with_wrong_parts = spoiled = ("nvfp4", "nvfp4-other")
    lean = {"nvfp4": {"nested": nest},
            "nvfp4-other": {"active": set_config(f"{CONFIG}/quant_algo", "NVFP4"),
                            "no-numbers": set_config(f"{CONFIG}/{GROUP}", {}),
                            **{key: drop_config(f"{CONFIG}/{key}") for key in
                               ("group_size", "config_groups", "ignore", "producer")}}}
    schemes = dict(both(Stored, nvfp4={"bits": 4, "values": "F4E2M1", "scale": "F8E4M3", "grain": ("g", 16)}))

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        at, shift = row * file.dims[1] // 2 + col // 2, col % 2 * 4
        old = file.tensors[file.name][2][at]
        file.set_bytes(file.name, at, bytes([old & ~(15 << shift) | value % 16 << shift]))

    @staticmethod
    def set_pad(file, row):
        return False                    # blocks are whole bytes

    @staticmethod
    def bad_scales(file):
        """Other tools give blocks of zeros the scale 0."""
        bad = dict(layout_folder.Layout.bad_scales(file))
        if not file.records:
            del bad["zero"]
        return bad

    # --- every claim of records and config.json, wrong ---

    def claims(self):
        yield from super().claims()
        yield from self.claims_of_words()
        yield from self.claims_of_metadata()

    def claims_of_schemes(self):
        """Records that are records, but not of these tensors."""
        for text in ("f4e2m1:g16", "f4e2m1:g16:f32", "f4e2m1:g16:e8m0", "f4e2m1:g32:f8e4m3",
                     "f4e2m1:g8:f8e4m3", "f4e2m1:c0:f8e4m3", "f4e2m1:t:f8e4m3", "nf4:g16:f8e4m3",
                     "int4:g16:f8e4m3", "uint4:g16:sym:f8e4m3", "f8e4m3:g16:f8e4m3",
                     "f4e2m1:b1x16:f8e4m3"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("48x5", "5x48x1", "1x5x48", "5x47", "5x49", "5x24", "4x48", "240x1", "240",
                     "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        sizes = (0, 1, 8, 15, 17, 32, -16, 16.5, "16", None, [], True, 2 ** 64 + 16)
        yield from self.wrong_values({
            "quant_algo": ("FP8", "nvfp4", "W4A16", "W4A8_NVFP4_FP8", "", 1, None, [], True),
            "group_size": sizes,
            "config_groups": ([], 1, "x", {"a": 1}, {"a": {"weights": 1}}, {"a": {"weights": []}}),
            f"{GROUP}/num_bits": (8, 2, 0, "4", None, [], 4.5),
            f"{GROUP}/type": ("int", "", 1, None, [])})
        for i, value in enumerate(sizes):
            yield Fault(f"Q17-size-of-group-{i}", set_config(f"{CONFIG}/{GROUP}/group_size", value),
                        (self.in_config,))
        yield Fault("Q17-algo-gone", drop_config(f"{CONFIG}/quant_algo"),
                    ("config.json", "quant_algo", "found none"))
        for key in ("quant_algo", "quant_method", "group_size"):
            yield Fault(f"Q17-twice-{key}", edit_text('"producer"', f'"{key}": 16, "producer"'),
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
                    "scale": stray("l.1.w.weight_scale", "F8_E4M3", (1, 1), b"\x38"),
                    "factor": stray("l.1.w.weight_scale_2", "F32", (), bytes(4))}.items():
                yield self.start_as(scheme, Fault(f"Q3-stray-{name}", fault, (words("'l.1.w.weight"),)))
