"""B. Header JSON: only what JSON is, only what the format says, and all of it exactly once."""

import itertools

from bench import INPUT, OUTPUT, MiB, Limits
from expect import DUPLICATE, OVERFLOW, at, between, not_named, position, tensor, words
from st import entry, f32, st, stream
from table import accept, all_kept, case, refuse, report_of

T = entry("t", "F32", [2], 0, 8)
U = entry("u", "F32", [2], 8, 16)
W = entry("w", "F32", [2, 2], 0, 16)
DATA = f32(1, 2)
DATA4 = f32(1, -2, 3, 4)
META = '"__metadata__":{%s}'


def good(text):
    """A header around the tensor w."""
    return st(text % W, DATA4)


def bad(text):
    """A header with data of 8 bytes, the tensor t."""
    return st(text, DATA)


accept("B1-spaces", good("   {%s}"))
accept("B1-newline", good("\n{%s}"))
accept("B1-tab", good("\t{%s}"))
accept("B1-inside", good(' \r\n\t{ \n%s\t}'))
refuse("B2", bad(b"\xe2\x9f\xa6\xef\xbb\xbf\xe2\x9f\xa7{" + T.encode() + b"}"),
       words("BOM|byte order mark"), 8)
for name, tail in (("spaces", "   "), ("CR", "\r"), ("LF", "\n"), ("tab", "\t")):
    accept(f"B3-{name}", good("{%s}" + tail))
refuse("B4-one", bad("{" + T + "}⟦\0⟧"), at())
refuse("B4-many", bad("{" + T + "}  ⟦\0⟧\0\0\0\0"), at())
refuse("B5-garbage", bad("{" + T + "}⟦xyz⟧"), at())
refuse("B5-second-object", bad("{" + T + "} ⟦{}⟧"), at())
refuse("B5-second-same", bad("{" + T + "}⟦{" + T + "}⟧"), at())
refuse("B5-bracket", bad("{" + T + "}⟦}⟧"), at())
for name, root in (("array", "[]"), ("null", "null"), ("number", "1"), ("string", '"x"'),
                   ("true", "true"), ("array-of-object", "[{}]")):
    refuse(f"B6-{name}", st(root), words("object"))


def noted(bench, source, output):
    """Nothing to do, and the report says so."""
    report = report_of(bench, bench.accepted("quantize", "--json", "--force", "-o", OUTPUT, INPUT,
                                             makes=[OUTPUT]))
    codes = [w["code"] for w in report["warnings"]] if report else []
    bench.check(codes == ["nothing-quantized"],
                f"warnings: expected nothing-quantized, found {codes}")


accept("B7", st("{}"), all_kept, noted)
accept("B7-padded", st("{}      "), all_kept)
refuse("B8", st("{}", bytes(5)), 5)

# --- B9 to B13: duplicates, after unescaping ---


MEMBER = T[3:]      # the tensor t without its name


def dup(first, second, other=MEMBER.replace("F32", "I32"), middle="", data=DATA):
    """Two names with a tensor each, and what stands between them."""
    return st("{⟦" + first + "⟧" + MEMBER + "," + middle + "⟦" + second + "⟧" + other + "}", data)


BOTH = (DUPLICATE, position(0), position(1))
refuse("B9", dup('"t"', '"t"'), tensor("t"), *BOTH)
refuse("B10", dup('"t"', '"t"', other=U[3:], data=f32(1, 2, 3, 4)), tensor("t"), *BOTH,
       not_named(words("hole|gap|overlap")))
refuse("B10-not-adjacent", dup('"t"', '"t"', other=MEMBER.replace("0,8", "16,24"), middle=U + ",",
                               data=f32(1, 2, 3, 4, 5, 6)), tensor("t"), *BOTH)
refuse("B11-escape", dup('"t"', '"\\u0074"'), tensor("t"), *BOTH)
refuse("B11-escape-first", dup('"\\u0074"', '"t"'), tensor("t"), *BOTH)
refuse("B11-surrogates", dup('"\U0001f600"', '"\\ud83d\\ude00"'),
       words("\U0001f600|1f600|d83d|f09f9880|f0.*9f.*98.*80"), *BOTH)
refuse("B11-slash", dup('"a/b"', '"a\\/b"'), tensor("a/b"), *BOTH)
for field in ("dtype", "shape", "data_offsets"):
    member = {"dtype": '"dtype":"F32"', "shape": '"shape":[2]',
              "data_offsets": '"data_offsets":[0,8]'}[field]
    refuse(f"B12-{field}", bad("{" + T[:-1] + "," + member + "}}"), tensor("t"), field, DUPLICATE)
