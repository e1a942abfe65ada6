"""C. Tensors and layout: ranges that cover the data exactly once, sizes, shapes and dtypes."""

import os
import re
import struct

from bench import INPUT, OUTPUT, Limits
from expect import OVERFLOW, hint, integers, no_hint, not_named, num, one_of, shape, tensor, words
from st import ckpt, dump, entry, f32, pattern, st, stream
from table import accept, all_kept, case, refuse, report_of


def layout(*entries, size):
    """A file with these header members over size bytes of data."""
    return st("{" + ",".join(entries) + "}", pattern(size))


def byte(file, offset):
    """A place in the data, counted from the data section or from the file."""
    return num(offset, file.limit + offset)


refuse("C1", layout(entry("t", "F32", [2], 8, 0), size=8), tensor("t"), 8, 0)
refuse("C1-empty", layout(entry("a", "F32", [2], 0, 8), entry("z", "F32", [0], 8, 4), size=8),
       tensor("z"), 8, 4)
A = entry("a", "F32", [2], 0, 8)
TIE = r"\btie|config"
LAPPED = layout(A, entry("b", "F32", [2], 4, 12), size=12)
refuse("C2", LAPPED, tensor("a"), tensor("b"), one_of(byte(LAPPED, 4), byte(LAPPED, 8)),
       no_hint(TIE))
refuse("C2-inside", layout(entry("a", "F32", [4], 0, 16), entry("b", "F32", [1], 4, 8), size=16),
       tensor("a"), tensor("b"))
refuse("C3", layout(A, A.replace('"a"', '"b"'), size=8), tensor("a"), tensor("b"),
       hint(TIE))
refuse("C4", layout(*[entry(f"t{i:05}", "F32", [40_000], 0, 160_000) for i in range(10_000)],
                    size=160_000), tensor("t00000"), tensor("t00001"))
refuse("C5-front", layout(entry("t", "F32", [1], 4, 8), size=8), tensor("t"), 4)
refuse("C5-middle", layout(A, entry("b", "F32", [1], 12, 16), size=16), tensor("a"), tensor("b"), 4)
refuse("C5-middle-late", layout(A, entry("b", "F32", [1], 8, 12), entry("c", "F32", [1], 19, 23),
                                size=23), tensor("b"), tensor("c"), 7)


def far(id, end, *names):
    """A tensor of 16 bytes that claims to end elsewhere."""
    refuse(id, layout(entry("t", "U8", [16], 0, end), size=16), tensor("t"), *names)


SMALL = layout(entry("t", "U8", [17], 0, 17), size=16)
refuse("C6-by-one", SMALL, tensor("t"), num(17, SMALL.limit + 17), num(16, len(SMALL)))
for name, n in (("2^60-1", 2 ** 60 - 1), ("2^60", 2 ** 60)):
    FILE = layout(entry("t", "U8", [n], 0, n), size=16)
    refuse(f"C6-{name}", FILE, tensor("t"), num(n, FILE.limit + n), num(16, len(FILE)),
           not_named(words("overflow")))
far("C6-2^63-1", 2 ** 63 - 1, 2 ** 63 - 1)
far("C6-2^64-1", 2 ** 64 - 1, one_of(2 ** 64 - 1, OVERFLOW))
WRAP = 2 ** 64 - layout(entry("t", "U8", [16], 0, 2 ** 64 - 1), size=16).limit   # 8 + N + WRAP is 0
far("C6-wraps", WRAP, one_of(WRAP, OVERFLOW))
far("C6-wraps-to-fit", WRAP + 16, one_of(WRAP + 16, OVERFLOW))

for name, end in (("more", 25), ("less", 23)):
    refuse(f"C7-one-{name}", layout(entry("t", "F32", [2, 3], 0, end), size=end), tensor("t"),
           "F32", shape(2, 3), 24, end)
