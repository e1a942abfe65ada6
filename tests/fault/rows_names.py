"""D. Names and metadata: any text is a name, and no name is ever a path or a terminal command."""

import itertools

from bench import INPUT, OUTPUT, MiB, Limits
from expect import not_named, num, tensor, words
from st import ckpt, entry, f32, st, stream
from table import accept, case, refuse, report_of

W = ("F32", [2, 2], f32(1, -2, 3, 4))
DATA4 = f32(1, -2, 3, 4)
INF = float("inf")


def named(name):
    """One weight with this name, given as JSON text; it is quantized."""
    return st("{" + entry(name, "F32", [2, 2], 0, 16) + "}", DATA4)


def shown(pattern):
    """inspect --tensors prints this."""
    def check(bench, source, output):
        text = bench.accepted("inspect", "--tensors", INPUT).out.decode("utf-8", "replace")
        bench.check(pattern in text, f"inspect --tensors: {pattern!r} is not in {text[:400]!r}")
    return check


def holds(*names):
    def check(bench, source, output):
        for name in names:
            bench.check(name in output, f"{name!r} is not in the output")
    return check


accept("D1", named(""), shown("''"), holds("", "_scale", "_zero_point"))
accept("D1-kept", ckpt({"": ("I64", [1], None), "w": W}), shown("''"), holds(""))
for name, text in (("only", "\\u0000"), ("inside", "a\\u0000b"), ("end", "w\\u0000")):
    refuse(f"D2-{name}", named(text), words(r"NUL|U\+0000|\\u0000|\\x00|\\0|zero byte"))

LIMIT = 65536


def long_name(n, dtype="I64", dims=(1,)):
    return ckpt({"n" * n: (dtype, dims, None)})


accept("D3-at-limit", long_name(LIMIT))
accept("D3-below", long_name(LIMIT - 1))
refuse("D3-above", long_name(LIMIT + 1), LIMIT, words("n{20}"))
refuse("D3-1MB", long_name(1_000_000), LIMIT, words("n{20}"))
refuse("D3-cut", ckpt({"n" * 1000: ("F32", [1, 2], f32(1, float("nan")))}), words("'n{20,81}(?!n)"),
       inspect="accepted", dry_run="accepted")


def planned_or_refused(bench, *args, names):
    """Either verdict, but the plan gives it: what a dry run accepts works."""
    bench.accepted("inspect", INPUT)
    if bench.run("quantize", "--dry-run", INPUT, *args).exit == 0:
        bench.quantized(*args)
    else:
        bench.refused_twice(*args, names=names)


@case("D3-sidecar")
def long_sidecar(bench):
    """NAME_scale would pass the limit."""
    bench.write(long_name(LIMIT, "F32", (2, 2)))
    planned_or_refused(bench, names=[INPUT, LIMIT])


for name, text in (("dots", "../../etc/x"), ("absolute", "/abs"), ("drive", "C:\\\\x"),
                   ("dot", "."), ("dotdot", ".."), ("option", "--force"), ("slash", "a/b/c")):
    accept(f"D4-{name}", named(text))

# A quote in a name cannot end the name: what follows would read as part of the message.
refuse("D4-quote", st("{" + entry("a': 'b", "F32", [1, 2], 0, 8) + "}", f32(1, INF)),
       not_named("'a': 'b'"), inspect="accepted", dry_run="accepted")

# --- D5: nothing from a file moves the cursor; the bench looks for raw characters in every run ---

ODD = {"ESC": "\\u001b[31mred", "newline": "a\\nqplan: error: b", "CR": "a\\rb", "tab": "a\\tb",
       "backspace": "a\\bb", "DEL": "a\x7fb", "CSI": "a\x9b31mb", "override": "a\u202egnp.b",
       "isolate": "a\u2066b\u2069", "mark": "a\u200eb\u200f\u061c",
       "line-separator": "a\u2028b\u2029"}


def all_prints(bench, source, output):
    bench.accepted("inspect", "--tensors", INPUT)
    bench.accepted("inspect", "--tensors", OUTPUT)
    bench.accepted("inspect", "--json", INPUT)
    bench.accepted("quantize", "--dry-run", INPUT)
    bench.accepted("plan", INPUT)


for name, text in ODD.items():
    accept(f"D5-{name}", named(text), all_prints)
    refuse(f"D5-{name}-error", st("{" + entry(text, "F32", [1, 2], 0, 8) + "}", f32(1, INF)),
           inspect="accepted", dry_run="accepted")
accept("D5-metadata", ckpt({"w": W}, meta={"k\x1b[31m": "v\x1b[0m\u202e"}), all_prints)

NFC, NFD = "\u00e9", "e\u0301"
accept("D6", ckpt({NFC: W, NFD: W}), holds(NFC, NFD, NFC + "_scale", NFD + "_scale"))

# --- D7: a name that qplan would make is taken ---

for suffix in ("scale", "zero_point"):
    refuse(f"D7-{suffix}", ckpt({"a.weight": W, f"a.weight_{suffix}": ("F32", [2], None)}),
           tensor("a.weight"), tensor(f"a.weight_{suffix}"), inspect="accepted")


