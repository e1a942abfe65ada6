#!/usr/bin/env python3
"""An F64 model, and the errors of what MLX and compressed-tensors decode of it, which is in f32.

    f64.py make FOLDER               writes the model
    f64.py max_abs FOLDER QUANTIZED  prints the largest error of a weight, by struct alone
"""

import json
import pathlib
import random
import struct
import sys

NAME, ROWS, COLS = "model.layers.0.mlp.up_proj", 32, 64


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def read(folder):
    raw = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    letters = {"F64": ("d", 8), "F32": ("f", 4), "U32": ("I", 4), "I32": ("I", 4)}

    def tensor(name):
        letter, size = letters[header[name]["dtype"]]
        begin, end = header[name]["data_offsets"]
        return struct.unpack(f"<{(end - begin) // size}{letter}", raw[8 + n + begin:8 + n + end])

    return header, tensor


def make(folder):
    path = pathlib.Path(folder)
    path.mkdir()
    values = [random.Random(i).gauss(0, 0.1) + 1000 for i in range(ROWS * COLS)]
    data = struct.pack(f"<{len(values)}d", *values)
    header = {NAME + ".weight": {"dtype": "F64", "shape": [ROWS, COLS], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text('{"model_type": "llama"}')


def max_abs(folder, quantized):
    values = read(folder)[1](NAME + ".weight")
    header, tensor = read(quantized)
    biased = NAME + ".biases" in header
    words = tensor(NAME + (".weight" if biased else ".weight_packed"))
    scales = tensor(NAME + (".scales" if biased else ".weight_scale"))
    biases = tensor(NAME + ".biases") if biased else None
    worst = 0
    for i, x in enumerate(values):
        code, group = words[i // 8] >> 4 * (i % 8) & 15, i // (len(values) // len(scales))
        y = f32(scales[group] * (code if biased else code - 8))
        worst = max(worst, abs(x - (f32(y + biases[group]) if biased else y)))
    print(worst)


{"make": make, "max_abs": max_abs}[sys.argv[1]](*sys.argv[2:])
