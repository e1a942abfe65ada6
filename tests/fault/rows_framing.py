"""A. File framing: the length field, the end of the file, things that are not safetensors."""

import gzip
import io
import os
import pickle
import pty
import random
import socket
import struct
import zipfile

from bench import OUTPUT, Limits, Skip
from expect import hint, no_hint, not_named, num, tensor, words
from st import ckpt, entry, f32, st, stream
from table import accept, add, case, refuse

LIMIT = 100_000_000
SWAP = r"big.?endian|byte.?order|swap"
GOOD = ckpt({"w": ("F32", [2, 2], f32(1, -2, 3, 4)), "b": ("F32", [2], f32(5, 6))})
TWO = "{" + entry("a", "F32", [2], 0, 8) + "," + entry("b", "F32", [4], 8, 24) + "}"

refuse("A1", b"", 0, words(r"\b8\b|eight"))
refuse("A2", b"1234567", 7)
refuse("A3", st(b""), words("empty|0"), words(r"byte 8\b|header"))
for name, n in (("2^63", 2 ** 63), ("2^64-1", 2 ** 64 - 1)):
    refuse(f"A4-{name}", st("{}", n=n), n, LIMIT, no_hint(SWAP))


def over_limit(path):
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", LIMIT + 1) + b"{}")
        f.truncate(8 + LIMIT + 1)


def at_limit(path):
    text = TWO + " " * 1000
    blank = " " * 100_000
    n, tail = divmod(LIMIT - len(text), len(blank))
    stream(path, [text] + [blank] * n + [" " * tail], 24)


refuse("A5", over_limit, LIMIT + 1, LIMIT)
accept("A6", at_limit, limits=Limits(seconds=0.5), cost=2)
refuse("A7-by-one", st("{}", n=3), 3, 2)
refuse("A7-at-limit", st("{}", n=LIMIT), LIMIT, 2)

# --- A8 to A10: another kind of file ---

LFS = (b"version https://git-lfs.github.com/spec/v1\n"
       b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
       b"size 4976698672\n")
HTML = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body></body></html>\n"


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(zipfile.ZipInfo("archive/data.pkl"), b"\x80\x02}q\x00.")
    return out.getvalue()


STATE = {"layer.weight": list(range(100))}

refuse("A8", LFS, words("Git LFS pointer"), hint("git lfs pull"))
refuse("A9-html", HTML, words("HTML"))
refuse("A9-html-lower", HTML.lower(), words("HTML"))
refuse("A9-html-blank", b"\n  " + HTML, words("HTML"))
refuse("A9-json", b'{"error":"Repository not found","status":404}', words("JSON"))
refuse("A9-json-blank", b'{\n  "message": "Not Found",\n  "status": "404"\n}\n', words("JSON"))
refuse("A10-gguf", b"GGUF" + struct.pack("<IQQ", 3, 2, 5) + bytes(64), words("GGUF"))
refuse("A10-zip", zipped(), words("zip|PyTorch"))
refuse("A10-pickle-2", pickle.dumps(STATE, protocol=2), words("pickle"))
refuse("A10-pickle-4", pickle.dumps(STATE, protocol=4), words("pickle"))
refuse("A10-hdf5", b"\x89HDF\r\n\x1a\n" + bytes(88), words("HDF5"))
refuse("A10-gzip", gzip.compress(GOOD.data, mtime=0), words("gzip"))

# --- A11, A12: the data section is too long or too short ---

for name, tail in (("one", b"x"), ("zip", zipped())):
    refuse(f"A11-{name}", GOOD + tail, len(tail), num(len(GOOD), len(GOOD) - GOOD.limit))

CUT = st(TWO, f32(1, 2, 3, 4, 5, 6))
ENDS = {"a": 8, "b": 24}


def cut_names(size):
    """What the message must name when the file ends at this byte."""
    if size < 8:
        return [size]
    if size < CUT.limit:
        return [CUT.n, size - 8]
    rest = size - CUT.limit
    late = {name: end for name, end in ENDS.items() if end > rest}
    ends = [n for end in late.values() for n in (end, CUT.limit + end)]
    return [words("|".join(map(tensor, late))), num(len(CUT), 24, 16, 8, *ends), num(size, rest)]


