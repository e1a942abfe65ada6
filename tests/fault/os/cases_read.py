"""Rows G1 to G7: opening and reading fail, or the input changes under the run."""

import os

from bench import INPUT, JOBS, MODELS, QUANTIZED, TARGET, read_file, strerror
from table import case

OPEN_ERRORS = ("ENOENT", "EACCES", "EMFILE", "ENFILE", "EIO", "ESTALE")


# ---- G1: open ------------------------------------------------------------------------------------

@case("G1-open-input", needs="preload")
def open_input(bench):
    for name in JOBS:
        source = JOBS[name].source
        for error in OPEN_ERRORS:
            bench.disturbed(name, f"call=open,path={source},errno={error}",
                            says=[source, strerror(error)])


@case("G1-open-folder", needs="preload")
def open_folder(bench):
    for name in JOBS:
        folder = 2      # after the input
        for error in OPEN_ERRORS:
            bench.disturbed(name, f"call=open,n={folder},errno={error}",
                            says=[TARGET, strerror(error)])


@case("G1-open-temporary", needs="preload")
def open_temporary(bench):
    for name in JOBS:
        for error in OPEN_ERRORS:
            bench.disturbed(name, "call=tmpfile,errno=EOPNOTSUPP,mode=forever;"
                            f"call=open,path=.qplan-,errno={error}",
                            says=[TARGET, strerror(error)])


@case("G1-every-open", needs="preload")
def every_open(bench):
    """Not each is needed: without the quota of CPUs a run goes on."""
    for name in JOBS:
        for error in OPEN_ERRORS:
            bench.every_n(name, "open", f"errno={error}", exits=(0, 4), says=[strerror(error)])


@case("G1-documents", needs="preload")
def open_documents(bench):
    bench.run("plan", "-o", "p.json", INPUT)
    before = bench.look()
    for call, error in (("open", "EACCES"), ("open", "EMFILE"), ("read", "EIO")):
        rule = f"call={call},path=p.json,errno={error}"
        result = bench.run("quantize", "--plan", "p.json", "-o", TARGET, INPUT, fault=rule)
        bench.exits(rule, result, 4)
        bench.says(rule, result, "p.json", strerror(error))
        bench.untouched(rule, before)


@case("G1-every-stat", needs="preload")
def every_stat(bench):
    for name in MODELS:
        bench.every_n(name, "fstat", "errno=EIO", exits=(0, 4), says=[strerror("EIO")])
        bench.disturbed(name, f"call=fstat,path={JOBS[name].source},errno=EIO",
                        says=[JOBS[name].source, strerror("EIO")])


# ---- G2, G3, G7: read ----------------------------------------------------------------------------

@case("G2-every-pread", needs="preload", cost=3)
def every_pread(bench):
    for name in MODELS:
        bench.every_n(name, "pread", "errno=EIO", says=["cannot read at byte", strerror("EIO")])


@case("G2-input", needs="preload")
def pread_input(bench):
    for name in MODELS:
        source = JOBS[name].source
        bench.disturbed(name, f"call=pread,path={source},n=4,errno=EIO,mode=forever",
                        says=[source, "cannot read at byte", strerror("EIO")])


@case("G2-readers", needs="preload")
def readers(bench):
    """The commands that write nothing."""
    for args in (("verify", QUANTIZED, INPUT), ("inspect", "--against", INPUT, QUANTIZED)):
        before = bench.look()
        total = bench.run(*args, fault="call=pread,n=0").counts[0]
        for n in range(1, total + 1):
            result = bench.run(*args, fault=f"call=pread,n={n},errno=EIO")
            bench.exits(f"{args[0]}, pread {n}", result, 4)
            bench.says(f"{args[0]}, pread {n}", result, "cannot read at byte", strerror("EIO"))
        bench.untouched(args[0], before)


@case("G2-failing-gate", needs="preload")
def failing_gate(bench):
    """A gate that fails does not hide that something could not be read."""
    args = ("quantize", "--fail-if", "ratio>1", "-o", TARGET, INPUT)
    good = bench.run(*args, fault="call=pread,n=0")
    bench.exits("the gate", good, 1)
    for n in range(1, good.counts[0] + 1):
        result = bench.run(*args, fault=f"call=pread,n={n},errno=EIO")
        bench.exits(f"pread {n}", result, 4)
        bench.says(f"pread {n}", result, strerror("EIO"))


@case("G3-every-EINTR", needs="preload", cost=2)
def every_eintr(bench):
    for name in MODELS:
        bench.every_n(name, "pread", "errno=EINTR", exits=(0,), force=(False,))


@case("G3-read-modes", needs="preload", cost=2)
def read_modes(bench):
    for name in MODELS:
        for mode in ("eintr", "short", "one-byte"):
            bench.disturbed(name, f"call=pread,mode={mode}", exits=(0,))


@case("G3-documents", needs="preload")
def document_modes(bench):
    bench.run("plan", "-o", "p.json", INPUT)
    for mode in ("eintr", "short", "one-byte"):
        result = bench.run("quantize", "--plan", "p.json", "--force", "-o", TARGET, INPUT,
                           fault=f"call=read,path=p.json,mode={mode}")
        bench.exits(mode, result, 0)
        bench.check(read_file(bench.path(TARGET)) == bench.reference("channel-1").target,
                    f"{mode}: the target differs")


