#!/usr/bin/env python3
"""Builds the program with machine code for GPUs and sees that CUDA is given it first, PTX second.

    sass.py --double libcuda.so.1 --data testdata     exit 77 without ptxas and fatbinary
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder):
    """The program, and its sections of machine code."""
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DQPLAN_TESTS=OFF", "-DQPLAN_WERROR=ON",
                    "-DQPLAN_CUDA_ARCHS=75;90"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "-j2", "--target", "qplan"], check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "qplan"


def loads(qplan, args, fault):
    """How many images a run loads until one is good."""
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder) / "told"
        env = dict(os.environ, LD_LIBRARY_PATH=str(args.double.resolve().parent),
                   QPLAN_TEST_FAULT=fault, QPLAN_TEST_COUNT=str(told))
        subprocess.run([qplan, "quantize", "--device", "cuda", "-q", "-o", pathlib.Path(folder) / "o",
                        args.data / "tiny-llama.safetensors"], env=env, check=True)
        counts = dict(line.split() for line in told.read_text().splitlines())
        return int(counts["cuModuleLoadDataEx"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--double", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if not shutil.which("ptxas") or not shutil.which("fatbinary"):
        print("skipped: no ptxas or no fatbinary")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        qplan = build(pathlib.Path(folder))
        of_this, of_another = loads(qplan, args, "sass:1"), loads(qplan, args, "none:0")
    print(f"{of_this} image loaded where the machine code fits, {of_another} where it does not")
    return 0 if (of_this, of_another) == (1, 2) else 1


if __name__ == "__main__":
    sys.exit(main())
