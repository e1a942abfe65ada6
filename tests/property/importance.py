#!/usr/bin/env python3
"""Importance of input channels: files of every kind, and what it does to errors.

The three kinds of files are written here from their descriptions. They must give the same bytes; no
set may have a larger weighted error than by minmax; importance that is the same everywhere changes
nothing but the record; scales stay in the window of the proof; and what a file says wrongly is
refused by its name.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
IMATRIX = HERE.parents[1] / "testdata" / "imatrix"
sys.path.insert(0, str(HERE.parent / "golden"))
import stored  # noqa: E402

# Names here and in llama.cpp, and which of the matrices.
NAMES = {
    "model.layers.0.self_attn.q_proj.weight": ("blk.0.attn_q.weight", 0),
    "model.layers.11.mlp.down_proj.weight": ("blk.11.ffn_down.weight", 0),
    "model.layers.2.mlp.experts.0.up_proj.weight": ("blk.2.ffn_up_exps.weight", 0),
    "model.layers.2.mlp.experts.1.up_proj.weight": ("blk.2.ffn_up_exps.weight", 1),
    "lm_head.weight": ("output.weight", 0),
}
ROWS, COLS, GROUP = 12, 128, 64
CALLS = 3


def run(qplan, *args, expected=0):
    done = subprocess.run([qplan, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {expected}: {done.stderr}")
    return done.stdout + done.stderr


# ---- Files -----------------------------------------------------------------------------------------

def matrices_of(values):
    """What llama.cpp's files have: name -> matrices of sums, one behind the other."""
    joined = {}
    for name, vector in values.items():
        there, matrix = NAMES[name]
        joined.setdefault(there, {})[matrix] = vector
    return {name: np.stack([rows[i] for i in sorted(rows)]) for name, rows in joined.items()}


def write_vectors(path, values, suffix=""):
    stored.write(path, {name + suffix: stored.packed("F32", v) for name, v in values.items()})


def write_dat(path, values):
    out = [struct.pack("<i", len(matrices_of(values)))]
    for name, sums in matrices_of(values).items():
        out.append(struct.pack("<i", len(name)) + name.encode() + struct.pack("<i", CALLS))
        out.append(struct.pack("<i", sums.size) + (sums * CALLS).astype("<f4").tobytes())
    out.append(struct.pack("<ii", 7, 4) + b"text")
    path.write_bytes(b"".join(out))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write_gguf(path, values, kind="imatrix", unused=None):
    """unused: a tensor that no text has reached."""
    tensors = {}
    for name, sums in matrices_of(values).items():
        tensors[name + ".in_sum2"] = (sums * CALLS).astype("<f4")
        tensors[name + ".counts"] = np.full((len(sums), 1), CALLS, "<f4")
        if unused and NAMES[unused][0] == name:
            tensors[name + ".counts"][NAMES[unused][1]] = 0
            tensors[name + ".in_sum2"][NAMES[unused][1]] = 0
    pairs = [text("general.type") + struct.pack("<I", 8) + text(kind),
             text("imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + text("text"),
             text("imatrix.chunk_count") + struct.pack("<II", 4, 7)]
    infos, data = [], b""
    for name, array in tensors.items():
        infos.append(text(name) + struct.pack("<IQQIQ", 2, array.shape[1], array.shape[0], 0,
                                              len(data)))
        data += array.tobytes()
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs + infos)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


# ---- Laws ------------------------------------------------------------------------------------------

