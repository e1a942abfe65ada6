"""F. Values: NaN, infinities, zeros, subnormals, extremes and ties, judged by exact arithmetic."""

import math
import os
import struct

import model
from bench import INPUT, OUTPUT, Limits
from expect import hint, shape, tensor
from model import Scheme
from st import bf16, ckpt, entry, f16, f32, f64, st, u16, u32, u64
from table import accept, case, refuse, report_of

NAN, INF = math.nan, math.inf
PACK = {"F32": f32, "F64": f64, "F16": f16}
INT8, UINT8 = Scheme(), Scheme(signed=False, symmetric=False)
INT8_ASYM, UINT8_SYM = Scheme(symmetric=False), Scheme(signed=False)
INT4 = Scheme(bits=4, grain=("g", 4))
UINT4 = Scheme(bits=4, signed=False, symmetric=False, grain=("g", 4))
NARROW = Scheme(narrow=True)
ALL = {"int8": INT8, "uint8": UINT8, "int8-asym": INT8_ASYM, "uint8-sym": UINT8_SYM, "int4": INT4,
       "uint4": UINT4, "narrow": NARROW, "tensor": Scheme(grain=("t",)),
       "column": Scheme(grain=("c", 1)), "block": Scheme(grain=("b", 2, 3)),
       "scale-f16": Scheme(scale="F16"), "scale-bf16": Scheme(scale="BF16")}

ONLY_DATA = {"inspect": "accepted", "dry_run": "accepted"}

# --- F1, F2: not finite, refused ---


def spoiled(dtype, dims, places, bad):
    """A tensor of ones with these bytes at these flat indices."""
    one = PACK[dtype](1) if dtype in PACK else u16(0x3f80)
    cells = [one] * math.prod(dims)
    for i in places:
        cells[i] = bad
    return ckpt({"first": ("F32", [2, 8], None), "w": (dtype, dims, b"".join(cells))})


def refuse_value(id, dtype, bad, places=(19,), dims=(4, 8), args=()):
    first, count = min(places), len(places)
    at = [first // math.prod(dims[k + 1:]) % n for k, n in enumerate(dims)]
    refuse(id, spoiled(dtype, dims, places, bad), tensor("w"), first, shape(*at), count,
           **ONLY_DATA, args=args)


BF16_NAN = u16(0x7fc0)
refuse_value("F1-f32", "F32", f32(NAN))
refuse_value("F1-f64", "F64", f64(NAN))
refuse_value("F1-f16", "F16", f16(NAN))
refuse_value("F1-bf16", "BF16", BF16_NAN)
refuse_value("F1-first", "F32", f32(NAN), places=[0])
refuse_value("F1-last", "F32", f32(NAN), places=[31])
refuse_value("F1-count", "F32", f32(NAN), places=[13, 14, 20, 25, 30])
refuse_value("F1-rank-4", "F32", f32(NAN), places=[101, 103, 107], dims=(3, 4, 5, 6))
FLAGS = {"per-tensor": ["--per-tensor"], "column": ["--per-channel", "--axis", "1"],
         "group": ["--per-group", "4"], "block": ["--block", "2x3"],
         "int4": ["--dtype", "int4", "--per-group", "8"], "uint8": ["--dtype", "uint8"]}
for name, flags in FLAGS.items():
    refuse_value(f"F1-{name}", "F32", f32(NAN), places=[13, 14, 20], args=flags)
for threads in ("1", "2", "7"):
    # far apart: other rows, other workers, and still the first in flat order
    refuse_value(f"F1-threads-{threads}", "BF16", BF16_NAN, dims=(600, 700),
                 places=[70_007, 70_008, 200_000, 350_001, 419_999], args=["--threads", threads])
accept("F1-kept", ckpt({"bias": ("F32", [2], f32(NAN, INF)), "w": ("F32", [1, 2], f32(1, 2))}))

for name, dtype, bits in (
        ("f32-inf", "F32", u32(0x7f800000)), ("f32-minus-inf", "F32", u32(0xff800000)),
        ("f32-signalling", "F32", u32(0x7f800001)),
        ("f32-signalling-minus", "F32", u32(0xffbfffff)),
        ("f32-minus-nan", "F32", u32(0xffc00000)),
        ("f16-inf", "F16", u16(0x7c00)), ("f16-minus-inf", "F16", u16(0xfc00)),
        ("f16-signalling", "F16", u16(0x7c01)),
        ("bf16-inf", "BF16", u16(0x7f80)), ("bf16-minus-inf", "BF16", u16(0xff80)),
        ("bf16-signalling", "BF16", u16(0x7f81)),
        ("f64-inf", "F64", u64(0x7ff0000000000000)),
        ("f64-signalling", "F64", u64(0x7ff0000000000001))):
    refuse_value(f"F2-{name}", dtype, bits)


@case("F2-mixed")
def mixed(bench):
    """NaN and infinities are counted together."""
    values = [1.0] * 32
    values[9], values[18], values[27] = INF, NAN, -INF
    bench.write(ckpt({"w": ("F32", [4, 8], f32(*values))}))
    bench.refused_twice(names=[tensor("w"), 9, shape(1, 1), 3])


# --- F3 to F12: by exact arithmetic ---


def exact(id, dtype, dims, raw, scheme, extra=()):
    """Codes, scales and zero points are those of the model."""
    def check(bench, source, output):
        for suffix, (t, dims_now, data) in model.quantize(dtype, dims, raw, scheme).items():
            found = output.tensors.get("w" + suffix)
            if not bench.check(found, f"w{suffix} is missing"):
                continue
            bench.check((found.dtype, found.shape) == (t, dims_now),
                        f"w{suffix}: expected {t} {dims_now}, found {found.dtype} {found.shape}")
            bench.check(found.data == data, f"w{suffix}: {difference(data, found.data)}")
    accept(id, ckpt({"w": (dtype, dims, raw)}), check, args=[*scheme.flags(), *extra])


def difference(expected, found):
    i = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), None)
    near = slice(max(0, (i or 0) - 4), (i or 0) + 8)
    return f"byte {i} differs: expected ..{expected[near].hex()}.., found ..{found[near].hex()}.."


