"""Q. Files that say they are quantized: every claim and every part wrong in every way, through the
four commands that read them.

Each layout has a class (layout_NAME.py) that makes honest files and knows where their claims are.
The first row asks the program which layouts there are: one without a class fails by its name.
"""

import copy
import math
import re

import layout_qplan
from bench import INPUT, OUTPUT
from expect import shape, tensor, words
from layout_qplan import ALL, ONLY_PROOF, OTHER_SOURCE, READ, Fault
from st import ckpt, f32
from table import accept, add, case

SOURCE = "s.safetensors"
LAYOUTS = [layout_qplan.Layout()]
COMMANDS = {"inspect": ["inspect", INPUT], "against": ["inspect", "--against", SOURCE, INPUT],
            "verify": ["verify", INPUT, SOURCE], "dequantize": ["dequantize", "-o", OUTPUT, INPUT]}
SAME_SIZE = {1: ("I8", "U8", "BOOL", "F8_E4M3"), 2: ("F16", "BF16", "I16"),
             4: ("F32", "I32", "U32")}
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


def over_an_old_output(bench, names):
    """What dequantize refuses also stays as it is with --force."""
    bench.old_output()
    bench.refused("dequantize", "--force", "-o", OUTPUT, INPUT, names=(INPUT, *names))


def run_fault(fault, file, exits):
    def run(bench):
        spoiled = copy.deepcopy(file)
        fault.spoil(spoiled)
        bench.write(spoiled.source_content(), SOURCE)
        bench.write(spoiled.content())
        for command in COMMANDS:
            judge(bench, command, exits.get(command, 3), fault.names)
        if exits.get("dequantize", 3) == 3:
            over_an_old_output(bench, fault.names)
    return run


def add_fault(layout, scheme, fault, **how):
    row, _, rest = fault.id.partition("-")
    add(f"{row}-{layout.name}-{scheme}-{rest}",
        run_fault(fault, layout.honest(scheme, **how), fault.exits))


# --- Q1: honest files, and the layouts that there are ---


@case("Q1-layouts")
def layouts_have_rows(bench):
    bench.write(ckpt({"w": ("F32", [2, 2], f32(1, 2, 3, 4))}))
    text = bench.run("quantize", "--format", "none of these", INPUT).err
    found = re.search(r"expected (.*), found", text)
    for name in found.group(1).split(", ") if found else ["no layout at all"]:
        bench.check(name in [layout.name for layout in LAYOUTS],
                    f"the layout {name} has no class in tests/fault/layout_{name}.py")


