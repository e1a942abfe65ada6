#!/usr/bin/env python3
"""Shows how to read a file in qplan's native layout without qplan, with numpy alone.

    decode.py FILE NAME    the type, the shape and the first values of the tensor NAME

A tensor NAME is stored as its codes (NAME), NAME_scale and NAME_zero_point; its record in the
metadata says how it was made, for example "int4:g32 minmax BF16 384x128". The value of an element
is scale * (code - zero point). A scheme with a bias has NAME_offset instead of zero points, and the
value is scale * code + offset. `man 5 qplan-native` has the layout to the byte.
"""

import json
import re
import sys

import numpy as np


def decode(record, codes, scale, zero, offset=None):
    dtype, sets, *_, source, shape = re.split("[: ]", record)
    shape, n = ([int(x) for x in text.split("x") if x] for text in (shape, sets[1:]))
    bits = int(dtype[-1])
    if bits < 8:  # the codes of a row are one stream of bits, lowest first, to the end of a byte
        stream = np.unpackbits(codes, -1, bitorder="little")[..., : shape[-1] * bits]
        codes = stream.reshape(*shape, bits) @ (1 << np.arange(bits))
        codes -= codes >> bits - 1 << bits if dtype[0] == "i" else 0
    i = np.indices(shape, sparse=True)  # the scale of an element: of its tensor, channel, ...
    at = (0 if sets[0] == "t" else i[n[0]] if sets[0] == "c" else  # ... group or block
          (*i[:-1], i[-1] // n[0]) if sets[0] == "g" else (*i[:-2], i[-2] // n[0], i[-1] // n[1]))
    work = np.finfo("f8" if source == "F64" else "f4")
    x = scale[at].astype(work.dtype) * (codes.astype("i4") - zero[at]).astype(work.dtype)
    x = x if offset is None else x + offset[at].astype(work.dtype)
    return np.clip(x, work.min, work.max)


def tensors(path):
    """Name and values of each quantized tensor; the container is 8 bytes of length, JSON, data."""
    with open(path, "rb") as file:
        raw = file.read()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])

    def load(name):
        dtype, (a, b) = header[name]["dtype"], header[name]["data_offsets"]
        types = {"I8": "i1", "U8": "u1", "F16": "<f2", "F32": "<f4", "BF16": "<u2"}
        x = np.frombuffer(raw[begin + a : begin + b], types[dtype]).reshape(header[name]["shape"])
        return (x.astype("<u4") << 16).view("<f4") if dtype == "BF16" else x

    for name, record in json.loads(header["__metadata__"]["qplan.tensors"]).items():
        scale = load(name + "_scale")
        dtype = record.split(":")[0]
        offset = load(name + "_offset") if ":bias" in record else None
        middle = 1 << int(dtype[-1]) - 1 if dtype[0] == "u" and offset is None else 0
        stored = name + "_zero_point" in header  # --zero-point asymmetric leaves them out
        zero = load(name + "_zero_point") if stored else np.full(scale.shape, middle)
        with np.errstate(over="ignore"):  # decode clips what overflows
            x = decode(record, load(name), scale, zero, offset)
        yield name, x


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    x = dict(tensors(sys.argv[1]))[sys.argv[2]]
    print(x.dtype, x.shape, x.ravel()[:4])
