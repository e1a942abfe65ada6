"""The native layout for rows_quantized.py: honest files, where their claims are, and every claim of
its records and metadata wrong.

A file is made by model.py from the contract alone.  A fault is a function that spoils a file.
"""

import json
import struct
from dataclasses import dataclass, field

import model
from expect import tensor, words
from model import Scheme
from st import ckpt, f32, filler, n_bytes

ALL, READ = {}, {"inspect": 0}          # exits: all four commands refuse; inspect reads no codes
ONLY_PROOF = {"inspect": 0, "against": 0, "verify": 1, "dequantize": 0}
OTHER_SOURCE = {"inspect": 0, "against": 3, "verify": 1, "dequantize": 0}
GROUPS = Scheme(symmetric=False, grain=("g", 4))    # zero points have two axes


@dataclass(frozen=True)
class Fault:
    """One claim that is wrong: what to do to an honest file, what the message must hold, and the
    exit codes that are not 3."""
    id: str
    spoil: callable
    names: tuple = ()
    exits: dict = field(default_factory=dict)


def scheme_text(s):
    out = ("" if s.signed else "u") + f"int{s.bits}:" + s.grain[0] + "x".join(map(str, s.grain[1:]))
    if s.symmetric != s.signed:
        out += ":sym" if s.symmetric else ":asym"
    return out + ":narrow" * s.narrow + (f":{s.scale.lower()}" if s.scale != "F32" else "")


class File:
    """An honest file and its source; faults change it."""

    def __init__(self, scheme, dtype="F32", dims=(5, 7)):
        self.scheme, self.dims, self.dtype = scheme, dims, dtype
        values = [(i * 37 % 101 - 60) / 8 for i in range(dims[0] * dims[1])]
        raw = model.encode(dtype, values)
        bias = ("F32", (3,), f32(1, 2, 3))
        self.source = {"w": (dtype, dims, raw), "bias": bias}
        self.source_meta = {"note": "kept"}
        self.meta = {"note": "kept", "format": "pt", "qplan.layout": "1", "qplan.numerics": "1"}
        self.tensors, self.records = {"bias": bias}, {}
        self.add("w", scheme, dtype, dims, raw)
        self.text = None                # qplan.tensors, where it is not the records

    def add(self, name, scheme, dtype, dims, raw):
        """A quantized tensor and its record."""
        for suffix, stored in model.quantize(dtype, dims, raw, scheme).items():
            self.tensors[name + suffix] = stored
        self.records[name] = [scheme_text(scheme), "minmax", dtype, "x".join(map(str, dims))]

    def set_bytes(self, name, at, raw):
        dtype, dims, old = self.tensors[name]
        at %= len(old)
        self.tensors[name] = (dtype, dims, old[:at] + raw + old[at + len(raw):])

    def content(self):
        text = self.text
        if text is None:
            text = json.dumps({k: v if isinstance(v, (dict, int, type(None))) else " ".join(v)
                               for k, v in sorted(self.records.items())})
        meta = dict(self.meta)
        if text is not False:
            meta["qplan.tensors"] = text
        return ckpt(self.tensors, meta)

    def source_content(self):
        return ckpt(self.source, self.source_meta)


