#!/usr/bin/env python3
"""Changes the source in one small place at a time and looks whether the tests notice.

    run.py [--seconds N] [--seed N] [--every N] [--only GLOB] [--bar PERCENT] [FOLDER...]

FOLDERs are those that are changed [formats lib/verify]. Works in a copy of the tree, below the
system's temporary folder, with two builds: unit tests and corpora of the fuzz targets run under
ASan and UBSan, so that a step past an end is noticed too; then scripts run the plain program,
thousands of times. After each change only what depends on it is built again. The mutants come in
an order that the seed decides, until the time is over. A mutant that no test notices survives and
is listed; exit 1 if fewer than the bar are noticed.

A survivor is a missing test, or a change that means the same: of those the tests cannot know.
equivalent.txt has them with the reason, and they are not tried. An entry that is no mutant any more
is an error.
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
TEST_SECONDS = 60       # of a program that the library is linked to: some changes make endless loops
SCRIPT_SECONDS = 300
ASAN_OPTIONS = "allocator_may_return_null=1:hard_rss_limit_mb=8192"
# The judges, the quickest first: the first to fail ends the trial. Under the sanitizers:
CHECKED = ("unit-safetensors_faults", "unit-format_rows", "unit-format_listings",
           "unit-format_described", "unit-experts", "unit-plan_read", "unit-verify", "unit-formats",
           "unit-report", "fuzz-replay-header", "fuzz-replay-plan", "fuzz-replay-quantized",
           "fuzz-replay-folder", "unit-safetensors_writer", "unit-safetensors",
           "unit-refused_memory")
# and without them, for they take long or start the program thousands of times:
PLAIN = ("unit-report_gates", "unit-measure", "unit-plan", "unit-plan_sources")
SCRIPTS = ("golden-layouts", "cli", "golden-qplan")
COMPILER = "the compiler"


# ---- Mutants -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mutant:
    path: str
    line: int           # from 1
    start: int          # in the line
    end: int
    text: str           # what takes the place
    function: str       # that the line is in, or else the one before

    def apply(self, lines):
        old = lines[self.line - 1]
        return lines[:self.line - 1] + [old[:self.start] + self.text + old[self.end:]] + \
            lines[self.line:]

    def change(self):
        old = (ROOT / self.path).read_text(encoding="utf-8").split("\n")[self.line - 1]
        new = old[:self.start] + self.text + old[self.end:]
        return f"{old.strip()}  ->  {new.strip()}"

    def without_line(self):
        """As equivalent.txt has it: lines move."""
        return f"{self.path} {self.function}: {self.change()}"

    def __str__(self):
        return f"{self.path}:{self.line}: {self.change()}"


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


# A number between the brackets of an array of char: more room for a text is as good.
ROOM = re.compile(r"\bchar \*?\w+\[[^;()]*$")


def replacement(old, new):
    """+1 and -1 stand for the number beside it."""
    return str(int(old) + int(new)) if new in ("+1", "-1") else new


# The first line of a function: its name.
FUNCTION = re.compile(r"^\w[^;=]*?(\w+)\(")


def mutants_of(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    function = "-"
    for number, (line, real) in enumerate(zip(blanked(text).split("\n"), text.split("\n")), 1):
        begins = FUNCTION.match(line)
        function = begins.group(1) if begins else function
        whole = CONDITION.search(line)
        if whole:
            yield Mutant(path, number, *whole.span(1), f"!({real[slice(*whole.span(1))]})",
                         function)
        for pattern, news in OPERATORS:
            for match in re.finditer(pattern, line):
                for new in news:
                    made = replacement(match.group(), new)
                    is_room = new == "+1" and ROOM.search(line[:match.start()])
                    if not is_room and not (made.startswith("-") and match.group().isdigit()):
                        yield Mutant(path, number, match.start(), match.end(), made, function)


def equivalents():
    """The changes that mean the same."""
    text = (ROOT / "tests/mutation/equivalent.txt").read_text(encoding="utf-8")
    return {line for line in text.split("\n") if line and not line.startswith("#")}


def all_mutants(options):
    paths = sorted(str(p.relative_to(ROOT)) for folder in options.folders
                   for p in (ROOT / folder).rglob("*.c"))
    paths = [p for p in paths if fnmatch.fnmatch(p, options.only)]
    found = {m: m.without_line() for p in paths for m in mutants_of(p)}
    same = {e for e in equivalents()
            if e.split(" ")[0] in paths or not (ROOT / e.split(" ")[0]).exists()}
    stale = same - set(found.values())
    if stale:
        sys.exit("mutation: equivalent.txt has what is no mutant: " + "; ".join(sorted(stale)))
    tried = [m for m, change in found.items() if change not in same]
    random.Random(options.seed).shuffle(tried)
    return tried[::options.every]


# ---- Trials --------------------------------------------------------------------------------------

def fails(command, seconds, folder, env):
    """Whether a test fails; one that does not end, or wants all memory, has noticed too."""
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True) as test:
        try:
            return test.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            os.killpg(test.pid, signal.SIGKILL)
            return True


class Build:
    """One configuration of the copy."""

    def __init__(self, tree, folder, *settings):
        self.tree, self.folder = tree, folder
        subprocess.run(["cmake", "-S", tree, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                        "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG", "-DCMAKE_C_COMPILER=gcc",
                        *settings], check=True, stdout=subprocess.DEVNULL)

    def make(self, target):
        """Whether it could be built."""
        return subprocess.run(["cmake", "--build", self.folder, "-j", str(os.cpu_count()),
                               "--target", target], capture_output=True).returncode == 0

    def program(self, target):
        """A test: the build, what of it to make, and what to run."""
        corpus = self.tree / "tests/fuzz/corpus" / target.removeprefix("fuzz-replay-")
        return self, target, [self.folder / "tests" / target] + [corpus] * corpus.is_dir()

    def script(self, name):
        return self, "qplan", ["ctest", "--test-dir", self.folder, "-R", f"^{name}$",
                               "--no-tests=error", "--timeout", str(SCRIPT_SECONDS)]


class Copy:
    """A copy of the tree with its builds."""

    def __init__(self, folder):
        self.tree = folder / "tree"
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                               stdout=subprocess.PIPE).stdout.decode().split("\0")
        for name in filter(None, files):
            if (ROOT / name).exists():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        tools = ["-G", "Ninja"] if shutil.which("ninja") else []
        checked = Build(self.tree, folder / "checked", "-DQPLAN_SANITIZE=address,undefined", *tools)
        plain = Build(self.tree, folder / "plain", *tools)
        corpus = [sys.executable, self.tree / "tests/fault/corpus.py", "--quick", "--stop",
                  "--qplan", plain.folder / "qplan"]
        self.tests = [*map(checked.program, CHECKED), *map(plain.program, PLAIN),
                      *map(plain.script, SCRIPTS), (plain, "qplan", corpus)]

    def noticed_by(self):
        """The first test that fails, or the compiler if it does, or None."""
        env = {**os.environ, "QPLAN_TEST_LIMITS": "off", "ASAN_OPTIONS": ASAN_OPTIONS}
        for build, target, command in self.tests:
            if not build.make(target):
                return COMPILER
            limit = SCRIPT_SECONDS if target == "qplan" else TEST_SECONDS
            if fails(command, limit, self.tree, env):
                return " ".join(map(str, command))
        return None

    def judge(self, mutant):
        """What noticed the mutant, or None."""
        file = self.tree / mutant.path
        lines = (ROOT / mutant.path).read_text(encoding="utf-8").split("\n")
        try:
            file.write_text("\n".join(mutant.apply(lines)), encoding="utf-8")
            return self.noticed_by()
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
        failure = copy.noticed_by()
        if failure:
            sys.exit(f"mutation: {failure} fails without any change")
        end = time.monotonic() + options.seconds
        for mutant in mutants:
            if time.monotonic() > end:
                break
            noticed = copy.judge(mutant)
            if noticed == COMPILER:
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
