"""The numeric contract in exact rational arithmetic, for tensors of a few hundred elements.

Written from the contract, not from the C code: a value is a Fraction (or a float NaN or infinity),
and each operation that the contract rounds is rounded here once, by `nearest` or `upward`.
"""

import functools
import itertools
import math
import struct
from dataclasses import dataclass
from fractions import Fraction

# name: (bits of the significand, least exponent, greatest exponent, struct code)
FLOATS = {"F16": (11, -14, 15, "e"), "BF16": (8, -126, 127, None), "F32": (24, -126, 127, "f"),
          "F64": (53, -1022, 1023, "d")}


# Scales of one byte: how they are stored, and the byte of each number above 0.
SMALL = {"E8M0": ("U8", {Fraction(2) ** (b - 127): b for b in range(255)}),
         "F8E4M3": ("F8_E4M3", {(Fraction(b % 8, 8) + (b >= 8)) * Fraction(2) ** (max(b // 8, 1) - 7): b
                                for b in range(1, 127)})}


def small_floats(exp_bits, man_bits, last):
    """The value of each code of a small float, whose codes up to the last are numbers."""
    sign, one, bias = 1 << exp_bits + man_bits, 1 << man_bits, (1 << exp_bits - 1) - 1
    sizes = [(Fraction(c % one, one) + (c >= one)) * Fraction(2) ** (max(c // one, 1) - bias)
             for c in range(last + 1)]
    return {**dict(enumerate(sizes)), **{sign | c: -v for c, v in enumerate(sizes)}}


NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
       0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
       0.7229568362236023, 1.0)

FP4 = (0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3)     # of bitsandbytes, twelfths


def in_f32(value):
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0])


# Codes that are no integers: how they are stored, and what each stands for in scales.
VALUES = {"F8E4M3": ("F8_E4M3", small_floats(4, 3, 0x7e)),
          "F8E5M2": ("F8_E5M2", small_floats(5, 2, 0x7b)),
          "F4E2M1": ("U8", small_floats(2, 1, 0x7)),
          "NF4": ("U8", {c: in_f32(v) for c, v in enumerate(NF4)}),
          "FP4": ("U8", {c: in_f32(v / 12) for c, v in enumerate(FP4) if c != 8})}


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
    bias: bool = False          # unsigned codes from a stored value on, without a zero point
    divides: bool = False       # scales are divided by their factor, not multiplied with it
    alone: bool = False         # scales of f8e4m3 have no factor
    values: str = ""            # of VALUES: codes are no integers, and have no zero point

    def name(self):
        """The type of the codes."""
        return self.values.lower() or ("" if self.signed else "u") + f"int{self.bits}"

    def flags(self):
        """The command line of this scheme."""
        out = ["--dtype", self.name(),
               "--symmetric" if self.symmetric else "--asymmetric",
               "--scale-dtype", self.scale.lower()]
        kind = self.grain[0]
        out += {"t": ["--per-tensor"], "c": ["--per-channel", "--axis", str(self.grain[-1])],
                "g": ["--per-group", str(self.grain[-1]), "--indivisible", "ragged"],
                "b": ["--block", "x".join(map(str, self.grain[1:]))]}[kind]
        return out + ["--narrow-range"] * self.narrow

    def codes(self):
        """q_min, q_max; of others the codes of the least and the largest value."""
        if self.values:
            found = VALUES[self.values][1]
            return min(found, key=found.get), max(found, key=found.get)
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


def biased_parameters(a, b, scheme, work):
    """Scale and bias of one set: codes from the bias on reach the largest value."""
    high = scheme.codes()[1]
    bias = -upward(-a, scheme.scale)
    if a == b:
        return Fraction(1), bias
    s = nearest(nearest(b - bias, work) / high, work)
    s = upward(max(s, smallest_normal(scheme.scale)), scheme.scale)
    while bias + high * s < b:
        s = upward(s * (1 + Fraction(1, 2 ** 60)), scheme.scale)
    return s, bias


def code_end(scheme):
    """How far the largest code of floats reaches, in scales: half a step further than its value."""
    sizes = sorted(VALUES[scheme.values][1].values())
    return sizes[-1] + (sizes[-1] - sizes[-2]) / 2


def divisor_of(most, reach, end, work):
    """The largest that leaves the values in reach."""
    divisor = min(nearest(nearest(448 * reach / most, work), "F32"), Fraction(2) ** 117)
    while nearest(448 / divisor, "F32") * end < most:
        divisor = rounded(divisor * (1 - Fraction(1, 2 ** 60)), "F32", math.floor)
    return divisor


def factor_of(values, scheme, work):
    """What all scales of a tensor are stored under; 1 where they are not."""
    most = max([0, *(abs(v) for v in values if isinstance(v, Fraction))])
    low, high = scheme.codes()
    reach = VALUES[scheme.values][1][high] if scheme.values else Fraction(high - low, 2)
    end = code_end(scheme) if scheme.values else reach
    if scheme.scale != "F8E4M3" or scheme.alone or most == 0:
        return Fraction(1)
    if scheme.divides:
        return 1 / divisor_of(most, reach, end, work)
    factor = max(nearest(nearest(most / (448 * reach), work), "F32"), Fraction(2) ** -117)
    while nearest(448 * factor, "F32") * end < most:
        factor = upward(factor * (1 + Fraction(1, 2 ** 60)), "F32")
    return factor


@functools.lru_cache
def small_scales(name, factor):
    """The scales that a type of one byte has under a factor, and the byte of each."""
    numbers = SMALL[name][1].items()
    return {nearest(v * factor, "F32"): byte for v, byte in numbers} if factor != 1 else dict(numbers)


def nearest_scale(s, enough, scheme, factor):
    """The scale nearest to s that is stored, or the first behind it that is enough."""
    numbers = SMALL[scheme.scale][1]
    wanted = min(numbers, key=lambda x: (abs(x - s / factor), numbers[x] % 2))
    return min((x for x in small_scales(scheme.scale, factor)
                if x >= max(enough, nearest(wanted * factor, "F32"))), default=None)


def power_scale(size, scheme):
    """The power of two that takes the size to the leading one of the largest code, from 7/4 on the next."""
    leading = exponent(size) + (size / Fraction(2) ** exponent(size) >= Fraction(7, 4))
    low, high = scheme.codes()
    return Fraction(2) ** max(leading - exponent(VALUES[scheme.values][1][high]), -126)


def stored_scale(s, size, scheme, factor, work):
    """The least scale that is stored and is not below s, of floats as far as the last one reaches; None
    if there is none."""
    if scheme.scale not in SMALL:
        return upward(max(s, smallest_normal(scheme.scale)), scheme.scale)
    if scheme.values and scheme.scale == "E8M0":
        return power_scale(size, scheme)
    if scheme.scale == "F8E4M3":
        enough = nearest(size / code_end(scheme), work) if scheme.values else s
        return nearest_scale(s, enough, scheme, factor)
    least = Fraction(2) ** -126
    return min((x for x in small_scales(scheme.scale, factor) if x >= max(s, least)), default=None)


def parameters(values, scheme, work, factor):
    """Scale and zero point of one set; the scale is None where its dtype cannot hold it."""
    low, high = scheme.codes()
    middle = 0 if scheme.signed or not scheme.symmetric else 2 ** (scheme.bits - 1)
    finite = [v for v in values if isinstance(v, Fraction)]
    a, b = min([0, *finite]), max([0, *finite])
    if scheme.bias:
        return biased_parameters(Fraction(a), b, scheme, work)
    if a == b:
        return factor, middle
    steps = Fraction(high - low)
    if scheme.values:
        s = nearest(max(-a, b) / VALUES[scheme.values][1][high], work)
    elif scheme.symmetric:
        s = nearest(max(-a, b) / (steps / 2), work)
    elif nearest(b - a, work) is not None:
        s = nearest(nearest(b - a, work) / steps, work)
    else:
        s = nearest(nearest(b / 2 - a / 2, work) / (steps / 2), work)
    s = stored_scale(s, max(-a, b), scheme, factor, work)
    if s is None or scheme.symmetric:
        return s, middle
    return s, min(max(low - round(nearest(a / s, work)), low), high)


def nearest_value(x, s, scheme, work):
    """The code of the value nearest to x / s: of a tie that with an even code, in a table the lower.
    What rounds to 0 keeps its sign."""
    found = VALUES[scheme.values][1]
    if scheme.values == "NF4":
        return sum(nearest(x / s, work) > nearest((found[c] + found[c + 1]) / 2, work)
                   for c in range(len(found) - 1))
    if scheme.values == "FP4":
        return min(found, key=lambda c: (abs(found[c] - nearest(x / s, work)), found[c]))
    t, sign = nearest(x / s, work), len(bin(scheme.codes()[0])) - 3
    size = min((c for c in found if not c >> sign), key=lambda c: (abs(found[c] - abs(t)), c % 2))
    return size | (x < 0) << sign


def code(x, s, z, scheme, work):
    low, high = scheme.codes()
    if scheme.values:
        if isinstance(x, Fraction):
            return nearest_value(x, s, scheme, work)
        return nearest_value(Fraction(0), s, scheme, work) if math.isnan(x) else high if x > 0 else low
    if scheme.bias:
        if not isinstance(x, Fraction) and not math.isnan(x):
            return high if x > 0 else low
        x = x if isinstance(x, Fraction) else Fraction(0)
        return min(max(round(nearest(nearest(x - z, work) / s, work)), low), high)
    if not isinstance(x, Fraction):
        return z if math.isnan(x) else high if x > 0 else low
    return min(max(round(nearest(x / s, work)), low - z), high - z) + z


def row_bytes(n, bits):
    return (n * bits + 7) // 8


def pack(codes, shape, scheme):
    """Rows of codes, each a stream of bits from the lowest of its first byte on."""
    out, n, bits = b"", shape[-1], scheme.bits
    for row in range(0, len(codes), n):
        line = sum(c % 2 ** bits << i * bits for i, c in enumerate(codes[row:row + n]))
        out += line.to_bytes(row_bytes(n, bits), "little")
    return out


def coded(dtype, shape, raw, scheme):
    """The codes, scale and zero point of each set, the shape of the sets, and the factor."""
    work = "F64" if dtype == "F64" else "F32"
    values = decode(dtype, raw)
    cell, dims = sets_of(shape, scheme.grain)
    members = [[] for _ in range(math.prod(dims))]
    for v, c in zip(values, cell):
        members[c].append(v)
    factor = factor_of(values, scheme, work)
    params = [parameters(m, scheme, work, factor) for m in members]
    return [code(v, *params[c], scheme, work) for v, c in zip(values, cell)], params, dims, factor


def stored_scales(scales, dims, scheme, factor):
    """The stored tensors of scales."""
    if scheme.scale not in SMALL:
        return {"_scale": (scheme.scale, dims, encode(scheme.scale, scales))}
    numbers = small_scales(scheme.scale, factor)
    stored = {"_scale": (SMALL[scheme.scale][0], dims, bytes(numbers[s] for s in scales))}
    if scheme.scale == "F8E4M3":
        stored["_scale_2"] = ("F32", (1,), encode("F32", [1 / factor if scheme.divides else factor]))
    return stored


def quantize(dtype, shape, raw, scheme):
    """The tensors that the native layout stores: (dtype, shape, bytes) each."""
    codes, params, dims, factor = coded(dtype, shape, raw, scheme)
    tight = (*shape[:-1], row_bytes(shape[-1], scheme.bits))
    storage = "I8" if scheme.bits == 8 and scheme.signed else "U8"
    scales = stored_scales([s for s, _ in params], dims, scheme, factor)
    if scheme.values:
        return {"": (VALUES[scheme.values][0], tight, pack(codes, shape, scheme)), **scales}
    if scheme.bias:
        second = ("_offset", (scheme.scale, dims, encode(scheme.scale, [z for _, z in params])))
    else:
        second = ("_zero_point",
                  ("I8" if scheme.signed else "U8", dims, bytes(z % 256 for _, z in params)))
    return {
        "": (storage, tight, pack(codes, shape, scheme)),
        **scales,
        second[0]: second[1],
    }
