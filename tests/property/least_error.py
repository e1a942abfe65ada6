#!/usr/bin/env python3
"""The methods that choose parameters, against laws and against brute force.

Files in the native layout are decoded here, by numpy, and the squared error of every set is computed
in f64. No set is worse by mse than by minmax, and no level is worse than the one before it; small
sets are as good as the best that a walk over all codes finds. The bytes are the same for every level
of the CPU, number of threads and memory.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import stored  # noqa: E402

LEVELS = ("mse:fast", "mse:best", "mse:exact")
SETTINGS = (("scalar",), ("avx2", "--threads", "1"), ("avx512", "--threads", "3"),
            ("avx512", "--threads", "2", "--memory", "2M"), ("avx512", "--threads", "7"))
SLACK = 1 + 1e-9


# ---- Files -----------------------------------------------------------------------------------------

def heavy(rng, *shape):
    """Weights with heavy tails, some rows with far outliers."""
    x = rng.standard_t(5, shape) * 0.02
    x.reshape(shape[0], -1)[::7, 3] *= 30
    return x.astype(np.float32)


def run(qplan, *args, expected=0, cpu="avx512"):
    done = subprocess.run([qplan, *map(str, args)], capture_output=True, text=True, check=False,
                          env={**os.environ, "QPLAN_CPU": cpu})
    if done.returncode != expected:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {expected}: {done.stderr}")
    return done.stdout


def codes_of(tensor, bits, signed, cols):
    """Codes of rows that begin with a byte each, low bits first."""
    if tensor.dtype == "I8":
        return stored.values(tensor).astype(np.int64)
    rows = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape)
    stream = np.unpackbits(rows, axis=-1, bitorder="little")[..., :cols * bits]
    weights = 1 << np.arange(bits)
    codes = (stream.reshape(*rows.shape[:-1], cols, bits) * weights).sum(-1).astype(np.int64)
    return codes - ((codes >> (bits - 1)) << bits) if signed else codes


class Case:
    """A scheme, and the sets of a matrix as rows of an array."""

    def __init__(self, scheme, dtype, bits, fold, shape, signed=True):
        self.scheme, self.dtype, self.bits, self.signed = scheme, dtype, bits, signed
        self.fold, self.shape = fold, shape

    def source(self, rng, path):
        x = heavy(rng, *self.shape)
        tensor = stored.packed(self.dtype, x)
        stored.write(path, {"w": tensor})
        return stored.values(tensor)

    def decoded(self, path):
        """Values, and the scales, of a quantized file."""
        tensors = stored.read_file(path)
        codes = codes_of(tensors["w"], self.bits, self.signed, self.shape[-1])
        scale = stored.values(tensors["w_scale"]).astype(np.float64).reshape(-1, 1)
        if "w_offset" in tensors:
            offset = stored.values(tensors["w_offset"]).astype(np.float64).reshape(-1, 1)
            return self.fold(codes) * scale + offset, scale
        zero = codes_of(tensors["w_zero_point"], self.bits, self.signed, len(scale)) \
            if tensors["w_zero_point"].dtype == "U8" and self.bits < 8 and \
            tensors["w_zero_point"].shape[-1] * 8 == len(scale) * self.bits \
            else np.frombuffer(tensors["w_zero_point"].data, "i1" if self.signed else "u1")
        return (self.fold(codes) - zero.reshape(-1, 1).astype(np.int64)) * scale, scale

    def errors(self, x, path):
        y, scale = self.decoded(path)
        return ((self.fold(x).astype(np.float64) - y) ** 2).sum(1), scale


def groups(n):
    return lambda x: x.reshape(-1, n)


def columns(x):
    return x.T


def whole(x):
    return x.reshape(1, -1)


def blocks(rows, cols):
    return lambda x: x.reshape(x.shape[0] // rows, rows, -1, cols).swapaxes(1, 2) \
        .reshape(-1, rows * cols)


CASES = (
    Case("int4:g128:f16", "BF16", 4, groups(128), (24, 512)),
    Case("int4:g32", "F32", 4, groups(32), (16, 256)),
    Case("int4:g64:asym:bf16", "F16", 4, groups(64), (16, 256)),
    Case("uint4:g64:bias:f16", "BF16", 4, groups(64), (16, 256), signed=False),
    Case("int8:c0", "BF16", 8, groups(640), (40, 640)),
    Case("int8:c0:asym:f16", "F32", 8, groups(96), (40, 96)),
    Case("int8:c0", "F64", 8, groups(300), (20, 300)),
    Case("int8:c1", "F32", 8, columns, (300, 33)),
    Case("int8:b32x64", "BF16", 8, blocks(32, 64), (64, 192)),
    Case("int8:b40x8", "F16", 8, blocks(40, 8), (80, 24)),
    Case("int8:t", "BF16", 8, whole, (700, 512)),
    Case("int3:g128:f16", "F32", 3, groups(128), (16, 256)),
    Case("int2:g64:asym", "F32", 2, groups(64), (16, 256)),
    Case("int5:g16:narrow", "F16", 5, groups(16), (16, 64)),
)


# ---- Laws ------------------------------------------------------------------------------------------

def not_worse(what, errors, before):
    worse = np.flatnonzero(errors > before * SLACK)
    if len(worse):
        i = worse[0]
        raise AssertionError(f"{what}: set {i} has {errors[i]!r}, before it was {before[i]!r}")


def check_levels(qplan, case, folder, rng):
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    x = case.source(rng, source)
    make = ("quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme, "--calibrate")
    run(qplan, *make, "minmax")
    errors, _ = case.errors(x, out)
    for level in LEVELS:
        run(qplan, *make, level)
        now, scale = case.errors(x, out)
        not_worse(f"{case.scheme} {level}", now, errors)
        errors = now
        if "asym" in case.scheme and (scale <= 0).any():
            raise AssertionError(f"{case.scheme} {level}: a scale is not above 0")
    run(qplan, *make, "mse", "--positive-scales")
    if (case.errors(x, out)[1] <= 0).any():
        raise AssertionError(f"{case.scheme}: a scale is not above 0 with --positive-scales")
    run(qplan, "verify", out, source)


def check_bytes(qplan, case, folder, rng):
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    case.source(rng, source)
    make = ("quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme)
    run(qplan, *make, "--calibrate", "mse")
    expected = out.read_bytes()
    for cpu, *flags in SETTINGS:
        run(qplan, *make, "--calibrate", "mse", *flags, cpu=cpu)
        if out.read_bytes() != expected:
            raise AssertionError(f"{case.scheme}: other bytes with {cpu} {' '.join(flags)}")
    run(qplan, "verify", out, source)
    run(qplan, "verify", "--exact", out, source)


# ---- Brute force -----------------------------------------------------------------------------------

def best_symmetric(x, least, most):
    """The least squared error that any scale gives: the codes change only at known quotients."""
    best = (x ** 2).sum()
    for sign in (1, -1):
        v = sign * x[x != 0]
        ends = np.concatenate([(k + 0.5) / np.abs(v) for k in range(max(most, -least) + 1)])
        for step in np.unique(ends):
            for t in (step * (1 - 1e-9), step * (1 + 1e-9)):
                q = np.clip(np.rint(v * t), least, most)
                if q.any():
                    best = min(best, (x ** 2).sum() - (v @ q) ** 2 / (q @ q))
    return best


def check_brute_force(qplan, folder, rng):
    case = Case("int4:g16", "F32", 4, groups(16), (16, 32))
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    x = case.source(rng, source)
    best = np.array([best_symmetric(row.astype(np.float64), -8, 7) for row in groups(16)(x)])
    for level, slack in (("mse:fast", 1.05), ("mse:exact", 1.003)):
        run(qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme,
            "--calibrate", level)
        errors, _ = case.errors(x, out)
        if errors.sum() > best.sum() * slack:
            raise AssertionError(f"{level}: {errors.sum() / best.sum()} of the least error")


# ---- Percentiles -----------------------------------------------------------------------------------

def check_percentile(qplan, case, folder, rng):
    """The ends of each set are order statistics, and 100 leaves nothing out."""
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    x = case.fold(case.source(rng, source)).astype(np.float64)
    make = ("quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme, "--calibrate")
    run(qplan, *make, "minmax")
    _, scale = case.errors(x.reshape(case.shape) if case.fold is not columns else x.T, out)
    run(qplan, *make, "percentile:100")
    if not np.array_equal(case.decoded(out)[1], scale):
        raise AssertionError(f"{case.scheme}: percentile:100 is not minmax")
    for text in ("99.9", "99", "50.000001", "87.654321"):
        run(qplan, *make, f"percentile:{text}")
        share = int(round((100 - float(text)) * 10 ** 6))
        k = share * (x.shape[1] - 1) // (2 * 10 ** 8)
        ordered = np.sort(x, axis=1)
        lo = np.minimum(ordered[:, k], 0)
        hi = np.maximum(ordered[:, x.shape[1] - 1 - k], 0)
        least, most = (-(2 ** (case.bits - 1)), 2 ** (case.bits - 1) - 1)
        width = hi - lo if "asym" in case.scheme else 2 * np.maximum(-lo, hi)
        wanted = width / (most - least)
        found = case.decoded(out)[1][:, 0]
        slack = {"bf16": 2 ** -7, "f16": 2 ** -10}.get(case.scheme.rpartition(":")[2], 1e-6)
        if (np.abs(found - wanted) > wanted * slack).any():
            raise AssertionError(f"{case.scheme} percentile:{text}: {found} for {wanted}")
        run(qplan, "verify", out, source)
        run(qplan, "verify", "--exact", out, source)
    expected = out.read_bytes()
    for cpu, *flags in SETTINGS:
        run(qplan, *make, "percentile:87.654321", *flags, cpu=cpu)
        if out.read_bytes() != expected:
            raise AssertionError(f"{case.scheme}: other bytes with {cpu} {' '.join(flags)}")


# ---- Records ---------------------------------------------------------------------------------------

def check_record(qplan, folder, rng):
    """The record names the level; a scale that the method does not give is found."""
    case = CASES[1]
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    case.source(rng, source)
    for flags, name in ((("mse",), "mse:fast"), (("mse:best",), "mse:best"),
                        (("mse", "--positive-scales"), "mse:fast+positive")):
        run(qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme,
            "--calibrate", *flags)
        report = json.loads(run(qplan, "inspect", "--json", out))
        if report["tensors"][0]["calibrate"] != name:
            raise AssertionError(f"{flags}: the record has {report['tensors'][0]['calibrate']}")
    data = bytearray(out.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    at = begin + json.loads(data[8:begin])["w_scale"]["data_offsets"][0]
    data[at:at + 4] = np.float32(1e30).tobytes()
    out.write_bytes(data)
    run(qplan, "verify", out, source, expected=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    rng = np.random.default_rng(18)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            check_levels(qplan, case, pathlib.Path(folder), rng)
            check_bytes(qplan, case, pathlib.Path(folder), rng)
        for case in CASES:
            if "bias" not in case.scheme and "narrow" not in case.scheme:
                check_percentile(qplan, case, pathlib.Path(folder), rng)
        check_brute_force(qplan, pathlib.Path(folder), rng)
        check_record(qplan, pathlib.Path(folder), rng)
    print(f"{len(CASES)} schemes")


if __name__ == "__main__":
    main()
