#!/usr/bin/env python3
"""Measures qplan against the floor: reading and writing the same bytes, and computing nothing.

Every round runs each job and what it is compared with once, by turns, so that a busy moment of the
machine hits all of them alike; the ratio of a row is the median of its rounds' ratios. Before each
timed run, of either, untimed, the output is removed and a scratch file as large as it is written
and deleted: on virtual machines fresh pages cost several times what used ones do. For the same reason
a file is kept that has one page in each 256 KiB of free memory: a machine that gives memory back to
its host does so in large blocks, and so there are none. And where the two of a row read different
files, these are made anew for each run: the memory that they happen to lie in decides over a tenth
of the time. Beside the ratio of seconds stands that of the time on any core, which other work on
the machine changes less.

Calibration is measured by itself: what one core does in a second, against goals.

Peers are compared if they are there: llama-quantize on PATH, torch and safetensors in the virtual
environment of --venv. What is left out is named, with the reason.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the source tree stays as it is

import peers
import rates
import tables

BLOCK = 256 << 10
MODEL_BYTES = 2143289344  # four layers with the vocabulary: see make.c
SMALL_BYTES = 30000 * 64 * 64 * 2
HEAVY_BYTES = 8 * 4096 * rates.COLUMNS * 2
LARGE_TENSORS, LARGE_SHAPE = 222, (11008, 4096)  # 20.02 GB of bf16
STARTS = 20
PAGE, HOLD_BLOCK = 4096, 256 << 10
SHARDS = 40
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}

# Layouts that engines load: the options, and the goals of quantize and dequantize.
LAYOUTS = {"w4a16": (["--preset", "w4a16"], 1.6, 2.0), "w8a8": (["--preset", "w8a8"], 1.6, 2.0),
           "mlx": (["--preset", "mlx-4bit"], 1.8, 2.0), "gptq": (["--preset", "gptq-4bit"], 2.0, 2.0),
           "awq": (["--preset", "awq-4bit"], 2.0, 2.0), "bnb-int8": (["--preset", "bnb-int8"], 1.6, 2.0),
           **{preset: (["--preset", preset], goal, 1.6) for preset, goal in (
               ("fp8_dynamic", 1.3), ("deepseek-fp8", 1.3), ("nvfp4a16", 1.8), ("mxfp4a16", 1.8),
               ("mxfp8a16", 1.8), ("mlx-mxfp4", 1.8), ("nf4", 2.0))}}

# Schemes of floats and tables, by their short names.
FLOATS = ("fp8", "nf4", "nvfp4", "mxfp4", "mxfp8")

# How often the weights are read: twice where the largest one decides about all scales.
READS = {"nvfp4a16": 2}

QUANTIZE = ["{qplan}", "quantize", "-q", "--threads", "{threads}", "-o", "{out}"]
DEQUANTIZE = ["{qplan}", "dequantize", "-q", "--threads", "{threads}", "-o", "{out}"]
VERIFY = ["{qplan}", "verify", "-q", "--threads", "{threads}"]
FLOOR = ["{floor}", "{out}", "{out_bytes}", "{threads}", "{block}"]
COLD_FLOOR = ["{floor}", "--sync", *FLOOR[1:]]
COPY = ["/bin/cp", "--reflink=never", "{bf16}", "{out}"]
COLD_COPY = ["/bin/sh", "-c", 'cp --reflink=never "$1" "$2" && sync "$2"', "cp", "{bf16}", "{out}"]


class Row:
    """One line of a table: a command, and the one that it is compared with (its base)."""

    def __init__(self, section, name, goal, command, base, against="floor", env=None, renew=(),
                 times=1):
        self.section, self.name, self.goal, self.against = section, name, goal, against
        self.command, self.base, self.env, self.renew = command, base, env or {}, renew
        self.times = times  # in a round: short commands, of which each is more often disturbed
        self.ratios, self.seconds, self.bases, self.imports = [], [], [], []
        self.cpu, self.base_cpu = [], []  # seconds on any core
        self.rss = self.out_bytes = self.base_out_bytes = 0

    @property
    def cold(self):
        return self.section == "cold"


def hot_rows():
    def quantize(name, goal, source, *flags, reads=1, env=None):
        return Row("hot", name, goal, [*QUANTIZE, *flags, source], [*FLOOR, *[source] * reads],
                   env=env)

    return [
        quantize("bf16 -> int8 per channel", 1.2, "{bf16}"),
        quantize("bf16 -> int4 g128", 1.6, "{bf16}", "--scheme", "int4"),
        quantize("bf16 -> int4 g128 asymmetric", 1.6, "{bf16}", "--dtype", "int4"),
        quantize("bf16 -> fp8 per channel", 1.3, "{bf16}", "--dtype", "fp8"),
        quantize("bf16 -> fp8 block 128x128", 1.3, "{bf16}", "--scheme", "fp8:b128x128"),
        quantize("bf16 -> nf4 g64", 2.0, "{bf16}", "--scheme", "nf4"),
        quantize("bf16 -> nvfp4", 1.8, "{bf16}", "--scheme", "nvfp4", reads=2),
        quantize("bf16 -> mxfp4", 1.8, "{bf16}", "--scheme", "mxfp4"),
        quantize("bf16 -> mxfp8", 1.8, "{bf16}", "--scheme", "mxfp8"),
        quantize("f16 -> int8 per channel", 1.25, "{f16}"),
        quantize("f32 -> int8 per channel", 1.25, "{f32}"),
        quantize("bf16 -> int8 last axis", 1.3, "{bf16}", "--per-channel", "--axis", "-1", reads=2),
        quantize("bf16 -> int8 per tensor", 1.3, "{bf16}", "--per-tensor", reads=2),
        quantize("bf16 -> int8 block 128x128", 1.4, "{bf16}", "--block", "128x128"),
        Row("hot", "dequantize int8", 1.4, [*DEQUANTIZE, "{int8}"], [*FLOOR, "{int8}"]),
        Row("hot", "dequantize int4", 1.4, [*DEQUANTIZE, "{int4}"], [*FLOOR, "{int4}"]),
        *(Row("hot", f"dequantize {name}", 1.6, [*DEQUANTIZE, "{" + name + "}"],
              [*FLOOR, "{" + name + "}"]) for name in FLOATS),
        *(Row("hot", f"verify {name}", 3.0, [*VERIFY, "{" + name + "}", "{bf16}"],
              [*FLOOR, "{bf16}", "{" + name + "}"]) for name in FLOATS),
        Row("hot", "verify int8", 2.4, [*VERIFY, "{int8}", "{bf16}"], [*FLOOR, "{bf16}", "{int8}"]),
        Row("hot", "verify int4", 2.4, [*VERIFY, "{int4}", "{bf16}"], [*FLOOR, "{bf16}", "{int4}"]),
        Row("hot", "copied only", 1.1, [*QUANTIZE, "--exclude", "*", "{bf16}"], COPY, "cp"),
        Row("hot", "30,000 tensors of 64 x 64", 3.0, [*QUANTIZE, "{small}"], [*QUANTIZE, "{same}"],
            "large ones", renew=("small", "same"), times=3),
        # What a CPU without kernels of its own runs, for example aarch64.
        quantize("bf16 -> int8, scalar kernels", None, "{bf16}", env={"QPLAN_CPU": "scalar"}),
    ]


def layout_rows():
    """Folders, as engines load them."""
    def quantize(name, goal, source, *flags, reads=1):
        return Row("layouts", name, goal, [*QUANTIZE, *flags, source],
                   [*FLOOR, *["{bf16}"] * reads])

    rows = []
    for name, (flags, goal, back) in LAYOUTS.items():
        folder, stored = "{" + name + "}", "{" + name + "}/model.safetensors"
        rows += [quantize(f"{name}: quantize", goal, "{folder}", *flags, reads=READS.get(name, 1)),
                 Row("layouts", f"{name}: dequantize", back, [*DEQUANTIZE, folder],
                     [*FLOOR, stored]),
                 Row("layouts", f"{name}: verify", 3.0, [*VERIFY, folder, "{folder}"],
                     [*FLOOR, "{bf16}", stored])]
    rows += [quantize(f"{name}: --arithmetic reference", 4.0, "{folder}", *LAYOUTS[name][0],
                      "--arithmetic", "reference") for name in ("w4a16", "mlx", "gptq")]
    rows += [quantize(f"{name}: --arithmetic reference", 4.0, "{folder}", "--preset", name,
                      "--arithmetic", "reference", reads=READS.get(name, 1))
             for name in ("fp8_block", "nvfp4a16", "mxfp8a16", "deepseek-fp8", "mlx-nvfp4")]
    rows.append(quantize(f"w4a16: quantize {SHARDS} shards", 1.6, "{shards}", *LAYOUTS["w4a16"][0]))
    return rows


def cold_rows():
    """Caches dropped, from and to a disk, until the bytes are on it."""
    return [
        Row("cold", "bf16 -> int8 per channel", None, [*QUANTIZE, "{bf16}"],
            [*COLD_FLOOR, "{bf16}"]),
        Row("cold", "bf16 -> int4 g128", None, [*QUANTIZE, "--scheme", "int4", "{bf16}"],
            [*COLD_FLOOR, "{bf16}"]),
        Row("cold", "dequantize int8", None, [*DEQUANTIZE, "{int8}"], [*COLD_FLOOR, "{int8}"]),
        Row("cold", "verify int8", None, [*VERIFY, "{int8}", "{bf16}"],
            [*COLD_FLOOR, "{bf16}", "{int8}"]),
        Row("cold", "copied only", None, [*QUANTIZE, "--exclude", "*", "{bf16}"], COLD_COPY, "cp"),
    ]


def peer_rows(found):
    """A peer's time over that of qplan for the same scheme: how many times slower it is."""
    return [Row("peers", f"{peer.name}, {scheme}", None, words,
                [*QUANTIZE, "--scheme", scheme.split()[0], "{bf16}"], "qplan")
            for peer in found for scheme, words in peer.commands]


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows, self.skipped, self.starts, self.large, self.rates = [], [], [], [], []
        self.rate_bytes = 0  # of the source of rates
        self.folders = {}  # False: hot, True: cold

    # ---- Files and words -------------------------------------------------------------------------

    def tool(self, name):
        return os.path.join(self.options.build, name)

    def path(self, cold, name):
        return os.path.join(self.folders[cold], name)

    def words(self, row, command):
        """The command with names filled in; files that it needs are made."""
        known = {"qplan": self.tool("qplan"), "floor": self.tool("bench-floor"),
                 "threads": self.options.threads, "block": self.options.block,
                 "out": self.path(row.cold, "out"), "out_bytes": row.out_bytes,
                 "report": self.path(row.cold, "report"), **peers.places(self.options)}
        for name in re.findall(r"{([\w-]+)}", " ".join(command)):
            if name not in known:
                known[name] = self.file(row.cold, name)
        return [word.format(**known) for word in command]

    def file(self, cold, name):
        """The path of an input, which is made when it is asked for first."""
        is_folder = name in ("folder", "shards") or name in LAYOUTS
        path = self.path(cold, name + ("" if is_folder else ".gguf" if name == "gguf"
                                       else ".safetensors"))
        if os.path.exists(path):
            return path
        if name == "folder":
            return self.make_folder(path, self.file(cold, "bf16"))
        if name == "shards":
            return self.make_shards(path, self.file(cold, "folder"))
        if name in LAYOUTS:
            command = [self.tool("qplan"), "quantize", "-q", *LAYOUTS[name][0], "-o", path,
                       self.file(cold, "folder")]
        elif name in ("int8", "int4", *FLOATS):
            command = [self.tool("qplan"), "quantize", "-q", "--scheme", name, "-o", path,
                       self.file(cold, "bf16")]
        elif name == "gguf":
            peers.write_gguf(self.file(cold, "bf16"), path)
            return path
        elif name in ("hessian", "importance"):
            write = rates.write_hessian if name == "hessian" else rates.write_importance
            write(path, self.file(cold, "heavy"))
            return path
        elif name == "heavy":
            command = [self.tool("bench-make"), path, "bf16",
                       str(min(self.options.size, HEAVY_BYTES)), name]
        elif name in ("small", "same"):
            size = min(self.options.size, SMALL_BYTES)
            command = [self.tool("bench-make"), path, "bf16", str(size), name]
        else:
            command = [self.tool("bench-make"), path, name, str(self.options.size)]
        subprocess.run(command, check=True)
        return path

    def make_folder(self, path, weights):
        os.mkdir(path)
        os.link(weights, os.path.join(path, "model.safetensors"))
        with open(os.path.join(path, "config.json"), "w", encoding="ascii") as file:
            json.dump(CONFIG, file)
        return path

    def make_shards(self, path, folder):
        """A copy that is cut anew, and is plain again."""
        cut, qplan = path + ".cut", self.tool("qplan")
        subprocess.run([qplan, "quantize", "-q", "--exclude", "*", "--max-shard-size",
                        str(self.options.size // SHARDS), "-o", cut, folder], check=True)
        subprocess.run([qplan, "dequantize", "-q", "-o", path, cut], check=True)
        self.remove(cut)
        return path

    def remove(self, path):
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)

    def size(self, path):
        if os.path.isdir(path):
            return sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
        return os.path.getsize(path)

    def prepare(self, row, out_bytes):
        """Fresh output, used pages, and for a cold row nothing in the cache but the program."""
        self.remove(self.path(row.cold, "out"))
        scratch = self.path(row.cold, "scratch")
        block = bytes(1 << 20)
        with open(scratch, "wb") as file:
            for _ in range(out_bytes >> 20):
                file.write(block)
            file.write(block[:out_bytes % (1 << 20)])
        os.remove(scratch)
        if row.cold:
            drop_caches()
            self.time([self.tool("qplan"), "--version"])

    def hold_memory(self, n_bytes):
        """Leaves so much memory free in small pieces: pages that stay lie between those that go."""
        kept, gone = (self.path(False, name) for name in ("held", "scratch"))
        with open(kept, "wb", buffering=0) as stays, open(gone, "wb", buffering=0) as goes:
            for _ in range(n_bytes // HOLD_BLOCK):
                stays.write(bytes(PAGE))
                goes.write(bytes(HOLD_BLOCK - PAGE))
        os.remove(gone)

    # ---- Running ---------------------------------------------------------------------------------

    def time(self, command, env=None):
        """Seconds, peak RSS in KiB, and seconds on any core of a command."""
        result = subprocess.run([self.tool("bench-spawn"), *command], capture_output=True,
                                text=True, check=False, env={**os.environ, **(env or {})})
        if result.returncode != 0:
            sys.exit("failed: " + " ".join(command) + "\n" + result.stderr)
        seconds, rss, cpu = result.stdout.split()
        return float(seconds), int(rss), float(cpu)

    def out_size(self, row, command, env=None):
        """The size of a command's output: a run of it tells."""
        if "{out}" not in command:
            return 0
        self.remove(self.path(row.cold, "out"))
        self.time(self.words(row, command), env)
        return self.size(self.path(row.cold, "out"))

    def start_row(self, row):
        row.out_bytes = self.out_size(row, row.command, row.env)
        row.base_out_bytes = row.out_bytes
        if row.base[0] == "{qplan}":
            row.base_out_bytes = self.out_size(row, row.base)

    def fresh_bytes(self, row):
        """What a row writes anew in each round."""
        renewed = [os.path.getsize(self.file(row.cold, name)) for name in row.renew]
        return max(row.out_bytes, row.base_out_bytes) + sum(renewed)

    def renew(self, row, command):
        for name in row.renew:
            if "{" + name + "}" in command:
                self.remove(self.file(row.cold, name))
        return self.words(row, command)

    def run_command(self, row):
        command = self.renew(row, row.command)
        self.prepare(row, row.out_bytes)
        seconds, rss, cpu = self.time(command, row.env)
        row.seconds.append(seconds)
        row.cpu.append(cpu)
        row.rss = max(row.rss, rss)
        if "{report}" in row.command:
            with open(self.path(row.cold, "report"), encoding="ascii") as file:
                row.imports.append(float(file.read()))

    def run_base(self, row):
        command = self.renew(row, row.base)
        self.prepare(row, row.base_out_bytes)
        seconds, _, cpu = self.time(command)
        row.bases.append(seconds)
        row.base_cpu.append(cpu)

    def run_row(self, row, index):
        order = (self.run_base, self.run_command)
        for step in order if index % 2 == 0 else order[::-1]:
            step(row)
        row.ratios.append(row.seconds[-1] / row.bases[-1])

    def run_rows(self, rows, rounds):
        for row in rows:
            self.start_row(row)
        if rows:
            largest = max(self.fresh_bytes(row) for row in rows)
            self.hold_memory(largest + largest // 4)
        for index in range(rounds if rows else 0):
            for row in rows:
                for time in range(row.times):
                    self.run_row(row, index + time)
            print(f"{rows[0].section}: round {index + 1} of {rounds}", file=sys.stderr)
        for cold in self.folders:
            self.remove(self.path(cold, "out"))
        self.rows += rows

    # ---- Sections --------------------------------------------------------------------------------

    def wanted(self, section, name):
        return self.options.only in f"{section}: {name}"

    def choose(self, rows):
        return [row for row in rows if self.wanted(row.section, row.name)]

    def skip(self, name, reason):
        if self.wanted(name, reason):
            self.skipped.append({"name": name, "reason": reason})

    def new_folder(self, cold, parent):
        self.folders[cold] = tempfile.mkdtemp(prefix="qplan-bench-", dir=parent)

    def run_starts(self):
        if self.wanted("start", "qplan --version"):
            self.starts = [1000 * self.time([self.tool("qplan"), "--version"])[0]
                           for _ in range(STARTS)]

    def run_rates(self):
        rows = [row for row in rates.rows() if self.wanted("calibrate", row.name)]
        if not rows:
            return
        levels = tables.levels()
        for level in rates.LEVELS:
            if level not in levels:
                self.skip("calibrate", f"no {rates.LEVELS[level]}")
        rates.measure(self, rows, levels, self.options.rounds)
        self.remove(self.path(False, "out"))
        self.rates, self.rate_bytes = rows, self.size(self.file(False, "heavy"))

    def run_cold(self):
        rows, parent = self.choose(cold_rows()), self.options.cold_folder
        if not rows:
            return
        if not parent:
            return self.skip("cold", "no --cold-folder")
        try:
            drop_caches()
            self.new_folder(True, parent)
        except OSError as error:
            return self.skip("cold", str(error))
        self.run_rows(rows, self.options.rounds)

    def run_peers(self):
        found = []
        for peer in peers.PEERS:
            reason = peer.lacking(self.options)
            if reason:
                self.skip("peers", f"{peer.name} absent: {reason}")
            else:
                found.append(peer)
        self.run_rows(self.choose(peer_rows(found)), min(self.options.rounds, 3))

    def run_large(self):
        """Peak memory for 20 GB: zeros that take no room, of which int4 writes a quarter."""
        if not self.options.large:
            return self.skip("large", "no --large")
        rows, cols = LARGE_SHAPE
        out_bytes = LARGE_TENSORS * rows * (cols // 2 + cols // 128 * 5)
        if shutil.disk_usage(self.options.large).free < out_bytes + (1 << 30):
            return self.skip("large", f"{out_bytes} bytes do not fit in {self.options.large}")
        source = self.path(False, "large.safetensors")
        write_zeros(source)
        threads = ["--threads", str(self.options.threads)]
        with tempfile.TemporaryDirectory(prefix="qplan-bench-", dir=self.options.large) as folder:
            out = os.path.join(folder, "out")
            quantize = ["quantize", "-q", "--scheme", "int4", "-o", out, source]
            for name, command in (("20 GB -> int4 g128", quantize),
                                  ("verify of it", ["verify", "-q", out, source])):
                seconds, rss, _ = self.time([self.tool("qplan"), *command, *threads])
                self.large.append({"name": name, "seconds": seconds, "rss_kib": rss})
        os.remove(source)

    def run(self):
        self.new_folder(False, self.options.folder)
        self.run_starts()
        self.run_rows(self.choose(hot_rows()), self.options.rounds)
        self.run_rows(self.choose(layout_rows()), self.options.rounds)
        self.run_rates()
        self.run_cold()
        self.run_peers()
        self.run_large()

    def clean(self):
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def write_zeros(path):
    """A checkpoint that is one hole behind its header."""
    n_bytes = 2 * LARGE_SHAPE[0] * LARGE_SHAPE[1]
    header = json.dumps({f"layers.{i:03}.weight": {
        "dtype": "BF16", "shape": LARGE_SHAPE, "data_offsets": [i * n_bytes, (i + 1) * n_bytes]}
        for i in range(LARGE_TENSORS)}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + LARGE_TENSORS * n_bytes)


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1:] in units else int(text)


def parse_options():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=parse_size, default=MODEL_BYTES, metavar="BYTES",
                        help="of a source; K, M, G [2143289344: 2.1 GB, four layers of Llama]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]; of peers three at the most")
    parser.add_argument("--threads", type=int, default=2, help="of qplan, floor and peers [2]")
    parser.add_argument("--block", type=parse_size, default=BLOCK, metavar="BYTES",
                        help="what the floor reads and writes at a time [256K]")
    parser.add_argument("--folder", default="/dev/shm", metavar="DIR",
                        help="where the files go, in a folder of their own [/dev/shm]")
    parser.add_argument("--cold-folder", metavar="DIR",
                        help="on a disk: measure there too with caches dropped, which needs root")
    parser.add_argument("--large", metavar="DIR",
                        help="peak memory for 20 GB of zeros too; 5.3 GB are written to DIR")
    parser.add_argument("--venv", metavar="DIR",
                        help="a virtual environment with torch, safetensors and numpy")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="rows that have TEXT in 'section: name'; sections: hot, layouts, "
                        "calibrate, start, cold, peers, large")
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    parser.add_argument("--json", action="store_true", help="everything, every run of it")
    parser.add_argument("--markdown", nargs="*", metavar="FILE",
                        help="tables for documents: printed, or put into each FILE between its two "
                        "comments; 'bench' wants all figures, 'bench: brief' the rows of the README")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    return options


def main():
    options = parse_options()
    bench = Bench(options)
    try:
        bench.run()
    finally:
        if options.keep:
            print("files: " + " ".join(bench.folders.values()), file=sys.stderr)
        else:
            bench.clean()
    if options.json:
        print(tables.as_json(bench))
    if options.markdown == []:
        print(tables.as_markdown(bench))
    for path in options.markdown or []:
        tables.put_markdown(bench, path)
    if options.markdown is None and not options.json:
        print(tables.as_text(bench))


if __name__ == "__main__":
    main()
