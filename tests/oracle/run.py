#!/usr/bin/env python3
"""Runs every operator on random problems and compares the outputs with PyTorch on the CPU.

    run.py --qplan PROGRAM [--cases N] [--seed N] [--only TEXT] [-v]

The table ORACLES has an entry for each operator: what makes a problem, and what checks the outputs
against PyTorch, gradients against autograd. An operator that `qplan op list` has and the table has
not is a failure. Where PyTorch computes something else by design (it multiplies by the reciprocal
of a scale, for example), the entry proves for each difference that it is of that kind; the count
is printed.

PyTorch is looked for in this Python, then in build/oracle-venv, which `scripts/test.sh --oracle`
makes. Without it: exit 77.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True  # the source tree stays as it is

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VENV = ROOT / "build" / "oracle-venv" / "bin" / "python3"

try:
    import torch
except ImportError:
    if VENV.exists() and pathlib.Path(sys.executable) != VENV:
        os.execv(VENV, [str(VENV), *sys.argv])
    print("skipped: this Python has no PyTorch; scripts/test.sh --oracle installs it")
    sys.exit(77)

import embedding
import example
import grid
import parameters
import quantize
import tensors
from problem import Differs, Draw

ORACLES = {**quantize.ORACLES, **embedding.ORACLES, **grid.ORACLES, **parameters.ORACLES}


class Runner:
    def __init__(self, qplan, folder):
        self.qplan, self.folder = qplan, pathlib.Path(folder)

    def run(self, op, seed, problem):
        """The outputs of `qplan op run`."""
        source, out = (self.folder / f"{op}-{seed}.{end}" for end in ("in", "out"))
        tensors.write(source, **problem.inputs)
        fields = [word for key, value in problem.fields.items() for word in
                  ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]
        done = subprocess.run([self.qplan, "op", "run", op, *fields, "-o", out, source],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Differs(f"exit {done.returncode}: {done.stderr.strip()}")
        outputs = tensors.read(out)
        source.unlink()
        out.unlink()
        return outputs

    def check(self, op, seed):
        """One problem: how many differences were explained, or why it failed."""
        oracle = ORACLES[op]
        problem = oracle.make(Draw(f"{op} {seed}"))
        try:
            return oracle.check(problem, self.run(op, seed, problem)) or 0, ""
        except Differs as why:
            shapes = {name: (str(x.dtype)[6:], list(x.shape)) for name, x in problem.inputs.items()}
            return 0, f"{op}, seed {seed}: {why}\n  fields {problem.fields}\n  tensors {shapes}"


def check_operators(args, names):
    failures = []
    with tempfile.TemporaryDirectory(prefix="qplan-oracle-") as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        runner = Runner(args.qplan, folder)
        for op in names:
            seeds = range(args.seed, args.seed + args.cases)
            results = list(pool.map(runner.check, [op] * args.cases, seeds))
            bad = [why for _, why in results if why]
            explained = sum(n for n, _ in results)
            if args.v:
                print(f"{op}: {args.cases} cases, {len(bad)} failed, {explained} explained")
            failures += bad
    return failures


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    args.qplan = os.path.abspath(args.qplan)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Since version 1.3.0")  # affine_grid, for an extent of 1
    listing = subprocess.run([args.qplan, "op", "list", "--json"], capture_output=True, check=True)
    names = [op["name"] for op in json.loads(listing.stdout)["operators"]]
    failures = [f"{op}: it has no entry in ORACLES" for op in names if op not in ORACLES]
    names = [op for op in names if op in ORACLES and args.only in op]
    failures += check_operators(args, names)
    if not args.only:
        failures += example.check(args.qplan, ROOT)
    print("\n".join(failures))
    print(f"oracle: {len(names)} operators, {args.cases} cases each, torch {torch.__version__}, "
          f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
