"""Takes the examples out of the documents: the READMEs and the manual pages.

An example is a block of commands and what they print:

    $ qplan quantize model.safetensors
    > a line that continues the command
    a line of output, stdout and stderr as a user sees them
    ...
    [exit 1]

"..." alone on a line stands for any run of lines; no [exit N] means exit 0. A program in a manual
page that names itself in its first line ("/* list.c - ...") is a file that later commands use.
"""

import re

FILE_NAME = re.compile(r"/\* (\w+\.c) - ")
EXIT = re.compile(r"\[exit (\d+)\]")
SUMMARY = re.compile(r", cpu \w+, \d+\.\d s$", re.M)  # these depend on the machine
KERNEL = re.compile(r"/cpu/\w+$", re.M)


class Step:
    """One command and what is expected of it."""

    def __init__(self, line, command):
        self.line = line  # in its document
        self.command = command
        self.output = []
        self.exit = 0


class Block:
    """Lines of a document: a file to be made, or steps."""

    def __init__(self, line, lines):
        self.line = line
        self.text = "\n".join(lines) + "\n"
        name = FILE_NAME.match(self.text)
        self.file = name and name[1]
        self.steps = [] if self.file else list(read_steps(line, lines))


def read_steps(first, lines):
    step = None
    for number, line in enumerate(lines, first):
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(number, line[2:])
        elif step is None:
            return  # not an example
        elif line.startswith("> ") and not step.output:
            step.command += "\n" + line[2:]
        elif EXIT.fullmatch(line):
            step.exit = int(EXIT.fullmatch(line)[1])
        else:
            step.output.append(line)
    if step:
        yield step


def fences(text):
    """Language, number of the first line, and lines of every fenced block."""
    language, lines = None, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, lines, first = line[3:], [], number + 1
        else:
            yield language, first, lines
            language = None


def readme_blocks(text):
    """The fenced blocks of commands."""
    return (Block(first, lines) for language, first, lines in fences(text)
            if language == "console")


def mdoc_text(line):
    """A line of a literal display as a reader sees it."""
    for escape, text in (("\\&", ""), ("\\(aq", "'"), ("\\-", "-"), ("\\e", "\\")):
        line = line.replace(escape, text)
    return line


def mdoc_blocks(text):
    """The literal displays of the section EXAMPLES."""
    section, lines = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(".Sh "):
            section = line[4:]
        elif line.startswith(".Bd -literal") and section == "EXAMPLES":
            lines, first = [], number + 1
        elif line == ".Ed" and lines is not None:
            yield Block(first, lines)
            lines = None
        elif lines is not None:
            lines.append(mdoc_text(line))


def blocks_of(path):
    text = path.read_text()
    return list(readme_blocks(text) if path.suffix == ".md" else mdoc_blocks(text))


def plain(lines):
    """Lines without what differs between machines and runs."""
    return [KERNEL.sub("/cpu/avx2", SUMMARY.sub(", cpu avx2, 0.0 s", line.rstrip()))
            for line in lines]


def matches(expected, found):
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n"
                      for line in plain(expected))
    return re.fullmatch(pattern, "".join(line + "\n" for line in plain(found))) is not None
