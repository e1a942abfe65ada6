"""Floating point formats for the golden data: bits, exact values, rounding.

Everything is done with Python integers and doubles from the standard library.
A value of any of the four formats is held as a Python float, which is exact.
"""

import math
import struct
from fractions import Fraction


class Format:
    """A binary interchange format of `width` bits with `precision` significant bits."""

    def __init__(self, name, width, precision):
        self.name = name
        self.width = width
        self.precision = precision
        exponent_bits = width - precision
        self.emin = 2 - 2 ** (exponent_bits - 1)        # exponent of the smallest normal
        self.infinity_bits = (2 ** exponent_bits - 1) << (precision - 1)
        self.max_finite = self.decode(self.infinity_bits - 1)
        self.min_normal = math.ldexp(1.0, self.emin)

    def decode(self, bits):
        """The value of a bit pattern."""
        if self.name == "F16":
            return struct.unpack("<e", struct.pack("<H", bits))[0]
        if self.name == "BF16":
            return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
        if self.name == "F32":
            return struct.unpack("<f", struct.pack("<I", bits))[0]
        return struct.unpack("<d", struct.pack("<Q", bits))[0]

    def encode(self, x):
        """The bit pattern nearest to x, ties to even; too large becomes infinity.

        The bits of a finite value count upwards with its magnitude, so the
        integer significand added to a shifted exponent gives the pattern, also
        for subnormals and when rounding carries into the next binade.
        """
        if self.name == "F64":
            return struct.unpack("<Q", struct.pack("<d", x))[0]
        if math.isnan(x):
            raise ValueError("a NaN has no defined pattern here")
        sign = 1 << (self.width - 1) if math.copysign(1.0, x) < 0 else 0
        if math.isinf(x):
            return sign | self.infinity_bits
        if x == 0:
            return sign
        lowest = self.emin - self.precision + 1          # exponent of the last place
        fraction, exponent = math.frexp(abs(x))
        place = max(exponent - self.precision, lowest)
        significand = round(math.ldexp(fraction, exponent - place))
        bits = ((place - lowest) << (self.precision - 1)) + significand
        return sign | min(bits, self.infinity_bits)

    def round(self, x):
        """x rounded to this format, ties to even; too large becomes infinity."""
        return self.decode(self.encode(x))

    def clip(self, x):
        """x rounded to this format, too large becomes the largest finite value."""
        y = self.round(x)
        return math.copysign(self.max_finite, x) if math.isinf(y) else y

    def round_up(self, x):
        """The smallest value of this format that is >= x, for x >= 0."""
        bits = self.encode(x)
        if self.decode(bits) < x:
            bits += 1
        return self.decode(bits)

    def next_up(self, x):
        """The next value above a finite x of this format."""
        bits = self.encode(x)
        sign = 1 << (self.width - 1)
        if bits in (0, sign):
            return self.decode(1)
        return self.decode(bits - 1 if bits & sign else bits + 1)

    def next_down(self, x):
        """The next value below a finite x of this format."""
        return -self.next_up(-x)

    def unpack(self, data):
        """All values of a little-endian byte string."""
        letter = {"F16": "e", "BF16": "H", "F32": "f", "F64": "d"}[self.name]
        values = struct.unpack("<%d%s" % (len(data) * 8 // self.width, letter), data)
        if self.name == "BF16":
            return [self.decode(bits) for bits in values]
        return list(values)

    def pack(self, values):
        """The little-endian bytes of values, each rounded to nearest."""
        return self.pack_bits([self.encode(x) for x in values])

    def pack_bits(self, patterns):
        """The little-endian bytes of bit patterns."""
        letter = {16: "H", 32: "I", 64: "Q"}[self.width]
        return struct.pack("<%d%s" % (len(patterns), letter), *patterns)


F16 = Format("F16", 16, 11)
BF16 = Format("BF16", 16, 8)
F32 = Format("F32", 32, 24)
F64 = Format("F64", 64, 53)
FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


class Bytes:
    """Positive numbers of one byte, given as a table: what scales are stored as."""

    def __init__(self, name, storage, values):
        self.name = name
        self.storage = storage
        self.values = values                            # {byte: value}, ascending
        self.bytes = {x: byte for byte, x in values.items()}

    def unpack(self, data):
        return [self.values[byte] for byte in data]

    def pack(self, values):
        return bytes(self.bytes[x] for x in values)


E8M0 = Bytes("E8M0", "U8", {b: math.ldexp(1.0, b - 127) for b in range(255)})
F8E4M3 = Bytes("F8E4M3", "F8_E4M3", {
    b: math.ldexp(b % 8 + (8 if b >= 8 else 0), max(b >> 3, 1) - 10) for b in range(1, 127)})
SCALE_BYTES = {f.name: f for f in (E8M0, F8E4M3)}


def f32(x):
    """x rounded to single precision (the fast form of F32.round).

    The sum, difference, product or quotient of two singles, calculated in
    double and rounded once more by this function, is correctly rounded:
    double has more than twice the significant bits of single.
    """
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def f64(x):
    """The identity: Python floats are doubles."""
    return x


def nearest_exact(value, fmt):
    """A Fraction rounded to fmt in exact arithmetic, slow: the check of the rest."""
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    place = max(exponent, fmt.emin) - fmt.precision + 1
    rounded = round(magnitude / Fraction(2) ** place) * Fraction(2) ** place
    if rounded > Fraction(fmt.max_finite):
        return math.copysign(math.inf, value)
    return math.copysign(float(rounded), value)
