#!/usr/bin/env python3
"""Measures qplan against the floor: what reading and writing the same bytes costs without computing.

Every round runs each command once, so that a busy moment of the machine hits all of them alike; the
ratio of a row is the median of its rounds' ratios. Before each timed run, untimed, the output of that
run is removed and a scratch file as large as it is written and deleted: on virtual machines fresh
pages cost several times what used ones do.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

BLOCK = 256 << 10


class Row:
    """One line of the table: a qplan command and its floor."""

    def __init__(self, name, goal, source, command, reads, out_share=None, setup=None):
        self.name, self.goal, self.source, self.command = name, goal, source, command
        self.reads, self.out_share, self.setup = reads, out_share, setup
        self.ratios, self.seconds, self.floors, self.rss = [], [], [], 0


def rows():
    quantize = lambda name, goal, source, flags, reads=1: Row(
        name, goal, source, ["quantize", "-q", *flags, "-o", "{out}", "{in}"], ["{in}"] * reads)
    return [
        quantize("bf16 -> int8 per channel", 1.2, "bf16", []),
        quantize("bf16 -> int4 g128", 1.6, "bf16", ["--dtype", "int4"]),
        quantize("bf16 -> int4 g128 asymmetric", 1.6, "bf16", ["--dtype", "int4", "--asymmetric"]),
        quantize("f16 -> int8 per channel", 1.25, "f16", []),
        quantize("f32 -> int8 per channel", 1.25, "f32", []),
        quantize("bf16 -> int8 last axis", 1.3, "bf16", ["--per-channel", "--axis", "-1"], 2),
        quantize("bf16 -> int8 per tensor", 1.3, "bf16", ["--per-tensor"], 2),
        quantize("bf16 -> int8 block 128x128", 1.4, "bf16", ["--block", "128x128"]),
        Row("dequantize int8", 1.4, "bf16", ["dequantize", "-q", "-o", "{out}", "{int8}"], ["{int8}"]),
        Row("dequantize int4", 1.4, "bf16", ["dequantize", "-q", "-o", "{out}", "{int4}"], ["{int4}"]),
        Row("verify int8", 2.4, "bf16", ["verify", "-q", "{int8}", "{in}"], ["{in}", "{int8}"], 0),
        Row("verify int4", 2.4, "bf16", ["verify", "-q", "{int4}", "{in}"], ["{in}", "{int4}"], 0),
        Row("copied only (against cp)", 1.1, "bf16",
            ["quantize", "-q", "--exclude", "*", "-o", "{out}", "{in}"], None),
        Row("30,000 small tensors (against large)", 1.5, "small",
            ["quantize", "-q", "-o", "{out}", "{in}"], None),
    ]


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.paths = {name: os.path.join(self.folder, name + ".safetensors")
                      for name in ("bf16", "f16", "f32", "small", "same", "int8", "int4", "out")}

    def tool(self, name):
        return os.path.join(self.options.build, name)

    def fill(self, words, source):
        names = dict(self.paths)
        names["in"] = self.paths[source]
        return [word.format(**names) for word in words]

    def make_inputs(self):
        for name in ("bf16", "f16", "f32"):
            if any(row.source == name for row in self.rows):
                subprocess.run([self.tool("bench-make"), self.paths[name], name,
                                str(self.options.size)], check=True)
        if any(row.source == "small" for row in self.rows):
            size = min(self.options.size, 30000 * 64 * 64 * 2)
            for name in ("small", "same"):
                subprocess.run([self.tool("bench-make"), self.paths[name], "bf16", str(size), name],
                               check=True)
        for name in ("int8", "int4"):
            if any("{%s}" % name in row.command for row in self.rows):
                self.remove(self.paths[name])
                subprocess.run([self.tool("qplan"), "quantize", "-q", "--dtype", name, "-o",
                                self.paths[name], self.paths["bf16"]], check=True)

    def remove(self, path):
        if os.path.exists(path):
            os.remove(path)

    def prepare(self, out_bytes):
        """Fresh output, used pages."""
        self.remove(self.paths["out"])
        scratch = os.path.join(self.folder, "scratch")
        block = bytes(1 << 20)
        with open(scratch, "wb") as file:
            for _ in range(out_bytes >> 20):
                file.write(block)
        os.remove(scratch)
        if self.options.cold:
            os.sync()
            with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
                file.write("3")

    def time(self, command):
        """Seconds and peak RSS in KiB of a command."""
        result = subprocess.run([self.tool("bench-spawn"), *command], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            sys.exit("failed: " + " ".join(command) + "\n" + result.stderr)
        seconds, rss = result.stdout.split()
        return float(seconds), int(rss)

    def out_bytes(self, row):
        """Size of the row's output: a run of it tells."""
        if row.out_share == 0:
            return 0
        self.remove(self.paths["out"])
        self.time([self.tool("qplan"), *self.fill(row.command, row.source)])
        return os.path.getsize(self.paths["out"])

    def floor(self, row, out_bytes):
        if row.source == "small":  # the same bytes in a few large tensors
            return [self.tool("qplan"), *self.fill(row.command, "same")]
        if row.reads is None:
            return ["/bin/cp", "--reflink=never", self.paths[row.source], self.paths["out"]]
        return [self.tool("bench-floor"), self.paths["out"], str(out_bytes),
                str(self.options.threads), str(BLOCK), *self.fill(row.reads, row.source)]

    def run_row(self, row, out_bytes):
        threads = ["--threads", str(self.options.threads)]
        command = [self.tool("qplan"), *self.fill(row.command, row.source), *threads]
        self.prepare(out_bytes)
        floor, _ = self.time(self.floor(row, out_bytes))
        self.prepare(out_bytes)
        seconds, rss = self.time(command)
        row.floors.append(floor)
        row.seconds.append(seconds)
        row.ratios.append(seconds / floor)
        row.rss = max(row.rss, rss)

    def run(self):
        os.makedirs(self.folder, exist_ok=True)
        wanted = self.options.only
        self.rows = [row for row in rows() if not wanted or wanted in row.name]
        self.make_inputs()
        sizes = [self.out_bytes(row) for row in self.rows]
        for index in range(self.options.rounds):
            for row, size in zip(self.rows, sizes):
                self.run_row(row, size)
            print(f"round {index + 1} of {self.options.rounds}", file=sys.stderr)
        self.remove(self.paths["out"])
        self.paths["out"] = None


