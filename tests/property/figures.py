#!/usr/bin/env python3
"""The measured figures of reports against exact arithmetic, for values of every size: row I2.

Quantized files are made by hand, with codes and scales that need not fit the source: figures must be
right for any file. Expected values are computed from integers and decimals of 60 digits. The report
must be the same bytes for every level of the CPU, number of threads, memory and, if one is named,
device.
"""

import argparse
import decimal
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from decimal import Decimal

NO_DEVICE = 77
UNIT = 1074  # every finite double is a multiple of 2^-UNIT
SETTINGS = (("scalar", ()), ("avx2", ("--threads", "1")), ("avx512", ("--threads", "3")),
            ("avx512", ("--threads", "2", "--memory", "1M")))
DTYPES = {"F64": "d", "F32": "f", "I8": "b"}

decimal.getcontext().prec = 60
decimal.getcontext().Emax = decimal.MAX_EMAX
decimal.getcontext().Emin = decimal.MIN_EMIN


# ---- Files -----------------------------------------------------------------------------------------

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Tensor:
    """Rows of codes with a scale each, and the source that they claim to stand for."""

    def __init__(self, name, x, codes, scales, dtype="F64"):
        self.name, self.codes, self.dtype = name, codes, dtype
        self.scales = [f32(s) for s in scales]
        self.x = [f32(v) for v in x] if dtype == "F32" else x
        self.shape = [len(scales), len(x) // len(scales)]

    def decoded(self):
        """In working precision; the product of a scale and a code is exact in f64."""
        y = [self.scales[i // self.shape[1]] * code for i, code in enumerate(self.codes)]
        return [f32(v) for v in y] if self.dtype == "F32" else y

    def record(self):
        return f"int8:c0 minmax {self.dtype} {self.shape[0]}x{self.shape[1]}"


def write(path, tensors, metadata):
    """tensors: (name, dtype, shape, values)."""
    header, data = {"__metadata__": metadata}, b""
    for name, dtype, shape, values in sorted(tensors, key=lambda t: -struct.calcsize(DTYPES[t[1]])):
        raw = struct.pack(f"<{len(values)}{DTYPES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_case(folder, tensors):
    write(folder / "source", [(t.name, t.dtype, t.shape, t.x) for t in tensors], {})
    parts = []
    for t in tensors:
        parts += [(t.name, "I8", t.shape, t.codes),
                  (t.name + "_scale", "F32", t.shape[:1], t.scales),
                  (t.name + "_zero_point", "I8", t.shape[:1], [0] * t.shape[0])]
    write(folder / "file", parts, {
        "format": "pt", "qplan.layout": "1", "qplan.numerics": "1",
        "qplan.tensors": json.dumps({t.name: t.record() for t in tensors}, separators=(",", ":"))})


# ---- Figures ---------------------------------------------------------------------------------------

def whole(x):
    """x in units of 2^-UNIT."""
    numerator, denominator = x.as_integer_ratio()
    return numerator * (1 << UNIT) // denominator


class Sums:
    def __init__(self, tensors):
        self.e2 = self.x2 = self.y2 = self.xy = self.n = self.nonfinite = self.largest = 0
        self.at = None
        for t in tensors:
            for i, (x, y) in enumerate(zip(t.x, t.decoded())):
                if math.isfinite(x):
                    self.add(i, whole(x), whole(y), x - y)
                else:
                    self.nonfinite += 1

    def add(self, i, x, y, error):
        e = whole(error)
        self.n += 1
        self.e2 += e * e
        self.x2 += x * x
        self.y2 += y * y
        self.xy += x * y
        if abs(e) > self.largest or self.at is None:
            self.largest, self.at = abs(e), i

    def figures(self):
        unit = Decimal(2) ** -UNIT
        found = dict.fromkeys(("max_abs", "rms", "sqnr_db", "cosine"))
        if self.n:
            found["max_abs"] = Decimal(self.largest / (1 << UNIT))
            found["rms"] = (Decimal(self.e2) / self.n).sqrt() * unit
        if self.e2 and self.x2:
            found["sqnr_db"] = 10 * (Decimal(self.x2) / Decimal(self.e2)).log10()
        if self.x2 and self.y2:
            norms = Decimal(self.x2).sqrt() * Decimal(self.y2).sqrt()
            found["cosine"] = Decimal(self.xy) / norms
        return found


# Relative to a number of this size at least; a cosine and a ratio in dB may be near 0.
TOLERANCE = {"max_abs": (0, 0), "rms": (1e-13, 0), "sqnr_db": (1e-12, 1), "cosine": (1e-12, 1)}


def is_right(metric, expected, found):
    if expected is None or found is None:
        return expected is None and found is None
    relative, least = (Decimal(v) for v in TOLERANCE[metric])
    # The last bit of a subnormal number may be all that it has.
    room = relative * max(abs(expected), least) + (Decimal(5e-324) if metric == "rms" else 0)
    return abs(Decimal(found) - expected) <= room


# ---- Cases -----------------------------------------------------------------------------------------

ROWS, COLS = 3, 3500  # several blocks of sums, one of which is cut


def spread(rng, low, high):
    """A number of either sign whose power of two is anything from low to high."""
    return rng.choice((-1, 1)) * math.ldexp(rng.uniform(1, 2), rng.randint(low, high))


def codes_of(rng, n, least=-127, most=127):
    return [rng.randint(least, most) for _ in range(n)]


def wild(name, rng, low, high, scales, codes=None, dtype="F64"):
    n = ROWS * COLS
    return Tensor(name, [spread(rng, low, high) for _ in range(n)], codes or codes_of(rng, n),
                  scales, dtype)


def near(name, rng, scale=0.01, shift=0.0):
    """An ordinary tensor: every value is near its code."""
    codes = codes_of(rng, ROWS * COLS)
    return Tensor(name, [f32(scale) * (c + rng.uniform(-0.5, 0.5)) + shift for c in codes], codes,
                  [scale] * ROWS)


def exact(name, rng, scale=0.5):
    codes = codes_of(rng, ROWS * COLS)
    return Tensor(name, [scale * c for c in codes], codes, [scale] * ROWS)


def changed(tensor, values):
    for i, value in values.items():
        tensor.x[i] = value
    return tensor


def along(name, rng, factor, dtype="F64"):
    """Values along what they decode to, but of another size."""
    codes, scales = codes_of(rng, ROWS * COLS), [1e-8, 2e-8, 3e-8]
    y = Tensor(name, [0.0] * (ROWS * COLS), codes, scales, dtype).decoded()
    return Tensor(name, [v * factor for v in y], codes, scales, dtype)


def cases():
    rng = random.Random(15)
    n = ROWS * COLS
    zeros, ones = [0] * n, [1.0] * ROWS
    yield "vanish", [wild("w", rng, -700, -650, ones, zeros)]
    yield "subnormal", [Tensor("w", [5e-324 * rng.randint(-9, 9) for _ in range(n)], zeros, ones)]
    yield "one subnormal", [changed(Tensor("w", [0.0] * n, zeros, ones), {n - 1: 5e-324})]
    yield "overflow", [wild("w", rng, 650, 700, [3e38, 1e38, 1e-30])]
    yield "largest", [Tensor("w", [rng.choice((-1, 1)) * sys.float_info.max for _ in range(n)],
                             codes_of(rng, n), [3e38] * ROWS)]
    yield "every size", [wild("w", rng, -1074, 1022, [1e-37, 1.0, 3e38])]
    yield "blocks", [Tensor("w", [spread(rng, k, k + 3) for k in (-900, 0, 900) for _ in range(COLS)],
                            codes_of(rng, n), [1e-30, 1.0, 1e30])]
    yield "near 2^900", [wild("w", rng, 440, 450, [1e30, 1e35, 3e38])]
    yield "near 2^-900", [wild("w", rng, -460, -440, ones, zeros)]
    yield "ordinary", [near("w", rng)]
    yield "exact", [exact("w", rng)]
    yield "one error", [changed(exact("w", rng), {4097: 1e-200})]
    yield "one large value", [changed(near("w", rng), {5000: -1e250})]
    yield "zeros", [Tensor("w", [0.0] * n, zeros, ones)]
    yield "no signal", [Tensor("w", [0.0] * n, codes_of(rng, n), ones)]
    yield "not finite", [changed(wild("w", rng, 600, 700, ones),
                                 {i: rng.choice((math.nan, math.inf)) for i in range(0, n, 7)})]
    yield "none finite", [Tensor("w", [math.nan] * n, zeros, ones)]
    yield "far ratio", [changed(exact("w", rng, 2.0 ** 127), {1: 1e-240})]
    for dtype, factors in (("F64", (1e30, 1e-30, -1e200, 1e-250, 30.0, 40.0)),
                           ("F32", (1e30, 1e-25, -1e30, 30.0, 40.0))):
        for factor in factors:
            yield f"along {dtype} {factor}", [along("w", rng, factor, dtype)]
    yield "across", [wild("w", rng, 60, 62, [1e-30] * ROWS, dtype="F32")]
    yield "totals", [wild("a", rng, -700, -650, ones, zeros), near("b", rng), exact("c", rng)]
    yield "far totals", [wild("a", rng, 800, 900, ones), wild("b", rng, -900, -800, ones, zeros),
                         wild("c", rng, 10, 12, [1e-30] * ROWS, dtype="F32"), near("d", rng)]
    yield "small totals", [wild("a", rng, -700, -650, ones, zeros),
                           Tensor("b", [0.0] * n, zeros, ones), wild("c", rng, -1074, -900, ones, zeros)]


# ---- Checks ----------------------------------------------------------------------------------------

class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.n, self.n_failed = 0, 0

    def check(self, what, good, words):
        self.n += 1
        if not good:
            self.n_failed += 1
            print(f"FAILED {what}: {words}")

    def report(self, level, args):
        """The report, or the exit code."""
        result = subprocess.run(
            [self.options.qplan, "inspect", "--json", "-q", *args, "--against", "source", "file"],
            cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "QPLAN_CPU": level})
        return result.stdout if result.returncode == 0 else result.returncode

    def reports(self):
        """The reports of every setting that this machine has."""
        for level, args in SETTINGS:
            found = self.report(level, ("--device", "cpu", *args))
            if found != 2:  # a level that the CPU lacks
                yield f"{level} {' '.join(args)}", found
        if self.options.device:
            yield self.options.device, self.report("avx512", ("--device", self.options.device))

    def compare(self, what, expected, found):
        for metric, value in expected.figures().items():
            self.check(f"{what} {metric}", is_right(metric, value, found[metric]),
                       f"expected {value if value is None else float(value)}, found {found[metric]}")
        self.check(f"{what} nonfinite", found["nonfinite"] == expected.nonfinite,
                   f"expected {expected.nonfinite}, found {found['nonfinite']}")

    def run(self, name, tensors):
        write_case(self.folder, tensors)
        (_, first), *others = self.reports()
        for setting, report in others:
            self.check(f"{name}, {setting}", report == first, "another report")
        report = json.loads(first)
        for t, found in zip(tensors, report["tensors"]):
            sums = Sums([t])
            self.compare(f"{name} {t.name}", sums, found)
            at = None if sums.at is None else [sums.at // COLS, sums.at % COLS]
            self.check(f"{name} {t.name} max_at", found["max_at"] == at, f"found {found['max_at']}")
        self.compare(f"{name} totals", Sums(tensors), report["totals"])


def has_device(options):
    listed = json.loads(subprocess.run([options.qplan, "devices", "--json"], capture_output=True,
                                       check=True).stdout)
    return any(d["backend"] == options.device and d["usable"] for d in listed["devices"])


def main():
    parser = argparse.ArgumentParser(description="Measured figures against exact arithmetic.")
    parser.add_argument("--qplan", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--device", help="cuda or opencl, besides the CPU")
    options = parser.parse_args()
    if options.device and not has_device(options):
        print(f"no device of {options.device}")
        return NO_DEVICE
    with tempfile.TemporaryDirectory(prefix="qplan-figures-") as folder:
        bench = Bench(options, folder)
        for name, tensors in cases():
            bench.run(name, tensors)
    print(f"{bench.n - bench.n_failed} passed, {bench.n_failed} failed")
    return bench.n_failed > 0


if __name__ == "__main__":
    sys.exit(main())