def honest(layout, scheme, dtype):
    nothing = Fault(f"Q1-{dtype}", lambda file: None, (), dict.fromkeys(COMMANDS, 0))
    add_fault(layout, scheme, nothing, dtype=dtype)


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
    for role, name in layout.parts.items():
        dtype, dims, raw = file.tensors[name]
        optional = role == "zero" and file.scheme.symmetric
        gone = Fault(f"Q2-{role}-gone", lambda f, name=name: f.tensors.pop(name), (tensor(name),),
                     dict.fromkeys(COMMANDS, 0) if optional else ALL)
        yield gone
        for other in SAME_SIZE[WIDTH[dtype]]:
            if other != dtype:
                yield Fault(f"Q4-{role}-{other}", change(name, other),
                            (tensor(name), dtype, other))
        for i, other in enumerate(sorted(shapes(dims))):
            yield Fault(f"Q5-{role}-{i}", change(name, dims=other),
                        (tensor(name), words("shape|rank|extents")))
        wide = (dims[0] + 1, *dims[1:])
        more = raw + raw[:len(raw) // dims[0]]
        yield Fault(f"Q5-{role}-more", change(name, dims=wide, raw=more), (tensor(name),))


# --- Q8, Q9: scales and zero points ---

BAD_SCALES = {"zero": 0.0, "minus-zero": -0.0, "minus": -0.5, "nan": math.nan, "inf": math.inf,
              "minus-inf": -math.inf}


def wrong_parameters(layout, file):
    n = layout.n_sets(file)
    for where, i in {"first": 0, "last": n - 1}.items():
        for name, value in BAD_SCALES.items():
            yield Fault(f"Q8-{where}-{name}", lambda f, i=i, v=value: layout.set_scale(f, i, v),
                        (tensor(layout.parts["scale"]), words(f"bad scale of set {i}\\b")))
        for value in bad_zeros(file.scheme):
            yield Fault(f"Q9-{where}-{value}", lambda f, i=i, v=value: layout.set_zero(f, i, v),
                        (tensor(layout.parts["zero"]), words(f"bad zero point of set {i}\\b"),
                         words(f"found {value}$")))


# --- Q15: parameters that the recorded calibrator does not choose ---


def other_parameters(layout, file):
    """A scale may be a scale and still not be that of minmax: only the source can tell."""
    def zeros(f, i, value):
        layout.set_scale(f, i, value)
        rows, cols = f.dims
        for row in range(rows):
            for col in range(cols):
                layout.set_code(f, row, col, 0)

    n = layout.n_sets(file)
    for where, i in {"first": 0, "last": n - 1}.items():
        for name, value in {"huge": 60000.0, "tiny": 2.0 ** -14, "other": 1.25}.items():
            yield Fault(f"Q15-{where}-{name}", lambda f, i=i, v=value: layout.set_scale(f, i, v),
                        (), ONLY_PROOF)
    if file.scheme.symmetric and file.scheme.signed:
        yield Fault("Q15-zeros", lambda f: zeros(f, 0, 60000.0), (), ONLY_PROOF)


def bad_zeros(scheme):
    """Zero points that the type of the stored tensor holds and the scheme does not allow."""
    low, high = scheme.codes()
    least, most = (-128, 127) if scheme.signed else (0, 255)
    middle = 0 if scheme.signed else (high + 1) // 2
    near = {low - 1, high + 1, least, most, 100}
    if scheme.symmetric:
        return sorted(v for v in near | {middle - 1, middle + 1} if least <= v <= most != middle)
    return sorted(v for v in near if least <= v <= most and not low <= v <= high)


# --- Q10, Q11: codes outside a narrow range, and spare bits ---


def wrong_codes(layout, file):
    rows, cols = file.dims
    low, _ = file.scheme.codes()
    for row, col in ((0, 0), (2, 3), (rows - 1, cols - 1)) if file.scheme.narrow else ():
        yield Fault(f"Q10-{row}-{col}",
                    lambda f, r=row, c=col: layout.set_code(f, r, c, low - 1),
                    (tensor(layout.tensor), words("narrow range"), shape(row, col),
                     words(f"found {low - 1}$")), READ)
    for row in (0, rows - 1) if layout.set_pad(copy.deepcopy(file), 0) else ():
        yield Fault(f"Q11-row-{row}", lambda f, r=row: layout.set_pad(f, r),
                    (tensor(layout.tensor), words("spare nibbles must be 0")),
                    {**ONLY_PROOF, "dequantize": 3})


# --- Q12: tensors that belong to nothing, or are not what the source has ---


def wrong_others(layout):
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
        layout.set_code(file, 2, 3, 7 if file.tensors["w"][2][17] > 127 else -7)

    codes, scale = layout.parts["codes"], layout.parts["scale"]
    for name in ("extra", scale + "_inv", scale + "_scale", codes + "_scales", codes + ".absmax",
                 codes + "_zero_points", "bias_scale", "bias_zero_point", "_scale"):
        yield Fault(f"Q12-extra-{name}", put(name, "F32", (2,), f32(1, 1)),
                    (tensor(name), words("not in the source")), OTHER_SOURCE)
    for suffix in ("_scale", ".scales", "_scale_inv", ".absmax"):
        yield Fault(f"Q12-no-record{suffix}", both("x", suffix),
                    (tensor("x" + suffix), words("quantized weights")))
    for name in ("x.qweight", "x.weight_packed"):
        yield Fault(f"Q12-{name}", put(name, "I32", (1, 1), b"\1\0\0\0"),
                    (tensor(name), words("quantized weights")))
    yield Fault("Q12-record-gone", layout.unrecord, (tensor(scale), words("quantized weights")))
    yield Fault("Q12-kept-gone", lambda f: f.tensors.pop("bias"),
                (words("missing"),), ONLY_PROOF)
    yield Fault("Q12-kept-other", put("bias", "F32", (3,), f32(1, 2, 4)),
                (tensor("bias"), words("kept tensor differs")), ONLY_PROOF)
    yield Fault("Q12-code-other", off_by_many,
                (tensor(codes), shape(2, 3), words("outside the bound")), ONLY_PROOF)


# --- Q13: cut files; Q14: files without tensors ---


def run_cut(layout, cut):
    def run(bench):
        file = layout.honest()
        whole = file.content()
        bench.write(file.source_content(), SOURCE)
        bench.write(whole.data[:cut(whole)] + bytes(max(0, cut(whole) - len(whole))))
        for command in COMMANDS:
            judge(bench, command, 3, ())
    return run


def add_cuts(layout):
    size, limit = len(layout.honest().content()), layout.honest().content().limit
    for n in sorted({0, 1, 7, 8, 9, limit // 2, limit - 1, limit, limit + 1, size // 2, size - 21,
                     size - 4, size - 1, size + 1, size + 8}):
        add(f"Q13-{layout.name}-{n}", run_cut(layout, lambda whole, n=n: n))


def run_empty(layout, recorded):
    def run(bench):
        file = layout.honest()
        records = file.records
        file.tensors, file.records, file.source = {}, records if recorded else {}, {}
        bench.write(file.source_content(), SOURCE)
        bench.write(file.content())
        for command in ("inspect", "against", "dequantize"):
            judge(bench, command, 3 if recorded else 0, (tensor("w"),) if recorded else ())
    return run


for layout in LAYOUTS:
    for scheme in layout.schemes:
        for dtype in ("F32", "F16", "BF16", "F64"):
            honest(layout, scheme, dtype)
        file = layout.honest(scheme)
        for fault in (*wrong_parameters(layout, file), *other_parameters(layout, file),
                      *wrong_codes(layout, file)):
            add_fault(layout, scheme, fault)
    for scheme in ("int8", "int4-asym", "block"):
        for fault in wrong_parts(layout, layout.honest(scheme)):
            add_fault(layout, scheme, fault)
    for fault in (*layout.claims(), *wrong_others(layout)):
        add_fault(layout, "int8", fault)
    add_cuts(layout)
    add(f"Q14-{layout.name}-nothing", run_empty(layout, False))
    add(f"Q14-{layout.name}-recorded", run_empty(layout, True))
