#!/usr/bin/env python3
"""Writes the cases own-* of the quantize family beside this script: codes of floats, nf4, and of
integers of 2, 3, 5, 6 and 7 bits.

    make_codes.py            write them
    make_codes.py --check    make them again in memory and compare; exit 1 if they differ

Every quotient and product is an exact rational, rounded once to the working precision; the code of
a quotient is searched among all values of the type. Nothing comes from the program under test.
"""

import itertools
import math
import pathlib
import random
import sys
from fractions import Fraction

sys.dont_write_bytecode = True
import make_embedding as made

HERE = pathlib.Path(__file__).parent
SOURCES = ["F32", "BF16", "F16", "F64"]
LARGEST = {"F64": Fraction(sys.float_info.max), "F32": Fraction(2**24 - 1) * 2**104,
           "F16": Fraction(65504), "BF16": Fraction(255) * 2**120}
INTEGERS = ["int2", "uint3", "int5", "uint6", "int7", "uint2", "int3", "uint5", "int6", "uint7"]

# ---- Code types -----------------------------------------------------------------------------------


def float_values(exp_bits, man_bits, bias, top):
    """What the codes 0 .. top stand for."""
    values = []
    for code in range(top + 1):
        exponent, mantissa = code >> man_bits, code & (1 << man_bits) - 1
        significand = mantissa + (1 << man_bits if exponent else 0)
        values.append(Fraction(significand) * Fraction(2) ** (max(exponent, 1) - bias - man_bits))
    return values


class Float:
    """A sign and a small float, of which the codes above top are no numbers."""

    def __init__(self, bits, storage, *grid):
        self.bits, self.storage, self.values = bits, storage, float_values(*grid)
        self.largest = self.values[-1]

    def code(self, t, work):
        sign = 1 << self.bits - 1 if t < 0 or (t == 0 and math.copysign(1, float(t)) < 0) else 0
        size = abs(Fraction(t)) if math.isfinite(t) else self.largest
        near = min(range(len(self.values)), key=lambda c: (abs(self.values[c] - size), c % 2))
        return sign | near

    def value(self, code):
        size = self.values[code & (1 << self.bits - 1) - 1]
        return size if code < 1 << self.bits - 1 else -size if size else -0.0


class Table:
    """Places of ascending values, as bitsandbytes has them; a limit belongs to the lower one."""

    bits, storage, largest = 4, "U8", Fraction(1)
    values = [Fraction(float.fromhex(x)) for x in (
        "-0x1p+0 -0x1.647362p-1 -0x1.0cd66p-1 -0x1.94654p-2 -0x1.23449ap-2 -0x1.7a6a7ep-3 "
        "-0x1.74f0e2p-4 0x0p+0 0x1.45f5fep-4 0x1.4995c6p-3 0x1.f809bap-3 0x1.5a0674p-2 "
        "0x1.c3497p-2 0x1.200f56p-1 0x1.722766p-1 0x1p+0").split()]

    def code(self, t, work):
        limits = [made.round_once((a + b) / 2, work) for a, b in itertools.pairwise(self.values)]
        return sum(t > limit for limit in limits)

    def value(self, code):
        return self.values[code]


class Integer:
    def __init__(self, name):
        self.bits = int(name[-1])
        self.storage = "U8"
        self.q_min = 0 if name[0] == "u" else -(1 << self.bits - 1)
        self.q_max = self.q_min + (1 << self.bits) - 1

    def code(self, t, zero):
        r = round(Fraction(t)) if math.isfinite(t) else t
        return int(min(max(r, self.q_min - zero), self.q_max - zero)) + zero

    def inside(self, t, zero):
        return math.isfinite(t) and self.q_min - zero <= round(Fraction(t)) <= self.q_max - zero


VALUED = {"f8e4m3": Float(8, "F8_E4M3", 4, 3, 7, 0x7e), "f8e5m2": Float(8, "F8_E5M2", 5, 2, 15, 0x7b),
          "f4e2m1": Float(4, "U8", 2, 1, 1, 7), "nf4": Table()}

# ---- Granularities --------------------------------------------------------------------------------


class Granularity:
    def __init__(self, name, shape, params, fields, place):
        self.name, self.shape, self.params, self.fields = name, shape, params, fields
        self.sets = [self.flat(place(*index)) for index in
                     itertools.product(*(range(n) for n in shape))]
        self.n_sets = math.prod(params)

    def flat(self, place):
        at = 0
        for i, n in zip(place, self.params):
            at = at * n + i
        return at


