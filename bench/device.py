#!/usr/bin/env python3
"""Measures a device: its kernels one by one, whole commands, and what named GPUs could reach.

Kernels: tiles go through the steps of `qplan quantize`, `dequantize` and `verify`, each waited for
and timed alone; the least of all rounds counts. GB/s are bytes that the step must read and write
once each in the memory of the device.

Commands: `qplan` on the device and on the CPU by turns; the ratio is the time on the CPU divided by
that on the device, so above 1 the device is faster. The files that both write are compared.

Estimates are no measurements. They say how many GB of a source a second could go through a GPU of
that name if its bus and its memory ran at the rates given and nothing else cost anything.
"""

import argparse
import filecmp
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Rates in GB/s that are reached in practice: about 80 % of what a bus of sixteen lanes promises in
# each direction, and 85 % of the memory's.
GPUS = [("T4", "PCIe 3.0", 12.5, 272), ("L4", "PCIe 4.0", 25, 255),
        ("A100 80GB", "PCIe 4.0", 25, 1640), ("RTX 4090", "PCIe 4.0", 25, 857),
        ("H100 PCIe", "PCIe 5.0", 50, 1730), ("RTX 5090", "PCIe 5.0", 50, 1520)]
ESTIMATED = ("per channel", "block 128x128")  # one read of every element, and two


# ---- Kernels -------------------------------------------------------------------------------------

def moved(step, tile):
    """Bytes of device memory that a step must read and write."""
    name, source = step["name"], tile["source_bytes"]
    out = next(s["bytes"] for s in tile["steps"] if s["name"] == "copy out")
    if name.startswith("copy"):
        return step["bytes"]
    if name.startswith(("qk_fused", "qk_codes")):
        return source + out
    if name.startswith(("qk_decode", "qk_measure")):
        return sum(s["bytes"] for s in tile["steps"] if s["name"].startswith("copy"))
    return source if name.startswith("qk_range") else 0


def kernel_rows(tiles):
    for tile in tiles:
        way = {"quantize": "to", "dequantize": "from", "verify": "and"}[tile["job"]]
        head = f"{tile['source']} {way} {tile['codes']}, {tile['way']}"
        for step in tile["steps"]:
            n = moved(step, tile)
            if n > 1024:  # the rest is bookkeeping
                yield {"tile": head, "step": step["name"], "seconds": step["seconds"],
                       "bytes": n, "gb_per_s": n / step["seconds"] / 1e9}


# ---- Estimates -----------------------------------------------------------------------------------

def estimates(tiles):
    for tile in tiles:
        if (tile["job"], tile["source"]) != ("quantize", "bf16") or tile["way"] not in ESTIMATED:
            continue
        source = tile["source_bytes"]
        out = next(s["bytes"] for s in tile["steps"] if s["name"] == "copy out")
        # Copies go through the memory too, and the two directions of the bus run at once.
        memory = source + out + sum(moved(s, tile) for s in tile["steps"] if s["name"][:2] == "qk")
        for name, bus, bus_rate, memory_rate in GPUS:
            seconds = {"bus": max(source, out) / bus_rate, "memory": memory / memory_rate}
            limit = max(seconds, key=seconds.get)
            yield {"gpu": name, "bus": bus, "bus_gb_per_s": bus_rate,
                   "memory_gb_per_s": memory_rate,
                   "tile": f"bf16 to {tile['codes']}, {tile['way']}", "limit": limit,
                   "source_gb_per_s": source / seconds[limit],
                   "kernels_gb_per_s": source / seconds["memory"]}


# ---- Commands ------------------------------------------------------------------------------------

