"""The first inputs of the fuzz targets for folders and for config.json, for seeds.py.

Honest folders come from the classes of the fault table, which know a layout without the program;
fuzz_folder.c has the form.
"""

import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import rows_beside
from layout_folder import TEXTS_OF_NO_CONFIG, FolderFile
from layouts import LAYOUTS
from st import ckpt


def joined(config, index, file):
    """The parts of an input; file: bytes of a safetensors file."""
    n = struct.unpack("<Q", file[:8])[0]
    return b"\0".join([config.encode(), index.encode(), file[8:8 + n], file[8 + n:]])


def folders():
    """Every scheme of every layout, and one with an index. What is described within its file needs
    no config.json."""
    for layout in LAYOUTS:
        for scheme in layout.schemes:
            file = layout.honest(scheme)
            config = json.dumps(file.config) if isinstance(file, FolderFile) else ""
            raw = file.content().data
            yield f"{layout.name}-{scheme}", joined(config, "", raw)
            if scheme == layout.base:
                index = json.dumps({"metadata": {"total_size": 1},
                                    "weight_map": dict.fromkeys(file.tensors, "a.safetensors")})
                yield f"{layout.name}-index", joined(config, index, raw)
    yield "modelopt-beside", joined("!" + json.dumps({"quantization": rows_beside.SAID}), "",
                                    ckpt(rows_beside.PARTS).data)
    yield "no-tensors", joined("{}", "", ckpt({}).data)


def configs():
    described = '"quantization_config": {"a": [1, {}], "b": {"c": "}"}}'
    yield "lines", '{\n  "a": 1,\n  ' + described + ',\n  "b": {\n    "c": []\n  }\n}\n'
    yield "last", '{\r\n\t"a": 1e400,\r\n\t' + described + "\r\n}"
    yield "both", "{" + described + ', "a\\u007b": "\\"}", "quantization": null}'
    yield "none", '{"a": 1}'
    yield "no-members", "{ }"
    yield "inside-twice", '{"quantization": {"a": 1, "b": {"c": 1, "c": 2}}}'
    for name, text in TEXTS_OF_NO_CONFIG.items():
        yield "no-" + name, text[:200]


def everything():
    """{path in corpus/: bytes}"""
    files = {"folder/" + name: data for name, data in folders()}
    return files | {"config/" + name: text.encode() for name, text in configs()}
