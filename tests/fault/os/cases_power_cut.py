"""Row G23: the power is cut. What the disk may then hold follows from the calls that were made.

The model of a disk, harder than any journal: of the writes since the last sync of a file any may be
there, whole or in part, in any order; of the changes of names since the last sync of the folder any
may be there too. Each is tried behind every call that a job makes, and the target must be what it
was or complete; behind the last call it must be complete.
"""

import itertools
import os
import random
from dataclasses import dataclass, field

from bench import JOBS, NO_TMPFILE, OLD, TARGET, read_file
from table import case

SEED = 20260202
WAYS = {"tmpfile": "call=fsync,n=0", "hidden": NO_TMPFILE,
        "hidden-no-rename": f"{NO_TMPFILE};call=renameat,path={TARGET},errno=EINVAL"}


# ---- The log -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Call:
    kind: str
    words: tuple
    data: bytes = b""


def read_log(path):
    """The calls in their order; the log of preload.c has a line and, for a write, its bytes."""
    raw, at, calls = read_file(path), 0, []
    while at < len(raw):
        end = raw.index(b"\n", at)
        kind, *words = raw[at:end].decode().split()
        size = int(words[2]) if kind == "write" else 0
        calls.append(Call(kind, tuple(words), raw[end + 1:end + 1 + size]))
        at = end + 1 + size
    return calls


# ---- The disk ------------------------------------------------------------------------------------

@dataclass
class File:
    synced: bytes = b""
    writes: list = field(default_factory=list)      # (offset, bytes) since the last sync
    position: int = 0

    def content(self, writes):
        """The bytes if only these writes got to the disk; a hole reads as zeros."""
        out = bytearray(self.synced)
        for offset, data in writes:
            out.extend(bytes(max(0, offset - len(out))))
            out[offset:offset + len(data)] = data
        return bytes(out)

    def write(self, offset, data):
        offset = self.position if offset < 0 else offset
        self.writes.append((offset, data))
        self.position = offset + len(data)

    def sync(self):
        self.synced, self.writes = self.content(self.writes), []

    def after_cut(self, chance):
        """What may be found of it: nothing, all, all but one write, half of one, any half."""
        yield self.content(self.writes)
        if not self.writes:
            return
        yield self.synced
        for i in {0, len(self.writes) - 1, chance.randrange(len(self.writes))}:
            offset, data = self.writes[i]
            yield self.content(self.writes[:i] + self.writes[i + 1:])
            yield self.content(self.writes[:i] + [(offset, data[:len(data) // 2])] +
                               self.writes[i + 1:])
        yield self.content(w for w in self.writes if chance.random() < 0.5)


class Disk:
    """A folder and its files, as far as they are on the disk and as far as they may be."""

    def __init__(self, old):
        self.names = {TARGET: File(OLD)} if old else {}     # synced
        self.now = dict(self.names)                         # as a program sees them
        self.changes = []                                   # of names since the last sync
        self.open = {}                                      # descriptor -> File

    def change(self, change):
        self.now.update(change)
        self.changes.append(change)

    def find(self, name):
        if name.startswith("/proc/self/fd/"):
            return self.open[name.rsplit("/", 1)[1]]
        return self.now[os.path.basename(name)]

    def do(self, call):
        getattr(self, "do_" + call.kind)(call)

    def do_make(self, call):
        if call.words[1].startswith("/"):   # not of the job, which runs in its folder
            return
        file = File()
        self.open[call.words[0]] = file
        if call.words[1] != ".":
            self.change({os.path.basename(call.words[1]): file})

    def do_write(self, call):
        if call.words[0] in self.open:
            self.open[call.words[0]].write(int(call.words[1]), call.data)

    def do_fsync(self, call):
        if call.words[0] in self.open:
            self.open[call.words[0]].sync()
        else:       # a job makes files and opens their folder; it syncs nothing else
            self.names, self.changes = dict(self.now), []

    def do_close(self, call):
        self.open.pop(call.words[0], None)

    def do_link(self, call):
        self.change({os.path.basename(call.words[1]): self.find(call.words[0])})

    def do_rename(self, call):
        old, new = map(os.path.basename, call.words)
        self.change({old: None, new: self.now[old]})

    def do_unlink(self, call):
        self.change({os.path.basename(call.words[0]): None})

    def targets_after_cut(self, chance):
        """Every content that the target may have; None: it is not there."""
        assert len(self.changes) < 8, self.changes
        for kept in itertools.product((False, True), repeat=len(self.changes)):
            names = dict(self.names)
            for keep, change in zip(kept, self.changes):
                names.update(change if keep else {})
            file = names.get(TARGET)
            yield from file.after_cut(chance) if file else [None]


# ---- The cases -----------------------------------------------------------------------------------

def torn(calls, good, old):
    """Where a power cut leaves a target that is neither as before nor complete; and whether the
    target is complete for certain behind the last call."""
    disk, chance, found = Disk(old), random.Random(SEED), []
    before = OLD if old else None
    for i, call in enumerate(calls):
        disk.do(call)
        states = set(disk.targets_after_cut(chance))
        if not states <= {before, good}:
            found.append(f"behind call {i + 1} of {len(calls)}, {call.kind} {call.words}")
    return found, states == {good}


def without(calls, kind):
    return [call for call in calls if call.kind != kind]


def cut(bench, name, way, replace):
    where = f"{name}{' --force' * replace}, {way}"
    log = bench.path("calls.log")
    bench.prepare(replace)
    result = bench.run(*JOBS[name].args, *["--force"] * replace, fault=WAYS[way],
                       env={"QPLAN_FAULT_LOG": log})
    if not bench.exits(where, result, 0):
        return
    good, calls = read_file(bench.path(TARGET)), read_log(log)
    os.unlink(log)
    found, lasting = torn(calls, good, replace)
    bench.check(sum(call.kind == "write" for call in calls) > 0, f"{where}: no write in the log")
    bench.check(not found, f"{where}: torn {found[:3]}")
    # A plan can be made again in a moment: only its bytes are synced, not its name.
    bench.check(lasting or name == "plan", f"{where}: exit 0, and a power cut may undo it")
    bench.check(torn(without(calls, "fsync"), good, replace)[0],
                f"{where}: without its syncs nothing would be torn: the model is blind")


@case("G23-power-cut", needs="preload", cost=4)
def power_cut(bench):
    for name in JOBS:
        for way in WAYS:
            cut(bench, name, way, replace=False)
            if way != "hidden-no-rename":       # to replace is to rename
                cut(bench, name, way, replace=True)
