#!/usr/bin/env python3
"""Checks what the compiler cannot: which room includes which, and what no file may contain.

    layering.py               check the tree; print every finding; exit 1 if there is one
    layering.py --self-test   plant one violation of each rule and see that it is found
"""

import pathlib
import re
import sys
import tempfile

PUBLIC = "lib/qplan.h"
# The rooms of the tree, and which of them each may include besides itself. Everyone may include the
# public header. A path belongs to the longest room that it begins with.
BELOW = {"lib/base", "lib/model"}
MAY_INCLUDE = {
    "cli": set(),
    "lib/base": set(),
    "lib/model": {"lib/base"},
    "kernels": BELOW,
    "formats": BELOW,
    "lib/params": BELOW | {"kernels"},
    "lib/calibrate": BELOW | {"kernels"},
    "lib/device": BELOW | {"kernels", "lib/store"},
    "lib/store": BELOW | {"kernels", "formats", "lib/calibrate"},
    "lib/importance": BELOW | {"kernels", "formats", "lib/store"},
    "lib/ops": BELOW | {"kernels", "formats", "lib/device", "lib/store", "lib/params"},
    "lib/plan": BELOW | {"kernels", "formats", "lib/store", "lib/calibrate", "lib/importance"},
    "lib/lint": BELOW | {"kernels", "formats", "lib/store", "lib/plan", "lib/run"},
    "lib/run": BELOW | {"kernels", "formats", "lib/store", "lib/device", "lib/calibrate",
                        "lib/importance", "lib/plan"},
    "lib/verify": BELOW | {"kernels", "formats", "lib/store", "lib/device", "lib/calibrate",
                           "lib/importance", "lib/plan", "lib/run"},
    "lib/report": BELOW | {"kernels", "formats", "lib/store", "lib/device", "lib/calibrate",
                           "lib/plan", "lib/verify"},
    "lib/commands": BELOW | {"kernels", "formats", "lib/store", "lib/device", "lib/calibrate",
                             "lib/importance", "lib/plan", "lib/run", "lib/verify", "lib/report"},
}
MADE = {"format_rows.h"}  # headers that the build makes
SOURCE_DIRS = ("cli", "lib", "formats", "kernels")
TEXT_DIRS = SOURCE_DIRS + ("bench", "cmake", "examples", "man", "scripts", "tests", ".ci")
MAX_LINES = 600

# (what, pattern, folders, excepted files); matched in code, not in comments or strings.
CALLS = (
    ("mmap: an I/O error would be a signal", r"\bmmap\w*\s*\(", SOURCE_DIRS + ("bench",), ()),
    ("the library never ends the process", r"\b(_?exit|_Exit|quick_exit|abort)\s*\(",
     ("lib", "formats", "kernels"), ()),
    ("the library never prints", r"\b(v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror)\s*\(",
     ("lib", "formats", "kernels"), ()),
    ("depends on the locale; numbers are read in lib/base/text.c",
     r"\b(strto(f|d|ld)|atof)\s*\(", SOURCE_DIRS, ("lib/base/text.c",)),
    # lib/params/bound.c calls the C library's, once a set: one rounding on every machine.
    ("a fused multiply-add rounds once: only in the header that says why that is exact",
     r"\b(_mm\w*_fn?m(add|sub)\w*|_mm\w*_fm(addsub|subadd)\w*|vfm[as]q?_\w+|fma[fl]?|"
     r"__builtin_(\w*_)?v?fn?m(a|add|sub)\w*)\s*\(", SOURCE_DIRS,
     ("kernels/tiles/fma.h", "lib/params/bound.c")),
    ("an approximation: divide, or take the root",
     r"\b(_mm\w*_(mask\w*_)?r(cp|sqrt)\w*|vr(ecp|sqrt)[es]\w*|__builtin_\w*r(cp|sqrt)\w*)\s*\(",
     SOURCE_DIRS, ()),
)

# Matched in the string literals of these folders.
PROGRAM_WORDS = (
    "a flag or a command of the program: the library gives an advice, cli/messages.c words it",
    r"--[A-Za-z]|\bqplan [a-z]", ("lib", "formats", "kernels"))

# Matched in every text file. The class in each pattern keeps it from matching itself.
TEXTS = (
    ("unfinished work", r"\b(TOD[O]|FIXM[E]|XX[X])\b"),
    ("a path of one machine", r"(?<![\w.$}/-])/(hom[e]|roo[t]|wor[k]|User[s])/\w"),
)