def exact_all(id, dtype, dims, raw, schemes=ALL, extra=()):
    for name, scheme in schemes.items():
        exact(f"{id}-{name}", dtype, dims, raw, scheme, extra)


WILD = f32(1, INF, -INF, NAN, -3, 2, NAN, 0.5, INF, INF, NAN, -INF, -0.0, 0.25, -0.75, NAN)
exact_all("F3", "F32", (4, 4), WILD, extra=["--nonfinite", "saturate"])
exact("F3-f16", "F16", (2, 4), u16(0x7c00, 0xfc00, 0x7e00, 0x3c00, 0x7c01, 0xbc00, 1, 0xfc00),
      INT8, ["--nonfinite", "saturate"])


@case("F3-report")
def nonfinite_report(bench):
    """Counted; the same bytes at every thread count and instruction set."""
    bench.write(ckpt({"w": ("F32", (4, 4), WILD), "v": ("F32", (2, 2), f32(1, 2, 3, NAN))}))
    how = ["--nonfinite", "saturate"]
    report = report_of(bench, bench.accepted("quantize", *how, "--verify", "--json", "-o", OUTPUT,
                                             INPUT, makes=[OUTPUT]))
    counts = {t["name"]: t["nonfinite"] for t in report["tensors"]} if report else None
    bench.check(counts == {"v": 1, "w": 9}, f"nonfinite: expected v 1, w 9, found {counts}")
    bench.check(report and report["totals"]["nonfinite"] == 10, "totals.nonfinite: expected 10")
    same_bytes(bench, how)


def same_bytes(bench, args=()):
    """One and the same file for any thread count, with vector instructions or without."""
    runs = [(["--threads", str(n)], {}) for n in (1, 2, 3, 7)] + [([], {"QPLAN_CPU": "scalar"})]
    seen = {}
    for i, (flags, env) in enumerate(runs):
        name = f"run{i}.safetensors"
        bench.accepted("quantize", "-o", name, INPUT, *args, *flags, env=env, makes=[name])
        if os.path.exists(bench.path(name)):
            seen[bench.bytes_of(name)] = [*flags, *env.values()]
    bench.check(len(seen) <= 1, f"the bytes depend on {list(seen.values())}")


