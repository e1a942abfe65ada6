#!/usr/bin/env python3
"""Writes the tables of the manual pages that `qplan help TOPIC` prints.

    scripts/man-topics.py --qplan PROGRAM [--check]

--check compares instead of writing: exit 1 and a diff if a page is not what it would be. A line of
a table begins with two blanks, and its columns are two blanks apart or more; the first line names
them. The first column becomes the tag of an item, the last one its text.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import textwrap

MAN = pathlib.Path(__file__).resolve().parent.parent / "man"
PAGES = {"metrics": "qplan.1", "rules": "qplan-lint.1", "formats": "qplan-formats.7",
         "presets": "qplan-formats.7"}


def table(qplan, topic):
    """The rows of the table of a topic, without its head."""
    page = subprocess.run([qplan, "help", topic], capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in page.splitlines() if line.startswith("  ")]
    return [re.split(" {2,}", line) for line in lines[1:]]


def text(words):
    """Lines of text, none of which begins as a request does."""
    lines = textwrap.wrap(words.replace("\\", "\\e"), 78)
    return "".join(f"\\&{line}\n" if line[0] in ".'" else f"{line}\n" for line in lines)


def items(rows):
    width = max((row[0] for row in rows), key=len)
    out = f".Bl -tag -width {width} -compact\n"
    for name, *facts, about in rows:
        facts = ", ".join(fact for fact in facts if fact != "-")
        out += f".It Cm {name}\n{text(f'{about} ({facts})' if facts else about)}"
    return out + ".El\n"


def made_page(page, qplan, topic):
    begin = f'.\\" Made by scripts/man-topics.py up to the end of {topic}.\n'
    end = f'.\\" End of {topic}.\n'
    before, rest = page.split(begin)
    return before + begin + items(table(qplan, topic)) + end + rest.split(end)[1]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    status = 0
    for topic, name in PAGES.items():
        page = (MAN / name).read_text()
        made = made_page(page, args.qplan, topic)
        if not args.check:
            (MAN / name).write_text(made)
        elif made != page:
            status = 1
            sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), made.splitlines(True),
                                                       name, "scripts/man-topics.py"))
    return status


if __name__ == "__main__":
    sys.exit(main())
