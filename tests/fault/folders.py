#!/usr/bin/env python3
"""Checkpoints that are folders: what must be refused, survived and written.

    folders.py --qplan PATH

Each function below runs one row of ROWS.md, or several; the sentence at its head says which ("row
E1"). Folders are made by hand, and outputs are read by st.py, which shares no code with qplan.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

INDEX = "model.safetensors.index.json"
problems = []


def shard_bytes(tensors, metadata=None):
    """A safetensors file of F32 tensors: name -> (shape, seed)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (shape, seed) in tensors.items():
        n = 1
        for extent in shape:
            n *= extent
        values = struct.pack(f"<{n}f", *(random.Random(seed + i).uniform(-1, 1) for i in range(n)))
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_tensors(path):
    """name -> (dtype, shape, bytes) of one file."""
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


class Folder:
    """A good folder of two shards; each row then breaks one thing of it."""

    def __init__(self, root, name="m", shards=2):
        self.path = root / name
        self.path.mkdir()
        self.map, total = {}, 0
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            tensors = {f"l.{i}.w": ((4, 8), i), f"l.{i}.norm": ((8,), i)}
            (self.path / file).write_bytes(shard_bytes(tensors, {"format": "pt"}))
            self.map.update(dict.fromkeys(tensors, file))
            total += 4 * 32 + 4 * 8
        self.total = total
        self.write_index()
        (self.path / "config.json").write_text('{"model_type": "llama", "x": 1e400, "y": 1' + "0" * 30 + "}")
        (self.path / "tokenizer.json").write_text("{}")

    def write_index(self, **changes):
        index = {"metadata": {"total_size": self.total}, "weight_map": self.map}
        index.update(changes)
        self.write_text(json.dumps(index))

    def write_text(self, text):
        (self.path / INDEX).write_text(text)

    def shard(self, i):
        return self.path / sorted(set(self.map.values()))[i]


class Bench:
    def __init__(self, qplan, root):
        self.qplan, self.root, self.row = qplan, root, ""

    def problem(self, text):
        problems.append(f"{self.row}: {text}")

    def run(self, *args, **options):
        return subprocess.run([self.qplan, *map(str, args)], capture_output=True, text=True,
                              timeout=120, cwd=self.root, **options)

    def quantize(self, folder, *args, exit_code=0, words=(), **options):
        out = self.root / "out"
        result = self.run("quantize", "-q", "-o", out, *args, folder, **options)
        self.expect(result, exit_code, words)
        if exit_code and out.exists() and "--force" not in args:
            self.problem("a run that failed left an output")
        if (self.root / "out.partial").exists():
            self.problem("a run left its other folder")
        return result

    def expect(self, result, exit_code, words):
        if result.returncode != exit_code:
            self.problem(f"expected exit {exit_code}, found {result.returncode}: {result.stderr}")
        for word in words:
            if word not in result.stderr:
                self.problem(f"expected {word!r} in: {result.stderr}")


def row_names(bench, folder):
    """Row E1 and row E2: a shard must be a plain file name."""
    for value in ("../x.safetensors", "a/../../x", "/etc/passwd", "..", ".", "", "a\\b", "x\0y",
                  "n" * 300, "sub/x.safetensors"):
        folder.write_index(weight_map={**folder.map, "l.0.w": value})
        bench.quantize(folder.path, exit_code=3, words=("'l.0.w'", "plain file name"))


def row_links(bench, folder):
    """Row E3 and row E4: links are followed; loops and dangling ones are named."""
    shard = folder.shard(0)
    moved = bench.root / "blob"
    shard.rename(moved)
    shard.symlink_to(moved)
    bench.quantize(folder.path)
    shutil.rmtree(bench.root / "out")
    for target in ("nowhere", shard.name):
        shard.unlink()
        shard.symlink_to(target)
        bench.quantize(folder.path, exit_code=4, words=(shard.name,))


def row_links_beside(bench, folder):
    """Row E4: likewise of the files that go into the output, and no link of others matters."""
    (folder.path / ".lock").symlink_to("nowhere")
    (folder.path / "model.py").symlink_to("nowhere")
    (folder.path / "vocab.json").symlink_to(folder.path / "tokenizer.json")
    bench.quantize(folder.path)
    if (bench.root / "out" / "vocab.json").is_symlink():
        bench.problem("a link is copied as a link")
    shutil.rmtree(bench.root / "out")
    for target in ("nowhere", "vocab.json"):
        (folder.path / "vocab.json").unlink()
        (folder.path / "vocab.json").symlink_to(target)
        bench.quantize(folder.path, exit_code=4, words=("vocab.json",))
    bench.quantize(folder.path, "--copy", "model.py", exit_code=4, words=("model.py",))