# the tensor that the end cuts, wherever it stands in the header
TURNED = "{" + entry("b", "F32", [4], 8, 24) + "," + entry("a", "F32", [2], 0, 8) + "}"
refuse("A12-key-order", st(TURNED, bytes(22)), tensor("b"), not_named(tensor("a")))
refuse("A12-two-bytes", CUT.cut(len(CUT) - 2), tensor("b"), *cut_names(len(CUT) - 2))
for i, size in enumerate(sorted(random.Random(12).sample(range(len(CUT)), 64))):
    refuse(f"A12-cut-{i:02}-at-{size}", CUT.cut(size), *cut_names(size))


def five_tebibytes(path):
    size = 5 << 40
    try:
        stream(path, ["{" + entry("w", "F32", [1 << 20, size >> 22], 0, size) + "}"], size)
    except OSError as err:
        raise Skip(f"no file of 5 TiB here: {err.strerror}") from err


accept("A13", five_tebibytes, quantize=False, limits=Limits(seconds=0.1))

# --- A14: not a regular file; a run that blocks ends at the time limit ---


def a_directory(path):
    os.mkdir(path)


def a_socket(path):
    back = os.getcwd()
    os.chdir(os.path.dirname(path))     # the address of a socket is at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.basename(path))
    finally:
        os.chdir(back)


refuse("A14-directory", a_directory, words("folder|directory"))
refuse("A14-fifo", os.mkfifo, words("not a regular file"))
refuse("A14-socket", a_socket, words("not a regular file"))


def not_regular(bench, path, **how):
    names = [path, words("not a regular file")]
    bench.refused("inspect", path, names=names, **how)
    bench.refused("quantize", "-o", OUTPUT, path, names=names, **how)


add("A14-dev-zero", lambda bench: not_regular(bench, "/dev/zero"))


@case("A14-stdin-tty")
def stdin_tty(bench):
    master, slave = pty.openpty()
    not_regular(bench, "/dev/stdin", stdin=slave)
    os.close(slave)
    os.close(master)


@case("A14-stdin-pipe")
def stdin_pipe(bench):
    end, other = os.pipe()
    not_regular(bench, "/dev/stdin", stdin=end)
    os.close(end)
    os.close(other)


SWAPPED = int.from_bytes(struct.pack("<Q", GOOD.n), "big")
refuse("A15", st(GOOD.data[8:GOOD.limit], GOOD.data[GOOD.limit:], n=SWAPPED), SWAPPED,
       hint(SWAP))

# Lengths whose bytes are the magic of another format: a good file stays a good file, and one that
# is cut is a cut safetensors file.
LOOKS_LIKE = {"pickle-2": b"\x80\x02", "pickle-4": b"\x80\x04", "json": b'{"', "json-blank": b"{\n",
              "json-array": b"[{", "html": b"<h", "html-upper": b"<!", "gzip": b"\x1f\x8b\x08"}


def of_length(n):
    """A good file with a header of n bytes."""
    text = "{" + entry("w", "F32", [2, 2], 0, 16) + "}"
    return st(text + " " * (n - len(text)), f32(1, -2, 3, 4))


for name, magic in LOOKS_LIKE.items():
    N = int.from_bytes(magic, "little")
    accept(f"A16-looks-like-{name}", of_length(N))
    refuse(f"A7-looks-like-{name}", of_length(N).cut(8 + N - 3), N, N - 3)

ODD = ckpt({"w1": ("F32", [2, 2], f32(1, -2, 3, 4)), "bias": ("F16", [2], None)}, pad=0)
accept("A16-odd", ODD if ODD.n % 2 else ckpt({"w": ("F32", [2, 2], f32(1, -2, 3, 4))}, pad=0),
       lambda bench, source, output: bench.check(len(source.header) % 2 == 1, "the case is wrong"))