def as_json(bench):
    table = [{"name": row.name, "goal": row.goal, "ratio": statistics.median(row.ratios),
              "ratio_min": min(row.ratios), "ratio_max": max(row.ratios),
              "seconds": statistics.median(row.seconds), "floor": statistics.median(row.floors),
              "rss_kib": row.rss} for row in bench.rows]
    return json.dumps({"schema": "qplan-bench/1", "size": bench.options.size,
                       "threads": bench.options.threads, "rounds": bench.options.rounds,
                       "rows": table})


def as_text(bench):
    lines = [f"{'job':34} {'goal':>5} {'ratio':>6} {'min':>6} {'max':>6} {'wall s':>8} "
             f"{'floor s':>8} {'RSS MiB':>8}"]
    for row in bench.rows:
        lines.append(f"{row.name:34} {row.goal:5.2f} {statistics.median(row.ratios):6.2f} "
                     f"{min(row.ratios):6.2f} {max(row.ratios):6.2f} "
                     f"{statistics.median(row.seconds):8.3f} {statistics.median(row.floors):8.3f} "
                     f"{row.rss / 1024:8.1f}")
    return "\n".join(lines)


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=parse_size, default=2 << 30, help="bytes of a source [2G]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", default="/dev/shm/qplan-bench", help="where the files go [tmpfs]")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--cold", action="store_true", help="drop caches before each run (root)")
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        bench.run()
        print(as_json(bench) if options.json else as_text(bench))
    finally:
        if not options.keep:
            shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
