#!/usr/bin/env python3
"""Runs each command once on a small model under valgrind: no bad access, no leak.

    valgrind.py --qplan build/test/qplan --data testdata

Skipped (77) without valgrind.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOUND = 99      # the exit code of a run in which valgrind found something
MEMCHECK = ("valgrind", "--quiet", f"--error-exitcode={FOUND}", "--leak-check=full",
            "--errors-for-leak-kinds=definite,indirect,possible")
# The words of a command, and its exit code. They run in this order in one folder.
RUNS = (
    ("quantize --per-channel --axis 0 --verify --threads 2 -o int8 MODEL", 0),
    ("quantize --dtype int4 --per-group 32 --asymmetric --memory 1M -o int4 MODEL", 0),
    ("quantize --per-tensor --dry-run --json MODEL", 0),
    ("plan -o plan.json MODEL", 0),
    ("quantize --plan plan.json -o planned MODEL", 0),
    ("inspect --tensors int4", 0),
    ("inspect --against MODEL --json --fail-if sqnr_db<3 int8", 0),
    ("verify int8 MODEL", 0),
    ("verify int4 int8", 1),
    ("convert --format comfyui -o comfy int8", 0),
    ("lint comfy", 0),
    ("explain MODEL", 0),
    ("plan --target-bpw 6 --candidates int8:c0,int4:g32 -o within.json MODEL", 0),
    ("clean int8", 4),
    ("dequantize --dtype f16 -o back int4", 0),
    ("op list --json", 0),
    ("op describe quantize_per_channel", 0),
    ("op run embedding -o rows INDEX", 0),
    ("devices --json", 0),
    ("help quantize", 0),
    ("help metrics", 0),
    ("completions bash", 0),
    ("--version", 0),
    ("quantise MODEL", 2),
    ("inspect plan.json", 3),
    ("inspect absent", 4),
)


def run(qplan, words, folder):
    # valgrind has no AVX-512; a driver's own leaks are not looked for, so none is loaded.
    env = {**os.environ, "QPLAN_CPU": "avx2", "OCL_ICD_VENDORS": str(folder)}
    return subprocess.run([*MEMCHECK, qplan, *words], cwd=folder, env=env, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", required=True, type=pathlib.Path)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 77
    data, failed = options.data.resolve(), 0
    names = {"MODEL": data / "tiny-llama.safetensors",
             "INDEX": data / "ops" / "embedding-f32.safetensors"}
    with tempfile.TemporaryDirectory() as folder:
        for text, wanted in RUNS:
            done = run(str(options.qplan.resolve()),
                       [str(names.get(word, word)) for word in text.split()], folder)
            if done.returncode != wanted:
                failed += 1
                print(f"FAILED qplan {text}: exit: expected {wanted}, found {done.returncode}: "
                      f"{done.stderr.decode(errors='replace')[-3000:]}", flush=True)
    print(f"{len(RUNS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
