#!/usr/bin/env python3
"""Writes tiny-llama.safetensors: a Llama checkpoint in miniature, for demos and tests.

    tiny-llama.py            write it beside this script
    tiny-llama.py --check    make it again in memory and compare; exit 1 if it differs

Names, shapes and proportions are those of a Llama: 4 layers, hidden size 128,
feed-forward size 384, 4 query heads that share 2 key and value heads of size
32, vocabulary 512. The numbers are made up: near normal with heavy tails
(Student's t), a scale of its own for each row, a few columns and single
weights that stand out; standard deviation about 0.02.

`lm_head.weight` repeats the bytes of `model.embed_tokens.weight`: tied weights,
stored twice. (Where a writer removes the duplicate, `lm_head.weight` is simply
absent and config.json says "tie_word_embeddings": true.) `score.weight` is a
second, untied head. Only the standard library is used.
"""

import math
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "tiny-llama.safetensors")

LAYERS, HIDDEN, FFN, VOCABULARY = 4, 128, 384, 512
KEY_VALUE = 2 * 32      # two heads
CLASSES = 8
DEVIATION = 0.02


def random_words(seed):
    """xorshift64*: an endless stream of 64-bit words."""
    x = 0x9E3779B97F4A7C15 ^ seed
    while True:
        x ^= x >> 12
        x = (x ^ x << 25) % 2 ** 64
        x ^= x >> 27
        yield x * 0x2545F4914F6CDD1D % 2 ** 64


def normal(words):
    """Nearly normal, variance 1: four uniforms out of one word."""
    w = next(words)
    total = (w & 0xFFFF) + (w >> 16 & 0xFFFF) + (w >> 32 & 0xFFFF) + (w >> 48)
    return (total / 65536.0 - 2.0) * math.sqrt(3.0)


def student(words, freedom=5):
    """Student's t, scaled to variance 1: heavier tails than normal."""
    total = 0.0
    for _ in range(freedom):        # not sum(): its rounding depends on the Python version
        x = normal(words)
        total += x * x
    return normal(words) / math.sqrt(total / freedom + 1e-3) * math.sqrt((freedom - 2) / freedom)


def uniform(words):
    return (next(words) >> 11) / 2.0 ** 53


def bf16_bits(x):
    """The BF16 pattern nearest to x (single precision first, ties to even)."""
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def pack_bf16(values):
    return struct.pack("<%dH" % len(values), *map(bf16_bits, values))


def linear(rows, columns, words):
    """Weights of a linear layer."""
    loud = {next(words) % columns for _ in range(max(1, columns // 64))}
    gains = [3.0 if c in loud else 1.0 for c in range(columns)]
    values = []
    for _ in range(rows):
        u = uniform(words)
        spread = DEVIATION * (0.5 + 1.4 * u * u)
        values += [spread * gain * student(words) for gain in gains]
    for _ in range(max(1, rows * columns // 8192)):
        values[next(words) % len(values)] *= 12.0
    return pack_bf16(values)


def norm(words):
    """Weights of a layer norm: around 1."""
    return pack_bf16([1.0 + 0.1 * normal(words) for _ in range(HIDDEN)])


def tensors():
    """{name: (shape, bytes)}"""
    words = random_words(20)
    made = {}

    def add_linear(name, rows, columns):
        made[name + ".weight"] = (rows, columns), linear(rows, columns, words)

    def add_norm(name):
        made[name + ".weight"] = (HIDDEN,), norm(words)

    add_linear("model.embed_tokens", VOCABULARY, HIDDEN)
    for n in range(LAYERS):
        layer = "model.layers.%d." % n
        add_linear(layer + "self_attn.q_proj", HIDDEN, HIDDEN)
        add_linear(layer + "self_attn.k_proj", KEY_VALUE, HIDDEN)
        add_linear(layer + "self_attn.v_proj", KEY_VALUE, HIDDEN)
        add_linear(layer + "self_attn.o_proj", HIDDEN, HIDDEN)
        add_linear(layer + "mlp.gate_proj", FFN, HIDDEN)
        add_linear(layer + "mlp.up_proj", FFN, HIDDEN)
        add_linear(layer + "mlp.down_proj", HIDDEN, FFN)
        add_norm(layer + "input_layernorm")
        add_norm(layer + "post_attention_layernorm")
    add_norm("model.norm")
    made["lm_head.weight"] = made["model.embed_tokens.weight"]
    add_linear("score", CLASSES, HIDDEN)
    return made


def checkpoint():
    """Bytes of the file, as the reference writer orders them: one dtype, so by name."""
    made = sorted(tensors().items())
    entries = ['"__metadata__":{"format":"pt"}']
    begin = 0
    for name, (shape, data) in made:
        end = begin + len(data)
        entries.append('"%s":{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]}' % (
            name, ",".join(map(str, shape)), begin, end))
        begin = end
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + b"".join(data for _, (_, data) in made)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: tiny-llama.py [--check]")
    data = checkpoint()
    if sys.argv[1:]:
        with open(PATH, "rb") as f:
            sys.exit(0 if f.read() == data else "differs: " + PATH)
    with open(PATH, "wb") as f:
        f.write(data)
    print("%s: %d bytes" % (PATH, len(data)))


if __name__ == "__main__":
    main()
