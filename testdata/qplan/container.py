"""safetensors files for the golden data: the canonical writer and a plain reader."""

import json
import struct
from dataclasses import dataclass

WIDTHS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}


@dataclass
class Tensor:
    name: str
    dtype: str
    shape: tuple
    data: bytes


def json_string(text):
    """Canonical JSON text: only quote, backslash and U+0000-001F are escaped."""
    out = []
    for c in text:
        if c in '"\\':
            out.append("\\" + c)
        elif c < " ":
            out.append("\\u%04x" % ord(c))
        else:
            out.append(c)
    return '"' + "".join(out) + '"'


def json_strings(pairs):
    """A canonical JSON object of strings, keys sorted byte-wise."""
    ordered = sorted(pairs.items(), key=lambda item: item[0].encode())
    return "{" + ",".join(json_string(k) + ":" + json_string(v) for k, v in ordered) + "}"


def canonical_order(tensors):
    """Widest elements first, then by name, byte-wise."""
    return sorted(tensors, key=lambda t: (-WIDTHS[t.dtype], t.name.encode()))


def write_canonical(tensors, metadata):
    """The file that qplan writes: canonical order, no blanks, header padded to 8."""
    tensors = canonical_order(tensors)
    entries = ['"__metadata__":' + json_strings(metadata)]
    begin = 0
    for t in tensors:
        end = begin + len(t.data)
        entries.append('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
            json_string(t.name), t.dtype, ",".join(map(str, t.shape)), begin, end))
        begin = end
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + b"".join(t.data for t in tensors)


def write_foreign(tensors, metadata):
    """A legal file that is canonical in nothing: data in the order given, header
    keys in reverse, blanks, everything beyond ASCII escaped, no padding."""
    entries = {}
    begin = 0
    for t in tensors:
        end = begin + len(t.data)
        entries[t.name] = {"shape": list(t.shape), "data_offsets": [begin, end], "dtype": t.dtype}
        begin = end
    header = dict(reversed(list(entries.items())))
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(t.data for t in tensors)


def read(data):
    """(tensors in file order, metadata) of a well-formed file; asserts the layout."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length].decode())
    body = data[8 + length:]
    metadata = header.pop("__metadata__", None) or {}
    tensors = []
    position = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == position, "hole or overlap before " + name
        count = 1
        for n in entry["shape"]:
            count *= n
        assert (end - begin) * 8 == count * WIDTHS[entry["dtype"]], "size of " + name
        tensors.append(Tensor(name, entry["dtype"], tuple(entry["shape"]), body[begin:end]))
        position = end
    assert position == len(body), "bytes after the last tensor"
    return tensors, metadata