exact_all("F4-tensor", "F32", (4, 8), f32(*[0] * 32))
exact_all("F4-row", "F32", (3, 4), f32(1, -2, 3, 4, 0, 0, 0, 0, -5, 6, 7, 8))
exact_all("F4-group", "F32", (2, 8), f32(0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, -8, 0, 0, 0, 0))
exact_all("F4-column", "F32", (4, 3), f32(0, 1, 0, 0, 2, 0, 0, -3, 0, 0, 4, 0))
for dtype, zero in (("F16", f16(0)), ("F64", f64(0))):
    exact(f"F4-{dtype}", dtype, (2, 4), zero * 8, INT8)

exact_all("F5", "F32", (4, 4), f32(*[3] * 4, *[-3] * 4, *[1e-3] * 4, *[-0.1] * 4))
exact_all("F5-tensor", "F32", (2, 4), f32(*[-0.3] * 8))
exact("F5-f64", "F64", (2, 4), f64(*[0.1] * 4, *[-1 / 3] * 4), INT8)

exact_all("F6-minus-zero", "F32", (2, 4), f32(*[-0.0] * 8))
exact_all("F6-mixed", "F32", (2, 4), f32(0, -0.0, -0.0, 0, -0.0, 0, 0, -0.0))


@case("F6-order")
def zero_order(bench):
    """The order of the zeros does not reach the bytes."""
    outputs = []
    for i, row in enumerate(((0.0, -0.0, 1.0, 0.0), (-0.0, 0.0, 1.0, -0.0))):
        bench.write(ckpt({"w": ("F32", [1, 4], f32(*row))}), f"in{i}.safetensors")
        bench.quantized("--asymmetric", source=f"in{i}.safetensors", output=f"out{i}.safetensors")
        if os.path.exists(bench.path(f"out{i}.safetensors")):
            outputs.append(bench.bytes_of(f"out{i}.safetensors"))
    bench.check(len(set(outputs)) == 1, "the bytes depend on the order of the zeros")


FLT_MIN, TINY, FLT_MAX = 2.0 ** -126, 2.0 ** -149, (2 - 2.0 ** -23) * 2.0 ** 127
SUBNORMAL = f32(*[1e-40] * 4, TINY, -TINY, 0, TINY,     # below half of the least scale
                0.75 * FLT_MIN, -0.6 * FLT_MIN, 0.5 * FLT_MIN, 0.4 * FLT_MIN,
                100 * FLT_MIN, -1.5 * FLT_MIN, 0.75 * FLT_MIN, 2.5 * FLT_MIN)
exact_all("F7", "F32", (4, 4), SUBNORMAL)
for name, scheme in (("f32", INT8), ("f16", Scheme(scale="F16"))):
    exact(f"F7-f16-scale-{name}", "F16", (2, 4),
          u16(1, 2, 3, 0x83ff, 0x3ff, 0x200, 0x8001, 0), scheme)
exact("F7-bf16", "BF16", (2, 4), u16(1, 2, 0x7f, 0x807f, 0x40, 0x41, 0x8001, 0), INT8)
exact("F7-f64", "F64", (2, 4), f64(5e-324, -5e-324, 1e-310, 0, 1e-39, -1e-38, 1e-40, 1e-36), INT8)

EXTREME = f32(FLT_MAX, -FLT_MAX, FLT_MAX / 2, 1, -FLT_MAX, -FLT_MAX, 0, 5,
              FLT_MAX, FLT_MAX, 3, FLT_MAX / 3, FLT_MAX * 0.75, -FLT_MAX * 0.5, 1e30, -1e38)
exact_all("F8", "F32", (4, 4), EXTREME, {k: v for k, v in ALL.items() if k != "scale-f16"})
exact("F8-bf16", "BF16", (1, 4), u16(0x7f7f, 0xff7f, 0x3f80, 0), INT8_ASYM)
exact("F8-f16", "F16", (1, 4), f16(65504, -65504, 1, 0), INT8_ASYM)

# --- F9: scales that their dtype cannot hold ---

