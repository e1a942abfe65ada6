#!/usr/bin/env python3
"""Runs the jobs of several threads, for a build with ThreadSanitizer to watch.

    threads.py --qplan build/tsan/qplan

quantize with its proof, verify and dequantize of a checkpoint with many tensors, in every
granularity, by methods that search, by a Hessian and within a target, with 2, 4 and 8 threads, with
the usual memory and with little. A race ends a run with
an exit code of the sanitizer; the bytes must be those of one thread besides.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True      # the source tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault" / "os"))

import checkpoint

SCHEMES = ("int8:t", "int8:c0", "int8:c1", "int4:g64:asym", "uint8:b16x32:bf16", "int3:c0")
# What makes an output; a rounded one is proven with the Hessian alone.
JOBS = [("--scheme", s) for s in SCHEMES] + [
    ("--scheme", "uint4:g32:bias", "--calibrate", "mse"), ("--scheme", "nvfp4"),
    ("--scheme", "int4:g32", "--hessian", "hessian"),
    ("--candidates", "int4:g32,int8:c0,keep", "--target-bpw", "8")]
SETTINGS = [("1", None)] + [(n, memory) for n in ("2", "4", "8") for memory in (None, "4M", "512K")]
# Small ones that are done in batches, and large ones that several workers share.
MODEL = {**{f"layer{i:03}.weight": (("F32", "BF16", "F16")[i % 3], [8 + i % 5, 64 + 32 * (i % 3)])
            for i in range(150)},
         **{f"layer{i:03}.norm": ("F32", [64]) for i in range(20)},
         "embed.weight": ("BF16", [600, 512]), "head.weight": ("F32", [160, 1024]),
         "wide.weight": ("F32", [2, 70000])}


def hessian(name, n):
    """A file with one for a weight of n columns, which all go a little with each other."""
    data = struct.pack(f"<{n * n}f", *(1 + i % 5 if i == k else 0.25 for i in range(n) for k in range(n)))
    text = json.dumps({f"{name}.hessian": {"dtype": "F32", "shape": [n, n],
                                           "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(text)) + text + data


def run(qplan, folder, *args):
    done = subprocess.run([qplan, *args], cwd=folder, capture_output=True, timeout=600)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def commands(job, threads, memory):
    proof = ["--exact", *job[-2:]] if "--hessian" in job else []
    machine = ["-q", "--json", "--threads", threads] + (["--memory", memory] if memory else [])
    yield ("quantize", "--verify", *job, "--indivisible", "ragged", *machine, "-o", "out", "model")
    yield ("verify", *proof, *machine, "out", "model")
    yield ("dequantize", "--dtype", "f16", *machine, "-o", "back", "out")


def results(qplan, folder, job, setting):
    """What one setting gives: reports and files. Raises RuntimeError with what went wrong."""
    found = []
    for args in commands(job, *setting):
        status, out, err = run(qplan, folder, *args)
        if status == 5 and "memory" in err:     # too little for so many threads, and it says so
            return None
        if status != 0:
            raise RuntimeError(f"exit {status} of {' '.join(args)}: {err.strip()[:3000]}")
        found.append(out)
    for name in ("out", "back"):
        found.append((folder / name).read_bytes())
    return found


def check(qplan, folder, job):
    """Whether all settings of a job are clean and give the same; None where none had room."""
    expected, done = None, 0
    for setting in SETTINGS:
        for name in ("out", "back"):
            (folder / name).unlink(missing_ok=True)
        found = results(qplan, folder, job, setting)
        if expected is None:
            expected = found
        elif found is not None:
            done += 1
            if found != expected:
                raise RuntimeError(f"{setting}: other bytes than with one thread")
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", required=True, type=pathlib.Path)
    qplan, failed, done = parser.parse_args().qplan.resolve(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").write_bytes(checkpoint.make(MODEL))
        (folder / "hessian").write_bytes(hessian("layer000.weight", 64))
        for job in JOBS:
            try:
                done += check(str(qplan), folder, job)
            except RuntimeError as problem:
                failed += 1
                print(f"FAILED {' '.join(job)}: {problem}", flush=True)
    print(f"{done} settings passed, {failed} jobs failed")
    return 1 if failed or done < len(JOBS) * len(SETTINGS) // 2 else 0


if __name__ == "__main__":
    sys.exit(main())
