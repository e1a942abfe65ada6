#!/usr/bin/env python3
"""shards.py FOLDER NEW: the checkpoint of a folder in two shards, and what is beside it."""

import json
import pathlib
import struct
import sys

source, new = (pathlib.Path(path) for path in sys.argv[1:])
raw = (source / "model.safetensors").read_bytes()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
header.pop("__metadata__", None)
new.mkdir()
names, weight_map, total = sorted(header), {}, 0
for i, part in enumerate((names[::2], names[1::2])):
    shard, data = {}, b""
    for name in part:
        begin, end = header[name]["data_offsets"]
        shard[name] = {**header[name], "data_offsets": [len(data), len(data) + end - begin]}
        data += raw[8 + n + begin:8 + n + end]
    text = json.dumps(shard).encode()
    text += b" " * (-len(text) % 8)
    file = f"model-0000{i + 1}-of-00002.safetensors"
    (new / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
    weight_map.update(dict.fromkeys(part, file))
    total += len(data)
index = {"metadata": {"total_size": total}, "weight_map": weight_map}
(new / "model.safetensors.index.json").write_text(json.dumps(index))
for file in ("config.json", "tokenizer.json"):
    (new / file).write_bytes((source / file).read_bytes())
