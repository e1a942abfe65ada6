"""Q. Folders of fp8 whose scales are floats of some type, or, by "scale_fmt", exponents in bytes. What
is honest is read; a scale that is no number above 0, and a config.json that says otherwise than the
tensors do, is refused by every command that reads values. Floats that are meant to be powers of two
need not be: engines multiply by any, and the folder of DeepSeek-V3.1 has one that is none.
"""

import json
import struct

from bench import INPUT, OUTPUT
from expect import tensor, words
from st import ckpt
from table import add

CODES, SCALES = "l.0.w.weight", "l.0.w.weight_scale_inv"
COMMANDS = (["inspect", INPUT], ["dequantize", "-o", OUTPUT, INPUT],
            ["quantize", "--requantize", "--scheme", "int8:c0", "-o", OUTPUT, INPUT])
RECORD = {"format": "pt", "qplan.layout": "2", "qplan.numerics": "1", "qplan.tensors": json.dumps(
    {CODES: "f8e4m3:b128x128 minmax F32 5x130"})}


def floats(*values):
    return "F32", struct.pack(f"<{len(values)}f", *values)


def write(bench, stored, scale_fmt, metadata):
    dtype, raw = stored
    config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "scale_fmt": scale_fmt}
    if scale_fmt == "none":
        del config["scale_fmt"]
    bench.write(ckpt({CODES: ("F8_E4M3", (5, 130), b"\x3a" * 650), SCALES: (dtype, (1, 2), raw)},
                     metadata), f"{INPUT}/model.safetensors")
    bench.write(json.dumps({"model_type": "llama", "quantization_config": config}).encode(),
                f"{INPUT}/config.json")


def honest(id, stored, scale_fmt="ue8m0"):
    def run(bench):
        write(bench, stored, scale_fmt, {"format": "pt"})
        bench.accepted(*COMMANDS[0])
        bench.accepted(*COMMANDS[1], makes=[OUTPUT])
        bench.accepted("verify", INPUT, OUTPUT)
    add(id, run)


def refuse(id, stored, *names, scale_fmt="ue8m0", metadata=None):
    def run(bench):
        write(bench, stored, scale_fmt, metadata or {"format": "pt"})
        for command in COMMANDS:
            bench.refused(*command, names=(INPUT, *names))
    add(id, run)


honest("Q1-fp8-powers-F32", floats(2.0 ** -149, 2.0 ** 100))
honest("Q1-fp8-powers-E8M0", ("F8_E8M0", b"\x00\xf0"))
honest("Q1-fp8-powers-U8", ("U8", b"\x7f\x80"))
honest("Q1-fp8-powers-float", floats(0.3, 3.0), "float")
for name, value in {"half-more": 1.5, "next": 1.0000001, "three": 3.0, "published": 8.07e-05}.items():
    for i, values in enumerate(((value, 1.0), (1.0, value))):
        honest(f"Q1-fp8-powers-{name}-{i}", floats(*values))
HALVES = {"BF16": lambda *values: b"".join(struct.pack("<f", value)[2:] for value in values),
          "F16": lambda *values: struct.pack(f"<{len(values)}e", *values)}
for dtype, pack in HALVES.items():
    for scale_fmt in ("none", "float", "ue8m0"):
        honest(f"Q1-fp8-powers-{dtype}-{scale_fmt}", (dtype, pack(0.5, 0.75)), scale_fmt)
for name, value in {"zero": 0.0, "minus": -2.0, "nan": float("nan"), "inf": float("inf")}.items():
    for i, values in enumerate(((value, 1.0), (1.0, value))):
        for dtype, raw in {"F32": floats(*values)[1], **{d: pack(*values) for d, pack in HALVES.items()}}.items():
            refuse(f"Q8-fp8-powers-{dtype}-{name}-{i}", (dtype, raw), tensor(SCALES),
                   words(f"bad scale of set {i}: expected a finite number above 0, found"))
for dtype in ("F8_E8M0", "U8"):
    refuse(f"Q8-fp8-powers-{dtype}", (dtype, b"\x7f\xff"), tensor(SCALES), words("bad scale of set 1"))
    for scale_fmt in ("none", "float"):
        refuse(f"Q4-fp8-powers-{dtype}-{scale_fmt}", (dtype, b"\x7f\x7f"), tensor(SCALES), "F32", dtype,
               scale_fmt=scale_fmt)
for dtype, n_bytes in {"F8_E4M3": 1, "I16": 2, "F64": 8}.items():
    refuse(f"Q4-fp8-powers-{dtype}", (dtype, b"\x38" * 2 * n_bytes), tensor(SCALES), "F32", dtype)
for dtype, pack in HALVES.items():      # qplan writes F32
    refuse(f"Q4-fp8-powers-{dtype}-recorded", (dtype, pack(0.5, 1.0)), tensor(SCALES), "F32", dtype,
           scale_fmt="none", metadata=RECORD)
for i, value in enumerate(("UE8M0", "e8m0", "", 1, None, [], {}, ["ue8m0"])):
    refuse(f"Q17-fp8-powers-{i}", floats(1.0, 1.0), "config.json", "scale_fmt", "float or ue8m0",
           scale_fmt=value)
refuse("Q17-fp8-powers-recorded", floats(1.0, 1.0), "config.json", "scale_fmt", words("recorded"),
       metadata=RECORD)
