#!/usr/bin/env python3
"""Looks at what the compiler made: no instruction that changes bits, no option that allows one.

    disassembly.py BUILD               every object of the library and the program in a build folder
    disassembly.py BUILD --self-test   plant such instructions and options, and see them found

An approximate reciprocal or root must not occur at all, a fused multiply-add only in an object
whose source includes kernels/tiles/fma.h, the header where its exactness is argued, and only of the
kinds that are called there. Every command of the build contracts nothing. BUILD has
compile_commands.json.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FMA_HEADER = "kernels/tiles/fma.h"
OBJECT_DIRS = ("cli/", "lib/", "formats/", "kernels/")
COMPUTES_NOTHING = ("tests/fault/os/preload.c",)  # built without the options of the project

# Mnemonics of x86-64 and aarch64.
APPROXIMATE = re.compile(r"\b(v?rcp|v?rsqrt|pfr(cp|sqrt)|[uf]r(ecp|sqrt))\w*")
FUSED = re.compile(r"\b(v?fc?n?m(add|sub)|v?fml[as]|vfn?m[as])\w*")
HOST = os.uname().machine
UNSAFE = ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math",
          "-freciprocal-math", "-ffinite-math-only", "-mrecip")


class Command:
    """One line of compile_commands.json."""

    def __init__(self, entry):
        self.words = entry.get("arguments") or shlex.split(entry["command"])
        self.folder = entry["directory"]
        self.source = os.path.relpath(os.path.join(self.folder, entry["file"]), ROOT)
        self.object = os.path.join(self.folder, self.words[self.words.index("-o") + 1])

    def reads(self, header):
        """The path of a file of the tree with this name, if the preprocessor reads it."""
        words = [word for word in self.words if word not in ("-c", "-MD")]
        at = words.index("-o")
        words[at:at + 2] = ["-MM"]
        made = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True)
        found = [word for word in made.stdout.split() if ("/" + word).endswith("/" + header)]
        return os.path.join(self.folder, found[0]) if found else None


def fused_in(path):
    """What the header calls, as a pattern of instructions; on other machines anything fused."""
    if not path:
        return None
    calls = set(re.findall(r"\b_mm\w*_(fn?m(?:add|sub))_([ps][sd])\b",
                           pathlib.Path(path).read_text(encoding="utf-8")))
    kinds = [rf"v{what}\d*{lanes}" for what, lanes in sorted(calls)]
    return re.compile("|".join(kinds) or (r"(?!)" if HOST == "x86_64" else FUSED.pattern))


def read_commands(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        return [Command(entry) for entry in json.load(file)]


def check_options(command):
    contract = [word for word in command.words if word.startswith("-ffp-contract=")]
    if contract[-1:] != ["-ffp-contract=off"]:
        yield f"{command.source}: compiled without -ffp-contract=off"
    for word in command.words:
        if word.split("=")[0] in UNSAFE:
            yield f"{command.source}: compiled with {word}"


def instructions(path):
    """Function and instruction of each line of a disassembly; names of symbols are left out."""
    made = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True,
                          text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    function = "?"
    for line in made.stdout.splitlines():
        label = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if label:
            function = label.group(1)
        elif re.match(r" *[0-9a-f]+:\t", line):
            yield function, re.sub(r"<.*|#.*|//.*", "", line.split("\t", 1)[1])


def check_object(command):
    """One finding for each function and mnemonic."""
    allowed, asked = None, False
    seen = set()
    for function, text in instructions(command.object):
        found = APPROXIMATE.search(text) or FUSED.search(text)
        if found and FUSED.fullmatch(found.group()):
            if not asked:
                allowed, asked = fused_in(command.reads(FMA_HEADER)), True
            if allowed and allowed.fullmatch(found.group()):
                continue
        if found and (function, found.group()) not in seen:
            seen.add((function, found.group()))
            yield f"{command.source}: {found.group()} in {function}"


def check_build(build):
    commands = read_commands(build)
    objects = [c for c in commands if c.source.startswith(OBJECT_DIRS)]
    findings = []
    for command in commands:
        if command.source not in COMPUTES_NOTHING:
            findings += check_options(command)
    for command in objects:
        findings += check_object(command)
    if not any(True for command in objects for _ in instructions(command.object)):
        findings.append("no instruction was seen: are the objects there?")
    return findings, len(objects)


# ---- The check itself ----------------------------------------------------------------------------

# The files of a tree: name, options, text, and what must be found in it, if anything.
OFF = "-ffp-contract=off"
SUM = "float work(float a, float b, float c) { return a * b + c; }\n"
FUSE = ["-mfma"] if HOST == "x86_64" else []
OTHER = {"x86_64": "double work(double a, double b, double c) { return __builtin_fma(a, b, c); }\n"}
RECIPROCAL = {
    "x86_64": '#include <immintrin.h>\n__m128 work(__m128 a) { return _mm_rcp_ps(a); }\n',
    "aarch64": "#include <arm_neon.h>\n"
               "float32x4_t work(float32x4_t a) { return vrecpeq_f32(a); }\n",
}
ROOT_OF = {
    "x86_64": '#include <immintrin.h>\n__attribute__((target("avx512f"))) __m512 work(__m512 a)'
              "{ return _mm512_rsqrt14_ps(a); }\n",
    "aarch64": "#include <arm_neon.h>\n"
               "float32x4_t work(float32x4_t a) { return vrsqrteq_f32(a); }\n",
}
CASES = (
    ("lib/plain.c", [OFF, *FUSE], SUM, None),
    ("lib/named.c", [OFF], "float vfmadd_rcp(float);\n"
     "float work(float a) { return vfmadd_rcp(a) + 1; }\n", None),
    ("kernels/tiles/allowed.c", [OFF, *FUSE], '#include "fma.h"\n'
     "float work(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n", None),
    ("kernels/tiles/other.c", [OFF, *FUSE], '#include "fma.h"\n' + OTHER.get(HOST, ""), "in work"),
    ("kernels/tiles/fused.c", [OFF, *FUSE],
     "float work(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n", "in work"),
    ("lib/contracted.c", ["-ffp-contract=fast", *FUSE], SUM, "in work"),
    ("kernels/tiles/reciprocal.c", [OFF], '#include "fma.h"\n' + RECIPROCAL.get(HOST, ""), "in work"),
    ("kernels/tiles/root.c", [OFF], ROOT_OF.get(HOST, ""), "in work"),
    ("lib/no_option.c", [], "int work(void) { return 1; }\n", "without -ffp-contract=off"),
    ("lib/overruled.c", [OFF, "-ffp-contract=on"], "int work(void) { return 1; }\n",
     "without -ffp-contract=off"),
    ("lib/fast.c", ["-ffast-math", OFF], "int work(void) { return 1; }\n", "with -ffast-math"),
)


def plant(folder, compiler, name, options, text):
    """Compiles one file of a tree of its own; the command as a build would record it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    words = [compiler, "-O2", *options, "-o", str(path) + ".o", "-c", str(path)]
    subprocess.run(words, check=True)
    command = Command({"arguments": words, "directory": str(folder), "file": str(path)})
    command.source = name
    return command


def self_test(compiler):
    wrong = 0
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        (folder / "kernels/tiles").mkdir(parents=True)
        (folder / FMA_HEADER).write_text("/* _mm_fmadd_ss(a, b, c) */\n")
        for name, options, text, expected in CASES:
            if "work" not in text:
                continue  # not known for this machine
            command = plant(folder, compiler, name, options, text)
            findings = [*check_options(command), *check_object(command)]
            right = any(expected in finding for finding in findings) if expected else not findings
            if not right:
                print(f"self-test: {name}: expected {expected}, found {findings}")
                wrong += 1
    print(f"self-test: {len(CASES)} files, {wrong} wrong")
    return wrong


def main():
    build = sys.argv[1]
    if sys.argv[2:] == ["--self-test"]:
        return 1 if self_test(read_commands(build)[0].words[0]) else 0
    findings, n_objects = check_build(build)
    print("\n".join(findings) or f"disassembly: nothing found in {n_objects} objects")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
