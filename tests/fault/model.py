"""The numeric contract in exact rational arithmetic, for tensors of a few hundred elements.

Written from the contract, not from the C code: a value is a Fraction (or a float NaN or infinity),
and each operation that the contract rounds is rounded here once, by `nearest` or `upward`.
"""

import itertools
import math
import struct
from dataclasses import dataclass
from fractions import Fraction

# name: (bits of the significand, least exponent, greatest exponent, struct code)
FLOATS = {"F16": (11, -14, 15, "e"), "BF16": (8, -126, 127, None), "F32": (24, -126, 127, "f"),
          "F64": (53, -1022, 1023, "d")}


def largest(dtype):
    p, _, top, _ = FLOATS[dtype]
    return (2 - Fraction(2) ** (1 - p)) * Fraction(2) ** top


def smallest_normal(dtype):
    return Fraction(2) ** FLOATS[dtype][1]


def exponent(x):
    """floor(log2(x)) of a positive fraction."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def rounded(x, dtype, rule):
    """x in dtype by rule(exact quotient) -> integer; None for overflow."""
    if x == 0:
        return Fraction(0)
    p, low, _, _ = FLOATS[dtype]
    unit = Fraction(2) ** (max(exponent(abs(x)), low) - p + 1)
    y = rule(x / unit) * unit
    return y if abs(y) <= largest(dtype) else None


def nearest(x, dtype):
    return rounded(x, dtype, round)         # round() of a Fraction is half to even


def upward(x, dtype):
    return rounded(x, dtype, math.ceil)


def decode(dtype, raw):
    """Bytes as Fractions; NaN and infinity stay floats."""
    if dtype == "BF16":
        raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
    code = FLOATS[dtype][3] or "f"
    values = struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)
    return [Fraction(v) if math.isfinite(v) else v for v in values]


def encode(dtype, values):
    """Fractions that are exact in dtype, as bytes."""
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{FLOATS[dtype][3]}", *map(float, values))


@dataclass(frozen=True)
class Scheme:
    bits: int = 8
    signed: bool = True
    symmetric: bool = True
    narrow: bool = False
    scale: str = "F32"
    grain: tuple = ("c", 0)     # ("t",) ("c", axis) ("g", size) ("b", rows, columns)

    def flags(self):
        """The command line of this scheme."""
        out = ["--dtype", ("" if self.signed else "u") + f"int{self.bits}",
               "--symmetric" if self.symmetric else "--asymmetric",
               "--scale-dtype", self.scale.lower()]
        kind = self.grain[0]
        out += {"t": ["--per-tensor"], "c": ["--per-channel", "--axis", str(self.grain[-1])],
                "g": ["--per-group", str(self.grain[-1]), "--indivisible", "ragged"],
                "b": ["--block", "x".join(map(str, self.grain[1:]))]}[kind]
        return out + ["--narrow-range"] * self.narrow

    def codes(self):
        """q_min, q_max."""
        if not self.signed:
            return 0, 2 ** self.bits - 1
        half = 2 ** (self.bits - 1)
        return -half + self.narrow, half - 1


def sets_of(shape, grain):
    """For each element the index of its parameter set, and the shape of the parameters."""
    kind, *n = grain
    index = list(itertools.product(*map(range, shape)))
    blocks = {"t": lambda i: (0,),
              "c": lambda i: (i[n[0]],),
              "g": lambda i: (*i[:-1], i[-1] // n[0]),
              "b": lambda i: (*i[:-2], i[-2] // n[0], i[-1] // n[1])}[kind]
    cells = [blocks(i) for i in index]
    dims = tuple(max(c) + 1 for c in zip(*cells))
    flat = [sum(v * math.prod(dims[k + 1:]) for k, v in enumerate(c)) for c in cells]
    return flat, dims


def parameters(values, scheme, work):
    """Scale and zero point of one set; the scale is None where its dtype cannot hold it."""
    low, high = scheme.codes()
    middle = 0 if scheme.signed or not scheme.symmetric else 2 ** (scheme.bits - 1)
    finite = [v for v in values if isinstance(v, Fraction)]
    a, b = min([0, *finite]), max([0, *finite])
    if a == b:
        return Fraction(1), middle
    steps = Fraction(high - low)
    if scheme.symmetric:
        s = nearest(max(-a, b) / (steps / 2), work)
    elif nearest(b - a, work) is not None:
        s = nearest(nearest(b - a, work) / steps, work)
    else:
        s = nearest(nearest(b / 2 - a / 2, work) / (steps / 2), work)
    s = upward(max(s, smallest_normal(scheme.scale)), scheme.scale)
    if s is None or scheme.symmetric:
        return s, middle
    return s, min(max(low - round(nearest(a / s, work)), low), high)


def code(x, s, z, scheme, work):
    low, high = scheme.codes()
    if not isinstance(x, Fraction):
        return z if math.isnan(x) else high if x > 0 else low
    return min(max(round(nearest(x / s, work)), low - z), high - z) + z


def pack(codes, shape, scheme):
    if scheme.bits == 8:
        return bytes(c % 256 for c in codes)
    out, n = b"", shape[-1]
    for row in range(0, len(codes), n):
        line = [c % 16 for c in codes[row:row + n]] + [0] * (n % 2)
        out += bytes(line[i] | line[i + 1] << 4 for i in range(0, len(line), 2))
    return out


def quantize(dtype, shape, raw, scheme):
    """The three tensors that the native layout stores: (dtype, shape, bytes) each."""
    work = "F64" if dtype == "F64" else "F32"
    values = decode(dtype, raw)
    cell, dims = sets_of(shape, scheme.grain)
    members = [[] for _ in range(math.prod(dims))]
    for v, c in zip(values, cell):
        members[c].append(v)
    params = [parameters(m, scheme, work) for m in members]
    codes = [code(v, *params[c], scheme, work) for v, c in zip(values, cell)]
    tight = (*shape[:-1], shape[-1] if scheme.bits == 8 else (shape[-1] + 1) // 2)
    storage = "I8" if scheme.bits == 8 and scheme.signed else "U8"
    return {
        "": (storage, tight, pack(codes, shape, scheme)),
        "_scale": (scheme.scale, dims, encode(scheme.scale, [s for s, _ in params])),
        "_zero_point": ("I8" if scheme.signed else "U8", dims, bytes(z % 256 for _, z in params)),
    }
