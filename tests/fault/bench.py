"""One case at work: its folder, its runs of qplan, and what was wrong with them.

A bench collects problems instead of stopping at the first, so that a failing row shows all of them.
Every run is checked for what holds everywhere: an ending by itself, no signal, time and memory in
bounds, and no raw control or direction character on stderr or in text for people.
"""

import os
import re
import resource
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

import st
from expect import Message, wanted

LIMITS = os.environ.get("QPLAN_TEST_LIMITS") != "off"
TIMEOUT = 60 if LIMITS else 300
INPUT, OUTPUT = "m.safetensors", "out.safetensors"
OLD = b"the old content of the output"
OLD_TIME = 1_000_000_000_123_456_789
SHOWN = 1 << 20         # bytes of an output stream that are looked at
MB = 1_000_000
MiB = 1 << 20
LINE = 1000             # an error line is cut long before this
# Hints, and the warning of a proof that nothing tells how parameters were chosen.
HINT = re.compile(r"(qplan: )?\s*hint: |qplan: warning: .* how parameters were chosen: ")
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u061c\u200e\u200f\u2028\u2029"
                 "\u202a-\u202e\u2066-\u2069]")
RAW_JSON = re.compile("[\x00-\x09\x0b-\x1f]")


class Skip(Exception):
    """This machine cannot make the input."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one row.  seconds None is the common bound of 1 s; a bound of the row's own is
    checked threefold, for noisy machines.  rss None is 100 MB and four times the header."""
    seconds: float = None
    rss: int = None
    stack: int = None
    address_space: int = None

    def time(self):
        return 1 if self.seconds is None else 3 * self.seconds


@dataclass(frozen=True)
class Result:
    args: tuple
    exit: int
    out: bytes
    err: str
    seconds: float
    rss: int


def header_length(path):
    """The header that a file really has; 0 when the length field is wrong."""
    try:
        if not os.path.isfile(path):
            return 0
        with open(path, "rb") as f:
            size, n = os.fstat(f.fileno()).st_size, struct.unpack("<Q", f.read(8))[0]
    except (OSError, struct.error):
        return 0
    return n if n <= 100_000_000 and 8 + n <= size else 0


