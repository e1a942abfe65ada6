"""Q. Files that say they are quantized: every claim and every part wrong in every way, through the
four commands that read them.

Each layout has a class (layout_NAME.py) that makes honest files and knows where their claims are.
The first row asks the program which layouts there are: one without a class fails by its name.
"""

import copy
import json
import math
import re
import struct

import model
from bench import INPUT, OUTPUT
from expect import shape, tensor, words
from layout_folder import PLAIN
from layout_qplan import ALL, BAD_SCALES, HONEST, ONLY_PROOF, OTHER_SOURCE, READ, Fault
from layouts import LAYOUTS
from st import ckpt, f32
from table import accept, add, case

SOURCE = "s.safetensors"
COMMANDS = {"inspect": ["inspect", INPUT], "against": ["inspect", "--against", SOURCE, INPUT],
            "verify": ["verify", INPUT, SOURCE], "dequantize": ["dequantize", "-o", OUTPUT, INPUT]}
SAME_SIZE = {1: ("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 2: ("F16", "BF16", "I16"),
             4: ("F32", "I32", "U32"), 8: ("I64", "U64", "F64")}
WIDTH = {name: n for n, names in SAME_SIZE.items() for name in names}


def judge(bench, command, exit, names):
    """The exit code, the words of the message, and no file touched or made by a failing run."""
    args = COMMANDS[command]
    if exit == 3:
        bench.refused(*args, names=(INPUT, *names))
    elif exit == 1:
        before = bench.snapshot()
        result = bench.run(*args)
        bench.check(result.exit == 1, f"{args}: exit: expected 1, found {result.exit}")
        bench.check(b"NOT PROVEN" in result.out, f"{args}: the report does not say NOT PROVEN")
        bench.message(result, names, False)
        bench.untouched(command, before, bench.snapshot())
    elif exit == 0:
        bench.accepted(*args, makes=[OUTPUT] if command == "dequantize" else [])


def over_an_old_output(bench, file, names):
    """What dequantize refuses also stays as it is with --force."""
    bench.old_output(file.old_output)
    bench.refused("dequantize", "--force", "-o", OUTPUT, INPUT, names=(INPUT, *names))


def run_fault(fault, honest):
    def run(bench):
        exits, spoiled = fault.exits, honest()
        fault.spoil(spoiled)
        spoiled.write(bench, INPUT, SOURCE)
        for command in COMMANDS:
            judge(bench, command, exits.get(command, 3), fault.names)
        if exits.get("dequantize", 3) == 3:
            over_an_old_output(bench, spoiled, fault.names)
    return run


def add_fault(layout, scheme, fault, **how):
    row, _, rest = fault.id.partition("-")
    add(f"{row}-{layout.name}-{scheme}-{rest}",
        run_fault(fault, lambda: layout.honest(scheme, **how)))


# --- Q1: honest files, and the layouts that there are ---


@case("Q1-layouts")
def layouts_have_rows(bench):
    bench.write(ckpt({"w": ("F32", [2, 2], f32(1, 2, 3, 4))}))
    text = bench.run("quantize", "--format", "none of these", INPUT).err
    found = re.search(r"expected (.*), found", text)
    for name in found.group(1).split(", ") if found else ["no layout at all"]:
        bench.check(name in [layout.name for layout in LAYOUTS],
                    f"the layout {name}: expected a class in tests/fault/"
                    f"layout_{name.replace('-', '_')}.py")


def honest(layout, scheme, dtype):
    nothing = Fault(f"Q1-{dtype}", lambda file: None, (), HONEST)
    add_fault(layout, scheme, nothing, dtype=dtype)


def lean(layout):
    """What other tools leave out of config.json, or write in another way."""
    for scheme, spoils in layout.lean.items():
        for name, spoil in spoils.items():
            add_fault(layout, scheme, Fault(f"Q1-lean-{name}", spoil, (), HONEST))


def keeps_nul(bench, source, output):
    for key, value in source.meta.items():
        bench.check(output.meta.get(key) == value, f"metadata {key!r} is not kept")


NUL_KEYS = {"k": "v", "k\0": "v", "k\0evil": "v\0w", "format\0x": "y", "\0": "\0", "q": "\0"}
accept("Q7-honest-nul", ckpt({"w": ("F32", [2, 2], f32(1, 2, 3, 4))}, NUL_KEYS), keeps_nul)

# --- Q4, Q5: stored tensors of another type and shape, or not there ---


def change(name, dtype=None, dims=None, raw=None):
    def spoil(file):
        old = file.tensors[name]
        file.tensors[name] = (dtype or old[0], dims or old[1], old[2] if raw is None else raw)
    return spoil


def shapes(dims):
    """Other shapes of as many elements."""
    yield from {(*dims, 1), (1, *dims), (math.prod(dims),), tuple(reversed(dims)),
                (math.prod(dims), 1)} - {tuple(dims)}


def wrong_parts(layout, file):
    for role, name in file.parts.items():
        dtype, dims, raw = file.tensors[name]
        exits = layout.gone(file, role)
        yield Fault(f"Q2-{role}-gone", lambda f, name=name: f.tensors.pop(name),
                    () if exits else (file.stem,), exits)
        if not file.records:            # it is told by shapes, which then have another meaning
            named = other_shape = (file.stem,)
        else:
            named, other_shape = (tensor(name),), (tensor(name), words("shape|rank|extents"))
        for other in SAME_SIZE[WIDTH[dtype]]:
            if other != dtype:
                exits = layout.retyped(file, role, other)
                told = (*named, dtype, other) if file.records else named
                yield Fault(f"Q4-{role}-{other}", change(name, other),
                            () if exits == PLAIN else told, exits)
        if role == "scale":
            yield Fault("Q4-scale-F64", change(name, "F64", raw=bytes(8 * math.prod(dims))), named)
        for i, other in enumerate(sorted(shapes(dims))):
            yield Fault(f"Q5-{role}-{i}", change(name, dims=other), other_shape,
                        layout.reshaped(file, role, other))
        if dims:
            wide = (dims[0] + 1, *dims[1:])
            more = raw + raw[:len(raw) // dims[0]]
            none = (0, *dims[1:])
            yield Fault(f"Q5-{role}-none", change(name, dims=none, raw=b""), named,
                        layout.reshaped(file, role, none))
            yield Fault(f"Q5-{role}-more", change(name, dims=wide, raw=more), named,
                        layout.reshaped(file, role, wide))


# --- Q8, Q9: scales and zero points ---

BAD_BIASES = {"nan": math.nan, "inf": math.inf, "minus-inf": -math.inf}


def wrong_parameters(layout, file):
    n = layout.n_sets(file)
    for where, i in {"first": 0, "last": n - 1}.items():
        for name, value in layout.bad_scales(file).items():
            yield Fault(f"Q8-{where}-{name}", lambda f, i=i, v=value: layout.set_scale(f, i, v),
                        (tensor(file.parts["scale"]), words(f"bad scale of set {i}\\b")))
        for name, value in BAD_SCALES.items() if "factor" in file.parts and i == 0 else ():
            yield Fault(f"Q8-factor-{name}",
                        lambda f, v=value: layout.set_float(f, f.parts["factor"], 0, v),
                        (tensor(file.parts["factor"]), words("bad factor")))
        for name, value in BAD_BIASES.items() if file.scheme.bias else ():
            yield Fault(f"Q9-{where}-{name}", lambda f, i=i, v=value: layout.set_bias(f, i, v),
                        (tensor(file.parts["bias"]), words(f"bad bias of set {i}\\b")))
        for value in layout.bad_zeros(file.scheme):
            yield Fault(f"Q9-{where}-{value}", lambda f, i=i, v=value: layout.set_zero(f, i, v),
                        (tensor(file.parts["zero"]), words(f"bad zero point of set {i}\\b"),
                         words(f"found {value}$")))


# --- Q19: numbers for the inputs of a layer, which no record speaks of ---


def wrong_inputs(layout, file):
    """Engines divide inputs by them; a layer with others than such numbers is none."""
    def put(name, *stored):
        def spoil(file):
            file.tensors[name] = stored
        return spoil

    for suffix in layout.inputs if not file.records else ():
        name = file.stem + suffix
        is_zero = suffix.endswith("_zero_point")
        good = ("I8", b"\x80") if is_zero else ("F32", f32(0.5))
        for dims in ((), (1,)):
            yield Fault(f"Q19-{suffix[1:]}-{len(dims)}", put(name, good[0], dims, good[1]), (), HONEST)
        for dtype in WIDTH:
            one = bytes(WIDTH[dtype] - 1) + b"\x3f"    # above 0 in every float type
            is_right = dtype[0] in "IU" if is_zero else dtype in ("F32", "F16", "BF16")
            yield Fault(f"Q19-{suffix[1:]}-{dtype}", put(name, dtype, (1,), one),
                        () if is_right else (tensor(name), words("inputs|axes")),
                        HONEST if is_right else ALL)
        for what, value in BAD_SCALES.items() if not is_zero else ():
            yield Fault(f"Q19-{suffix[1:]}-{what}", put(name, "F32", (1,), f32(value)),
                        (tensor(name), words("bad scale of inputs")))
        yield Fault(f"Q19-{suffix[1:]}-two", put(name, "F32", (2,), f32(1, 1)),
                    (tensor(name), words("not in the source")), OTHER_SOURCE)


# --- Q15: parameters that the recorded calibrator does not choose ---


def other_parameters(layout, file):
    """A scale may be a scale and still not be that of minmax: only the source can tell."""
    def zeros(f, i, value):
        layout.set_scale(f, i, value)
        rows, cols = f.dims
        for row in range(rows):
            for col in range(cols):
                layout.set_code(f, row, col, 0)

    def other_factor(f, value):
        """Another factor: far off, or the next number."""
        (bits,) = struct.unpack("<I", f.tensors[f.parts["factor"]][2])
        f.set_bytes(f.parts["factor"], 0,
                    struct.pack("<f", value) if value else struct.pack("<I", bits + 1))

    n = layout.n_sets(file)
    for where, i in {"first": 0, "last": n - 1}.items():
        for name, value in layout.other_scales(file.scheme).items():
            yield Fault(f"Q15-{where}-{name}", lambda f, i=i, v=value: layout.set_scale(f, i, v),
                        (), ONLY_PROOF)
        if file.scheme.bias:
            yield Fault(f"Q15-{where}-bias", lambda f, i=i: layout.set_bias(f, i, -100.0), (),
                        ONLY_PROOF)
    near = {"near": None} if file.records else {}
    for name, value in {"huge": 6e4, **near}.items() if "factor" in file.parts else ():
        yield Fault(f"Q15-factor-{name}", lambda f, v=value: other_factor(f, v), (), ONLY_PROOF)
    if file.scheme.symmetric and file.scheme.signed:
        yield Fault("Q15-zeros", lambda f: zeros(f, 0, 60000.0), (), ONLY_PROOF)


# --- Q18: parameters that nothing tells how they were chosen, and records that are not all there ---

DIGEST = "sha256:" + "0123456789abcdef" * 4


def unknown(file):
    """The record says that another tool chose the parameters; without one nothing says anything."""
    if file.records:
        file.records[file.name][1] = "unknown"
        file.meta["qplan.layout"] = "2"


def weighted(file):
    """The record says that importance had its say."""
    file.records[file.name][1] = "mse:fast+importance"
    file.meta.update({"qplan.layout": "2", "qplan.importance": DIGEST})


def far_parameters(layout, file):
    """Parameters that lose all values, or codes that stand for none of them."""
    scheme, n = file.scheme, layout.n_sets(file)
    middle = 7 if scheme.values == "NF4" else \
        2 ** (scheme.bits - 1) if scheme.symmetric and not (scheme.signed or scheme.values) else 0

    def fill(f, scale, code):
        for i in range(n):
            layout.set_scale(f, i, scale)
        for row in range(f.dims[0]):
            for col in range(f.dims[1]):
                layout.set_code(f, row, col, code)

    def wide_factor(f, value):
        fill(f, 2.0 ** -9, 0)
        f.set_bytes(f.parts["factor"], 0, struct.pack("<f", value))

    def other_bias(f):
        for i in range(n):
            layout.set_bias(f, i, 60000.0)
        fill(f, 1.0, 0)

    if scheme.symmetric and not getattr(scheme, "nested", False):
        yield "zeros", lambda f: fill(f, 60000.0, middle)
        yield "clipped", lambda f: fill(f, 2.0 ** -14, scheme.codes()[1] if not scheme.values else 1)
    if "factor" in file.parts:
        yield "factor", lambda f: wide_factor(f, 1e-30 if getattr(scheme, "divides", False) else 1e30)
    if scheme.bias:
        yield "bias", other_bias


def add_open(layout, scheme, name, spoil, exit, said):
    """verify without and with --exact: what is not known cannot be computed again."""
    def run(bench):
        file = layout.honest(scheme)
        spoil(file)
        file.write(bench, INPUT, SOURCE)
        judge(bench, "verify", exit, ())
        result = bench.run("verify", "--exact", INPUT, SOURCE)
        bench.check(result.exit == 1, f"verify --exact: exit: expected 1, found {result.exit}")
        bench.message(result, (words(said),) if exit == 0 else (), False)
    add(f"Q18-{layout.name}-{scheme}-{name}", run)


def open_files(layout, scheme):
    file = layout.honest(scheme)
    nested = getattr(file.scheme, "nested", False)
    ways = {"unknown": (unknown, "unknown how its parameters were chosen")}
    if file.records and not nested:
        ways["weighted"] = weighted, "needs more than the source"
    for way, (claim, said) in ways.items():
        add_open(layout, scheme, way, claim, 0, said)
        for name, spoil in far_parameters(layout, file):
            def both(f, claim=claim, spoil=spoil):
                claim(f)
                spoil(f)
            add_open(layout, scheme, f"{way}-{name}", both, 1, "")


def missing_keys(layout):
    """One key of ours, or all but one, are gone: the others are claims that nothing completes."""
    for key in ("qplan.layout", "qplan.numerics"):
        yield Fault(f"Q18-gone-{key[6:]}", lambda f, k=key: f.meta.pop(k), (key,))
    yield Fault("Q18-gone-tensors", lambda f: vars(f).update(text=False), ("qplan.tensors",))

    def alone(key):
        def spoil(file):
            value = file.meta[key]
            layout.unrecord_keys(file)
            file.meta[key] = value
        return spoil

    for key in ("qplan.layout",) if layout.name in ("qplan", "comfyui") else \
            ("qplan.layout", "qplan.numerics"):
        yield Fault(f"Q18-alone-{key[6:]}", alone(key), ("is missing",))


def spoiled_text(layout):
    """Records in another form mean the same, but are not what qplan writes."""
    def run(bench):
        file = layout.honest()
        file.text = json.dumps({k: " ".join(v) for k, v in file.records.items()}, indent=1)
        file.write(bench, INPUT, SOURCE)
        bench.accepted("verify", INPUT, SOURCE)
        result = bench.run("verify", "--exact", INPUT, SOURCE)
        bench.check(result.exit == 1, f"verify --exact: exit: expected 1, found {result.exit}")
        bench.message(result, (INPUT, "qplan.tensors"), False)
    return run


# --- Q10, Q11: codes outside a narrow range or that are no numbers, and spare bits ---


def wrong_codes(layout, file):
    rows, cols = file.dims
    low, _ = file.scheme.codes()
    for row, col in ((0, 0), (2, 3), (rows - 1, cols - 1)) if file.scheme.narrow else ():
        yield Fault(f"Q10-{row}-{col}",
                    lambda f, r=row, c=col: layout.set_code(f, r, c, low - 1),
                    (tensor(file.name), words("narrow range"), shape(row, col),
                     words(f"found {low - 1}$")), READ)
    numbers = model.VALUES.get(file.scheme.values, ("", range(256)))[1]
    for value in (c for c in (0x7c, 0x7f, 0xff) if file.scheme.bits == 8 and c not in numbers):
        yield Fault(f"Q10-no-number-{value:02x}", lambda f, v=value: layout.set_code(f, 2, 3, v),
                    (tensor(file.name), words("no number"), shape(2, 3), words(f"found 0x{value:02x}$")),
                    READ)
    for row in (0, rows - 1) if layout.set_pad(copy.deepcopy(file), 0) else ():
        yield Fault(f"Q11-row-{row}", lambda f, r=row: layout.set_pad(f, r),
                    (file.name, words("spare bits must be 0")),
                    {**ONLY_PROOF, "dequantize": 3})
    if layout.set_zero_pad(copy.deepcopy(file)):
        yield Fault("Q11-zeros", layout.set_zero_pad,
                    (tensor(file.parts["zero"]), words("spare bits must be 0")))


# --- Q12: tensors that belong to nothing, or are not what the source has ---


def wrong_others(layout, file):
    def put(name, *stored):
        def spoil(file):
            file.tensors[name] = stored
        return spoil

    def both(name, suffix):
        def spoil(file):
            file.tensors[name] = ("I8", (2, 2), b"\1\2\3\4")
            file.tensors[name + suffix] = ("F32", (2,), f32(1, 1))
        return spoil

    def off_by_many(file):
        value = model.decode(*file.source[file.name][::2])[2 * file.dims[1] + 3]
        low, high = file.scheme.codes()
        layout.set_code(file, 2, 3, high if value < 0 else low)

    codes, scale = file.parts["codes"], file.parts["scale"]
    for name in ("extra", scale + "_inv", scale + "_scale", codes + "_scales", codes + ".absmax",
                 codes + "_zero_points", "bias_scale", "bias_zero_point", "_scale", *layout.sidecars):
        yield Fault(f"Q12-extra-{name}", put(name, "F32", (2,), f32(1, 1)),
                    (tensor(name), words("not in the source")), OTHER_SOURCE)
    for name in layout.orphans:
        yield Fault(f"Q12-orphan-{name}", put(name, "F32", (2,), f32(1, 1)),
                    (tensor(name), words("codes are not in the checkpoint")))
    for suffix in ("_scale", ".scales", "_scale_inv", ".absmax"):
        yield Fault(f"Q12-no-record{suffix}", both("x", suffix),
                    (tensor("x" + suffix), words("quantized weights")))
    for name in ("x.qweight", "x.weight_packed"):
        yield Fault(f"Q12-{name}", put(name, "I32", (1, 1), b"\1\0\0\0"),
                    ("'x.", words("quantized weights|is quantized, but not recorded")))
    yield Fault("Q12-record-gone", layout.unrecord, *layout.unrecorded)
    yield Fault("Q12-kept-gone", lambda f: f.tensors.pop(f.kept),
                (words("missing"),), ONLY_PROOF)
    yield Fault("Q12-kept-other", put(file.kept, "F32", (3,), f32(1, 2, 4)),
                (tensor(file.kept), words("kept tensor differs")), ONLY_PROOF)
    yield Fault("Q12-code-other", off_by_many,
                (tensor(file.name), shape(2, 3), words("outside the bound")), ONLY_PROOF)


def last_codes(layout):
    """Rows whose ends are not those of the lanes in which sums are made: the last code counts."""
    def spoil(file):
        low, high = file.scheme.codes()
        value = model.decode(*file.source[file.name][::2])[-1]
        layout.set_code(file, file.dims[0] - 1, file.dims[1] - 1, high if value < 0 else low)

    for scheme in ("wide", "wide-block"):
        for dims in ((1, 120), (1, 24), (1, 17), (2, 120), (3, 40), (4, 64)):
            at = shape(dims[0] - 1, dims[1] - 1)
            add_fault(layout, scheme, Fault(
                f"Q12-last-{dims[0]}x{dims[1]}", spoil,
                (tensor("w"), at, words("outside the bound")), ONLY_PROOF), dims=dims)


# --- Q13: cut files; Q14: files without tensors ---


def run_cut(layout, n):
    def run(bench):
        layout.honest().write(bench, INPUT, SOURCE,
                              lambda raw: raw[:n] + bytes(max(0, n - len(raw))))
        for command in COMMANDS:
            judge(bench, command, 3, ())
    return run


def add_cuts(layout):
    size, limit = len(layout.honest().content()), layout.honest().content().limit
    for n in sorted({0, 1, 7, 8, 9, limit // 2, limit - 1, limit, limit + 1, size // 2, size - 21,
                     size - 4, size - 1, size + 1, size + 8}):
        add(f"Q13-{layout.name}-{n}", run_cut(layout, n))


def run_empty(layout, recorded):
    def run(bench):
        file = layout.honest()
        records = file.records
        file.tensors, file.records, file.source = {}, records if recorded else {}, {}
        file.write(bench, INPUT, SOURCE)
        for command in ("inspect", "against", "dequantize"):
            judge(bench, command, 3 if recorded else 0, (file.stem,) if recorded else ())
    return run


# --- Q16: two faults in one tensor: which of them is named does not depend on the memory ---

FAR = 1, 19999                          # of 40,000 elements: with little memory another unit


def two_faults(layout):
    def set_of(file, place):
        return place[0] * (layout.n_sets(file) // file.dims[0])

    spoils = {"code": lambda f, at: layout.set_code(f, *at, f.scheme.codes()[0] - 1),
              "scale": lambda f, at: layout.set_scale(f, set_of(f, at), -1.0),
              "zero": lambda f, at: layout.set_zero(f, set_of(f, at), f.scheme.codes()[0] - 1)}
    for near in spoils:
        for far in spoils:
            if near != far:
                def spoil(file, near=spoils[near], far=spoils[far]):
                    near(file, (0, 0))
                    far(file, FAR)
                yield f"{near}-{far}", spoil, ("narrow" if near == "code" else f"{near}.* of set 0")


def run_two_faults(file, spoil, named):
    def run(bench):
        spoil(file)
        bench.write(file.content())
        for memory in ((), ("--memory", "320K")):
            bench.refused("dequantize", "-o", OUTPUT, "--threads", "1", *memory, INPUT,
                          names=(INPUT, words(named)))
    return run


last_codes(LAYOUTS[0])
for layout in LAYOUTS:
    lean(layout)
    for name, spoil, named in two_faults(layout) if "narrow-asym" in layout.schemes else ():
        add(f"Q16-{layout.name}-{name}",
            run_two_faults(layout.honest("narrow-asym", dims=(2, 20000)), spoil, named))
    for scheme in layout.schemes:
        for dtype in layout.dtypes(scheme):
            honest(layout, scheme, dtype)
    for scheme in layout.valued or layout.schemes:
        file = layout.honest(scheme)
        for fault in (*wrong_parameters(layout, file), *other_parameters(layout, file),
                      *wrong_codes(layout, file)):
            add_fault(layout, scheme, fault)
    for scheme in layout.schemes:
        open_files(layout, scheme)
    if layout.honest().records:
        for fault in missing_keys(layout):
            add_fault(layout, layout.base, fault)
        add(f"Q18-{layout.name}-text", spoiled_text(layout))
    for scheme in layout.with_wrong_parts:
        for fault in wrong_parts(layout, layout.honest(scheme)):
            add_fault(layout, scheme, fault)
    for scheme in layout.with_inputs:
        for fault in wrong_inputs(layout, layout.honest(scheme)):
            add_fault(layout, scheme, fault)
    for fault in (*layout.claims(), *wrong_others(layout, layout.honest())):
        add_fault(layout, layout.base, fault)
    add_cuts(layout)
    add(f"Q14-{layout.name}-nothing", run_empty(layout, False))
    if layout.honest().records:
        add(f"Q14-{layout.name}-recorded", run_empty(layout, True))
