"""The native layout for rows_quantized.py: honest files, where their claims are, and every claim of
its records and metadata wrong.

A file is made by model.py from the contract alone.  A fault is a function that spoils a file.
"""

import copy
import dataclasses
import functools
import json
import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction

import model
from bench import OUTPUT
from expect import tensor, words
from model import Scheme
from st import ckpt, f32, filler, n_bytes

ALL, READ = {}, {"inspect": 0}          # exits: all four commands refuse; inspect reads no codes
HONEST = {"inspect": 0, "against": 0, "verify": 0, "dequantize": 0}
ONLY_PROOF = {"inspect": 0, "against": 0, "verify": 1, "dequantize": 0}
OTHER_SOURCE = {"inspect": 0, "against": 3, "verify": 1, "dequantize": 0}
BAD_SCALES = {"zero": 0.0, "minus-zero": -0.0, "minus": -0.5, "nan": math.nan, "inf": math.inf,
              "minus-inf": -math.inf}
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
    out = s.name() + ":" + s.grain[0] + "x".join(map(str, s.grain[1:]))
    if s.bias:
        out += ":bias"
    elif s.symmetric != s.signed:
        out += ":sym" if s.symmetric else ":asym"
    out += ":narrow" * s.narrow + (f":{s.scale.lower()}" if s.scale != "F32" else "")
    return out + ":double" * getattr(s, "nested", False)


