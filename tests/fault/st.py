"""Making and reading small safetensors files.

The makers produce good and bad files alike; nothing is checked here.  The reader at the end is
strict and independent of qplan: it is what the accepted cases are judged by.

Marks: text between the brackets of MARK is the offending part of a header.  The brackets are
removed and the absolute byte range is kept, so that a row can demand "at byte ..." without
counting by hand.
"""

import json
import re
import struct
from dataclasses import dataclass

MARK = re.compile("(\u27e6|\u27e7)".encode())  # the white square brackets

DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


@dataclass(frozen=True)
class File:
    """The bytes of one input and the marked ranges, as absolute (first, past the last)."""
    data: bytes
    spans: tuple = ()
    n: int = 0          # true length of the header
    limit: int = 0      # bytes before the data section

    def cut(self, size):
        return File(self.data[:size], self.spans, self.n, self.limit)

    def __add__(self, more):
        return File(self.data + more, self.spans, self.n, self.limit)

    def __len__(self):
        return len(self.data)


def unmark(raw, base=8):
    """Removes the marks; returns the bytes and the ranges counted from base."""
    out, spans, first = b"", [], None
    for part in MARK.split(raw):
        if not MARK.fullmatch(part):
            out += part
        elif first is None:
            first = base + len(out)
        else:
            spans.append((first, base + len(out)))
            first = None
    assert first is None, "mark without an end"
    return out, tuple(spans)


def dump(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def st(header, data=b"", n=None):
    """A file: the header (dict, text or bytes, with marks) behind its length, then the data.
    n overrides the length field."""
    if isinstance(header, dict):
        header = dump(header)
    if isinstance(header, str):
        header = header.encode("utf-8")
    header, spans = unmark(header)
    field = len(header) if n is None else n
    return File(struct.pack("<Q", field) + header + data, spans, len(header), 8 + len(header))


def entry(name, dtype, shape, begin, end):
    """One header member, as text; name is written as it is."""
    shape = ",".join(map(str, shape))
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}'


def n_bytes(dtype, shape):
    bits = DTYPE_BITS[dtype]
    for n in shape:
        bits *= n
    assert bits % 8 == 0
    return bits // 8


def ckpt(tensors, meta=None, pad=8):
    """A well-formed file.  tensors: name -> (dtype, shape, bytes), laid out in the given order;
    bytes None means a running pattern."""
    header, data = {}, b""
    if meta is not None:
        header["__metadata__"] = meta
    for name, (dtype, shape, raw) in tensors.items():
        raw = filler(dtype, n_bytes(dtype, shape), len(data)) if raw is None else raw
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = dump(header).encode()
    if pad:
        text += b" " * (-len(text) % pad)
    return st(text, data)


def pattern(n, seed=0):
    """Bytes that are finite numbers in every float dtype (no byte reaches 0x60)."""
    return bytes((i * 37 + 11 + seed) % 0x60 for i in range(n))


def filler(dtype, n, seed):
    """The same, but small enough for a scale in float32."""
    if dtype == "F64":
        return f64(*[((i * 37 + seed) % 101 - 50) / 8 for i in range(n // 8)])
    return pattern(n, seed)


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def f64(*values):
    return struct.pack(f"<{len(values)}d", *values)


def f16(*values):
    return struct.pack(f"<{len(values)}e", *values)


def bf16(*values):
    """By cutting: meant for values that are exact in bfloat16."""
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def u16(*bits):
    return struct.pack(f"<{len(bits)}H", *bits)


def u32(*bits):
    return struct.pack(f"<{len(bits)}I", *bits)


def u64(*bits):
    return struct.pack(f"<{len(bits)}Q", *bits)


def stream(path, parts, data_size=0):
    """Writes a large file piece by piece: parts yields header text, the data is a hole."""
    with open(path, "wb") as out:
        out.write(bytes(8))
        total, batch = 0, []
        for part in parts:
            batch.append(part)
            if len(batch) == 10000:
                total += out.write("".join(batch).encode())
                batch = []
        total += out.write("".join(batch).encode())
        out.seek(0)
        out.write(struct.pack("<Q", total))
        out.truncate(8 + total + data_size)
    return total


# --- the strict reader -------------------------------------------------------------------------

@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple
    data: bytes


@dataclass(frozen=True)
class Checkpoint:
    meta: dict
    tensors: dict
    header: bytes

    def __getitem__(self, name):
        return self.tensors[name]

    def __contains__(self, name):
        return name in self.tensors


class BadFile(Exception):
    pass


def demand(condition, what):
    if not condition:
        raise BadFile(what)


def unique(pairs):
    keys = [k for k, _ in pairs]
    demand(len(set(keys)) == len(keys), "duplicate key")
    return dict(pairs)


def no_constant(text):
    raise BadFile(f"{text} is not JSON")


def parse_header(raw):
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique,
                            parse_constant=no_constant)
    except ValueError as err:
        raise BadFile(f"header: {err}") from err
    demand(isinstance(header, dict), "header is not an object")
    meta = header.pop("__metadata__", None)
    meta = {} if meta is None else meta
    demand(isinstance(meta, dict), "__metadata__ is not an object")
    demand(all(isinstance(v, str) for v in meta.values()), "a metadata value is not a string")
    return meta, header


def whole(n):
    return type(n) is int and 0 <= n < 2 ** 63


def parse_tensor(name, info):
    demand(isinstance(info, dict) and set(info) == {"dtype", "shape", "data_offsets"},
           f"{name!r}: fields")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    demand(dtype in DTYPE_BITS, f"{name!r}: dtype {dtype!r}")
    demand(isinstance(shape, list) and all(map(whole, shape)), f"{name!r}: shape {shape!r}")
    demand(isinstance(offsets, list) and len(offsets) == 2 and all(map(whole, offsets)),
           f"{name!r}: data_offsets {offsets!r}")
    demand(offsets[1] - offsets[0] == n_bytes(dtype, shape), f"{name!r}: size")
    return dtype, tuple(shape), offsets[0], offsets[1]


def read(path):
    """The checkpoint in a file, or BadFile."""
    with open(path, "rb") as f:
        raw = f.read()
    demand(len(raw) >= 8, "no header length")
    n = struct.unpack_from("<Q", raw)[0]
    demand(n <= 100_000_000 and 8 + n <= len(raw), f"header length {n} of {len(raw)} bytes")
    meta, header = parse_header(raw[8:8 + n])
    rows = {name: parse_tensor(name, info) for name, info in header.items()}
    at, tensors = 0, {}
    for name, (dtype, shape, begin, end) in sorted(rows.items(), key=lambda r: r[1][2:]):
        demand(begin == at, f"{name!r}: begins at {begin}, not at {at}")
        tensors[name] = Tensor(dtype, shape, raw[8 + n + begin:8 + n + end])
        at = end
    demand(8 + n + at == len(raw), f"data ends at {8 + n + at} of {len(raw)} bytes")
    return Checkpoint(meta, tensors, raw[8:8 + n])
