"""The programs that qplan is compared with, where they are on the machine."""

import json
import os
import shutil
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = ["{python}", "{bench}/peer_torch.py", "--threads", "{threads}", "--report", "{report}"]


class Peer:
    """A program: why it is lacking, or its commands, one for each scheme."""

    def __init__(self, name, lacking, commands):
        self.name, self.lacking, self.commands = name, lacking, commands


def python_of(options):
    return os.path.join(options.venv, "bin", "python3") if options.venv else ""


def lacking_torch(options):
    if not options.venv:
        return "no --venv"
    try:
        subprocess.run([python_of(options), "-c", "import torch, safetensors.torch"], check=True,
                       capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return None


def lacking_llama(_):
    return None if shutil.which("llama-quantize") else "no llama-quantize on PATH"


# The schemes of llama-quantize have blocks of 32 with f16 scales: comparable work for each byte,
# not the same format. --pure keeps it from giving some tensors another type.
PEERS = (
    Peer("torch + safetensors", lacking_torch,
         (("int8 per channel", [*TORCH, "int8", "{bf16}", "{out}"]),
          ("int4 g128", [*TORCH, "int4", "{bf16}", "{out}"]))),
    Peer("llama-quantize", lacking_llama,
         (("int8 (Q8_0)", ["{llama}", "--pure", "{gguf}", "{out}", "Q8_0", "{threads}"]),
          ("int4 (Q4_0)", ["{llama}", "--pure", "{gguf}", "{out}", "Q4_0", "{threads}"]))),
)


def places(options):
    return {"python": python_of(options), "bench": HERE, "llama": shutil.which("llama-quantize")}


# ---- GGUF, the source of llama-quantize ----------------------------------------------------------

U32, F32, STRING = 4, 6, 8  # types of metadata
BF16, ALIGNMENT = 30, 32
NAMES = (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
         ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
         ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
         ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
         ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
         ("lm_head", "output"), ("model.layers.", "blk."))


def gguf_name(name):
    for ours, theirs in NAMES:
        name = name.replace(ours, theirs)
    return name


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_metadata(n_layers):
    entries = (("general.architecture", STRING, gguf_text("llama")),
               ("llama.block_count", U32, struct.pack("<I", n_layers)),
               ("llama.context_length", U32, struct.pack("<I", 4096)),
               ("llama.embedding_length", U32, struct.pack("<I", 4096)),
               ("llama.feed_forward_length", U32, struct.pack("<I", 11008)),
               ("llama.attention.head_count", U32, struct.pack("<I", 32)),
               ("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    return len(entries), b"".join(gguf_text(key) + struct.pack("<I", kind) + value
                                  for key, kind, value in entries)


def aligned(n):
    return -(-n // ALIGNMENT) * ALIGNMENT


def write_gguf(source, target):
    """The tensors of a checkpoint of make.c as GGUF, so that a peer has the same weights."""
    with open(source, "rb") as file, open(target, "wb") as out:
        begin = 8 + struct.unpack("<Q", file.read(8))[0]
        tensors = {name: entry for name, entry in json.loads(file.read(begin - 8)).items()
                   if name != "__metadata__"}
        n_layers = len({name.split(".")[2] for name in tensors if name.startswith("model.layers.")})
        n_entries, metadata = gguf_metadata(n_layers)
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_entries) + metadata)
        at = 0
        for name, entry in tensors.items():
            shape = entry["shape"][::-1]  # the fastest dimension first
            out.write(gguf_text(gguf_name(name)) +
                      struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, BF16, at))
            at = aligned(at + entry["data_offsets"][1] - entry["data_offsets"][0])
        out.write(bytes(aligned(out.tell()) - out.tell()))
        for entry in tensors.values():
            first, last = entry["data_offsets"]
            file.seek(begin + first)
            copy(file, out, last - first)
            out.write(bytes(aligned(last - first) - (last - first)))


def copy(file, out, n_bytes):
    while n_bytes > 0:
        n_bytes -= out.write(file.read(min(n_bytes, 1 << 20)))
