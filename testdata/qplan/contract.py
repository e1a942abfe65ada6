"""The numeric contract of qplan and its native layout, in the plainest form.

Written from the contract alone, as the oracle for the program:

    range    min and max over the finite values of a set, widened to include 0
    scale    symmetric   absmax / ((q_max - q_min) / 2), narrow: absmax / q_max
             asymmetric  (max - min) / (q_max - q_min)
             stored value: rounded toward +infinity to its dtype, at least the
             smallest normal; a set of zeros has scale 1
    zero     symmetric   0, or the midpoint (128, 8) of an unsigned type
             asymmetric  clamp(q_min - rne(min / s), q_min, q_max)
    code     clamp(rne(x / s) + z, q_min, q_max)
    decoded  s * (q - z), clipped to the finite range

Every operation is rounded to the working precision: double for F64 sources,
single for F32, F16 and BF16. rne is round half to even.
"""

import math
import re
from dataclasses import dataclass, field

import container
from container import Tensor
from floats import F32, F64, FORMATS, f32, f64

CODE_TYPES = {          # name -> (bits, q_min, q_max)
    "int8": (8, -128, 127),
    "uint8": (8, 0, 255),
    "int4": (4, -8, 7),
    "uint4": (4, 0, 15),
}


class Refused(Exception):
    """The program must refuse this input; no golden file can exist."""


# Schemes and options ---------------------------------------------------------

@dataclass(frozen=True)
class Scheme:
    dtype: str = "int8"
    granularity: tuple = ("c", 0)       # ("t",) ("c", axis) ("g", n) ("b", rows, columns)
    symmetric: bool = True
    narrow: bool = False
    scale_dtype: str = "F32"

    @property
    def bits(self):
        return CODE_TYPES[self.dtype][0]

    @property
    def signed(self):
        return not self.dtype.startswith("u")

    @property
    def q_min(self):
        return -self.q_max if self.narrow else CODE_TYPES[self.dtype][1]

    @property
    def q_max(self):
        return CODE_TYPES[self.dtype][2]

    @property
    def midpoint(self):
        """The zero point of a symmetric scheme."""
        return 0 if self.signed else (self.q_max + 1) // 2

    def text(self, rank):
        """The canonical scheme text of a tensor of this rank."""
        kind, *sizes = self.granularity
        if kind == "c":
            sizes = [resolve_axis(sizes[0], rank)]
        parts = [self.dtype, kind + "x".join(map(str, sizes))]
        if self.symmetric != self.signed:
            parts.append("sym" if self.symmetric else "asym")
        if self.narrow:
            parts.append("narrow")
        if self.scale_dtype != "F32":
            parts.append(self.scale_dtype.lower())
        return ":".join(parts)


@dataclass
class Options:
    scheme: Scheme
    include: list = field(default_factory=list)
    exclude: list = field(default_factory=list)
    indivisible: str = "error"
    nonfinite: str = "error"
    zero_point: str = "always"


def resolve_axis(axis, rank):
    if not -rank <= axis < rank:
        raise Refused("axis %d of a tensor of rank %d" % (axis, rank))
    return axis % rank


def parse_granularity(text):
    if text == "t":
        return ("t",)
    if text[0] == "b":
        rows, columns = text[1:].split("x")
        return ("b", int(rows), int(columns))
    return (text[0], int(text[1:]))


def parse_scheme(text):
    dtype, *rest = text.split(":")
    scheme = {"dtype": dtype}
    for part in rest:
        if part in ("sym", "asym"):
            scheme["symmetric"] = part == "sym"
        elif part == "narrow":
            scheme["narrow"] = True
        elif part in ("f32", "f16", "bf16"):
            scheme["scale_dtype"] = part.upper()
        else:
            scheme["granularity"] = parse_granularity(part)
    return scheme


def parse_flags(flags):
    """The options of `qplan quantize` that change bytes."""
    options = Options(Scheme())
    scheme = {}
    axis = 0
    words = iter(flags)
    for flag in words:
        if flag == "--scheme":
            scheme = parse_scheme(next(words))
        elif flag == "--dtype":
            scheme["dtype"] = next(words)
        elif flag == "--per-tensor":
            scheme["granularity"] = ("t",)
        elif flag == "--per-channel":
            scheme["granularity"] = ("c", 0)
        elif flag == "--axis":
            axis = int(next(words))
        elif flag == "--per-group":
            scheme["granularity"] = ("g", int(next(words)))
        elif flag == "--block":
            scheme["granularity"] = parse_granularity("b" + next(words))
        elif flag in ("--symmetric", "--asymmetric"):
            scheme["symmetric"] = flag == "--symmetric"
        elif flag == "--narrow-range":
            scheme["narrow"] = True
        elif flag == "--scale-dtype":
            scheme["scale_dtype"] = next(words).upper()
        elif flag in ("--include", "--exclude"):
            getattr(options, flag[2:]).append(next(words))
        elif flag in ("--indivisible", "--nonfinite", "--zero-point"):
            setattr(options, flag[2:].replace("-", "_"), next(words))
        else:
            raise ValueError("flag " + flag)
    dtype = scheme.setdefault("dtype", "int8")
    scheme.setdefault("symmetric", not dtype.startswith("u"))
    scheme.setdefault("granularity", ("g", 128) if dtype.endswith("4") else ("c", 0))
    if axis:
        scheme["granularity"] = ("c", axis)
    options.scheme = Scheme(**scheme)
    return options


