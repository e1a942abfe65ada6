"""The peak memory of a run, for a small and for a large model: it must be the same."""

import json
import os
import struct
import subprocess

from sandbox import Sandbox

MIB = 1 << 20
SMALL, LARGE = 8 * MIB, 96 * MIB
SLACK_KIB = 4096  # stacks and allocator


def make_model(path, n_bytes):
    """One F32 tensor of zeros; the file system need not store them."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [n_bytes // 16384, 4096],
                               "data_offsets": [0, n_bytes]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + n_bytes)


def peak_kib(sandbox, *args):
    process = subprocess.Popen(["qplan", *args], cwd=sandbox.path, env=sandbox.tools.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with process.stderr:
        message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise RuntimeError(message)
    return usage.ru_maxrss


def test(tools, results):
    if os.environ.get("QPLAN_TEST_LIMITS") == "off":
        results.skip("memory", "limits are off")
        return
    sandbox = Sandbox(tools)
    make_model(sandbox.path / "small.safetensors", SMALL)
    make_model(sandbox.path / "large.safetensors", LARGE)
    for flags in (["--per-channel"], ["--per-tensor"], ["--dtype", "int4", "--memory", "4M"]):
        peaks = {}
        for size in ("small", "large"):
            source, out = f"{size}.safetensors", f"{size}.out"
            machine = ["--quiet", "--threads", "4"]
            peaks[size] = [
                peak_kib(sandbox, "quantize", *flags, *machine, "-o", out, source),
                peak_kib(sandbox, "verify", *machine, out, source),
                peak_kib(sandbox, "dequantize", *machine, "-o", "back", out),
            ]
            (sandbox.path / out).unlink()
            (sandbox.path / "back").unlink()
        grown = [large - small for small, large in zip(peaks["small"], peaks["large"])]
        results.check(max(grown) <= SLACK_KIB, f"memory: {' '.join(flags)}",
                      "peak memory in KiB of quantize, verify and dequantize: "
                      f"{peaks['small']} for {SMALL // MIB} MiB, "
                      f"{peaks['large']} for {LARGE // MIB} MiB")
