#!/usr/bin/env python3
"""Codes of floats in operators against ml_dtypes, and those of nf4 against bitsandbytes' limits.

    codes.py --qplan build/qplan

Every value of a type, every midpoint between two and what lies beyond its ends, with the numbers
next to them in the dtype of the data, under several scales: codes, their values, fake quantizing and
both gradients must be what the library's own rounding of the quotient makes of them, at every level.
Skipped without ml_dtypes.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

import run as cases

try:
    import ml_dtypes
except ImportError:
    print("skipped: ml_dtypes is not installed")
    sys.exit(77)

# Not F64: it is narrowed to F32 on its way to a small float there, and so rounded twice.
SOURCES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
FLOATS = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
          "f4e2m1": ml_dtypes.float4_e2m1fn}
STORAGE = {"f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2", "f4e2m1": "U8", "nf4": "U8"}

# dQuantizeNF4 and dDequantizeNF4 of bitsandbytes: limits that a code is above, and values.
NF4_LIMITS = np.array([
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544,
    -0.23460740596055984, -0.13791173323988914, -0.045525018125772476, 0.03979014977812767,
    0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
    0.5016634166240692, 0.6427869200706482, 0.8614784181118011], np.float32)
NF4_VALUES = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0], np.float32)


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def values_of(name):
    """What each code stands for; NaN and infinities among them."""
    if name == "nf4":
        return NF4_VALUES
    bits = 4 if name == "f4e2m1" else 8
    return np.arange(1 << bits, dtype=np.uint8).view(FLOATS[name]).astype(np.float32)


def points_of(name, dtype):
    """Values, midpoints and more, times a scale or not, and the numbers next to each of them."""
    values = values_of(name).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    gap = values[-1] - values[-2]
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2,
                             np.outer([-1, 1], values[-1] + gap * np.array([0.5, 1, 9])).ravel()])
    points = np.concatenate([points, points * 0.75, points * 3])
    near = points[np.abs(points) < 60000].astype(dtype)
    bits = near.view({2: np.int16, 4: np.int32}[near.itemsize])
    return np.concatenate([(bits + step).view(dtype) for step in (-1, 0, 1)])


def expected(name, x, scale):
    """Codes, values and whether the quotient is in range, in f32."""
    values = values_of(name)
    largest = np.float32(values[np.isfinite(values)].max())
    quotient = x.astype(np.float32) / np.float32(scale)
    inside = np.abs(quotient) <= largest
    clamped = np.clip(quotient, -largest, largest)
    if name == "nf4":
        codes = (clamped[:, None] > NF4_LIMITS).sum(1).astype(np.uint8)
    else:
        codes = clamped.astype(FLOATS[name]).view(np.uint8)
    return codes, np.float32(scale) * values[codes], inside


def unpacked(name, codes, n):
    if STORAGE[name] == "U8":
        codes = np.stack((codes & 15, codes >> 4), axis=-1).reshape(-1)
    return codes[:n]


class Runner:
    def __init__(self, qplan, folder):
        self.qplan, self.folder, self.runs, self.failures = qplan, folder, 0, 0

    def run(self, op, isa, fields, tensors):
        paths = [self.folder / name for name in ("in.safetensors", "out.safetensors")]
        write(paths[0], tensors)
        sets = [word for field in fields for word in ("--set", field)]
        subprocess.run([self.qplan, "op", "run", op, *sets, "--force", "-o", paths[1], paths[0]],
                       check=True, stderr=subprocess.DEVNULL,
                       env={**os.environ, "QPLAN_CPU": isa})
        self.runs += 1
        return {name: bits for name, (_, bits) in cases.read(paths[1])[0].items()}

    def compare(self, what, got, want):
        wrong = np.flatnonzero(got != want)
        if len(wrong):
            print(f"{what}: {len(wrong)} differ, the first at {wrong[0]}: {got[wrong[0]]}, expected "
                  f"{want[wrong[0]]}")
            self.failures += 1

    def check(self, name, source, isa, scale):
        x = points_of(name, SOURCES[source])
        x = x[np.isfinite(x.astype(np.float32))]
        dout = np.linspace(-3, 5, len(x)).astype(SOURCES[source])
        s = "F32", np.array([scale], np.float32)
        codes, values, inside = expected(name, x, scale)
        raw = f"<u{x.itemsize}"
        what = f"{name} of {source}, scale {scale}, {isa}"

        out = self.run("quantize_per_tensor", isa, [f"output_dtype={name}"],
                       {"input": (source, x), "scale": s})
        self.compare(f"{what}: codes", unpacked(name, out["output"], len(x)), codes)

        out = self.run("fake_quantize_per_tensor", isa, [f"code_dtype={name}"],
                       {"input": (source, x), "scale": s})
        most = float(ml_dtypes.finfo(SOURCES[source]).max)
        want = np.clip(values, -most, most).astype(SOURCES[source])
        self.compare(f"{what}: fake quantize", out["output"].view(raw), want.view(raw))

        both = {"dout": (source, dout), "input": (source, x), "scale": s}
        fields = [f"code_dtype={name}"]
        out = self.run("fake_quantize_per_tensor_backward", isa, fields, both)
        self.compare(f"{what}: gradient of fake quantize", out["dinput"].view(raw),
                     np.where(inside, dout, dout.dtype.type(0)).view(raw))
        out = self.run("quantize_per_tensor_backward", isa, fields, both)
        slope = (dout.astype(np.float32) / np.float32(scale)).astype(SOURCES[source])
        self.compare(f"{what}: gradient", out["dinput"].view(raw),
                     np.where(inside, slope, slope.dtype.type(0)).view(raw))

    def check_values(self, name, isa):
        values = values_of(name)
        codes = np.flatnonzero(np.isfinite(values)).astype(np.uint8)
        stored = codes if STORAGE[name] != "U8" else codes[::2] | codes[1::2] << 4
        for scale in (1.0, 0.0123, 3e-40):
            out = self.run("dequantize_per_tensor", isa, [f"input_dtype={name}"],
                           {"input": (STORAGE[name], stored),
                            "scale": ("F32", np.array([scale], np.float32))})
            want = np.float32(scale) * values[codes]
            self.compare(f"{name}, scale {scale}, {isa}: values", out["output"].view("<u4"),
                         want.view("<u4"))


def main():
    parser = argparse.ArgumentParser(description="Codes of floats in operators.")
    parser.add_argument("--qplan", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options.qplan, pathlib.Path(folder))
        levels = cases.Runner(options.qplan, folder, None).levels
        for name in STORAGE:
            for isa in levels:
                runner.check_values(name, isa)
                for source in SOURCES:
                    for scale in (1.0, 0.75, 0.3):
                        runner.check(name, source, isa, scale)
    print(f"{runner.runs} runs at {', '.join(levels)}, {runner.failures} failures")
    return 1 if runner.failures else 0


if __name__ == "__main__":
    sys.exit(main())