def glob_matches(pattern, name):
    """`*`, `?`, `[abc]`, `{a,b}` on the whole name, byte-wise."""
    regex = b""
    depth = 0
    for c in re.findall(rb"\[[^\]]+\]|.", pattern.encode(), re.DOTALL):
        if c == b"*":
            regex += b".*"
        elif c == b"?":
            regex += b"."
        elif c[:1] == b"[" and len(c) > 1:
            regex += c
        elif c == b"{":
            regex += b"(?:"
            depth += 1
        elif c == b"}" and depth:
            regex += b")"
            depth -= 1
        elif c == b"," and depth:
            regex += b"|"
        else:
            regex += re.escape(c)
    return re.fullmatch(regex, name.encode(), re.DOTALL) is not None


def is_selected(tensor, options):
    """Whether a tensor is quantized (selection `all`)."""
    if math.prod(tensor.shape) == 0:
        return False
    if tensor.dtype not in FORMATS or len(tensor.shape) < 2:
        return False
    if any(glob_matches(p, tensor.name) for p in options.exclude):
        return False
    if options.include and not any(glob_matches(p, tensor.name) for p in options.include):
        return False
    kind, *sizes = options.scheme.granularity
    if kind == "g" and tensor.shape[-1] % sizes[0] != 0:
        if options.indivisible == "error":
            raise Refused("%s: group %d, row %d" % (tensor.name, sizes[0], tensor.shape[-1]))
        return options.indivisible == "ragged"
    return True


# Numerics --------------------------------------------------------------------

