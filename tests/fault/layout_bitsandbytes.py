"""The layout of bitsandbytes for rows_quantized.py: a weight is bytes, SCB, the value of the code 127 in
each row, and weight_format, which is 0.
"""

from dataclasses import dataclass
from fractions import Fraction

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, set_config
from layout_qplan import ALL, BAD_SCALES, HONEST, OTHER_SOURCE, Fault, clean, word

REST = {"load_in_4bit": False, "llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0}


@dataclass(frozen=True)
class Narrow(Stored):
    narrow: bool = True
    has_order: bool = True              # weight_format is there


class File(layout_folder.FolderFile):
    @staticmethod
    def scale_type(dtype):
        return "F32"

    @property
    def parts(self):
        found = {"codes": "weight", "scale": "SCB", "order": "weight_format"}
        return {role: f"{self.stem}.{end}" for role, end in found.items()
                if f"{self.stem}.{end}" in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        """Codes are made by steps, which are what the library makes of the stored values."""
        work = "F64" if dtype == "F64" else "F32"
        values, (rows, cols) = model.decode(dtype, raw), dims
        codes, largest = [], []
        for row in (values[r * cols:][:cols] for r in range(rows)):
            step, zero = model.parameters(row, scheme, work, Fraction(1))
            largest.append(model.nearest(step * 127, "F32"))
            step = model.nearest(largest[-1] * model.nearest(Fraction(1, 127), "F32"), "F32")
            codes += [model.code(x, step, zero, scheme, work) for x in row]
        out = {name: ("I8", dims, bytes(c % 256 for c in codes)),
               f"{self.stem}.SCB": ("F32", (rows,), model.encode("F32", largest))}
        return {**out, f"{self.stem}.weight_format": ("U8", (), b"\0")} if scheme.has_order else out

    def described(self):
        return {CONFIG: {"quant_method": "bitsandbytes", "load_in_8bit": True, **REST}}


class Layout(layout_folder.Layout):
    name, method, base, file = "bitsandbytes", "bitsandbytes", "int8", File
    need_layout_2 = ()
    with_wrong_parts = spoiled = ("int8", "int8-other")
    orphans = "l.1.w.SCB", "l.1.w.weight_format"
    schemes = {**dict(both(Narrow, int8={})),
               "no-order-other": Narrow(recorded=False, has_order=False)}

    @staticmethod
    def set_code(file, row, col, value):
        file.set_bytes(file.name, row * file.dims[1] + col, bytes([value % 256]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def gone(file, role):
        return HONEST if role == "order" and not file.records else ALL

    @staticmethod
    def bad_scales(file):
        """The library stores 0 for a row of zeros."""
        return {name: value for name, value in BAD_SCALES.items() if file.records or value != 0}

    @staticmethod
    def bad_zeros(scheme):
        return ()

    # --- every claim of records and config.json, wrong ---

    def claims_of_schemes(self):
        for text in ("uint8:c0", "uint8:c0:sym", "int8:c0", "int8:c0:asym", "int8:c0:narrow:f16",
                     "int8:c0:narrow:bf16", "int8:t:narrow", "int8:c1:narrow", "int8:g36:narrow",
                     "int8:b5x36:narrow", "int4:c0:narrow", "int7:c0:narrow"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("36x5", "5x36x1", "1x5x36", "5x35", "5x37", "4x36", "180x1", "180",
                     "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_config(self, s):
        for i, value in enumerate((False, "true", 1, 0, None, [], {})):
            yield self.unknown(f"Q17-load-{i}", set_config(f"{CONFIG}/load_in_8bit", value), s)
        yield self.unknown("Q17-load-gone", drop_config(f"{CONFIG}/load_in_8bit"), s)
        for key in ("load_in_8bit", "quant_method"):
            yield Fault(f"Q17-twice-{key}", edit_text('"load_in_4bit"', f'"{key}": true, "load_in_4bit"'),
                        ("config.json", key))
        yield from self.claims_of_method(s, "compressed-tensors")

    def claims_of_both(self):
        def set_order(file):
            file.set_bytes(file.parts["order"], 0, b"\1")

        yield from super().claims_of_both()
        for scheme in self.spoiled:
            yield self.start_as(scheme, Fault("Q3-order", set_order, (tensor("l.0.w.weight_format"),)))
