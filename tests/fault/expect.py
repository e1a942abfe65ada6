"""What an error message must name.

A row gives a list of expectations: a text (literally there), a compiled pattern, an integer (as a
whole number, with or without thousands separators), or one of the functions below.  They demand the
parts that the fault table lists and leave the wording free.
"""

import re
from dataclasses import dataclass

INTEGER = re.compile(r"(?<![\w.])\d+(?![\w])")
POSITION = re.compile(r"\bbytes? (\d+)")


@dataclass(frozen=True)
class Message:
    error: str      # the one line that begins with "qplan: error: "
    text: str       # all of stderr
    spans: tuple    # the marked ranges of the input


@dataclass(frozen=True)
class Expectation:
    what: str
    holds: callable


def words(pattern):
    """A pattern in any case."""
    return re.compile(pattern, re.IGNORECASE)


def integers(line):
    plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", line)
    return {int(n) for text in (line, plain) for n in INTEGER.findall(text)}


def wanted(part):
    """Any form of expectation as an Expectation."""
    if isinstance(part, Expectation):
        return part
    if isinstance(part, int):
        return Expectation(f"the number {part}", lambda m: part in integers(m.error))
    if isinstance(part, str):
        return Expectation(repr(part), lambda m: part in m.error)
    return Expectation(f"/{part.pattern}/", lambda m: bool(part.search(m.error)))


def one_of(*parts):
    parts = [wanted(p) for p in parts]
    return Expectation(" or ".join(p.what for p in parts), lambda m: any(p.holds(m) for p in parts))


def num(*choices):
    """Any one of these numbers: a size may be counted from the file or from the data section."""
    choices = sorted(set(choices))
    return Expectation(f"one of the numbers {choices}",
                       lambda m: bool(integers(m.error).intersection(choices)))


def not_named(part):
    part = wanted(part)
    return Expectation(f"not {part.what}", lambda m: not part.holds(m))


def hint(pattern):
    """Anywhere on stderr: the error line or the hint below it."""
    pattern = words(pattern)
    return Expectation(f"/{pattern.pattern}/ in error or hint",
                       lambda m: bool(pattern.search(m.text)))


def no_hint(pattern):
    """Nowhere on stderr: a hint that does not belong to this fault."""
    pattern = words(pattern)
    return Expectation(f"no /{pattern.pattern}/", lambda m: not pattern.search(m.text))


def tensor(name):
    """A name from the file, in single quotes."""
    return f"'{name}'"


def shape(*dims):
    """A shape in any of the usual spellings: [2,3], [2, 3], 2x3, (2, 3)."""
    return re.compile(r"(?<!\d)" + r"(?:, ?| ?x ?)".join(map(str, dims)) + r"(?!\d)")


def inside(n, span):
    return span[0] <= n <= span[1]      # one past the end is where a reader that ran out stands


def at(i=0):
    """`byte N` with N in the marked range i."""
    return Expectation(f"a byte position in marked range {i}",
                       lambda m: any(inside(int(n), m.spans[i]) for n in POSITION.findall(m.error)))


def position(i):
    """Any number in the marked range i (where a message has two positions)."""
    return Expectation(f"a number in marked range {i}",
                       lambda m: any(inside(n, m.spans[i]) for n in integers(m.error)))


def between(low, high):
    return Expectation(f"a byte position in {low}..{high}",
                       lambda m: any(low <= int(n) <= high for n in POSITION.findall(m.error)))


OVERFLOW = words(r"overflow|too large|too big|exceed|more than|limit|at most")
DUPLICATE = words(r"duplicate|twice|more than once|repeat|again|already")
