#!/usr/bin/env python3
"""Holds the counters of a build with QPLAN_COVERAGE against the bar for lines and branches.

    coverage.py BUILD              after its tests have run; exit 1 below the bar
    coverage.py BUILD --list       also every branch that was never taken, for all rooms
    coverage.py BUILD --reset      forgets what earlier runs have counted

A branch counts when it was taken: a failed allocation is one of them, and tests inject it.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections import defaultdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
# room: least percent of lines and of branches
BARS = {"formats": (100, 100), "lib": (95, 90)}
FILES_AT_A_TIME = 50


class Counts:
    """Lines and branches of one or more files."""

    def __init__(self):
        self.lines, self.lines_run, self.branches, self.branches_taken = 0, 0, 0, 0

    def add(self, other):
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def percents(self):
        return (100 * self.lines_run / self.lines if self.lines else 100,
                100 * self.branches_taken / self.branches if self.branches else 100)


def documents(build):
    """What gcov says of each object; of one that no test has used, that nothing ran."""
    notes = sorted(str(p) for p in build.rglob("*.gcno"))
    for i in range(0, len(notes), FILES_AT_A_TIME):
        text = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout",
                               *notes[i:i + FILES_AT_A_TIME]], cwd=build, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in text.splitlines():
            yield json.loads(line)


def read(build):
    """path -> line number -> how often it ran, and how often each of its branches was taken.
    A function of a header is in several objects: the counts are added."""
    found = defaultdict(dict)
    for document in documents(build):
        for file in document["files"]:
            path = os.path.relpath(os.path.join(ROOT, file["file"]), ROOT)
            if path.split(os.sep)[0] not in BARS:
                continue
            for line in file["lines"]:
                taken = [b["count"] for b in line["branches"]]
                count, before = found[path].get(line["line_number"], (0, []))
                if len(before) == len(taken):
                    taken = [a + b for a, b in zip(before, taken)]
                elif before:
                    taken = before + taken
                found[path][line["line_number"]] = (count + line["count"], taken)
    return found


def counts_of(lines):
    counts = Counts()
    for count, taken in lines.values():
        counts.lines += 1
        counts.lines_run += count > 0
        counts.branches += len(taken)
        counts.branches_taken += sum(t > 0 for t in taken)
    return counts


def missing(path, lines):
    """One text for each line that never ran or has a branch that was never taken."""
    source = (ROOT / path).read_text(encoding="utf-8").splitlines()
    for number, (count, taken) in sorted(lines.items()):
        never = sum(t == 0 for t in taken)
        if count == 0 or never:
            what = f"{never} of {len(taken)} branches" if count else "never ran"
            yield f"{path}:{number}: {what}: {source[number - 1].strip()}"


def judge(found, list_all):
    """Prints a line for each room and what is missing in those below the bar."""
    failed = False
    for room, bar in BARS.items():
        paths = sorted(p for p in found if p.startswith(room + os.sep))
        total = Counts()
        for path in paths:
            total.add(counts_of(found[path]))
        below = not paths or any(p < b for p, b in zip(total.percents(), bar))
        failed = failed or below
        print(f"{'FAILED ' if below else ''}{room}: {total.percents()[0]:.2f} % of "
              f"{total.lines} lines (bar {bar[0]}), {total.percents()[1]:.2f} % of "
              f"{total.branches} branches (bar {bar[1]})")
        for text in (t for p in paths if below or list_all for t in missing(p, found[p])):
            print("  " + text)
    return failed


def reset(build):
    for path in build.rglob("*.gcda"):
        path.unlink()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--reset", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.reset:
        return reset(build)
    if not shutil.which("gcov"):
        print("skipped: gcov is not installed")
        return 77
    return 1 if judge(read(build), options.list) else 0


if __name__ == "__main__":
    sys.exit(main())
