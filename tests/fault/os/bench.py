"""One case at work: its folder, its runs of qplan, and what was wrong with them.

A bench collects problems instead of stopping at the first, so that a failing case shows all of
them. The target of a run is either untouched (absent stays absent, an old one keeps its bytes and
its times) or complete (the bytes of an undisturbed run), and no other file may be left behind.
"""

import errno
import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field

INPUT, QUANTIZED, TARGET = "in.safetensors", "quantized.safetensors", "out.safetensors"
OLD = b"the old content of the target"
OLD_TIME = 1_000_000_000_123_456_789
TIMEOUT = 120
HIDDEN = re.compile(r"\.qplan-\d+-\d+\.tmp")    # the name of a temporary file that has one
NO_TMPFILE = "call=tmpfile,errno=EOPNOTSUPP,mode=forever"
CALLS = ("open", "tmpfile", "read", "pread", "write", "pwrite", "fsync", "close", "linkat",
         "renameat", "unlinkat", "fstat", "fstatvfs", "pthread_create", "malloc", "clock")


class Skip(Exception):
    """This machine cannot make the fault."""


@dataclass(frozen=True)
class Job:
    """A run of qplan that makes TARGET."""
    args: tuple
    source: str = INPUT


def job(text, source=INPUT):
    return Job(tuple(text.split()), source)


JOBS = {
    "channel-1": job(f"quantize --threads 1 -o {TARGET} {INPUT}"),
    "channel-2": job(f"quantize --threads 2 --memory 512K -o {TARGET} {INPUT}"),
    "tensor-1": job(f"quantize --per-tensor --threads 1 --memory 256K -o {TARGET} {INPUT}"),
    "tensor-2": job(f"quantize --per-tensor --threads 2 --memory 512K -o {TARGET} {INPUT}"),
    "proof": job(f"quantize --verify --json --fail-if sqnr_db<3 --threads 2 -o {TARGET} {INPUT}"),
    "dequantize": job(f"dequantize --threads 1 -o {TARGET} {QUANTIZED}", source=QUANTIZED),
    "plan": job(f"plan -o {TARGET} {INPUT}"),
}
MODELS = [name for name in JOBS if name != "plan"]     # those that write a model


@dataclass(frozen=True)
class Result:
    args: tuple
    exit: int           # negative: the signal that ended it
    out: bytes
    err: str
    counts: tuple       # calls that each rule has seen; empty if it did not get to its end


@dataclass
class Shelf:
    """What all cases share: the program, the inputs, and what undisturbed runs give."""
    qplan: str
    preload: str        # None where it cannot be used
    folder: str
    full: bool
    references: dict = field(default_factory=dict)

    def path(self, name):
        return os.path.join(self.folder, name)


@dataclass(frozen=True)
class Reference:
    target: bytes
    out: bytes
    counts: dict        # call -> number; empty without the preload


def strerror(name):
    return os.strerror(getattr(errno, name))


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