refuse("C7-scalar", layout(entry("t", "F64", [], 0, 4), size=4), tensor("t"), "F64", 8, 4)
refuse("C7-empty", layout(entry("t", "F32", [0, 3], 0, 4), size=4), tensor("t"), "F32",
       shape(0, 3), 0, 4)

# --- C8 to C10: sizes that no integer holds ---

for row, dtype, dims, end in (
        ("C8", "U8", [2, 2 ** 64 - 2], 16), ("C8-2^63-1", "U8", [2, 2 ** 63 - 1], 16),
        ("C9", "F32", [2 ** 62 + 1, 4], 16), ("C9-bits", "F32", [2 ** 58 + 1, 1], 4),
        ("C9-2^60+1", "U8", [2 ** 60 + 1], 1), ("C9-2^64", "F32", [2 ** 32, 2 ** 32], 0),
        ("C10-zero-first", "F32", [0, 2 ** 63 - 1, 9], 0),
        ("C10-zero-last", "F32", [2 ** 63 - 1, 9, 0], 0),
        ("C10-zero-middle", "F32", [2 ** 63 - 1, 0, 9], 0)):
    refuse(row, layout(entry("t", dtype, dims, 0, end), size=end), tensor("t"), OVERFLOW)
accept("C10-in-range", ckpt({"t": ("F32", [0, 2 ** 40, 9], b"")}), all_kept)

# --- C11 to C18: unusual, and accepted ---

W = ("F32", [2, 2], f32(1, -2, 3, 4))
EMPTY = ("F32", [2, 0], b"")


def empty_kept(*names):
    def check(bench, source, output):
        for name in names:
            bench.check(name in output and name + "_scale" not in output, f"{name!r} has a scale")
        report = report_of(bench, bench.accepted("quantize", "--dry-run", "--json", INPUT))
        reasons = {t["name"]: t["reason"] for t in report["tensors"]} if report else {}
        for name in names:
            bench.check(reasons.get(name) == "empty", f"{name!r}: reason {reasons.get(name)!r}")
    return check


accept("C11-alone", ckpt({"z": EMPTY}), empty_kept("z"))
accept("C11-middle", ckpt({"a": W, "z": EMPTY, "c": W}), empty_kept("z"))
accept("C11-end", ckpt({"a": W, "z": EMPTY}), empty_kept("z"))
accept("C11-all", ckpt({"x": EMPTY, "y": ("BF16", [0, 3], b""), "z": ("I8", [0], b"")}),
       empty_kept("x", "y", "z"))
accept("C11-group", ckpt({"a": ("F32", [2, 128], None), "z": ("F32", [3, 0], b"")}),
       empty_kept("z"), args=["--dtype", "int4"])


@case("I7")
def no_tensors(bench):
    """Nothing to read, in each command: inspect, against itself, plan, the plan again, a copy."""
    bench.write(ckpt({}))
    bench.accepted("inspect", "--json", INPUT)
    bench.accepted("inspect", "--against", INPUT, INPUT)
    bench.accepted("plan", "-o", "p.json", INPUT, makes=["p.json"])
    bench.accepted("quantize", "--plan", "p.json", "-o", OUTPUT, INPUT, makes=[OUTPUT])
    bench.accepted("inspect", "--against", INPUT, OUTPUT)
    bench.accepted("dequantize", "-o", "back", OUTPUT, makes=["back"])


FILE = layout(A, entry("z", "F32", [0], 4, 4), size=8)
refuse("C12", FILE, tensor("z"), byte(FILE, 4))


def kept(name, *reasons):
    """The tensor is a copy, and the plan says why (one of the reasons where several hold)."""
    def check(bench, source, output):
        bench.check(name + "_scale" not in output, f"{name!r} was quantized")
        report = report_of(bench, bench.accepted("quantize", "--dry-run", "--json", INPUT))
        found = [t["reason"] for t in report["tensors"] if t["name"] == name] if report else []
        bench.check(len(found) == 1 and found[0] in reasons,
                    f"{name!r}: reason: expected one of {reasons}, found {found}")
    return check


