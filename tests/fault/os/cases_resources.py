"""Rows H1 to H9 and H14: memory, stack, threads and CPUs run short; several runs meet."""

import json
import os
import shutil
import signal
import subprocess
import threading

import checkpoint
from bench import INPUT, JOBS, MODELS, QUANTIZED, TARGET, Skip, read_file
from table import case


def limited(limits):
    return ["sh", "-c", f'ulimit {limits}; exec "$@"', "sh"]


# ---- H1: memory is refused -----------------------------------------------------------------------

def every_malloc(bench, name, mode):
    """Exit 5, or the whole result where the memory was not needed (a buffer of stdio). The report
    of --json comes last: without memory for it the model is there."""
    bench.every_n(name, "malloc", f"errno=ENOMEM,mode={mode}", exits=(0, 5), says=["memory"],
                  force=(False,), named="--json" in JOBS[name].args)


@case("H1-malloc-once", needs="preload", cost=8)
def malloc_once(bench):
    for name in ("channel-2", "tensor-1", "dequantize", "plan"):
        every_malloc(bench, name, "once")


@case("H1-malloc-once-proof", needs="preload", cost=8)
def malloc_once_proof(bench):
    every_malloc(bench, "proof", "once")


@case("H1-malloc-forever", needs="preload", cost=8)
def malloc_forever(bench):
    for name in ("channel-2", "dequantize", "proof"):
        every_malloc(bench, name, "forever")


@case("H1-malloc-readers", needs="preload", cost=8)
def malloc_readers(bench):
    bench.exits("plan", bench.run("plan", "-o", "p.json", INPUT), 0)
    for args in (("inspect", "--tensors", QUANTIZED), ("verify", QUANTIZED, INPUT),
                 ("quantize", "--dry-run", INPUT),
                 ("quantize", "--dry-run", "--plan", "p.json", INPUT), ("help", "quantize"),
                 ("completions", "bash")):
        total = bench.run(*args, fault="call=malloc,n=0").counts[0]
        good = bench.run(*args)
        for n in range(1, total + 1):
            where = f"{args}, malloc {n}"
            result = bench.run(*args, fault=f"call=malloc,n={n},errno=ENOMEM")
            bench.exits(where, result, 0, 5)
            if result.exit == 5:
                bench.says(where, result, "memory")
            elif result.exit == 0:
                bench.check(result.out == good.out, f"{where}: exit 0 with another stdout")


# ---- H2, H4: ulimit ------------------------------------------------------------------------------

@case("H2-address-space", needs="limits")
def address_space(bench):
    for kib in (64 << 10, 256 << 10):
        for threads in ("1", "2", "64"):
            large_run(bench, f"ulimit -v {kib}, {threads} threads", threads, f"-v {kib}", (0, 5))
    large_run(bench, "ulimit -v 65536, 1 thread, in budget", "1", "-v 65536", (0,))


@case("H2-address-space-descending", needs="limits")
def address_space_descending(bench):
    """From plenty to nothing: always the whole file, or exit 5 and none."""
    for kib in range(24 << 10, 4 << 10, -1 << 10):
        large_run(bench, f"ulimit -v {kib}", "2", f"-v {kib}", (0, 5, 127, -signal.SIGSEGV))


def large_run(bench, where, threads, limits, exits):
    """quantize of the large input; 127 and a signal: not even the program could be loaded."""
    source = bench.shelf.path("large.safetensors")
    references = bench.shelf.references
    if "large" not in references:
        bench.exits("undisturbed", bench.run("quantize", "-o", TARGET, source), 0)
        references["large"] = read_file(bench.path(TARGET))
    bench.prepare(False)
    before = bench.look()
    result = bench.run("quantize", "--threads", threads, "-o", TARGET, source, via=limited(limits))
    bench.exits(where, result, *exits)
    if result.exit == 0:
        bench.complete(where, before, references["large"])
    else:
        bench.untouched(where, before)
    if result.exit == 5:
        bench.says(where, result, "memory", "bytes")


@case("H4-stack", needs="limits")
def stack(bench):
    for name in JOBS:
        bench.disturbed(name, via=limited("-s 64"), exits=(0,))
    for args in (("verify", QUANTIZED, INPUT), ("inspect", "--tensors", QUANTIZED),
                 ("help", "quantize"), ("inspect", bench.shelf.path("many.safetensors"))):
        bench.exits(str(args), bench.run(*args, via=limited("-s 64")), 0)


