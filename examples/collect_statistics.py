#!/usr/bin/env python3
"""Runs text through a transformers model and writes what `qplan quantize` can use of it.

    collect_statistics.py MODEL TEXT... -o importance.safetensors [--hessian hessian.safetensors]

MODEL is a folder that transformers loads, each TEXT a file of plain text. For the weight NAME of
each linear layer the output has NAME_importance, the mean square of each of its inputs, for
`--importance`; the file of --hessian has NAME.hessian, the mean product of each two inputs, for
`--calibrate ldlq --hessian`. Layers that get the same input, such as query, key and value, share
one Hessian: the metadata say which weight has it. A Hessian is inputs x inputs numbers; with
--block N only those of N neighbours are kept, as [inputs / N, N, N].
"""

import argparse
import pathlib
import sys

torch = None  # imported when there is something to do: --help needs no framework


def arguments():
    parser = argparse.ArgumentParser(description="Writes what the inputs of linear layers are like, "
                                                 "for qplan quantize.")
    parser.add_argument("model", metavar="MODEL", help="a folder that transformers loads")
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="files of plain text")
    parser.add_argument("-o", "--output", required=True, help="mean squares, for --importance")
    parser.add_argument("--hessian", metavar="FILE", help="mean products, for --hessian")
    parser.add_argument("--block", metavar="N", type=int, help="keep products of N neighbours only")
    parser.add_argument("--length", metavar="N", type=int, default=512,
                        help="tokens that are seen together [512]")
    parser.add_argument("--tokens", metavar="N", type=int, help="stop after so many [all]")
    return parser.parse_args()


class Sums:
    """What is known of one input: sums over tokens, in f64, so that their order does not matter."""

    def __init__(self, n_inputs, block):
        self.n_tokens = 0
        self.squares = torch.zeros(n_inputs, dtype=torch.float64)
        self.products = None
        if block is not None:
            self.products = torch.zeros(n_inputs // block, block, block, dtype=torch.float64)

    def add(self, inputs):
        rows = inputs.detach().reshape(-1, inputs.shape[-1]).double().cpu()
        self.n_tokens += len(rows)
        self.squares += (rows * rows).sum(0)
        if self.products is not None:
            blocks = rows.reshape(len(rows), -1, self.products.shape[-1]).transpose(0, 1)
            self.products += blocks.transpose(1, 2) @ blocks


class Collector:
    """Listens to every linear layer. Layers that are given one tensor have one Sums."""

    def __init__(self, network, wants_products, block):
        self.sums = {}   # of each module that is the first to get its input
        self.first = {}  # of each module, the first one that gets the same input
        self.last = (None, None)
        self.wants_products, self.block = wants_products, block
        for name, module in network.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda _, inputs, __, name=name: self.see(name, inputs[0]))

    def block_of(self, name, n_inputs):
        if not self.wants_products:
            return None
        block = self.block or n_inputs
        if n_inputs % block:
            sys.exit(f"--block {block} does not divide the {n_inputs} inputs of {name}")
        return block

    def see(self, name, inputs):
        tensor, owner = self.last
        first = owner if tensor is inputs else name
        if self.first.setdefault(name, first) != first:
            sys.exit(f"{name} gets the input of {first} now and of {self.first[name]} before: "
                     "layers that are called in another order each time cannot be told apart")
        if first == name:
            n_inputs = inputs.shape[-1]
            if name not in self.sums:
                self.sums[name] = Sums(n_inputs, self.block_of(name, n_inputs))
            self.sums[name].add(inputs)
        self.last = (inputs, first)  # held, so that no other tensor can have its place

    def means(self):
        """The mean squares of each weight; the mean products, and which weights share them."""
        squares, products, shared = {}, {}, {}
        for name, first in self.first.items():
            sums = self.sums[first]
            weight = f"{name}.weight"
            squares[f"{weight}_importance"] = (sums.squares / sums.n_tokens).float()
            if sums.products is None:
                continue
            if first != name:
                shared[weight] = f"{first}.weight"
                continue
            mean = (sums.products / sums.n_tokens).float()
            products[f"{weight}.hessian"] = mean if self.block else mean[0]
        return squares, products, shared


def chunks(tokenizer, paths, length, most):
    """Token ids in rows of one length, the last of each text shorter."""
    n_seen = 0
    for path in paths:
        ids = tokenizer(pathlib.Path(path).read_text(), return_tensors="pt").input_ids[0]
        for begin in range(0, len(ids), length):
            row = ids[begin:begin + length]
            if most is not None:
                row = row[:most - n_seen]
            if len(row) == 0:
                return
            n_seen += len(row)
            yield row[None]


def stored_names(folder):
    """The tensors of the model's files."""
    from safetensors import safe_open
    names = set()
    for path in pathlib.Path(folder).glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def load(folder):
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    architecture = (transformers.AutoConfig.from_pretrained(folder).architectures or ["AutoModel"])[0]
    kind = getattr(transformers, architecture, transformers.AutoModel)
    return tokenizer, kind.from_pretrained(folder).eval()


def main():
    global torch
    options = arguments()
    import torch
    from safetensors.torch import save_file
    tokenizer, network = load(options.model)
    collector = Collector(network, options.hessian is not None, options.block)
    n_tokens = 0
    with torch.no_grad():
        for row in chunks(tokenizer, options.texts, options.length, options.tokens):
            network(row.to(network.device))
            n_tokens += row.numel()
    if n_tokens == 0:
        sys.exit("no tokens: the texts are empty")
    squares, products, shared = collector.means()
    save_file(squares, options.output)
    if options.hessian:
        save_file(products, options.hessian, metadata=shared)
    unknown = sorted({name.removesuffix("_importance") for name in squares} - stored_names(options.model))
    print(f"{n_tokens} tokens, {len(squares)} weights, {len(collector.sums)} different inputs")
    if unknown:
        print(f"not stored under this name: {', '.join(unknown[:5])}"
              + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""), file=sys.stderr)


if __name__ == "__main__":
    main()
