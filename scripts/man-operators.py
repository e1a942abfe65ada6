#!/usr/bin/env python3
"""Writes the reference of operators in man/libqplan.3 from what the program says of them.

    scripts/man-operators.py --qplan PROGRAM [--check]

--check compares instead of writing: exit 1 and a diff if the page is not what it would be. The five
granularities of an operator are one entry of the page.
"""

import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "man" / "libqplan.3"
BEGIN = '.\\" Made by scripts/man-operators.py up to the end of operators.\n'
END = '.\\" End of operators.\n'
GRANULARITY = re.compile(r"_(per_(?:tensor|channel|group|token|block))")


class Operator:
    """What `qplan op describe` says of one, section by section."""

    def __init__(self, text):
        head, *sections = text.split("\n\n")
        self.name, self.summary = head.strip().split(": ", 1)
        parts = dict(section.split(":\n", 1) for section in sections)
        parts["kernels"] = next(parts[key] for key in parts if key.startswith("kernels"))
        self.formula = parts["formula"].strip()
        self.fields = dict(self.pairs(parts["fields"]))
        self.tensors = dict(line.strip().split(": ", 1) for line in parts["tensors"].splitlines())
        self.guarantees = {}  # and the dtypes that have it
        for kernel, guarantee in self.couples(parts["kernels"]):
            dtypes = self.guarantees.setdefault(guarantee, [])
            dtype = kernel.split("/")[2]
            if dtype not in dtypes:
                dtypes.append(dtype)
        granularity = GRANULARITY.search(self.name)
        self.granularity = granularity and granularity[1]
        self.family = GRANULARITY.sub("_G", self.name)

    @staticmethod
    def couples(text):
        lines = [line.strip() for line in text.rstrip().splitlines()]
        return list(zip(lines[0::2], lines[1::2]))

    @staticmethod
    def pairs(text):
        """Name of each field, and the two lines about it as one."""
        for first, about in Operator.couples(text) if text.strip() != "none" else ():
            name, what = first.split(": ", 1)
            yield name, f"{what}; {about}"


def operators(qplan):
    def ask(*words):
        return subprocess.run([qplan, "op", *words], capture_output=True, text=True,
                              check=True).stdout

    for op in json.loads(ask("list", "--json"))["operators"]:
        yield Operator(ask("describe", op["name"]))


# ---- mdoc ----------------------------------------------------------------------------------------


def text(words):
    """A line of text, which must not begin as a request does, wrapped as the rest of the page."""
    lines, line = [], ""
    for word in words.replace("\\", "\\e").split():
        if line and len(line) + len(word) > 78:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return "".join(f"\\&{line}\n" if line[0] in ".'" else f"{line}\n" for line in [*lines, line])


def item(name, about):
    return f".It Va {name}\n{text(about)}"


def sentence(words):
    return words[0].upper() + words[1:] + "."


def common(members):
    """The fields that all members of a family have; the others belong to the granularity."""
    return {name: about for name, about in members[0].fields.items()
            if all(op.fields.get(name) == about for op in members)}


def own(op, members):
    return {name: about for name, about in op.fields.items() if name not in common(members)}


def shared(name, members):
    """What the members say of a tensor; where only its shape differs, that is [P]."""
    said = [op.tensors[name] for op in members]
    return said[0] if len(set(said)) == 1 else re.sub(r"\[.*\]", "[P]", said[0])


def entry(family, members):
    first = members[0]
    out = f".It Sy {family}\n{text(sentence(first.summary))}.Bd -ragged -offset indent\n" \
          f"{text(first.formula)}.Ed\n.Pp\n.Bl -tag -width Ds -compact\n"
    out += "".join(item(*field) for field in common(members).items())
    out += "".join(item(name, shared(name, members)) for name in first.tensors)
    for guarantee, dtypes in first.guarantees.items():
        out += f".It {' '.join(dtypes)}\n{text(guarantee)}"
    return out + ".El\n"


def granularities(members):
    """Of each: the shape of scales and the fields, as one operator with all of them says it."""
    for op in members:
        shape = re.search(r"\[.*\]", op.tensors["scale"])[0]
        fields = "".join(item(*field) for field in own(op, members).items())
        yield f".It Sy {op.granularity}\n{text(shape)}" \
              + (f".Bl -tag -width Ds -compact\n{fields}.El\n" if fields else "")


def reference(ops):
    families = {}
    for op in ops:
        families.setdefault(op.family, []).append(op)
    model = families["quantize_G"]
    for members in families.values():
        for op in members if members[0].granularity else ():
            same = next(one for one in model if one.granularity == op.granularity)
            if own(op, members) != own(same, model):
                sys.exit(f"{op.name}: the fields of its granularity are not those of {same.name}")
    out = ".Ss Reference of operators\n"
    out += text("Of each operator: its formula, its fields with their values and defaults, its "
                "tensors, and what is guaranteed for data of which dtypes.")
    out += text("In the names of the quantize family G stands for the granularity: which elements "
                "of data of the shape [X] share a scale.")
    out += text("Scales and zero points have the shape [P], and some granularities have fields:")
    out += ".Bl -tag -width Ds\n" + "".join(granularities(model)) + ".El\n.Pp\nThe operators:\n"
    return out + ".Bl -tag -width Ds\n" + "".join(entry(*family) for family in families.items()) \
        + ".El\n"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    made = before + BEGIN + reference(operators(args.qplan)) + END + rest.split(END)[1]
    if not args.check:
        PAGE.write_text(made)
        return 0
    sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), made.splitlines(True),
                                               str(PAGE.name), "scripts/man-operators.py"))
    return 1 if made != page else 0


if __name__ == "__main__":
    sys.exit(main())
