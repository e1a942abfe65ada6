"""The layout of ComfyUI for rows_quantized.py: a file in which a weight is bytes, its scale, and a
mark, bytes of JSON that name the format.
"""

import dataclasses
import json

import layout_qplan
import model
from expect import tensor, words
from layout_folder import PLAIN, Stored, both
from layout_qplan import ALL, HONEST, OTHER_SOURCE, Fault, clean, word

MARK = b'{"format":"int8_tensorwise"}'
BLANK = json.dumps(json.loads(MARK)).encode()       # as ComfyUI writes it


@dataclasses.dataclass(frozen=True)
class Marked(Stored):
    mark: bytes = MARK


class File(layout_qplan.File):
    name, kept, stem = "l.0.w.weight", "l.0.w.bias", "l.0.w"

    def __init__(self, scheme, dtype="F32", dims=(5, 7)):
        super().__init__(scheme, dtype, dims)
        if not scheme.recorded:
            self.records, self.text, self.meta = {}, False, {"format": "pt", "note": "kept"}

    @property
    def parts(self):
        found = {"codes": self.name, "scale": self.name + "_scale", "mark": self.stem + ".comfy_quant"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        codes, params, *_ = model.coded(dtype, dims, raw, scheme)
        shape = () if scheme.grain == ("t",) else (dims[0], 1)
        return {name: ("I8", dims, bytes(c % 256 for c in codes)),
                name + "_scale": ("F32", shape, model.encode("F32", [s for s, _ in params])),
                self.stem + ".comfy_quant": ("U8", (len(scheme.mark),), scheme.mark)}


class Layout(layout_qplan.Layout):
    name, base, file = "comfyui", "int8", File
    with_wrong_parts = ("int8", "int8-other", "tensor", "tensor-other")
    sidecars = ("l.1.w.weight_scale",)
    unrecorded = (tensor("l.0.w.weight"), words("not recorded")), ALL
    schemes = {**dict(both(Marked, int8={}, tensor={"grain": ("t",)})),
               "blank-other": Marked(recorded=False, mark=BLANK)}

    @staticmethod
    def set_code(file, row, col, value):
        file.set_bytes(file.name, row * file.dims[1] + col, bytes([value % 256]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def unrecord(file):
        file.records = {}

    @staticmethod
    def gone(file, role):
        """With a record and scales for rows, no mark is needed: it is a file of compressed-tensors."""
        if role != "mark":
            return ALL
        return PLAIN if not file.records else HONEST if file.scheme.grain == ("c", 0) else ALL

    @staticmethod
    def reshaped(file, role, dims):
        """One scale fits every matrix."""
        fits = role == "codes" and len(dims) == 2 and file.scheme.grain == ("t",)
        return OTHER_SOURCE if fits and not file.records else ALL

    @staticmethod
    def dtypes(scheme):
        """Without a record weights are of the type of their scales."""
        return ("F32",) if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    @staticmethod
    def bad_zeros(scheme):
        return ()

    # --- every claim of records and marks, wrong ---

    def claims(self):
        yield from self.claims_of_schemes()
        for scheme in ("int8", "int8-other"):
            for fault in self.claims_of_marks():
                yield self.start_as(scheme, fault)

    def claims_of_schemes(self):
        for text in ("uint8:c0", "uint8:c0:sym", "int8:c0:asym", "int8:c0:narrow", "int8:c0:f16", "int8:t",
                     "int8:c1", "int8:g7", "int8:b5x7", "int4:c0"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("7x5", "5x7x1", "1x5x7", "5x6", "5x8", "4x7", "35x1", "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_marks(self):
        def set_mark(raw):
            def spoil(file):
                file.tensors[file.parts["mark"]] = ("U8", (len(raw),), raw)
            return spoil

        def stray(file):
            file.tensors["l.1.w.comfy_quant"] = file.tensors[file.parts["mark"]]

        def config(**members):
            return json.dumps(members).encode()

        texts = {
            "fp8": config(format="float8_e4m3fn"), "case": MARK.upper(), "number": config(format=1),
            "null": config(format=None), "list": config(format=["int8_tensorwise"]),
            "none": b"{}", "array": b"[]", "string": b'"int8_tensorwise"', "empty": b"", "cut": MARK[:-1],
            "rest": MARK + b"{}", "nul": MARK + b"\0", "nul-in": MARK[:-2] + b'\\u0000"}',
            "twice": MARK[:-1] + b"," + MARK[1:], "other-key": config(form="int8_tensorwise"),
            "rotated": config(format="int8_tensorwise", convrot=True), "bom": b"\xef\xbb\xbf" + MARK,
            "latin": b'{"format":"int8_tensorwise\xff"}', "deep": b"[" * 4000, "long": MARK + b" " * 5000,
        }
        for name, raw in texts.items():
            yield Fault(f"Q3-mark-{name}", set_mark(raw),
                        ("l.0.w" if name == "fp8" else tensor("l.0.w.comfy_quant"),))
        yield Fault("Q3-mark-stray", stray, (tensor("l.1.w.comfy_quant"),))
