#!/usr/bin/env python3
"""Tests the documents: every example runs and prints what it says, and no option, function or key
is missing or made up.

    run.py --qplan PATH [--build DIR] [--cc CC] [PART...]

    examples   the commands of README.md and of the EXAMPLES of the manual pages; those that
               compile need --build, a build that can be installed
    ci         the release script of the README, also where it must fail
    decoder    the numpy decoder of the README against qplan dequantize
    memory     the peak memory does not grow with the model
    reference  options, functions and JSON keys against the manual pages
    self       this test finds planted faults

All parts run if none is named. Exit 1 if a check failed, 77 if all that was asked for was skipped.
"""

import argparse
import difflib
import importlib.util
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True  # the source tree stays as it is

import decoder
import memory
import pages
import reference
import release
from sandbox import ROOT, Sandbox, Tools


class Results:
    """Counts checks and prints those that fail."""

    def __init__(self, silent=False):
        self.passed = self.failed = self.skipped = 0
        self.silent = silent

    def check(self, good, name, why=""):
        if good:
            self.passed += 1
            return
        self.failed += 1
        if not self.silent:
            print(f"FAILED {name}\n{why or ''}".rstrip())

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}")


def lacks(block, tools):
    """What a block needs and this machine does not have, or None."""
    commands = "\n".join(step.command for step in block.steps)
    if "pkg-config" in commands and not tools.install():
        return "no build that can be installed"
    if "decode.py" in commands and not importlib.util.find_spec("numpy"):
        return "numpy is missing"
    return None


def show(step, found, code):
    diff = difflib.unified_diff(pages.plain(step.output) + [f"[exit {step.exit}]"],
                                pages.plain(found) + [f"[exit {code}]"],
                                "documented", "found", lineterm="", n=99)
    return "\n".join([f"$ {step.command}", *diff])


def run_document(path, tools, results):
    blocks = pages.blocks_of(path)
    sandbox = Sandbox(tools)
    for block in blocks:
        if block.file:
            (sandbox.path / block.file).write_text(block.text)
            continue
        why = lacks(block, tools)
        if why:
            results.skip(f"{path.name}:{block.line}", why)
            continue
        found = list(sandbox.shell([step.command for step in block.steps]))
        for i, step in enumerate(block.steps):
            output, code = found[i] if i < len(found) else (["the shell ended before this"], -1)
            good = code == step.exit and pages.matches(step.output, output)
            results.check(good, f"{path.name}:{step.line}", show(step, output, code))
    return sum(len(block.steps) for block in blocks)


def test_examples(tools, results):
    for path in [ROOT / "README.md", *sorted((ROOT / "man").glob("*.[135]"))]:
        n = run_document(path, tools, results)
        results.check(n > 0, path.name, "it has no example")


PLANTED = """
```console
$ echo right
right
$ echo one; echo two; echo three >&2; false
one
...
three
[exit 1]
```
```console
$ echo wrong
right
$ false
$ echo more
$ echo
...
a line that is not there
$ printf 'no newline'
no newline
```
"""


def test_self(tools, results):
    """Of the examples above the first two and the last are right."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "PLANTED.md"
        path.write_text(PLANTED)
        planted = Results(silent=True)
        run_document(path, tools, planted)
    results.check((planted.passed, planted.failed) == (3, 4), "planted faults",
                  f"expected 3 passed and 4 failed, found {planted.passed} and {planted.failed}")


PARTS = {
    "examples": test_examples,
    "ci": release.test,
    "decoder": decoder.test,
    "memory": memory.test,
    "reference": reference.test,
    "self": test_self,
}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--build")
    parser.add_argument("--cc")
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    tools, results = Tools(args.qplan, args.build, args.cc), Results()
    for part in args.parts or PARTS:
        PARTS[part](tools, results)
    print(f"{results.passed} passed, {results.failed} failed"
          + (f", {results.skipped} skipped" if results.skipped else ""))
    if results.failed:
        return 1
    return 77 if results.skipped and not results.passed else 0


if __name__ == "__main__":
    sys.exit(main())