def scaled(name, *dims):
    def check(bench, source, output):
        found = output[name + "_scale"].shape if name + "_scale" in output else None
        bench.check(found == dims, f"{name}_scale: shape: expected {dims}, found {found}")
        bench.check(name in output and output[name].shape == source[name].shape, f"{name!r}: shape")
    return check


def planned(name, scheme, *args):
    def check(bench, source, output):
        report = report_of(bench, bench.accepted("plan", INPUT, *args))
        found = [t["scheme"] for t in report["tensors"] if t["name"] == name] if report else []
        bench.check(found == [scheme], f"{name!r}: scheme: expected {scheme!r}, found {found}")
    return check


accept("C13", ckpt({"s": ("F32", [], f32(2.5)), "w": W}), kept("s", "rank 0"))
CONV, EXPERTS = ("F32", [2, 3, 2, 2, 2], None), ("BF16", [4, 3, 2], None)
LAST = ["--per-channel", "--axis", "-1"]
accept("C14-conv", ckpt({"w": CONV}), scaled("w", 2), planned("w", "int8:c0"))
accept("C14-conv-last", ckpt({"w": CONV}), scaled("w", 2), planned("w", "int8:c4", *LAST),
       args=LAST)
accept("C14-experts", ckpt({"w": EXPERTS}), scaled("w", 4), planned("w", "int8:c0"))
accept("C14-experts-last", ckpt({"w": EXPERTS}), scaled("w", 2), planned("w", "int8:c2", *LAST),
       args=LAST)
accept("C14-experts-group", ckpt({"w": ("BF16", [4, 3, 8], None)}), scaled("w", 4, 3, 2),
       args=["--per-group", "4"])
accept("C14-bias", ckpt({"b": ("F32", [4], None), "w": W}), kept("b", "rank 1"))
refuse("C14-axis", ckpt({"conv": CONV, "flat": W}), tensor("flat"), inspect="accepted",
       more_lines=True, args=["--per-channel", "--axis", "2"])
accept("C15", layout(entry("c", "F32", [2, 2], 24, 40), entry("a", "F32", [2], 16, 24),
                     entry("b", "F32", [2, 2], 0, 16), size=40))
accept("C16-tensor", ckpt({"u": ("U8", [1], b"\x07"), "w": W, "v": ("F64", [2, 3], None)}))
accept("C16-header", ckpt({"w1": W, "hh": ("F16", [3, 5], None)}, pad=0))
accept("C16-both", ckpt({"u": ("U8", [1], b"\x07"), "w": ("F32", [33, 65], None),
                         "h": ("BF16", [5, 7], None)}, pad=0))
for dtype, dims in (("F4", [3]), ("F4", [3, 1]), ("F6_E2M3", [3]), ("F6_E3M2", [2]),
                    ("F6_E2M3", [1])):
    name = "x".join(map(str, dims))
    refuse(f"C17-{dtype}-{name}", layout(entry("t", dtype, dims, 0, 2), size=2), tensor("t"),
           words(r"\bbits?\b|whole bytes?|multiple"))
for dtype, dims in (
        ("F4", [3, 2]), ("F6_E2M3", [4]), ("F6_E3M2", [2, 4]), ("F8_E8M0", [2, 3]), ("C64", [2, 2]),
        ("F8_E4M3FNUZ", [2, 2]), ("F8_E5M2FNUZ", [2, 2]), ("F8_E4M3", [2, 2]), ("F8_E5M2", [2, 2]),
        ("BOOL", [2, 2]), ("U8", [2, 2]), ("I8", [2, 2]), ("I16", [2, 2]), ("U16", [2, 2]),
        ("I32", [2, 2]), ("U32", [2, 2]), ("I64", [2, 2]), ("U64", [2, 2])):
    accept(f"C18-{dtype}", ckpt({"t": (dtype, dims, None), "w": W}),
           kept("t", "not a float", *["rank 1"] * (len(dims) == 1)))

