"""What the soak makes at random: models as files and as folders, files of importance and of Hessians
for them, commands on what there is, and faults. Presets and layouts are asked of the program, so
that new ones come by themselves.
"""

import json
import math
import struct
from dataclasses import dataclass

import checkpoint
from checkpoint import WIDTH

# Sources. Outputs are mostly called like theirs, with a letter before: q is quantized, d is decoded.
FILES, FOLDERS = [f"file{i}" for i in range(6)], [f"folder{i}" for i in range(4)]
PLANS = [f"plan{i}" for i in range(2)]
SCHEMES = ("int8:c0", "int8:t", "int8:c1", "int4:g32:asym", "uint8:b16x8", "uint4:g16:f16", "int4:g7",
           "nf4:g8", "fp8:c0", "mxfp4", "uint3:g8:bias", "int6:c0:narrow")
METHODS = ("minmax", "mse", "mse:best", "entropy", "percentile:99", "ldlq")
CANDIDATES = ("int4:g32,int8:c0,keep", "int8:c0,keep", "nf4:g16,int8:c0", "int2:t,int4:t,int8:t")
ERRORS = {"open": ("EACCES", "EMFILE", "EIO"), "tmpfile": ("EOPNOTSUPP", "ENOSPC"),
          "pread": ("EIO", "ESTALE"), "pwrite": ("ENOSPC", "EIO"),
          "fsync": ("EIO", "EINVAL"), "close": ("EIO",), "linkat": ("EXDEV", "EEXIST"),
          "renameat": ("EACCES", "EINVAL"), "fstat": ("EIO",), "fstatvfs": ("ENOSYS",),
          "pthread_create": ("EAGAIN",), "malloc": ("ENOMEM",)}
MODES = ("once", "once", "forever", "every", "eintr", "short", "one-byte", "INT", "TERM", "HUP")


# ---- Models --------------------------------------------------------------------------------------

def damaged(chance, raw):
    """The bytes with something wrong."""
    raw, kind = bytearray(raw), chance.randrange(3)
    if kind == 0:
        del raw[chance.randrange(len(raw)):]
    elif kind == 1:
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    else:
        raw[chance.randrange(min(200, len(raw)))] = chance.randrange(256)
    return bytes(raw)


def perhaps_damaged(chance, raw):
    return damaged(chance, raw) if chance.random() < 0.15 else raw


def tensors_of_file(chance):
    return {f"t{i}.{chance.choice(('weight', 'bias', 'norm'))}":
            (chance.choice(list(WIDTH)),
             [chance.randrange(0 if chance.random() < 0.1 else 1, 40)
              for _ in range(chance.randrange(1, 4))])
            for i in range(chance.randrange(1, 12))}


def tensors_of_shard(chance, block):
    """A block as models have it, of a size that the groups of most layouts divide."""
    extents = (128, 256) if chance.random() < 0.8 else (64, 96)
    dtype, columns = chance.choice(("BF16", "F16", "F32")), chance.choice(extents)
    stem = f"model.layers.{block}."
    weights = chance.sample(("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"), 2)
    return {**{f"{stem}{w}.weight": (dtype, [chance.choice(extents), columns]) for w in weights},
            f"{stem}input_layernorm.weight": (dtype, [columns])}


def statistics(tensors):
    """Files of importance and of Hessians for the weights: header and data of each."""
    def file(entries):
        header, data = {}, b""
        for name, (shape, values) in entries.items():
            raw = struct.pack(f"<{len(values)}f", *values)
            header[name] = {"dtype": "F32", "shape": shape,
                            "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    weights = {name: shape[-1] for name, (_, shape) in tensors.items()
               if len(shape) > 1 and math.prod(shape) > 0}
    # Every input goes a little with every other one.
    hessians = {f"{name}.hessian": ([n, n], [1 + k % 5 if i == k else 0.25 for i in range(n)
                                             for k in range(n)]) for name, n in weights.items()}
    return {"importance": file({name: ([n], [0.5 + k % 3 for k in range(n)])
                                for name, n in weights.items()}), "hessian": file(hessians)}


