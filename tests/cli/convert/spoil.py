#!/usr/bin/env python3
"""Adds a number to the first word of each stored tensor of a folder whose name ends so.

    spoil.py FOLDER SUFFIX ADDED
"""

import json
import pathlib
import struct
import sys

path = pathlib.Path(sys.argv[1]) / "model.safetensors"
raw = bytearray(path.read_bytes())
n = struct.unpack("<Q", raw[:8])[0]
for name, tensor in json.loads(raw[8:8 + n]).items():
    if name.endswith(sys.argv[2]):
        at = 8 + n + tensor["data_offsets"][0]
        word = struct.unpack_from("<I", raw, at)[0] + int(sys.argv[3])
        struct.pack_into("<I", raw, at, word % 2 ** 32)
path.write_bytes(raw)