def assign_sets(shape, granularity):
    """(shape of the parameters, parameter set of each element in flat order)."""
    count = math.prod(shape)
    kind, *sizes = granularity
    if kind == "t":
        return (1,), [0] * count
    if kind == "c":
        axis = resolve_axis(sizes[0], len(shape))
        inner = math.prod(shape[axis + 1:])
        return (shape[axis],), [i // inner % shape[axis] for i in range(count)]
    columns = shape[-1]
    if kind == "g":
        groups = -(-columns // sizes[0])
        sets = [i // columns * groups + i % columns // sizes[0] for i in range(count)]
        return shape[:-1] + (groups,), sets
    rows = shape[-2]
    row_blocks = -(-rows // sizes[0])
    column_blocks = -(-columns // sizes[1])
    sets = [(i // (rows * columns) * row_blocks
             + i // columns % rows // sizes[0]) * column_blocks
            + i % columns // sizes[1] for i in range(count)]
    return shape[:-2] + (row_blocks, column_blocks), sets


def find_ranges(values, sets, set_count):
    """(min, max) of each set over its finite values, including 0."""
    low = [0.0] * set_count
    high = [0.0] * set_count
    for x, k in zip(values, sets):
        if math.isfinite(x):
            if x < low[k]:
                low[k] = x
            elif x > high[k]:
                high[k] = x
    return list(zip(low, high))


def raw_scale(low, high, scheme, rnd):
    """The scale of a range in working precision, before it is stored."""
    steps = scheme.q_max - scheme.q_min
    if scheme.symmetric:
        absmax = max(-low, high)
        return rnd(absmax / (scheme.q_max if scheme.narrow else steps / 2))
    span = rnd(high - low)
    if math.isinf(span):
        return rnd(rnd(rnd(high / 2) - rnd(low / 2)) / (steps / 2))
    return rnd(span / steps)


def find_parameters(low, high, scheme, rnd):
    """(stored scale, zero point) of a range."""
    if low == high:                                     # both are 0
        return 1.0, scheme.midpoint if scheme.symmetric else 0
    stored = FORMATS[scheme.scale_dtype]
    scale = max(stored.round_up(raw_scale(low, high, scheme, rnd)), stored.min_normal)
    if math.isinf(scale):
        raise Refused("scale above the largest %s" % stored.name)
    if scheme.symmetric:
        return scale, scheme.midpoint
    zero = scheme.q_min - round(rnd(low / scale))
    return scale, min(max(zero, scheme.q_min), scheme.q_max)


def quantize_value(x, scale, zero, scheme, rnd):
    """The code of one value; NaN gives the zero point, infinities saturate."""
    if math.isnan(x):
        return zero
    quotient = rnd(x / scale)
    if math.isinf(quotient):
        return scheme.q_max if quotient > 0 else scheme.q_min
    return min(max(round(quotient) + zero, scheme.q_min), scheme.q_max)


def dequantize_value(code, scale, zero, working):
    """s * (q - z) in working precision, clipped to its finite range."""
    return working.clip(scale * float(code - zero))


@dataclass
class Quantized:
    """One quantized tensor: what goes to the file, and what it came from."""
    source: Tensor
    scheme: Scheme
    parameter_shape: tuple
    sets: list
    scales: list
    zeros: list
    codes: list


def quantize_tensor(tensor, options):
    scheme = options.scheme
    rnd = f64 if tensor.dtype == "F64" else f32
    values = FORMATS[tensor.dtype].unpack(tensor.data)
    if options.nonfinite == "error" and not all(map(math.isfinite, values)):
        raise Refused(tensor.name + ": NaN or infinity")
    shape, sets = assign_sets(tensor.shape, scheme.granularity)
    ranges = find_ranges(values, sets, math.prod(shape))
    parameters = [find_parameters(low, high, scheme, rnd) for low, high in ranges]
    codes = [quantize_value(x, *parameters[k], scheme, rnd) for x, k in zip(values, sets)]
    scales, zeros = zip(*parameters)
    return Quantized(tensor, scheme, shape, sets, list(scales), list(zeros), codes)


# The native layout -----------------------------------------------------------

def pack_codes(codes, columns, bits):
    """Bytes of codes: 8-bit as they are, 4-bit in pairs, low nibble first, per row."""
    if bits == 8:
        return bytes(q & 0xFF for q in codes)
    out = bytearray()
    for start in range(0, len(codes), columns):
        row = codes[start:start + columns] + [0] * (columns % 2)
        out += bytes(low & 15 | (high & 15) << 4 for low, high in zip(row[::2], row[1::2]))
    return bytes(out)


def stored_tensors(quantized, zero_point):
    """The two or three tensors that stand for a quantized one."""
    q = quantized
    name, shape, scheme = q.source.name, q.source.shape, q.scheme
    byte_type = "I8" if scheme.signed else "U8"
    code_type, code_shape = byte_type, shape
    if scheme.bits == 4:
        code_type, code_shape = "U8", shape[:-1] + (-(-shape[-1] // 2),)
    tensors = [
        Tensor(name, code_type, code_shape, pack_codes(q.codes, shape[-1], scheme.bits)),
        Tensor(name + "_scale", scheme.scale_dtype, q.parameter_shape,
               FORMATS[scheme.scale_dtype].pack(q.scales)),
    ]
    if zero_point == "always" or not scheme.symmetric:
        tensors.append(Tensor(name + "_zero_point", byte_type, q.parameter_shape,
                              bytes(z & 0xFF for z in q.zeros)))
    return tensors


def description(quantized):
    """The entry of a tensor in `qplan.tensors`."""
    source = quantized.source
    return " ".join([quantized.scheme.text(len(source.shape)), "minmax", source.dtype,
                     "x".join(map(str, source.shape))])


def quantize_file(tensors, metadata, flags):
    """(bytes of the quantized file, list of Quantized, list of kept tensors)."""
    options = parse_flags(flags)
    quantized = []
    kept = []
    for t in tensors:
        if is_selected(t, options):
            quantized.append(quantize_tensor(t, options))
        else:
            kept.append(t)
    names = {t.name for t in tensors}
    written = list(kept)
    for q in quantized:
        parts = stored_tensors(q, options.zero_point)
        clash = names & {t.name for t in parts[1:]}
        if clash:
            raise Refused("name in use: " + clash.pop())
        written += parts
    out = {k: v for k, v in metadata.items() if not k.startswith("qplan.")}
    out["format"] = "pt"
    out["qplan.layout"] = "1"
    out["qplan.numerics"] = "1"
    out["qplan.tensors"] = container.json_strings({q.source.name: description(q) for q in quantized})
    return container.write_canonical(written, out), quantized, kept


def dequantize_tensor(quantized, dtype):
    """The decoded tensor in its source dtype, or in `dtype` when one is given."""
    source = quantized.source
    working = F64 if source.dtype == "F64" else F32
    output = FORMATS[dtype or source.dtype]
    values = {}
    patterns = []
    for code, k in zip(quantized.codes, quantized.sets):
        if (code, k) not in values:
            x = dequantize_value(code, quantized.scales[k], quantized.zeros[k], working)
            values[code, k] = output.encode(output.clip(x))
        patterns.append(values[code, k])
    return Tensor(source.name, output.name, source.shape, output.pack_bits(patterns))


def dequantize_file(quantized, kept, metadata, flags):
    """Bytes of the file that `qplan dequantize` writes."""
    dtype = flags[flags.index("--dtype") + 1].upper() if "--dtype" in flags else None
    tensors = kept + [dequantize_tensor(q, dtype) for q in quantized]
    out = {k: v for k, v in metadata.items() if not k.startswith("qplan.")}
    out["format"] = "pt"
    return container.write_canonical(tensors, out)
