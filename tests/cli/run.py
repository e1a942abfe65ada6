#!/usr/bin/env python3
"""Runs the tests of the command line: each case is one text file, <command>/<case>.test.

    # a comment
    $ qplan quantize --threads 0 m.safetensors
    > a line that continues the command
    a line of stdout
    stderr> a line of stderr
    exit 2

The blocks of a file run in order in one fresh folder, by sh, with qplan on PATH and with $TESTDATA
and $ROOT (the source tree). A block without output lines expects none; without an exit line, 0. An
expected line that ends in " (re)" is a regular expression for a whole line, and "..." stands for
any run of lines. Blank lines at the end of a block are for the reader.
"""

import argparse
import concurrent.futures
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_SECONDS = 120
MARK = "stderr> "


class Block:
    """One command and what is expected of it."""

    def __init__(self, before, command):
        self.before = before  # comment and blank lines above it, as they are
        self.command = [command]
        self.stdout, self.stderr, self.exit = [], [], 0
        self.lines = []  # the expectation as written, without its trailing blank lines

    def add(self, line):
        if line.startswith("> ") and not self.lines:
            self.command.append(line[2:])
            return
        self.lines.append(line)

    def finish(self):
        """Splits the expectation and returns its trailing blank lines."""
        tail = []
        while self.lines and not self.lines[-1].strip():
            tail.insert(0, self.lines.pop())
        for line in self.lines:
            if line.startswith(MARK) or line == MARK.rstrip():
                self.stderr.append(line[len(MARK):])
            elif re.fullmatch(r"exit \d+", line):
                self.exit = int(line[5:])
            else:
                self.stdout.append(line)
        return tail

    def show_command(self):
        return ["$ " + self.command[0]] + ["> " + line for line in self.command[1:]]


class Result:
    def __init__(self, stdout, stderr, code):
        self.stdout, self.stderr, self.exit = stdout, stderr, code

    def lines(self):
        shown = self.stdout + [(MARK + line).rstrip() for line in self.stderr]
        return shown + ([f"exit {self.exit}"] if self.exit else [])


def parse(path):
    """Returns the blocks of a file and the lines behind the last one."""
    blocks, pending = [], []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("$ "):
            if blocks:
                pending = blocks[-1].finish() + pending
            blocks.append(Block(pending, line[2:]))
            pending = []
        elif line.startswith("# ") or line == "#" or not blocks or pending:
            pending.append(line)
        else:
            blocks[-1].add(line)
    if blocks:
        pending = blocks[-1].finish() + pending
    return blocks, pending


def line_matches(expected, found):
    if expected.endswith(" (re)"):
        return re.fullmatch(expected[:-5], found) is not None
    return expected == found


def matches(expected, found):
    """Whether the found lines are what is expected, with "..." for any run of lines."""
    reach = {0}  # how many found lines the expectation so far can stand for
    for line in expected:
        if line == "...":
            reach = set(range(min(reach), len(found) + 1)) if reach else set()
        else:
            reach = {i + 1 for i in reach if i < len(found) and line_matches(line, found[i])}
    return len(found) in reach


def as_lines(data):
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    if lines[-1] == "":
        lines.pop()
    else:
        lines[-1] += "\\ no newline"
    return lines


def with_patterns(old, found):
    """The found lines, each in the form of an old expression that still matches it."""
    patterns = [line for line in old if line.endswith(" (re)")]

    def form_of(line):
        return next((p for p in patterns if re.fullmatch(p[:-5], line)), line)
    return [form_of(line) for line in found]


def run_block(block, folder, env):
    done = subprocess.run(["sh", "-c", "\n".join(block.command)], cwd=folder, env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Result(as_lines(done.stdout), as_lines(done.stderr), code)


def fits(block, result):
    return (block.exit == result.exit and matches(block.stdout, result.stdout)
            and matches(block.stderr, result.stderr))


def environment(options, folder):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("QPLAN_", "LC_")) and key not in ("LANG", "POSIXLY_CORRECT")}
    bin_folder = os.path.join(folder, "bin")
    os.mkdir(bin_folder)
    os.symlink(options.qplan.resolve(), os.path.join(bin_folder, "qplan"))
    env.update(PATH=bin_folder + os.pathsep + env.get("PATH", ""), ROOT=str(ROOT),
               TESTDATA=str(options.testdata.resolve()))
    return env


def run_case(path, options):
    """Runs one file. Returns the text that describes its failures, "" if there are none."""
    blocks, tail = parse(path)
    report, updated = [], []
    if not blocks:
        return f"--- {path}: no command in it\n"
    with tempfile.TemporaryDirectory(prefix="qplan-cli-") as folder:
        env = environment(options, folder)
        work = os.path.join(folder, "work")
        os.mkdir(work)
        for block in blocks:
            result = run_block(block, work, env)
            good = fits(block, result)
            updated += block.before + block.show_command()
            updated += block.lines if good else with_patterns(block.lines, result.lines())
            if not good:
                report += [f"--- {path}", *block.show_command()]
                report += difflib.unified_diff(block.lines, result.lines(), "expected", "found",
                                               lineterm="", n=2)
    if report and options.update:
        path.write_text("\n".join(updated + tail), encoding="utf-8")
    return "\n".join(report) + "\n" if report else ""


def find_cases(names):
    if not names:
        return sorted(HERE.glob("*/*.test"))
    found = []
    for name in names:
        path = pathlib.Path(name)
        candidates = [path, HERE / name, HERE / (name + ".test")]
        path = next((c for c in candidates if c.exists()), None)
        if path is None:
            sys.exit(f"run.py: no case called {name}")
        found += sorted(path.glob("**/*.test")) if path.is_dir() else [path]
    return found


def main():
    parser = argparse.ArgumentParser(description="Runs the tests of the qplan command line.")
    parser.add_argument("--qplan", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata")
    parser.add_argument("--update", action="store_true", help="rewrite what is expected")
    parser.add_argument("case", nargs="*", help="a file, a folder or COMMAND/CASE; all if absent")
    options = parser.parse_args()
    cases = find_cases(options.case)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for report in pool.map(lambda path: run_case(path, options), cases):
            failed += bool(report)
            sys.stdout.write(report)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
