#!/usr/bin/env python3
"""Lets OpenCL fail in every way there is: the stated error, exit 5, and nothing written.

    faults.py --qplan PATH --fault libOpenCL.so.1     exit 77 without a device

The library named by --fault stands before the real loader (opencl_fault.c); others are broken ones
that are made here. cuda_faults.py does the same with CUDA. A device that cannot divide correctly is
row H11 of the fault table.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

# What goes wrong, and a piece of the message. N counts calls: the first ones belong to the proof.
CALLS = (
    ("clGetPlatformIDs:0=-1001", "no platform"),
    ("clGetDeviceIDs:0=-1", "no device"),
    ("clCreateContext:1=-2", "clCreateContext failed: CL_DEVICE_NOT_AVAILABLE (-2)"),
    ("clCreateProgramWithSource:1=-6", "clCreateProgramWithSource failed: CL_OUT_OF_HOST_MEMORY"),
    ("clBuildProgram:1=-11", "the driver cannot build the kernels: error -11"),
    ("clCreateCommandQueue:1=-36", "clCreateCommandQueue failed: CL_INVALID_COMMAND_QUEUE"),
    ("clCreateBuffer:0=-4", "clCreateBuffer failed: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"),
    ("clCreateKernel:1=-46", "clCreateKernel failed: CL_INVALID_KERNEL_NAME (-46)"),
    ("clSetKernelArg:1=-50", "clSetKernelArg failed: error (-50)"),
    ("clEnqueueWriteBuffer:1=-5", "clEnqueueWriteBuffer failed: CL_OUT_OF_RESOURCES (-5)"),
    ("clEnqueueWriteBuffer:LAST=-36", "clEnqueueWriteBuffer failed"),
    ("clEnqueueNDRangeKernel:1=-54", "clEnqueueNDRangeKernel failed"),
    ("clEnqueueNDRangeKernel:LAST=-54", "clEnqueueNDRangeKernel failed"),
    ("clEnqueueReadBuffer:1=-36", "clEnqueueReadBuffer failed"),
    ("clEnqueueReadBuffer:LAST=-36", "clEnqueueReadBuffer failed"),
    ("clFinish:1=-36", "clFinish failed: CL_INVALID_COMMAND_QUEUE (-36)"),
    ("clFinish:LAST=-36", "clFinish failed: CL_INVALID_COMMAND_QUEUE (-36)"),
    ("flip:1", "the device does not compute as the CPU does"),
    ("flip:LAST", "the device does not compute as the CPU does"),
    ("fp:128", "the device cannot be used: division is not correctly rounded"),
    ("fp:1", "the device cannot be used: subnormal numbers are flushed to zero"),
    ("fp:4", "the device cannot be used: sums are not rounded to nearest"),
)


def real_loader():
    """The path of the loader that the dynamic linker would take."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = [line.split("=> ")[1] for line in listed.splitlines() if "libOpenCL.so.1 " in line]
    return paths[0] if paths else "libOpenCL.so.1"