def folder_of(chance):
    """The files of a folder of one shard, or of several with an index; and its tensors."""
    n_shards, files, everything, places = chance.randrange(1, 4), {}, {}, {}
    for i in range(n_shards):
        tensors = tensors_of_shard(chance, i)
        name = "model.safetensors" if n_shards == 1 else f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        files[name] = checkpoint.make(tensors, chance.random())
        everything.update(tensors)
        places.update(dict.fromkeys(tensors, name))
    if n_shards > 1:
        files["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()
    files["config.json"] = b'{"model_type": "llama", "torch_dtype": "bfloat16"}'
    files["tokenizer.json"] = b"{}"
    return files, everything


def write_models(chance, write):
    """All files and folders that the commands of one round start from; write(path, bytes)."""
    known = {}
    for name in FILES:
        known[name] = tensors_of_file(chance)
        write(name, perhaps_damaged(chance, checkpoint.make(known[name], chance.random())))
    for name in FOLDERS:
        files, known[name] = folder_of(chance)
        wrong = chance.choice(list(files)) if chance.random() < 0.15 else None
        for file, raw in files.items():
            write(f"{name}/{file}", damaged(chance, raw) if file == wrong else raw)
    for name, tensors in known.items():
        for kind, raw in statistics(tensors).items():
            write(f"{name}.{kind}", perhaps_damaged(chance, raw))


# ---- Commands ------------------------------------------------------------------------------------

@dataclass
class Picker:
    """One command to be made: what there is, and what it may write."""
    chance: object
    presets: list
    layouts: list
    made: list = ()     # outputs of earlier commands

    def one(self, *words):
        return self.chance.choice(words)

    def some(self, share, *words):
        return list(words) if self.chance.random() < share else []

    def source(self):
        return self.one(*FILES, *FOLDERS)

    def model(self, letters="qd"):
        """Mostly what an earlier command has made; the letters are those of its name."""
        made = [name for name in self.made if name[0] in letters]
        return self.one(*(made if made and self.chance.random() < 0.85 else FILES + FOLDERS))

    def machine(self):
        return ["--threads", self.one("1", "2", "4"), *self.some(0.3, "--memory", self.one("1K", "512K", "4M", "4M"))]

    def output(self, letter, source):
        """Mostly called like the source, with the letter before."""
        self.out = letter + (source if self.chance.random() < 0.8 else self.source())
        return ["-o", self.out, *self.some(0.5, "--force")]

    def statistics(self, source):
        """Importance, Hessians or nothing; mostly those of the source."""
        base = source.lstrip("qd") if self.chance.random() < 0.9 else self.source()
        return self.one([], [], [], ["--importance", f"{base}.importance", "--calibrate", "mse"],
                        ["--hessian", f"{base}.hessian"])

    def asked(self, source):
        """The options of a plan."""
        how = self.one("scheme", "target", "preset", "preset") if "folder" in source else \
            self.one("scheme", "scheme", "scheme", "target", "preset")
        if how == "preset":
            words = ["--preset", self.one(*self.presets), *self.some(0.1, "--arithmetic", "reference"),
                     *self.some(0.8, "--indivisible", "keep")]
        elif how == "target":
            words = ["--candidates", self.one(*CANDIDATES), *self.one(
                ["--target-bpw", self.one("6", "9", "14")], ["--target-size", self.one("8K", "64K", "1M")])]
        else:
            words = ["--scheme", self.one(*SCHEMES), *self.some(0.1, "--format", self.one(*self.layouts)),
                     *self.some(0.9, "--indivisible", self.one("error", "keep", "keep", "ragged"))]
        method = self.statistics(source) or self.some(0.3, "--calibrate", self.one(*METHODS))
        return [*words, *method, *self.some(0.1, "--select", self.one("all", "linear")),
                *self.some(0.8 if source[0] in "qd" else 0.1, "--requantize")]


def quantize(pick):
    source = pick.source() if pick.chance.random() < 0.8 else pick.model()
    plans = [name for name in pick.made if name in PLANS]
    how = pick.some(0.1, "--plan", pick.one(*plans)) if plans else []
    return ["quantize", *(how or pick.asked(source)), *pick.machine(), *pick.one(
        [], [], ["--verify"], ["--json"], ["--fail-if", "sqnr_db<3"], ["--dry-run"]),
        *([] if how or "folder" not in source else pick.some(0.2, "--max-shard-size", "64K")),
        *pick.output("q", source), source]


def verify(pick):
    """Mostly against the source that the name tells."""
    model = pick.model("q")
    source = model.lstrip("qd") if pick.chance.random() < 0.9 else pick.source()
    return ["verify", *pick.machine(), *pick.one(
        [], [], ["--exact"], ["--exact", "--hessian", f"{source}.hessian"], ["--allow-unproven"],
        ["--exact", "--importance", f"{source}.importance"]), model, source]


def inspect(pick):
    model = pick.model()
    return ["inspect", *pick.one([], ["--json"], ["--against", model.lstrip("qd")],
                                 ["--sensitivity", "--candidates", pick.one(*CANDIDATES)]), model]


def plan(pick):
    source = pick.source()
    pick.out = pick.one(*PLANS)
    return ["plan", *pick.asked(source), "-o", pick.out, *pick.some(0.5, "--force"), source]


def explain(pick):
    source = pick.source()
    return ["explain", *pick.some(0.5, "--json"), *pick.asked(source), source]


def dequantize(pick):
    model = pick.model("q")
    return ["dequantize", *pick.machine(), *pick.some(0.3, "--dtype", pick.one("f32", "f16", "bf16")),
            *pick.output("d", model), model]


def convert(pick):
    model = pick.model("q")
    layout = pick.one("qplan", "compressed-tensors", *pick.layouts)
    return ["convert", "--format", layout, *pick.machine(), *pick.output("q", model), model]


def lint(pick):
    return ["lint", *pick.some(0.5, "--json"),
            *pick.some(0.5, "--for", pick.one("vllm", "sglang", "transformers", "mlx", "comfyui")),
            pick.model("q")]


def odd(pick):
    source = pick.model()
    return pick.one(["quantize"], ["inspect", "absent"], ["verify", source], ["help", "quantize"],
                    ["quantize", "--threads", "0", source], ["clean", source], ["devices"],
                    ["op"], ["completions", "bash"])


# How often each comes.
COMMANDS = {quantize: 8, verify: 3, inspect: 2, plan: 2, explain: 1, dequantize: 2, convert: 3, lint: 2,
            odd: 1}


def make_command(pick):
    """The words of a random command, and the name that it writes, if any."""
    pick.out = None
    kind = pick.chance.choices(list(COMMANDS), list(COMMANDS.values()))[0]
    return kind(pick), pick.out


# ---- Faults --------------------------------------------------------------------------------------

def make_fault(chance):
    """A rule of preload.c, or None, and whether a run may have been kept from removing its folder."""
    if chance.random() < 0.3:
        return None, False
    call = chance.choice(list(ERRORS))
    modes = [m for m in MODES if m != "eintr" or call != "malloc"]  # it fails with ENOMEM alone
    rule = (f"call={call},n={int(2 ** chance.uniform(0, 8))},mode={chance.choice(modes)},"
            f"errno={chance.choice(ERRORS[call])}")
    return rule, call in ("open", "malloc", "fstat")