# --- C19, C20: dtypes that qplan does not know, or cannot quantize ---

for name in ("Q4_K", "f32", "F128", "", "F32 "):
    refuse(f"C19-{name.strip() or 'empty'}{'-blank' if name.endswith(' ') else ''}",
           layout(entry("t", name, [2], 0, 8), size=8), tensor("t"), "dtype" if not name else name)
refuse("C19-64K", layout(entry("t", "Q" * 65536, [2], 0, 8), size=8), tensor("t"), "QQQQ")
refuse("C19-escape", layout(entry("t", "F\\u001b[31m32", [2], 0, 8), size=8), tensor("t"))

for dtype in ("BOOL", "I64", "C64", "F8_E4M3", "F4"):
    refuse(f"C20-include-{dtype}", ckpt({"t": (dtype, [2, 2], None), "w": W}), "t",
           inspect="accepted", args=["--include", "t"])


def wish(plan, name):
    """The plan with the tensor to be quantized, as a person would edit it."""
    for row in plan["tensors"]:
        row.pop("outputs", None)
        if row["name"] == name:
            row.update(action="quantize", scheme="int8:c0", calibrate="minmax")
    plan.pop("output", None)
    return plan


def edited_plan(dtype):
    @case(f"C20-plan-{dtype}")
    def run(bench):
        bench.write(ckpt({"t": (dtype, [2, 2], None), "w": W}))
        plan = report_of(bench, bench.accepted("plan", INPUT))
        if plan:
            bench.write(dump(wish(plan, "t")).encode(), "p.json")
            bench.refused_twice("--plan", "p.json",
                                names=[tensor("t"), one_of(dtype, "not a float")])


for DTYPE in ("BOOL", "I64", "C64", "F8_E4M3", "F4"):
    edited_plan(DTYPE)

# --- C21: groups that do not divide the row ---

HUNDRED = ckpt({"first": ("F32", [2, 100], None), "fits": ("F32", [2, 128], None),
                "second": ("BF16", [3, 100], None)})


def listed(text):
    """Anywhere on stderr: a list may follow the error line."""
    return hint(re.escape(text))


INDIVISIBLE = [listed("'first'"), listed("'second'"), hint(r"\b100\b"), hint(r"\b128\b"),
               listed("--indivisible")]
for name, flags in (("int4", ["--dtype", "int4"]), ("group", ["--per-group", "128"])):
    refuse(f"C21-{name}", HUNDRED, *INDIVISIBLE, inspect="accepted", more_lines=True, args=flags)
refuse("C21-group-over-row", ckpt({"w": ("F32", [4, 32], None)}), tensor("w"), hint(r"\b32\b"),
       hint(r"\b64\b"), listed("--indivisible"), inspect="accepted", more_lines=True,
       args=["--per-group", "64"])
refuse("C21-many", ckpt({f"t{i:02}": ("F16", [1, 5], None) for i in range(30)}), listed("'t00'"),
       listed("'t19'"), hint(r"\b(10|30)\b"), inspect="accepted", more_lines=True,
       args=["--per-group", "4"])
refuse("C21-zero", HUNDRED, "--per-group", exit=2, inspect="accepted", args=["--per-group", "0"])


def ragged(bench, source, output):
    """The last group is shorter; nothing is padded but the last nibble."""
    bench.check(output["first"].shape == (2, 50), f"first: {output['first'].shape}")
    bench.check(output["first_scale"].shape == (2, 1), f"scale: {output['first_scale'].shape}")


def first_kept(bench, source, output):
    bench.check(output["first"] == source["first"], "first: not kept")


accept("C21-ragged", HUNDRED, ragged, args=["--dtype", "int4", "--indivisible", "ragged"])
accept("C21-keep", HUNDRED, first_kept, args=["--dtype", "int4", "--indivisible", "keep"])

# --- C22, C23: data that memory does not hold ---