def row_missing(bench, folder):
    """Row E5."""
    name = folder.shard(1).name
    folder.shard(1).unlink()
    bench.quantize(folder.path, exit_code=3, words=(name, "'l.1.norm'"))


def row_map(bench, folder):
    """Row E6, row E7 and row E8: index and shards say the same."""
    a, b = folder.shard(0).name, folder.shard(1).name
    folder.write_index(weight_map={**folder.map, "l.0.w": b})
    bench.quantize(folder.path, exit_code=3, words=("'l.0.w'", b))
    folder.write_index(weight_map={**folder.map, "more": b})
    bench.quantize(folder.path, exit_code=3, words=("'more'", b))
    folder.write_index(weight_map={k: v for k, v in folder.map.items() if k != "l.1.w"})
    bench.quantize(folder.path, exit_code=3, words=("'l.1.w'", b, "index"))
    folder.write_index()
    folder.shard(1).write_bytes(shard_bytes({"l.1.w": ((4, 8), 1), "l.1.norm": ((8,), 1),
                                             "l.0.w": ((4, 8), 0)}))
    bench.quantize(folder.path, exit_code=3, words=("'l.0.w'", a, b))


def row_others(bench, folder):
    """Row E9 and row E10: files beside the index."""
    (folder.path / "other.safetensors").write_bytes(shard_bytes({"z": ((2, 2), 1)}))
    bench.quantize(folder.path, words=("warning", "other.safetensors"))
    shutil.rmtree(bench.root / "out")
    (folder.path / "model.safetensors").write_bytes(shard_bytes({"z": ((2, 2), 1)}))
    bench.quantize(folder.path, exit_code=3, words=(INDEX, "model.safetensors", "name the one"))
    bench.quantize(folder.path / INDEX)
    shutil.rmtree(bench.root / "out")
    (folder.path / "b.safetensors.index.json").write_text("{}")
    bench.quantize(folder.path, exit_code=3, words=("b.safetensors.index.json", INDEX))
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    for name in ("a", "b"):
        (folder.path / f"{name}.safetensors").write_bytes(shard_bytes({"z": ((2, 2), 1)}))
    bench.quantize(folder.path, exit_code=3, words=("a.safetensors", "b.safetensors"))


def row_index(bench, folder):
    """Row E11: the index is strict JSON."""
    good = json.dumps(folder.map)
    for text in ("", "[]", "{", "null", "{}", '{"weight_map": []}', '{"weight_map": {}}',
                 '{"weight_map": {"a": 1}}', f'{{"weight_map": {good}}} x',
                 f'{{"weight_map": {good}, "weight_map": {good}}}',
                 '{"weight_map": {"l.0.w": "a", "l.0.w": "a"}}', "[" * 100000,
                 f'{{"metadata": {"[" * 50}{"]" * 50}, "weight_map": {good}}}'):
        folder.write_text(text)
        bench.quantize(folder.path, exit_code=3, words=(INDEX,))
    with open(folder.path / INDEX, "wb") as file:
        file.truncate(250_000_001)
    bench.quantize(folder.path, exit_code=3, words=(INDEX, "too long"))


def row_total(bench, folder):
    """Row E12: a wrong total is told, and the output has the right one."""
    for total in (1, -1, 1.5, "x", None, [1], {"a": 1}):
        folder.write_index(metadata={"total_size": total})
        result = bench.quantize(folder.path, words=("warning", "total_size", str(folder.total)))
        out = bench.root / "out"
        if result.returncode == 0:
            data = sum(len(t[2]) for f in out.glob("*.safetensors") for t in read_tensors(f).values())
            found = json.loads((out / INDEX).read_text())["metadata"]["total_size"]
            if found != data:
                bench.problem(f"total_size {found} of {data} bytes")
            shutil.rmtree(out)


def row_many(bench, folder):
    """Row E13: there is a limit."""
    folder.write_index(weight_map={f"t{i}": f"f{i}.safetensors" for i in range(10001)})
    bench.quantize(folder.path, exit_code=3, words=("10000",))


def row_one_file(bench, folder):
    """Row E14: two names of one file."""
    name = folder.shard(1).name
    folder.shard(1).unlink()
    os.link(folder.shard(0), folder.path / name)
    bench.quantize(folder.path, exit_code=3, words=(folder.shard(0).name, name))


def row_config(bench, folder):
    """Row E15 and row E17 of the native layout: it needs no config, and copies one as it is."""
    text = (folder.path / "config.json").read_bytes()
    bench.quantize(folder.path)
    if (bench.root / "out" / "config.json").read_bytes() != text:
        bench.problem("config.json is not copied byte for byte")
    shutil.rmtree(bench.root / "out")
    (folder.path / "config.json").unlink()
    bench.quantize(folder.path, words=("warning", "no config.json"))
    bench.expect(bench.run("dequantize", "-q", "-o", bench.root / "back", bench.root / "out"), 0,
                 ("warning", "no config.json"))


