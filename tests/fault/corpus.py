#!/usr/bin/env python3
"""The bad-input corpus: every row of parts A, B, C, D, F and Q of the fault table, run against qplan.

    corpus.py --qplan build/qplan [--only 'B14*'] [--slow] [--quick] [--stop] [--jobs N] [--keep DIR]
              [--list]

The inputs are made on the fly in a temporary folder (large ones as sparse files), the expectations
stand beside them in the rows_*.py files, the arithmetic is in model.py.  Prints a line for each
failing case, then `N passed, N failed`; exit 1 if any failed.

QPLAN_TEST_LIMITS=off leaves out the checks of time, memory and ulimit (for sanitizer builds).
"""

import argparse
import fnmatch
import multiprocessing
import os
import shutil
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True      # the source tree stays as it is

import rows_beside          # noqa: F401: the rows fill the table
import rows_framing         # noqa: F401
import rows_json            # noqa: F401
import rows_layout          # noqa: F401
import rows_names           # noqa: F401
import rows_powers          # noqa: F401
import rows_quantized       # noqa: F401
import rows_values          # noqa: F401
from bench import Bench, Skip
from table import CASES, incomplete


def arguments():
    parser = argparse.ArgumentParser(description="The bad-input corpus of qplan.")
    parser.add_argument("--qplan", help="the program under test")
    parser.add_argument("--only", metavar="ID-GLOB", help="only the cases whose id matches")
    parser.add_argument("--slow", action="store_true", help="also the slow cases")
    parser.add_argument("--quick", action="store_true", help="without the dear cases")
    parser.add_argument("--stop", action="store_true", help="stop at the first that fails")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument("--keep", metavar="DIR", help="make the files there and keep them")
    parser.add_argument("--list", action="store_true", help="print the ids and stop")
    options = parser.parse_args()
    if not options.list and not options.qplan:
        parser.error("--qplan is needed")
    return options


def chosen(options):
    """Indices into the table, the dearest first.  A slow case asked for by its full id runs."""
    picked = [i for i, c in enumerate(CASES)
              if fnmatch.fnmatchcase(c.id, options.only or "*") and
              (options.slow or not c.slow or c.id == options.only) and
              not (options.quick and c.cost)]
    return sorted(picked, key=lambda i: -CASES[i].cost)


def run_case(job):
    """Runs one case in a folder of its own: its index, its problems, and why it was skipped."""
    index, qplan, root, keep = job
    folder = os.path.join(root, CASES[index].id)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    bench = Bench(qplan, folder, CASES[index].limits)
    skipped = None
    try:
        CASES[index].run(bench)
    except Skip as why:
        skipped = str(why)
    except Exception:       # a fault of the case itself, or of what it had to read
        bench.problem("the case failed: " + traceback.format_exc())
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return index, bench.problems, skipped


def results(options, root):
    """The verdicts as they come.  The dear cases get a process each: they hold large files in
    memory, and a child starts with the peak of its parent on its account."""
    jobs = [(i, os.path.abspath(options.qplan), root, bool(options.keep)) for i in chosen(options)]
    dear = [job for job in jobs if CASES[job[0]].cost]
    for part, life in ((dear, 1), (jobs[len(dear):], None)):
        with multiprocessing.Pool(max(1, options.jobs), maxtasksperchild=life) as pool:
            yield from pool.imap_unordered(run_case, part)


def run_all(options, root):
    """Counts of passed, failed and skipped cases."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for index, problems, skipped in results(options, root):
        verdict = "failed" if problems else "skipped" if skipped else "passed"
        counts[verdict] += 1
        if verdict != "passed":
            text = f"{verdict.upper()} {CASES[index].id}: {' | '.join(problems) or skipped}"
            print(text.replace("\n", "\\n"), flush=True)
        if options.stop and counts["failed"]:
            break
    return counts


def main():
    options = arguments()
    faults = incomplete()
    if faults:
        sys.exit("corpus: the table is wrong: " + "; ".join(faults))
    if options.list:
        print("\n".join(case.id + " (slow)" * case.slow for case in CASES))
        return 0
    if not os.access(options.qplan, os.X_OK):
        sys.exit(f"corpus: {options.qplan}: not a program")
    with tempfile.TemporaryDirectory(prefix="qplan-fault-") as temporary:
        root = os.path.abspath(options.keep) if options.keep else temporary
        counts = run_all(options, root)
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
