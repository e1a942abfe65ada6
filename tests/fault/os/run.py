#!/usr/bin/env python3
"""Faults of the operating system: rows G and H of the fault table, run against qplan.

    run.py --qplan build/qplan --preload build/tests/libfault.so [--only 'G2*'] [--full] [--list]

Calls fail by the preloaded library (preload.c says how); signals, limits, full file systems and
concurrent runs are real. Prints the failing cases with what differed, and those that this machine
cannot run with the reason; ends with `N passed, N failed`; exit 1 if any failed.

QPLAN_TEST_LIMITS=off leaves out the cases with the preload or with ulimit (for sanitizer builds).
"""

import argparse
import fnmatch
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True      # the source tree stays as it is

import checkpoint
import cases_environment    # noqa: F401: the cases fill the table
import cases_kill           # noqa: F401
import cases_power_cut      # noqa: F401
import cases_read           # noqa: F401
import cases_resources      # noqa: F401
import cases_slow_disk      # noqa: F401
import cases_streams        # noqa: F401
import cases_target         # noqa: F401
import cases_write          # noqa: F401
from bench import INPUT, QUANTIZED, Bench, Shelf, Skip
from table import CASES, lacking

INPUTS = {INPUT: checkpoint.SMALL, "large.safetensors": checkpoint.LARGE,
          "tiled.safetensors": checkpoint.TILED, "many.safetensors": checkpoint.MANY}


def arguments():
    parser = argparse.ArgumentParser(description="The operating system fault tests of qplan.")
    parser.add_argument("--qplan", help="the program under test")
    parser.add_argument("--preload", help="the library made of preload.c")
    parser.add_argument("--only", metavar="GLOB", default="*", help="only cases whose id matches")
    parser.add_argument("--without", metavar="GLOB", default="", help="no case whose id matches")
    parser.add_argument("--full", action="store_true", help="also the slow cases, more kills")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--list", action="store_true", help="print the ids and stop")
    options = parser.parse_args()
    if not options.list and not options.qplan:
        parser.error("--qplan is needed")
    return options


def chosen(options):
    """Indices into the table, the dearest first. A full case asked for by its whole id runs."""
    picked = [i for i, c in enumerate(CASES) if fnmatch.fnmatchcase(c.id, options.only) and
              not fnmatch.fnmatchcase(c.id, options.without) and
              (options.full or not c.full or c.id == options.only)]
    return sorted(picked, key=lambda i: -CASES[i].cost)


def fill(shelf):
    """Makes the inputs that the cases share."""
    for name, tensors in INPUTS.items():
        with open(shelf.path(name), "wb") as f:
            f.write(checkpoint.make(tensors))
    subprocess.run([shelf.qplan, "quantize", "-q", "-o", shelf.path(QUANTIZED), shelf.path(INPUT)],
                   check=True)


def run_case(work):
    """Runs one case in a folder of its own: its index, its problems, and why it was skipped."""
    index, shelf = work
    case = CASES[index]
    why = lacking(case, shelf)
    if why:
        return index, [], why
    folder = tempfile.mkdtemp(prefix=case.id + "-", dir=shelf.folder)
    bench = Bench(shelf, folder)
    try:
        case.run(bench)
    except Skip as reason:
        why = str(reason)
    except Exception:       # a fault of the case itself
        bench.problem("the case failed: " + traceback.format_exc())
    shutil.rmtree(folder, ignore_errors=True)
    return index, bench.problems, why


def run_all(options, shelf):
    """Counts of passed, failed and skipped cases."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    work = [(i, shelf) for i in chosen(options)]
    with multiprocessing.Pool(max(1, options.jobs)) as pool:
        for index, problems, why in pool.imap_unordered(run_case, work):
            verdict = "failed" if problems else "skipped" if why else "passed"
            counts[verdict] += 1
            for text in problems[:10] or [why]:
                if text:
                    print(f"{verdict.upper()} {CASES[index].id}: {text}", flush=True)
            if len(problems) > 10:
                print(f"FAILED {CASES[index].id}: and {len(problems) - 10} more", flush=True)
    return counts


def main():
    options = arguments()
    if options.list:
        print("\n".join(case.id + " (full)" * case.full for case in CASES))
        return 0
    if not os.access(options.qplan, os.X_OK):
        sys.exit(f"run.py: {options.qplan}: not a program")
    if options.preload and not os.path.exists(options.preload):
        sys.exit(f"run.py: {options.preload}: not there")
    with tempfile.TemporaryDirectory(prefix="qplan-os-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)     # some runs are made as another user
        shelf = Shelf(os.path.abspath(options.qplan),
                      options.preload and os.path.abspath(options.preload), folder, options.full)
        fill(shelf)
        counts = run_all(options, shelf)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 1 if counts["failed"] or not counts["passed"] + counts["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