def row_code(bench, folder):
    """Row E18: code and pickles are never opened, and listed."""
    names = ("x.py", "x.bin", "x.pt", "x.pkl", "x.ckpt", ".hidden", "quantize_config.json")
    for name in names:
        (folder.path / name).write_text("x")
        (folder.path / name).chmod(0)
    (folder.path / "sub").mkdir()
    bench.quantize(folder.path, words=("left out", "'sub'", *(f"'{name}'" for name in names)))
    found = sorted(p.name for p in (bench.root / "out").iterdir())
    if found != sorted(["config.json", "tokenizer.json", INDEX] + [folder.shard(i).name for i in (0, 1)]):
        bench.problem(f"the output has {found}")
    shutil.rmtree(bench.root / "out")
    (folder.path / "x.py").chmod(0o644)
    bench.quantize(folder.path, "--copy", "*.py")
    if (bench.root / "out" / "x.py").read_text() != "x":
        bench.problem("--copy has not copied x.py")
    shutil.rmtree(bench.root / "out")
    bench.quantize(folder.path, "--copy", "*.rs", exit_code=3, words=("'*.rs'",))


def row_empty(bench, folder):
    """Row E19: an empty folder, and one that cannot be listed."""
    empty = bench.root / "empty"
    empty.mkdir()
    bench.quantize(empty, exit_code=3, words=("empty", "no checkpoint"))
    if os.geteuid() != 0:
        folder.path.chmod(0)
        bench.quantize(folder.path, exit_code=4, words=("m",))
        folder.path.chmod(0o755)


def row_inside(bench, folder):
    """Row E20: neither folder may hold the other."""
    outer = bench.root / "outer"
    outer.mkdir()
    moved = outer / "m"
    folder.path.rename(moved)
    for out in (moved, moved / "x", outer, outer / "." / "m" / ".." / "m"):
        result = bench.run("quantize", "-q", "--force", "-o", out, moved)
        bench.expect(result, 2, ("input",))
    if sorted(p.name for p in outer.iterdir()) != ["m"]:
        bench.problem("something was left beside the input")


def row_existing(bench, folder):
    """Row E21: a folder that is there is replaced as a whole or not at all."""
    out = bench.root / "out"
    out.mkdir()
    bench.quantize(folder.path)     # an empty one counts as absent
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    result = bench.run("quantize", "-q", "-o", out, "--scheme", "int4:g8", folder.path)
    bench.expect(result, 4, ("out",))
    (out / "notes.txt").write_text("mine")
    result = bench.run("quantize", "-q", "-o", out, "--force", "--scheme", "int4:g8", folder.path)
    bench.expect(result, 4, ("'notes.txt'",))
    (out / "notes.txt").unlink()
    if {p.name: p.read_bytes() for p in out.iterdir()} != before:
        bench.problem("a refused run changed the old folder")
    (out / "old-00009-of-00009.safetensors").write_text("old")
    bench.quantize(folder.path, "--force", "--scheme", "int4:g8")
    if (out / "old-00009-of-00009.safetensors").exists():
        bench.problem("an old file is still there")
    bench.expect(bench.run("verify", "-q", out, folder.path), 0, ())


def row_modes(bench, folder):
    """Row G27: what is written can be read by those who may read its source, or what it replaces;
    the owner may use the folder."""
    out, mode = bench.root / "out", lambda path: stat.S_IMODE(path.stat().st_mode)
    for mask in (0o000, 0o022, 0o077):
        for source, file in ((0o700, 0o644), (0o755, 0o600), (0o550, 0o440), (0o775, 0o664)):
            for path in folder.path.iterdir():
                path.chmod(file)
            folder.path.chmod(source)
            bench.quantize(folder.path, preexec_fn=lambda mask=mask: os.umask(mask))
            for path, wanted in [(out, source | 0o700)] + [(path, file) for path in out.iterdir()]:
                if mode(path) != wanted & ~mask:
                    bench.problem(f"{path.name}: mode {mode(path):o} of {wanted:o} less {mask:o}")
            shutil.rmtree(out)
    bench.quantize(folder.path)
    out.chmod(0o710)
    (out / "tokenizer.json").chmod(0o640)
    folder.shard(0).chmod(0o666)
    (out / folder.shard(0).name).chmod(0o600)
    bench.quantize(folder.path, "--force", preexec_fn=lambda: os.umask(0))
    for path, wanted in ((out, 0o710), (out / "tokenizer.json", 0o640), (out / folder.shard(0).name, 0o600)):
        if mode(path) != wanted:
            bench.problem(f"replaced {path.name}: expected mode {wanted:o}, found {mode(path):o}")


