"""Folders as dictionaries of torch tensors, and back to stored ones."""

import pathlib

import torch
from safetensors.torch import load_file

from stored import Stored

NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8"}


def read(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def to_stored(tensor):
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return Stored(NAMES[tensor.dtype], tuple(tensor.shape), flat.numpy().tobytes())
