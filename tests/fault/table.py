"""The table that the rows_*.py files fill: one Case per variant of a row of the fault table."""

import json
import os
from dataclasses import dataclass

from bench import INPUT, OUTPUT, Limits

CASES = []
ROWS = {"A": 16, "B": 35, "C": 25, "D": 11, "F": 15,     # F16 is a unit test: it needs a caller in C
        "Q": 19}


@dataclass(frozen=True)
class Case:
    id: str
    run: callable           # gets the Bench
    limits: Limits
    slow: bool              # only with --slow
    cost: float             # the dearest cases start first


def add(id, run, limits=Limits(), slow=False, cost=0):
    CASES.append(Case(id, run, limits, slow, cost))


def case(id, limits=Limits(), slow=False, cost=0):
    """Decorator for the rows that need steps of their own."""
    def register(run):
        add(id, run, limits, slow, cost)
        return run
    return register


def refuse(id, content, *names, exit=3, args=(), inspect="refused", dry_run="refused",
           more_lines=False, limits=Limits(), cost=0):
    """A file that inspect and quantize refuse with a message that holds the names.
    inspect="accepted": only quantize refuses; the fault is in the values or in the flags.
    dry_run="accepted": only the data can tell, so the plan is fine."""
    def run(bench):
        bench.write(content)
        wanted = (INPUT, *names) if exit == 3 else names
        how = {"exit": exit, "names": wanted, "more_lines": more_lines}
        if inspect == "refused":
            bench.refused("inspect", INPUT, **how)
        else:
            bench.accepted("inspect", INPUT)
        if dry_run == "refused":
            bench.refused("quantize", "--dry-run", INPUT, *args, **how)
        else:
            bench.accepted("quantize", "--dry-run", INPUT, *args)
        bench.refused_twice(*args, **how)
    add(id, run, limits, False, cost)


def accept(id, content, *checks, args=(), quantize=True, limits=Limits(), slow=False, cost=0):
    """A file that inspect reads and quantize turns into one that verify proves.
    A check gets the bench, the source and the output, both as read by the strict reader."""
    def run(bench):
        bench.write(content)
        bench.accepted("inspect", INPUT)
        if not quantize:
            return
        source, output = bench.quantized(*args)
        if source and output:
            counted(bench, source)
            foretold(bench, args)
            for check in checks:
                check(bench, source, output)
    add(id, run, limits, slow, cost)


def counted(bench, source):
    """inspect --json sees every tensor."""
    report = report_of(bench, bench.accepted("inspect", "--json", INPUT))
    found = report and report.get("totals", {}).get("tensors")
    bench.check(found == len(source.tensors),
                f"inspect --json: tensors: expected {len(source.tensors)}, found {found}")


def foretold(bench, args):
    """The plan knew the size of the output."""
    plan = report_of(bench, bench.accepted("plan", INPUT, *args))
    found, size = plan and plan["output"]["bytes"], os.path.getsize(bench.path(OUTPUT))
    bench.check(found == size, f"plan: output bytes: expected {size}, found {found}")


def report_of(bench, result):
    """The report on stdout; None and a problem if it is not one line of JSON."""
    text = result.out.decode("utf-8", "replace")
    bench.check(text.endswith("\n") and text.count("\n") == 1, "--json: not one line on stdout")
    try:
        return json.loads(text)
    except ValueError as err:
        bench.problem(f"--json: {err}")
        return None


def all_kept(bench, source, output):
    """Nothing was quantized: the same tensors, no scale made."""
    bench.check(set(output.tensors) == set(source.tensors),
                f"tensors: expected {sorted(source.tensors)}, found {sorted(output.tensors)}")


def incomplete():
    """Rows without a case and ids that are there twice."""
    seen = {case.id.split("-")[0] for case in CASES}
    rows = [f"{part}{i}" for part, n in ROWS.items() for i in range(1, n + 1)]
    ids = [case.id for case in CASES]
    return [f"{r}: no case" for r in rows if r not in seen] + \
           [f"{i}: twice" for i in sorted(set(ids)) if ids.count(i) > 1]
