#!/usr/bin/env python3
"""Changes the source in one small place at a time and looks whether the tests notice.

    run.py [--seconds N] [--seed N] [--every N] [--only GLOB] [--bar PERCENT] [FOLDER...]

FOLDERs are those that are changed [formats lib/verify]. Works in a copy of the tree, below the
system's temporary folder, with a build of its own under ASan and UBSan, so that a step past an end
is noticed too; after each change only what depends on it is built again. The mutants come in an order that the seed decides, until the time is over. A mutant
that no test notices survives and is listed; exit 1 if fewer than the bar are noticed.

A survivor is a missing test, or a change that means the same: of those the tests cannot know.
"""

import argparse
import fnmatch
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["formats", "lib/verify"]
TEST_SECONDS = 300
ASAN_OPTIONS = "allocator_may_return_null=1:hard_rss_limit_mb=8192"
# The judges, the quickest first: the first to fail ends the trial.
UNITS = ("safetensors", "safetensors_faults", "safetensors_writer", "formats", "verify", "measure",
         "refused_memory", "plan", "plan_read", "report", "report_gates")
PROGRAMS = (("unit-", UNITS), ("fuzz-replay-", ("header", "plan")))
SCRIPTS = ("cli", "golden-qplan")


# ---- Mutants -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mutant:
    path: str
    line: int           # from 1
    start: int          # in the line
    end: int
    text: str           # what takes the place

    def apply(self, lines):
        old = lines[self.line - 1]
        return lines[:self.line - 1] + [old[:self.start] + self.text + old[self.end:]] + \
            lines[self.line:]

    def __str__(self):
        old = (ROOT / self.path).read_text(encoding="utf-8").split("\n")[self.line - 1]
        new = old[:self.start] + self.text + old[self.end:]
        return f"{self.path}:{self.line}: {old.strip()}  ->  {new.strip()}"


# A pattern, and what each of its matches becomes. Comments and strings are blanked out before.
OPERATORS = (
    (r"(?<![<>=!+\-*/&|^-])==(?!=)", ["!="]),
    (r"!=", ["=="]),
    (r"(?<=[\w)\]] )<=(?= )", ["<", ">"]),
    (r"(?<=[\w)\]] )>=(?= )", [">", "<"]),
    (r"(?<=[\w)\]] )<(?= )", ["<=", ">"]),
    (r"(?<=[\w)\]] )>(?= )", [">=", "<"]),
    (r"&&", ["||"]),
    (r"\|\|", ["&&"]),
    (r"(?<=[(&|] )!(?=[\w(])|(?<=\()!(?=[\w(])", [""]),
    (r"(?<=[\w)\]] )\+(?= )", ["-"]),
    (r"(?<=[\w)\]] )-(?= )", ["+"]),
    (r"\btrue\b", ["false"]),
    (r"\bfalse\b", ["true"]),
    (r"\bQP_TRY\(", ["(void)("]),
    (r"(?<![\w.\"'\\])\d+(?=[uU]?\b)(?![\w.\"'])", ["+1", "-1"]),
)