class File:
    """An honest file and its source; faults change it."""
    name, kept = "w", "bias"            # the quantized tensor and the other one
    stem = "w"                          # what the names of all its stored tensors begin with
    old_output = OUTPUT                 # a file that a run may replace

    def __init__(self, scheme, dtype="F32", dims=(5, 7)):
        self.scheme, self.dims, self.dtype = scheme, dims, dtype
        values = [(i * 37 % 101 - 60) / 8 for i in range(dims[0] * dims[1])]
        raw = model.encode(dtype, values)
        bias = ("F32", (3,), f32(1, 2, 3))
        self.source = {self.name: (dtype, dims, raw), self.kept: bias}
        self.source_meta = {"note": "kept"}
        self.meta = {"note": "kept", "format": "pt", "qplan.numerics": "1",
                     "qplan.layout": "2" if scheme.bits not in (4, 8) or scheme.bias
                     or scheme.values or scheme.scale in model.SMALL else "1"}
        self.tensors, self.records = {self.kept: bias}, {}
        self.add(self.name, scheme, dtype, dims, raw)
        self.text = None                # qplan.tensors, where it is not the records

    def add(self, name, scheme, dtype, dims, raw):
        """A quantized tensor and its record."""
        self.tensors.update(self.stored(name, scheme, dtype, dims, raw))
        self.records[name] = [scheme_text(scheme), "minmax", dtype, "x".join(map(str, dims))]

    def stored(self, name, scheme, dtype, dims, raw):
        """The stored tensors that stand for a quantized one."""
        parts = model.quantize(dtype, dims, raw, scheme)
        return {name + suffix: part for suffix, part in parts.items()}

    @property
    def parts(self):
        found = {"codes": "w", "scale": "w_scale", "zero": "w_zero_point", "bias": "w_offset",
                 "factor": "w_scale_2"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def set_bytes(self, name, at, raw):
        dtype, dims, old = self.tensors[name]
        at %= len(old)
        self.tensors[name] = (dtype, dims, old[:at] + raw + old[at + len(raw):])

    def content(self):
        text = self.text
        if text is None:
            text = json.dumps({k: v if isinstance(v, (dict, int, type(None))) else " ".join(v)
                               for k, v in sorted(self.records.items())}, separators=(",", ":"))
        meta = dict(self.meta)
        if text is not False:
            meta["qplan.tensors"] = text
        return ckpt(self.tensors, meta)

    def source_content(self):
        return ckpt(self.source, self.source_meta)

    def write(self, bench, path, source, cut=lambda raw: raw):
        """The checkpoint and its source, in the folder of a case."""
        bench.write(self.source_content(), source)
        bench.write(cut(self.content().data), path)


class Layout:
    name = "qplan"
    base = "int8"                       # the scheme of files whose claims are spoiled
    with_wrong_parts = ("int8", "int4-asym", "block", "uint4-bias", "scale-e8m0", "scale-f8e4m3",
                        "f8e5m2", "nf4")
    lean = {}                           # by scheme: changes after which a file means the same
    valued = ()                         # the schemes whose values are spoiled; () = all
    need_layout_2 = ("int3", "uint4-bias", "scale-e8m0", "scale-f8e4m3", "f8e4m3", "nf4")
    inputs, with_inputs = (), ()        # what a layer has for its inputs, and schemes that have it
    sidecars, orphans = (), ()          # names of stray parts: of nothing, and refused for it
    unrecorded = (tensor("w_scale"), words("quantized weights")), ALL
    schemes = {
        "int8": Scheme(), "uint8": Scheme(signed=False, symmetric=False),
        "int8-asym": Scheme(symmetric=False), "uint8-sym": Scheme(signed=False),
        "int4": Scheme(bits=4, grain=("g", 4)),
        "int4-asym": Scheme(bits=4, symmetric=False, grain=("g", 4)),
        "uint4": Scheme(bits=4, signed=False, symmetric=False, grain=("c", 0)),
        "uint4-sym": Scheme(bits=4, signed=False, grain=("t",)),
        "int3": Scheme(bits=3, grain=("g", 4)),
        "int3-narrow": Scheme(bits=3, narrow=True, symmetric=False, grain=("t",)),
        "uint5": Scheme(bits=5, signed=False, symmetric=False, grain=("c", 1)),
        "uint2-sym": Scheme(bits=2, signed=False, grain=("c", 0)),
        "narrow": Scheme(narrow=True), "narrow-asym": Scheme(narrow=True, symmetric=False),
        "narrow4": Scheme(bits=4, narrow=True, grain=("g", 4)), "tensor": Scheme(grain=("t",)),
        "column": Scheme(grain=("c", 1)), "block": Scheme(grain=("b", 2, 3)), "groups": GROUPS, "wide": Scheme(grain=("g", 16)),
        "wide-block": Scheme(grain=("b", 2, 16)),
        "uint4-bias": Scheme(bits=4, signed=False, symmetric=False, grain=("g", 4), bias=True),
        "uint8-bias-bf16": Scheme(signed=False, symmetric=False, scale="BF16", bias=True),
        "scale-f16": Scheme(scale="F16"), "scale-bf16": Scheme(scale="BF16", grain=("c", 1)),
        "scale-e8m0": Scheme(scale="E8M0", grain=("g", 4)),
        "scale-f8e4m3": Scheme(bits=4, scale="F8E4M3", grain=("g", 4)),
        "f8e4m3": Scheme(values="F8E4M3"), "f8e5m2": Scheme(values="F8E5M2", grain=("b", 2, 3)),
        "f4e2m1": Scheme(bits=4, values="F4E2M1", grain=("g", 4)),
        "nf4": Scheme(bits=4, values="NF4", scale="BF16", grain=("c", 1)),
        "uint5-f8e4m3": Scheme(bits=5, signed=False, symmetric=False, scale="F8E4M3"),
    }

    file = File

    @functools.cache
    def made(self, scheme, how):
        """Files that are alike are made once: their arithmetic takes longer than a case."""
        return self.file(self.schemes[scheme], **dict(how))

    def honest(self, scheme=None, **how):
        return copy.deepcopy(self.made(scheme or self.base, tuple(sorted(how.items()))))

    def start_as(self, scheme, fault):
        """A fault of a file that has another scheme than the base."""
        if scheme == self.base:
            return fault

        def spoil(file):
            vars(file).update(vars(self.honest(scheme)))
            fault.spoil(file)
        row, _, rest = fault.id.partition("-")
        return Fault(f"{row}-{scheme}-{rest}", spoil, fault.names, fault.exits)

    # --- values of an honest file ---

    @staticmethod
    def n_sets(file):
        dtype, dims, _ = file.tensors[file.parts["scale"]]
        return n_bytes(dtype, dims) // n_bytes(dtype, [1])

    @staticmethod
    def set_float(file, name, i, value):
        dtype = file.tensors[name][0]
        small = model.SMALL.get(file.scheme.scale)
        if small and dtype in ("U8", small[0]):  # an integer is the byte itself
            byte = value if isinstance(value, int) else small[1][
                min(small[1], key=lambda x: abs(x - Fraction(value)))]
            return file.set_bytes(name, i, bytes([byte]))
        raw = (struct.pack("<f", value)[2:] if dtype == "BF16"
               else struct.pack({"F32": "<f", "F16": "<e"}[dtype], value))
        file.set_bytes(name, i * len(raw), raw)

    def set_scale(self, file, i, value):
        self.set_float(file, file.parts["scale"], i, value)

    @staticmethod
    def bad_scales(file):
        """What the type of the scales holds and no scale is."""
        scheme = file.scheme
        if scheme.scale == "E8M0":
            return {"nan": 0xff}
        if scheme.scale == "F8E4M3":
            return {"zero": 0, "minus-zero": 0x80, "minus": 0xb8, "nan": 0x7f, "minus-nan": 0xff}
        return BAD_SCALES

    @staticmethod
    def other_scales(scheme):
        """Scales that are none of an honest file, which has the largest one of f8e4m3."""
        huge = {} if scheme.scale == "F8E4M3" else {"huge": 60000.0}
        return {"tiny": 2.0 ** -14, "other": 1.3, **huge}

    def set_bias(self, file, i, value):
        self.set_float(file, file.parts["bias"], i, value)

    @staticmethod
    def set_zero(file, i, value):
        file.set_bytes("w_zero_point", i, bytes([value % 256]))

    @staticmethod
    def set_code(file, row, col, value):
        bits, n = file.scheme.bits, model.row_bytes(file.dims[1], file.scheme.bits)
        line = int.from_bytes(file.tensors["w"][2][row * n:][:n], "little")
        line &= ~((2 ** bits - 1) << col * bits)
        line |= value % 2 ** bits << col * bits
        file.set_bytes("w", row * n, line.to_bytes(n, "little"))

    @staticmethod
    def set_pad(file, row):
        """The highest spare bit of a row; False where there is none."""
        if file.dims[1] * file.scheme.bits % 8 == 0:
            return False
        at = (row + 1) * model.row_bytes(file.dims[1], file.scheme.bits) - 1
        file.set_bytes("w", at, bytes([file.tensors["w"][2][at] | 0x80]))
        return True

    @staticmethod
    def set_zero_pad(file):
        """The highest spare bit of the zero points; False where there is none."""
        return False

    @staticmethod
    def gone(file, role):
        """The exits of a file without this part: symmetric zero points say nothing."""
        return HONEST if role == "zero" and file.scheme.symmetric else ALL

    @staticmethod
    def reshaped(file, role, dims):
        """The exits of a file in which this part has another shape."""
        return ALL

    @staticmethod
    def retyped(file, role, dtype):
        """The exits of a file in which this part has another type."""
        return ALL

    @staticmethod
    def unrecord(file):
        """Nothing says any more that the tensor is quantized."""
        del file.records["w"]

    @staticmethod
    def unrecord_keys(file):
        """No key of qplan is left, and config.json, if there is one, is as it was."""
        file.records, file.text = {}, False
        file.meta = {k: v for k, v in file.meta.items() if not k.startswith("qplan.")}

    @staticmethod
    def dtypes(scheme):
        """Of the source of an honest file."""
        return "F32", "F16", "BF16", "F64"

    @staticmethod
    def bad_zeros(scheme):
        """Zero points that the type of the stored tensor holds and the scheme does not allow."""
        if scheme.bias or scheme.values:
            return []
        low, high = scheme.codes()
        least, most = (-128, 127) if scheme.signed else (0, 255)
        middle = 0 if scheme.signed else (high + 1) // 2
        near = {low - 1, high + 1, least, most, 100}
        if scheme.symmetric:
            return sorted(v for v in near | {middle - 1, middle + 1}
                          if least <= v <= most != middle)
        return sorted(v for v in near if least <= v <= most and not low <= v <= high)

    # --- every claim of records and metadata, wrong ---

    def claims(self):
        yield from self.claims_of_names()
        yield from self.claims_of_schemes()
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
        whole = tensor(self.file.name), words("not a record")
        for text in ("int9:c0", "int1:c0", "int16:c0", "f32:c0", "nf5:c0", "nf4:c0:asym", "f8e4m3:c0:narrow",
                     "fp8:c0", "", "INT8:c0", "int8", "int8:",
                     "int8:c", "int8:c2", "int8:c64", "int8:c-1", "int8:c-2", "int8:c00", "int8:g0",
                     "int8:g-4", "int8:b2", "int8:b0x3", "int8:b2x3x4", "int8:t:sym", "int8:t:f32",
                     "int8:c0:f64", "int8:c0:narrow:narrow", "int8:narrow:c0", "uint8:c0:narrow",
                     "uint8:c0:asym", "int8:c0:f16:", "int8:c0\u0000", "int8:c0\u0000:f16",
                     "int8:g99999999999999999999", "int8:c0" + ":f16" * 40):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), whole)
        for text in ("", "MINMAX", "minmax2", "minma", "none", "minmax:", "m" * 99):
            yield Fault(f"Q6-calibrator-{clean(text)[:12]}", word(1, text),
                        (tensor(self.file.name), words("calibrator"), "minmax"))
        yield Fault("Q6-calibrator-nul", word(1, "minmax\u0000"), whole)
        for text in ("", "I8", "U8", "BOOL", "F8_E4M3", "f32", "F33", "F32\u0000", "C64"):
            yield Fault(f"Q6-source-dtype-{clean(text)}", word(2, text), whole)
        for text in ("", "35", "5x", "x7", "5xx7", "05x7", "5x07", "-5x7", "5X7", "5x7.0", "5x0",
                     "0x7", "5x7\u0000", "5\u0000x7", "5,7", "[5,7]", "5x18446744073709551616",
                     "4294967296x4294967296", "x".join(["1"] * 65)):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), whole)

    def claims_of_schemes(self):
        for text, part, wanted, found in (
                ("uint8:c0", "w", "U8 [5,7]", "I8 [5,7]"), ("int4:c0", "w", "U8 [5,4]", "I8 [5,7]"),
                ("uint4:c0", "w", "U8 [5,4]", "I8 [5,7]"),
                ("int3:c0", "w", "U8 [5,3]", "I8 [5,7]"), ("int8:t", "w_scale", "[1]", "[5]"),
                ("int8:c1", "w_scale", "[7]", "[5]"), ("int8:g3", "w_scale", "[5,3]", "[5]"),
                ("int8:b2x3", "w_scale", "[3,3]", "[5]"), ("int8:c0:f16", "w_scale", "F16", "F32"),
                ("int8:c0:bf16", "w_scale", "BF16", "F32")):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (tensor(part),
                        words("not those of its record"), f"expected {wanted}" if wanted[0] != "["
                        else f"expected F32 {wanted}", found))
        yield Fault("Q6-scheme-int8-c0-narrow", word(0, "int8:c0:narrow"),
                    (tensor("w"), words("narrow range"), words("found -128$")), READ)
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (tensor("w"), words("not that of the source")), OTHER_SOURCE)
        for text in ("7x5", "5x7x1", "1x5x7", "5x6", "5x8", "4x7", "35x1", "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text),
                        (tensor("w"), words("record")))

    def claims_of_text(self):
        def value(made):
            def spoil(file):
                file.records[file.name] = made(file.records[file.name])
            return spoil

        def text(made):
            def spoil(file):
                file.text = made
            return spoil

        whole = tensor(self.file.name), words("not a record")
        for name, made in (("three-words", lambda r: r[:3]), ("five-words", lambda r: [*r, "x"]),
                           ("no-words", lambda r: []), ("blank-first", lambda r: ["", *r]),
                           ("blank-last", lambda r: [*r, ""]),
                           ("two-blanks", lambda r: [r[0], "", *r[1:]]),
                           ("tabs", lambda r: ["\t".join(r)]), ("swapped", lambda r: r[::-1])):
            yield Fault(f"Q6-record-{name}", value(made), (*whole, words("found '")))
        for name, made in (("number", 1), ("null", None), ("object", {})):
            yield Fault(f"Q6-record-{name}", value(lambda r, made=made: made),
                        (*whole, words(f"found (an? )?{name}")))
        for name, made in (("array", "[]"), ("string", '"w"'), ("null", "null"), ("number", "1"),
                           ("empty", ""), ("cut", "{"), ("no-value", '{"w":}'),
                           ("rest", "{} {}"), ("comma", '{"w":"",}'),
                           ("nul", "{}\u0000"), ("comment", "{}//"), ("missing", False)):
            yield Fault(f"Q6-text-{name}", text(made), (words("qplan.tensors"),))

    def claims_of_making(self):
        """Digests of data and what was done about NaN: keys that need not be there."""
        def making(layout="2", **values):
            def spoil(file):
                file.meta["qplan.layout"] = layout
                file.meta.update({"qplan." + key: value for key, value in values.items()})
            return spoil

        one = "sha256:" + "0123456789abcdef" * 4
        two = one + " " + one.replace("0", "f")
        def weighted(spoil):
            def both(file):
                spoil(file)
                file.records[file.name][1] = "mse:fast+importance"
            return both

        for name, spoil in (("importance", weighted(making(importance=one))),
                            ("two", weighted(making(importance=two))),
                            ("saturate", making(nonfinite="saturate")),
                            ("saturate-1", making("1", nonfinite="saturate"))):
            if name != "saturate-1" or self.base not in self.need_layout_2:
                yield Fault(f"Q7-making-honest-{name}", spoil, (), HONEST)
        for name, key, spoil in (
                ("importance", "importance", making(importance=one)),
                ("hessian", "hessian", making(hessian=one, hessian_damp="0.01")),
                ("two-hessians", "hessian", making(hessian=two, hessian_damp="1.0")),
                ("tiny-damp", "hessian", making(hessian=one, hessian_damp="5e-324")),
                ("all", "importance", making(importance=two, hessian=one, hessian_damp="0.5",
                                             nonfinite="saturate"))):
            yield Fault(f"Q7-making-not-asked-{name}", spoil, ("qplan." + key,),
                        {"inspect": 0, "against": 0, "dequantize": 0})
        bad = {"empty": "", "word": "x", "bare": one[7:], "short": one[:-1], "long": one + "0",
               "upper": one.upper(), "upper-digit": one[:-1] + "F", "no-digit": one[:-1] + "g",
               "other-hash": one.replace("256", "512"), "blank-first": " " + one,
               "blank-last": one + " ", "two-blanks": one + "  " + one, "no-blank": one + one,
               "tab": one + "\t" + one, "comma": one + "," + one, "second-short": two[:-1],
               "nul": one + "\u0000", "nul-inside": one[:20] + "\u0000" + one[21:],
               "nul-between": one + "\u0000" + one, "newline": one + "\n"}
        for name, text in bad.items():
            yield Fault(f"Q7-making-importance-{name}", making(importance=text),
                        ("qplan.importance", words("64 digits")))
            yield Fault(f"Q7-making-hessian-{name}", making(hessian=text, hessian_damp="0.01"),
                        ("qplan.hessian", words("64 digits")))
        for name, text in (("empty", ""), ("zero", "0.0"), ("minus", "-0.01"), ("word", "x"),
                           ("longer", "0.010"), ("no-fraction", "1"), ("exponent", "1e-2"),
                           ("inf", "inf"), ("nan", "nan"), ("huge", "1e999"), ("plus", "+0.01"),
                           ("hex", "0x1p-3"), ("comma", "0,01"), ("blank", "0.01 "),
                           ("nul", "0.01\u0000")):
            yield Fault(f"Q7-making-damp-{name}", making(hessian=one, hessian_damp=text),
                        ("qplan.hessian_damp", words("a number above 0")))
        yield Fault("Q7-making-damp-alone", making(hessian_damp="0.01"),
                    (words("expected both or neither"),))
        yield Fault("Q7-making-hessian-alone", making(hessian=one),
                    (words("expected both or neither"),))
        for text in ("", "error", "Saturate", "saturate ", "saturate\u0000", "0"):
            yield Fault(f"Q7-making-nonfinite-{text.encode().hex() or 'empty'}",
                        making(nonfinite=text), ("qplan.nonfinite", words("expected saturate")))
        for name, spoil in (("importance", making("1", importance=one)),
                            ("hessian", making("1", hessian=one, hessian_damp="0.01"))):
            yield Fault(f"Q7-making-{name}-in-layout-1", spoil, (words("not in layout 1"),))
        for key in ("Importance", "importance2", "importance\u0000", "hessian_dampen", "statistics"):
            yield Fault(f"Q7-making-key-{key.encode().hex()}", making(**{key: one}),
                        (words("unknown metadata key"), "qplan."))

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

        def in_layout_1(file):
            file.meta["qplan.layout"] = "1"

        def by_recipe(file):
            file.records[file.name][1] = "reference:gptqmodel"
            in_layout_1(file)

        def by_another_tool(file):
            file.records[file.name][1] = "unknown"
            in_layout_1(file)

        yield Fault("Q7-qplan.layout-unknown-needs-2", by_another_tool,
                    (self.file.stem, "qplan.layout 2", words("by another tool")))
        if not self.schemes[self.base].values:  # which the recipe does not make
            yield Fault("Q7-qplan.layout-recipe-needs-2", by_recipe,
                        (self.file.stem, "qplan.layout 2", words("by reference:gptqmodel")))
        for scheme in self.need_layout_2:
            s = self.schemes[scheme]
            more = " with a bias" if s.bias else " with scales of one byte" \
                if s.scale in ("E8M0", "F8E4M3") else ""
            yield self.start_as(scheme, Fault("Q7-qplan.layout-needs-2", in_layout_1, (
                self.file.stem, "qplan.layout 2",
                words(f"{s.name()}{more} by minmax"))))
        for key, what in (("qplan.layout", "newer"), ("qplan.numerics", "another revision")):
            for text in ("0", "3" if key == "qplan.layout" else "2", "99", "", "01", "1 ", " 1", "1.0", "-1", "one", "1\u0000",
                         "1\u0000" + "1", "\u0000"):
                yield Fault(f"Q7-{key}-{text.encode().hex() or 'empty'}", meta(key, text),
                            (key, words(what)))
        yield Fault("Q7-numerics-missing", meta("qplan.numerics"), ("qplan.numerics",))
        yield from self.claims_of_making()
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


def word(i, text):
    """Another word of the record."""
    def spoil(file):
        file.records[file.name][i] = text
    return spoil


def clean(text):
    """A text as a part of an id."""
    return "".join(c if c.isalnum() or c == "-" else "." for c in text) or "empty"
