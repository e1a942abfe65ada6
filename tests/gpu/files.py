#!/usr/bin/env python3
"""Compares the files and reports that a device makes with those of the CPU.

    files.py --qplan PATH --data testdata/qplan [--device opencl]     exit 77 without the device

Every golden case must have its golden bytes; a checkpoint of awkward shapes must have the CPU's, in
every granularity, by every method that chooses parameters, with other thread counts and caps; errors
must have the CPU's words.
"""

import argparse
import array
import hashlib
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("golden", HERE.parent / "golden" / "run.py")
golden = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(golden)
sys.path.insert(0, str(HERE))
import way_back

SETTINGS = ((), ("--threads", "1"), ("--threads", "3", "--device-memory", "2M"),
            ("--memory", "1M"))


# Codes of floats and tables: every type, every scale, every granularity.
FLOATS = ("f8e4m3:c0", "f8e4m3:t:f16", "f8e5m2:b64x100:bf16", "f8e5m2:g32:e8m0", "f4e2m1:g16:f8e4m3",
          "f4e2m1:g7:e8m0", "nf4:g40:f16", "nf4:c-1:f8e4m3")
# Methods that choose parameters, each with every kind of codes and of scales.
CALIBRATED = ("int4:g128", "int4:g40:asym:bf16", "uint4:g40:bias:f16", "int3:c-1:bf16", "int8:c0",
              "int8:t", "int4:b3x5", "int8:g32:e8m0", "uint4:g16:f8e4m3", "f8e4m3:c0",
              "f4e2m1:g16:f8e4m3", "f4e2m1:g32:e8m0", "nf4:g40:f16")
METHODS = ("mse", "mse:best", "percentile:97.5", "entropy:512")

# The tensor that has a Hessian, and how many of its columns go together.
ROUNDED, ROUNDED_COLS, TOGETHER = "c.f16", 640, 128


