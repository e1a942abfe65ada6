"""The numeric contract of qplan and its native layout, in the plainest form.

Written from the contract alone, as the oracle for the program:

    range    min and max over the finite values of a set, widened to include 0
    scale    symmetric   absmax / ((q_max - q_min) / 2), narrow: absmax / q_max
             asymmetric  (max - min) / (q_max - q_min)
             stored value: rounded toward +infinity to its dtype, at least the
             smallest normal; a set of zeros has scale 1
             e8m0: the least power of two, at least 2^-126
             f8e4m3: a byte times the factor of the tensor, rounded to single, is the
             least that is enough; a set of zeros has 1 times the factor
    factor   absmax of the tensor / (448 (q_max - q_min) / 2), at least 2^-117, enlarged until
             448 times it is enough for absmax; 1 for a tensor of zeros
    zero     symmetric   0, or the midpoint (128, 8, ...) of an unsigned type
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
from floats import E8M0, F32, F64, F8E4M3, FORMATS, SCALE_BYTES, f32, f64

CODE_TYPES = {          # name -> (bits, q_min, q_max)
    **{"int%d" % b: (b, -2 ** (b - 1), 2 ** (b - 1) - 1) for b in range(2, 9)},
    **{"uint%d" % b: (b, 0, 2 ** b - 1) for b in range(2, 9)},
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
    def is_layout_1(self):
        return self.bits in (4, 8) and self.scale_dtype not in SCALE_BYTES

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
        elif part in ("f32", "f16", "bf16", "f8e4m3", "e8m0"):
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
    scheme.setdefault("granularity", ("c", 0) if dtype.endswith("8") else ("g", 128))
    few_bits = int(dtype[-1]) <= 4 and "--scheme" not in flags  # texts leave out what they always did
    scheme.setdefault("symmetric", not dtype.startswith("u") and not few_bits)
    if few_bits and scheme["granularity"][0] in "gb":
        scheme.setdefault("scale_dtype", "BF16")
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


def find_factor(ranges, scheme, rnd):
    """The number that all scales of a tensor are stored under; 1 where there is none."""
    absmax = max(max(-low, high) for low, high in ranges)
    if scheme.scale_dtype != "F8E4M3" or absmax == 0:
        return 1.0
    reach = (scheme.q_max - scheme.q_min) / 2
    factor = max(f32(rnd(absmax / (448 * reach))), 2.0 ** -117)
    while f32(448 * factor) * reach < absmax:
        factor = F32.next_up(factor)
    return factor


def stored_scale(scale, scheme, factor):
    """The least scale that can be stored and is enough."""
    if scheme.scale_dtype == "F8E4M3":
        return min(s for s in (f32(x * factor) for x in F8E4M3.values.values()) if s >= scale)
    if scheme.scale_dtype == "E8M0":
        return min((x for x in E8M0.values.values() if x >= max(scale, 2.0 ** -126)), default=math.inf)
    stored = FORMATS[scheme.scale_dtype]
    return max(stored.round_up(scale), stored.min_normal)


def find_parameters(low, high, scheme, rnd, factor):
    """(stored scale, zero point) of a range."""
    if low == high:                                     # both are 0
        return factor, scheme.midpoint if scheme.symmetric else 0
    scale = stored_scale(raw_scale(low, high, scheme, rnd), scheme, factor)
    if math.isinf(scale):
        raise Refused("scale above the largest %s" % scheme.scale_dtype)
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
    factor: float


def quantize_tensor(tensor, options):
    scheme = options.scheme
    rnd = f64 if tensor.dtype == "F64" else f32
    values = FORMATS[tensor.dtype].unpack(tensor.data)
    if options.nonfinite == "error" and not all(map(math.isfinite, values)):
        raise Refused(tensor.name + ": NaN or infinity")
    shape, sets = assign_sets(tensor.shape, scheme.granularity)
    ranges = find_ranges(values, sets, math.prod(shape))
    factor = find_factor(ranges, scheme, rnd)
    parameters = [find_parameters(low, high, scheme, rnd, factor) for low, high in ranges]
    codes = [quantize_value(x, *parameters[k], scheme, rnd) for x, k in zip(values, sets)]
    scales, zeros = zip(*parameters)
    return Quantized(tensor, scheme, shape, sets, list(scales), list(zeros), codes, factor)


# The native layout -----------------------------------------------------------

def pack_codes(codes, columns, bits):
    """Bytes of codes: the codes of a row are the digits of a number, the first the lowest."""
    out = bytearray()
    for start in range(0, len(codes), columns):
        number = 0
        for q in reversed(codes[start:start + columns]):
            number = number << bits | q % 2 ** bits
        out += number.to_bytes(-(-columns * bits // 8), "little")
    return bytes(out)


def scale_tensors(quantized):
    """The scales, and behind them their factor if they have one."""
    q = quantized
    name, dtype = q.source.name + "_scale", q.scheme.scale_dtype
    if dtype not in SCALE_BYTES:
        return [Tensor(name, dtype, q.parameter_shape, FORMATS[dtype].pack(q.scales))]
    stored = SCALE_BYTES[dtype]
    if dtype == "E8M0":
        return [Tensor(name, stored.storage, q.parameter_shape, stored.pack(q.scales))]
    under = {f32(x * q.factor): x for x in stored.values.values()}
    return [Tensor(name, stored.storage, q.parameter_shape,
                   stored.pack(under[s] for s in q.scales)),
            Tensor(name + "_2", "F32", (1,), F32.pack([q.factor]))]


def stored_tensors(quantized, zero_point):
    """The tensors that stand for a quantized one."""
    q = quantized
    name, shape, scheme = q.source.name, q.source.shape, q.scheme
    byte_type = "I8" if scheme.signed else "U8"
    code_type, code_shape = byte_type, shape
    if scheme.bits < 8:
        code_type, code_shape = "U8", shape[:-1] + (-(-shape[-1] * scheme.bits // 8),)
    tensors = [
        Tensor(name, code_type, code_shape, pack_codes(q.codes, shape[-1], scheme.bits)),
        *scale_tensors(q),
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
    out["qplan.layout"] = "1" if all(q.scheme.is_layout_1 for q in quantized) else "2"
    out["qplan.numerics"] = "1"
    if options.nonfinite != "error" and quantized:
        out["qplan.nonfinite"] = options.nonfinite
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