GRANULARITIES = [
    Granularity("per_tensor", [41], [1], {}, lambda i: (0,)),
    Granularity("per_channel", [3, 5, 7], [5], {"axis": 1}, lambda i, j, k: (j,)),
    Granularity("per_group", [3, 17], [3, 4], {"group_size": 5, "ragged": True},
                lambda i, j: (i, j // 5)),
    Granularity("per_token", [2, 3, 9], [2, 3], {}, lambda i, j, k: (i, j)),
    Granularity("per_block", [2, 5, 11], [2, 3, 3],
                {"block_rows": 2, "block_cols": 4, "ragged": True},
                lambda i, j, k: (i, j // 2, k // 4)),
]

# ---- Data -----------------------------------------------------------------------------------------


def stored(x, dtype):
    """A number as a dtype has it: rounded once, and what is too large is the largest."""
    y = made.round_once(x, dtype)
    if isinstance(y, float) and math.isinf(y):
        return LARGEST[dtype] if y > 0 else -LARGEST[dtype]
    return y


def work_of(source):
    return "F64" if source == "F64" else "F32"


def divide(x, y, work):
    """The quotient, rounded once; zeros keep their signs, and special numbers are what they are."""
    if not math.isfinite(x) or x == 0:
        return x
    return made.round_once(Fraction(x) / y, work)


def multiply(x, y, work):
    return x if x == 0 else made.round_once(x * y, work)


def take_scales(rng, g, source):
    return [Fraction(rng.randrange(64, 128), 64) * Fraction(2) ** rng.randrange(-4, 3)
            for _ in range(g.n_sets)]


def edges(kind):
    """Numbers that a type is careful about: values, midpoints, ends and beyond, and zeros."""
    if isinstance(kind, Integer):
        ends = [Fraction(2 * q + d, 2) for q in (kind.q_min, kind.q_max) for d in (-2, -1, 0, 1, 2)]
        return ends + [Fraction(1, 2), Fraction(3, 2), Fraction(-1, 2), Fraction(0), -0.0]
    ascending = sorted({kind.value(c) for c in range(1 << kind.bits)
                        if c % 128 < 127 and c & (1 << kind.bits - 1) - 1 < len(kind.values)})
    points = [*ascending, *((Fraction(a) + Fraction(b)) / 2 for a, b in itertools.pairwise(ascending))]
    return points + [kind.largest * Fraction(33, 32), -kind.largest * Fraction(65, 64),
                     kind.largest * 2, Fraction(0), -0.0]


def take_data(rng, g, kind, scales, source, special):
    """Edges of the type times the scale of the set, and any numbers between them."""
    pool, data = edges(kind), []
    for at in g.sets:
        pick = rng.choice(pool)
        if rng.random() < 0.25:
            pick = Fraction(rng.randrange(-2**20, 2**20), 2**18)
        data.append(pick if pick == 0 else stored(Fraction(pick) * scales[at], source))
    for i, x in zip(rng.sample(range(len(data)), 4), special):
        data[i] = x
    return data


def packed(kind, codes, last):
    """Codes of rows as a dense stream of bits, low bits first; rows begin a byte."""
    out = b""
    for at in range(0, len(codes), last):
        row = sum((code & (1 << kind.bits) - 1) << kind.bits * i
                  for i, code in enumerate(codes[at:at + last]))
        out += row.to_bytes(-(-last * kind.bits // 8), "little")
    return out


def code_tensor(g, kind, codes):
    shape = [*g.shape[:-1], -(-g.shape[-1] * kind.bits // 8)]
    return kind.storage, shape, packed(kind, codes, g.shape[-1])


def ints(shape, values):
    return made.tensor("I32", shape, values)


# ---- Operators ------------------------------------------------------------------------------------


class Problem:
    """Data of a dtype, codes of a type, a granularity; integers have zero points, too."""

    def __init__(self, seed, g, name, source, special=()):
        rng = random.Random(f"{seed} {g.name} {name} {source}")
        self.g, self.name, self.source, self.work = g, name, source, work_of(source)
        self.kind = VALUED.get(name) or Integer(name)
        self.scales = take_scales(rng, g, source)
        self.zeros = [0] * g.n_sets
        if isinstance(self.kind, Integer):
            self.zeros = [rng.randrange(self.kind.q_min, self.kind.q_max + 1)
                          for _ in range(g.n_sets)]
        self.x = take_data(rng, g, self.kind, self.scales, source, special)
        self.dout = [stored(Fraction(rng.randrange(-999, 999), 64), source) for _ in self.x]

    def tensors(self, *names):
        shape, source = self.g.shape, self.source
        every = {"input": lambda: made.tensor(source, shape, self.x),
                 "dout": lambda: made.tensor(source, shape, self.dout)}
        out = {name: every[name]() for name in names}
        out["scale"] = made.tensor("F32", self.g.params, self.scales)
        if isinstance(self.kind, Integer):
            out["zero_point"] = ints(self.g.params, self.zeros)
        return out

    def quotient(self, i):
        return divide(self.x[i], self.scales[self.g.sets[i]], self.work)

    def codes(self):
        made_codes = []
        for i, at in enumerate(self.g.sets):
            t = self.quotient(i)
            t = Fraction(0) if math.isnan(t) else t
            extra = self.zeros[at] if isinstance(self.kind, Integer) else self.work
            made_codes.append(self.kind.code(t, extra))
        return made_codes

    def values(self, codes, work):
        steps = [code - self.zeros[at] if isinstance(self.kind, Integer) else self.kind.value(code)
                 for code, at in zip(codes, self.g.sets)]
        return [stored(multiply(v if v == 0 else Fraction(v), self.scales[at], work), work)
                for v, at in zip(steps, self.g.sets)]

    def inside(self, i):
        t = self.quotient(i)
        if isinstance(self.kind, Integer):
            return self.kind.inside(t, self.zeros[self.g.sets[i]])
        return abs(t) <= self.kind.largest

    def floats(self, values):
        return made.tensor(self.source, self.g.shape, values)


def family(cases, g, name, source):
    special = [math.inf, -math.inf, math.nan, -0.0]
    p = Problem("forward", g, name, source, special)
    case, op = f"{name}-{source.lower()}", f"_{g.name}"
    code = {"code_dtype": name}
    codes, loose = p.codes(), {"nonfinite": "saturate"}
    cases.add("quantize" + op, case, {**g.fields, "output_dtype": name, **loose},
              p.tensors("input"), {"output": code_tensor(g, p.kind, codes)})
    values = [stored(v, source) for v in p.values(codes, p.work)]
    cases.add("fake_quantize" + op, case, {**g.fields, **code, **loose},
              p.tensors("input"), {"output": p.floats(values)})
    both = p.tensors("dout", "input")
    cases.add(f"fake_quantize{op}_backward", case, {**g.fields, **code}, both,
              {"dinput": p.floats(d if p.inside(i) else Fraction(0) for i, d in enumerate(p.dout))})
    slopes = [made.round_once(divide(d, p.scales[at], p.work), source)
              for d, at in zip(p.dout, g.sets)]
    cases.add(f"quantize{op}_backward", case, {**g.fields, **code}, both,
              {"dinput": p.floats(d if p.inside(i) else Fraction(0) for i, d in enumerate(slopes))})
    decode(cases, p, case, op)


def decode(cases, p, case, op):
    """Any code that is a number, to the dtype of the data."""
    rng = random.Random(f"decode {op} {case}")
    if isinstance(p.kind, Float):
        codes = [rng.randrange(len(p.kind.values)) | rng.choice((0, 1 << p.kind.bits - 1))
                 for _ in p.x]
    elif isinstance(p.kind, Integer):
        codes = [rng.randint(p.kind.q_min, p.kind.q_max) for _ in p.x]
    else:
        codes = [rng.randrange(16) for _ in p.x]
    inputs = p.tensors()
    inputs["input"] = code_tensor(p.g, p.kind, codes)
    fields = {**p.g.fields, "output_dtype": p.source.lower(), "input_dtype": p.name}
    if p.kind.bits < 8:
        fields["row_len"] = p.g.shape[-1]
    values = [stored(v, p.source) for v in p.values(codes, p.work)]
    cases.add("dequantize" + op, case, fields, inputs, {"output": p.floats(values)})


def dynamic(cases, g, name, source):
    """Scales from the data: the largest size over the largest value, or half of the codes."""
    p = Problem("dynamic", g, name, source)
    top = Fraction(p.kind.q_max - p.kind.q_min, 2) if isinstance(p.kind, Integer) \
        else p.kind.largest
    sizes = [Fraction(0)] * g.n_sets
    for x, at in zip(p.x, g.sets):
        sizes[at] = max(sizes[at], abs(Fraction(x)))
    p.scales = [made.round_once(size / top, p.work) if size else Fraction(1) for size in sizes]
    signed = isinstance(p.kind, Integer) and p.kind.q_min < 0
    if isinstance(p.kind, Integer):
        p.zeros = [0 if signed else (p.kind.q_max + 1) // 2] * g.n_sets
    expect = {"output": code_tensor(g, p.kind, p.codes()),
              "scale": made.tensor(p.work, g.params, p.scales)}
    if isinstance(p.kind, Integer):
        expect["zero_point"] = ints(g.params, p.zeros)
    cases.add(f"dynamic_quantize_{g.name}", f"{name}-{source.lower()}",
              {**g.fields, "output_dtype": name}, {"input": p.floats(p.x)}, expect)


def forward_and_back(cases):
    for k, g in enumerate(GRANULARITIES):
        for i, name in enumerate([*VALUED, INTEGERS[2 * k], INTEGERS[2 * k + 1]]):
            family(cases, g, name, SOURCES[(i + k) % 4])
            dynamic(cases, g, name, SOURCES[(i + k + 1) % 4])


def refusals(cases):
    x, scale = made.tensor("F32", [4], [Fraction(i) for i in range(4)]), \
        made.tensor("F32", [1], [Fraction(1)])
    zero, byte = ints([1], [0]), ("U8", [4], bytes(4))
    quantize, fake, back = "quantize_per_tensor", "fake_quantize_per_tensor", \
        "quantize_per_tensor_backward"
    with_zero = {"input": x, "scale": scale, "zero_point": zero}
    cases.refuse(quantize, "zero-point", {"output_dtype": "f8e4m3"}, with_zero)
    cases.refuse(fake, "zero-point", {"code_dtype": "nf4"}, with_zero)
    cases.refuse(back, "zero-point", {"code_dtype": "f4e2m1"}, {"dout": x, **with_zero})
    pair = {"input": x, "scale": scale}
    cases.refuse(quantize, "q-min", {"output_dtype": "f8e5m2", "q_min": -8}, pair)
    cases.refuse(fake, "q-max", {"code_dtype": "f4e2m1", "q_max": 6}, pair)
    cases.refuse(fake, "outside-code", {"code_dtype": "int3", "q_max": 4}, pair)
    cases.refuse(quantize, "16-bits", {"output_dtype": "int16"}, pair)
    cases.refuse(quantize, "f16-code", {"output_dtype": "f16"}, pair, code=2)
    cases.refuse(quantize, "e8m0-scale", {"output_dtype": "f8e4m3"},
                 {"input": x, "scale": ("F8_E8M0", [1], b"\x7f")})
    dequantize = "dequantize_per_tensor"
    cases.refuse(dequantize, "zero-point", {}, {"input": ("F8_E4M3", [4], bytes(4)), "scale": scale,
                                                "zero_point": zero})
    cases.refuse(dequantize, "e4m3-nan", {}, {"input": ("F8_E4M3", [4], b"\x7e\xfe\xff\x00"),
                                              "scale": scale})
    cases.refuse(dequantize, "e5m2-infinity", {},
                 {"input": ("F8_E5M2", [4], b"\x7b\x00\xfb\x7c"), "scale": scale})
    cases.refuse(dequantize, "storage", {"input_dtype": "f8e4m3"}, {"input": byte, "scale": scale})
    cases.refuse(dequantize, "other-storage", {"input_dtype": "f8e5m2"},
                 {"input": ("F8_E4M3", [4], bytes(4)), "scale": scale})
    for name, row_len in (("int3", 11), ("int3", 7), ("uint6", 6), ("nf4", 6)):
        cases.refuse(dequantize, f"row-len-{name}-{row_len}",
                     {"input_dtype": name, "row_len": row_len}, {"input": byte, "scale": scale})
    dynamic_op = "dynamic_quantize_per_tensor"
    for key, value in (("scheme", "asymmetric"), ("narrow_range", True), ("q_max", 3)):
        cases.refuse(dynamic_op, f"{key.replace('_', '-')}-of-float",
                     {"output_dtype": "f8e4m3", key: value}, {"input": x})


def main():
    cases = made.Cases("make_codes.py")
    forward_and_back(cases)
    refusals(cases)
    return made.write_or_check(cases, {path.name for path in HERE.glob("*quantize*-own-*")})


if __name__ == "__main__":
    sys.exit(main())
