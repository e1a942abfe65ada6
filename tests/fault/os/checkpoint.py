"""Checkpoints for the fault tests: random numbers, the same ones every time."""

import json
import math
import random
import struct

# The last byte of each number holds its sign and the top of its exponent: these keep it finite and
# between about 2^-9 and 2.
TOP_BYTE = {
    "F64": bytes(b & 0x80 | 0x3f for b in range(256)),
    "F32": bytes(b & 0x83 | 0x3c for b in range(256)),
    "BF16": bytes(b & 0x83 | 0x3c for b in range(256)),
    "F16": bytes(b & 0x83 | 0x38 for b in range(256)),
}
WIDTH = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


def numbers(dtype, count, seed):
    width = WIDTH[dtype]
    data = bytearray(random.Random(seed).randbytes(count * width))
    data[width - 1::width] = bytes(data[width - 1::width]).translate(TOP_BYTE[dtype])
    return bytes(data)


def header(tensors):
    """The part before the data, and the number of data bytes. tensors: name -> (dtype, shape)."""
    rows, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * WIDTH[dtype]
        rows[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, end


def make(tensors, seed=0):
    data = [numbers(dtype, math.prod(shape), f"{seed} {name}")
            for name, (dtype, shape) in tensors.items()]
    return header(tensors)[0] + b"".join(data)


# 230 kB: with the least memory each tensor needs several tiles, and per tensor two passes.
SMALL = {"a.weight": ("F32", [96, 512]), "b.weight": ("BF16", [64, 256]), "norm": ("F32", [77])}

# 25 MB: long enough to be killed in the middle.
LARGE = {"a.weight": ("F32", [1024, 2048]), "b.weight": ("BF16", [2048, 2048]),
         "c.weight": ("F32", [2048, 1024]), "norm": ("F32", [4096])}

# Several tiles for each scheme at each size of memory; 1000 x 1408 does not end on a tile.
TILED = {"a.weight": ("BF16", [1000, 1408]), "b.weight": ("F32", [384, 1152]),
         "norm": ("F16", [5000])}

# A report that is larger than a pipe.
MANY = {f"layer{i:04}.w{i % 7}eight{i % 5}": ("F32", [2, 128]) for i in range(600)}
