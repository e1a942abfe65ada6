"""The experts of a layer in one tensor, or each in its own: gate, up and down.

Some models are stored with 3-D tensors of experts, which engines want split; MLX wants those of
single experts stacked, under names of its own, and those of gpt-oss divided by projections.
"""

import re

import numpy as np

from stored import Stored

FUSED = re.compile(r"(.*\.experts)\.(gate_up|down)_proj")
SINGLE = re.compile(r"(.*)\.experts\.(\d+)\.(\w+)\.weight")
MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def bits(tensor):
    return np.frombuffer(tensor.data, f"u{len(tensor.data) // np.prod(tensor.shape)}"
                         ).reshape(tensor.shape)


def with_bits(tensor, array):
    return Stored(tensor.dtype, array.shape, np.ascontiguousarray(array).tobytes())


def split_experts(tensors, transposed):
    """Fused tensors [experts, out, in], or [experts, in, out] if transposed, expert by expert."""
    found = {}
    for name, tensor in tensors.items():
        match = FUSED.fullmatch(name)
        if not match:
            found[name] = tensor
            continue
        for number, matrix in enumerate(bits(tensor)):
            parts = match[2].split("_")
            halves = np.split(matrix.T if transposed else matrix, len(parts))
            for part, half in zip(parts, halves):
                found[f"{match[1]}.{number}.{part}_proj.weight"] = with_bits(tensor, half)
    return found


def join_experts(tensors, transposed):
    """What split_experts split, as it was."""
    stacks = {name: tensor for name, tensor in tensors.items() if not SINGLE.fullmatch(name)}
    prefixes = {match[1] for match in map(SINGLE.fullmatch, tensors) if match}
    for prefix in prefixes:
        for fused in ("gate_up", "down"):
            matrices, number = [], 0
            while f"{prefix}.experts.{number}.down_proj.weight" in tensors:
                parts = [tensors[f"{prefix}.experts.{number}.{part}_proj.weight"]
                         for part in fused.split("_")]
                matrix = np.concatenate([bits(part) for part in parts])
                matrices.append(matrix.T if transposed else matrix)
                number += 1
            stacks[f"{prefix}.experts.{fused}_proj"] = with_bits(parts[0], np.stack(matrices))
    return stacks


def divide_experts(tensors):
    """Experts of gpt-oss, [experts, in, out] with gate and up by turns, as mlx-lm names them."""
    found = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj(_bias)?", name)
        if not match:
            found[name] = tensor
            continue
        array, parts = bits(tensor), match[2].split("_")
        for i, part in enumerate(parts):
            mine = array[..., i::len(parts)]
            found[f"{match[1]}.{part}_proj.{'bias' if match[3] else 'weight'}"] = with_bits(
                tensor, mine if match[3] else mine.transpose(0, 2, 1))
    return found


def stack_experts(tensors):
    """Tensors of single experts as MLX stacks and names them."""
    stacks, found = {}, {}
    for name, tensor in tensors.items():
        match = SINGLE.fullmatch(name)
        if not match:
            found[name] = tensor
            continue
        prefix, number, projection = match.groups()
        stack = f"{prefix}.switch_mlp.{MIXTRAL.get(projection, projection)}.weight"
        stacks.setdefault(stack, {})[int(number)] = tensor
    for name, experts in stacks.items():
        array = np.stack([bits(experts[i]) for i in range(len(experts))])
        found[name] = with_bits(experts[0], array)
    return found
