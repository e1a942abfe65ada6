"""How fast a core chooses parameters and rounds: rows of the section calibrate.

A row is what one thread takes on a core at each level of the CPU that the machine has, less what
bench-floor takes to read and write as many bytes; beside it stands the rate with these. Of ldlq it
is what it takes more than the search for its parameters, with the factor of the Hessian, which all
weights share. The best round counts: other work on the machine only ever adds to it. Sources are
weights of 1536 columns with heavy tails.
"""
import array
import json
import struct
import sys

COLUMNS = 1536
LEVELS = {"avx2": "AVX2", "avx512": "AVX-512"}
FLOOR = ["{floor}", "{out}", "{out_bytes}", "1", "{block}"]
QUANTIZE = ["{qplan}", "quantize", "-q", "--threads", "1", "-o", "{out}"]
CANDIDATES = ["--target-bpw", "4.5", "--candidates", "int4:g128,int4:g32,int8:c0,keep"]


class Rate:
    """A job, and its goal at each level: GB/s of bf16, or nanoseconds a weight."""

    def __init__(self, name, goals, flags, less=None, reads=1):
        self.name, self.flags, self.reads = name, flags, reads
        self.less = less  # flags of what it is compared with; None = the floor
        self.goals = dict(zip(LEVELS, goals))
        self.seconds, self.less_seconds = {}, {}  # on a core, of each level, of all rounds

    @property
    def unit(self):
        return "ns a weight" if self.less else "GB/s"

    def figure(self, level, n_bytes):
        seconds = min(self.seconds[level]) - min(self.less_seconds[level])
        return seconds / (n_bytes / 2) * 1e9 if self.less else n_bytes / seconds / 1e9


def rows():
    def calibrated(scheme, method):
        return ["--scheme", scheme, "--calibrate", method]

    return [
        Rate("mse, int4 g128", (0.5, 0.8), calibrated("int4", "mse")),
        Rate("mse, int4 g32", (0.3, 0.3), calibrated("int4:g32", "mse")),
        Rate("mse, int4 g128 asymmetric", (None, None), calibrated("int4:g128:asym", "mse")),
        Rate("percentile:99.9, int4 g128", (0.5, 0.5), calibrated("int4", "percentile:99.9")),
        Rate("percentile:90, int4 g128", (0.5, 0.5), calibrated("int4", "percentile:90")),
        Rate("percentile:99, int8 per channel", (0.5, 0.5), calibrated("int8", "percentile:99")),
        Rate("four candidates of a budget", (0.2, 0.2), CANDIDATES, reads=2),
        Rate("four candidates of a budget, mse", (None, None),
             [*CANDIDATES, "--calibrate", "mse"], reads=2),
        Rate("ldlq, int4 g128", (40, 40), ["--scheme", "int4", "--hessian", "{hessian}"],
             less=[*calibrated("int4", "mse"), "--importance", "{importance}"]),
    ]


def measure(bench, chosen, levels, n_rounds):
    """Runs each row at each level, by turns."""
    for number in range(n_rounds):
        for row in chosen:
            for level in levels:
                seconds, out_bytes = run(bench, [*QUANTIZE, *row.flags, "{heavy}"], level)
                row.seconds.setdefault(level, []).append(seconds)
                less = [*QUANTIZE, *row.less, "{heavy}"] if row.less else \
                    [*FLOOR, *["{heavy}"] * row.reads]
                seconds, _ = run(bench, less, level, out_bytes)
                row.less_seconds.setdefault(level, []).append(seconds)
        print(f"calibrate: round {number + 1} of {n_rounds}", file=sys.stderr)


def run(bench, command, level, out_bytes=0):
    """Seconds on a core, and the bytes that were written."""
    out = bench.path(False, "out")
    known = {"qplan": bench.tool("qplan"), "floor": bench.tool("bench-floor"), "out": out,
             "out_bytes": out_bytes, "block": bench.options.block,
             **{name: bench.file(False, name) for name in ("heavy", "hessian", "importance")}}
    bench.remove(out)
    cpu = bench.time([word.format(**known) for word in command], {"QPLAN_CPU": level})[2]
    return cpu, bench.size(out)


# ---- What is known of inputs -----------------------------------------------------------------------

def names(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [name for name, entry in header.items() if len(entry["shape"]) == 2]


def write(path, tensors, aliases):
    """Tensors by name, as shape and numbers of F32."""
    at, header = 0, {"__metadata__": aliases} if aliases else {}
    for name, (shape, numbers) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(numbers)]}
        at += 4 * len(numbers)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in tensors.values():
            numbers.tofile(file)


def write_hessian(path, weights):
    """One for all weights: inputs whose neighbours go together."""
    near = array.array("f", (0.5 ** abs(i) for i in range(1 - COLUMNS, COLUMNS)))
    numbers = array.array("f")
    for i in range(COLUMNS):
        numbers += near[COLUMNS - 1 - i:2 * COLUMNS - 1 - i]
    first, *others = names(weights)
    write(path, {first + ".hessian": ([COLUMNS, COLUMNS], numbers)},
          {name: first for name in others})


def write_importance(path, weights):
    ones = array.array("f", [1]) * COLUMNS
    write(path, {name: ([COLUMNS], ones) for name in names(weights)}, None)