refuse("B12-escaped", bad("{" + T[:-1] + ',"sh\\u0061pe":[2]}}'), tensor("t"), "shape", DUPLICATE)
refuse("B13-metadata", bad("{" + META % "" + "," + T + "," + META % "" + "}"), "__metadata__",
       DUPLICATE)
refuse("B13-metadata-escaped", bad("{" + META % "" + "," + T + ',"__met\\u0061data__":{}}'),
       "__metadata__", DUPLICATE)
refuse("B13-metadata-null", bad('{"__metadata__":null,' + T + ',"__metadata__":null}'),
       "__metadata__", DUPLICATE)
refuse("B13-key", bad("{" + META % '"key":"1","key":"2"' + "," + T + "}"), "'key'", DUPLICATE)
refuse("B13-key-escaped", bad("{" + META % '"key":"1","k\\u0065y":"1"' + "," + T + "}"), "'key'",
       DUPLICATE)

# --- B14 to B18: text that is not JSON ---

UTF8 = {"ff": b"\xff", "overlong": b"\xc0\x80", "overlong-3": b"\xe0\x80\x80",
        "surrogate": b"\xed\xa0\x80", "f5": b"\xf5\x80\x80\x80",
        "above-10ffff": b"\xf4\x90\x80\x80", "continuation": b"\x80",
        "cut": b"\xe2\x82"}
OPEN, CLOSE = "⟦".encode(), "⟧".encode()


def raw_name(raw):
    return bad(b'{"a' + OPEN + raw + CLOSE + b'"' + T[3:].encode() + b"}")


for name, raw in UTF8.items():
    refuse(f"B14-{name}", raw_name(raw), at())
refuse("B14-cut-at-end", st(b'{"a' + OPEN + b"\xe2\x82" + CLOSE), at())
refuse("B14-metadata", bad(b'{"__metadata__":{"k":"' + OPEN + b"\xff" + CLOSE + b'"},' +
                           T.encode() + b"}"), at())
refuse("B14-outside", bad(b"{" + OPEN + b"\xff" + CLOSE + T.encode() + b"}"), at())
for name, text in (("high", "\\ud800"), ("low", "\\udc00"), ("reversed", "\\udc00\\ud800"),
                   ("high-high", "\\ud800\\ud800"), ("high-letter", "\\ud800x"),
                   ("high-escape", "\\ud800\\n"), ("high-plain", "\\ud800\\u0041")):
    refuse(f"B15-{name}", bad('{"a⟦' + text + '⟧"' + T[3:] + "}"), at())
for name, char in (("LF", "\n"), ("tab", "\t"), ("NUL", "\0"), ("1f", "\x1f")):
    refuse(f"B16-{name}", bad('{"a⟦' + char + '⟧"' + T[3:] + "}"), at())
refuse("B16-metadata", bad("{" + META % '"k":"a⟦\x1b⟧[31m"' + "," + T + "}"), at())
for name, text in (("x41", "\\x41"), ("u12G4", "\\u12G4"), ("short", "\\u12"), ("quote", "\\'"),
                   ("zero", "\\0"), ("upper-U", "\\U0041")):
    refuse(f"B17-{name}", bad('{"a⟦' + text + '⟧"' + T[3:] + "}"), at())
refuse("B17-at-end", st('{"a⟦\\⟧'), at())
refuse("B17-u-at-end", st('{"a⟦\\u00⟧'), at())

NOT_JSON = {
    "comment": "{⟦/* c */⟧" + T + "}", "line-comment": "{⟦// c\n⟧" + T + "}",
    "hash-comment": "{⟦# c\n⟧" + T + "}",
    "trailing-comma": "{" + T + "⟦,}⟧",
    "trailing-comma-array": "{" + T.replace("[2]", "[2⟦,]⟧") + "}",
    "leading-comma": "{⟦,⟧" + T + "}", "two-commas": "{" + T + "⟦,,⟧" + U + "}",
    "no-comma": "{" + T + "⟦\"⟧" + U[1:] + "}", "no-colon": '{"t"⟦{⟧' + T[5:] + "}",
    "single-quotes": "{⟦'t'⟧" + T[3:] + "}", "bare-name": "{⟦t⟧" + T[3:] + "}",
    "unclosed": "{" + T + "⟦⟧", "unclosed-tensor": "{" + T[:-1] + "⟦⟧",
    "wrong-close": "{" + T.replace("[2]", "[2⟦}⟧") + "}",
}
for name, text in NOT_JSON.items():
    refuse(f"B18-{name}", bad(text), at(), not_named(words("BOM|byte order mark")))
