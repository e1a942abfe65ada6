"""Checkpoints as dictionaries of stored tensors, and their values in numpy.

Values of floats are f32 arrays, which hold every F16 and BF16 exactly; `rounded` and `packed` are
the way back. Written from the description of the container, for tests only.
"""

import json
import pathlib
import struct
from dataclasses import dataclass

import numpy as np

NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
         "U32": "<u4", "I8": "i1", "U8": "u1", "F8_E4M3": "u1", "F8_E8M0": "u1",
         "F8_E5M2": "u1"}


@dataclass(frozen=True)
class Stored:
    dtype: str
    shape: tuple
    data: bytes


def read_file(path):
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: Stored(entry["dtype"], tuple(entry["shape"]),
                         data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


def metadata(path):
    """The metadata of a file."""
    data = pathlib.Path(path).read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]]).get("__metadata__", {})


def read(path):
    """The tensors of a file, or of all files that a folder has; no name may be there twice."""
    path = pathlib.Path(path)
    tensors = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        for name, tensor in read_file(file).items():
            if name in tensors:
                raise ValueError(f"{name} is in two files of {path.name}")
            tensors[name] = tensor
    return tensors


def write(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata or {"format": "pt"}}, []
    begin = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                        "data_offsets": [begin, begin + len(tensor.data)]}
        begin += len(tensor.data)
        data.append(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(b"".join((struct.pack("<Q", len(text)), text, *data)))


def e4m3(bytes_):
    """Numbers of 4 exponent and 3 mantissa bits; none here is NaN."""
    exponent, mantissa = bytes_ >> 3 & 15, (bytes_ & 7).astype(np.float32)
    hidden = np.where(exponent > 0, 8, 0).astype(np.float32)
    size = np.ldexp(mantissa + hidden, np.maximum(exponent, 1).astype(np.int32) - 10)
    return np.where(bytes_ & 0x80, -size, size).astype(np.float32)


def values(tensor):
    """The elements: floats as f32 (F64 as f64), integers as they are."""
    flat = np.frombuffer(tensor.data, NUMPY[tensor.dtype]).reshape(tensor.shape)
    if tensor.dtype == "F8_E4M3":
        return e4m3(flat)
    if tensor.dtype == "BF16":
        return (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.astype(np.float32) if tensor.dtype == "F16" else flat


def bf16_bits(array):
    """Half to even; values that are not finite do not come here."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def rounded(dtype, array):
    """The values of f32 elements after they were stored in a type."""
    if dtype == "BF16":
        return (bf16_bits(array).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return array.astype(NUMPY[dtype]).astype(np.float32)


def packed(dtype, array):
    """A stored tensor of these values."""
    with np.errstate(over="ignore"):
        stored = bf16_bits(array) if dtype == "BF16" else array.astype(NUMPY[dtype])
    return Stored(dtype, array.shape, stored.tobytes())
