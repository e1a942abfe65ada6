"""Folders, or files, as dictionaries of torch tensors, and back to stored ones."""

import pathlib

import torch
from safetensors.torch import load_file

from stored import Stored

NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8",
         torch.float8_e4m3fn: "F8_E4M3", torch.float8_e8m0fnu: "F8_E8M0",
         torch.float8_e5m2: "F8_E5M2"}


def read(folder):
    tensors = {}
    path = pathlib.Path(folder)
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        tensors.update(load_file(file))
    return tensors


def to_stored(tensor):
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return Stored(NAMES[tensor.dtype], tuple(tensor.shape), flat.numpy().tobytes())