@case("D7-not-made")
def name_not_made(bench):
    """No zero point is made, but a reader would take the other tensor for one."""
    bench.write(ckpt({"a.weight": W, "a.weight_zero_point": ("F32", [2], None)}))
    planned_or_refused(bench, "--zero-point", "asymmetric",
                       names=[tensor("a.weight"), tensor("a.weight_zero_point")])


# --- D8: canonical escaping ---


def written(text):
    def check(bench, source, output):
        bench.check(text in output.header, f"header: {text!r} is not in {output.header!r}")
    return check


for name, text, canonical in (
        ("quote", "a\\\"b", b'a\\"b'), ("quote-u", "a\\u0022b", b'a\\"b'),
        ("backslash", "a\\\\b", b"a\\\\b"), ("slash", "a\\/b", b"a/b"),
        ("line-separator", "a\\u2028b", "a\u2028b".encode()),
        ("emoji", "\\ud83d\\ude00", "\U0001f600".encode()),
        ("emoji-raw", "\U0001f600", "\U0001f600".encode()), ("letter", "\\u0074", b"t"),
        ("newline", "a\\nb", b"a\\u000ab"), ("ESC", "a\\u001Bb", b"a\\u001bb"),
        ("DEL", "a\\u007fb", b"a\x7fb"), ("latin", "\\u00e9", "\u00e9".encode()),
        ("last-bmp", "\\uffff", "\uffff".encode())):
    accept(f"D8-{name}", named(text), written(b'"' + canonical + b'":{"dtype":"I8"'))


def many_keys(path):
    keys = (f'"k{i}":"v",' for i in range(999_999))
    last = '"k":"v"},' + entry("w", "F32", [2, 2], 0, 16) + "}"
    stream(path, itertools.chain(['{"__metadata__":{'], keys, [last]), 16)


@case("D9", limits=Limits(seconds=2, rss=400 * MiB), cost=5)
def million_keys(bench):
    bench.write(many_keys)
    bench.accepted("inspect", INPUT)
    bench.accepted("quantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])
    bench.accepted("verify", OUTPUT, INPUT)


# --- D10: the header of the output has a limit too ---


def value_of(n):
    """An empty checkpoint with a metadata value of n bytes."""
    def write(path):
        blob = "v" * 100_000
        parts = [blob] * (n // len(blob)) + ["v" * (n % len(blob))]
        stream(path, ['{"__metadata__":{"k":"', *parts, '"}}'])
    return write


def length_for(bench, target):
    """The value that makes the header of the output exactly target bytes long."""
    bench.write(value_of(8))
    _, output = bench.quantized(output="probe.safetensors")
    text = output.header.rstrip(b" ") if output else b""
    return target - len(text) + 8


@case("D10-at-limit", limits=Limits(seconds=1), cost=4)
def header_at_limit(bench):
    bench.write(value_of(length_for(bench, 100_000_000)))
    bench.accepted("quantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])


@case("D10-above", limits=Limits(seconds=1), cost=4)
def header_above_limit(bench):
    bench.write(value_of(length_for(bench, 100_000_000) + 1))
    bench.accepted("inspect", INPUT)
    # the text, padded or not, with or without the length field
    bench.refused_twice(names=[100_000_000, num(*(100_000_000 + k for k in (1, 8, 9, 16)))])


def header_warning(name, extra, expected):
    @case(f"D10-warning-{name}", limits=Limits(seconds=1), cost=2)
    def run(bench):
        bench.write(value_of(length_for(bench, 25_000_000) + extra))
        result = bench.accepted("quantize", "--json", "-o", OUTPUT, INPUT, makes=[OUTPUT])
        report = report_of(bench, result)
        subjects = [w["subject"] for w in report["warnings"]
                    if w["code"] == "header-over-25MB"] if report else None
        bench.check(bool(subjects) == expected,
                    f"header-over-25MB: expected {expected}, found {bool(subjects)}")
        # one of the two files that the run is about, as they were given
        bench.check(not subjects or subjects[0] in (INPUT, OUTPUT),
                    f"header-over-25MB: subject: expected {OUTPUT}, found {subjects}")


header_warning("at", 0, False)
header_warning("above", 8, True)

# --- D11: metadata of the source ---


def metadata(expected):
    """These keys with these values; None: not there."""
    def check(bench, source, output):
        for key, value in expected.items():
            found = output.meta.get(key)
            bench.check(found == value, f"metadata {key!r}: expected {value!r}, found {found!r}")
    return check


OWN = {"format": "pt", "qplan.layout": "1", "qplan.numerics": "1"}
FOREIGN = {"zeta": "1", "alpha": "\u00e9\n\"", "": "empty", "qplanner": "y"}
accept("D11-kept", ckpt({"w": W}, meta={**FOREIGN, "format": "np"}), metadata({**FOREIGN, **OWN}))
accept("D11-dropped", ckpt({"w": W}, meta={"qplan.note": "x", "qplan.numerics": "99"}),
       metadata({"qplan.note": None, **OWN}))
accept("D11-none", ckpt({"w": W}), metadata(OWN))
