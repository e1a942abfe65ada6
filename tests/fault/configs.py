#!/usr/bin/env python3
"""The config.json of a folder: texts that must be refused, and every text that may be edited.

    configs.py --qplan PATH [--texts N] [--seed N]

Rows E15 to E17 of ROWS.md, and a property: whatever a good config.json looks like, quantize changes
what it says of a quantization and no other byte, and dequantize takes exactly that away again.
Expected texts are made by cutting and joining here, and read by Python's json.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True      # the source tree stays as it is

from folders import Bench, problems, shard_bytes
from layout_folder import TEXTS_OF_NO_CONFIG

ENGINE = ("--format", "compressed-tensors", "--scheme", "int4:g8")
KEYS = ("quantization_config", "quantization")
LARGEST = 10_000_000


def make_folder(root, name, text):
    """A folder with one linear layer, whose config.json has this text; None: it has none."""
    path = root / name
    path.mkdir(exist_ok=True)
    shard = shard_bytes({"l.0.w.weight": ((4, 32), 1), "l.0.w.bias": ((4,), 1)}, {"format": "pt"})
    (path / "model.safetensors").write_bytes(shard)
    if text is not None:
        (path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- rows ---


def row_missing(bench):
    """Row E15: an engine reads config.json, so its layouts need one; the native layout does not."""
    plain = make_folder(bench.root, "m", None)
    bench.quantize(plain, *ENGINE, exit_code=3, words=("config.json", "hint", "beside its weights"))
    bench.quantize(plain / "model.safetensors", *ENGINE, exit_code=3, words=("config.json", "hint"))
    bench.quantize(plain)


def row_refused(bench):
    """Row E16: every command says which byte of config.json is wrong."""
    source = make_folder(bench.root, "s", "{}")
    texts = dict(TEXTS_OF_NO_CONFIG)
    texts["not-utf-8"] = b'{"a":"\xff"}'
    texts["utf-16"] = "{}".encode("utf-16")
    texts["twice"] = '{"quantization_config": {}, "a": 1, "quantization_config": {}}'
    texts["twice-mlx"] = '{"quantization": {}, "a": 1, "\\u0071uantization": {}}'
    texts["inside-twice"] = '{"quantization_config": {"a": {"b": 1, "c": [], "b": 1}}}'
    texts["too-large"] = "{" + " " * LARGEST + "}"
    for name, text in texts.items():
        folder = make_folder(bench.root, "m", text)
        word = {"too-large": str(LARGEST)}.get(name, "byte")
        for args in (("quantize", "-o", "out", folder), ("quantize", *ENGINE, "-o", "out", folder),
                     ("plan", folder), ("inspect", folder), ("verify", folder, source),
                     ("verify", source, folder), ("inspect", "--against", source, folder),
                     ("dequantize", "-o", "out", folder), ("explain", folder)):
            result = bench.run(*args)
            bench.expect(result, 3, ("m/config.json",))
            if word not in result.stderr and "expected an object" not in result.stderr:
                bench.problem(f"{name}: expected {word!r} in: {result.stderr}")
    if sorted(p.name for p in bench.root.iterdir()) != ["m", "s"]:
        bench.problem("a refused run has left something")


def row_largest(bench):
    """A text that is allowed with what it gets."""
    folder = make_folder(bench.root, "m", "{" + " " * (LARGEST - 5000) + "}")
    bench.quantize(folder, *ENGINE)


def row_numbers(bench):
    """Row E17: numbers beyond a double are text."""
    text = '{"a": 1e400, "b": 1180591620717411303424, "c": -0.0, "d": 1E+2, "e": 0.10, "f": -1e-999}'
    folder = make_folder(bench.root, "m", text)
    bench.quantize(folder, *ENGINE)
    found = (bench.root / "out" / "config.json").read_text()
    if not found.startswith(text[:-1]):
        bench.problem(f"numbers are not as they were: {found[:200]}")


# --- the property ---


class Maker:
    """A random text of a config.json, as a list of members in order: (key, text of the member)."""

    def __init__(self, rng):
        self.rng = rng
        self.newline = rng.choice(["\n", "\r\n"])
        self.indent = rng.choice([None, "", "  ", "    ", "\t", " \t "])
        self.blank = "" if self.indent is None else self.newline + self.indent

    def string(self):
        pieces = ["{", "}", "[", "]", ",", ":", '\\"', "\\\\", "\\u007d", "\\n", "\u00e9", "\U0001f600",
                  "quantization_config", "a", " ", "\\ud83d\\ude00", "/", "\\/"]
        return '"' + "".join(self.rng.choices(pieces, k=self.rng.randrange(6))) + '"'

    def space(self):
        return self.rng.choice(["", "", " ", "  ", self.newline, "\t"])

    def value(self, depth=0):
        kind = self.rng.randrange(8 if depth < 4 else 6)
        if kind < 3:
            return self.rng.choice(["0", "-1", "1e400", "0.50", "12345678901234567890123", "true",
                                    "false", "null", "1E-7"])
        if kind < 6:
            return self.string()
        inner = [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        if kind == 6:
            inner = [f"{self.string()}{self.space()}:{self.space()}{v}" for v in inner]
        text = f"{self.space()},{self.space()}".join(inner)
        return "{["[kind - 6] + self.space() + text + self.space() + "}]"[kind - 6]

    def members(self):
        """Members that say nothing of a quantization."""
        keys = [f'"k{i}{self.string()[1:]}' for i in range(self.rng.randrange(6))]
        return [f"{key}{self.rng.choice(['', ' '])}:{self.space()}{self.value()}" for key in keys]

    def described(self, key):
        key = self.rng.choice([key, "\\u0071" + key[1:], key.replace("_", "\\u005F")])
        return f'"{key}": {self.rng.choice(["null", "{}", "[]", chr(34) + "}" + chr(34), "1"])}'

    def text(self, members):
        end = self.rng.choice(["", self.newline]) if self.indent is None else self.newline
        if not members:
            return "{" + self.rng.choice(["", " ", self.newline]) + "}" + end
        body = f",{self.blank or self.rng.choice(['', ' '])}".join(members)
        return "{" + self.blank + body + ("" if self.indent is None else self.newline) + "}" + end


def around(text, key):
    """The text before and behind the value of a key at the top of an object that Python has read."""
    decoder, at = json.JSONDecoder(), text.index("{") + 1
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()
        name, at = decoder.raw_decode(text, at)
        at = re.compile(r"\s*:\s*").match(text, at).end()
        _, end = decoder.raw_decode(text, at)
        if name == key:
            return text[:at], text[end:]
        at = end


def expected_value(found, where, bench):
    try:
        weights = found["quantization_config"]["config_groups"]["group_0"]["weights"]
        good = (weights["num_bits"], weights["group_size"], weights["strategy"]) == (4, 8, "group")
    except (KeyError, TypeError):
        good = False
    if not good:
        bench.problem(f"{where}: quantization_config is not what engines need")


def there_and_back(bench, where, maker, has_old):
    """quantize changes one member; dequantize takes it away."""
    members, rng = maker.members(), maker.rng
    old = [maker.described(key) for key in rng.sample(KEYS, rng.randint(1, 2))] if has_old else []
    mixed = list(members)
    for one in old:
        mixed.insert(rng.randrange(len(mixed) + 1), one)
    text = maker.text(mixed)
    folder = make_folder(bench.root, "m", text)
    bench.quantize(folder, *ENGINE)
    made = (bench.root / "out" / "config.json").read_bytes().decode()
    found = json.loads(made)
    expected_value(found, where, bench)
    kept = {k: v for k, v in json.loads(text).items() if k not in KEYS}
    if {k: v for k, v in found.items() if k not in KEYS} != kept or "quantization" in found:
        bench.problem(f"{where}: other members changed: {text!r} became {made!r}")
    for member in members:
        if member not in made:
            bench.problem(f"{where}: {member!r} is not in {made!r}")
    head, tail = around(made, "quantization_config")
    if not old:
        plain = text[:len(text.rstrip()) - 1].rstrip(" \t\r\n")
        if not head.startswith(plain) or not text.endswith(tail):
            bench.problem(f"{where}: bytes beside the new member changed: {text!r} became {made!r}")
    bench.expect(bench.run("dequantize", "-q", "-o", "back", bench.root / "out"), 0, ())
    back = (bench.root / "back" / "config.json").read_bytes().decode()
    if not old and back != text:
        bench.problem(f"{where}: there and back: {text!r} became {back!r}")
    if old and (json.loads(back) != kept or not all(member in back for member in members)):
        bench.problem(f"{where}: there and back: {text!r} became {back!r}")


def texts(bench, n, seed):
    """Random texts, with and without an old description."""
    for i in range(n):
        maker = Maker(random.Random(seed + i))
        there_and_back(bench, f"text {seed + i}", maker, has_old=i % 3 == 2)
        for name in ("out", "back"):
            shutil.rmtree(bench.root / name, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for row in (row_missing, row_refused, row_largest, row_numbers, texts):
        with tempfile.TemporaryDirectory() as root:
            bench = Bench(os.path.abspath(args.qplan), pathlib.Path(root))
            bench.row = row.__name__
            row(bench, *((args.texts, args.seed) if row is texts else ()))
    for text in problems:
        print(text)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
