#!/usr/bin/env python3
"""The least squared error of codes that are floats or places in a table, and of scales of few bits.

Files in the native layout are decoded here, by numpy. No set is worse by mse than by minmax, and no
level is worse than the one before it, also with weights. Where scales are few numbers, every one of
them is tried here: no other has a smaller error. The bytes are the same for every level of the CPU,
number of threads and memory.
"""

import argparse
import pathlib
import tempfile

import numpy as np

from least_error import LEVELS, SETTINGS, groups, heavy, not_worse, run, stored, whole

NF4 = np.array([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
                0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = stored.e4m3(np.arange(0x7F, dtype=np.uint8)).astype(np.float64)
E5M2 = np.arange(0x7C00, step=256).astype("<u2").view("<f2").astype(np.float64)
INT4 = np.arange(16)


def both(sizes):
    """Values of codes whose highest bit is a sign; patterns behind the last are no numbers."""
    half = np.full(128 if len(sizes) > 8 else 8, np.nan)
    half[:len(sizes)] = sizes
    return np.concatenate((half, -half))


class Case:
    """A scheme, what its codes stand for, and the sets of a matrix as rows of an array."""

    def __init__(self, scheme, dtype, values, fold, shape=(24, 256)):
        self.scheme, self.dtype, self.values = scheme, dtype, values
        self.fold, self.shape = fold, shape

    def source(self, rng, path):
        tensor = stored.packed(self.dtype, heavy(rng, *self.shape))
        stored.write(path, {"w": tensor})
        return stored.values(tensor).astype(np.float64)

    def codes(self, tensor):
        rows = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape)
        if len(self.values) == 256:
            return rows
        return np.stack([rows & 15, rows >> 4], -1).reshape(self.shape)

    def scales(self, tensors):
        """Scales of sets, and the factor that they have in common."""
        factor = stored.values(tensors["w_scale_2"])[0] if "w_scale_2" in tensors else 1
        scale = tensors["w_scale"]
        if scale.dtype == "U8":
            return np.ldexp(1.0, np.frombuffer(scale.data, np.uint8).astype(int) - 127), factor
        return (stored.values(scale).ravel() * np.float32(factor)).astype(np.float64), factor

    def errors(self, x, path, weights=1):
        """Squared errors of sets, their scales, and the factor."""
        tensors = stored.read_file(path)
        values = self.fold(self.values[self.codes(tensors["w"])])
        scale, factor = self.scales(tensors)
        if "asym" in self.scheme:
            zero = np.frombuffer(tensors["w_zero_point"].data, "i1").reshape(-1, 1)
            values = np.where(values > 7, values - 16, values) - zero
        error = (self.fold(x) - values * scale.reshape(-1, 1)) ** 2
        return (error * weights).sum(1), scale, factor


CASES = (
    Case("nf4:g64:bf16", "BF16", NF4, groups(64)),
    Case("nf4:g16:f16", "F32", NF4, groups(16)),
    Case("f8e4m3:c0", "BF16", both(E4M3), groups(256)),
    Case("f8e4m3:c0:f16", "F32", both(E4M3), groups(3000), (5, 3000)),
    Case("f8e4m3:t", "F16", both(E4M3), whole, (700, 512)),
    Case("f8e5m2:c0", "BF16", both(E5M2), groups(256)),
    Case("f4e2m1:g32:bf16", "BF16", both(E2M1), groups(32)),
    Case("f4e2m1:g16:f8e4m3", "BF16", both(E2M1), groups(16)),
    Case("f4e2m1:g32:e8m0", "F32", both(E2M1), groups(32)),
    Case("f8e4m3:g32:e8m0", "BF16", both(E4M3), groups(32)),
    Case("int4:g32:asym:e8m0", "BF16", INT4, groups(32)),
    Case("int4:g16:asym:f8e4m3", "F32", INT4, groups(16)),
)


def quantize(qplan, source, out, scheme, *flags, cpu="avx512"):
    run(qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", scheme, *flags, cpu=cpu)


def check_levels(qplan, case, folder, rng):
    source, out, file = folder / "m.safetensors", folder / "o.safetensors", folder / "importance"
    x = case.source(rng, source)
    importance = np.exp2(rng.integers(-6, 3, case.shape[1])).astype(np.float32)
    stored.write(file, {"w": stored.packed("F32", importance)})
    weights = case.fold(np.broadcast_to(importance, case.shape)).astype(np.float64)
    for weights, flags in ((1, ()), (weights, ("--importance", file))):
        quantize(qplan, source, out, case.scheme)
        before = errors = case.errors(x, out, weights)[0]
        for level in LEVELS:
            quantize(qplan, source, out, case.scheme, "--calibrate", level, *flags)
            now = case.errors(x, out, weights)[0]
            not_worse(f"{case.scheme} {level}", now, errors)
            errors = now
        run(qplan, "verify", out, source)
        if case.scheme != "f8e4m3:g32:e8m0" and errors.sum() >= before.sum():
            raise AssertionError(f"{case.scheme}: nothing is better than minmax")


def check_signs(qplan, case, folder, rng):
    """Scales of tables have either sign, unless that is forbidden; those of others have none."""
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    x = case.source(rng, source)
    quantize(qplan, source, out, case.scheme, "--calibrate", "mse")
    if (case.errors(x, out)[1] < 0).any() != case.scheme.startswith("nf4"):
        raise AssertionError(f"{case.scheme}: scales of another sign than expected")
    quantize(qplan, source, out, case.scheme, "--calibrate", "mse", "--positive-scales")
    if (case.errors(x, out)[1] < 0).any():
        raise AssertionError(f"{case.scheme}: a scale is below 0 with --positive-scales")


def check_bytes(qplan, case, folder, rng):
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    case.source(rng, source)
    quantize(qplan, source, out, case.scheme, "--calibrate", "mse")
    expected = out.read_bytes()
    for cpu, *flags in SETTINGS:
        quantize(qplan, source, out, case.scheme, "--calibrate", "mse", *flags, cpu=cpu)
        if out.read_bytes() != expected:
            raise AssertionError(f"{case.scheme}: other bytes with {cpu} {' '.join(flags)}")
    run(qplan, "verify", "--exact", out, source)


# ---- Every scale -----------------------------------------------------------------------------------

def least(x, scales, values):
    """The least error of each row of x with any of the scales."""
    limits = np.sort(values[~np.isnan(values)])
    best = (x ** 2).sum(1)
    for scale in scales:
        at = np.searchsorted((limits[1:] + limits[:-1]) / 2, x / scale)
        best = np.minimum(best, ((x - limits[at] * scale) ** 2).sum(1))
    return best


def check_every_scale(qplan, case, folder, rng):
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    x = case.source(rng, source)
    quantize(qplan, source, out, case.scheme)
    _, minmax, factor = case.errors(x, out)
    quantize(qplan, source, out, case.scheme, "--calibrate", "mse")
    fast, scale, _ = case.errors(x, out)
    quantize(qplan, source, out, case.scheme, "--calibrate", "mse:exact")
    exact = case.errors(x, out)[0]
    if case.scheme.endswith("e8m0"):
        every = np.exp2(np.arange(np.log2(minmax.min()) - 8, np.log2(minmax.max()) + 3))
    elif case.scheme.endswith("f8e4m3"):
        every = E4M3[1:] * factor
    else:
        every = np.concatenate([s * minmax.max() * np.linspace(0.02, 3, 3000) for s in (1, -1)])
    best = least(case.fold(x), every, case.values)
    slack = {"nf4": 1.014, "f8e": 1.06}.get(case.scheme[:3], 1.0005)
    for what, errors in (("mse", fast.sum() / slack), ("mse:exact", exact.sum() / 1.003)):
        if errors > best.sum() * (1 + 1e-6):
            raise AssertionError(f"{case.scheme} {what}: {errors / best.sum()} of the least error")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    rng = np.random.default_rng(18)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case in CASES:
            check_levels(qplan, case, folder, rng)
            check_signs(qplan, case, folder, rng)
            check_bytes(qplan, case, folder, rng)
            if "asym" not in case.scheme and "f16" not in case.scheme and ":t" not in case.scheme:
                check_every_scale(qplan, case, folder, rng)
    print(f"{len(CASES)} schemes")


if __name__ == "__main__":
    main()