SMALL = f32(1e-7, -2e-7, 3e-6, 0, 1e-4, 2e-3, -5e-3, 7e-3)
exact("F9-raised-f16", "F32", (2, 4), SMALL, Scheme(scale="F16"))
exact("F9-raised-f16-asym", "F32", (2, 4), SMALL, Scheme(scale="F16", symmetric=False))
exact("F9-raised-bf16", "F32", (1, 4), f32(1e-38, -2e-38, 0, 1e-40), Scheme(scale="BF16"))
exact("F9-raised-f64", "F64", (1, 4), f64(1e-300, -2e-300, 0, 1e-40), INT8)
exact("F9-largest-f16", "F32", (1, 2), f32(65504 * 127.5, 1), Scheme(scale="F16"))
LARGE = ckpt({"a": ("F32", (1, 2), f32(1, 2)), "w": ("F32", (3, 2), f32(1, 2, 3, 1e8, -1, 2))})
refuse("F9-too-large", LARGE, tensor("w"), 1, hint("--scale-dtype f32"), **ONLY_DATA,
       args=["--scale-dtype", "f16"])
refuse("F9-too-large-by-a-bit", ckpt({"w": ("F32", (1, 2), f32(65504 * 127.5 + 1, 1))}),
       tensor("w"), hint("--scale-dtype f32"), **ONLY_DATA, args=["--scale-dtype", "f16"])
refuse("F9-too-large-f64", ckpt({"w": ("F64", (2, 2), f64(1, 2, 1e300, 4))}), tensor("w"), 1,
       **ONLY_DATA)

# --- F10, F11: ties and their neighbours ---


def tie_row(top, low, high):
    """Every half between low and high; top makes the scale exactly 1."""
    return [top, -top] + [k + 0.5 for k in range(low, high)]


TIES8 = tie_row(127.5, -127, 127) + [0, 127, -127, 1e-3]
TIES4 = tie_row(7.5, -7, 7)
exact("F10-int8", "F32", (1, len(TIES8)), f32(*TIES8), INT8)
exact("F10-int8-f64", "F64", (1, len(TIES8)), f64(*TIES8), INT8)
exact("F10-int8-f16", "F16", (1, len(TIES8)), f16(*TIES8), INT8)
exact("F10-int8-column", "F32", (len(TIES8), 1), f32(*TIES8), Scheme(grain=("c", 1)))
exact("F10-uint8-sym", "F32", (1, len(TIES8)), f32(*TIES8), UINT8_SYM)
exact("F10-narrow", "F32", (1, 256), f32(*tie_row(127, -127, 127)), NARROW)
exact("F10-int4", "F32", (1, len(TIES4)), f32(*TIES4), Scheme(bits=4, grain=("c", 0)))
for name, low in (("even", -100.5), ("odd", -101.5), ("none", -0.5)):
    row = [low + k for k in range(256)]
    exact(f"F10-uint8-{name}", "F32", (1, 256), f32(*row), UINT8)
    exact(f"F10-int8-asym-{name}", "F32", (1, 256), f32(*row), INT8_ASYM)
exact("F10-scaled", "F32", (1, len(TIES8)), f32(*[v * 2.0 ** -20 for v in TIES8]), INT8)


def ulps(value):
    """The value and its two neighbours in float32."""
    bits = struct.unpack("<I", f32(value))[0]
    return [struct.unpack("<f", u32(bits + d))[0] for d in (-1, 0, 1)]


NEAR8 = [v for k in range(-127, 127) for v in ulps(k + 0.5)]
NEAR_CLIP = [v for end in (127.0, 127.5, -127.5, -127.0) for v in ulps(end)]
for name, top in (("unit", 127.5), ("above", ulps(127.5)[2]), ("third", 42.5), ("odd", 99.7)):
    raw = [top, -top] + [v * (top / 127.5) for v in NEAR8 + NEAR_CLIP[:9] if abs(v) <= 127.5]
    exact(f"F11-{name}", "F32", (1, len(raw)), f32(*raw), INT8)
    exact(f"F11-{name}-asym", "F32", (1, len(raw)), f32(*raw), UINT8)
exact("F11-clip", "F32", (1, len(NEAR_CLIP)), f32(*NEAR_CLIP), INT8)

# --- F12: small and ragged shapes ---

