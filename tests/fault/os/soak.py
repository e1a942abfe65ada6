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

from bench import HIDDEN, Bench, Shelf, clean_environment, show
from soak_runs import FILES, FOLDERS, PLANS, Picker, make_command, make_fault, write_models

PARTIAL = ".partial"    # behind the name of a folder that is not yet complete
EXITS = {0, 1, 2, 3, 4, 5, 129, 130, 143}
# For the library: what fails, and how often. The numbers are prime, so that all pairs meet.
FAULTS = ("call=malloc,n=1009,mode=every,errno=ENOMEM;call=pread,n=197,mode=every;"
          "call=pwrite,n=89,mode=every,errno=ENOSPC;call=fsync,n=17,mode=every;"
          "call=linkat,n=29,mode=every;call=open,n=83,mode=every,errno=EMFILE;"
          "call=tmpfile,n=5,mode=every,errno=EOPNOTSUPP;call=renameat,n=13,mode=every;"
          "call=close,n=61,mode=every;call=pthread_create,n=7,mode=every,errno=EAGAIN")


def writer(root):
    """What writes a file below a folder."""
    def write(name, raw):
        path = pathlib.Path(root, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
    return write


# ---- The program ---------------------------------------------------------------------------------

def names_in_help(options, topic):
    """The first column of the table that `qplan help TOPIC` prints."""
    text = subprocess.run([options.qplan, "help", topic], check=True, capture_output=True, text=True,
                          env=clean_environment()).stdout
    lines = text.split("\n")
    begin = next(i for i, line in enumerate(lines) if line.split()[:1] == [topic.rstrip("s")])
    return [line.split()[0] for line in lines[begin + 1:] if line.strip()]


def whole(bench, name):
    """Whether an output can be read; a plan begins as JSON does."""
    if os.path.isfile(bench.path(name)):
        with open(bench.path(name), "rb") as file:
            if file.read(1) == b"{":
                return True
    return bench.run("inspect", "-q", name).exit == 0


def clean(bench, where, partial):
    """What a run could not remove of a folder, the command for it removes."""
    bench.exits(f"{where}: clean", bench.run("clean", partial.removesuffix(PARTIAL)), 0)
    bench.check(not os.path.exists(bench.path(partial)), f"{where}: clean has left {partial}")


def one_run(bench, pick):
    pick.made = sorted(n for n in os.listdir(bench.folder) if n[0] in "qd" or n in PLANS)
    args, out = make_command(pick)
    (fault, may_stay), before = make_fault(pick.chance), bench.look()
    result = bench.run(*args, fault=fault)
    where = f"{show(args)}: {fault}"
    bench.check(result.exit in EXITS, f"{where}: exit {result.exit}: {result.err!r}")
    after = bench.look()
    changed = {n for n in set(before) | set(after) if before.get(n) != after.get(n)}
    if out and out + PARTIAL in after and may_stay:
        clean(bench, where, out + PARTIAL)
        changed.discard(out + PARTIAL)
    # A close that fails may leave the hidden name, where removing it is what failed.
    bench.check(changed <= {out}, f"{where}: touched {sorted(changed)}")
    if out in changed and out in after:
        bench.check(result.exit == 0 or fault, f"{where}: exit {result.exit} with an output")
        bench.check(whole(bench, out), f"{where}: {out} cannot be read")
    bench.remove(*(n for n in after if HIDDEN.fullmatch(n)))


def soak_program(options, seconds):
    """Random runs until the time is over or one went wrong; the number of runs and the problems."""
    end, runs = time.monotonic() + seconds, 0
    presets, layouts = names_in_help(options, "presets"), names_in_help(options, "formats")
    with tempfile.TemporaryDirectory(prefix="qplan-soak-") as root:
        shelf = Shelf(options.qplan, options.preload, root, full=False)
        while time.monotonic() < end:
            seed = f"{options.seed} {runs // 50}"
            chance, folder = random.Random(seed), tempfile.mkdtemp(dir=root)
            bench = Bench(shelf, folder)
            write_models(chance, writer(folder))
            pick = Picker(chance, presets, layouts)
            for _ in range(50):
                one_run(bench, pick)
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
        models, out = [], os.path.join(root, "made")
        os.mkdir(out)
        for i in range(5):
            folder = os.path.join(root, f"round{i}")
            os.mkdir(folder)
            write_models(chance, writer(folder))
            models += [os.path.join(folder, name) for name in FILES + FOLDERS]
        # Blocks that a thread keeps for itself would look as if they were in use.
        env = {**clean_environment(), "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        if fault:
            env.update(LD_PRELOAD=options.preload, QPLAN_FAULT=fault)
        done = subprocess.run([options.library, str(int(seconds)), str(options.seed), out, *models],
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
