#!/usr/bin/env python3
"""Lets CUDA fail in every way there is: the stated error, exit 5, nothing written, nothing left over.

    cuda_faults.py --qplan PATH --fault libcuda.so.1

The library named by --fault is the double of the driver (cuda_double.c), which ends a run with 99 if
something is not given back; others are broken ones that are made here. Each call that a run makes
fails in turn: the first, the middle and the last of each name, and with QPLAN_TEST_FULL all. It also
sees that the lanes of two workers overlap, and when `auto` takes the device. Of the fault table it
runs row H10 (libraries), row H12 (memory, a device that is lost) and row H13 (flipped bits).
"""

import argparse
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import faults

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A run that cannot give something back has done its work: it ends well, with the same file.
GIVE_BACK = {"cuDevicePrimaryCtxRelease_v2", "cuCtxPopCurrent_v2", "cuModuleUnload", "cuMemFree_v2",
             "cuMemFreeHost", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuEventDestroy_v2"}

# What goes wrong, and a piece of the message. LAST is the last of its kind, which the tensor's tile
# makes; the first belong to the proof.
CASES = (
    ("version:10020", "cuda: driver supports CUDA 10.2, needs 11.0 or newer"),
    ("version:10990", "driver supports CUDA 10.99, needs 11.0 or newer"),
    ("devices:0", "cuda: no device"),
    ("cuInit:1=100", "cuda: no device"),
    ("cuInit:1=803", "the driver does not start: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
    ("cuInit:1=12345", "cuInit failed: error (12345)"),
    ("capability:70", "the device cannot be used: compute capability is 7.0, needs 7.5 or newer"),
    ("mode:2", "the device cannot be used: its compute mode is prohibited"),
    ("jit:1", "the driver cannot build the kernels: CUDA_ERROR_INVALID_PTX (218) on Double of a GPU: "
     "ptxas fatal   : Unsupported .version 7.0"),
    ("most:1000", "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ("cuMemHostAlloc:0=2", "cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ("cuLaunchKernel:1=701", "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"),
    ("lost:1=719", "cuEventSynchronize failed: CUDA_ERROR_LAUNCH_FAILED (719)"),
    ("lost:LAST=700", "cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
    ("lost:LAST=46", "cuEventSynchronize failed: CUDA_ERROR_DEVICE_UNAVAILABLE (46)"),
    ("flip:1", "the device does not compute as the CPU does"),
    ("flip:LAST", "the device does not compute as the CPU does"),
)


class Bench(faults.Bench):
    device = "cuda"

    def run(self, *args, fault=None, libraries=None, told=None, preload=False,
            one_core=False):
        env = dict(os.environ, QPLAN_TEST_FAULT=fault or "none:0",
                   LD_LIBRARY_PATH=str(libraries or self.fault_folder))
        if told:
            env["QPLAN_TEST_COUNT"] = str(told)
        if preload:
            env["LD_PRELOAD"] = str(self.fault_folder / "libcuda.so.1")
        core = {min(os.sched_getaffinity(0))}
        done = subprocess.run([self.qplan, *map(str, args)], env=env, capture_output=True,
                              text=True, timeout=300, cwd=self.folder,
                              preexec_fn=lambda: one_core and os.sched_setaffinity(0, core))
        return done.returncode, done.stdout, done.stderr

    def counted(self, **how):
        """A run that ends well: its file, and how often it made each call."""
        with tempfile.NamedTemporaryFile() as told:
            status, _, err = self.quantize("cuda", told=told.name, **how)
            counts = dict(line.split() for line in pathlib.Path(told.name).read_text().splitlines())
        self.check(f"{how or 'without a fault'}", status == 0 and not err, f"exit {status}: {err}")
        return self.take(), {name: int(count) for name, count in counts.items()}

    def take(self):
        path = self.folder / "out"
        made = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        return made

    def same(self, what, wanted, **how):
        """A run that ends well, with the same file."""
        status, _, err = self.quantize("cuda", **how)
        self.check(what, status == 0, f"exit {status}: {err.strip()}")
        self.check(what, self.take() == wanted, "another file")


def check_cases(bench, counts):
    for fault, message in CASES:
        kind = "kernels" if fault.startswith("lost") else "flip"
        fault = fault.replace("LAST", str(counts[kind]))
        bench.refused(fault, message, fault=fault)
    # What is lost beside others: one error, whichever worker sees it first.
    bench.refused("lost, three workers", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", threads=3,
                  fault=f"lost:{counts['kernels']}=700")


def places(count):
    if os.environ.get("QPLAN_TEST_FULL"):
        return range(1, count + 1)
    return sorted({1, (count + 1) // 2, count})


def check_calls(bench, counts, made):
    """Every call that a run makes, failing in turn."""
    for name, count in counts.items():
        if not name.startswith("cu") or name == "cuGetErrorName":
            continue
        bench.check(name, count > 0, "is never made: so it need not be looked up")
        for n in places(count):
            fault = f"{name}:{n}=999"
            if name in GIVE_BACK or (name == "cuCtxPushCurrent_v2" and n == count):
                bench.same(fault, made, fault=fault)
            elif name == "cuDriverGetVersion":
                bench.refused(fault, "the driver does not tell its version: error 999", fault=fault)
            else:
                bench.refused(fault, f"{name} failed: CUDA_ERROR_UNKNOWN (999)", fault=fault)


def check_commands(bench, folder):
    """The other commands, with the last of each call failing, or its last result wrong: what the proof
    has not met."""
    file, op = folder / "q.safetensors", folder / "op.safetensors"
    bench.run("quantize", "--device", "cpu", "-q", "-o", file, bench.model)
    write_problem(op)
    for command in (("dequantize", "-q", "-o", "out", file), ("verify", "-q", file, bench.model),
                    ("inspect", file, "--against", bench.model),
                    ("op", "run", "fake_quantize_per_tensor", "-o", "out", op)):
        limits = () if command[0] == "op" else ("--threads", 1)
        words = (*command, *limits, "--device", "cuda")
        with tempfile.NamedTemporaryFile() as told:
            first = bench.run(*words, told=told.name)
            counts = dict(line.split() for line in pathlib.Path(told.name).read_text().splitlines())
        made = bench.take()
        bench.check(command[0], first[0] == 0 and (made is None) == ("out" not in command), first)
        for name, count in counts.items():
            if not name.startswith("cu") or name == "cuGetErrorName" or int(count) == 0:
                continue
            found = bench.run(*words, fault=f"{name}:{count}=999")
            after = bench.take()
            if name in GIVE_BACK or name == "cuCtxPushCurrent_v2":
                good = found[:2] == first[:2] and after == made
            else:
                good = found[0] == 5 and "999" in found[2] and not found[1] and after is None
            bench.check(f"{command[0]}, {name}:{count}", good, found)
        status, out, err = bench.run(*words, fault=f"flip:{counts['flip']}")
        after = bench.take()
        bench.check(f"{command[0]}, flip", status == 5 and not out and after is None and
                    "the device does not compute as the CPU does: " in err, (status, out, err))


def write_problem(path):
    """An input and the scale of all of it."""
    values = struct.pack("<128f", *(i / 7 for i in range(128)))
    faults.write_file(path, {"input": ("F32", [4, 32], values),
                             "scale": ("F32", [], struct.pack("<f", 0.25))})


def check_memory(bench, counts, made):
    """Memory that the device does not have makes tiles smaller; the run goes on, with its bytes."""
    for name in ("cuMemAlloc_v2", "cuMemHostAlloc"):
        fault = f"{name}:{counts[name]}=2"
        bench.same(fault, made, fault=fault)
    bench.same("most", made, fault="most:4000000")


def check_list(bench):
    """What qplan devices says of all this."""
    for fault, reason in (("none:0", None), ("capability:70", "compute capability is 7.0"),
                          ("version:10020", "driver supports CUDA 10.2"), ("devices:0", "no device")):
        status, out, err = bench.run("devices", "--json", fault=fault)
        entry = json.loads(out)["devices"][0]
        good = entry["backend"] == "cuda" and entry["usable"] == (reason is None)
        bench.check(f"devices, {fault}", status == 0 and good and (entry["reason"] or "").startswith(
            reason or ""), f"{out} {err}")
    status, out, _ = bench.run("devices", "--self-test", fault="flip:7")
    bench.check("devices --self-test", status == 0 and
                "cuda:0  Double of a GPU, 1.1 GB, driver CUDA 12.4\n    not usable: "
                "the device does not compute as the CPU does: " in out, out)


def check_libraries(bench, folder):
    bench.broken_libraries(folder, "libcuda.so.1", "cuDriverGetVersion")
    text = (ROOT / "kernels" / "backends" / "cuda_api.h").read_text()
    names = re.findall(r"X\((cu\w+)\)", text)
    bench.check("the calls of cuda_api.h", len(names) > 20, names)
    for missing in (names[0], names[-1]):
        where = folder / missing
        where.mkdir()
        source = "int cuDriverGetVersion(int *v) { *v = 11000; return 0; }\n"
        source += "".join(f"int {name}(void) {{ return 999; }}\n" for name in names if name != missing)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", where / "libcuda.so.1", "-x", "c", "-"],
                       input=source, text=True, check=True)
        bench.refused(f"without {missing}", f"cuda: libcuda.so.1 lacks {missing}", libraries=where)


def check_overlap(bench, folder):
    """A lane has work queued while the kernel of another has not ended: waiting for one does not keep
    the other from going on. Ends with no overlap after 20 seconds if it does. The tiles are larger
    than the pinned memory of a lane."""
    bench.model = folder / "large.safetensors"
    values = bytearray(random.Random(6).randbytes(64 << 20))
    values[3::4] = b"\x3f" * (16 << 20)  # f32 of one sign, from 0.5 to 2
    write_tensor(bench.model, "F32", 4096, len(values))
    with bench.model.open("r+b") as file:
        file.seek(-len(values), os.SEEK_END)
        file.write(values)
    status, _, err = bench.quantize("cpu")
    wanted = bench.take()
    bench.check("overlap: the CPU", status == 0, err)
    # 0 workers are as many as there are cores, and on one core two.
    for threads, one_core in ((1, False), (2, False), (3, False), (0, True)):
        made, counts = bench.counted(threads=threads, one_core=one_core, fault="overlap:1")
        bench.check("overlap", made == wanted, "another file")
        bench.check("overlap", (counts["overlaps"] > 0) == (threads != 1),
                    f"{counts['overlaps']} with {threads} workers")
    # A cap on memory holds for what is pinned too.
    made, counts = bench.counted(threads=4, memory="4M")
    bench.check("a cap on memory", made == wanted, "another file")
    bench.check("a cap on memory", counts["pinned"] < 4 << 20, f"{counts['pinned']} bytes pinned")
    # One of the device's memory holds for the proof and for all lanes together, and is made use of.
    for threads, cap in ((1, 3 << 20), (4, 3 << 20), (4, 30 << 20)):
        made, counts = bench.counted(threads=threads, device_memory=cap)
        bench.check("a cap on device memory", made == wanted, "another file")
        bench.check("a cap on device memory", cap // 2 < counts["memory"] <= cap,
                    f"{counts['memory']} bytes of {cap} taken")


# Of 4096 f64 elements a row, so many that the copies to a device pay for one worker of the CPU: more
# than 0.3 / (1 / 1.5e9 - 1 / 8e9) bytes.
ROWS_THAT_PAY = 16903


def check_auto(bench, folder):
    """auto takes the device from a size on, unless it fails; the system seems to have a GPU. It never
    takes an OpenCL device that is a CPU, which may be there too."""
    bench.model = folder / "auto.safetensors"
    for rows, fault, used in ((ROWS_THAT_PAY, None, "cuda:0,"), (ROWS_THAT_PAY - 1, None, "cpu "),
                              (ROWS_THAT_PAY, "flip:1", "cpu "), (ROWS_THAT_PAY, "devices:0", "cpu ")):
        write_tensor(bench.model, "F64", 4096, rows * 4096 * 8)
        status, _, err = bench.run("quantize", "--device", "auto", "--threads", "1", "--scheme",
                                   "int4:g4096", "-o", "out", bench.model, fault=fault,
                                   preload=True)
        what = f"auto, {rows} rows, {fault}"
        bench.check(what, status == 0 and f", {used}" in err, f"exit {status}: {err}")
        bench.take()


def write_tensor(path, dtype, row_len, n_bytes):
    """One tensor of zeros in rows, of which the file system keeps none."""
    shape = [n_bytes // row_len // {"F32": 4, "F64": 8}[dtype], row_len]
    head = faults.safetensors_head({"w": {"dtype": dtype, "shape": shape,
                                          "data_offsets": [0, n_bytes]}})
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + n_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("--fault", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as libraries, tempfile.TemporaryDirectory() as folder:
        bench, other = Bench(args, pathlib.Path(folder)), pathlib.Path(libraries)
        bench.model = faults.write_model(other / "f32.safetensors", "F32", 4)
        made, counts = bench.counted()
        if bench.failures:  # then every other run would only say the same
            return bench.report()
        bench.refused("no such number", "no such device: expected 0 to 0, found 9", device="cuda:9")
        check_libraries(bench, other)
        check_cases(bench, counts)
        check_calls(bench, counts, made)
        check_commands(bench, other)
        check_memory(bench, counts, made)
        check_list(bench)
        check_overlap(bench, other)
        check_auto(bench, other)
        return bench.report()


if __name__ == "__main__":
    sys.exit(main())