# A comment, a string or a character constant.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip(code):
    """Blanks comments, strings and character constants, and keeps the line structure."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), code)


def room_of(path):
    rooms = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def resolve(root, file, name):
    """The tree's file that a quoted include means, or None."""
    for base in (file.parent, root, root / "lib"):
        target = (base / name).resolve()
        if target.is_file() and root in target.parents:
            return target.relative_to(root).as_posix()
    return None


def check_includes(root, file, rel, text):
    room = room_of(rel)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        bracket, name = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        target = resolve(root, file, name)
        if target is None:
            if bracket == '"' and name not in MADE:
                yield f"{rel}:{line}: includes \"{name}\", which is not in the tree"
        elif target != PUBLIC:
            other = room_of(target)
            if other != room and other not in MAY_INCLUDE[room]:
                yield f"{rel}:{line}: {room} must not include {target}"


def check_calls(rel, text):
    code = strip(text)
    for what, pattern, folders, excepted in CALLS:
        if not rel.startswith(tuple(f"{folder}/" for folder in folders)) or rel in excepted:
            continue
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{rel}:{line}: {match.group()}...): {what}"


def check_strings(rel, text):
    what, pattern, folders = PROGRAM_WORDS
    if not rel.startswith(tuple(f"{folder}/" for folder in folders)):
        return
    for match in TOKEN.finditer(text):
        if match.group()[0] == '"' and re.search(pattern, match.group()):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{rel}:{line}: {match.group()}: {what}"


def check_text(rel, text):
    for what, pattern in TEXTS:
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{rel}:{line}: {match.group()}: {what}"


def check_place(rel, names):
    """A source file lies in a room, and no other has its name: a name alone then says which it is."""
    room = room_of(rel)
    if rel == PUBLIC or rel.split("/")[0] not in SOURCE_DIRS:
        return
    if re.fullmatch(r"lib/[^/]+", rel):
        yield f"{rel}: lib/ has rooms, and no file but the public header beside them"
    elif room is None:
        yield f"{rel}: in no room of the tree"
    other = names.setdefault(pathlib.Path(rel).name, rel)
    if other != rel:
        yield f"{rel}: is also {other}"


def check_tree(root):
    names = {}
    root = root.resolve()
    files = [f for f in root.iterdir() if f.is_file() and f.name != ".git"]
    for folder in TEXT_DIRS:
        files += (root / folder).rglob("*")
    for file in sorted(files):
        rel = file.relative_to(root).as_posix()
        if not file.is_file() or "/corpus/" in rel or "__pycache__" in rel:
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data
        yield from check_text(rel, text)
        if file.suffix not in (".c", ".h"):
            continue
        yield from check_calls(rel, text)
        yield from check_strings(rel, text)
        yield from check_place(rel, names)
        if room_of(rel):
            yield from check_includes(root, file, rel, text)
            n_lines = text.count("\n")
            if n_lines > MAX_LINES and rel != PUBLIC:  # one header, however much it declares
                yield f"{rel}: {n_lines} lines, at most {MAX_LINES}"