class Model:
    def __init__(self, folder, rng):
        self.path = folder / "m.safetensors"
        self.out = folder / "o.safetensors"
        self.x = {name: (rng.standard_t(5, (ROWS, COLS)) * 0.02).astype(np.float32)
                  for name in NAMES}
        # A power of two keeps products with CALLS, and quotients, exact in the order of files.
        self.values = {name: np.exp2(rng.integers(-9, 4, COLS)).astype(np.float32)
                       for name in NAMES}
        stored.write(self.path, {name: stored.packed("F32", x) for name, x in self.x.items()})

    def quantize(self, qplan, *flags, expected=0):
        return run(qplan, "quantize", self.path, "-o", self.out, "--force", "-q", "--scheme",
                   f"int4:g{GROUP}", *flags, expected=expected)

    def errors(self, weights):
        """Weighted squared errors of every set."""
        tensors = stored.read_file(self.out)
        errors = []
        for name, x in self.x.items():
            packed = np.frombuffer(tensors[name].data, np.uint8).reshape(ROWS, -1)
            codes = np.stack([packed & 15, packed >> 4], -1).reshape(ROWS, COLS).astype(np.int64)
            codes -= (codes >> 3) << 4
            scale = stored.values(tensors[name + "_scale"]).astype(np.float64)
            y = codes.reshape(ROWS, -1, GROUP) * scale.reshape(ROWS, -1, 1)
            e = (x.reshape(y.shape).astype(np.float64) - y) ** 2
            errors.append((e * weights[name].reshape(1, -1, GROUP)).sum(-1).ravel())
        return np.concatenate(errors)

    def tensors(self):
        return {name: t.data for name, t in stored.read_file(self.out).items()}


def check_kinds(qplan, model, folder):
    files = {"a.safetensors": write_vectors, "a.dat": write_dat, "a.gguf": write_gguf,
             "b.safetensors": lambda path, v: write_vectors(path, v, "_importance")}
    model.quantize(qplan, "--calibrate", "minmax")
    before = model.errors(model.values)
    made = set()
    for name, write in files.items():
        write(folder / name, model.values)
        model.quantize(qplan, "--calibrate", "mse", "--importance", folder / name)
        made.add(tuple(model.tensors().items()))
        if (model.errors(model.values) > before * (1 + 1e-9)).any():
            raise AssertionError(f"{name}: a weighted error is larger than by minmax")
    if len(made) != 1:
        raise AssertionError("kinds of files give other bytes")
    weighted = model.errors(model.values).sum()
    for threads in ("1", "3", "7"):
        model.quantize(qplan, "--calibrate", "mse", "--importance", folder / "a.gguf", "--threads",
                       threads)
        if tuple(model.tensors().items()) not in made:
            raise AssertionError(f"other bytes with {threads} threads")
    report = json.loads(run(qplan, "verify", "--json", "-q", model.out, model.path))
    names = {t["calibrate"] for t in report["tensors"]}
    if names != {"mse:fast+importance"}:
        raise AssertionError(f"records have {names}")
    model.quantize(qplan, "--calibrate", "mse")
    if weighted >= model.errors(model.values).sum():
        raise AssertionError("weighted errors are not lower than without importance")


def check_alike(qplan, model, folder):
    model.quantize(qplan, "--calibrate", "mse")
    expected = model.tensors()
    write_vectors(folder / "one", {name: np.full(COLS, 5, np.float32) for name in NAMES})
    model.quantize(qplan, "--calibrate", "mse", "--importance", folder / "one")
    if model.tensors() != expected:
        raise AssertionError("importance that is the same everywhere changes bytes")


def check_unused(qplan, model, folder):
    """What was never used is as if no file knew it, and told: an expert, and a weight."""
    path, without = folder / "unused.gguf", folder / "without"
    flags = ("--calibrate", "mse", "--importance")
    for name in ("model.layers.2.mlp.experts.1.up_proj.weight", "lm_head.weight"):
        write_gguf(path, model.values, unused=name)
        write_vectors(without, {n: v for n, v in model.values.items() if n != name})
        said = run(qplan, "quantize", model.path, "-o", model.out, "--force", "--scheme",
                   f"int4:g{GROUP}", *flags, path)
        if ("no importance is known of 1 tensor, whose errors are not weighted, as 1 of them was never "
                "used while it was collected: '" + name) not in said:
            raise AssertionError(f"what was never used is not told: {said}")
        found = model.tensors()
        model.quantize(qplan, *flags, without)
        if found != model.tensors():
            raise AssertionError(f"{name}: what was never used counts")
        said = model.quantize(qplan, *flags, path, "--importance-missing", "error", expected=3)
        if "no importance is known of: '" + name not in said:
            raise AssertionError(said)


