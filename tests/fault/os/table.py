"""The table that the cases_*.py files fill: one case for each variant of a row of the fault table.

The id begins with the row: G2-every-pread belongs to row G2.
"""

import os
from dataclasses import dataclass

CASES = []
LIMITS = os.environ.get("QPLAN_TEST_LIMITS") != "off"


@dataclass(frozen=True)
class Case:
    id: str
    run: callable       # gets the Bench
    needs: frozenset    # of preload, limits, root, tmpfile
    full: bool          # only with --full
    cost: int           # the dearest begin first


def case(id, needs="", full=False, cost=0):
    """Decorator: the function is a case."""
    def register(run):
        CASES.append(Case(id, run, frozenset(needs.split()), full, cost))
        return run
    return register


def lacking(case, shelf):
    """Why a case cannot run here, or None."""
    if not LIMITS and case.needs & {"preload", "limits"}:
        return "QPLAN_TEST_LIMITS=off"
    if "preload" in case.needs and not shelf.preload:
        return "no --preload"
    if "root" in case.needs and os.geteuid() != 0:
        return "needs root"
    if "tmpfile" in case.needs and not has_tmpfile(shelf.folder):
        return "this file system has no O_TMPFILE"
    return None


def has_tmpfile(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True
