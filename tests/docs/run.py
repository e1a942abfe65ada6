#!/usr/bin/env python3
"""Tests the documents: every example runs and prints what it says, and no option, function or key
is missing or made up.

    run.py --qplan PATH [--build DIR] [--cc CC] [PART...]

    examples   the commands of README.md, of examples/README.md and of the EXAMPLES of the manual
               pages; those that compile need --build, a build that can be installed
    ci         examples/release.sh, also where it must fail
    decoder    examples/decode.py against qplan dequantize
    memory     the peak memory does not grow with the model
    reference  options, functions and JSON keys against the manual pages
    links      links, names of files, excerpts and figures of the documents
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
import links
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
    for script, module in (("decode.py", "numpy"), ("embedding.sh", "torch")):
        if script in commands and not importlib.util.find_spec(module):
            return f"{module} is missing"
    return None


def show(step, found, code):
    diff = difflib.unified_diff(pages.plain(step.output) + [f"[exit {step.exit}]"],
                                pages.plain(found) + [f"[exit {code}]"],
                                "documented", "found", lineterm="", n=99)
    return "\n".join([f"$ {step.command}", *diff])


def name_of(path):
    return path.relative_to(ROOT) if ROOT in path.parents else path.name


def run_document(path, tools, results):
    blocks = pages.blocks_of(path)
    sandbox = Sandbox(tools)
    for block in blocks:
        if block.file:
            (sandbox.path / block.file).write_text(block.text)
            continue
        why = lacks(block, tools)
        if why:
            results.skip(f"{name_of(path)}:{block.line}", why)
            continue
        found = list(sandbox.shell([step.command for step in block.steps]))
        for i, step in enumerate(block.steps):
            output, code = found[i] if i < len(found) else (["the shell ended before this"], -1)
            good = code == step.exit and pages.matches(step.output, output)
            results.check(good, f"{name_of(path)}:{step.line}", show(step, output, code))
    return sum(len(block.steps) for block in blocks)


def test_examples(tools, results):
    readmes = [ROOT / "README.md", ROOT / "examples" / "README.md"]
    for path in [*readmes, *sorted((ROOT / "man").glob("*.[135]"))]:
        n = run_document(path, tools, results)
        results.check(n > 0, name_of(path), "it has no example")


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
    links.test_self(results)


PARTS = {
    "examples": test_examples,
    "ci": release.test,
    "decoder": decoder.test,
    "memory": memory.test,
    "reference": reference.test,
    "links": links.test,
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