@case("G7-network", needs="preload")
def network(bench):
    for name in MODELS:
        for error in ("ESTALE", "ETIMEDOUT"):
            bench.disturbed(name, f"call=pread,n=4,errno={error},mode=forever",
                            says=[JOBS[name].source, "cannot read at byte", strerror(error)])


# ---- G4: the file becomes shorter ----------------------------------------------------------------

@case("G4-every-end", needs="preload", cost=2)
def every_end(bench):
    for name in MODELS:
        source = JOBS[name].source
        rules = f"call=pread,path={source}"
        total = bench.run(*JOBS[name].args, fault=rules + ",n=0").counts[0]
        bench.remove(TARGET)
        for n in range(1, total + 1):
            bench.disturbed(name, f"{rules},n={n},mode=zero",
                            says=[source, "became shorter", "expected", "found"])


@case("G4-truncated", needs="preload")
def truncated(bench):
    """For real, in the middle of the run."""
    for name in MODELS:
        meanwhile_changed(bench, name, "truncated", lambda path: os.truncate(path, 1000),
                          says=["became shorter"])


# ---- G5, G6: the file changes otherwise ----------------------------------------------------------

def meanwhile_changed(bench, name, what, change, exits=(4,), says=(), n=3):
    """Changes the input when the run is at its n-th read of it."""
    source = JOBS[name].source
    path, good = bench.path(source), read_file(bench.path(source))
    bench.reference(name)
    before = bench.look()
    result = bench.run(*JOBS[name].args, meanwhile=lambda: change(path),
                       fault=f"call=pread,path={source},n={n},mode=STOP")
    where = f"{name}, {what} at read {n}"
    bench.exits(where, result, *exits)
    if result.exit > 0:
        bench.says(where, result, source, *says)
        bench.check(sorted(bench.look()) == sorted(before), f"{where}: left files: {bench.look()}")
    else:
        bench.check(read_file(bench.path(TARGET)) == bench.reference(name).target,
                    f"{where}: the target differs")
    bench.remove(source, source + ".old", TARGET)
    bench.write(source, good)


def grow(path):
    with open(path, "ab") as f:
        f.write(b"more")


def rewrite(path):
    """Other numbers in the same place."""
    with open(path, "r+b") as f:
        f.seek(2000)
        f.write(bytes(os.path.getsize(path) - 2000))


def touch(path):
    os.utime(path)


def rewrite_secretly(path):
    """Other numbers in the same place, and the modification time as it was."""
    before = os.stat(path)
    rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {"grown": grow, "rewritten": rewrite, "touched": touch,
           "rewritten secretly": rewrite_secretly}


@case("G5-changed", needs="preload")
def changed(bench):
    for name in MODELS:
        for what, change in CHANGES.items():
            meanwhile_changed(bench, name, what, change, says=["changed while it was read"])


@case("G5-changed-during-proof", needs="preload")
def changed_during_proof(bench):
    """The second reading of the source, for --verify, is watched as the first one."""
    total = bench.run(*JOBS["proof"].args, fault=f"call=pread,path={INPUT},n=0").counts[0]
    bench.remove(TARGET)
    for what, change in CHANGES.items():
        meanwhile_changed(bench, "proof", what, change, says=["changed while it was read"],
                          n=total - 1)


@case("G5-changed-to-nan", needs="preload")
def changed_to_nan(bench):
    """The message is the change, not what the half-changed file holds."""
    def poison(path):
        with open(path, "r+b") as f:
            f.seek(2000)
            f.write(b"\xff" * (os.path.getsize(path) - 2000))
    for name in ("channel-1", "tensor-2", "proof"):
        meanwhile_changed(bench, name, "poisoned", poison, says=["changed while it was read"])


@case("G6-moved", needs="preload")
def moved(bench):
    for name in MODELS:
        meanwhile_changed(bench, name, "unlinked", os.unlink, exits=(0,))
        meanwhile_changed(bench, name, "renamed", lambda path: os.rename(path, path + ".old"),
                          exits=(0,))
        meanwhile_changed(bench, name, "linked", lambda path: os.link(path, path + ".old"),
                          exits=(0,))


@case("I3-modification-time-put-back", needs="preload")
def time_put_back(bench):
    """The commands that write nothing, for each of their files; CHANGES has it for the others."""
    for args, sources in ((("verify", QUANTIZED, INPUT), (QUANTIZED, INPUT)),
                          (("inspect", "--against", INPUT, QUANTIZED), (QUANTIZED, INPUT)),
                          (("inspect", QUANTIZED), (QUANTIZED,))):
        for source in sources:
            good, where = read_file(bench.path(source)), f"{args}, {source}"
            total = bench.run(*args, fault=f"call=pread,path={source},n=0").counts[0]
            result = bench.run(*args, meanwhile=lambda: rewrite_secretly(bench.path(source)),
                               fault=f"call=pread,path={source},n={total},mode=STOP")
            bench.exits(where, result, 4)
            bench.says(where, result, source, "changed while it was read")
            bench.check(not result.out, f"{where}: something is on stdout")
            bench.write(source, good)
