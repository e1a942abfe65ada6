#!/usr/bin/env python3
"""Row H16: random commands on random checkpoints with random faults, for as long as there is time.

    soak.py --qplan build/qplan --preload libfault.so --library soak-library [--seconds N] [--seed N]

The time (QPLAN_SOAK_SECONDS, or 20) is shared by the program, whose runs must end with a code of the
table, leave no file behind and write whole ones; and by the library in one process, quiet and
with faults, where neither memory nor descriptors may pile up. A failure prints the seed and the run.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True      # the source tree stays as it is

import checkpoint
from bench import HIDDEN, Bench, Shelf, clean_environment, show

EXITS = {0, 1, 2, 3, 4, 5, 129, 130, 143}
SCHEMES = ("int8:c0", "int8:t", "int8:c1", "int4:g32:asym", "uint8:b16x8", "uint4:g16:f16", "int4:g7")
ERRORS = {"open": ("EACCES", "EMFILE", "EIO"), "tmpfile": ("EOPNOTSUPP", "ENOSPC"),
          "pread": ("EIO", "ESTALE"), "pwrite": ("ENOSPC", "EIO"),
          "fsync": ("EIO", "EINVAL"), "close": ("EIO",), "linkat": ("EXDEV", "EEXIST"),
          "renameat": ("EACCES", "EINVAL"), "fstat": ("EIO",), "fstatvfs": ("ENOSYS",),
          "pthread_create": ("EAGAIN",), "malloc": ("ENOMEM",)}
MODES = ("once", "once", "forever", "every", "eintr", "short", "one-byte", "INT", "TERM", "HUP")
# For the library: what fails, and how often. The numbers are prime, so that all pairs meet.
FAULTS = ("call=malloc,n=1009,mode=every,errno=ENOMEM;call=pread,n=197,mode=every;"
          "call=pwrite,n=89,mode=every,errno=ENOSPC;call=fsync,n=17,mode=every;"
          "call=linkat,n=29,mode=every;call=open,n=83,mode=every,errno=EMFILE;"
          "call=tmpfile,n=5,mode=every,errno=EOPNOTSUPP;call=renameat,n=13,mode=every;"
          "call=close,n=61,mode=every;call=pthread_create,n=7,mode=every,errno=EAGAIN")


# ---- What is made at random ----------------------------------------------------------------------

def make_file(chance):
    """A checkpoint of a few kB; one in four is damaged."""
    tensors = {f"t{i}.{chance.choice(('weight', 'bias', 'norm'))}":
               (chance.choice(list(checkpoint.WIDTH)),
                [chance.randrange(0 if chance.random() < 0.1 else 1, 40)
                 for _ in range(chance.randrange(1, 4))])
               for i in range(chance.randrange(1, 12))}
    raw = bytearray(checkpoint.make(tensors, chance.random()))
    kind = chance.randrange(12)
    if kind == 0:
        del raw[chance.randrange(len(raw)):]
    elif kind == 1:
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    elif kind == 2:
        raw[chance.randrange(min(200, len(raw)))] = chance.randrange(256)
    return bytes(raw)


def make_command(chance, files, made):
    """The words of a random command, and the name that it writes, if any."""
    source = chance.choice(files + made)
    machine = ["--threads", str(chance.choice((1, 2, 4)))]
    if chance.random() < 0.3:
        machine += ["--memory", chance.choice(("1K", "1M", "4M"))]
    scheme = ["--scheme", chance.choice(SCHEMES), "--indivisible",
              chance.choice(("error", "keep", "ragged"))]
    out = f"out{chance.randrange(4)}"
    output = ["-o", out] + ["--force"] * (chance.random() < 0.5)
    kind = chance.choice(("quantize", "quantize", "verify", "inspect", "dequantize", "plan", "odd"))
    if kind == "quantize":
        extra = chance.choice(([], ["--verify"], ["--json"], ["--fail-if", "sqnr_db<20"]))
        return ["quantize", *scheme, *machine, *extra, *output, source], out
    if kind == "dequantize":
        return ["dequantize", *machine, *output, source], out
    if kind == "plan":
        return ["plan", *scheme, *output, source], out
    if kind == "odd":
        return chance.choice((["quantize"], ["inspect", "absent"], ["verify", source],
                              ["quantize", "--threads", "0", source], ["help", "quantize"])), None
    other = chance.choice(files)
    words = ["verify", *machine, source, other] if kind == "verify" else \
        ["inspect", *chance.choice(([], ["--json"], ["--against", other])), source]
    return words, None


def make_fault(chance):
    if chance.random() < 0.3:
        return None
    call = chance.choice(list(ERRORS))
    modes = [m for m in MODES if m != "eintr" or call != "malloc"]  # it fails with ENOMEM alone
    return (f"call={call},n={int(2 ** chance.uniform(0, 8))},mode={chance.choice(modes)},"
            f"errno={chance.choice(ERRORS[call])}")


# ---- The program ---------------------------------------------------------------------------------

def whole(bench, name):
    """Whether an output can be read; a plan begins as JSON does."""
    with open(bench.path(name), "rb") as file:
        if file.read(1) == b"{":
            return True
    return bench.run("inspect", "-q", name).exit == 0


def one_run(bench, chance, files):
    made = [n for n in os.listdir(bench.folder) if n.startswith("out")]
    args, out = make_command(chance, files, made)
    fault, before = make_fault(chance), bench.look()
    result = bench.run(*args, fault=fault)
    where = f"{show(args)}: {fault}"
    bench.check(result.exit in EXITS, f"{where}: exit {result.exit}: {result.err!r}")
    after = bench.look()
    changed = {n for n in set(before) | set(after) if before.get(n) != after.get(n)}
    # A close that fails may leave the hidden name, where removing it is what failed.
    bench.check(changed <= {out}, f"{where}: touched {sorted(changed)}")
    if out in changed and out in after:
        bench.check(result.exit == 0 or fault, f"{where}: exit {result.exit} with an output")
        bench.check(whole(bench, out), f"{where}: {out} cannot be read")
    bench.remove(*(n for n in after if HIDDEN.fullmatch(n)))


def soak_program(options, seconds):
    """Random runs until the time is over or one went wrong; the number of runs and the problems."""
    end, runs = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory(prefix="qplan-soak-") as root:
        shelf = Shelf(options.qplan, options.preload, root, full=False)
        while time.monotonic() < end:
            seed = f"{options.seed} {runs // 50}"
            chance, folder = random.Random(seed), tempfile.mkdtemp(dir=root)
            bench, files = Bench(shelf, folder), [f"in{i}" for i in range(6)]
            for name in files:
                bench.write(name, make_file(chance))
            for _ in range(50):
                one_run(bench, chance, files)
                runs += 1
                if bench.problems:
                    return runs, [f"seed {seed!r}: {p}" for p in bench.problems]
            subprocess.run(["rm", "-r", folder], check=True)
    return runs, []


# ---- The library ---------------------------------------------------------------------------------

def soak_library(options, seconds, fault):
    """One process of many jobs; what it said, and what was wrong."""
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="qplan-soak-") as root:
        files, out = [], os.path.join(root, "made")
        os.mkdir(out)
        for i in range(30):
            files.append(os.path.join(root, f"in{i}"))
            pathlib.Path(files[-1]).write_bytes(make_file(chance))
        # Blocks that a thread keeps for itself would look as if they were in use.
        env = {**clean_environment(), "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        if fault:
            env.update(LD_PRELOAD=options.preload, QPLAN_FAULT=fault)
        done = subprocess.run([options.library, str(int(seconds)), str(options.seed), out, *files],
                              env=env, capture_output=True, text=True)
    text = (done.stdout + done.stderr).strip()
    return text, [f"library, {fault}: exit {done.returncode}: {text}"] if done.returncode else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", required=True, type=os.path.abspath)
    parser.add_argument("--preload", required=True, type=os.path.abspath)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--seconds", type=float,
                        default=float(os.environ.get("QPLAN_SOAK_SECONDS", "20")))
    parser.add_argument("--seed", type=int, default=20260303)
    options = parser.parse_args()
    runs, problems = soak_program(options, options.seconds / 2)
    print(f"program: {runs} runs", flush=True)
    for fault in (None, FAULTS):
        text, wrong = soak_library(options, options.seconds / 4, fault)
        print(f"library{', with faults' * bool(fault)}: {text}", flush=True)
        problems += wrong
    for problem in problems:
        print(f"FAILED {problem}")
    return 1 if problems or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