def blanked(text):
    """The source with comments, strings, characters and directives as blanks of the same length."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^#[^\n]*(?:\\\n[^\n]*)*",
                  blank, text, flags=re.S | re.M)


# The condition of an if that stands on one line, to be negated as a whole.
CONDITION = re.compile(r"\bif \((.*)\)(?= \{$|$)")


def replacement(old, new):
    """+1 and -1 stand for the number beside it."""
    return str(int(old) + int(new)) if new in ("+1", "-1") else new


def mutants_of(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    for number, (line, real) in enumerate(zip(blanked(text).split("\n"), text.split("\n")), 1):
        whole = CONDITION.search(line)
        if whole:
            yield Mutant(path, number, *whole.span(1), f"!({real[slice(*whole.span(1))]})")
        for pattern, news in OPERATORS:
            for match in re.finditer(pattern, line):
                for new in news:
                    made = replacement(match.group(), new)
                    if not (made.startswith("-") and match.group().isdigit()):
                        yield Mutant(path, number, match.start(), match.end(), made)


def all_mutants(options):
    paths = sorted(str(p.relative_to(ROOT)) for folder in options.folders
                   for p in (ROOT / folder).rglob("*.c"))
    found = [m for p in paths if fnmatch.fnmatch(p, options.only) for m in mutants_of(p)]
    random.Random(options.seed).shuffle(found)
    return found[::options.every]


# ---- Trials --------------------------------------------------------------------------------------

def fails(command, env):
    """Whether a test fails; one that does not end, or wants all memory, has noticed too."""
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as test:
        try:
            return test.wait(TEST_SECONDS) != 0
        except subprocess.TimeoutExpired:
            os.killpg(test.pid, signal.SIGKILL)
            return True


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, folder):
        self.tree, self.build = folder / "tree", folder / "build"
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                               stdout=subprocess.PIPE).stdout.decode().split("\0")
        for name in filter(None, files):
            if (ROOT / name).exists():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        self.targets = ["qplan"] + [f"{kind}{name}" for kind, names in PROGRAMS for name in names]
        subprocess.run(["cmake", "-S", self.tree, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release",
                        "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG", "-DCMAKE_C_COMPILER=gcc",
                        "-DQPLAN_SANITIZE=address,undefined"],
                       check=True, stdout=subprocess.DEVNULL)

    def make(self):
        """Whether it could be built."""
        return subprocess.run(["cmake", "--build", self.build, "-j", str(os.cpu_count()), "--target",
                               *self.targets], capture_output=True).returncode == 0

    def first_failure(self):
        """The name of the first test that fails, or None."""
        env = {**os.environ, "QPLAN_TEST_LIMITS": "off", "ASAN_OPTIONS": ASAN_OPTIONS}
        corpus = [sys.executable, self.tree / "tests/fault/corpus.py", "--quick", "--qplan",
                  self.build / "qplan"]
        for name, command in (("a unit test", self.ctest(*self.targets[1:])), ("the corpus", corpus),
                              *((script, self.ctest(script)) for script in SCRIPTS)):
            if fails(command, env):
                return name
        return None

    def ctest(self, *names):
        return ["ctest", "--test-dir", self.build, "-R", f"^({'|'.join(names)})$",
                "--stop-on-failure", "--no-tests=error", "--timeout", str(TEST_SECONDS)]

    def judge(self, mutant):
        """What noticed the mutant: a test, the compiler, or None."""
        file = self.tree / mutant.path
        lines = (ROOT / mutant.path).read_text(encoding="utf-8").split("\n")
        try:
            file.write_text("\n".join(mutant.apply(lines)), encoding="utf-8")
            return self.first_failure() if self.make() else "the compiler"
        finally:
            file.write_text("\n".join(lines), encoding="utf-8")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", metavar="FOLDER", nargs="*", default=FOLDERS)
    parser.add_argument("--seconds", type=float, default=3600, help="stop behind this time [3600]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    parser.add_argument("--every", type=int, default=1, help="only every N-th [1]")
    parser.add_argument("--only", metavar="GLOB", default="*", help="only files that match")
    parser.add_argument("--bar", type=float, default=80, help="least percent noticed [80]")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    return parser.parse_args()


def main():
    options = arguments()
    mutants = all_mutants(options)
    if options.list:
        print("\n".join(map(str, mutants)))
        return 0
    if not shutil.which("git") or not (ROOT / ".git").exists():
        print("skipped: the tree is no work tree of git, or git is not installed")
        return 77
    tried, survivors = 0, []
    with tempfile.TemporaryDirectory(prefix="qplan-mutants-") as folder:
        copy = Copy(pathlib.Path(folder))
        failure = copy.first_failure() if copy.make() else "the build"
        if failure:
            sys.exit(f"mutation: {failure} fails without any change")
        end = time.monotonic() + options.seconds
        for mutant in mutants:
            if time.monotonic() > end:
                break
            noticed = copy.judge(mutant)
            if noticed == "the compiler":
                continue
            tried += 1
            if not noticed:
                survivors.append(mutant)
                print(f"SURVIVED {mutant}", flush=True)
    percent = 100 * (tried - len(survivors)) / tried if tried else 0
    print(f"{tried} of {len(mutants)} mutants tried, {len(survivors)} survived, "
          f"{percent:.1f} % noticed (bar {options.bar:g})")
    return 1 if percent < options.bar else 0


if __name__ == "__main__":
    sys.exit(main())