def peak_of(bench, *args):
    """The exit code of a dry run, and the most memory that it had."""
    proc = bench.start("quantize", "--dry-run", *args, "model", stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(proc.pid, 0)
    proc.returncode = os.waitstatus_to_exitcode(status)
    bench.check(proc.returncode == 0, f"{args}: exit: expected 0, found {proc.returncode}")
    return usage.ru_maxrss * 1024


@case("I9-memory-of-a-plan", needs="limits", cost=2)
def memory_of_a_plan(bench):
    """A plan of many tensors is read in ten times its own size at most, besides what planning takes
    without it; also one that leaves out what qplan works out again."""
    head, n_bytes = checkpoint.header({f"model.layers.{i}.mlp.up_proj.weight": ("F32", [2, 2])
                                       for i in range(100_000)})
    bench.write("model", head + bytes(n_bytes))
    bench.exits("plan", bench.run("plan", "-o", "p.json", "model"), 0)
    with open(bench.path("p.json"), encoding="utf-8") as file:
        plan = json.load(file)
    del plan["output"]
    for tensor in plan["tensors"]:
        tensor.pop("outputs")
    bench.write("short.json", json.dumps(plan, separators=(",", ":")).encode())
    alone = peak_of(bench)
    for name in ("p.json", "short.json"):
        found, size = peak_of(bench, "--plan", name), os.path.getsize(bench.path(name))
        bench.check(found <= alone + 10 * size,
                    f"{name}: memory: expected {alone + 10 * size} bytes at most, found {found}")


# ---- H5, H6: threads and CPUs --------------------------------------------------------------------

@case("H5-no-threads", needs="preload")
def no_threads(bench):
    for name in MODELS:
        for rule in ("n=1,mode=forever", "n=1,mode=once"):
            bench.disturbed(name, f"call=pthread_create,errno=EAGAIN,{rule}", exits=(0,))


@case("H5-some-threads", needs="preload")
def some_threads(bench):
    """The fifth and all that follow are refused."""
    source = bench.shelf.path("tiled.safetensors")
    for replace in (False, True):
        bench.exits("64", bench.run("quantize", *["--force"] * replace, "--threads", "64", "-o",
                                    TARGET, source,
                                    fault="call=pthread_create,errno=EAGAIN,n=5,mode=forever"), 0)
    bench.exits("1", bench.run("quantize", "--threads", "1", "-o", "one", source), 0)
    bench.check(read_file(bench.path(TARGET)) == read_file(bench.path("one")), "the bytes differ")


@case("H5-note", needs="preload")
def threads_note(bench):
    result = bench.disturbed("channel-2", "call=pthread_create,errno=EAGAIN,mode=forever",
                             exits=(0,))
    bench.check("thread" in result.err, f"no note on the missing thread: {result.err!r}")


SCHEMES = {"channel": ("--scheme", "int8:c0"), "last-axis": ("--scheme", "int8:c-1"),
           "tensor": ("--scheme", "int8:t"), "group": ("--scheme", "int4:g128"),
           "block": ("--scheme", "int8:b32x32"), "ragged": ("--scheme", "uint4:g100:asym",
                                                           "--indivisible", "ragged")}
THREADS = ("1", "2", "3", "7", "64")
MEMORY = (None, "4M", "16M", "64M")


def same_bytes(bench, what, via, threads=THREADS, memory=MEMORY):
    """Every number of threads and every size of memory gives the same file."""
    source = bench.shelf.path("tiled.safetensors")
    good = None
    for n in threads:
        for size in memory:
            args = ("quantize", "-q", "--force", *SCHEMES[what], "--threads", n,
                    *(("--memory", size) if size else ()), "-o", TARGET, source)
            result = bench.run(*args, via=via)
            bench.exits(f"{what}, {n} threads, {size}", result, 0)
            found = read_file(bench.path(TARGET))
            good = good or found
            bench.check(found == good, f"{what}, {n} threads, {size}: the bytes differ")
    bench.exits(f"{what}: proof", bench.run("verify", TARGET, source), 0)
    return good


def add_same_bytes(what):
    @case(f"H6-{what}", cost=3)
    def run(bench):
        same_bytes(bench, what, None)


for scheme in SCHEMES:
    add_same_bytes(scheme)


@case("H6-least-memory")
def least_memory(bench):
    """The least that works, which the message names, gives the same bytes too."""
    source = bench.shelf.path("tiled.safetensors")
    result = bench.run("quantize", "--memory", "1", "-o", TARGET, source)
    bench.exits("1 byte", result, 5)
    bench.says("1 byte", result, "expected at least")
    least = result.err.split("expected at least ")[1].split()[0]
    below = bench.run("quantize", "--memory", str(int(least) - 1), "-o", TARGET, source)
    bench.exits("one byte less", below, 5)
    for what in SCHEMES:
        good = same_bytes(bench, what, None, ("2",), (None,))
        for n in ("1", "3"):
            bench.check(same_bytes(bench, what, None, (n,), (least,)) == good,
                        f"{what}, {n} threads, {least} bytes: the bytes differ")


@case("H6-affinity-and-nice")
def affinity_and_nice(bench):
    good = same_bytes(bench, "channel", None, ("2",), (None,))
    cpu = str(min(os.sched_getaffinity(0)))
    for via in (["taskset", "-c", cpu], ["nice", "-n", "19"]):
        found = same_bytes(bench, "channel", via, ("1", "2", "7"), (None,))
        bench.check(found == good, f"{via}: the bytes differ")
        bench.prepare(False)
        result = bench.run("quantize", "-o", TARGET, INPUT, via=via)
        bench.exits(str(via), result, 0)


@case("H14-another-cpu", needs="limits", cost=4)
def another_cpu(bench):
    """valgrind shows a CPU without AVX-512: it is not used, and may not be asked for."""
    if not shutil.which("valgrind"):
        raise Skip("needs valgrind")
    via = ["valgrind", "-q", "--trace-children=yes", "--error-exitcode=99"]
    bench.disturbed("channel-1", via=via, exits=(0,), force=(False,))
    result = bench.run("quantize", "-o", TARGET, INPUT, via=via,
                       env={"QPLAN_CPU": "avx512"})
    bench.exits("QPLAN_CPU=avx512", result, 2)
    bench.says("QPLAN_CPU=avx512", result, "QPLAN_CPU", "avx512")


# ---- H7 to H9: runs that meet --------------------------------------------------------------------

def at_once(bench, n, args):
    """Starts n runs together; their exits, sorted."""
    procs = [bench.start(*args) for _ in range(n)]
    results = [bench.finish(proc, args) for proc in procs]
    for result in results:
        if result.exit == 4:
            bench.says("the loser", result, TARGET, "File exists")
    return sorted(result.exit for result in results)


@case("H7-two-runs")
def two_runs(bench):
    source = bench.shelf.path("tiled.safetensors")
    good = same_bytes(bench, "channel", None, ("1",), (None,))
    for _ in range(10):
        bench.prepare(False)
        before = bench.look()
        exits = at_once(bench, 2, ("quantize", "-o", TARGET, source))
        bench.check(exits == [0, 4], f"exits: expected one 0 and one 4, found {exits}")
        bench.complete("two runs", before, good)


@case("H8-twenty-runs", cost=2)
def twenty_runs(bench):
    source = bench.shelf.path("tiled.safetensors")
    good = same_bytes(bench, "channel", None, ("1",), (None,))
    for replace in (False, True):
        bench.prepare(replace)
        before = bench.look()
        exits = at_once(bench, 20, ("quantize", "--force", "-o", TARGET, source))
        bench.check(exits == [0] * 20, f"exits: expected only 0, found {exits}")
        bench.complete("twenty runs", before, good)


@case("H9-input-replaced", cost=2)
def input_replaced(bench):
    """Others replace the file that a run reads: it sees the old or the new one, never a mix."""
    good = set()
    for name, scheme in (("x", "int8:c0"), ("y", "int4:g32")):
        bench.run("quantize", "--scheme", scheme, "-o", name, INPUT)
        bench.run("dequantize", "-o", name + ".plain", name)
        bench.run("quantize", "-o", name + ".good", name + ".plain")
        good.add(read_file(bench.path(name + ".good")))
    bench.check(len(good) == 2, "the two inputs must differ")
    bench.run("dequantize", "-o", "model", "x")
    end = threading.Event()

    def replace():
        while not end.is_set():
            for name in ("y", "x"):
                bench.exits("writer", bench.run("dequantize", "--force", "-o", "model", name), 0)
    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(40):
            result = bench.run("quantize", "--force", "-o", TARGET, "model")
            bench.exits("reader", result, 0)
            bench.check(read_file(bench.path(TARGET)) in good, "a mix of two files")
    finally:
        end.set()
        writer.join()
