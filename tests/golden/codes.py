#!/usr/bin/env python3
"""Codes of floats against ml_dtypes, and those of nf4 against the limits of bitsandbytes.

    codes.py --qplan build/qplan

A tensor with every value of a type, every midpoint between two, and the numbers next to them in the
type of the source, is quantized with the scale 1: the codes must be what the library's own rounding
makes of it, at every level. Skipped without ml_dtypes.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

import stored

try:
    import ml_dtypes
except ImportError:
    print("skipped: ml_dtypes is not installed")
    sys.exit(77)

# Not F64: it is narrowed to F32 on its way to a small float there, and so rounded twice.
SOURCES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
FLOATS = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
          "f4e2m1": ml_dtypes.float4_e2m1fn}

# dQuantizeNF4 of bitsandbytes: a code is above each limit that its value passes.
NF4_LIMITS = np.array([
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544,
    -0.23460740596055984, -0.13791173323988914, -0.045525018125772476, 0.03979014977812767,
    0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
    0.5016634166240692, 0.6427869200706482, 0.8614784181118011], np.float32)


def neighbours(points, dtype):
    """The points in a type, and the numbers on either side of each."""
    near = points.astype(dtype)
    bits = near.view({2: np.int16, 4: np.int32}[near.itemsize])
    return np.concatenate([(bits + step).view(dtype) for step in (-1, 0, 1)])


def points_of(name):
    """All values and midpoints, and the largest value: with it in the tensor the scale is 1."""
    if name == "nf4":
        return np.concatenate([NF4_LIMITS.astype(np.float64), np.linspace(-1, 1, 33)]), 1.0
    bits = 4 if name == "f4e2m1" else 8
    values = np.arange(1 << bits, dtype=np.uint8).view(FLOATS[name]).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    return np.concatenate([values, (values[1:] + values[:-1]) / 2]), values[-1]


def expected(name, x):
    if name == "nf4":
        return (x.astype(np.float32)[:, None] > NF4_LIMITS).sum(1).astype(np.uint8)
    return x.astype(FLOATS[name]).view(np.uint8)


def check(options, name, source, isa, folder):
    points, largest = points_of(name)
    x = neighbours(points, SOURCES[source])
    x = np.append(x[np.abs(x.astype(np.float64)) <= largest], SOURCES[source](largest))
    paths = [os.path.join(folder, file) for file in ("in.safetensors", "out.safetensors")]
    stored.write(paths[0], {"w": stored.Stored(source, (1, len(x)), x.tobytes())})
    command = [options.qplan, "quantize", "-q", "--force", "--scheme", name + ":t", "-o", paths[1]]
    subprocess.run([*command, paths[0]], check=True, env={**os.environ, "QPLAN_CPU": isa})
    found = stored.read(paths[1])
    codes = np.frombuffer(found["w"].data, np.uint8)
    if name in ("f4e2m1", "nf4"):
        codes = np.stack((codes & 15, codes >> 4), axis=-1).reshape(-1)[:len(x)]
    assert np.frombuffer(found["w_scale"].data, np.float32)[0] == 1
    wrong = np.flatnonzero(codes != expected(name, x))
    for i in wrong[:5]:
        print(f"{name} of {source}, {isa}: {x[i]!r} is {codes[i]:#x}, not {expected(name, x)[i]:#x}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description="Codes of floats against ml_dtypes.")
    parser.add_argument("--qplan", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        n_wrong = sum(check(options, name, source, isa, folder) for name in (*FLOATS, "nf4")
                      for source in SOURCES for isa in ("scalar", "avx2", "avx512"))
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
