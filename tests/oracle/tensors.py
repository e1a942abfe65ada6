"""safetensors files as dictionaries of torch tensors; the container is a length, JSON and data."""

import json
import pathlib
import struct

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
          "U8": torch.uint8}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write(path, **tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + raw(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    data = pathlib.Path(path).read_bytes()
    n = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:n]).items():
        if name != "__metadata__":
            dtype, (begin, end) = DTYPES[entry["dtype"]], entry["data_offsets"]
            flat = (torch.frombuffer(bytearray(data[n + begin:n + end]), dtype=dtype)
                    if end > begin else torch.empty(0, dtype=dtype))
            tensors[name] = flat.reshape(entry["shape"])
    return tensors
