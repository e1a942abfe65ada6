#!/usr/bin/env python3
"""Compares the rows of the fault table with the tests: none may lack the other.

    rows.py               print every finding; exit 1 if there is one
    rows.py --self-test   plant one of each kind and see that it is found

A row is a line of a table in ROWS.md. A case of corpus.py or os/run.py belongs to the row that its id
begins with; any other file of tests/ runs a row if it says so: "row X1", in any case.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
TABLES = {"corpus": "corpus.py", "os": "os/run.py"}
NOT_YET = "Not yet"
# Rows whose tests are written but not in the tree.
AWAITED = set()


def rows_of(page):
    """The rows that have a test: id -> who runs it; and the ids of those that have none yet."""
    run_by, not_yet, repeated, heading = {}, set(), [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        found = re.match(r"\| ([A-Z]\d+) \|.*\| ([^|]+) \|$", line)
        if not found:
            continue
        name, last = found.groups()
        if name in run_by or name in not_yet:
            repeated.append(f"{name}: twice in ROWS.md")
        if heading.startswith(NOT_YET):
            not_yet.add(name)
        else:
            run_by[name] = last
    return run_by, not_yet, repeated


def cases_of(table):
    """The rows that a table of cases has."""
    script = HERE / TABLES[table]
    ids = subprocess.run([sys.executable, script, "--list"], check=True, capture_output=True,
                         text=True).stdout.split("\n")
    return {re.match(r"[A-Z]\d+", name).group() for name in ids if name}


def marks():
    """The rows that files outside of the tables say they run: path -> ids."""
    found = {}
    for path in sorted((TREE / "tests").rglob("*")):
        if path.suffix in {".py", ".c", ".h", ".sh", ".test"} and path != HERE / "rows.py":
            ids = set(re.findall(r"\brow ([A-Z]\d+)\b", path.read_text("utf-8", "replace"), re.I))
            if ids:
                found[str(path.relative_to(TREE))] = ids
    return found


def findings(page, cases, marked):
    """What is wrong between the page, the cases of the tables and the marks of other files."""
    run_by, not_yet, found = rows_of(page)
    for name, who in run_by.items():
        ids = cases.get(who, marked.get(who, set()))
        if name not in ids and name not in AWAITED:
            found.append(f"{name}: {who} does not run it")
    run = {name: table for table, ids in cases.items() for name in ids}
    run.update((name, path) for path, ids in marked.items() for name in ids)
    for name, who in sorted(run.items()):
        if name in not_yet:
            found.append(f"{name}: {who} runs it, but ROWS.md says not yet")
        elif name not in run_by:
            found.append(f"{name}: {who} runs it, but ROWS.md does not have it")
    return found


def self_test():
    page = "## A\n| A1 | a | b | 3 | corpus |\n| A2 | a | b | 3 | tests/x.c |\n" \
           "## Not yet: x\n| E1 | a | b | 3 |\n"
    cases, marked = {"corpus": {"A1"}, "os": set()}, {"tests/x.c": {"A2"}}
    broken = {
        "a row without a case": (page, {**cases, "corpus": set()}, marked),
        "a row without a mark": (page, cases, {}),
        "a case without a row": (page, {**cases, "os": {"G1"}}, marked),
        "a mark without a row": (page, cases, {**marked, "tests/y.c": {"B9"}}),
        "a row that has come": (page, {**cases, "os": {"E1"}}, marked),
        "a row twice": (page + "## B\n| A1 | a | b | 3 | corpus |\n", cases, marked),
    }
    missed = [what for what, parts in broken.items() if len(findings(*parts)) != 1]
    if findings(page, cases, marked):
        missed.append("a good table is not good")
    return missed


def main():
    if sys.argv[1:] == ["--self-test"]:
        found = self_test()
    else:
        page = (HERE / "ROWS.md").read_text("utf-8")
        found = findings(page, {table: cases_of(table) for table in TABLES}, marks())
    print("\n".join(found) or "every row has a test, and every test a row")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
