"""Q. Folders of ModelOpt whose config.json does not say that they are quantized, but whose
hf_quant_config.json does: each claim of it is judged as those of config.json are. Where records or
config.json say it, that file counts for nothing.
"""

import json

from bench import INPUT, OUTPUT
from expect import words
from layout_folder import TEXTS_OF_NO_CONFIG
from st import ckpt, f32
from table import add

WEIGHT, BESIDE = "l.0.w.weight", "hf_quant_config.json"
COMMANDS = (["inspect", INPUT], ["dequantize", "-o", OUTPUT, INPUT],
            ["quantize", "--requantize", "--scheme", "int8:c0", "-o", OUTPUT, INPUT])
SAID = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
CONFIG = {"model_type": "llama"}
# Two rows of 16 codes, -1 and 1.5 by turns, of which each row has a scale, 1 and 2, and all a factor.
PARTS = {WEIGHT: ("U8", (2, 8), b"\x3a" * 16), WEIGHT + "_scale": ("F8_E4M3", (2, 1), b"\x38\x40"),
         WEIGHT + "_scale_2": ("F32", (), f32(2))}
DECODED = f32(*(sign * scale for scale in (2, 4) for _ in range(8) for sign in (-1, 1.5)))
PLAIN = {WEIGHT: ("F32", (2, 2), f32(1, 2, 3, 4))}


def write(bench, said, config=CONFIG, parts=PARTS, metadata=None):
    bench.write(ckpt(parts, metadata or {"format": "pt"}), f"{INPUT}/model.safetensors")
    if config is not None:
        bench.write(json.dumps(config).encode(), f"{INPUT}/config.json")
    text = said if isinstance(said, str) else json.dumps({"quantization": said})
    bench.write(text.encode(), f"{INPUT}/{BESIDE}")


def honest(id, said, config=CONFIG):
    def run(bench):
        write(bench, said, config)
        bench.accepted("dequantize", "-o", OUTPUT, INPUT, makes=[OUTPUT])
        raw = bench.bytes_of(f"{OUTPUT}/model.safetensors")
        bench.check(raw.endswith(DECODED), "the values are not those of the codes")
        bench.accepted("verify", INPUT, OUTPUT)
    add(id, run)


def refuse(id, said, *names, config=CONFIG, parts=PARTS):
    def run(bench):
        write(bench, said, config, parts)
        for command in COMMANDS:
            bench.refused(*command, names=(INPUT, *names))
    add(id, run)


def plain(id, said):
    """What says nothing of weights leaves a folder as it is."""
    def run(bench):
        write(bench, said, parts=PLAIN)
        result = bench.accepted("inspect", INPUT)
        bench.check(b"0 quantized" in result.out, "it is not plain")
    add(id, run)


honest("Q1-beside", SAID)
honest("Q1-beside-weights-alone", {"quant_algo": "W4A16_NVFP4"})
honest("Q1-beside-more", {**SAID, "has_zero_point": False, "x": {"y": [1]}})
honest("Q1-beside-alone", SAID, None)
honest("Q1-beside-config-counts", "{", {**CONFIG, "quantization_config": {
    "quant_method": "modelopt", "quant_algo": "NVFP4"}})
plain("Q1-beside-cache", {**SAID, "quant_algo": None})
plain("Q1-beside-nothing", "{}")
plain("Q1-beside-other", '{"quantization_config": {"quant_algo": "NVFP4"}}')
for i, algo in enumerate(("FP8", "nvfp4", "MIXED_PRECISION", "W4A8_NVFP4_FP8", "", 1, [], {}, True)):
    refuse(f"Q17-beside-algo-{i}", {**SAID, "quant_algo": algo}, BESIDE, "quant_algo")
for i, said in enumerate((None, 1, "NVFP4", [], {}, {"group_size": 16})):
    refuse(f"Q17-beside-value-{i}", json.dumps({"quantization": said}), BESIDE, "quant_algo")
for i, size in enumerate((0, 8, 17, 32, -16, 16.5, "16", None, [], True, 2 ** 64 + 16)):
    refuse(f"Q17-beside-size-{i}", {**SAID, "group_size": size}, BESIDE, "group_size")
for name, text in TEXTS_OF_NO_CONFIG.items():
    refuse(f"Q17-beside-{name}", text, BESIDE, words("byte|object"))
said = json.dumps(SAID)
for name, text in {"member": f'{{"quantization": {{}}, "quantization": {said}}}',
                   "escaped": f'{{"quantizatio\\u006e": {{}}, "quantization": {said}}}',
                   "key": '{"quantization": {"quant_algo": "FP8", "quant_algo": "NVFP4"}}'}.items():
    refuse(f"Q17-beside-twice-{name}", text, BESIDE, words("twice"))
refuse("Q3-beside-no-scales", SAID, WEIGHT, parts={n: t for n, t in PARTS.items() if n != WEIGHT})