def row_read_only(bench, folder):
    """Row G27: a model that nobody may write, read by another than the superuser."""
    program = bench.root / "qplan"
    shutil.copy(bench.qplan, program)
    bench.qplan = program
    someone = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for path in folder.path.iterdir():
        path.chmod(0o444)
    folder.path.chmod(0o555)
    bench.root.chmod(0o777)
    bench.quantize(folder.path, **someone)
    found = {oct(stat.S_IMODE(path.stat().st_mode)) for path in (bench.root / "out").iterdir()}
    if found != {"0o444"}:
        bench.problem(f"modes: {found}")
    bench.quantize(folder.path, "--force", "--scheme", "int8:t", **someone)
    bench.expect(bench.run("verify", "-q", bench.root / "out", folder.path, **someone), 0, ())
    (bench.root / "out").chmod(0o555)
    bench.quantize(folder.path, "--force", exit_code=4, words=("out", "Permission denied"), **someone)
    (bench.root / "out").chmod(0o755)
    folder.path.chmod(0o755)


def row_replaced(bench, folder):
    """Row E22: a shard that changes under a run; the plan knows its size, the run its identity."""
    plan = bench.root / "plan.json"
    plan.write_text(bench.run("plan", "-q", folder.path).stdout)
    folder.shard(1).write_bytes(shard_bytes({"l.1.w": ((8, 8), 1), "l.1.norm": ((8,), 1)}))
    bench.quantize(folder.path, "--plan", plan, exit_code=3, words=(folder.shard(1).name,))


def row_descriptors(bench, folder):
    """Row H3: more shards than descriptors."""
    many = Folder(bench.root, "many", 60)
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    bench.quantize(many.path, "--threads", "7", preexec_fn=limit)
    result = bench.run("verify", "-q", "--threads", "7", bench.root / "out", many.path, preexec_fn=limit)
    bench.expect(result, 0, ())
    result = bench.run("dequantize", "-q", "-o", bench.root / "back", bench.root / "out", preexec_fn=limit)
    bench.expect(result, 0, ())


def row_stack(bench, folder):
    """Row H4: files are copied with a small stack too."""
    (folder.path / "tokenizer.json").write_bytes(bytes(200_000))
    limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, 64 << 10))
    bench.quantize(folder.path, preexec_fn=limit)
    if (bench.root / "out" / "tokenizer.json").read_bytes() != bytes(200_000):
        bench.problem("a file is not copied as it is")


def same_as_one_file(bench, folder):
    """The tensors of a folder are those that the same tensors in one file give."""
    whole = bench.root / "whole.safetensors"
    whole.write_bytes(shard_bytes({f"l.{i}.{n}": (s, i) for i in (0, 1)
                                   for n, s in (("w", (4, 8)), ("norm", (8,)))}, {"format": "pt"}))
    for scheme in ("int8:c0", "int4:g8:asym", "int8:t", "int8:c1"):
        bench.expect(bench.run("quantize", "-q", "--force", "--scheme", scheme, "-o", "one.safetensors",
                               whole), 0, ())
        bench.quantize(folder.path, "--force", "--scheme", scheme)
        joined = {}
        for path in (bench.root / "out").glob("*.safetensors"):
            joined.update(read_tensors(path))
        if joined != read_tensors(bench.root / "one.safetensors"):
            bench.problem(f"{scheme}: other tensors than of one file")
        index = json.loads((bench.root / "out" / INDEX).read_text())["weight_map"]
        if {k: v for p in (bench.root / "out").glob("*.safetensors") for k, v in
                dict.fromkeys(read_tensors(p), p.name).items()} != index:
            bench.problem(f"{scheme}: the index is wrong")
        bench.expect(bench.run("verify", "-q", "--exact", bench.root / "out", folder.path), 0, ())
        bench.expect(bench.run("verify", "-q", bench.root / "out", whole), 0, ())


ROWS = (row_names, row_links, row_links_beside, row_missing, row_map, row_others, row_index,
        row_total, row_many, row_one_file, row_config, row_code, row_empty, row_inside,
        row_existing, row_modes, row_read_only, row_replaced, row_descriptors, row_stack,
        same_as_one_file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True)
    args = parser.parse_args()
    for row in ROWS:
        with tempfile.TemporaryDirectory() as root:
            bench = Bench(os.path.abspath(args.qplan), pathlib.Path(root))
            bench.row = row.__name__
            row(bench, Folder(bench.root))
    for text in problems:
        print(text)
    print(f"{len(ROWS)} rows, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
