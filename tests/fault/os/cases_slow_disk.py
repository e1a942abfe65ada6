"""Row H15: a disk of 1 MB/s, and one whose every answer takes a second: slow, and nothing else.

The runs look at a terminal, which must show how far they are.
"""

import os
import re
import threading

from bench import QUANTIZED, TARGET, read_file
from table import case

TILED = "tiled.safetensors"
JOBS = {
    "channel": ("quantize", "--threads", "2", "-o", TARGET, TILED),
    "tensor": ("quantize", "--per-tensor", "--threads", "2", "--memory", "4M", "-o", TARGET, TILED),
    "verify": ("verify", "--threads", "2", QUANTIZED, TILED),
    "dequantize": ("dequantize", "--threads", "2", "-o", TARGET, QUANTIZED),
}
PERCENT = re.compile(rb"\r *(\d+)%")


def on_terminal(bench, *args, fault):
    """Runs qplan with a terminal as its stderr: the result, and what the terminal got."""
    master, slave = os.openpty()
    shown = []

    def read():
        while True:
            try:
                shown.append(os.read(master, 4096))
            except OSError:     # the last writer is gone
                return
    reader = threading.Thread(target=read)
    reader.start()
    try:
        result = bench.run(*args, fault=fault, stderr=slave)
    finally:
        os.close(slave)
        reader.join()
        os.close(master)
    return result, b"".join(shown)


def prepare(bench):
    """The input, and what is made of it on a quick disk."""
    bench.write(TILED, read_file(bench.shelf.path(TILED)))
    bench.remove(QUANTIZED)
    bench.exits("quick", bench.run("quantize", "-o", QUANTIZED, TILED), 0)


def on_disk(bench, name, rules, shows=True):
    """One job on a quick and on a slow disk: the same bytes, and progress on the way."""
    good = None
    for fault in (None, rules):
        bench.prepare(False)
        result, shown = on_terminal(bench, *JOBS[name], fault=fault)
        bench.check(result.exit == 0, f"{name}, {fault}: exit {result.exit}: {shown!r}")
        found = read_file(bench.path(TARGET)) if os.path.exists(bench.path(TARGET)) else result.out
        bench.check(good in (None, found), f"{name}, {fault}: other bytes")
        good = found
    steps = [int(p) for p in PERCENT.findall(shown)]
    bench.check(not shows or len(set(steps)) > 2, f"{name}: progress is not shown: {steps}")
    bench.check(steps == sorted(steps) or name == "tensor", f"{name}: it goes back: {steps}")


@case("H15-slow", needs="preload", full=True, cost=9)
def slow(bench):
    """1 MB/s: the time of a run is that of its bytes."""
    prepare(bench)
    for name in JOBS:
        on_disk(bench, name, "call=pread,mode=slow;call=pwrite,mode=slow")


@case("H15-late", needs="preload", full=True, cost=9)
def late(bench):
    """A second for every answer: to read, write, sync, name and close alike."""
    prepare(bench)
    rules = ";".join(f"call={call},mode=late" for call in
                     ("open", "tmpfile", "fstat", "pread", "pwrite", "fsync", "linkat"))
    for name in ("channel", "verify"):
        on_disk(bench, name, rules, shows=False)
