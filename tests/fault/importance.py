#!/usr/bin/env python3
"""Files of importance that say what cannot be: every field of each kind of file, wrong in every way.

    importance.py --qplan PATH

Row F18 of ROWS.md. A file is a list of fields; each is replaced by every value of its kind, dropped,
and there twice. A reader in this file, which shares no code with qplan, tells what is still a file;
qplan must accept just those, with the same weights, and refuse all others by the name of the file.
"""

import argparse
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

LIMITS = os.environ.get("QPLAN_TEST_LIMITS") != "off"
COLUMNS = 8
NAMES = ("blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight")
MATRICES = (1, 3)


# ---- What is a file ---------------------------------------------------------------------------------

class Bad(Exception):
    pass


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Bad("too short")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, form="<Q"):
        return self.take(self.number(form))


def need(condition):
    if not condition:
        raise Bad("not a file")


def floats(data):
    need(all(math.isfinite(v) and v >= 0 for v in struct.unpack(f"<{len(data) // 4}f", data)))


def counting(n):
    return struct.pack(f"<{n}f", *range(1, n + 1))


SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def skip_value(b, kind, n=1):
    need(kind in SIZES or kind == 8)
    if kind == 8:
        for _ in range(n):
            b.text()
    else:
        b.take(n * SIZES[kind])


def read_pairs(b, n):
    found = {}
    for _ in range(n):
        key, kind = b.text(), b.number("<I")
        if key in (b"general.type", b"general.alignment"):
            need(key not in found and kind == (8 if key == b"general.type" else 4))
            found[key] = b.text() if kind == 8 else b.number("<I")
        elif kind == 9:
            kind = b.number("<I")
            skip_value(b, kind, b.number("<Q"))
        else:
            skip_value(b, kind)
    return found


