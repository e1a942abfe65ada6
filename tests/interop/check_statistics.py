#!/usr/bin/env python3
"""examples/collect_statistics.py on a tiny model, against sums that are made in another way, and
`qplan quantize` with what it wrote.

    check_statistics.py --qplan PROGRAM

Exit 77, with the reason, where the environment of the interop tests is missing.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = " ".join(f"w{i * i % 317}" for i in range(900))


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(good, what):
    if not good:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True, type=lambda path: pathlib.Path(path).resolve())
    qplan = parser.parse_args().qplan
    run.enter("transformers")
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import load_file

    import model_table
    import models
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    collect = [sys.executable, ROOT / "examples" / "collect_statistics.py"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.make(model_table.MODELS["llama"], folder / "model")
        (folder / "text.txt").write_text(TEXT)
        inputs = [folder / "model", folder / "text.txt", "--length", 48]
        print(call(*collect, *inputs, "-o", folder / "i", "--hessian", folder / "h"), end="")
        call(*collect, *inputs, "-o", folder / "i2", "--hessian", folder / "b", "--block", 32)
        call(*collect, *inputs, "-o", folder / "few", "--tokens", 100)
        importance, hessian = load_file(folder / "i"), load_file(folder / "h")
        with safe_open(folder / "h", framework="pt") as file:
            shared = file.metadata()

        # What a layer gets, taken from the outputs of the one before it.
        network = transformers.LlamaForCausalLM.from_pretrained(folder / "model").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
        ids = tokenizer(TEXT, return_tensors="pt").input_ids[0]
        seen = []
        network.model.layers[1].input_layernorm.register_forward_hook(
            lambda module, given, made: seen.append(made.reshape(-1, made.shape[-1]).double()))
        with torch.no_grad():
            for row in ids.split(48):
                network(row[None])
        rows = torch.cat(seen)
        layer = "model.layers.1.self_attn."
        mean = rows.T @ rows / len(rows)
        check(torch.allclose(hessian[f"{layer}q_proj.weight.hessian"].double(), mean, rtol=1e-5,
                             atol=1e-7 * mean.abs().max().item()), "products of q_proj")
        check(torch.equal(importance[f"{layer}q_proj.weight_importance"],
                          hessian[f"{layer}q_proj.weight.hessian"].diagonal()),
              "mean squares are the diagonal")
        check(all(shared.get(f"{layer}{kind}_proj.weight") == f"{layer}q_proj.weight"
                  for kind in "kv"), "key and value share it")
        check(shared.get("model.layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.gate_proj.weight",
              "gate and up share theirs")
        blocks = load_file(folder / "b")["model.layers.0.mlp.down_proj.weight.hessian"]
        whole = hessian["model.layers.0.mlp.down_proj.weight.hessian"]
        check(blocks.shape == (8, 32, 32) and all(
            torch.equal(blocks[i], whole[32 * i:32 * i + 32, 32 * i:32 * i + 32]) for i in range(8)),
              "blocks are those of the whole")
        check(not torch.equal(load_file(folder / "few")[f"{layer}q_proj.weight_importance"],
                              importance[f"{layer}q_proj.weight_importance"]), "--tokens stops sooner")

        report = json.loads(call(qplan, "quantize", "-q", "--json", "--select", "linear", "--calibrate",
                                 "mse", "--importance", folder / "i", "--importance-missing", "error",
                                 "-o", folder / "out", folder / "model"))
        made = [row["calibrate"] for row in report["tensors"] if row["action"] == "quantize"]
        check(made and set(made) == {"mse:fast+importance"}, "qplan knows every weight by its name")


if __name__ == "__main__":
    main()
