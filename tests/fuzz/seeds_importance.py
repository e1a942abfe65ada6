"""The first inputs of the fuzz target for files of importance, for seeds.py.

Honest files come from the fault table, with the spoiled ones that differ most.
"""

import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

from importance import COLUMNS, ONES, VECTORS, dat, gguf, safetensors


def vectors():
    yield "f32", [("w", "F32", [COLUMNS], ONES)]
    yield "bf16", [("w_importance", "BF16", [COLUMNS], b"\x80\x3f" * COLUMNS),
                   ("v", "F16", [1], b"\0\x3c")]
    for what, row in VECTORS.items():
        yield what.replace(" ", "-"), [row]


def everything():
    """{path in corpus/: bytes}"""
    files = {"gguf": gguf().data(), "dat": dat().data(), "dat-older": dat().data()[:-12],
             "gguf-many-tensors": gguf().data({2: struct.pack("<Q", 40000)}),
             "gguf-twice": gguf().data() * 2, "dat-twice": dat().data() * 2,
             "gguf-cut": gguf().data()[:-40], "nothing": b""}
    files |= {"vectors-" + what: safetensors(rows) for what, rows in vectors()}
    return {"importance/" + name: data for name, data in files.items()}
