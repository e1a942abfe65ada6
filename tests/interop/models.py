"""The models of model_table.py as transformers saves them.

Weights are random with a fixed seed and large enough that no layer's answer vanishes.
"""

import json

import tokenizers
import torch
import transformers

from model_table import BASE


def dtype(model):
    return getattr(torch, model.dtype)


def make(model, folder):
    """Saves the model; the same bytes each time."""
    torch.manual_seed(20261118)
    config = getattr(transformers, model.config)(**model.settings)
    network = getattr(transformers, model.architecture)(config).to(dtype(model))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() >= 2:
                # The answers of a layer have the size of its inputs.
                parameter.copy_(torch.randn(parameter.shape) * parameter.shape[-1] ** -0.5)
            elif "bias" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.1)
    network.save_pretrained(folder, **({"max_shard_size": model.shards} if model.shards else {}))
    make_tokenizer(folder)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, **model.extra}, indent=2) + "\n")


def make_tokenizer(folder):
    """One word for each id: some tools take no model without a tokenizer."""
    words = {f"w{i}": i for i in range(BASE["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", bos_token="w1",
                                         eos_token="w2", pad_token="w0").save_pretrained(folder)


IDS = torch.randint(3, 300, (1, 24), generator=torch.Generator().manual_seed(1))


def inputs(model):
    """What the model is asked by every engine; one with a vision tower sees a picture."""
    if model.name != "qwen2-vl":
        return {"input_ids": IDS}
    generator = torch.Generator().manual_seed(2)
    ids = IDS.clone()
    ids[0, 3], ids[0, 4:8], ids[0, 8] = 310, 313, 311
    return {"input_ids": ids, "image_grid_thw": torch.tensor([[1, 4, 4]]),
            "mm_token_type_ids": (ids == 313).int(),
            "pixel_values": torch.randn(16, 3 * 2 * 14 * 14, generator=generator).to(dtype(model))}
