#!/usr/bin/env python3
"""Plans within a target, judged from outside: by files that were written and measured.

Of random models and targets: the output is never larger than the target, and as large as was said;
its squared error, measured in the written file, is what was said, and never above that of any file
of one candidate that keeps to the target; families agree; the plan as a document gives the same
bytes; threads, memory and instruction set change nothing; importance weighs.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import stored  # noqa: E402

CANDIDATES = ["int4:g128", "int4:g32:asym:bf16", "int8:c0", "keep"]
NAMES = ["lm_head.weight", "model.embed_tokens.weight"] + [
    f"model.layers.{layer}.{name}.weight" for layer in range(2)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]
SAID = re.compile(r"target: (\d+) bytes, (\S+) bpw, squared error (\S+), (?:at most \S+ % above )?the least")


def run(qplan, *args, expected=0, env=None):
    done = subprocess.run([qplan, *map(str, args)], capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})
    if done.returncode != expected:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {expected}: {done.stderr}")
    return done.stdout, done.stderr


def require(condition, *what):
    if not condition:
        raise AssertionError(what)


def near(a, b):
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b))


def make_model(path, rng):
    """Tensors of several sizes, types and spreads; the last one is kept in any case."""
    tensors = {}
    for i, name in enumerate(NAMES):
        shape = (int(rng.integers(1, 40)), 128 * int(rng.integers(1, 4)))
        values = rng.standard_t(4, shape) * 10.0 ** rng.uniform(-2, 1)
        tensors[name] = stored.packed(("F32", "BF16", "F16")[i % 3], values.astype(np.float32))
    tensors["model.norm.weight"] = stored.packed("F32", np.ones(7, np.float32))
    stored.write(path, tensors)
    return sum(int(np.prod(t.shape)) for t in tensors.values())


def measured(qplan, file, model):
    """Size of a file, and its squared error."""
    report = json.loads(run(qplan, "inspect", "--json", "--against", model, file)[0])
    error = sum(t["rms"] ** 2 * t["elements"] for t in report["tensors"]
                if t["action"] == "quantize")
    return report["file"]["bytes"], error, report


def check_families(report):
    families = {}
    for t in report["tensors"]:
        match = re.match(r"(.*\.)(?:[qkv]|gate|up)_proj\.weight$", t["name"])
        if match:
            families.setdefault(match[1], set()).add(t["scheme"])
    require(all(len(schemes) == 1 for schemes in families.values()), families)


def check_target(qplan, folder, model, flags, target, alone):
    """One target: a pair of option and value, and the files of one candidate."""
    option, value, limit = target
    out, document = folder / "out.safetensors", folder / "plan.json"
    flags = (*flags, option, value, "--candidates", ",".join(CANDIDATES))
    _, said = run(qplan, "quantize", "--force", "-o", out, *flags, model)
    match = SAID.search(said)
    n_bytes, error, report = measured(qplan, out, model)
    require(match and int(match[1]) == n_bytes == out.stat().st_size, said, n_bytes)
    require(near(float(match[3]), error), said, error)
    require(limit(n_bytes, report), said, value)
    for name, (size, other, _) in alone.items():
        if limit(size, alone[name][2]):
            require(error <= other * (1 + 1e-9), said, name, size, other)
    check_families(report)
    run(qplan, "plan", "--force", "-q", "-o", document, *flags, model)
    other = folder / "other.safetensors"
    run(qplan, "quantize", "--force", "-q", "--plan", document, "-o", other, model)
    require(out.read_bytes() == other.read_bytes(), "a plan gives other bytes")


def check_model(qplan, folder, rng, calibrate):
    model = folder / "model.safetensors"
    n_elems = make_model(model, rng)
    flags = ("--calibrate", calibrate)
    alone = {}
    for scheme in CANDIDATES:
        out = folder / "alone.safetensors"
        what = ("--exclude", "*") if scheme == "keep" else ("--scheme", scheme)
        run(qplan, "quantize", "--force", "-q", "-o", out, *flags, *what, model)
        alone[scheme] = measured(qplan, out, model)
    sizes = sorted(size for size, _, _ in alone.values())
    values = sizes + [int(rng.integers(sizes[0], sizes[-1])) for _ in range(3)]
    for size in values:
        check_target(qplan, folder, model, flags,
                     ("--target-size", size, lambda n, _, s=size: n <= s), alone)
    for bpw in (5, 6.25, 8.1):
        check_target(qplan, folder, model, flags,
                     ("--target-bpw", bpw, lambda _, r, b=bpw: r["totals"]["data_bytes"] * 8 <=
                      b * n_elems), alone)
    _, said = run(qplan, "plan", *flags, "--target-size", sizes[0] - 1, "--candidates",
                  ",".join(CANDIDATES), model, expected=3)
    require(f"at least {sizes[0]}" in said, said)


def check_machines(qplan, folder, rng):
    """The same document and the same figures, whoever computes them, of tensors in many pieces."""
    model = folder / "large.safetensors"
    stored.write(model, {f"{dtype}.weight": stored.packed(
        dtype, rng.standard_t(3, (401, 1003)).astype(np.float32)) for dtype in ("F32", "BF16")})
    flags = ("--calibrate", "mse", "--target-bpw", "5.9", "--indivisible", "ragged", "--candidates",
             "int4:g128,int5:g24:asym,int8:c1,int8:t,int4:b16x48")
    found = set()
    for threads, memory, level in ((1, "4M", ""), (1, "64M", "scalar"), (2, "4M", ""), (3, "5M", ""),
                                   (7, "64M", ""), (7, "4M", "")):
        found.add(run(qplan, "plan", "--threads", threads, "--memory", memory, *flags, model,
                      env={"QPLAN_CPU": level}))
    require(len(found) == 1, found)


def check_importance(qplan, folder, rng):
    """Bits go where importance is: one of two equal tensors has it."""
    model, weights = folder / "two.safetensors", folder / "weights.safetensors"
    values = rng.standard_normal((64, 256)).astype(np.float32)
    stored.write(model, {name: stored.packed("F32", values) for name in ("a.weight", "b.weight")})
    for loud in ("a.weight", "b.weight"):
        stored.write(weights, {name: stored.packed(
            "F32", np.full(256, 100.0 if name == loud else 1.0, np.float32)
            * rng.uniform(0.5, 1, 256).astype(np.float32)) for name in ("a.weight", "b.weight")})
        text, _ = run(qplan, "plan", "--calibrate", "mse", "--importance", weights, "--target-bpw",
                      "6.7", "--candidates", "int4:g128,int8:c0", model)
        schemes = {t["name"]: t["scheme"] for t in json.loads(text)["tensors"]}
        require(schemes[loud] == "int8:c0" and len(set(schemes.values())) == 2, loud, schemes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for calibrate in ("minmax", "mse"):
            check_model(qplan, folder, rng, calibrate)
        check_machines(qplan, folder, rng)
        check_importance(qplan, folder, rng)
    print("targets: ok")


if __name__ == "__main__":
    main()
