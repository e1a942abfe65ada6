#!/usr/bin/env python3
"""Runs the jobs of several threads, for a build with ThreadSanitizer to watch.

    threads.py --qplan build/tsan/qplan

quantize with its proof, verify and dequantize of a checkpoint with many tensors, in every
granularity, with 2, 4 and 8 threads, with the usual memory and with little. A race ends a run with
an exit code of the sanitizer; the bytes must be those of one thread besides.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True      # the source tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault" / "os"))

import checkpoint

SCHEMES = ("int8:t", "int8:c0", "int8:c1", "int4:g64:asym", "uint8:b16x32:bf16", "int3:c0")
SETTINGS = [("1", None)] + [(n, memory) for n in ("2", "4", "8") for memory in (None, "4M", "512K")]
# Small ones that are done in batches, and large ones that several workers share.
MODEL = {**{f"layer{i:03}.weight": (("F32", "BF16", "F16")[i % 3], [8 + i % 5, 64 + 32 * (i % 3)])
            for i in range(150)},
         **{f"layer{i:03}.norm": ("F32", [64]) for i in range(20)},
         "embed.weight": ("BF16", [600, 512]), "head.weight": ("F32", [160, 1024]),
         "wide.weight": ("F32", [2, 70000])}


def run(qplan, folder, *args):
    done = subprocess.run([qplan, *args], cwd=folder, capture_output=True, timeout=600)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def commands(scheme, threads, memory):
    machine = ["-q", "--json", "--threads", threads] + (["--memory", memory] if memory else [])
    yield ("quantize", "--verify", "--scheme", scheme, "--indivisible", "ragged", *machine, "-o",
           "out", "model")
    yield ("verify", *machine, "out", "model")
    yield ("dequantize", "--dtype", "f16", *machine, "-o", "back", "out")


def results(qplan, folder, scheme, setting):
    """What one setting gives: reports and files. Raises RuntimeError with what went wrong."""
    found = []
    for args in commands(scheme, *setting):
        status, out, err = run(qplan, folder, *args)
        if status == 5 and "memory" in err:     # too little for so many threads, and it says so
            return None
        if status != 0:
            raise RuntimeError(f"exit {status} of {' '.join(args)}: {err.strip()[:3000]}")
        found.append(out)
    for name in ("out", "back"):
        found.append((folder / name).read_bytes())
    return found


def check(qplan, folder, scheme):
    """Whether all settings of a scheme are clean and give the same; None where none had room."""
    expected, done = None, 0
    for setting in SETTINGS:
        for name in ("out", "back"):
            (folder / name).unlink(missing_ok=True)
        found = results(qplan, folder, scheme, setting)
        if expected is None:
            expected = found
        elif found is not None:
            done += 1
            if found != expected:
                raise RuntimeError(f"{scheme}: {setting}: other bytes than with one thread")
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", required=True, type=pathlib.Path)
    qplan, failed, done = parser.parse_args().qplan.resolve(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").write_bytes(checkpoint.make(MODEL))
        for scheme in SCHEMES:
            try:
                done += check(str(qplan), folder, scheme)
            except RuntimeError as problem:
                failed += 1
                print(f"FAILED {scheme}: {problem}", flush=True)
    print(f"{done} settings passed, {failed} schemes failed")
    return 1 if failed or done < len(SCHEMES) * len(SETTINGS) // 2 else 0


if __name__ == "__main__":
    sys.exit(main())
