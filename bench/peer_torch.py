#!/usr/bin/env python3
"""What qplan does, in torch and safetensors, as well as they can on a CPU: a peer to compare with.

    peer_torch.py [--threads N] [--report FILE] int8|int4 IN OUT

int8: one scale per row. int4: one scale for 128 neighbours in a row, two codes in a byte. Tensors
are read through a mapping of the file; rows go through f32 in blocks that fit the cache, by the
formulas of qplan and with the operations that torch was measured to be fastest at; codes and scales
have the bits of those of qplan. --report gets the seconds that the imports took.
"""
import time

begin = time.monotonic()

import argparse

import torch
from safetensors import safe_open
from safetensors.torch import save_file

IMPORT_SECONDS = time.monotonic() - begin
BLOCK_ELEMS = 1 << 19
GROUP = 128


def quantize_rows(x, steps, scale, codes):
    """Codes of rows that have one scale each: the nearest of steps + 1 integers around 0."""
    size = x.abs().amax(dim=1).float().div_(steps / 2)
    scale.copy_(torch.where(size == 0, torch.ones_like(size), size))
    x = x.float().div_(scale[:, None]).round_()
    codes.copy_(x.clamp_(-((steps + 1) // 2), steps // 2))


def pack(codes, packed):
    """Two codes in a byte, the even one low: two bytes at a time, which is all that torch can."""
    pairs = codes.view(torch.int16)
    packed.copy_((pairs & 15).bitwise_or_((pairs >> 4).bitwise_and_(0xF0)))


def quantize(weight, scheme):
    steps, width = (255, weight.shape[1]) if scheme == "int8" else (15, GROUP)
    sets = weight.reshape(-1, width)
    rows, block = len(weight), max(1, BLOCK_ELEMS // width)
    scale = torch.empty(len(sets))
    if scheme == "int8":
        codes = torch.empty_like(weight, dtype=torch.int8)
    else:
        codes = torch.empty(len(sets), width // 2, dtype=torch.uint8)
    wide = torch.empty(block, width, dtype=torch.int8)
    for at in range(0, len(sets), block):
        part = sets[at:at + block]
        end = at + len(part)
        if scheme == "int8":
            quantize_rows(part, steps, scale[at:end], codes[at:end])
        else:
            quantize_rows(part, steps, scale[at:end], wide[:len(part)])
            pack(wide[:len(part)], codes[at:end])
    if scheme == "int4":
        codes, scale = codes.reshape(rows, -1), scale.reshape(rows, -1)
    return codes, scale, torch.zeros(scale.shape, dtype=torch.int8)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--report")
    parser.add_argument("scheme", choices=("int8", "int4"))
    parser.add_argument("source")
    parser.add_argument("out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {}
    with torch.inference_mode(), safe_open(options.source, framework="pt") as file:
        for name in file.keys():
            weight = file.get_tensor(name)
            if weight.dim() != 2:
                results[name] = weight
                continue
            results[name], results[name + "_scale"], results[name + "_zero_point"] = \
                quantize(weight, options.scheme)
    save_file(results, options.out)
    if options.report:
        with open(options.report, "w", encoding="ascii") as report:
            report.write(f"{IMPORT_SECONDS}\n")


if __name__ == "__main__":
    main()
