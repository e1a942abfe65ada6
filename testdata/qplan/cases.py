"""The golden cases: source files made by formula, and the flags used on them."""

import math

import container
from container import Tensor
from floats import BF16, F16, F32, F64, FORMATS, f32


class Random:
    """xorshift64*: small, fast, and the same everywhere."""

    def __init__(self, text):
        self.state = 0x9E3779B97F4A7C15
        for byte in text.encode():
            self.state = (self.state ^ byte) * 0x100000001B3 % 2 ** 64
        self.state = self.state or 1

    def bits(self, count):
        x = self.state
        x ^= x >> 12
        x = (x ^ x << 25) % 2 ** 64
        x ^= x >> 27
        self.state = x
        return (x * 0x2545F4914F6CDD1D % 2 ** 64) >> (64 - count)

    def normal(self):
        """Nearly normal, variance 1: the sum of twelve uniforms, exact in integers."""
        return sum(self.bits(32) for _ in range(12)) / 2 ** 32 - 6


def from_values(name, dtype, shape, values):
    assert len(values) == math.prod(shape), name
    return Tensor(name, dtype, tuple(shape), FORMATS[dtype].pack(values))


def from_rows(name, dtype, rows):
    """A matrix; short rows are filled up with zeros."""
    columns = max(map(len, rows))
    values = [x for row in rows for x in list(row) + [0.0] * (columns - len(row))]
    return from_values(name, dtype, (len(rows), columns), values)


def from_patterns(name, dtype, shape, patterns):
    assert len(patterns) == math.prod(shape), name
    return Tensor(name, dtype, tuple(shape), FORMATS[dtype].pack_bits(patterns))


