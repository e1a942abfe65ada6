#!/usr/bin/env python3
"""Runs every case of testdata/ops through `qplan op run` and compares the outputs.

    run.py --qplan PROGRAM --data FOLDER [--device NAME [--every N]] [-v]

A case is a safetensors file: inputs by name, results as expect.NAME, and metadata: op, desc (the
fields as JSON), compare (bit, ulp:N or rel:X; compare.NAME for one output) or exit (the run must be
refused with that code, a message, and no output). Each case runs on one thread and on three, and at
every instruction set level of the machine; the files must be the same, also where the type of the
codes is named instead of their ends.

--device: every case, or every N-th, whose operator has a kernel for devices runs on the CPU and on
that device instead; exit 77 where there is none.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
         "F8_E8M0": "u1", "I8": "i1", "U8": "u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "I64": "<i8"}
FLOATS = ("F64", "F32", "F16", "BF16")
ENDS = {(-8, 7): "int4", (0, 15): "uint4", (-128, 127): "int8", (0, 255): "uint8"}


def read(path):
    """{name: (dtype, array of the stored bits)} and the metadata."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        bits = numpy.frombuffer(data[8 + n + begin:8 + n + end], NUMPY[entry["dtype"]])
        tensors[name] = entry["dtype"], bits.reshape(entry["shape"])
    return tensors, metadata


def numbers(dtype, bits):
    """The values as float64, exactly."""
    if dtype == "BF16":
        return (bits.astype("<u4") << 16).view("<f4").astype("f8")
    return bits.astype("f8")


def ordered(dtype, bits):
    """Integers that count the steps between neighbouring floats."""
    size = bits.dtype.itemsize
    raw = bits.view(f"<i{size}").astype(object)
    low = -(1 << (8 * size - 1))
    return numpy.array([low - int(x) if x < 0 else int(x) for x in raw.ravel()], dtype=object)


def differs(rule, got, want):
    """Why an output does not fit, or ""."""
    if got[0] != want[0] or got[1].shape != want[1].shape:
        return f"{got[0]} {list(got[1].shape)}, expected {want[0]} {list(want[1].shape)}"
    if got[0] not in FLOATS:
        bad = got[1] != want[1]
        return f"{int(bad.sum())} values differ" if bad.any() else ""
    x, y = numbers(*got), numbers(*want)
    same = (x == y) | (numpy.isnan(x) & numpy.isnan(y))
    kind, _, limit = rule.partition(":")
    if kind == "ulp":
        steps = [abs(a - b) for a, b in zip(ordered(*got), ordered(*want))]
        near = numpy.array([step <= int(limit) for step in steps], bool).reshape(x.shape)
        same |= near & ~numpy.isnan(x) & ~numpy.isnan(y)
    elif kind == "rel":
        finite = numpy.abs(y[numpy.isfinite(y)])
        with numpy.errstate(invalid="ignore"):
            same |= numpy.abs(x - y) <= float(limit) * (finite.max() if finite.size else 0)
    if same.all():
        return ""
    at = numpy.unravel_index(int(numpy.argmin(same)), x.shape)
    return f"{int((~same).sum())} values differ ({rule}): at {[int(i) for i in at]} " \
           f"{x[at]!r}, expected {y[at]!r}"


def by_type(op, desc):
    """Fields that name the type of codes whose ends are q_min and q_max; None where there is none."""
    code = ENDS.get((desc.get("q_min"), desc.get("q_max")))
    if not code or not op.startswith("fake_quantize"):
        return None
    return {**{key: desc[key] for key in desc if key not in ("q_min", "q_max")}, "code_dtype": code}