class Layout:
    name = "qplan"
    tensor = "w"                        # the quantized tensor of an honest file
    parts = {"codes": "w", "scale": "w_scale", "zero": "w_zero_point"}
    schemes = {
        "int8": Scheme(), "uint8": Scheme(signed=False, symmetric=False),
        "int8-asym": Scheme(symmetric=False), "uint8-sym": Scheme(signed=False),
        "int4": Scheme(bits=4, grain=("g", 4)),
        "int4-asym": Scheme(bits=4, symmetric=False, grain=("g", 4)),
        "uint4": Scheme(bits=4, signed=False, symmetric=False, grain=("c", 0)),
        "uint4-sym": Scheme(bits=4, signed=False, grain=("t",)),
        "narrow": Scheme(narrow=True), "narrow-asym": Scheme(narrow=True, symmetric=False),
        "narrow4": Scheme(bits=4, narrow=True, grain=("g", 4)), "tensor": Scheme(grain=("t",)),
        "column": Scheme(grain=("c", 1)), "block": Scheme(grain=("b", 2, 3)), "groups": GROUPS,
        "scale-f16": Scheme(scale="F16"), "scale-bf16": Scheme(scale="BF16", grain=("c", 1)),
    }

    def honest(self, scheme="int8", **how):
        return File(self.schemes[scheme], **how)

    # --- values of an honest file ---

    @staticmethod
    def n_sets(file):
        dtype, dims, _ = file.tensors["w_scale"]
        return n_bytes(dtype, dims) // n_bytes(dtype, [1])

    @staticmethod
    def set_scale(file, i, value):
        dtype = file.tensors["w_scale"][0]
        raw = (struct.pack("<f", value)[2:] if dtype == "BF16"
               else struct.pack({"F32": "<f", "F16": "<e"}[dtype], value))
        file.set_bytes("w_scale", i * len(raw), raw)

    @staticmethod
    def set_zero(file, i, value):
        file.set_bytes("w_zero_point", i, bytes([value % 256]))

    @staticmethod
    def set_code(file, row, col, value):
        if file.scheme.bits == 8:
            file.set_bytes("w", row * file.dims[1] + col, bytes([value % 256]))
            return
        at = row * ((file.dims[1] + 1) // 2) + col // 2
        old = file.tensors["w"][2][at]
        file.set_bytes("w", at, bytes([old & 0xf0 | value % 16 if col % 2 == 0
                                       else old & 0x0f | value % 16 << 4]))

    @staticmethod
    def set_pad(file, row):
        """The spare nibble of a row; False where there is none."""
        if file.scheme.bits == 8 or file.dims[1] % 2 == 0:
            return False
        at = (row + 1) * ((file.dims[1] + 1) // 2) - 1
        file.set_bytes("w", at, bytes([file.tensors["w"][2][at] | 0x30]))
        return True

    @staticmethod
    def unrecord(file):
        """Nothing says any more that the tensor is quantized."""
        del file.records["w"]

    # --- every claim of records and metadata, wrong ---

    def claims(self):
        yield from self.claims_of_names()
        yield from self.claims_of_words()
        yield from self.claims_of_metadata()
        yield from self.claims_of_text()

    def claims_of_names(self):
        def record(name, like=None):
            def spoil(file):
                file.records[name] = list(file.records["w"]) if like is None else like.split(" ")
            return spoil

        def claimed(name, of, swap=False):
            """Codes that are another tensor's zero points, as the records have it."""
            def spoil(file):
                file.__init__(GROUPS)
                dims = file.tensors["w_zero_point"][1]
                raw = filler("F32", 4 * dims[0] * dims[1], 1)
                zero = file.tensors["w_zero_point"]
                file.add("w_zero_point", Scheme(grain=("t",)), "F32", dims, raw)
                if not swap:
                    file.tensors["w_zero_point"] = zero
            return Fault(f"Q3-{name}", spoil, (tensor("w"), tensor("w_zero_point"), *of))

        def twice(file):
            text = " ".join(file.records["w"])
            file.text = f'{{"w":"{text}","w":"{text}"}}'

        for name in ("ghost", "", "W", "w ", "w_", "w\u0000", "__metadata__"):
            yield Fault(f"Q2-not-there-{name.encode().hex() or 'empty'}", record(name),
                        (words("not in the file|two records"),))
        yield Fault("Q2-twice", twice, (tensor("w"), words("two records")))
        yield claimed("codes-are-zero-points", (words("claimed twice"),))
        yield claimed("zero-points-are-codes", (words("claimed twice"),), swap=True)
        yield Fault("Q3-scales-as-codes", record("w_scale", "int8:t minmax F32 5x1"),
                    (tensor("w_scale"),))
        yield Fault("Q3-kept-as-codes", record("bias", "int8:t minmax F32 3x1"), (tensor("bias"),))

    def claims_of_words(self):
        def word(i, text):
            def spoil(file):
                file.records["w"][i] = text
            return spoil

        whole = tensor("w"), words("not a record")
        for text in ("int9:c0", "int16:c0", "f32:c0", "nf4:c0", "", "INT8:c0", "int8", "int8:",
                     "int8:c", "int8:c2", "int8:c64", "int8:c-1", "int8:c-2", "int8:c00", "int8:g0",
                     "int8:g-4", "int8:b2", "int8:b0x3", "int8:b2x3x4", "int8:t:sym", "int8:t:f32",
                     "int8:c0:f64", "int8:c0:narrow:narrow", "int8:narrow:c0", "uint8:c0:narrow",
                     "uint8:c0:asym", "int8:c0:f16:", "int8:c0\u0000", "int8:c0\u0000:f16",
                     "int8:g99999999999999999999", "int8:c0" + ":f16" * 40):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), whole)
        for text, part, wanted, found in (
                ("uint8:c0", "w", "U8 [5,7]", "I8 [5,7]"), ("int4:c0", "w", "U8 [5,4]", "I8 [5,7]"),
                ("uint4:c0", "w", "U8 [5,4]", "I8 [5,7]"), ("int8:t", "w_scale", "[1]", "[5]"),
                ("int8:c1", "w_scale", "[7]", "[5]"), ("int8:g3", "w_scale", "[5,3]", "[5]"),
                ("int8:b2x3", "w_scale", "[3,3]", "[5]"), ("int8:c0:f16", "w_scale", "F16", "F32"),
                ("int8:c0:bf16", "w_scale", "BF16", "F32")):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (tensor(part),
                        words("not those of its record"), f"expected {wanted}" if wanted[0] != "["
                        else f"expected F32 {wanted}", found))
        yield Fault("Q6-scheme-int8-c0-narrow", word(0, "int8:c0:narrow"),
                    (tensor("w"), words("narrow range"), words("found -128$")), READ)
        for text in ("", "MINMAX", "minmax2", "minma", "none", "minmax:", "m" * 99):
            yield Fault(f"Q6-calibrator-{clean(text)[:12]}", word(1, text),
                        (tensor("w"), words("calibrator"), "minmax"))
        yield Fault("Q6-calibrator-nul", word(1, "minmax\u0000"), whole)
        for text in ("", "I8", "U8", "BOOL", "F8_E4M3", "f32", "F33", "F32\u0000", "C64"):
            yield Fault(f"Q6-source-dtype-{clean(text)}", word(2, text), whole)
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (tensor("w"), words("not that of the source")), OTHER_SOURCE)
        for text in ("", "35", "5x", "x7", "5xx7", "05x7", "5x07", "-5x7", "5X7", "5x7.0", "5x0",
                     "0x7", "5x7\u0000", "5\u0000x7", "5,7", "[5,7]", "5x18446744073709551616",
                     "4294967296x4294967296", "x".join(["1"] * 65)):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), whole)
        for text in ("7x5", "5x7x1", "1x5x7", "5x6", "5x8", "4x7", "35x1", "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text),
                        (tensor("w"), words("record")))

    def claims_of_text(self):
        def value(made):
            def spoil(file):
                file.records["w"] = made(file.records["w"])
            return spoil

        def text(made):
            def spoil(file):
                file.text = made
            return spoil

        whole = tensor("w"), words("not a record")
        for name, made in (("three-words", lambda r: r[:3]), ("five-words", lambda r: [*r, "x"]),
                           ("no-words", lambda r: []), ("blank-first", lambda r: ["", *r]),
                           ("blank-last", lambda r: [*r, ""]), ("number", lambda r: 1),
                           ("two-blanks", lambda r: [r[0], "", *r[1:]]), ("null", lambda r: None),
                           ("tabs", lambda r: ["\t".join(r)]), ("swapped", lambda r: r[::-1])):
            yield Fault(f"Q6-record-{name}", value(made), whole)
        yield Fault("Q6-record-object", value(lambda r: {}), (words("not a record|deep"),))
        for name, made in (("array", "[]"), ("string", '"w"'), ("null", "null"), ("number", "1"),
                           ("empty", ""), ("cut", "{"), ("rest", "{} {}"), ("comma", '{"w":"",}'),
                           ("nul", "{}\u0000"), ("comment", "{}//"), ("missing", False)):
            yield Fault(f"Q6-text-{name}", text(made), (words("qplan.tensors"),))

    def claims_of_metadata(self):
        def meta(key, value=None):
            def spoil(file):
                file.meta.pop(key, None)
                if value is not None:
                    file.meta[key] = value
            return spoil

        def source_meta(key, value):
            def spoil(file):
                file.source_meta[key] = value
            return spoil

        for key, what in (("qplan.layout", "newer"), ("qplan.numerics", "another revision")):
            for text in ("0", "2", "99", "", "01", "1 ", " 1", "1.0", "-1", "one", "1\u0000",
                         "1\u0000" + "1", "\u0000"):
                yield Fault(f"Q7-{key}-{text.encode().hex() or 'empty'}", meta(key, text),
                            (key, words(what)))
        yield Fault("Q7-numerics-missing", meta("qplan.numerics"), ("qplan.numerics",))
        for key in ("qplan.", "qplan.x", "qplan.layout2", "qplan.Layout", "qplan.tensor",
                    "qplan.layout\u0000", "qplan.\u0000layout", "qplan.tensors\u0000x"):
            yield Fault(f"Q7-key-{key.encode().hex()[12:] or 'empty'}", meta(key, "1"),
                        (words("unknown metadata key"), "qplan."))
        for name, text in (("missing", None), ("other", "np"), ("empty", ""), ("case", "PT"),
                           ("nul", "pt\u0000"), ("nul-first", "\u0000pt")):
            yield Fault(f"Q7-format-{name}", meta("format", text), ("format", "pt"), ONLY_PROOF)
        for name, key, text in (("nul-key", "note\u0000evil", "kept"), ("more", "other", ""),
                                ("format-nul", "format\u0000x", "pt"), ("nul", "\u0000", ""),
                                ("no-dot", "qplan", "1"), ("value", "note", "other"),
                                ("value-nul", "note", "kept\u0000"), ("less", "note", None)):
            yield Fault(f"Q7-other-{name}", meta(key, text), (words("metadata"),), ONLY_PROOF)
        for name, key, text in (("nul-key", "note\u0000evil", "kept"), ("other", "k", "v"),
                                ("value-nul", "note", "kept\u0000"), ("format", "format\u0000", "")):
            yield Fault(f"Q7-source-{name}", source_meta(key, text), (words("metadata"),),
                        ONLY_PROOF)


def clean(text):
    """A text as a part of an id."""
    return "".join(c if c.isalnum() or c == "-" else "." for c in text) or "empty"