class Bench:
    def __init__(self, qplan, device, folder):
        self.qplan, self.device, self.folder = qplan, device, folder
        self.failures, self.n = [], 0

    def run(self, *args):
        done = subprocess.run([self.qplan, *map(str, args)], capture_output=True, text=True,
                              timeout=600, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def quantize(self, device, source, out, *args):
        return self.run("quantize", "--device", device, "-q", "--force", "-o", out, *args, source)

    def check(self, what, holds, why=""):
        self.n += 1
        if not holds:
            self.failures.append(f"FAILED {what}: {why}")

    def same(self, what, source, *args, settings=()):
        """One command on the CPU and on the device: the same file, or the same error."""
        for name in ("cpu.out", "device.out"):
            (self.folder / name).unlink(missing_ok=True)
        cpu = self.quantize("cpu", source, "cpu.out", *args)
        device = self.quantize(self.device, source, "device.out", *args, *settings)
        written = [self.folder / name for name in ("cpu.out", "device.out")]
        self.check(what, cpu == device, f"{device[0]}: {device[2].strip()[-300:]}, expected "
                   f"{cpu[0]}: {cpu[2].strip()[-300:]}")
        self.check(what, [p.exists() for p in written] == [cpu[0] == 0] * 2, "a file is left over")
        if cpu[0] == 0 and device[0] == 0:
            a, b = (p.read_bytes() for p in written)
            self.check(what, a == b, golden.first_difference(a, b) if a != b else "")
        return cpu[0]


def check_golden(bench, data):
    for case in json.loads((data / "cases.json").read_text()):
        status, _, err = bench.quantize(bench.device, data / case["in"], "out", *case["quantize"])
        found = hashlib.sha256((bench.folder / "out").read_bytes()).hexdigest() if not status else ""
        bench.check(f"golden {case['name']}", found == case["sha256"]["out"],
                    err.strip()[-300:] or "another SHA-256")


def check_schemes(bench, model):
    for scheme in (*golden.SCHEMES, *FLOATS):
        for settings in SETTINGS[2:] if scheme in FLOATS else SETTINGS:
            bench.same(f"{scheme} {' '.join(settings)}", model, "--scheme", scheme,
                       "--indivisible", "ragged", settings=settings)


def write_floats(path, tensors):
    """Tensors of F32 by name, as shape and numbers."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        blob = array.array("f", numbers).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_importance(path, model):
    with open(model, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    columns = {name: entry["shape"][-1] for name, entry in header.items() if len(entry["shape"]) > 1}
    write_floats(path, {name: ([n], [1 + i * 7 % 13 for i in range(n)])
                        for name, n in columns.items()})


def write_hessian(path):
    block = [0.75 ** abs(i - j) for i in range(TOGETHER) for j in range(TOGETHER)]
    shape = [ROUNDED_COLS // TOGETHER, TOGETHER, TOGETHER]
    write_floats(path, {f"{ROUNDED}.hessian": (shape, block * shape[0])})


def check_calibration(bench, model):
    """Parameters are the CPU's, whoever makes the codes; codes that a Hessian rounds are, too."""
    importance, hessian = bench.folder / "importance", bench.folder / "hessian"
    write_importance(importance, model)
    write_hessian(hessian)
    for number, scheme in enumerate(CALIBRATED):
        one = METHODS[number % len(METHODS)]
        how = ("--scheme", scheme, "--indivisible", "ragged", "--calibrate")
        can_weigh = "entropy" not in one and "percentile" not in one
        for method, settings in ((METHODS[0], SETTINGS[2]), (one, ("--memory", "8M"))):
            bench.same(f"{scheme} {method} {' '.join(settings)}", model, *how, method,
                       settings=settings)
        bench.same(f"{scheme} with importance", model, *how, one if can_weigh else METHODS[0],
                   "--importance", importance, settings=SETTINGS[1])
    for scheme in ("int4:g128", "f8e4m3:c0", "nf4:g40:f16"):
        status = bench.same(f"{scheme} ldlq", model, "--scheme", scheme, "--include", ROUNDED,
                            "--hessian", hessian, settings=SETTINGS[1])
        bench.check(f"{scheme} ldlq", status == 0, status)


def check_folders(bench, tiny):
    """Layouts of engines: codes with a bias, in words, down columns, in an order of their own; scales
    with a factor, which multiplies or divides."""
    model = bench.folder / "Model"
    model.mkdir()
    (model / "model.safetensors").symlink_to(tiny)
    (model / "config.json").write_text('{"model_type": "llama"}')
    wishes = [("--format", name) for name in ("mlx", "awq", "gptq_v2", "bitsandbytes",
                                              "compressed-tensors", "fp8", "modelopt")]
    wishes += [("--preset", name) for name in ("nvfp4a16", "mxfp4a16", "mxfp8a16", "mlx-nvfp4")]
    for wish, layout in wishes:
        names = ["cpu", bench.device]
        runs = [bench.run("quantize", "-q", "--device", name, wish, layout, "-o",
                          f"{layout}.{name}", model) for name in names]
        bench.check(f"the folder of {layout}", runs[0] == runs[1] and runs[0][0] == 0, runs[1])
        for file in ("model.safetensors", "config.json"):
            one, other = ((bench.folder / f"{layout}.{name}" / file).read_bytes() for name in names)
            bench.check(f"{file} of {layout}", one == other, "other bytes")


def check_reports(bench, model):
    """What the commands that write say of it: the words of the CPU."""
    for command in (("quantize", "--scheme", "int8:c0", "-o", "told", model),
                    ("quantize", "--scheme", "int3:g32", "--verify", "--indivisible", "ragged", "-o",
                     "told", model),
                    ("quantize", "--scheme", "uint4:g32", "--indivisible", "ragged", "--verify", "-o",
                     "told", model), ("dequantize", "-o", "back", "told")):
        cpu, device = (bench.run(*command, "-q", "--force", "--json", "--device", name)
                       for name in ("cpu", bench.device))
        bench.check(f"the report of {command[0]}", cpu == device and cpu[0] == 0 and cpu[1], device)


def check_errors(bench, data, model):
    """NaN, scales that overflow, and caps: the words of the CPU, and no file."""
    nan = data / "nonfinite-f32.in.safetensors"
    bench.check("NaN is refused", bench.same("NaN", nan) == 3)
    bench.same("NaN saturates", nan, "--nonfinite", "saturate")
    bench.same("scales too large", data / "edge-f32.in.safetensors", "--scale-dtype", "f16")
    status, _, err = bench.quantize(bench.device, model, "capped", "--device-memory", "100K")
    bench.check("a cap too small", status == 5 and "too small: expected at least" in err, err)
    bench.check("a cap too small", not (bench.folder / "capped").exists(), "a file is left over")
    status, _, err = bench.run("quantize", "--device", bench.device, "--force", "-o", "out", model)
    bench.check("the summary names the device", status == 0 and f", {bench.device}:0, " in err, err)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="opencl")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.qplan.resolve(), args.device, pathlib.Path(folder))
        listed = json.loads(bench.run("devices", "--json")[1])
        usable = [d for d in listed["devices"] if d["backend"] == args.device and d["usable"]]
        if not usable:
            print(f"skipped: no usable {args.device} device")
            return 77
        model = bench.folder / "model.safetensors"
        golden.write_model(model)
        check_golden(bench, args.data.resolve())
        check_schemes(bench, model)
        check_calibration(bench, model)
        check_folders(bench, args.data.resolve().parent / "tiny-llama.safetensors")
        check_reports(bench, model)
        check_errors(bench, args.data.resolve(), model)
        way_back.check(bench, args.data.resolve(), model,
                        (*golden.SCHEMES, *FLOATS))
        print("\n".join(bench.failures + [f"{bench.n - len(bench.failures)} of {bench.n} passed"]))
        return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