for text in ("NaN", "Infinity", "-Infinity", "+1", ".5", "0x10", "01", "1.", "1e", "-", "nul",
             "True"):
    refuse(f"B18-{text}", bad("{" + T.replace("[2]", f"[⟦{text}⟧]") + "}"), at())

# --- B19 to B24: much of everything ---

NEST = words("depth|deep|nest")
SMALL_STACK = Limits(stack=256 * 1024)
for depth in (9, 129, 100_000):
    arrays = "[" * depth + "]" * depth
    for name, text in (("arrays", '{"t":⟦' + arrays + "⟧}"),
                       ("objects", '{"t":⟦' + '{"a":' * depth + "1" + "}" * depth + "⟧}"),
                       ("metadata", "{" + META % ('"k":⟦' + arrays + "⟧") + "}"),
                       ("shape", "{" + T.replace("[2]", "⟦" + arrays + "⟧") + "}"),
                       ("open", '{"t":⟦' + "[" * depth + "⟧"), ("root", "⟦" + "[" * depth + "⟧")):
        refuse(f"B19-{name}-{depth}", bad(text), NEST, 8, at(), limits=SMALL_STACK)


def ranked(rank):
    return st("{" + entry("t", "F32", [1] * rank, 0, 4) + "}", f32(1))


refuse("B20-million", ranked(1_000_000), tensor("t"), 64, words("rank|dimension"), cost=1)
refuse("B20-65", ranked(65), tensor("t"), 64, words("rank|dimension"))
accept("B20-64", ranked(64))
accept("B20-63", ranked(63))


def unterminated(text):
    blob = "a" * 100_000
    return lambda path: stream(path, [text] + [blob] * 990 + ["a" * (99_000_000 - 990 * len(blob))])


for name, text in (("value", '{"__metadata__":{"k":"'), ("name", '{"')):
    refuse(f"B21-{name}", unterminated(text), between(8, 8 + len(text) + 99_000_000),
           limits=Limits(seconds=0.5), cost=2)

for name, text in (("short", '{"__metadata__":{"k":"v'), ("escape", '{"a\\n'), ("quote", '{"')):
    refuse(f"B21-{name}", st(text), between(8 + text.rindex('"'), 8 + len(text)))

MILLION = 1_000_000
BIG = Limits(seconds=2, rss=400 * MiB)
BIG_COPY = Limits(seconds=8, rss=784 * MiB)  # a plan, the new index and a report beside the index


def listing(names):
    """Header text for U8 tensors of one byte each."""
    lead = "{"
    for i, name in enumerate(names):
        yield lead + entry(name, "U8", [1], i, i + 1)
        lead = ","
    yield "}"