def read_gguf(data):
    """The weights of a GGUF file: name -> columns and matrices."""
    b = Bytes(data)
    need(b.take(4) == b"GGUF" and b.number("<I") in (2, 3))
    n_tensors, n_pairs = b.number("<Q"), b.number("<Q")
    pairs = read_pairs(b, n_pairs)
    align = pairs.get(b"general.alignment", 32)
    need(pairs.get(b"general.type") == b"imatrix" and align > 0 and align & (align - 1) == 0)
    infos = {}
    for _ in range(n_tensors):
        name = b.text()
        dims = [b.number("<Q") for _ in range(b.number("<I"))]
        need(1 <= len(dims) <= 4 and name not in infos and b.number("<I") == 0)
        dims += [1] * (4 - len(dims))
        need(dims[0] > 0 and dims[1] > 0 and dims[2:] == [1, 1])
        infos[name] = (dims[0], dims[1], b.number("<Q"))
    begin = -(-b.at // align) * align
    need(begin <= len(data))
    place, end, values = 0, 0, {}
    for name, (columns, matrices, offset) in infos.items():
        end = place + columns * matrices * 4
        need(offset == place and begin + end <= len(data))
        values[name] = data[begin + place:begin + end]
        place = -(-end // align) * align
    need(len(data) - begin in (end, place))
    weights = {}
    for name, (columns, matrices, _) in infos.items():
        for here, there in ((b".in_sum2", b".counts"), (b".counts", b".in_sum2")):
            if name.endswith(here) and name != here:
                other = infos.get(name[:-len(here)] + there)
                need(other)
        if name.endswith(b".in_sum2") and name != b".in_sum2":
            counts = infos[name[:-8] + b".counts"]
            need(counts[0] * counts[1] == matrices and b"\0" not in name)
            floats(values[name])
            floats(values[name[:-8] + b".counts"])
            weights[name[:-8]] = (columns, matrices)
    return weights


def read_dat(data):
    """Those of an imatrix of old."""
    b, weights = Bytes(data), {}
    n = b.number("<i")
    need(1 <= n <= 20000)
    for _ in range(n):
        length = b.number("<i")
        need(1 <= length <= 255)
        name = b.take(length)
        calls, columns = b.number("<i"), b.number("<i")
        need(calls >= 0 and columns >= 1 and b"\0" not in name and name not in weights)
        floats(b.take(columns * 4))
        weights[name] = (columns, 1)
    if b.at < len(data):
        need(b.number("<i") >= 0)
        length = b.number("<i")
        need(length >= 0)
        b.take(length)
    need(b.at == len(data))
    return weights


# ---- Fields ----------------------------------------------------------------------------------------

def numbers(form, value):
    """What may stand where a number does."""
    bits = 8 * struct.calcsize(form)
    top = 1 << bits
    wrong = {0, 1, 2, value - 1, value + 1, value * 2, value + 32, value ^ 1 << 20, top - 1,
             top // 2, top // 2 - 1, top // 4, (top - value) % top}
    return [struct.pack(form.upper(), v % top) for v in sorted(wrong)]


def texts(value):
    """What may be the bytes of a name; the length before them is wrong or goes along."""
    other = [b"", b"\0", value + b"\0", value + b"\0x", value[:-1], b"x" + value, value * 2,
             value[:2] + b"\0" + value[2:], b"\xff" * len(value), NAMES[0].encode() + b".in_sum2",
             NAMES[1].encode() + b".counts", b"general.type", b"general.alignment",
             NAMES[0].encode()]
    return [v for v in other if v != value]


def reals(data):
    out = []
    for bad in (-1.0, float("nan"), float("inf"), -0.0, 0.0, 3e38):
        for at in (0, len(data) - 4):
            out.append(data[:at] + struct.pack("<f", bad) + data[at + 4:])
    return out + [data[:-4], data + data[:4], data[:-1], data + b"\0"]


class Fields:
    """The bytes of a file, one field behind the other: bytes, and what may stand in their place."""

    def __init__(self):
        self.list, self.pairs = [], []

    def raw(self, data, others=()):
        self.list.append((data, list(others)))

    def number(self, form, value):
        self.raw(struct.pack(form, value), numbers(form, value))

    def text(self, form, value):
        """The length and the bytes are a field each, and both together one more."""
        self.number(form, len(value))
        self.raw(value, texts(value))
        head = len(self.list) - 2
        self.pairs += [(head, struct.pack(form, len(v)), v) for v in texts(value)]

    def data(self, changed=None):
        changed = changed or {}
        return b"".join(changed.get(i, data) for i, (data, _) in enumerate(self.list))

    def mutants(self):
        """Every file with one field wrong, dropped or repeated; and every prefix."""
        for i, (data, others) in enumerate(self.list):
            for other in others:
                if other != data:
                    yield self.data({i: other})
            yield self.data({i: b""})
            yield self.data({i: data * 2})
        for head, length, value in self.pairs:
            yield self.data({head: length, head + 1: value})
        whole = self.data()
        for n in range(0, len(whole), 5):
            yield whole[:n]
        for tail in (b"\0", b"\0" * 4, b"\0" * 28, b"\0" * 32, b"x" * 32, b"\xff" * 8, whole):
            yield whole + tail


def gguf():
    f = Fields()
    f.raw(b"GGUF", [b"GGML", b"gguf", b"FUGG"])
    f.number("<I", 3)
    f.number("<Q", 4)
    f.number("<Q", 3)
    f.text("<Q", b"general.type")
    f.number("<I", 8)
    f.text("<Q", b"imatrix")
    f.text("<Q", b"imatrix.datasets")
    f.number("<I", 9)
    f.number("<I", 8)
    f.number("<Q", 1)
    f.text("<Q", b"text")
    f.text("<Q", b"general.alignment")
    f.number("<I", 4)
    f.number("<I", 32)
    data, place = [], 0
    for name, matrices in zip(NAMES, MATRICES):
        for end, columns in ((".in_sum2", COLUMNS), (".counts", 1)):
            values = counting(columns * matrices)
            f.text("<Q", (name + end).encode())
            f.number("<I", 2)
            f.number("<Q", columns)
            f.number("<Q", matrices)
            f.number("<I", 0)
            f.number("<Q", place)
            data.append(values)
            place += -(-len(values) // 32) * 32
    f.pad = len(f.list)
    f.raw(bytes(-len(f.data()) % 32), [b""])
    for values in data:
        f.raw(values, reals(values))
        f.raw(bytes(-len(values) % 32), [bytes(-len(values) % 32 + 32)])
    return f


def dat():
    f = Fields()
    f.number("<i", 2)
    for name in NAMES:
        f.text("<i", name.encode())
        f.number("<i", 5)
        f.number("<i", COLUMNS)
        values = counting(COLUMNS)
        f.raw(values, reals(values))
    f.number("<i", 7)
    f.text("<i", b"text")
    return f


def safetensors(tensors):
    head, data = {}, b""
    for name, dtype, shape, values in tensors:
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


ONES = struct.pack("<f", 1) * COLUMNS
VECTORS = {     # whose container is honest: the rows of the parts A to D are about that
    "another type": ("w", "I32", [COLUMNS], ONES),
    "doubles": ("w", "F64", [COLUMNS // 2], ONES),
    "a matrix": ("w", "F32", [1, COLUMNS], ONES),
    "a number": ("w", "F32", [], ONES[:4]),
    "nothing": ("w", "F32", [0], b""),
    "NaN": ("w", "F32", [COLUMNS], ONES[:-4] + struct.pack("<f", float("nan"))),
    "negative": ("w", "F32", [COLUMNS], struct.pack("<f", -1) + ONES[:-4]),
    "infinite": ("w", "F16", [2], b"\0\x7c\0\x3c"),
    "negative bf16": ("w", "BF16", [2], b"\x80\xbf\x80\x3f"),
    "a name cut by U+0000": ("w\0x", "F32", [COLUMNS], ONES),
}


# ---- Running ---------------------------------------------------------------------------------------

class Bench:
    def __init__(self, qplan, root):
        self.qplan, self.root, self.problems, self.n = qplan, root, [], 0
        self.file, self.source = root / "i", root / "m.safetensors"
        weights = counting(4 * COLUMNS)
        self.source.write_bytes(safetensors([("w", "F32", [4, COLUMNS], weights)]))

    def run(self, *args):
        return subprocess.run([self.qplan, *map(str, args)], capture_output=True, text=True,
                              timeout=60, check=False)

    def quantize(self):
        return self.run("quantize", "-q", "--dry-run", "--dtype", "int8", "--calibrate", "mse",
                        "--importance", self.file, self.source)

    def expect(self, what, holds, done):
        if not holds:
            self.problems.append(f"{what}: exit {done.returncode}: {done.stdout}{done.stderr}")

    def refused(self, what, done):
        self.expect(what, done.returncode == 3 and f"error: {self.file}" in done.stderr and
                    not done.stdout, done)


def check_mutants(bench, kind, fields, read):
    """qplan takes what the reader of this file takes, and tells the same weights of it."""
    honest = read(fields.data())
    if set(honest) != {name.encode() for name in NAMES}:
        bench.problems.append(f"{kind}: the honest file is none")
    n_good = n_bad = 0
    for i, data in enumerate(fields.mutants()):
        bench.file.write_bytes(data)
        try:
            weights = read(data)
        except Bad:
            n_bad += 1
            bench.refused(f"{kind} {i} inspect", bench.run("inspect", bench.file))
            if n_bad % 4 == 0: # the same reader, behind another command
                bench.refused(f"{kind} {i} quantize", bench.quantize())
            continue
        n_good += 1
        done = bench.run("inspect", bench.file)
        lines = done.stdout.splitlines()
        bench.expect(f"{kind} {i}", done.returncode == 0 and len(lines) == 1 + len(weights), done)
    bench.n += n_good + n_bad
    if n_bad < 200 or n_good < 5:
        bench.problems.append(f"{kind}: {n_bad} bad files and {n_good} good ones are too few")


def check_words(bench):
    """What is wrong is said with the name of the tensor."""
    name, g, d = NAMES[0], gguf(), dat()
    at = next(i for i, (data, _) in enumerate(g.list) if data == (name + ".counts").encode())
    twice = (NAMES[0] + ".in_sum2").encode()
    again = {at - 1: struct.pack("<Q", len(twice)), at: twice}
    head = sum(len(again.get(i, data)) for i, (data, _) in enumerate(g.list[:g.pad]))
    again[g.pad] = bytes(-head % 32)
    rows = [
        (g.data(again), f"'{twice.decode()}': it is there twice"),
        (g.data({at + 5: struct.pack("<Q", 0)}), f"offset of '{name}.counts': expected 32, found 0"),
        (g.data({at + 5: struct.pack("<Q", 36)}), f"'{name}.counts': expected 32, found 36"),
        (g.data() + b"x", "bytes behind its end"),
        (d.data({2: name.encode()[:-2] + b"\0x"}), "U+0000"),
        (d.data({7: name.encode(), 6: struct.pack("<i", len(name))}), f"'{name}': it is there"),
    ]
    for data, words in rows:
        bench.n += 1
        bench.file.write_bytes(data)
        done = bench.quantize()
        bench.refused(words, done)
        bench.expect(words, words in done.stderr, done)


def check_vectors(bench):
    for what, row in VECTORS.items():
        bench.n += 1
        bench.file.write_bytes(safetensors([row]))
        bench.refused(what, bench.quantize())
    bench.file.write_bytes(safetensors([("w", "F32", [COLUMNS], ONES)]))
    done = bench.quantize()
    bench.expect("a vector", done.returncode == 0, done)


def many_weights(n):
    """A file of n weights of one column."""
    head = [b"GGUF", struct.pack("<IQQ", 3, 2 * n, 2)]
    for key, kind, value in ((b"general.type", 8, struct.pack("<Q", 7) + b"imatrix"),
                             (b"general.alignment", 4, struct.pack("<I", 4))):
        head += [struct.pack("<Q", len(key)), key, struct.pack("<I", kind), value]
    names = [f"w{i}.in_sum2" for i in range(n)] + [f"w{i}.counts" for i in range(n)]
    for i, name in enumerate(names):
        head += [struct.pack("<Q", len(name)), name.encode(),
                 struct.pack("<IQQIQ", 2, 1, 1, 0, 4 * i)]
    head = b"".join(head)
    return head + bytes(-len(head) % 4) + struct.pack("<f", 1) * (2 * n)


def measured(*args):
    """Exit code, seconds of the CPU and peak of memory of a command."""
    pid = os.posix_spawn(args[0], list(map(str, args)), os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


def check_cost(bench):
    """Time grows with a file, not with its square; memory is ten times the file at the most."""
    bench.n += 1
    data = many_weights(20000)
    bench.file.write_bytes(data)
    for args in (("inspect", bench.file), ("quantize", "-q", "--dry-run", "--dtype", "int8",
                                           "--calibrate", "mse", "--importance", bench.file,
                                           bench.source)):
        code, seconds, memory = measured(bench.qplan, *args)
        if code != 0 and args[0] == "inspect" or code not in (0, 3):
            bench.problems.append(f"{args[0]} of 20000 weights: exit {code}")
        if LIMITS and (seconds > 3 or memory > (32 << 20) + 10 * len(data)):
            bench.problems.append(f"{args[0]} of 20000 weights: {seconds} s, {memory} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = os.path.abspath(parser.parse_args().qplan)
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(qplan, pathlib.Path(root))
        check_mutants(bench, "gguf", gguf(), read_gguf)
        check_mutants(bench, "dat", dat(), read_dat)
        check_words(bench)
        check_vectors(bench)
        check_cost(bench)
    print("\n".join(bench.problems[:20]))
    print(f"{bench.n} files, {len(bench.problems)} problems")
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