class Bench:
    def __init__(self, shelf, folder):
        self.shelf, self.folder, self.problems = shelf, folder, []
        for name in (INPUT, QUANTIZED):
            if os.path.exists(shelf.path(name)):
                self.write(name, read_file(shelf.path(name)))

    # --- files ---

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content)

    def remove(self, *names):
        for name in names:
            if os.path.lexists(self.path(name)):
                os.unlink(self.path(name))

    def old_target(self):
        self.write(TARGET, OLD)
        os.utime(self.path(TARGET), ns=(OLD_TIME, OLD_TIME))

    def prepare(self, replace):
        """For the next run: no target or an old one, and nothing of an earlier run."""
        self.remove(*(n for n in os.listdir(self.folder) if n == TARGET or HIDDEN.fullmatch(n)))
        if replace:
            self.old_target()

    def look(self):
        """Every name in the folder with what must not change."""
        found = {}
        for entry in os.scandir(self.folder):
            s = entry.stat(follow_symlinks=False)
            found[entry.name] = (s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns)
        return found

    # --- verdicts ---

    def problem(self, text):
        self.problems.append(text)

    def check(self, condition, text):
        if not condition:
            self.problem(text)
        return bool(condition)

    def exits(self, where, result, *wanted):
        return self.check(result.exit in wanted, f"{where}: exit: expected "
                          f"{' or '.join(map(str, wanted))}, found {result.exit}: {result.err!r}")

    def says(self, where, result, *parts):
        """One error line, with these parts in it or in its hint."""
        lines = [x for x in result.err.splitlines() if x.startswith("qplan: error: ")]
        self.check(len(lines) == 1, f"{where}: expected one error line, found {result.err!r}")
        missing = [p for p in parts if p not in result.err]
        self.check(not missing, f"{where}: the message lacks {missing}: {result.err!r}")

    def untouched(self, where, before):
        after = self.look()
        new = sorted(set(after) - set(before))
        changed = sorted(name for name in before if after.get(name) != before[name])
        self.check(not new, f"{where}: left behind: {new}")
        self.check(not changed, f"{where}: changed or gone: {changed}")

    def complete(self, where, before, target):
        """The target is there with these bytes; all else is as before."""
        path = self.path(TARGET)
        if self.check(os.path.isfile(path) and not os.path.islink(path),
                      f"{where}: the target is missing"):
            found = read_file(path)
            self.check(found == target, f"{where}: the target differs: {difference(target, found)}")
        after = self.look()
        for names in (before, after):
            names.pop(TARGET, None)
        self.check(after == before, f"{where}: other files: {sorted(set(after) ^ set(before))} "
                                    f"{[n for n in before if after.get(n) != before[n]]}")

    # --- runs ---

    def command(self, args, via, fault, counts):
        """The words to run and the variables for them; only qplan itself gets the preload."""
        words, env = [self.shelf.qplan, *args], {}
        if fault is not None:
            env = {"LD_PRELOAD": self.shelf.preload, "QPLAN_FAULT": fault,
                   "QPLAN_FAULT_COUNT": counts}
        if via:
            words = [*via, "env", *(f"{k}={v}" for k, v in env.items()), *words]
            env = {}
        return words, env

    def start(self, *args, fault=None, via=None, env=None, counts="/dev/null", **how):
        words, own = self.command(args, via, fault, counts)
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "cwd": self.folder, **how}
        return subprocess.Popen(words, env={**clean_environment(), **(env or {}), **own}, **how)

    def finish(self, proc, args, counts=None):
        try:
            out, err = proc.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            proc.kill()
            out, err = proc.communicate()
            self.problem(f"{show(args)}: did not end in {TIMEOUT} s")
        seen = counts.read().split() if counts else ()
        return Result(args, proc.returncode, out or b"", (err or b"").decode("utf-8", "replace"),
                      tuple(map(int, seen)))

    def run(self, *args, meanwhile=None, **how):
        """Runs qplan in the folder. meanwhile: what to do when a rule with mode=STOP stops it."""
        with tempfile.NamedTemporaryFile(dir=self.shelf.folder) as counts:
            os.chmod(counts.name, 0o666)    # for runs as another user
            proc = self.start(*args, counts=counts.name, **how)
            if meanwhile:
                self.intervene(proc, args, meanwhile)
            return self.finish(proc, args, counts)

    def intervene(self, proc, args, action):
        _, status = os.waitpid(proc.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            action()
            os.kill(proc.pid, signal.SIGCONT)
        else:
            proc.returncode = os.waitstatus_to_exitcode(status)
            self.problem(f"{show(args)}: ended before the place to stop at")

    # --- jobs ---

    def reference(self, name):
        """What an undisturbed run of a job gives; made once for each process."""
        if name not in self.shelf.references:
            rules = ";".join(f"call={c},n=0" for c in CALLS) if self.shelf.preload else None
            with tempfile.TemporaryDirectory(dir=self.shelf.folder) as folder:
                other = Bench(self.shelf, folder)
                result = other.run(*JOBS[name].args, fault=rules)
                assert result.exit == 0, result
                self.shelf.references[name] = Reference(
                    read_file(other.path(TARGET)), result.out, dict(zip(CALLS, result.counts)))
        return self.shelf.references[name]

    def disturbed(self, name, fault=None, exits=(4,), says=(), force=(False, True), named=False,
                  where="", **how):
        """Runs a job with a fault, for a target that is absent and for one that is replaced.
        After exit 0 the target must be complete, else untouched; named: the fault comes after the
        name was given, so that the target may be complete even so. Returns the last result."""
        for replace in force:
            self.prepare(replace)
            before = self.look()
            result = self.run(*JOBS[name].args, *["--force"] * replace, fault=fault, **how)
            self.judge(f"{name}{' --force' * replace}{where}: {fault}", name, result, exits, says,
                       before, named)
        self.remove(TARGET)
        return result

    def judge(self, where, name, result, exits, says, before, named=False):
        if not self.exits(where, result, *exits):
            return
        if result.exit > 0:
            self.says(where, result, *says)
        reference = self.reference(name)
        if result.exit == 0 or (named and self.look() != before):
            self.complete(where, before, reference.target)
            self.check(result.out == reference.out or result.exit, f"{where}: stdout differs")
        else:
            self.untouched(where, before)

    def every_n(self, name, call, rule, **expected):
        """A fault at each of the calls of a job in turn; rule has what follows call= and n=."""
        total = self.reference(name).counts[call]
        self.check(total > 0, f"{name}: makes no call of {call}")
        for n in range(1, total + 1):
            self.disturbed(name, f"call={call},n={n},{rule}", **expected)


def clean_environment():
    """Nothing that changes what qplan does or says."""
    return {k: v for k, v in os.environ.items()
            if not k.startswith(("QPLAN_", "LC_", "LD_")) and k != "LANG"}


def show(args):
    return " ".join(a if len(a) < 100 else f"{a[:40]}...({len(a)})" for a in args)


def difference(expected, found):
    if expected == found:
        return "nothing"
    if len(expected) != len(found):
        return f"expected {len(expected)} bytes, found {len(found)}"
    at = next(i for i in range(len(found)) if found[i] != expected[i])
    return f"from byte {at} on"