def big(id, count, names, limits=BIG, copy_limits=BIG_COPY):
    """A large index: read and copied in time. names makes them anew each time."""
    @case(id, limits=limits, cost=9)
    def read(bench):
        bench.write(lambda path: stream(path, listing(names()), count))
        bench.accepted("inspect", INPUT)

    @case(id + "-copied", limits=copy_limits, cost=9)
    def copy(bench):
        bench.write(lambda path: stream(path, listing(names()), count))
        bench.accepted("quantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])


def colliding(pieces):
    """Names with one value of a multiplying string hash: each piece hashes alike."""
    return map("".join, itertools.islice(itertools.product(pieces, repeat=13), MILLION))


big("B22", MILLION, lambda: (f"t{i}" for i in range(MILLION)))
big("B23-hash-33", MILLION, lambda: colliding(("Ez", "FY", "G8")))
big("B23-hash-31", MILLION, lambda: colliding(("Aa", "BB", "C#")))
big("B23-prefix", 88_000, lambda: ("p" * 1024 + f"{i:05}" for i in range(88_000)),
    limits=Limits(seconds=2), copy_limits=Limits(seconds=2))


def one_value(n):
    """A header of n bytes, nearly all of it one metadata value."""
    def write(path):
        lead, blob, tail = '{"__metadata__":{"k":"', "v" * 100_000, '"},' + T + "}"
        rest = n - len(lead) - len(tail)
        parts = [blob] * (rest // len(blob)) + ["v" * (rest % len(blob))]
        stream(path, [lead, *parts, tail], 8)
    return write


accept("B24", one_value(100_000_000), quantize=False, limits=Limits(seconds=1), cost=2)


@case("B24-copied", limits=Limits(seconds=1), cost=5)
def copied_value(bench):
    bench.write(one_value(99_000_000))
    bench.accepted("quantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])
    bench.accepted("verify", "--allow-unquantized", OUTPUT, INPUT)


# --- B25 to B35: JSON, but not a safetensors header ---

for name, value in (("array", '["F32",[2],[0,8]]'), ("string", '"F32"'), ("number", "1"),
                    ("null", "null"), ("true", "true"), ("false", "false")):
    refuse(f"B25-{name}", bad('{"t":⟦' + value + "⟧}"), tensor("t"), words("object"), at())
for name, value in (("object", '{"F32":null}'), ("number", "32"), ("null", "null"),
                    ("array", '["F32"]')):
    refuse(f"B26-{name}", bad("{" + T.replace('"F32"', value) + "}"), tensor("t"), "dtype")
refuse("B27", bad("{" + T[:-1] + ',"strides":[1]}}'), tensor("t"), "strides")
refuse("B27-first", bad("{" + T.replace('{"dtype"', '{"device":"cpu","dtype"') + "}"), tensor("t"),
       "device")
refuse("B27-case", bad("{" + T.replace('"shape"', '"Shape"') + "}"), tensor("t"), words("shape"))
refuse("B28-dtype", bad("{" + T.replace('"dtype":"F32",', "") + "}"), tensor("t"), "dtype")
refuse("B28-shape", bad("{" + T.replace('"shape":[2],', "") + "}"), tensor("t"), "shape")
refuse("B28-data_offsets", bad("{" + T.replace(',"data_offsets":[0,8]', "") + "}"), tensor("t"),
       "data_offsets")
refuse("B28-all", bad('{"t":{}}'), tensor("t"), words("dtype|shape|data_offsets"))


def number_rows(row, variants, *names):
    """Each variant as a dimension and as an offset."""
    for name, text in variants:
        refuse(f"{row}-shape-{name}", bad("{" + T.replace("[2]", f"[⟦{text(2)}⟧]") + "}"),
               tensor("t"), "shape", *names)
        refuse(f"{row}-offset-{name}", bad("{" + T.replace("0,8", f"0,⟦{text(8)}⟧") + "}"),
               tensor("t"), "data_offsets", *names)


number_rows("B29", [("fraction", "{}.0".format), ("exponent", "{}e0".format),
                    ("negative", "-{}".format), ("minus-zero", lambda n: "-0"),
                    ("string", '"{}"'.format), ("true", lambda n: "true"),
                    ("null", lambda n: "null"), ("array", "[{}]".format)], at())
for name, field, old, new in (("offset-begin", "data_offsets", "0,8", "⟦-0⟧,8"),
                              ("shape-not-array", "shape", "[2]", "⟦2⟧"),
                              ("offset-not-array", "data_offsets", "[0,8]", "⟦8⟧")):
    refuse(f"B29-{name}", bad("{" + T.replace(old, new) + "}"), tensor("t"), field, at())
number_rows("B30", [("2^63", lambda n: str(2 ** 63)), ("2^64", lambda n: str(2 ** 64)),
                    ("2^64+n", lambda n: str(2 ** 64 + n)), ("40-digits", lambda n: "9" * 40)],
            OVERFLOW)
for name, offsets in (("none", ""), ("one", "8"), ("three", "0,8,8")):
    refuse(f"B31-{name}", bad("{" + T.replace("0,8", offsets) + "}"), tensor("t"), "data_offsets",
           words(r"\b(2|two)\b"))
accept("B32", st("{" + W.replace("dtype", "d\\u0074ype") + "}", DATA4))
accept("B32-shape", st("{" + W.replace("shape", "\\u0073hape") + "}", DATA4))
accept("B32-data_offsets", st("{" + W.replace("data_offsets", "data\\u005foffsets") + "}", DATA4))
for name, value in (("int", "1"), ("null", "null"), ("object", "{}"), ("array", "[]"),
                    ("true", "true")):
    refuse(f"B33-{name}", bad("{" + META % ('"key":' + value) + "," + T + "}"), "'key'",
           words("string"))
for name, value in (("array", "[]"), ("string", '"x"'), ("int", "1")):
    refuse(f"B33-metadata-{name}", bad('{"__metadata__":' + value + "," + T + "}"), "__metadata__",
           words("object"))
accept("B34", good('{"__metadata__":null,%s}'))
accept("B34-empty", good('{"__metadata__":{},%s}'))
refuse("B35", bad('{"__metadata__"' + T[3:] + "}"), "'shape'", words("string"))