def two_gibibytes(path):
    stream(path, ["{" + entry("w", "F32", [1 << 14, 1 << 15], 0, 1 << 31) + "}"], 1 << 31)


@case("C22", limits=Limits(seconds=20, address_space=400_000 * 1024), slow=True, cost=20)
def larger_than_memory(bench):
    bench.write(two_gibibytes)
    for output, args in (("row.safetensors", ()), ("all.safetensors", ("--per-tensor",)),
                         ("col.safetensors", ("--per-channel", "--axis", "1"))):
        bench.accepted("quantize", "-o", output, INPUT, *args, makes=[output])
        bench.accepted("verify", output, INPUT)
        os.unlink(bench.path(output))


LONG = 3 << 20      # elements of a row of 12 MiB


def long_rows(path):
    """Two rows with their largest value at the very end, so that no piece alone gives the scale."""
    block = struct.pack("<4096f", *[((i * 2654435761) % 4001 - 2000) / 512 for i in range(4096)])
    with open(path, "wb") as f:
        f.write(st("{" + entry("w", "F32", [2, LONG], 0, 8 * LONG) + "}").data)
        for last in (50.0, -70.0):
            for _ in range(LONG // 4096 - 1):
                f.write(block)
            f.write(block[:-4] + struct.pack("<f", last))


def long_row(name, *args):
    @case(f"C23-{name}", limits=Limits(seconds=2), cost=3)
    def run(bench):
        bench.write(long_rows)
        free = "free.safetensors"
        bench.accepted("quantize", "-o", free, INPUT, *args, makes=[free])
        bench.accepted("quantize", "-o", OUTPUT, "--memory", "4M", INPUT, *args, makes=[OUTPUT])
        if os.path.exists(bench.path(OUTPUT)):
            bench.accepted("verify", OUTPUT, INPUT, "--memory", "4M")
            same = bench.bytes_of(OUTPUT) == bench.bytes_of(free)
            bench.check(same, "--memory changes the bytes")


long_row("row")
long_row("tensor", "--per-tensor")
long_row("column", "--per-channel", "--axis", "1")
long_row("asymmetric", "--dtype", "uint8")
long_row("group", "--dtype", "int4", "--per-group", str(LONG))


def sizes(text):
    """Every number in the text that may be a SIZE, in bytes."""
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = {int(n) * scale[unit.upper()] for n, unit in
             re.findall(r"(?<![\w.])(\d+) ?([KMGkmg]?)(?:i?B|bytes)?(?!\w)", text)}
    return sorted((found | integers(text)) - {1024})


@case("C23-least")
def least_memory(bench):
    """Below the least: exit 5.  The least that the message names works, one byte less does not."""
    bench.write(ckpt({"w": ("F32", [64, 64], None)}))
    into = ["quantize", "--force", "-o", OUTPUT, INPUT, "--memory"]
    result = bench.refused(*into, "1K", exit=5)
    works = [n for n in sizes(result.err) if n > 1024 and bench.run(*into, str(n)).exit == 0]
    if bench.check(works, f"no size in the message works: {result.err!r}"):
        bench.refused(*into, str(works[0] - 1), exit=5)


# --- C24: checkpoints that are quantized already ---

ONE, TWO = ("F32", [1], f32(1)), ("F32", [2], f32(1, 1))
HALF = ("F16", [2, 1], None)
QUANTIZED = {
    "int8-scale": {"a.weight": ("I8", [2, 4], None), "a.weight_scale": TWO},
    "uint8-scale": {"a.weight": ("U8", [2, 4], None), "a.weight_scale": TWO},
    "f8-scale": {"a.weight": ("F8_E4M3", [2, 4], None), "a.weight_scale": ONE},
    "f8-e5m2-scale": {"a.weight": ("F8_E5M2", [2, 4], None), "a.weight_scale": ONE},
    "f8-scale_inv": {"a.weight": ("F8_E4M3", [2, 4], None), "a.weight_scale_inv": ONE},
    "scales": {"a.weight": ("U32", [2, 4], None), "a.scales": HALF, "a.biases": HALF},
    "absmax": {"a.weight": ("U8", [8, 1], None), "a.weight.absmax": ONE},
    "qweight": {"a.qweight": ("I32", [2, 4], None)},
    "qweight-scales": {"a.qweight": ("I32", [2, 4], None), "a.scales": HALF},
    "blocks": {"a.experts.down_proj_blocks": ("U8", [2, 4, 1, 16], None),
               "a.experts.down_proj_scales": ("U8", [2, 4, 1], None)},
    "scale_weight": {"a.weight": ("F8_E4M3", [2, 4], None), "a.scale_weight": ONE,
                     "scaled_fp8": ("F8_E4M3", [2], None)},
    "weight_packed": {"a.weight_packed": ("I32", [2, 4], None)},
}
ALREADY = words("already quantized|is quantized")
for name, tensors in QUANTIZED.items():
    # beside a plain weight, so that there is something to do
    refuse(f"C24-{name}", ckpt({"other.weight": W, **tensors}), ALREADY, inspect="accepted")


@case("C24-native")
def native(bench):
    """What qplan wrote itself: the hint says how to get back."""
    bench.write(ckpt({"a.weight": W, "b": ("F32", [2], None)}), "source.safetensors")
    bench.quantized(source="source.safetensors", output=INPUT)
    bench.accepted("inspect", INPUT)
    bench.refused_twice(names=[INPUT, ALREADY, hint("qplan dequantize")])


@case("C24-native-metadata")
def native_metadata(bench):
    """Only the mark of the native layout: quantized already, or not a whole native file."""
    bench.write(ckpt({"a.weight": W}, meta={"qplan.layout": "1"}))
    bench.refused_twice(names=[INPUT, one_of(ALREADY, "qplan.tensors")])


accept("C24-not-clip", ckpt({"logit_scale": ("F32", [], f32(4.5)), "text.weight": W,
                             "text.position_ids": ("I64", [1, 7], None)}))
accept("C24-not-integer", ckpt({"ids": ("I64", [2, 2], None), "w": W}))

# --- C25: a plan of another checkpoint ---

HERE = {"a.weight": W, "b.weight": ("F32", [2, 3], None)}
SIZE = 1024


def sized(tensors, size):
    """A checkpoint of exactly this many bytes, by a metadata value that no plan looks at."""
    return ckpt(tensors, {"k": "v" * (size - len(ckpt(tensors, {"k": ""}, pad=0)))}, pad=0)


def other_checkpoint(name, tensors, *names, size=SIZE):
    @case(f"C25-{name}")
    def run(bench):
        bench.write(sized(HERE, SIZE), f"one/{INPUT}")
        bench.write(sized(tensors, size))
        bench.accepted("plan", "-o", "p.json", f"one/{INPUT}", makes=["p.json"])
        bench.refused_twice("--plan", "p.json", names=names)


other_checkpoint("name", {"a.weight": W, "c.weight": HERE["b.weight"]},
                 words("'b.weight'|'c.weight'"))
other_checkpoint("missing", {"a.weight": W}, tensor("b.weight"))
other_checkpoint("extra", {**HERE, "c.weight": W}, tensor("c.weight"))
other_checkpoint("shape", {"a.weight": W, "b.weight": ("F32", [3, 2], None)}, tensor("b.weight"),
                 words("shape"))
other_checkpoint("dtype", {"a.weight": W, "b.weight": ("I32", [2, 3], None)}, tensor("b.weight"),
                 words("dtype|type"))
other_checkpoint("bytes", HERE, SIZE, SIZE + 8, size=SIZE + 8)


@case("C25-same")
def same_checkpoint(bench):
    """The plan fits the checkpoint it was made for."""
    bench.write(ckpt(HERE))
    bench.accepted("plan", "-o", "p.json", INPUT, makes=["p.json"])
    bench.quantized("--plan", "p.json")