# One violation a line: file, content, and a part of the finding it must give.
BAD = (
    ("cli/a.c", '#include "base/error.h"', "cli must not include lib/base/error.h"),
    ("cli/b.c", '#include "../kernels/kernel.h"', "cli must not include kernels/kernel.h"),
    ("cli/c.c", "#include <base/error.h>", "cli must not include lib/base/error.h"),
    ("lib/run/a.c", '#include "cli/cli.h"', "lib/run must not include cli/cli.h"),
    ("lib/base/a.c", '  #  include "lib/plan/plan.h"', "lib/base must not include lib/plan/plan.h"),
    ("lib/base/b.c", '#include "formats/format.h"', "lib/base must not include formats/format.h"),
    ("lib/device/a.c", '#include "lib/plan/plan.h"', "lib/device must not include lib/plan/plan.h"),
    ("lib/ops/a.c", '#include "lib/plan/plan.h"', "lib/ops must not include lib/plan/plan.h"),
    ("lib/ops/b.c", '#include "lib/report/report.h"', "lib/ops must not include lib/report/"),
    ("lib/report/a.c", '#include "lib/run/units.h"', "lib/report must not include lib/run/units.h"),
    ("lib/model/a.c", '#include "kernels/kernel.h"', "lib/model must not include kernels/kernel.h"),
    ("formats/a.c", '#include "kernels/kernel.h"', "formats must not include kernels/kernel.h"),
    ("formats/b.c", '#include "lib/plan/plan.h"', "formats must not include lib/plan/plan.h"),
    ("kernels/a.c", '#include "formats/format.h"', "kernels must not include formats/format.h"),
    ("kernels/b.c", '#include "gone.h"', "not in the tree"),
    ("lib/a.c", "int x;", "lib/ has rooms"),
    ("lib/other/a.c", "int x;", "no room of the tree"),
    ("kernels/tiles/format.h", "int x;", "is also formats/format.h"),
    ("lib/run/c.c", "p = mmap(0);", "mmap(...)"),
    ("lib/run/d.c", "exit(1);", "ends the process"),
    ("formats/d.c", 'printf("x");', "never prints"),
    ("kernels/d.c", 'fprintf(stderr, "x");', "never prints"),
    ("cli/d.c", "strtod(s, 0);", "locale"),
    ("kernels/e.c", "y = _mm256_fmadd_ps(a, b, c);", "rounds once"),
    ("kernels/f.c", "y = _mm512_mask_fnmsub_ps (a, m, b, c);", "rounds once"),
    ("kernels/tiles/fused.c", "y = __builtin_fmaf(a, b, c);", "rounds once"),
    ("lib/run/f.c", "y = fma(a, b, c);", "rounds once"),
    ("kernels/tiles/fma.h", "y = _mm256_rcp_ps(a);", "approximation"),
    ("kernels/g.c", "y = _mm512_maskz_rsqrt14_ps(m, a);", "approximation"),
    ("lib/run/g.c", 'qp_hint(err, "say --force");', "flag or a command"),
    ("formats/e.c", 'x = "a" /* b */ "--F";', "flag or a command"),
    ("kernels/h.c", 's = "\\"\\\\";\nt = "see \'qplan op list\'";', "flag or a command"),
    ("lib/run/e.c", "\n" * MAX_LINES, "601 lines"),
    ("scripts/e", "# TO" + "DO later", "unfinished"),
    ("tests/f.sh", "cd /ho" + "me/someone", "path of one machine"),
)
# Allowed things that look like the above.
GOOD = (
    ("cli/good.c", '#include "cli.h"\n#include "qplan.h"\n#include <stdio.h>\nprintf("x");'),
    ("lib/run/fine.c", '#include "lib/base/error.h"\n#include "formats/format.h"\n#include "units.h"\n'
     'snprintf(s, n, "exit(1)"); qp_printf(1); /* printf( mmap( */ // abort('),
    ("lib/base/text.c", '#include "qplan.h"\n#include "error.h"\nstrtod(s, 0);'),
    ("kernels/tiles/fma.h", "y = _mm256_fmadd_ps(a, b, c) + fmaf(a, b, c);"),
    ("cli/words.c", 's = "--force, or qplan help";'),
    ("lib/run/said.c", 's = "a -- b, qplan: --"; /* --force "--x" qplan op */ // "--force"\n'
     'c = \'"\'; n--;'),
    ("kernels/well.c", "/* _mm256_fmadd_ps( */ y = _mm256_maddubs_epi16(a, b) + format(x);"),
    ("formats/right.c", '#include "lib/base/error.h"\n#include "format.h"\n#include "qplan.h"'),
)
HEADERS = ("lib/qplan.h", "lib/plan/plan.h", "lib/report/report.h", "lib/run/units.h",
           "lib/base/error.h", "cli/cli.h", "formats/format.h", "kernels/kernel.h")


def self_test():
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def write(name, content):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

        for name in HEADERS:
            write(name, "\n")
        for name, content in GOOD:
            write(name, content + "\n")
        for finding in check_tree(root):
            print(f"self-test: found where nothing is wrong: {finding}")
            wrong += 1
        for name, content, expected in BAD:
            write(name, content + "\n")
            findings = list(check_tree(root))
            if len(findings) != 1 or not findings[0].startswith(name) \
                    or expected not in findings[0]:
                print(f"self-test: {name}: expected one finding '{expected}', found {findings}")
                wrong += 1
            (root / name).unlink()
    print(f"self-test: {len(BAD)} violations planted, {wrong} wrong")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    findings = list(check_tree(pathlib.Path(__file__).parents[2]))
    print("\n".join(findings) or "layering: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