def weights(name, dtype, shape):
    """Weights near 0.02 with a scale of its own for each row and some skew."""
    random = Random(name + dtype)
    columns = shape[-1]
    values = []
    for _ in range(math.prod(shape) // columns):
        spread = 0.02 * 2.0 ** (random.bits(3) - 4)
        shift = spread * (random.bits(2) - 1.5)
        values += [spread * random.normal() + shift for _ in range(columns)]
    return from_values(name, dtype, shape, values)


# Source files ----------------------------------------------------------------

def plain(dtype):
    """Two matrices and a bias: the ground for most scheme combinations."""
    return [weights("a.weight", dtype, (4, 32)), weights("b.weight", dtype, (2, 3, 32)),
            weights("a.bias", dtype, (4,))]


def odd(dtype):
    """Shapes that do not fit anything: 1 x 1, single row, single column, odd rows."""
    shapes = {"one": (1, 1), "row": (1, 9), "column": (9, 1), "matrix": (5, 7), "cube": (2, 4, 5),
              "deep": (2, 1, 3, 2, 3)}
    return [weights(name, dtype, shape) for name, shape in shapes.items()]


def rows15(dtype):
    """Odd rows that groups of 5 and 15 divide: groups begin inside a byte."""
    return [weights("w", dtype, (3, 15)), weights("v", dtype, (2, 2, 15))]


def wide(dtype):
    """Rows of 256: the default group of the 4-bit types divides them."""
    return [weights("w", dtype, (2, 256))]


FLT_MAX = F32.max_finite
FLT_TRUE_MIN = 2.0 ** -149
FLT_MIN = F32.min_normal


def edge_f32():
    """Rows that tempt a quantizer to divide by zero, flush, or overflow."""
    small = [
        [0.0] * 8,
        [-0.0] * 8,
        [0.0, -0.0] * 4,
        [0.75] * 8,
        [-0.75] * 8,
        [1e-40] * 8,
        [1e-40, -3e-41, 0.0, -0.0, 2e-42, 7e-41, -9e-41, 5e-41],
        [FLT_TRUE_MIN] * 8,
        [-FLT_TRUE_MIN, 0.0] * 4,
        [FLT_MIN, -FLT_MIN, FLT_MIN / 2, -FLT_MIN / 2, 3 * FLT_MIN, 0.0, FLT_TRUE_MIN, -2 * FLT_MIN],
        [127 * FLT_MIN, -127.5 * FLT_MIN, 0.5 * FLT_MIN, 1.5 * FLT_MIN, -2.5 * FLT_MIN, 0.0, FLT_MIN, 63.5 * FLT_MIN],
        [1e-37, -1e-37, 5e-38, 1.2e-38, -3e-38, 6e-39, 0.0, 9e-38],
        [1e-3, -9e-4, 5e-4, 2.5e-4, -1e-6, 3.05e-5, 6.1e-5, 0.0],
    ]
    huge = [
        [FLT_MAX] + [0.0] * 7,
        [-FLT_MAX] + [0.0] * 7,
        [FLT_MAX, -FLT_MAX, FLT_MAX / 2, -FLT_MAX / 2, FLT_MAX / 3, 1.0, 0.0, -1.0],
        [FLT_MAX, -FLT_MAX / 2, FLT_MAX / 4, 1e38, -1e38, 3e38, -1.5e38, 1e37],
        [3e38, -3e38, 1e38, 2e38, -2e38, -1e38, 5e37, -7e36],
        [FLT_MAX, -1.0, FLT_MAX / 255, FLT_MAX / 510, 1e36, 0.0, 2e36, 3e36],
        [FLT_MAX] * 8,
        [-FLT_MAX] * 8,
    ]
    return [from_rows("small", "F32", small), from_rows("huge", "F32", huge)]


def edge_f16():
    rows = [
        [65504.0, -65504.0, 32752.0, -32752.0, 1.0, 0.0, 256.0, -257.0],
        [65504.0] * 8,
        [2.0 ** -24] * 8,
        [2.0 ** -24, -2.0 ** -24, 2.0 ** -23, 0.0, -0.0, 2.0 ** -14, -2.0 ** -15, 3 * 2.0 ** -24],
        [-0.0] * 8,
        [60000.0, 59000.0, 1000.0, 61000.0, 65504.0, 64000.0, 65472.0, 63.0],
    ]
    return [from_rows("w", "F16", rows)]


def edge_bf16():
    largest = BF16.max_finite
    rows = [
        [largest, -largest, largest / 2, -largest / 4, 1.0, 0.0, 2.0 ** 100, -3.0],
        [largest] * 8,
        [2.0 ** -133] * 8,
        [2.0 ** -126, -2.0 ** -127, 2.0 ** -133, 0.0, -0.0, 3 * 2.0 ** -130, 2.0 ** -120, -2.0 ** -128],
        [-0.0] * 8,
    ]
    return [from_rows("w", "BF16", rows)]


def edge_f64():
    """Values that single precision cannot hold, and scales that it can."""
    rows = [
        [5e-324] * 8,
        [1e-320, -2e-310, 1e-300, 0.0, -0.0, 1e-200, -1e-100, 3e-50],
        [1e-46, -1e-46, 4e-47, 0.0, 1e-60, -9e-47, 2e-46, 7e-46],
        [1e39, -1e39, 3e38, 0.0, 1.0, -5e38, 7e38, 2e30],
        [1.0 + 2.0 ** -52, -1.0, 0.5 + 2.0 ** -53, 1.0 / 3, 0.1, 0.2, 0.3, -0.7],
        [0.1, 0.1 - 2.0 ** -56, 0.05, -0.025, 0.0999999, 0.0, 1e-9, -0.1],
    ]
    largest = [127.5 * FLT_MAX, -FLT_MAX, FLT_MAX, 0.0, 60.25 * FLT_MAX, -2e40, 1e40, 3e40]
    return [from_rows("w", "F64", rows), from_rows("largest", "F64", [largest])]


def narrowing_f64():
    """Values 2^-40 beside each tie of scale 1: in single precision they are ties,
    so a program that narrows F64 to F32 gives another code for half of them."""
    rows = []
    for top in (127.5, 7.5):
        row = [top]
        for k in range(-int(top), int(top)):
            row += [k + 0.5 - 2.0 ** -40, k + 0.5 + 2.0 ** -40]
        rows.append(row)
    return [from_rows("w%d" % i, "F64", [row]) for i, row in enumerate(rows)]


def double_rounding_f64():
    """Products k s so near a tie of BF16 or F16 that rounding them to F32 on the
    way makes it a tie: each row has scale s and holds a value of code k."""
    tensors = []
    for fmt in (BF16, F16):
        rows = []
        for k in range(3, 127, 2):
            tie = 1.0 + (2 * k + 1) * 2.0 ** -fmt.precision
            scale = F32.round(tie / k)
            if f32(scale * k) == tie and fmt.round(scale * k) != fmt.round(tie):
                rows.append([127.5 * scale, k * scale])
        tensors.append(from_rows("near." + fmt.name.lower(), "F64", rows))
    return tensors


def ties(fmt, scale, low, high):
    """Each tie (k + 1/2) scale in [low, high] with its neighbours one unit in the
    last place away, and the ends themselves; nothing beyond the ends."""
    low, high = fmt.round(low), fmt.round(high)
    row = [low, high, 0.0]
    for k in range(math.floor(low / scale) - 1, math.ceil(high / scale) + 1):
        tie = fmt.round((k + 0.5) * scale)
        row += [x for x in (fmt.next_down(tie), tie, fmt.next_up(tie)) if low <= x <= high]
    return row


def tie_rows(fmt, steps):
    """Ties at scale 1 and at two awkward scales, symmetric and shifted ranges.
    Odd zero points show a program that adds the zero point before rounding."""
    half = steps / 2
    shifted = {255: (-101.0, 154.0), 15: (-5.0, 10.0), 254: (-100.0, 154.0), 14: (-5.0, 9.0),
               127: (-51.0, 76.0), 63: (-25.0, 38.0), 31: (-11.0, 20.0), 7: (-3.0, 4.0),
               3: (-1.0, 2.0), 2: (-1.0, 1.0)}[steps]
    symmetric = [ties(fmt, 1.0, -half, half)]
    skewed = [ties(fmt, 1.0, *shifted)]
    if fmt is F32 and steps % 2:
        for top in (3.0, 0.273939937):
            scale = f32(f32(top) / half)
            symmetric.append(ties(fmt, scale, -top, top))
            skewed.append(ties(fmt, scale, shifted[0] * scale, shifted[1] * scale))
    return [from_rows("symmetric", fmt.name, symmetric), from_rows("skewed", fmt.name, skewed)]


def all_patterns():
    """All 65,536 patterns of both 16-bit formats; a row holds one upper byte."""
    patterns = list(range(1 << 16))
    return [from_patterns("f16", "F16", (256, 256), patterns),
            from_patterns("bf16", "BF16", (256, 256), patterns)]


def nonfinite(dtype):
    """NaN of several payloads and signs, signalling too, infinities, and both."""
    fmt = FORMATS[dtype]
    inf = fmt.infinity_bits
    sign = 1 << (fmt.width - 1)
    quiet = inf | 1 << (fmt.precision - 2)
    signalling, negative = inf | 1, quiet | sign | 5
    number = [fmt.encode(x) for x in (0.0, 1.0, -2.5, 0.75, -0.0, 3.0, -1.0, 0.125)]
    rows = [
        [quiet, signalling, negative, quiet] * 2,
        [inf] * 8,
        [inf | sign] * 8,
        [inf, inf | sign, quiet, number[0], number[4], signalling, inf, negative],
        [inf] + number[1:],
        number[:7] + [inf | sign],
        number[:3] + [quiet] + number[4:7] + [signalling],
        [inf | sign, number[1], number[3], quiet, number[5], number[1], inf, number[7]],
    ]
    return [from_patterns("w", dtype, (8, 8), [bits for row in rows for bits in row])]


def scale_ties(fmt):
    """Rows whose scale lies a little above, on and below a value of the scale dtype,
    so that rounding to nearest would go down, stay and go up."""
    rows = []
    for bits in (0x3C01, 0x2E66, 0x3999, 0x2401) if fmt is F16 else (0x3F81, 0x3C23, 0x3DCC, 0x3B01):
        exact = fmt.decode(bits)
        gap = fmt.next_up(exact) - exact
        for part in (0.0, 0.01, 0.25, 0.5, 0.75, -0.01):
            top = f32((exact + part * gap) * 127.5)
            rows.append([top, -top, top / 2, -top / 3, top / 255, -top * 0.998, top * 0.996, 0.0])
    return [from_rows("w", "F32", rows)]


def one_of_each_dtype():
    """All 22 dtypes; 24 elements each, so that every width gives whole bytes."""
    random = Random("dtypes")
    tensors = []
    for dtype, width in container.WIDTHS.items():
        if dtype in FORMATS:
            tensors.append(weights("t." + dtype, dtype, (4, 6)))
        else:
            data = bytes(random.bits(1 if dtype == "BOOL" else 8) for _ in range(3 * width))
            tensors.append(Tensor("t." + dtype, dtype, (4, 6), data))
    return tensors


def mixed():
    """What a checkpoint may hold besides weights, under names that hurt."""
    tensors = [
        weights("layer.weight", "F32", (4, 6)),
        weights("layer.bias", "F32", (4,)),
        from_values("scalar", "F32", (), [0.7]),
        weights("double.weight", "F64", (2, 4)),
        weights("half.weight", "F16", (3, 4)),
        weights("half.bias", "F16", (3,)),
        Tensor("ids", "I64", (2, 2), bytes(range(32))),
        Tensor("empty.rows", "F32", (0, 4), b""),
        Tensor("empty.columns", "BF16", (3, 0), b""),
        Tensor("empty.vector", "I64", (0,), b""),
        Tensor("empty.bytes", "U8", (0, 2), b""),
        Tensor("eight", "F8_E4M3", (2, 4), bytes(range(0x38, 0x40))),
        Tensor("mask", "BOOL", (3,), b"\1\0\1"),
    ]
    for name in ("", "../x", 'a"b', "back\\slash", "\x01", "line\nfeed", "\U0001F600.weight", "caf\u00e9"):
        tensors.append(weights(name, "BF16", (2, 2)))
    for name in ("/etc/x", "C:\\x", "\x7f", "\u2028", "cafe\u0301", "Z", "a", "a.b", "a_",
                 "\x1b[31m", "\uffff", "\U00010000", "__metadata", "\\u0041", "{*}"):
        tensors.append(weights(name, "BF16", (2,)))
    return tensors


MIXED_METADATA = {
    "format": "np",
    "qplan.note": "dropped: the prefix belongs to the program",
    "qplan.": "dropped too",
    "qplan": "kept",
    "qplanner.note": "kept",
    "Zeta": "upper case sorts first",
    "": "empty key",
    "text": 'quote " backslash \\ slash / tab \t newline \n bell \x07 delete \x7f',
    "\U0001F600": "caf\u00e9 \u2028 \U0001F680",
    "modelspec.title": "{\"nested\": [\"json\", 1]}",
}


def block_names():
    """Names of a small transformer, for the selection options."""
    tensors = [weights("model.embed_tokens.weight", "BF16", (8, 8)),
               weights("model.norm.weight", "BF16", (8,)), weights("lm_head.weight", "BF16", (8, 8))]
    for layer in (0, 1, 2, 10):
        for part in ("q_proj", "k_proj", "o_proj"):
            tensors.append(weights("model.layers.%d.self_attn.%s.weight" % (layer, part), "BF16", (4, 8)))
        tensors.append(weights("model.layers.%d.input_layernorm.weight" % layer, "BF16", (8,)))
    return tensors


def canonical(tensors, metadata=None):
    return container.write_canonical(tensors, {"format": "pt"} if metadata is None else metadata)


def sources():
    """{name of the source: bytes of its file}"""
    files = {}
    for dtype in ("F32", "F16", "BF16", "F64"):
        tag = dtype.lower()
        files["plain-" + tag] = canonical(plain(dtype))
        files["nonfinite-" + tag] = canonical(nonfinite(dtype))
    files["odd-f32"] = canonical(odd("F32"))
    files["odd-bf16"] = canonical(odd("BF16"))
    files["rows15-f16"] = canonical(rows15("F16"))
    files["rows15-f64"] = canonical(rows15("F64"))
    files["wide-bf16"] = canonical(wide("BF16"))
    files["edge-f32"] = canonical(edge_f32())
    files["edge-f16"] = canonical(edge_f16())
    files["edge-bf16"] = canonical(edge_bf16())
    files["edge-f64"] = canonical(edge_f64())
    files["narrowing-f64"] = canonical(narrowing_f64())
    files["double-rounding-f64"] = canonical(double_rounding_f64())
    for fmt in (F32, F16, BF16, F64):
        for steps in (255, 254, 127, 63, 31, 15, 14, 7, 3, 2):
            if fmt is F32 or steps == 255:
                files["ties%d-%s" % (steps, fmt.name.lower())] = canonical(tie_rows(fmt, steps))
    files["patterns"] = canonical(all_patterns())
    files["scale-ties-f16"] = canonical(scale_ties(F16))
    files["scale-ties-bf16"] = canonical(scale_ties(BF16))
    files["dtypes"] = canonical(one_of_each_dtype())
    files["mixed"] = container.write_foreign(mixed(), MIXED_METADATA)
    files["names-bf16"] = container.write_foreign(block_names(), None)
    files["vectors-f32"] = canonical([weights("bias", "F32", (5,)), weights("gain", "F32", (3,))], {})
    files["no-tensors"] = container.write_foreign([], None)
    return files


# Cases -----------------------------------------------------------------------

# name | source | flags of quantize | flags of dequantize
TABLE = """
default               | plain-bf16 | |
default-int4          | wide-bf16  | --dtype int4 |

int8-t                | plain-f32  | --dtype int8 --per-tensor |
uint4-t               | plain-bf16 | --dtype uint4 --per-tensor |
uint8-t               | plain-f16  | --dtype uint8 --per-tensor |
int4-t                | plain-f64  | --dtype int4 --per-tensor --symmetric |
int8-c0               | plain-f32  | --dtype int8 --per-channel | --dtype f16
uint8-c0              | plain-f64  | --dtype uint8 --per-channel --axis 0 | --dtype f32
int4-c0               | plain-f16  | --dtype int4 --per-channel --symmetric |
uint4-c0              | plain-bf16 | --dtype uint4 --per-channel | --dtype f32
uint8-c1              | plain-bf16 | --dtype uint8 --per-channel --axis 1 --include b.* |
int4-c1               | plain-f64  | --dtype int4 --per-channel --axis 1 |
uint4-c1              | plain-f32  | --dtype uint4 --per-channel --axis 1 | --dtype bf16
int8-last             | plain-bf16 | --dtype int8 --per-channel --axis -1 |
uint8-last            | plain-f32  | --dtype uint8 --per-channel --axis -1 |
int8-g8               | plain-f64  | --dtype int8 --per-group 8 | --dtype bf16
int4-g8               | plain-f32  | --dtype int4 --per-group 8 --symmetric --scale-dtype f32 |
uint4-g8              | plain-bf16 | --dtype uint4 --per-group 8 |
int4-g1               | rows15-f16 | --dtype int4 --per-group 1 --symmetric --scale-dtype f32 |
int8-b4x4             | plain-f32  | --dtype int8 --block 4x4 |
int4-b4x4             | plain-f64  | --dtype int4 --block 4x4 --symmetric --scale-dtype f32 |

int8-c0-asym          | plain-bf16 | --asymmetric |
int4-g8-asym          | plain-f16  | --dtype int4 --per-group 8 --asymmetric --scale-dtype f32 |
uint8-c0-sym          | plain-f32  | --dtype uint8 --symmetric |
uint4-g32-sym         | plain-f64  | --dtype uint4 --per-group 32 --symmetric --scale-dtype f32 |
int8-c0-narrow        | plain-f32  | --narrow-range |
int8-c0-narrow-asym   | plain-f16  | --narrow-range --asymmetric |
int4-g8-narrow-asym   | plain-f64  | --dtype int4 --per-group 8 --narrow-range --asymmetric --scale-dtype f32 |
int8-scale-f16        | plain-f32  | --scale-dtype f16 |
int8-scale-bf16       | plain-bf16 | --scale-dtype bf16 |
int4-g32-scale-f16    | plain-bf16 | --dtype int4 --per-group 32 --scale-dtype f16 --symmetric |
scheme-text           | plain-f32  | --scheme int8:c-1:asym:narrow:bf16 |
scheme-text-block     | plain-bf16 | --scheme uint4:b2x16:sym:f16 |

zp-asymmetric-int8    | plain-bf16 | --zero-point asymmetric |
zp-asymmetric-uint8-sym | plain-f32 | --dtype uint8 --symmetric --zero-point asymmetric |
zp-asymmetric-uint4-sym | odd-bf16 | --dtype uint4 --per-channel --symmetric --zero-point asymmetric |

odd-int4-c0           | odd-f32    | --dtype int4 --per-channel --symmetric |
odd-uint4-c0          | odd-bf16   | --dtype uint4 --per-channel |
odd-int8-c2           | odd-f32    | --per-channel --axis 2 --include {cube,deep} |
odd-int8-b3x5         | odd-f32    | --block 3x5 |
odd-uint4-b3x5        | odd-bf16   | --dtype uint4 --block 3x5 |
odd-int4-ragged4      | odd-f32    | --dtype int4 --per-group 4 --indivisible ragged |
odd-uint4-ragged3     | odd-bf16   | --dtype uint4 --per-group 3 --indivisible ragged --scale-dtype f32 |
odd-int8-ragged128    | odd-f32    | --per-group 128 --indivisible ragged |
odd-int4-keep5        | odd-f32    | --dtype int4 --per-group 5 --indivisible keep --symmetric --scale-dtype f32 |
odd-group-is-row      | odd-f32    | --dtype uint4 --per-group 7 --include matrix --scale-dtype f32 |
int4-g5               | rows15-f16 | --dtype int4 --per-group 5 --symmetric --scale-dtype f32 |
uint4-g5              | rows15-f64 | --dtype uint4 --per-group 5 --scale-dtype f32 |
uint8-g15             | rows15-f64 | --dtype uint8 --per-group 15 | --dtype f16

default-int3          | wide-bf16  | --dtype int3 |
int2-t                | plain-bf16 | --dtype int2 --per-tensor --symmetric |
int2-g8               | plain-f32  | --dtype int2 --per-group 8 |
int2-g8-narrow        | plain-f64  | --dtype int2 --per-group 8 --narrow-range --symmetric --scale-dtype f32 |
int2-g8-asym-narrow   | plain-f16  | --dtype int2 --per-group 8 --asymmetric --narrow-range --scale-dtype f32 |
uint2-c0              | plain-f16  | --dtype uint2 --per-channel |
uint2-g4-sym          | plain-f32  | --dtype uint2 --per-group 4 --symmetric --scale-dtype f32 |
int3-c0               | plain-bf16 | --dtype int3 --per-channel --symmetric |
int3-g8-asym-bf16     | plain-f32  | --dtype int3 --per-group 8 --asymmetric --scale-dtype bf16 |
int3-c1-narrow        | plain-f64  | --dtype int3 --per-channel --axis 1 --narrow-range --symmetric |
uint3-b4x4            | plain-bf16 | --dtype uint3 --block 4x4 --scale-dtype f32 | --dtype f32
uint3-last-sym        | plain-f16  | --dtype uint3 --per-channel --axis -1 --symmetric |
int5-g32              | plain-f64  | --dtype int5 --per-group 32 | --dtype bf16
uint5-t               | plain-f32  | --dtype uint5 --per-tensor |
int6-b4x4             | plain-f16  | --dtype int6 --block 4x4 |
uint6-g8-f16          | plain-bf16 | --dtype uint6 --per-group 8 --scale-dtype f16 |
int7-c0-asym          | plain-f32  | --dtype int7 --per-channel --asymmetric |
uint7-c1              | plain-f64  | --dtype uint7 --per-channel --axis 1 |
zp-asymmetric-uint3   | odd-bf16   | --scheme uint3:c0:sym --zero-point asymmetric |

odd-int2-c0           | odd-f32    | --dtype int2 --per-channel --symmetric |
odd-uint2-ragged3     | odd-bf16   | --dtype uint2 --per-group 3 --indivisible ragged --scale-dtype f32 |
odd-int3-b3x5         | odd-f32    | --dtype int3 --block 3x5 --symmetric --scale-dtype f32 |
odd-uint3-keep5       | odd-bf16   | --dtype uint3 --per-group 5 --indivisible keep --scale-dtype f32 |
odd-int5-t            | odd-bf16   | --dtype int5 --per-tensor |
odd-uint6-ragged4     | odd-f32    | --dtype uint6 --per-group 4 --indivisible ragged |
odd-int7-c1           | odd-f32    | --dtype int7 --per-channel --axis -1 |
int3-g5               | rows15-f16 | --dtype int3 --per-group 5 --symmetric --scale-dtype f32 |
uint5-g5              | rows15-f64 | --dtype uint5 --per-group 5 |
uint7-g15             | rows15-f64 | --dtype uint7 --per-group 15 | --dtype f16

edge-int2             | edge-f32   | --dtype int2 --per-group 4 --symmetric --scale-dtype f32 |
edge-int2-narrow      | edge-f32   | --dtype int2 --per-channel --narrow-range --symmetric |
edge-uint2            | edge-f32   | --dtype uint2 --per-group 8 |
edge-int3-asym-bf16   | edge-f32   | --dtype int3 --per-channel --asymmetric --scale-dtype bf16 --exclude huge |
edge-f64-uint3        | edge-f64   | --dtype uint3 --per-channel --include w |
edge-bf16-int5        | edge-bf16  | --dtype int5 --per-group 4 |
edge-int8             | edge-f32   | |
edge-int8-asym        | edge-f32   | --asymmetric |
edge-int8-narrow      | edge-f32   | --narrow-range | --dtype bf16
edge-int8-bf16        | edge-f32   | --scale-dtype bf16 |
edge-int8-narrow-bf16 | edge-f32   | --narrow-range --scale-dtype bf16 |
edge-int8-f16         | edge-f32   | --scale-dtype f16 --exclude huge |
edge-uint8            | edge-f32   | --dtype uint8 | --dtype f16
edge-uint8-sym        | edge-f32   | --dtype uint8 --symmetric |
edge-int4             | edge-f32   | --dtype int4 --per-group 4 --symmetric --scale-dtype f32 |
edge-int4-asym        | edge-f32   | --dtype int4 --per-group 8 --asymmetric --scale-dtype f32 |
edge-uint4            | edge-f32   | --dtype uint4 --per-group 8 --scale-dtype f32 |
edge-uint8-t          | edge-f32   | --dtype uint8 --per-tensor |
edge-f16-int8         | edge-f16   | |
edge-f16-int8-f16     | edge-f16   | --scale-dtype f16 --narrow-range |
edge-bf16-int8        | edge-bf16  | |
edge-bf16-uint8       | edge-bf16  | --dtype uint8 --scale-dtype bf16 |
edge-bf16-uint4       | edge-bf16  | --dtype uint4 --per-group 4 --scale-dtype f32 | --dtype f16
edge-f64-int8         | edge-f64   | |
edge-f64-uint8        | edge-f64   | --dtype uint8 | --dtype f32
edge-f64-int4-bf16    | edge-f64   | --dtype int4 --per-group 4 --scale-dtype bf16 --include w --symmetric |
narrowing-int8        | narrowing-f64 | |
narrowing-int4        | narrowing-f64 | --dtype int4 --per-channel --symmetric |
double-rounding-bf16  | double-rounding-f64 | | --dtype bf16
double-rounding-f16   | double-rounding-f64 | | --dtype f16

ties-int8             | ties255-f32 | |
ties-int8-asym        | ties255-f32 | --asymmetric |
ties-int8-narrow      | ties254-f32 | --narrow-range |
ties-int8-narrow-asym | ties254-f32 | --narrow-range --asymmetric |
ties-uint8            | ties255-f32 | --dtype uint8 |
ties-uint8-sym        | ties255-f32 | --dtype uint8 --symmetric |
ties-int4             | ties15-f32  | --dtype int4 --per-channel --symmetric |
ties-int4-asym        | ties15-f32  | --dtype int4 --per-channel --asymmetric |
ties-int4-narrow      | ties14-f32  | --dtype int4 --per-channel --narrow-range --symmetric |
ties-uint4            | ties15-f32  | --dtype uint4 --per-channel |
ties-int2             | ties3-f32   | --dtype int2 --per-channel --symmetric |
ties-int2-asym        | ties3-f32   | --dtype int2 --per-channel --asymmetric |
ties-int2-narrow      | ties2-f32   | --dtype int2 --per-channel --narrow-range --symmetric |
ties-uint2-sym        | ties3-f32   | --dtype uint2 --per-channel --symmetric |
ties-int3             | ties7-f32   | --dtype int3 --per-channel --symmetric |
ties-uint3            | ties7-f32   | --dtype uint3 --per-channel |
ties-int5-asym        | ties31-f32  | --dtype int5 --per-channel --asymmetric |
ties-uint6-sym        | ties63-f32  | --dtype uint6 --per-channel --symmetric |
ties-int7             | ties127-f32 | --dtype int7 --per-channel |
ties-f16-int8         | ties255-f16 | |
ties-f16-uint8        | ties255-f16 | --dtype uint8 |
ties-bf16-int8        | ties255-bf16 | |
ties-f64-int8         | ties255-f64 | |

patterns-int8         | patterns   | --nonfinite saturate |
patterns-uint8        | patterns   | --nonfinite saturate --dtype uint8 |
patterns-int8-c1-asym | patterns   | --nonfinite saturate --per-channel --axis 1 --asymmetric |
patterns-int4-g8      | patterns   | --nonfinite saturate --dtype int4 --per-group 8 --symmetric --scale-dtype f32 |
patterns-uint4-b16x16 | patterns   | --nonfinite saturate --dtype uint4 --block 16x16 --scale-dtype f32 |
patterns-int3-g8      | patterns   | --nonfinite saturate --dtype int3 --per-group 8 --symmetric --scale-dtype f32 |
patterns-uint6-c1     | patterns   | --nonfinite saturate --dtype uint6 --per-channel --axis 1 |
patterns-int8-bf16    | patterns   | --nonfinite saturate --per-group 32 --scale-dtype bf16 | --dtype f32
patterns-f16-f16      | patterns   | --nonfinite saturate --scale-dtype f16 --narrow-range --include f16 | --dtype bf16

nonfinite-int8        | nonfinite-f32  | --nonfinite saturate |
nonfinite-uint8       | nonfinite-f16  | --nonfinite saturate --dtype uint8 |
nonfinite-uint8-sym   | nonfinite-bf16 | --nonfinite saturate --dtype uint8 --symmetric |
nonfinite-int4-asym   | nonfinite-f64  | --nonfinite saturate --dtype int4 --per-group 8 --asymmetric --scale-dtype f32 |
nonfinite-narrow      | nonfinite-f64  | --nonfinite saturate --narrow-range |
nonfinite-int2        | nonfinite-f32  | --nonfinite saturate --dtype int2 --per-channel --symmetric |
nonfinite-uint3       | nonfinite-f16  | --nonfinite saturate --dtype uint3 --per-group 4 |
nonfinite-int8-asym   | nonfinite-bf16 | --nonfinite saturate --asymmetric |

scale-up-f16          | scale-ties-f16  | --scale-dtype f16 |
scale-up-bf16         | scale-ties-bf16 | --scale-dtype bf16 |

int8-g32-e8m0         | plain-bf16 | --scheme int8:g32:e8m0 |
int4-g16-asym-e8m0    | plain-f32  | --scheme int4:g16:asym:e8m0 |
uint3-t-e8m0          | plain-f64  | --scheme uint3:t:e8m0 |
edge-int8-e8m0        | edge-f32   | --scale-dtype e8m0 |
edge-f64-int4-e8m0    | edge-f64   | --scheme int4:g4:e8m0 --include w |
int4-g16-f8e4m3       | plain-bf16 | --scheme int4:g16:f8e4m3 |
int8-c0-narrow-f8e4m3 | plain-f16  | --scheme int8:c0:narrow:f8e4m3 --zero-point asymmetric |
uint4-b4x4-f8e4m3     | plain-f64  | --scheme uint4:b4x4:f8e4m3 |
int2-t-f8e4m3         | odd-f32    | --scheme int2:t:f8e4m3 |
edge-int4-f8e4m3      | edge-f32   | --scheme int4:g4:f8e4m3 |
edge-f64-uint8-f8e4m3 | edge-f64   | --scheme uint8:c0:f8e4m3 --include w |
nonfinite-f8e4m3      | nonfinite-f64 | --nonfinite saturate --scheme int8:g8:f8e4m3 |

dtypes-int8           | dtypes     | |
dtypes-uint4          | dtypes     | --dtype uint4 --per-group 3 | --dtype f32
dtypes-int5           | dtypes     | --dtype int5 --per-channel |
mixed-int8            | mixed      | |
mixed-uint3           | mixed      | --dtype uint3 --per-group 2 --zero-point asymmetric |
mixed-uint4           | mixed      | --dtype uint4 --per-group 2 --zero-point asymmetric --scale-dtype f32 |
mixed-kept            | mixed      | --exclude * |
select-include        | names-bf16 | --include model.layers.*.weight --exclude *.k_proj.* |
select-class          | names-bf16 | --include model.layers.[01].* --dtype int4 --per-group 8 |
select-braces         | names-bf16 | --include *.{q,o}_proj.weight --include lm_head.weight |
select-question       | names-bf16 | --exclude model.layers.?.* --dtype uint8 |
nothing-quantized     | vectors-f32 | |
no-tensors            | no-tensors | |
"""


def cases():
    """[(name, source, quantize flags, dequantize flags)]"""
    rows = []
    for line in TABLE.split("\n"):
        if line:
            name, source, quantize, dequantize = (part.strip() for part in line.split("|"))
            rows.append((name, source, quantize.split(), dequantize.split()))
    return rows
