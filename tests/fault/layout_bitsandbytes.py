"""The layout of bitsandbytes for rows_quantized.py. A weight of 8 bits is bytes, SCB, the value of the code
127 in each row, and weight_format, which is 0. One of 4 bits is a column of bytes, two codes each, the
scales of groups that go on from row to row, the values of the codes, and JSON.
"""

import functools
import json
import math
import pathlib
import re
import struct
from dataclasses import dataclass
from fractions import Fraction

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored, both, drop_config, edit_text, set_config
from layout_qplan import ALL, BAD_SCALES, HONEST, ONLY_PROOF, OTHER_SOURCE, Fault, clean, word

REST = {"llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0}
STATE = ".quant_state.bitsandbytes__"
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Narrow(Stored):
    narrow: bool = True
    has_order: bool = True              # weight_format is there


@dataclass(frozen=True)
class Flat(Stored):
    bits: int = 4
    values: str = "NF4"
    nested: bool = False                # scales have scales


GOLDEN = pathlib.Path(__file__).parent.parent.parent / "testdata/bitsandbytes/nf4-double/encoded"
NESTED = {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 1.5}
ROOM = 32                               # of an offset in the JSON that qplan writes


@functools.cache
def nested_map():
    """The values of codes of scales, as the library stores them."""
    data = (GOLDEN / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    found = next(entry for name, entry in json.loads(data[8:begin]).items() if name.endswith(".nested_quant_map"))
    return data[begin:][slice(*found["data_offsets"])]


class File(layout_folder.FolderFile):
    @staticmethod
    def scale_type(dtype):
        return "F32"

    @property
    def parts(self):
        ends = {"codes": ".weight", "scale": ".SCB", "order": ".weight_format"}
        if self.scheme.values:
            nested = {"nested": ".weight.nested_absmax", "nested_map": ".weight.nested_quant_map"}
            ends = {**nested, "codes": ".weight", "scale": ".weight.absmax", "map": ".weight.quant_map",
                    "state": ".weight" + STATE + self.scheme.values.lower()}
        return {role: self.stem + end for role, end in ends.items() if self.stem + end in self.tensors}

    offset = 1.5                        # of scales that have scales

    def state(self):
        """What the JSON says."""
        return {"quant_type": self.scheme.values.lower(), "blocksize": self.scheme.grain[1],
                "dtype": DTYPES[self.dtype], "shape": list(self.dims),
                **({**NESTED, "nested_offset": self.offset} if self.scheme.nested else {})}

    def state_text(self):
        """The JSON; in that of qplan all offsets have the same room."""
        text = json.dumps(self.state())
        own = self.scheme.nested and self.scheme.recorded
        return text if not own else text[:-1] + " " * (ROOM - len(json.dumps(self.offset))) + "}"

    def stored_scales(self, name, params):
        """Scales as numbers, or as codes of the largest value of a map that is enough."""
        scales = [s for s, _ in params]
        if not self.scheme.nested:
            return {name + ".absmax": ("F32", (len(scales),), model.encode("F32", scales))}, params
        values = model.decode("F32", nested_map())
        if self.scheme.recorded:
            return self.own_scales(name, scales, values)
        self.offset = 1.5
        made = {model.nearest(model.nearest(v * 16, "F32") + Fraction(3, 2), "F32"): c
                for c, v in enumerate(values)}
        found = [min(m for m in made if m >= s) for s in scales]
        return {name + ".absmax": ("U8", (len(scales),), bytes(made[m] for m in found)),
                name + ".nested_absmax": ("F32", (1,), model.encode("F32", [16])),
                name + ".nested_quant_map": ("F32", (256,), nested_map())}, [(m, 0) for m in found]

    def own_scales(self, name, scales, values):
        """By the mean of all scales, and the largest distance from it; all are in one group."""
        exact = sum(scales, Fraction(0))
        self.offset = float(model.nearest(Fraction(float(exact) / len(scales)), "F32"))
        offset = Fraction(self.offset)
        far = [model.nearest(s - offset, "F32") for s in scales]
        most = max(map(abs, far))
        codes = [min(range(256), key=lambda c: (abs(d - values[c] * (most or 1)), c)) for d in far]
        found = [model.nearest(model.nearest(values[c] * most, "F32") + offset, "F32") for c in codes]
        assert min(found) > 0
        return {name + ".absmax": ("U8", (len(scales),), bytes(codes)),
                name + ".nested_absmax": ("F32", (1,), model.encode("F32", [most])),
                name + ".nested_quant_map": ("F32", (256,), nested_map())}, [(m, 0) for m in found]

    def stored_flat(self, name, scheme, dtype, dims, raw):
        n = math.prod(dims)
        _, params, *_ = model.coded(dtype, (1, n), raw, scheme)
        scales, params = self.stored_scales(name, params)
        work = "F64" if dtype == "F64" else "F32"
        codes = [model.code(v, *params[i // scheme.grain[1]], scheme, work)
                 for i, v in enumerate(model.decode(dtype, raw))]
        pairs = [*codes, 7 if scheme.values == "NF4" else 0][:n + n % 2]
        book = model.NF4 if scheme.values == "NF4" else [v / 12 for v in model.FP4]
        state = self.state_text().encode()
        return {name: ("U8", (len(pairs) // 2, 1),
                       bytes(a << 4 | b for a, b in zip(pairs[::2], pairs[1::2]))),
                **scales,
                name + ".quant_map": ("F32", (16,), struct.pack("<16f", *book)),
                name + STATE + scheme.values.lower(): ("U8", (len(state),), state)}

    def stored(self, name, scheme, dtype, dims, raw):
        """Codes are made by steps, which are what the library makes of the stored values."""
        if scheme.values:
            return self.stored_flat(name, scheme, dtype, dims, raw)
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
        is_4bit = bool(self.scheme.values)
        return {CONFIG: {"quant_method": "bitsandbytes", "load_in_8bit": not is_4bit,
                         "load_in_4bit": is_4bit, **REST}}


class Layout(layout_folder.Layout):
    name, method, base, file = "bitsandbytes", "bitsandbytes", "int8", File
    need_layout_2 = ("nf4", "double")
    with_wrong_parts = ("int8", "int8-other", "nf4", "nf4-other", "fp4-other",
                        "double", "double-other")
    valued = "int8", "int8-other", "no-order-other", "nf4", "nf4-other", "nf4-small", "fp4-other"
    spoiled = ("int8", "int8-other", "nf4", "nf4-other")
    orphans = "l.1.w.SCB", "l.1.w.weight_format"
    schemes = {**dict(both(Narrow, int8={})),
               "no-order-other": Narrow(recorded=False, has_order=False),
               **dict(both(Flat, nf4={"grain": ("g", 64)}, nf4_small={"grain": ("g", 32)})),
               **dict(both(Flat, double={"nested": True, "grain": ("g", 64)})),
               "fp4-other": Flat(recorded=False, values="FP4", grain=("g", 64))}

    @staticmethod
    def set_code(file, row, col, value):
        at = row * file.dims[1] + col
        if file.scheme.values:
            old, shift = file.tensors[file.name][2][at // 2], 0 if at % 2 else 4
            return file.set_bytes(file.name, at // 2, bytes([old & ~(15 << shift) | value << shift]))
        file.set_bytes(file.name, at, bytes([value % 256]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def gone(file, role):
        return HONEST if role == "order" and not file.records else ALL

    @staticmethod
    def bad_scales(file):
        """The library stores 0 for a row, or a group, of zeros."""
        return {name: value for name, value in BAD_SCALES.items() if file.records or value != 0}

    @staticmethod
    def dtypes(scheme):
        """The type of a weight of 4 bits is stored, and is never F64."""
        return ("F32", "F16", "BF16") if scheme[:3] in ("nf4", "fp4", "dou") else layout_folder.Layout.dtypes(scheme)

    @staticmethod
    def bad_zeros(scheme):
        return ()

    # --- every claim of records and config.json, wrong ---

    def claims_of_schemes(self):
        for text in ("uint8:c0", "uint8:c0:sym", "int8:c0", "int8:c0:asym", "int8:c0:narrow:f16",
                     "int8:c0:narrow:bf16", "int8:t:narrow", "int8:c1:narrow", "int8:g36:narrow",
                     "int8:b5x36:narrow", "int4:c0:narrow", "int7:c0:narrow", "nf4:g64"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("nf4:g32", "nf4:g128", "nf4:g180", "nf4:g48", "nf4:g8192", "nf4:c0", "nf4:t", "nf4:b1x36",
                     "nf4:g64:f16", "nf4:g64:e8m0", "f4e2m1:g64", "int4:g64", "int8:c0:narrow"):
            yield self.start_as("nf4", Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,)))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
            yield self.start_as("nf4", Fault(f"Q6-source-dtype-{text}", word(2, text), (self.file.stem,)))
        for text in ("36x5", "5x36x1", "1x5x36", "5x35", "5x37", "4x36", "180x1", "180",
                     "5x9223372036854775807"):
            for scheme in ("int8", "nf4"):
                yield self.start_as(scheme, Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text),
                                                  (self.file.stem,)))

    def claims_of_config(self, s):
        key, other = ("load_in_4bit", "load_in_8bit")[::1 if s.values else -1]
        for i, value in enumerate((False, "true", 1, 0, None, [], {})):
            yield self.unknown(f"Q17-load-{i}", set_config(f"{CONFIG}/{key}", value), s)
        yield self.unknown("Q17-load-gone", drop_config(f"{CONFIG}/{key}"), s)
        yield Fault("Q17-load-both", set_config(f"{CONFIG}/{other}", True),
                    (words("load_in_4bit or load_in_8bit"),))
        for twice in (key, "quant_method"):
            yield Fault(f"Q17-twice-{twice}", edit_text(f'"{other}"', f'"{twice}": true, "{other}"'),
                        ("config.json", twice))
        yield from self.claims_of_method(s, "compressed-tensors")
        if s.values:
            yield from self.claims_of_4bit(s)

    def claims_of_4bit(self, s):
        """config.json says of all weights what each says of itself."""
        nested = getattr(s, "nested", False)
        kind = s.values.lower()
        for key, values in {
                "bnb_4bit_quant_type": [v for v in ("nf4", "fp4", "", "NF4", 4, None, []) if v != kind],
                "bnb_4bit_use_double_quant": [not nested, "true", 0, 1, None, []]}.items():
            for i, value in enumerate(values):
                yield Fault(f"Q17-{key}-{i}", set_config(f"{CONFIG}/{key}", value),
                            (words("config.json"), key, self.file.name))

    def claims_of_both(self):
        def set_order(file):
            file.set_bytes(file.parts["order"], 0, b"\1")

        yield from super().claims_of_both()
        for scheme in ("int8", "int8-other"):
            yield self.start_as(scheme, Fault("Q3-order", set_order, (tensor("l.0.w.weight_format"),)))
        for scheme in ("nf4", "nf4-other"):
            for fault in (*self.claims_of_states(), *self.claims_of_values()):
                yield self.start_as(scheme, fault)
        for fault in self.claims_of_others():
            yield self.start_as("nf4-other", fault)
        for fault in self.claims_of_nested():
            yield self.start_as("double-other", fault)
        for scheme in ("double", "double-other"):
            for fault in self.claims_of_4bit(self.schemes[scheme]):
                yield self.start_as(scheme, fault)
        for fault in (*self.claims_of_own_nested(), *self.claims_of_values(), *self.claims_of_states()):
            yield self.start_as("double", fault)

    def claims_of_states(self):
        """The JSON of weights of 4 bits."""
        def text(made):
            def spoil(file):
                raw = made(file.tensors[file.parts["state"]][2])
                file.tensors[file.parts["state"]] = ("U8", (len(raw),), raw)
            return spoil

        def member(key, value):
            return lambda raw: json.dumps({**json.loads(raw), key: value}).encode()

        def without(key):
            return lambda raw: json.dumps({k: v for k, v in json.loads(raw).items() if k != key}).encode()

        texts = {
            "empty": lambda raw: b"", "cut": lambda raw: raw[:-1], "rest": lambda raw: raw + b"{}",
            "nul": lambda raw: raw + b"\0", "array": lambda raw: b"[" + raw + b"]", "null": lambda raw: b"null",
            "string": lambda raw: b'"nf4"', "bom": lambda raw: b"\xef\xbb\xbf" + raw, "none": lambda raw: b"{}",
            "latin": lambda raw: raw.replace(b"nf4", b"nf4\xff"), "deep": lambda raw: b"[" * 1000,
            "long": lambda raw: raw + b" " * 2000, "quotes": lambda raw: raw.replace(b'"', b"'"),
            "twice": lambda raw: raw[:-1] + b"," + raw[1:], "nan": lambda raw: raw.replace(b"64", b"NaN"),
            "hex": lambda raw: raw.replace(b"64", b"0x40"), "nul-in": lambda raw: raw.replace(b"nf4", b"nf4\\u0000"),
        }
        for key, values in {
                "quant_type": ("fp4", "NF4", "int8", "", None, 4, ["nf4"]),
                "blocksize": (0, 1, 16, 48, 63, 128, 8192, 2 ** 31, 2 ** 62, 2 ** 63, 2 ** 64, -64, 64.0, "64",
                              None, [64], True),
                "dtype": ("float64", "torch.float32", "Float32", "int8", "uint8", "", None, 1, ["float32"]),
                "shape": ([36, 6], [4, 36], [5, 35], [5], [5, 36, 1], [], [0, 36], [-5, -36], [5.0, 36], "5x36",
                          None, 180, {}, [[5], [36]], [2 ** 32, 2 ** 32], [2 ** 63, 2], [1, 2 ** 64], ["5", "36"]),
                "nested_offset": (0.5,), "nested_blocksize": (256,), "absmax": (1,), "comment": ("x",),
                "offset": (1,)}.items():
            texts.update({f"{key}-{i}": member(key, value) for i, value in enumerate(values)})
        for key in ("quant_type", "blocksize", "dtype", "shape"):
            texts[f"{key}-gone"] = without(key)
        for name, made in texts.items():
            yield Fault(f"Q3-state-{name}", text(made), (words(re.escape(self.file.stem)),))

    def claims_of_nested(self):
        """Scales of scales: the JSON, their values, and what they give."""
        def member(key, value):
            def spoil(file):
                said = json.loads(file.tensors[file.parts["state"]][2])
                said.pop(key) if value is None else said.update({key: value})
                raw = json.dumps(said).encode()
                file.tensors[file.parts["state"]] = ("U8", (len(raw),), raw)
            return spoil

        def literal(text):
            def spoil(file):
                raw = file.tensors[file.parts["state"]][2].replace(b"1.5", text)
                file.tensors[file.parts["state"]] = ("U8", (len(raw),), raw)
            return spoil

        for key, values in {"nested_blocksize": (None, 0, 255, 512, "256", 256.0),
                            "nested_dtype": (None, "float16", "bfloat16", "", 1),
                            "nested_offset": (None, "1.5", [1.5], True, {})}.items():
            for i, value in enumerate(values):
                yield Fault(f"Q3-{key}-{i}", member(key, value), (tensor("l.0.w.weight" + STATE + "nf4"), key))
        for text in (b"NaN", b"Infinity", b"-Infinity", b"1e39", b"-1e39", b"1e999", b"1." + b"0" * 90, b"01.5",
                     b"0x1", b"1.5.5"):
            yield Fault(f"Q3-offset-{text.decode()[:9]}", literal(text), (tensor("l.0.w.weight" + STATE + "nf4"),))
        for name, value in {"nan": math.nan, "inf": math.inf, "minus": -1.0}.items():
            yield Fault(f"Q8-nested-{name}", lambda f, v=value: f.set_bytes(f.parts["nested"], 0, struct.pack("<f", v)),
                        (tensor("l.0.w.weight.nested_absmax"), words("bad scale")))
        yield Fault("Q15-offset-whole", member("nested_offset", 2), (), ONLY_PROOF)
        yield Fault("Q8-nested-huge", lambda f: f.set_bytes(f.parts["nested"], 0, struct.pack("<f", 1e30)), (),
                    ONLY_PROOF)
        yield Fault("Q3-nested-map", lambda f: f.set_bytes(f.parts["nested_map"], 8, b"\1"),
                    (tensor("l.0.w.weight.nested_quant_map"), words("values")))

    def claims_of_own_nested(self):
        """Of what a record says has scales of scales."""
        def text(old, new):
            def spoil(file):
                raw = file.tensors[file.parts["state"]][2]
                assert old in raw
                raw = raw.replace(old, new)
                file.tensors[file.parts["state"]] = ("U8", (len(raw),), raw)
            return spoil

        def offset(value):
            def spoil(file):
                old = json.dumps(file.offset).ljust(ROOM)
                text(old.encode(), value.ljust(ROOM).encode())(file)
            return spoil

        state = tensor("l.0.w.weight" + STATE + "nf4")
        for i, value in enumerate(("NaN", "1e39", '"1.5"', "[1.5]", "null", "01.5")):
            yield Fault(f"Q3-own-offset-{i}", offset(value), (state,))
        for i, value in enumerate(("1.50", "15e-1", "1.5 ,\"x\":1")):
            yield Fault(f"Q3-own-offset-words-{i}", offset(value), (state,))
        yield Fault("Q3-own-no-room", text(b"  }", b" }"), (state,))
        yield Fault("Q15-own-offset", offset("6.625"), (), ONLY_PROOF)
        for name, value in {"nan": math.nan, "inf": math.inf, "minus": -1.0}.items():
            yield Fault(f"Q8-own-nested-{name}",
                        lambda f, v=value: f.set_bytes(f.parts["nested"], 0, struct.pack("<f", v)),
                        (tensor("l.0.w.weight.nested_absmax"), words("bad scale")))
        yield Fault("Q8-own-scale", lambda f: f.set_bytes(f.parts["nested"], 0, struct.pack("<f", 1e30)),
                    (tensor("l.0.w.weight.absmax"), words("bad scale")))
        yield Fault("Q3-own-nested-map", lambda f: f.set_bytes(f.parts["nested_map"], 8, b"\1"),
                    (tensor("l.0.w.weight.nested_quant_map"), words("values")))
        for calibrator in ("mse:fast", "percentile:99", "ldlq", "reference:bitsandbytes",
                           "mse:fast+importance"):
            yield Fault(f"Q6-own-calibrator-{clean(calibrator)}", word(1, calibrator), ("l.0.w.weight",))
        for scheme in ("nf4:g64", "nf4:g32:double", "nf4:g64:f16:double", "int8:c0:double"):
            yield Fault(f"Q6-own-scheme-{clean(scheme)}", word(0, scheme), (self.file.stem,))

    def claims_of_values(self):
        """What the values of codes are, and what fills up the last byte."""
        def set_map(file):
            file.set_bytes(file.parts["map"], 4 * 3, struct.pack("<f", -0.4))

        def set_last(file):
            file.__init__(file.scheme, dims=(5, 7))
            file.set_bytes(file.name, -1, bytes([file.tensors[file.name][2][-1] & 0xf0]))

        yield Fault("Q3-map", set_map, (tensor("l.0.w.weight.quant_map"), words("values")))
        yield Fault("Q11-last", set_last, ("l.0.w.weight", words("spare bits")),
                    {**ONLY_PROOF, "dequantize": 3})

    def claims_of_others(self):
        """States that no other tool writes, and parts without one."""
        def rename(new):
            def spoil(file):
                file.tensors[file.name + new] = file.tensors.pop(file.parts["state"])
            return spoil

        def put(name, like=None):
            def spoil(file):
                file.tensors[name] = file.tensors[file.parts[like]] if like else ("F32", (1,), b"\0\0\0\0")
            return spoil

        for name in ("bitsandbytes__int8", "bitsandbytes__NF4", "bitsandbytes__", "", "nf4",
                     "bitsandbytes__nf4.x"):
            yield Fault(f"Q2-state-named-{clean(name)}", rename(f".quant_state.{name}"),
                        (words("quant_state"),))
        for name in ("bitsandbytes__int8", "x"):
            yield Fault(f"Q2-state-alone-{clean(name)}", put(f"a.w.weight.quant_state.{name}", "state"),
                        (tensor(f"a.w.weight.quant_state.{name}"), words("not a quant_state")))
        yield Fault("Q2-state-second", put("l.0.w.weight.quant_state.bitsandbytes__fp4", "state"),
                    (words("l.0.w.weight.quant_state"),))
        yield Fault("Q2-state-stray", put("l.1.w.weight" + STATE + "nf4", "state"),
                    (tensor("l.1.w.weight" + STATE + "nf4"), words("codes are not in the checkpoint")))
        for end in ("absmax", "quant_map", "nested_absmax", "nested_quant_map"):
            yield Fault(f"Q12-orphan-{end}", put(f"l.1.w.weight.{end}"),
                        (tensor(f"l.1.w.weight.{end}"), words("quant_state is not in the checkpoint")))
        for end in ("nested_absmax", "nested_quant_map"):
            yield Fault(f"Q12-{end}", put(f"l.0.w.weight.{end}"), (tensor(f"l.0.w.weight.{end}"),))