class Commands:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def tool(self, name, *words):
        subprocess.run([os.path.join(self.options.build, name), *words], check=True,
                       stdout=subprocess.DEVNULL)

    def time(self, words, device, out):
        start = time.monotonic()
        self.tool("qplan", *words, "--device", device, "--threads", str(self.options.threads),
                  *(["-q", "--force", "-o", self.path(out)] if out else ["-q"]))
        return time.monotonic() - start

    def run(self):
        source = self.path("source.safetensors")
        self.tool("bench-make", source, "bf16", str(self.options.size))
        for name, words in (("quantize int8, per channel", ["quantize", source]),
                            ("quantize int4, groups of 128",
                             ["quantize", "--scheme", "int4:g128", source]),
                            ("dequantize int8", ["dequantize", self.path("cpu")]),
                            ("verify int8", ["verify", self.path("cpu"), source])):
            makes_file = words[0] != "verify"
            if words[0] in ("dequantize", "verify"):
                self.tool("qplan", "quantize", "-q", "--force", "-o", self.path("cpu"), source)
            out = ("cpu.out", "device.out") if makes_file else (None, None)
            ratios, seconds = [], []
            self.time(words, self.options.device, out[1])  # compiles the kernels
            for _ in range(self.options.rounds):
                cpu = self.time(words, "cpu", out[0])
                seconds.append(self.time(words, self.options.device, out[1]))
                ratios.append(cpu / seconds[-1])
            if makes_file and not filecmp.cmp(self.path(out[0]), self.path(out[1]), shallow=False):
                sys.exit(f"{name}: the files differ")
            yield {"command": name, "seconds": statistics.median(seconds),
                   "gb_per_s": self.options.size / statistics.median(seconds) / 1e9,
                   "ratio": statistics.median(ratios)}


# ---- The whole -----------------------------------------------------------------------------------

def show(result):
    print(f"{result['device']}: {result['name']}\n\nKernels, one by one")
    last = None
    for row in result["kernels"]:
        head = row["tile"] if row["tile"] != last else ""
        last = row["tile"]
        print(f"  {head:32} {row['step']:20} {row['seconds'] * 1e3:9.3f} ms "
              f"{row['gb_per_s']:8.2f} GB/s")
    if result["commands"]:
        print("\nCommands, against the CPU")
        for row in result["commands"]:
            print(f"  {row['command']:32} {row['seconds']:8.3f} s {row['gb_per_s']:8.2f} GB/s "
                  f"{row['ratio']:8.2f} x")
    print("\nEstimates, not measured: GB of source a second, from bytes moved and the rates named")
    last = None
    for row in result["estimates"]:
        head = row["tile"] if row["tile"] != last else ""
        last = row["tile"]
        print(f"  {head:32} {row['gpu']:10} {row['bus']}, {row['bus_gb_per_s']:4} GB/s, memory "
              f"{row['memory_gb_per_s']:5} GB/s: {row['source_gb_per_s']:6.1f} GB/s, by the "
              f"{row['limit']}; kernels alone {row['kernels_gb_per_s']:6.0f} GB/s")


def main():
    parser = argparse.ArgumentParser(prog="bench/device.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help=argparse.SUPPRESS, required=True)
    parser.add_argument("--device", default="opencl:0", help="[opencl:0]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tile", type=int, default=16 << 20,
                        help="bytes, a multiple of 4 MiB [16 MiB]")
    parser.add_argument("--size", type=int, default=256 << 20,
                        help="bytes of the source of commands [256 MiB]")
    parser.add_argument("--no-commands", action="store_true", help="kernels and estimates only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    done = subprocess.run([os.path.join(options.build, "bench-device"), options.device,
                           str(options.rounds), str(options.tile)], stdout=subprocess.PIPE,
                          check=False)
    if done.returncode != 0:
        return done.returncode
    result = json.loads(done.stdout)
    tiles = result.pop("tiles")
    folder = tempfile.mkdtemp(prefix="qplan-bench-",
                              dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        result = {"schema": "qplan-bench-device/1", **result, "kernels": list(kernel_rows(tiles)),
                  "commands": [] if options.no_commands else list(Commands(options, folder).run()),
                  "estimates": list(estimates(tiles))}
    finally:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
