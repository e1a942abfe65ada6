#!/usr/bin/env python3
"""Checks what the compiler cannot: which layer includes which, and what no file may contain.

    layering.py               check the tree; print every finding; exit 1 if there is one
    layering.py --self-test   plant one violation of each rule and see that it is found
"""

import pathlib
import re
import sys
import tempfile

LAYERS = ("lib/base", "cli", "lib", "formats", "kernels")  # a path belongs to the first that fits
PUBLIC = "lib/qplan.h"
# Which layers a layer may include besides itself. Everyone may include the public header.
MAY_INCLUDE = {
    "cli": set(),
    "lib": {"lib/base", "formats", "kernels"},
    "formats": {"lib/base"},
    "kernels": {"lib/base"},
    "lib/base": set(),
}
SOURCE_DIRS = ("cli", "lib", "formats", "kernels")
TEXT_DIRS = SOURCE_DIRS + ("bench", "cmake", "man", "scripts", "tests", ".ci")
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
    # lib/params_bound.c calls the C library's, once a set: one rounding on every machine.
    ("a fused multiply-add rounds once: only in the header that says why that is exact",
     r"\b(_mm\w*_fn?m(add|sub)\w*|_mm\w*_fm(addsub|subadd)\w*|vfm[as]q?_\w+|fma[fl]?|"
     r"__builtin_(\w*_)?v?fn?m(a|add|sub)\w*)\s*\(", SOURCE_DIRS,
     ("kernels/cpu/fma.h", "lib/params_bound.c")),
    ("an approximation: divide, or take the root",
     r"\b(_mm\w*_(mask\w*_)?r(cp|sqrt)\w*|vr(ecp|sqrt)[es]\w*|__builtin_\w*r(cp|sqrt)\w*)\s*\(",
     SOURCE_DIRS, ()),
)

# Matched in every text file. The class in each pattern keeps it from matching itself.
TEXTS = (
    ("unfinished work", r"\b(TOD[O]|FIXM[E]|XX[X])\b"),
    ("a path of one machine", r"(?<![\w.$}/-])/(hom[e]|roo[t]|wor[k]|User[s])/\w"),
)


def strip(code):
    """Blanks comments, strings and character constants, and keeps the line structure."""
    token = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(token, lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.S)


def layer_of(path):
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def resolve(root, file, name):
    """The tree's file that a quoted include means, or None."""
    for base in (file.parent, root, root / "lib"):
        target = (base / name).resolve()
        if target.is_file() and root in target.parents:
            return target.relative_to(root).as_posix()
    return None


def check_includes(root, file, rel, text):
    layer = layer_of(rel)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        bracket, name = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        target = resolve(root, file, name)
        if target is None:
            if bracket == '"':
                yield f"{rel}:{line}: includes \"{name}\", which is not in the tree"
        elif target != PUBLIC:
            other = layer_of(target)
            if other != layer and other not in MAY_INCLUDE[layer]:
                yield f"{rel}:{line}: {layer} must not include {target}"


def check_calls(rel, text):
    code = strip(text)
    for what, pattern, folders, excepted in CALLS:
        if not rel.startswith(tuple(f"{folder}/" for folder in folders)) or rel in excepted:
            continue
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{rel}:{line}: {match.group()}...): {what}"


def check_text(rel, text):
    for what, pattern in TEXTS:
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{rel}:{line}: {match.group()}: {what}"


def check_tree(root):
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
        if layer_of(rel):
            yield from check_includes(root, file, rel, text)
            n_lines = text.count("\n")
            if n_lines > MAX_LINES and rel != PUBLIC:  # one header, however much it declares
                yield f"{rel}: {n_lines} lines, at most {MAX_LINES}"


# One violation a line: file, content, and a part of the finding it must give.
BAD = (
    ("cli/a.c", '#include "base/error.h"', "cli must not include lib/base/error.h"),
    ("cli/b.c", '#include "../kernels/kernel.h"', "cli must not include kernels/kernel.h"),
    ("cli/c.c", "#include <base/error.h>", "cli must not include lib/base/error.h"),
    ("lib/a.c", '#include "../cli/cli.h"', "lib must not include cli/cli.h"),
    ("lib/base/a.c", '  #  include "lib/glob.h"', "lib/base must not include lib/glob.h"),
    ("lib/base/b.c", '#include "formats/format.h"', "lib/base must not include formats/format.h"),
    ("formats/a.c", '#include "kernels/kernel.h"', "formats must not include kernels/kernel.h"),
    ("formats/b.c", '#include "glob.h"', "formats must not include lib/glob.h"),
    ("kernels/a.c", '#include "formats/format.h"', "kernels must not include formats/format.h"),
    ("kernels/b.c", '#include "gone.h"', "not in the tree"),
    ("lib/c.c", "p = mmap(0);", "mmap(...)"),
    ("lib/d.c", "exit(1);", "ends the process"),
    ("formats/d.c", 'printf("x");', "never prints"),
    ("kernels/d.c", 'fprintf(stderr, "x");', "never prints"),
    ("cli/d.c", "strtod(s, 0);", "locale"),
    ("kernels/e.c", "y = _mm256_fmadd_ps(a, b, c);", "rounds once"),
    ("kernels/f.c", "y = _mm512_mask_fnmsub_ps (a, m, b, c);", "rounds once"),
    ("kernels/cpu/fma.c", "y = __builtin_fmaf(a, b, c);", "rounds once"),
    ("lib/f.c", "y = fma(a, b, c);", "rounds once"),
    ("kernels/cpu/fma.h", "y = _mm256_rcp_ps(a);", "approximation"),
    ("kernels/g.c", "y = _mm512_maskz_rsqrt14_ps(m, a);", "approximation"),
    ("lib/e.c", "\n" * MAX_LINES, "601 lines"),
    ("scripts/e", "# TO" + "DO later", "unfinished"),
    ("tests/f.sh", "cd /ho" + "me/someone", "path of one machine"),
)
# Allowed things that look like the above.
GOOD = (
    ("cli/good.c", '#include "cli.h"\n#include "qplan.h"\n#include <stdio.h>\nprintf("x");'),
    ("lib/good.c", '#include "base/error.h"\n#include "formats/format.h"\n#include "glob.h"\n'
     'snprintf(s, n, "exit(1)"); qp_printf(1); /* printf( mmap( */ // abort('),
    ("lib/base/text.c", '#include "qplan.h"\n#include "error.h"\nstrtod(s, 0);'),
    ("kernels/cpu/fma.h", "y = _mm256_fmadd_ps(a, b, c) + fmaf(a, b, c);"),
    ("kernels/good.c", "/* _mm256_fmadd_ps( */ y = _mm256_maddubs_epi16(a, b) + format(x);"),
    ("formats/good.c", '#include "lib/base/error.h"\n#include "format.h"\n#include "qplan.h"'),
)
HEADERS = ("lib/qplan.h", "lib/glob.h", "lib/base/error.h", "cli/cli.h", "formats/format.h",
           "kernels/kernel.h")


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