def check_merge(qplan, model, folder):
    """Two files are added; half of the tensors in each are as good as all in one."""
    names = list(NAMES)
    for i, part in enumerate((names[:2], names[2:])):
        write_gguf(folder / f"part{i}", {name: model.values[name] for name in part})
    write_gguf(folder / "all", model.values)
    model.quantize(qplan, "--calibrate", "mse", "--importance", folder / "all")
    expected = model.tensors()
    model.quantize(qplan, "--calibrate", "mse", "--importance", folder / "part0", "--importance",
                   folder / "part1")
    if model.tensors() != expected:
        raise AssertionError("two files are not one")


def check_documents(qplan, model, folder):
    """A plan names what it needs, and is refused without it."""
    plan = folder / "plan.json"
    made = ("--calibrate", "mse", "--importance", folder / "all")
    model.quantize(qplan, *made)
    expected = model.out.read_bytes()
    run(qplan, "plan", "--scheme", f"int4:g{GROUP}", *made, "--force", "-o", plan, model.path)
    again = ("quantize", "--plan", plan, model.path, "-o", model.out, "--force", "-q")
    run(qplan, *again, "--importance", folder / "all")
    if model.out.read_bytes() != expected:
        raise AssertionError("the plan gives other bytes")
    if "--importance" not in run(qplan, *again, expected=3):
        raise AssertionError("no hint that importance is needed")
    run(qplan, "verify", "--exact", model.out, model.path, expected=1)
    data = bytearray(model.out.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    at = begin + json.loads(data[8:begin])["lm_head.weight_scale"]["data_offsets"][0]
    data[at:at + 4] = np.float32(1e30).tobytes()
    model.out.write_bytes(data)
    run(qplan, "verify", model.out, model.path, expected=1)


def check_inspect(qplan, model, folder):
    for name in ("a.gguf", "a.dat"):
        lines = run(qplan, "inspect", folder / name).splitlines()
        most = max(model.values["lm_head.weight"])
        wanted = f"output.weight  [{COLS}]  mean {np.mean(model.values['lm_head.weight']):.3g}  " \
                 f"largest {most:.3g}"
        if wanted not in lines or len(lines) != 1 + len(matrices_of(model.values)):
            raise AssertionError(f"inspect of {name}: expected {wanted}, found {lines}")
        for flags in (("--json",), ("--tensors",), ("--fail-if", "bpw>9"), ("--against", "source")):
            done = subprocess.run([qplan, "inspect", *flags, folder / name], capture_output=True,
                                  text=True)
            if done.returncode != 3 or done.stdout or flags[0] not in done.stderr:
                raise AssertionError(f"inspect {flags} of {name}: {done}")


def read_dat(path):
    """The means that a file of the older kind has, as llama.cpp takes them."""
    data, at, values = path.read_bytes(), 4, {}
    for _ in range(struct.unpack_from("<i", data)[0]):
        length = struct.unpack_from("<i", data, at)[0]
        name = data[at + 4:at + 4 + length].decode()
        calls, n = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        values[name] = np.frombuffer(data, "<f4", n, at) / np.float32(calls)
        at += 4 * n
    return values


def check_llama_cpp(qplan, _model, folder):
    """What llama.cpp takes for one importance gives the bytes of its means, read here."""
    source, out, means = (folder / f"llama-{name}" for name in ("source", "out", "means"))
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    files = [IMATRIX / "imatrix.dat", IMATRIX / "imatrix.gguf"]
    values = {}
    for name, vector in read_dat(files[0]).items():
        _, block, part, _ = name.split(".")
        values[f"model.layers.{block}.{parts[part]}.weight"] = vector
    if len(values) != 14:
        raise AssertionError(f"{files[0]}: expected 14 weights, found {len(values)}")
    rng = np.random.default_rng(29)
    stored.write(source, {name: stored.packed("F32", rng.standard_normal((4, len(vector))))
                          for name, vector in values.items()})
    write_vectors(means, values)
    made = []
    for flags in ([], *(["--importance", path] for path in (means, *files))):
        run(qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", f"int4:g{GROUP}",
            "--calibrate", "mse", *flags, *(["--importance-missing", "error"] if flags else []))
        made.append({name: tensor.data for name, tensor in stored.read_file(out).items()})
    if made[0] == made[1] or made[1] != made[2] or made[1] != made[3]:
        raise AssertionError("the files of llama.cpp do not give what their means give")


def check_faults(qplan, model, folder):
    bad = folder / "bad"
    importance = ("--calibrate", "mse", "--importance", bad)

    def refuse(words, flags=importance, expected=3):
        said = model.quantize(qplan, *flags, expected=expected)
        if words not in said:
            raise AssertionError(f"expected '{words}', found '{said}'")

    for value in (-1.0, np.nan, np.inf):
        values = {**model.values, "lm_head.weight": model.values["lm_head.weight"].copy()}
        values["lm_head.weight"][7] = value
        write_vectors(bad, values)
        refuse("'lm_head.weight': bad importance at 7")
        write_dat(bad, values)
        refuse("'output.weight': bad importance")
    write_vectors(bad, {**model.values, "lm_head.weight": np.ones(COLS + 1, np.float32)})
    refuse("'lm_head.weight': importance lm_head.weight is not for this tensor")
    write_vectors(bad, {n: v for n, v in model.values.items() if n != "lm_head.weight"})
    refuse("no importance is known of: 'lm_head.weight'",
           (*importance, "--importance-missing", "error"))
    if "no importance is known of 1 tensor" not in run(
            qplan, "quantize", model.path, "-o", model.out, "--force", *importance):
        raise AssertionError("a tensor that no file knows is not told")
    refuse("mse", ("--importance", bad), 2)
    write_gguf(bad, model.values, "model")
    refuse("general.type is not imatrix")
    for write in (write_gguf, write_dat):
        write(bad, model.values)
        whole = bad.read_bytes()
        for n in (0, 1, 5, 30, len(whole) // 3, len(whole) - 33):
            bad.write_bytes(whole[:n])
            refuse("not a file of importance")
    for more in (b"x", b"seven b"):
        write_dat(bad, model.values)
        bad.write_bytes(bad.read_bytes()[:-12] + more)
        refuse("bytes behind its end")
    write_vectors(bad, {"another.weight": np.ones(COLS, np.float32)})
    refuse("bad: not the importance of this model: it names none of its tensors")
    stored.write(bad, {name: stored.packed("F32", np.ones(COLS, np.float32))
                       for name in ("lm_head.weight", "lm_head.weight_importance")})
    refuse("importance of one weight under two names: 'lm_head.weight' and "
           "'lm_head.weight_importance'")
    bad.write_bytes(b"not one of them at all")
    refuse("not a file of importance")


def decibels(x2, e2):
    return float(10 * np.log10(x2 / e2))


def close(found, expected):
    return found is not None and abs(found - expected) < 1e-9 * max(1, abs(expected))


def check_weighted(qplan, folder):
    """weighted_sqnr_db against sums in long double, for every type; the same on every machine."""
    rng = np.random.default_rng(31)
    rows, cols = 37, 320  # rows begin anywhere in blocks of 4096 elements
    path, out, known, hessians = (folder / f"weighted-{name}" for name in ("m", "q", "i", "h"))
    x = {name: rng.standard_t(4, (rows, cols)) for name in ("f64", "huge", "tiny", "f32", "unknown")}
    x["huge"] *= 1e37
    x["tiny"] *= 1e-200  # whose squares no double has
    types = {name: "F32" if name in ("f32", "unknown") else "F64" for name in x}
    x["huge"][5, 7], x["f32"][9, 11] = np.nan, np.inf
    x = {name: v.astype(np.float32) if types[name] == "F32" else v for name, v in x.items()}
    stored.write(path, {name: stored.packed(types[name], v) for name, v in x.items()})
    weights = {name: (rng.random(cols) ** 4).astype(np.float32) for name in x if name != "unknown"}
    weights["f32"][::3] = 0
    write_vectors(known, weights)
    stored.write(hessians, {name + ".hessian": stored.packed("F32", np.diag(w))
                            for name, w in weights.items()})
    run(qplan, "quantize", "-q", "--scheme", "int8:c0", "--nonfinite", "saturate", "-o", out, path)
    tensors, expected, sums = stored.read_file(out), {}, np.zeros(2, np.longdouble)
    for name, w in weights.items():
        work = np.float64 if types[name] == "F64" else np.float32
        codes = np.frombuffer(tensors[name].data, np.int8).reshape(rows, cols).astype(work)
        y = codes * stored.values(tensors[name + "_scale"]).astype(work).reshape(rows, 1)
        there = np.isfinite(x[name])
        long = np.where(there, x[name], 0).astype(np.longdouble)
        error = long - np.where(there, y, 0).astype(np.longdouble)
        each = np.array([(w * v * v).sum() for v in (long, error)])
        sums += each
        expected[name] = decibels(*each)
    texts = set()
    for flags in ((), ("--threads", "1"), ("--threads", "3", "--memory", "4M")):
        for isa in ("scalar", "avx2", "avx512"):
            done = subprocess.run([qplan, "verify", "-q", "--json", "--importance", known, *flags,
                                   out, path], capture_output=True, text=True,
                                  env={**os.environ, "QPLAN_CPU": isa})
            if done.returncode == 0 or isa == "scalar": # else this CPU lacks the instructions
                texts.add(done.stdout)
    if len(texts) != 1:
        raise AssertionError("weighted figures depend on threads or instructions")
    by_hessian = run(qplan, "inspect", "-q", "--json", "--hessian", hessians, "--against", path, out)
    for text in (*texts, by_hessian):
        report = json.loads(text)
        found = {t["name"]: t["weighted_sqnr_db"] for t in report["tensors"]}
        if found.pop("unknown") is not None:
            raise AssertionError("a figure without weights")
        for name, value in expected.items():
            if not close(found[name], value):
                raise AssertionError(f"{name}: expected {value}, found {found[name]}")
        if not close(report["totals"]["weighted_sqnr_db"], decibels(*sums)):
            raise AssertionError(f"total: expected {decibels(*sums)}, found {report['totals']}")
    worst = min(expected.values())
    for limit, exit in ((worst - 0.01, 0), (worst + 0.01, 1)):
        run(qplan, "inspect", "--against", path, "--importance", known, "--fail-if",
            f"weighted_sqnr_db<{limit}", out, expected=exit)
    run(qplan, "inspect", "--against", path, "--fail-if", "weighted_sqnr_db<1", out, expected=2)


# ---- The window of the proof -----------------------------------------------------------------------

WINDOW_SCHEMES = ("int4:g64", "int4:g64:asym", "int8:c0", "int4:g64:bf16", "uint4:g64:bias", "nf4:g64",
                  "fp8:c0", "nvfp4", "mxfp4")


def window_cases():
    """Weights and importance that draw scales away from minmax's."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((16, COLS)) * 0.02).astype(np.float32)
    weights = rng.random(COLS).astype(np.float32)
    for size in (1e-40, 1e-42):  # below the least normal number, where minmax has a floor
        rows = x.copy()
        rows[5] = (rng.standard_normal(COLS) * size).astype(np.float32)
        for dtype in ("BF16", "F32"):
            yield dtype, rows, weights
    for ratio in (300, 3000):  # a large column that does not matter
        columns, deaf = x.copy(), weights.copy()
        columns[:, 7] *= ratio
        deaf[7] = 0
        yield "F32", columns, deaf
    heavy = rng.standard_t(1.2, x.shape) * 10.0 ** rng.uniform(-6, 6, (1, COLS))
    yield "F32", heavy.astype(np.float32), (1 / (1e-6 + np.abs(heavy).max(0) ** 2)).astype(np.float32)


def check_window(qplan, folder):
    """What importance and Hessians choose passes verify without them, for any weights."""
    model, importance, hessian, out = (folder / n for n in ("window", "w.st", "w.hessian", "w.out"))
    for i, (dtype, x, weights) in enumerate(window_cases()):
        stored.write(model, {"c.weight": stored.packed(dtype, x)})
        stored.write(importance, {"c.weight": stored.packed("F32", weights)})
        diagonal = np.diag(weights.astype(np.float64) + 1e-12).astype(np.float32)
        stored.write(hessian, {"c.weight.hessian": stored.packed("F32", diagonal)})
        for scheme in WINDOW_SCHEMES:
            for flags in (("--calibrate", "mse", "--importance", importance),
                          ("--calibrate", "mse:exact", "--importance", importance),
                          ("--hessian", hessian)):
                run(qplan, "quantize", "-q", "--scheme", scheme, *flags, "--force", "--verify", "-o",
                    out, model)
                run(qplan, "verify", "-q", "--allow-unproven", out, model)
                run(qplan, "verify", "-q", "--exact", *flags[-2:], out, model)
    said = run(qplan, "verify", "--exact", out, model, expected=1)
    if "not provable without --exact and the --hessian" not in said:
        raise AssertionError(said)
    run(qplan, "quantize", "-q", "--calibrate", "mse", "--importance", importance, "--force", "-o", out,
        model)
    said = run(qplan, "verify", "--exact", out, model, expected=1)
    if "hint: --importance FILE names the file of importance that was used" not in said:
        raise AssertionError(said)
    # Values up to 127.5 have the scale 1 by minmax; 6 is more than 4 times as much.
    x = np.arange(-127.5, 128, dtype=np.float32).reshape(1, 256)
    stored.write(model, {"c.weight": stored.packed("F32", x)})
    stored.write(importance, {"c.weight": stored.packed("F32", np.arange(1, 257, dtype=np.float32))})
    run(qplan, "quantize", "-q", "--scheme", "int8:c0", "--calibrate", "mse", "--importance",
        importance, "--force", "-o", out, model)
    data = bytearray(out.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    for name, stands in (("c.weight_scale", struct.pack("<f", 6)),
                         ("c.weight", np.rint(x / 6).astype(np.int8).tobytes())):
        at, end = (begin + offset for offset in header[name]["data_offsets"])
        data[at:end] = stands
    out.write_bytes(data)
    said = run(qplan, "verify", out, model, expected=1)
    if ("far from what the source needs in set 0: expected a scale of a size from 0.0 to 4.0, "
            "found 6.0, and 1 such sets in all") not in said:
        raise AssertionError(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = Model(folder, np.random.default_rng(18))
        check_kinds(qplan, model, folder)
        check_alike(qplan, model, folder)
        check_unused(qplan, model, folder)
        check_merge(qplan, model, folder)
        check_documents(qplan, model, folder)
        check_inspect(qplan, model, folder)
        check_llama_cpp(qplan, model, folder)
        check_weighted(qplan, folder)
        check_window(qplan, folder)
        check_faults(qplan, model, folder)
    print("importance: as it should be")


if __name__ == "__main__":
    main()