class Bench:
    """Runs of a program with a library of --fault, in a folder that is empty between them."""
    device = "opencl"

    def __init__(self, args, folder):
        self.qplan, self.folder = args.qplan.resolve(), folder
        self.fault_folder = args.fault.resolve().parent
        self.failures, self.n = [], 0

    def run(self, *args, fault=None, libraries=None, told=None):
        env = dict(os.environ)
        if fault:
            libraries = self.fault_folder
            env.update(QPLAN_TEST_OPENCL=real_loader(), QPLAN_TEST_FAULT=fault)
        if told:
            env["QPLAN_TEST_COUNT"] = told
        if libraries:
            env["LD_LIBRARY_PATH"] = str(libraries)
        done = subprocess.run([self.qplan, *map(str, args)], env=env, capture_output=True,
                              text=True, timeout=300, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def quantize(self, device, threads=1, memory=None, device_memory=None, **how):
        limits = ("--threads", threads) if threads else ()
        limits += ("--memory", memory) if memory else ()
        limits += ("--device-memory", device_memory) if device_memory else ()
        return self.run("quantize", "--device", device, *limits, "-q", "--force", "-o", "out",
                        self.model, **how)

    def check(self, what, holds, why=""):
        self.n += 1
        if not holds:
            self.failures.append(f"FAILED {what}: {why}")

    def refused(self, what, message, device=None, **how):
        """Exit 5 with that message; the file that is there stays, and there is no other."""
        (self.folder / "out").write_text("old")
        status, out, err = self.quantize(device or self.device, **how)
        left = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.check(what, status == 5 and message in err and not out, f"exit {status}: {err.strip()}")
        self.check(what, left == {"out": b"old"}, f"left over: {sorted(left)}")
        (self.folder / "out").unlink(missing_ok=True)

    def broken_libraries(self, folder, library, first_call):
        """One that is none, and one without calls; the folder of the second."""
        (folder / "broken").mkdir()
        (folder / "broken" / library).write_text("not a library\n")
        self.refused("a broken library", f"{self.device}: no library: ", libraries=folder / "broken")
        (folder / "empty").mkdir()
        subprocess.run(["cc", "-shared", "-o", folder / "empty" / library, "-x", "c", "/dev/null"],
                       check=True)
        self.refused("a library without calls", f"{library} lacks {first_call}",
                     libraries=folder / "empty")
        status, out, _ = self.run("devices", "--json", libraries=folder / "empty")
        entry = next(d for d in json.loads(out)["devices"] if d["backend"] == self.device)
        self.check("devices of a library without calls", status == 0 and entry["id"] is None and
                   not entry["usable"] and "lacks" in entry["reason"], out)
        return folder / "empty"

    def report(self):
        print("\n".join(self.failures + [f"{self.n - len(self.failures)} of {self.n} passed"]))
        return 1 if self.failures else 0


def count(bench, name):
    """How many calls of that name a run makes; the last are those of the tensor."""
    with tempfile.NamedTemporaryFile() as told:
        fault = f"{name}:1000000" + ("" if name == "flip" else "=-36")
        bench.quantize("opencl", fault=fault, told=told.name)
        (bench.folder / "out").unlink()
        return pathlib.Path(told.name).read_text().strip()


def check_calls(bench):
    for fault, message in CALLS:
        if "LAST" in fault:
            fault = fault.replace("LAST", count(bench, fault.split(":")[0]))
        bench.refused(fault, message, fault=fault)


def check_memory(bench):
    """Memory that the device does not have makes tiles smaller; the run goes on."""
    status, _, err = bench.quantize("opencl", fault="clCreateBuffer:2=-4")
    bench.check("smaller tiles", status == 0, err)
    (bench.folder / "out").unlink(missing_ok=True)


def check_fp64(bench, model):
    """Without 64-bit floats f32 works, and f64 is refused with that reason."""
    status, _, err = bench.quantize("opencl", fault="no-fp64:0")
    bench.check("f32 without f64", status == 0, err)
    (bench.folder / "out").unlink(missing_ok=True)
    check_way_back(bench, model.parent / "q.safetensors", fault="no-fp64:0")
    bench.model = write_model(model, "F64", 8)
    bench.refused("f64 without f64", "no 64-bit floats, which 'w' needs", fault="no-fp64:0")


def check_way_back(bench, file, fault):
    """Without 64-bit floats f32 can be restored, but not measured; with auto the CPU does it."""
    bench.run("quantize", "--device", "cpu", "-q", "-o", file, bench.model)
    status, _, err = bench.run("dequantize", "--device", "opencl", "-q", "-o", "out", file,
                               fault=fault)
    bench.check("dequantize without f64", status == 0, err)
    bench.run("dequantize", "--device", "cpu", "-q", "-o", "cpu", file)
    outputs = [bench.folder / name for name in ("out", "cpu")]
    bench.check("dequantize without f64", len({path.read_bytes() for path in outputs}) == 1)
    for path in outputs:
        path.unlink()
    for command in (("verify", file, bench.model), ("inspect", file, "--against", bench.model)):
        status, out, err = bench.run(*command, "--device", "opencl", fault=fault)
        bench.check(f"{command[0]} without f64", status == 5 and not out and "the device has no "
                    "64-bit floats, which measuring errors needs" in err, err)
        status, _, err = bench.run(*command, "--device", "auto", fault=fault)
        bench.check(f"{command[0]} with auto", status == 0, err)
    for fault, message in (("flip:LAST", "the device does not compute as the CPU does"),
                           ("clFinish:LAST=-36", "clFinish failed"),
                           ("clEnqueueReadBuffer:LAST=-36", "clEnqueueReadBuffer failed")):
        for command in (("verify", file, bench.model), ("dequantize", "-o", "out", file)):
            check_last(bench, command, fault, message)


def check_last(bench, command, fault, message):
    """The last call of a run belongs to its only part: the proof has passed by then."""
    name = fault.split(":")[0]
    with tempfile.NamedTemporaryFile() as told:
        counted = f"{name}:1000000" + ("" if name == "flip" else "=-36")
        bench.run(*command, "--device", "opencl", "--threads", "1", fault=counted, told=told.name)
        last = pathlib.Path(told.name).read_text().strip()
    (bench.folder / "out").unlink(missing_ok=True)
    status, out, err = bench.run(*command, "--device", "opencl", "--threads", "1",
                                 fault=fault.replace("LAST", last))
    bench.check(f"{command[0]} {fault}", status == 5 and message in err and not out, err)
    bench.check(f"{command[0]} {fault}", not (bench.folder / "out").exists(), "a file is left over")


def write_model(path, dtype, size):
    """One tensor of small numbers: one tile."""
    body = struct.pack(f"<128{'f' if size == 4 else 'd'}", *(i / 7 for i in range(128)))
    return write_file(path, {"w": (dtype, [4, 32], body)})


def write_file(path, tensors):
    """Tensors by name: dtype, shape and bytes, one behind the other."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    path.write_bytes(safetensors_head(header) + body)
    return path


def safetensors_head(header):
    text = json.dumps(header)
    text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text.encode()


def check_libraries(bench, folder):
    empty = bench.broken_libraries(folder, "libOpenCL.so.1", "clGetPlatformIDs")
    status, _, err = bench.quantize("auto", libraries=empty)
    bench.check("auto goes on without a device", status == 0, err)
    (bench.folder / "out").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("--fault", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as libraries, tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, pathlib.Path(folder))
        bench.model = write_model(pathlib.Path(libraries) / "f32.safetensors", "F32", 4)
        listed = json.loads(bench.run("devices", "--json")[1])
        if not any(d["usable"] and d["backend"] == "opencl" for d in listed["devices"]):
            print("skipped: no usable OpenCL device")
            return 77
        status, _, err = bench.quantize("opencl", fault="none:0")
        bench.check("without a fault", status == 0, err)
        (bench.folder / "out").unlink(missing_ok=True)
        bench.refused("no such number", "no such device: expected 0 to ", device="opencl:9")
        check_libraries(bench, pathlib.Path(libraries))
        check_calls(bench)
        check_memory(bench)
        check_fp64(bench, pathlib.Path(libraries) / "f64.safetensors")
        return bench.report()


if __name__ == "__main__":
    sys.exit(main())