class Bench:
    def __init__(self, qplan, folder, limits):
        self.qplan, self.folder, self.limits = qplan, folder, limits
        self.problems, self.spans = [], ()

    # --- files ---

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, content, name=INPUT):
        """content: a File, bytes, or a function that writes the path it is given."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if callable(content):
            content(path)
            return
        if isinstance(content, st.File):
            self.spans, content = content.spans, content.data
        with open(path, "wb") as f:
            f.write(content)

    def bytes_of(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def read(self, name):
        """A checkpoint by the strict reader; None and a problem if it is not one."""
        try:
            return st.read(self.path(name))
        except (OSError, st.BadFile) as err:
            self.problem(f"{name}: {err}")
            return None

    def snapshot(self):
        """What is in the folder, and untouched."""
        rows = {}
        for base, dirs, files in os.walk(self.folder):
            for name in dirs + files:
                path = os.path.join(base, name)
                s = os.lstat(path)
                rows[os.path.relpath(path, self.folder)] = (
                    (s.st_ino, s.st_size, s.st_mtime_ns) if name in files else None)
        return rows

    # --- verdicts ---

    def problem(self, text):
        self.problems.append(text)

    def check(self, condition, text):
        if not condition:
            self.problem(text)
        return condition

    # --- runs ---

    def run(self, *args, stdin=subprocess.DEVNULL, limits=None, env=None):
        """Runs qplan in the folder."""
        limits = limits or self.limits
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            begin = time.monotonic()
            proc = subprocess.Popen([self.qplan, *args], cwd=self.folder, stdin=stdin, stdout=out,
                                    stderr=err, preexec_fn=ulimits(limits),
                                    env={**os.environ, "LC_ALL": "C", **(env or {})})
            patience = max(TIMEOUT, 2 * limits.time())
            killer = threading.Timer(patience, proc.kill)
            killer.start()
            _, status, usage = os.wait4(proc.pid, 0)
            killer.cancel()
            wall = time.monotonic() - begin
            proc.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            busy = min(wall, usage.ru_utime + usage.ru_stime)
            result = Result(args, proc.returncode, out.read(SHOWN),
                            self.text(args, err.read(SHOWN)), busy, usage.ru_maxrss * 1024)
        if wall >= patience:
            self.problem(f"{show(args)}: did not end in {patience:g} s")
        self.common(result, limits)
        return result

    def text(self, args, raw):
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as err:
            self.problem(f"{show(args)}: stderr is not UTF-8: {err}")
            return raw.decode("utf-8", "replace")

    def common(self, result, limits):
        """What holds for every run."""
        where = show(result.args)
        if result.exit < 0 or result.exit in (70, 134, 135, 139):
            self.problem(f"{where}: died: exit {result.exit}: {result.err[-300:]!r}")
        raw = RAW.search(result.err)
        self.check(not raw, f"{where}: raw {raw and raw.group()!r} on stderr")
        out = result.out.decode("utf-8", "replace")
        json = "--json" in result.args or result.args[0] == "plan"
        raw = (RAW_JSON if json else RAW).search(out)
        self.check(not raw, f"{where}: raw {raw and raw.group()!r} on stdout")
        if LIMITS:
            self.bounds(result, limits)

    def bounds(self, result, limits):
        where, bound = show(result.args), limits.time()
        self.check(result.seconds <= bound,
                   f"{where}: time: expected at most {bound:g} s, found {result.seconds:.2f} s")
        rss = limits.rss or 100 * MB + 4 * header_length(self.path(INPUT))
        self.check(result.rss <= rss, f"{where}: peak memory: expected at most {rss // MB} MB, "
                                      f"found {result.rss // MB} MB")

    def refused(self, *args, exit=3, names=(), more_lines=False, **how):
        """One error line with the named parts, nothing on stdout, every file untouched."""
        before = self.snapshot()
        result = self.run(*args, **how)
        where = show(args)
        self.check(result.exit == exit, f"{where}: exit: expected {exit}, found {result.exit}")
        self.check(not result.out, f"{where}: stdout is not empty: {result.out[:80]!r}")
        self.message(result, names, more_lines or exit == 2)
        self.untouched(where, before, self.snapshot())
        return result

    def message(self, result, names, more_lines):
        where, lines = show(result.args), result.err.splitlines()
        errors = [line for line in lines if line.startswith("qplan: error: ")]
        if len(errors) != 1:
            self.problem(f"{where}: expected one error line, found {result.err[:400]!r}")
            return
        rest = [x for x in lines if x != errors[0] and not HINT.match(x)]
        self.check(more_lines or not rest, f"{where}: stray lines on stderr: {rest}")
        self.check(more_lines or len(errors[0]) <= LINE, f"{where}: the error line is not cut")
        message = Message(errors[0], result.err, self.spans)
        missing = [w.what for w in map(wanted, names) if not w.holds(message)]
        self.check(not missing, f"{where}: the message lacks {'; '.join(missing)}: "
                                f"{result.err[:400]!r} marked ranges {list(self.spans)}")

    def untouched(self, where, before, after):
        new = sorted(set(after) - set(before))
        changed = sorted(k for k in before if after.get(k) != before[k])
        self.check(not new, f"{where}: left files behind: {new}")
        self.check(not changed, f"{where}: changed: {changed}")

    def refused_twice(self, *args, **how):
        """quantize, once without an output and once over an old one: both stay as they are."""
        self.refused("quantize", "-o", OUTPUT, INPUT, *args, **how)
        self.old_output()
        self.refused("quantize", "--force", "-o", OUTPUT, INPUT, *args, **how)
        self.check(self.bytes_of(OUTPUT) == OLD, "the old output has other bytes")
        os.unlink(self.path(OUTPUT))

    def old_output(self, name=OUTPUT):
        self.write(OLD, name)
        os.utime(self.path(name), ns=(OLD_TIME, OLD_TIME))

    def accepted(self, *args, makes=(), **how):
        """Exit 0, no error line, and no file besides those that the run makes."""
        before = self.snapshot()
        result = self.run(*args, **how)
        where = show(args)
        if self.check(result.exit == 0,
                      f"{where}: exit: expected 0, found {result.exit}: {result.err[:400]!r}"):
            self.check("qplan: error" not in result.err, f"{where}: error line with exit 0")
        after = self.snapshot()
        for name in makes:              # a file, or a folder with all that is in it
            self.check(name in after or result.exit, f"{where}: {name} was not made")
            for rows in (before, after):
                for path in [p for p in rows if p == name or p.startswith(name + os.sep)]:
                    del rows[path]
        self.untouched(where, before, after)
        return result

    def quantized(self, *args, source=INPUT, output=OUTPUT, verify=True, **how):
        """quantize, then the proof; returns both checkpoints (None where something failed)."""
        result = self.accepted("quantize", "-o", output, source, *args, makes=[output], **how)
        if result.exit:
            return None, None
        if "--json" not in args:
            self.check(not result.out, f"{show(result.args)}: stdout is not empty")
        if verify:
            self.accepted("verify", "--allow-unquantized", output, source, **how)
        src, out = self.read(source), self.read(output)
        if src and out:
            self.kept_alike(src, out)
        return src, out

    def kept_alike(self, src, out):
        """Each source tensor is there: the same bytes, or codes with a scale."""
        for name, tensor in src.tensors.items():
            if name not in out:
                self.problem(f"{name!r} is missing in the output")
            elif name + "_scale" in src or name + "_scale" not in out:
                self.check(out[name] == tensor, f"{name!r} is neither quantized nor a copy")


def ulimits(limits):
    """Only rows that ask for one pay for the slower start of a child."""
    if not LIMITS or not (limits.stack or limits.address_space):
        return None

    def apply():
        if limits.stack:
            resource.setrlimit(resource.RLIMIT_STACK, (limits.stack, limits.stack))
        if limits.address_space:
            resource.setrlimit(resource.RLIMIT_AS, (limits.address_space, limits.address_space))
    return apply


def show(args):
    return "qplan " + " ".join(args)