for dims in ((5, 1), (1, 5), (1, 1), (2, 7), (3, 9), (1, 33), (2, 3, 5), (2, 1, 1, 3)):
    raw = f32(*[((i * 7919) % 41 - 20) / 3 for i in range(math.prod(dims))])
    name = "x".join(map(str, dims))
    exact_all(f"F12-{name}", "F32", dims, raw)
    for group in sorted({1, 2, dims[-1], dims[-1] + 1}):
        for kind, bits in (("int8", 8), ("int4", 4)):
            exact(f"F12-{name}-g{group}-{kind}", "F32", dims, raw,
                  Scheme(bits=bits, grain=("g", group)))

THIRDS = [((i * 7919) % 41 - 20) / 8 for i in range(27)]
for dtype, raw in (("F16", f16(*THIRDS)), ("BF16", bf16(*THIRDS)),
                   ("F64", f64(*[v / 3 for v in THIRDS]))):
    exact_all(f"F12-{dtype}", dtype, (3, 9), raw)

# --- F13 to F15: larger data; verify is the judge ---

EVERY = u16(*range(65536))
for dtype, infinity in (("F16", 0x7c00), ("BF16", 0x7f80)):
    for name, flags in (("int8", []), ("uint8", ["--dtype", "uint8"]),
                        ("int4", ["--dtype", "int4"]), ("tensor", ["--per-tensor"]),
                        ("asym", ["--asymmetric"])):
        accept(f"F13-{dtype}-{name}", ckpt({"w": (dtype, [256, 256], EVERY)}),
               args=["--nonfinite", "saturate", *flags])
    finite = [b for b in range(65536) if b & 0x7fff < infinity]
    accept(f"F13-{dtype}-finite", ckpt({"w": (dtype, [2, len(finite) // 2], u16(*finite))}))
    refuse_value(f"F13-{dtype}-refused", dtype, u16(infinity))

EQUAL = (1 << 24) + 1


def equal_values(bits):
    def write(path):
        with open(path, "wb") as f:
            f.write(st("{" + entry("w", "BF16", [1, EQUAL], 0, 2 * EQUAL) + "}").data)
            block = u16(bits) * (1 << 16)
            for _ in range(EQUAL >> 16):
                f.write(block)
            f.write(u16(bits))
    return write


@case("F14-values", limits=Limits(seconds=2), cost=3)
def counted_values(bench):
    bench.write(equal_values(0x3f80))
    bench.accepted("quantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])
    report = report_of(bench, bench.accepted("verify", "--json", OUTPUT, INPUT))
    found = report and report["totals"]["elements"]
    bench.check(found == EQUAL, f"elements: expected {EQUAL}, found {found}")


@case("F14-nans", limits=Limits(seconds=2), cost=3)
def counted_nans(bench):
    """2^24 + 1 has no float32."""
    bench.write(equal_values(0x7fc0))
    bench.refused_twice(names=[tensor("w"), 0, EQUAL])
    report = report_of(bench, bench.accepted("quantize", "--nonfinite", "saturate", "--verify",
                                             "--json", "-o", OUTPUT, INPUT, makes=[OUTPUT]))
    found = report and report["totals"]["nonfinite"]
    bench.check(found == EQUAL, f"nonfinite: expected {EQUAL}, found {found}")


SUMS = {"cancelling": [1e8, 1, -1e8, 1, 1e-8, -1, 3e7, -3e7],
        "growing": [2.0 ** (i % 40 - 20) for i in range(80)],
        "one-huge": [1e30] + [1.0] * 4095}


def hard_sum(name, values):
    @case(f"F15-{name}", cost=1)
    def run(bench):
        raw = f32(*values) * (300_000 // len(values) + 1)
        bench.write(ckpt({"v": ("F32", [512, 513], raw[8:8 + 4 * 512 * 513]),
                          "w": ("F32", [64, 4096], raw[:4 * 64 * 4096])}))
        same_bytes(bench)
        same_bytes(bench, ["--force", "--asymmetric", "--per-tensor"])
        reports = {bench.accepted("verify", "--json", "--threads", n, "run0.safetensors", INPUT).out
                   for n in ("1", "2", "3", "7")}
        bench.check(len(reports) == 1, "verify --json depends on the number of threads")


for name, values in SUMS.items():
    hard_sum(name, values)