class Runner:
    def __init__(self, qplan, folder, device):
        self.qplan, self.folder, self.device = qplan, folder, device
        self.levels = ["scalar"] if device else [level for level in ("scalar", "avx2", "avx512") if self.has(level)]

    def has(self, level):
        return subprocess.run([self.qplan, "op", "list"], env=self.env(level),
                              capture_output=True).returncode == 0

    @staticmethod
    def env(level):
        return {**os.environ, "QPLAN_CPU": level}

    def run(self, case, op, desc, level, threads, device="cpu"):
        named = "-named" if "code_dtype" in desc else ""
        out = pathlib.Path(self.folder) / f"{case.stem}-{level}-{threads}-{device}{named}.out"
        fields = [word for key, value in desc.items() for word in
                  ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]
        done = subprocess.run([self.qplan, "op", "run", op, *fields, "--threads", str(threads),
                               "--device", device, "-o", out, case], env=self.env(level),
                              capture_output=True, text=True)
        return done, out

    def runs(self, case, op, desc):
        if named := by_type(op, desc):
            yield ("the type named", *self.run(case, op, named, "scalar", 1, self.device or "cpu"))
        if self.device:
            yield ("the CPU", *self.run(case, op, desc, "scalar", 1))
            yield (self.device, *self.run(case, op, desc, "scalar", 1, self.device))
            return
        for level in self.levels:
            for threads in (1, 3):
                yield (f"{level}, {threads} threads", *self.run(case, op, desc, level, threads))

    def check(self, case):
        """Why a case fails, or ""."""
        tensors, metadata = read(case)
        expected = {name[7:]: value for name, value in tensors.items() if name.startswith("expect.")}
        first = None
        for what, done, out in self.runs(case, metadata["op"], json.loads(metadata["desc"])):
            if "exit" in metadata:
                if done.returncode != int(metadata["exit"]) or "error:" not in done.stderr \
                        or out.exists():
                    return f"{what}: exit {done.returncode}, expected a refusal with " \
                           f"{metadata['exit']}\n{done.stderr}"
                continue
            if done.returncode != 0:
                return f"{what}: exit {done.returncode}\n{done.stderr}"
            got = out.read_bytes()
            if first is not None and got != first:
                return f"{what}: another file than at {self.levels[0]} with one thread"
            if what == self.device and ": cpu " in done.stderr:
                return f"{what}: ran on the CPU"
            first = got
            if why := self.compare(out, expected, metadata):
                return f"{what}: {why}"
        return ""

    @staticmethod
    def compare(out, expected, metadata):
        outputs, _ = read(out)
        if outputs.keys() != expected.keys():
            return f"outputs {sorted(outputs)}, expected {sorted(expected)}"
        for name, want in expected.items():
            rule = metadata.get(f"compare.{name}", metadata["compare"])
            if why := differs(rule, outputs[name], want):
                return f"{name}: {why}"
        return ""


def usable(qplan, device):
    listed = subprocess.run([qplan, "devices", "--json"], capture_output=True, check=True)
    return any(entry["usable"] and entry["backend"] == device.split(":")[0]
               for entry in json.loads(listed.stdout)["devices"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("-v", action="store_true", help="name every case")
    args = parser.parse_args()
    listing = subprocess.run([args.qplan, "op", "list", "--json"], capture_output=True, check=True)
    listed = json.loads(listing.stdout)["operators"]
    offered = {op["name"] for op in listed}
    on_devices = {op["name"] for op in listed
                  if any(kernel["sku"].endswith("/any/device") for kernel in op["kernels"])}
    cases = sorted(args.data.glob("*.safetensors"))
    ops = {case: read(case)[1]["op"] for case in cases}
    failures = [f"{case.name}: {op} is not offered" for case, op in ops.items()
                if op not in offered]
    ready = [case for case in cases if ops[case] in offered]
    if args.device:
        if not usable(args.qplan, args.device):
            print(f"skipped: no usable device {args.device}")
            return 77
        ready = [case for case in ready if ops[case] in on_devices][::args.every]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(args.qplan, folder, args.device)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for case, why in zip(ready, pool.map(runner.check, ready)):
                if args.v:
                    print(f"{case.name}: {why or 'ok'}")
                if why:
                    failures.append(f"{case.name}: {why}")
    print("\n".join(failures))
    print(f"ops: {len(ready)} of {len(cases)} cases at {', '.join(runner.levels)}"
          f"{' and on ' + args.device if args.device else ''}, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
