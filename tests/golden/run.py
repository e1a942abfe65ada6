#!/usr/bin/env python3
"""Compares what qplan writes with the golden files, and with itself under every other setting.

    run.py --qplan PATH --data testdata/qplan [CASE...]

Golden: each case of cases.json is quantized with one thread, and with three threads and little
memory; the file must have the stated SHA-256 and, where it is stored, the stored bytes; verify must
prove it, and dequantize must give the stated file. Determinism: a checkpoint of some megabytes is
quantized in every granularity with other thread counts, memory caps and instruction sets; files and
reports must be the same bytes.
"""

import argparse
import array
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

GOLDEN_SETTINGS = (("--threads", "1"), ("--threads", "3", "--memory", "4M"))
LEVELS = ("scalar", "avx2", "avx512")
TIMEOUT_SECONDS = 300


class Failure(Exception):
    """A check that did not hold; the text says which."""


def run(qplan, *args, cwd=None, level=None):
    """Runs qplan, which must succeed, and returns its stdout."""
    env = dict(os.environ)
    env.pop("QPLAN_CPU", None)
    if level:
        env["QPLAN_CPU"] = level
    command = [str(qplan), *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise Failure(f"exit {done.returncode} of {' '.join(command[1:])}: "
                      f"{done.stderr.decode(errors='replace').strip()[-500:]}")
    return done.stdout


def first_difference(a, b):
    """Where two byte strings differ, for people."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return f"byte {i} is {y}, expected {x}"
    return f"{len(b)} bytes, expected {len(a)}"


# ---- Golden files -------------------------------------------------------------------------------

def check_file(case, part, path, data):
    """Compares a written file with the golden one."""
    found = path.read_bytes()
    if part in case["stored"]:
        expected = (data / f"{case['name']}.{part}.safetensors").read_bytes()
        if found != expected:
            raise Failure(f"{part}: {first_difference(expected, found)}")
    if hashlib.sha256(found).hexdigest() != case["sha256"][part]:
        raise Failure(f"{part}: another SHA-256")


def check_case(qplan, case, data, folder):
    """Everything about one case; raises Failure."""
    source = data / case["in"]
    if hashlib.sha256(source.read_bytes()).hexdigest() != case["sha256"]["in"]:
        raise Failure("in: another SHA-256")
    for i, settings in enumerate(GOLDEN_SETTINGS):
        out, back = folder / f"{i}.out", folder / f"{i}.back"
        run(qplan, "quantize", *case["quantize"], *settings, "-q", "-o", out, source)
        check_file(case, "out", out, data)
        run(qplan, "verify", "--allow-unquantized", *settings, "-q", out, source)
        run(qplan, "dequantize", *case["dequantize"], *settings, "-q", "-o", back, out)
        check_file(case, "dequant", back, data)


# ---- Determinism --------------------------------------------------------------------------------

def bf16(values):
    """Values as the upper halves of f32, cut off."""
    bits = array.array("I", array.array("f", values).tobytes())
    return array.array("H", (b >> 16 for b in bits)).tobytes()


def f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def tensor_values(rng, rows, cols):
    """Rows of different sizes; some zeros, outliers, values so small that order matters."""
    values = []
    for row in range(rows):
        size = 10.0 ** rng.randint(-4, 2) if row % 7 else 0.0
        values += [rng.uniform(-size, size) for _ in range(cols)]
        if row % 5 == 0:
            values[-1 - rng.randrange(cols)] = size * 8
    return values


def write_model(path):
    """A checkpoint with every source type, odd extents, and tensors that are kept."""
    rng = random.Random(20240)
    plan = (("a.f32", "F32", (301, 1031), lambda v: array.array("f", v).tobytes()),
            ("b.bf16", "BF16", (7, 97, 515), bf16),
            ("c.f16", "F16", (513, 640), f16),
            ("d.f64", "F64", (129, 500), lambda v: array.array("d", v).tobytes()),
            ("e.column", "F32", (70001, 1), lambda v: array.array("f", v).tobytes()),
            ("f.row", "BF16", (1, 200003), bf16),
            ("g.bias", "F32", (4099,), lambda v: array.array("f", v).tobytes()))
    header, data = {}, b""
    for name, dtype, shape, encode in plan:
        rows = 1
        for extent in shape[:-1]:
            rows *= extent
        blob = encode(tensor_values(rng, rows, shape[-1]))
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


SCHEMES = ("int8:t", "int8:c0", "int8:c-1:asym", "int8:c1:narrow:bf16", "uint8:g100:f16",
           "uint8:b64x100", "int4:g128", "int4:t:asym", "int4:c-1:bf16", "uint4:g7",
           "uint4:b3x5:sym", "int4:b128x1:narrow", "int2:g128", "uint3:t", "int3:c-1:bf16",
           "int5:b3x5:asym", "uint6:c0:sym", "int8:g32:e8m0", "uint4:g16:f8e4m3", "int8:t:f8e4m3",
           "uint4:g40:bias:f16", "int7:g7:narrow")

# Threads, memory cap, instruction set; the first is what the others are compared with.
SETTINGS = (("1", None, "scalar"), ("1", None, None), ("2", None, None), ("3", None, None),
            ("7", None, None), ("1", "512K", None), ("2", "1M", "scalar"), ("3", "4M", None),
            ("7", "4M", None), ("7", "600K", None))


def levels_of(qplan, model):
    """The instruction sets that this machine has."""
    found = []
    for level in LEVELS:
        try:
            run(qplan, "inspect", "-q", model, level=level)
            found.append(level)
        except Failure:
            pass
    return found


def result_of(qplan, scheme, setting, folder):
    """The file and the reports of one setting; paths in them are always the same."""
    threads, memory, level = setting
    machine = ["--threads", threads] + (["--memory", memory] if memory else [])
    folder.mkdir()
    made = run(qplan, "quantize", "--scheme", scheme, "--indivisible", "ragged", "--verify",
               "--json", *machine, "-q", "-o", "out.safetensors", "../model.safetensors",
               cwd=folder, level=level)
    proven = run(qplan, "verify", "--json", *machine, "-q", "out.safetensors",
                 "../model.safetensors", cwd=folder, level=level)
    restored = run(qplan, "dequantize", "--json", "--dtype", "f16", *machine, "-q", "-o",
                   "back.safetensors", "out.safetensors", cwd=folder, level=level)
    results = {"report of quantize": made, "report of verify": proven,
               "report of dequantize": restored}
    for name in ("out.safetensors", "back.safetensors"):
        results[name] = (folder / name).read_bytes()
        (folder / name).unlink()
    json.loads(made)
    json.loads(proven)
    return results


def check_scheme(qplan, scheme, settings, folder):
    """All settings of one scheme; raises Failure."""
    expected = result_of(qplan, scheme, settings[0], folder / "0")
    for i, setting in enumerate(settings[1:], 1):
        for what, found in result_of(qplan, scheme, setting, folder / str(i)).items():
            if found != expected[what]:
                words = ", ".join(f"{name} {value}" for name, value in
                                  zip(("threads", "memory", "level"), setting) if value)
                raise Failure(f"{what} with {words}: {first_difference(expected[what], found)}")


# ---- The whole ----------------------------------------------------------------------------------

def jobs(qplan, data, folder, only):
    """Pairs of a name and a function that raises Failure."""
    cases = json.loads((data / "cases.json").read_text())
    for case in cases:
        if not only or case["name"] in only:
            place = folder / case["name"]
            place.mkdir()
            yield case["name"], lambda c=case, p=place: check_case(qplan, c, data, p)
    if only:
        return
    model = folder / "model.safetensors"
    write_model(model)
    levels = levels_of(qplan, model)
    settings = SETTINGS + tuple(("2", None, level) for level in levels[1:])
    for scheme in SCHEMES:
        place = folder / ("scheme " + scheme.replace(":", " "))
        place.mkdir()
        (place / "model.safetensors").symlink_to(model)
        yield (f"same bytes: {scheme} ({len(settings)} settings, {' '.join(levels)})",
               lambda s=scheme, p=place: check_scheme(qplan, s, settings, p))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("case", nargs="*", help="only these golden cases")
    args = parser.parse_args()
    qplan, data = args.qplan.resolve(), args.data.resolve()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        running = [(name, pool.submit(job))
                   for name, job in jobs(qplan, data, pathlib.Path(folder), set(args.case))]
        for name, future in running:
            try:
                future.result()
                passed += 1
            except (Failure, OSError, subprocess.TimeoutExpired) as problem:
                failed += 1
                print(f"FAILED {name}: {problem}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
