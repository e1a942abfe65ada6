#!/usr/bin/env python3
"""Rounding by Hessians: codes against two references, laws, and files that must be refused.

The references are written here from the description of the method: one step by step in long double,
one as it is usually done, by Cholesky's decomposition of the inverse. Codes must be those of the
first, and nearly all those of the second. With an identity codes are the nearest; with a diagonal
they are those of the same importance; blocks are a matrix with zeros; nothing depends on threads,
memory or instruction set; and the loss is lower than that of nearest codes for every type of codes
and every layout.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import stored  # noqa: E402

NAME = "model.layers.0.mlp.up_proj.weight"
OTHER = "model.layers.0.mlp.gate_proj.weight"
ROWS, COLS, GROUP = 70, 160, 32


def run(qplan, *args, expected=0, **env):
    done = subprocess.run([qplan, *map(str, args)], capture_output=True, text=True, check=False,
                          env={**os.environ, **env})
    if done.returncode != expected:
        raise AssertionError(f"{args}: exit {done.returncode}, expected {expected}: {done.stderr}")
    return done.stdout + done.stderr


def symmetric(matrix):
    return ((matrix + matrix.T) / 2).astype(np.float32)


def hessian_of(rng, n, samples=None):
    """Of inputs that go together, some of which are much larger than others."""
    inputs = rng.standard_normal((samples or 4 * n, n))
    inputs = inputs @ (np.eye(n) + rng.standard_normal((n, n)) * 0.3)
    inputs *= np.exp2(rng.uniform(-2, 2, n))
    return symmetric(inputs.T @ inputs)


def write_hessian(path, tensors, metadata=None):
    stored.write(path, {name + ".hessian": stored.packed("F32", h) for name, h in tensors.items()},
                 metadata)


# ---- References ------------------------------------------------------------------------------------

def order_of(h):
    return np.lexsort((np.arange(len(h)), -h.astype(np.float64)))


def damped(hessian, damp=0.01):
    a = hessian.astype(np.longdouble)
    return a + np.eye(len(a)) * np.longdouble(damp) * np.diag(a).mean()


def quantize(t, scale, zero, ends):
    code = np.clip(np.rint((t / scale).astype(np.float64)) + zero, *ends)
    return code, (code - zero) * scale


def ldlq(x, hessian, scale, zero, ends, quantize=quantize):
    """Codes row by row, in long double; scale and zero are those of each element."""
    order = order_of(np.diag(hessian))
    a = damped(hessian)[np.ix_(order, order)]
    n = len(a)
    m = np.zeros_like(a)
    for k in range(n - 1, -1, -1):
        m[k, k] = np.sqrt(a[k, k])
        m[:k, k] = a[:k, k] / m[k, k]
        a[:k, :k] -= np.outer(m[:k, k], m[:k, k])
    factor = m / np.diag(m)
    w, q, codes = x.astype(np.longdouble)[:, order], np.zeros(x.shape, np.longdouble), {}
    for k in range(n):
        t = w[:, k] + (w[:, :k] - q[:, :k]) @ factor[:k, k]
        codes[order[k]], q[:, k] = quantize(t, scale[:, order[k]], zero[:, order[k]], ends)
    return np.stack([codes[i] for i in range(n)], 1).astype(np.int64)


def nearest_of(book):
    """The same of codes that are places in a table: of equally near values the lower one."""
    def quantize_by(t, scale, zero, ends):
        code = np.abs(t[:, None] - scale[:, None] * book).argmin(1)
        return code, scale * book[code]
    return quantize_by


def gptq(x, hessian, scale, zero, ends):
    """The usual way: the upper triangular decomposition of the inverse, and errors handed on."""
    order = order_of(np.diag(hessian))
    a = damped(hessian).astype(np.float64)[np.ix_(order, order)]
    upper = np.linalg.cholesky(np.linalg.inv(a)).T
    w, codes = x.astype(np.float64)[:, order].copy(), {}
    for k in range(len(a)):
        codes[order[k]], q = quantize(w[:, k], scale[:, order[k]], zero[:, order[k]], ends)
        error = (w[:, k] - q) / upper[k, k]
        w[:, k:] -= np.outer(error, upper[k, k:])
    return np.stack([codes[i] for i in range(len(a))], 1).astype(np.int64)


# ---- What was made ---------------------------------------------------------------------------------

class Model:
    def __init__(self, folder, qplan, rng):
        self.qplan, self.folder = qplan, folder
        self.path, self.out = folder / "m.safetensors", folder / "o.safetensors"
        self.hessian_path = folder / "h.safetensors"
        self.x = (rng.standard_t(5, (ROWS, COLS)) * 0.02).astype(np.float32)
        self.hessian = hessian_of(rng, COLS)
        stored.write(self.path, {NAME: stored.packed("F32", self.x)})
        write_hessian(self.hessian_path, {NAME: self.hessian})

    def quantize(self, scheme, *flags, expected=0, **env):
        return run(self.qplan, "quantize", self.path, "-o", self.out, "--force", "--scheme", scheme,
                   *flags, expected=expected, **env)

    def round(self, scheme, *flags, **env):
        return self.quantize(scheme, "--hessian", self.hessian_path, *flags, **env)

    def tensors(self):
        return {name: t.data for name, t in stored.read_file(self.out).items()}

    def loss(self, path=None):
        """Of the values that a file stands for: the trace of D H D^T."""
        plain = self.folder / ("plain" if path else "plain.safetensors")
        run(self.qplan, "dequantize", "-q", "--dtype", "f32", "--force", "-o", plain,
            path or self.out)
        tensors = stored.read(plain)
        d = self.x.astype(np.float64) - stored.values(tensors[NAME]).astype(np.float64)
        return float(np.trace(d @ self.hessian.astype(np.float64) @ d.T))


def unpack(tensor, bits, shape):
    """Codes of the native layout, in one byte or two in one."""
    raw = np.frombuffer(tensor.data, np.uint8)
    if bits == 8:
        return raw.view(np.int8).reshape(shape).astype(np.int64)
    pairs = np.stack([raw & 15, raw >> 4], -1).reshape(shape[0], -1)[:, :shape[1]].astype(np.int64)
    return pairs - ((pairs >> 3) << 4)


def spread(values, shape):
    """Parameters of sets to all elements of them."""
    if values.ndim == 1:
        values = values.reshape(-1, 1)
    rows, cols = (-(-n // m) for n, m in zip(shape, values.shape))
    return np.repeat(np.repeat(values, rows, 0), cols, 1)[:shape[0], :shape[1]]


# ---- Laws ------------------------------------------------------------------------------------------

def check_references(model):
    for scheme, bits in (("int4:g32", 4), ("int4:g32:asym", 4), ("int8:c0", 8), ("int4:t", 4),
                         ("int4:b16x32", 4), ("int4:c1", 4), ("int4:g64:bf16", 4)):
        ragged = ("--indivisible", "ragged")
        model.round(scheme, *ragged)
        made = stored.read_file(model.out)
        codes = unpack(made[NAME], bits, model.x.shape)
        scale = stored.values(made[NAME + "_scale"]).astype(np.float64)
        zero = stored.values(made[NAME + "_zero_point"]).astype(np.int64)
        if zero.dtype != np.int64 or zero.size != scale.size:
            zero = np.zeros_like(scale, np.int64)
        if scheme.endswith("asym"):
            zero = zero.astype(np.int8).astype(np.int64)
        elif zero.any():
            raise AssertionError(f"{scheme}: zero points of a symmetric scheme")
        width = int(scheme.split(":g")[1].split(":")[0]) if ":g" in scheme else None
        if width:
            scale = np.repeat(scale, width, 1)[:, :COLS]
            zero = np.repeat(zero, width, 1)[:, :COLS]
        elif scheme.endswith("c1"):
            scale, zero = (np.broadcast_to(v.reshape(1, -1), model.x.shape) for v in (scale, zero))
        else:
            shape = (1, 1) if scheme.endswith(":t") else scale.shape
            if ":b" in scheme:
                scale = np.repeat(np.repeat(scale, 16, 0), 32, 1)[:ROWS, :COLS]
                zero = np.repeat(np.repeat(zero, 16, 0), 32, 1)[:ROWS, :COLS]
            else:
                scale = spread(scale.reshape(shape), model.x.shape)
                zero = spread(zero.reshape(shape), model.x.shape)
        ends = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        for reference, least in ((ldlq, 0.9995), (gptq, 0.999)):
            same = (reference(model.x, model.hessian, scale, zero, ends) == codes).mean()
            if same < least:
                raise AssertionError(f"{scheme}: {same} of the codes are those of "
                                     f"{reference.__name__}, expected {least}")
        run(model.qplan, "verify", "-q", "--exact", "--hessian", model.hessian_path, model.out,
            model.path)


def check_nearest(model):
    """An identity, and a diagonal, whose weights importance has too."""
    vectors = model.folder / "v.safetensors"
    for diagonal in (np.full(COLS, 3, np.float32),
                     np.exp2(np.arange(COLS) % 7).astype(np.float32)):
        write_hessian(model.folder / "d", {NAME: np.diag(diagonal)})
        stored.write(vectors, {NAME: stored.packed("F32", diagonal)})
        for scheme in ("int4:g32", "int8:c0", "int3:g32:asym", "uint4:g32:bias"):
            model.quantize(scheme, "-q", "--calibrate", "mse", "--importance", vectors)
            expected = model.tensors()
            model.quantize(scheme, "-q", "--hessian", model.folder / "d")
            if model.tensors() != expected:
                raise AssertionError(f"{scheme}: a diagonal gives other codes than importance")
    zeros = np.zeros((COLS, COLS), np.float32)
    write_hessian(model.folder / "d", {NAME: zeros})
    model.quantize("int4:g32", "-q", "--hessian", model.folder / "d")
    expected = model.tensors()
    model.quantize("int4:g32", "-q", "--calibrate", "mse")
    if model.tensors() != expected:
        raise AssertionError("a Hessian of zeros gives other codes than none")


def check_determinism(model):
    model.round("int4:g32", "-q")
    expected = model.out.read_bytes()
    for threads in ("1", "2", "3", "7"):
        for isa in ("scalar", "avx2", "avx512"):
            model.round("int4:g32", "-q", "--threads", threads, QPLAN_CPU=isa)
            if model.out.read_bytes() != expected:
                raise AssertionError(f"other bytes with {threads} threads and {isa}")


def check_blocks(model):
    for block in (16, 40, 80):
        n = COLS // block
        blocks = np.stack([model.hessian[i:i + block, i:i + block]
                           for i in range(0, COLS, block)])
        whole = np.zeros_like(model.hessian)
        for i in range(n):
            at = slice(i * block, (i + 1) * block)
            whole[at, at] = blocks[i]
        write_hessian(model.folder / "b", {NAME: blocks})
        write_hessian(model.folder / "w", {NAME: whole})
        model.quantize("int4:g32", "-q", "--hessian", model.folder / "b")
        expected = model.tensors()
        model.quantize("int4:g32", "-q", "--hessian", model.folder / "w")
        if model.tensors() != expected:
            raise AssertionError(f"blocks of {block} are not a matrix with zeros")


def check_losses(model):
    """Every type of codes, against nearest ones with scales that were chosen likewise or better."""
    for scheme in ("int2:g32", "int3:g32", "int4:g32:narrow", "int5:g32", "int6:g32", "int7:c0",
                   "uint4:g32:asym", "uint4:g32:bias", "uint8:c0", "f8e4m3:c0", "f8e5m2:c0",
                   "f4e2m1:g16:f8e4m3", "f4e2m1:g32:e8m0", "nf4:g32"):
        weights = np.diag(model.hessian)
        is_integer = "int" in scheme
        stored.write(model.folder / "v", {NAME: stored.packed("F32", weights)})
        method = ("mse", "--importance", model.folder / "v") if is_integer else ("minmax",)
        model.quantize(scheme, "-q", "--calibrate", *method)
        nearest = model.loss()
        model.round(scheme, "-q", "--verify")
        if not model.loss() < 0.8 * nearest:
            raise AssertionError(f"{scheme}: loss {model.loss()}, of nearest codes {nearest}")


def check_layouts(model):
    folder = model.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "float16"}))
    rng = np.random.default_rng(3)
    x = (rng.standard_t(5, (128, 256)) * 0.02).astype(np.float16)
    model.x, model.hessian = x.astype(np.float32), hessian_of(rng, 256)
    stored.write(folder / "model.safetensors", {NAME: stored.Stored("F16", x.shape, x.tobytes())})
    path, out = model.folder / "hl", model.folder / "out"
    write_hessian(path, {NAME: model.hessian})
    for layout, scheme in (("gptq", "int4:g64"), ("gptq_v2", "int4:g64:asym"),
                           ("awq", "int4:g64:asym"), ("compressed-tensors", "int4:g64"),
                           ("compressed-tensors", "int8:c0"), ("mlx", "uint4:g64:bias"),
                           ("qplan", "int4:g64")):
        made = {}
        for flags in (("--calibrate", "minmax"), ("--hessian", path, "--verify")):
            run(model.qplan, "quantize", "-q", folder, "-o", out, "--force", "--format", layout,
                "--scheme", scheme, *flags)
            made[flags[0]] = model.loss(out)
        if not made["--hessian"] < 0.8 * made["--calibrate"]:
            raise AssertionError(f"{layout}: losses {made}")
        if layout != "mlx":
            run(model.qplan, "verify", "-q", out, folder, expected=1)


def check_flat_groups(model):
    """Groups of bitsandbytes that go on from row to row: more, and fewer, columns than a group."""
    rng = np.random.default_rng(11)
    folder, path, out = model.folder / "flat", model.folder / "fh", model.folder / "flat-out"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for rows, cols in ((71, 100), (40, 24), (33, 150), (3, 7)):
        x = (rng.standard_t(5, (rows, cols)) * 0.02).astype(np.float32)
        hessian = hessian_of(rng, cols)
        stored.write(folder / "model.safetensors", {NAME: stored.packed("F32", x)})
        write_hessian(path, {NAME: hessian})
        made = set()
        for flags in ((), ("--threads", "1", "--memory", "2M"), ("--threads", "7")):
            run(model.qplan, "quantize", "-q", folder, "-o", out, "--force", "--preset", "nf4",
                "--hessian", path, *flags)
            made.add((out / "model.safetensors").read_bytes())
        tensors = stored.read_file(out / "model.safetensors")
        raw = np.frombuffer(tensors[NAME].data, np.uint8)
        codes = np.stack([raw >> 4, raw & 15], -1).reshape(-1)[:x.size].reshape(x.shape)
        book = stored.values(tensors[NAME + ".quant_map"]).astype(np.longdouble)
        scale = stored.values(tensors[NAME + ".absmax"]).astype(np.longdouble)
        scale = np.repeat(scale.reshape(-1), 64)[:x.size].reshape(x.shape)
        expected = ldlq(x, hessian, scale, scale, None, nearest_of(book))
        same = (expected == codes).mean()
        if len(made) != 1 or same < 0.999:
            raise AssertionError(f"{rows} x {cols}: {len(made)} files, {same} of the codes are those "
                                 "of ldlq")
        run(model.qplan, "verify", "-q", "--exact", "--hessian", path, out, folder)


# ---- Files -----------------------------------------------------------------------------------------

def check_names(model):
    """A weight may share the Hessian of another; one without is rounded to the nearest codes."""
    path = model.folder / "two.safetensors"
    stored.write(path, {n: stored.packed("F32", model.x) for n in (NAME, OTHER)})
    one = {**model.__dict__, "path": path}
    both = Model.__new__(Model)
    both.__dict__.update(one)
    for key, value in ((OTHER, NAME), (OTHER + ".hessian", NAME + ".hessian"), (OTHER, NAME +
                                                                               ".hessian")):
        write_hessian(model.folder / "a", {NAME: model.hessian}, {"format": "pt", key: value})
        both.quantize("int4:g32", "-q", "--hessian", model.folder / "a")
        tensors = both.tensors()
        if tensors[NAME] != tensors[OTHER]:
            raise AssertionError(f"{key} does not share the Hessian of {value}")
    said = both.quantize("int4:g32", "--hessian", model.hessian_path)
    if "no Hessian is known of 1 tensor, rounded to the nearest codes by minmax: '" + OTHER not in said:
        raise AssertionError(f"a missing Hessian is not told: {said}")
    report = json.loads(run(model.qplan, "inspect", "--json", "-q", both.out))
    methods = {t["name"]: t["calibrate"] for t in report["tensors"]}
    if methods != {NAME: "ldlq", OTHER: "minmax"}:
        raise AssertionError(f"records have {methods}")
    stored.write(model.folder / "v", {NAME: stored.packed("F32", np.ones(COLS, np.float32))})
    said = model.quantize("int4:g32", "--hessian", model.hessian_path, "--importance",
                          model.folder / "v")
    if "a Hessian is known of every tensor: importance weighs none" not in said:
        raise AssertionError(f"importance without a use is not told: {said}")
    stored.write(model.folder / "v",
                 {OTHER: stored.packed("F32", np.arange(COLS, dtype=np.float32))})
    both.quantize("int4:g32", "-q", "--hessian", model.hessian_path, "--importance",
                  model.folder / "v")
    report = json.loads(run(model.qplan, "inspect", "--json", "-q", both.out))
    if {t["calibrate"] for t in report["tensors"]} != {"ldlq", "mse:fast+importance"}:
        raise AssertionError("importance is not taken where there is no Hessian")
    data = ("--importance", model.folder / "v", "--hessian", model.hessian_path)
    run(model.qplan, "verify", "-q", "--exact", *data, both.out, path)
    for some in (data[:2], data[2:], ()):
        run(model.qplan, "verify", "-q", "--exact", *some, both.out, path, expected=1)
    said = both.quantize("int4:g32", "--hessian", model.hessian_path, "--importance-missing",
                         "error", expected=3)
    if "no Hessian is known of: '" + OTHER not in said:
        raise AssertionError(f"a missing Hessian is no error: {said}")


def check_documents(model):
    plan = model.folder / "plan.json"
    model.round("int4:g32", "-q", "--hessian-damp", "0.05")
    expected = model.out.read_bytes()
    run(model.qplan, "plan", "--scheme", "int4:g32", "--hessian", model.hessian_path,
        "--hessian-damp", "0.05", "--force", "-o", plan, model.path)
    again = ("quantize", "--plan", plan, model.path, "-o", model.out, "--force", "-q")
    run(model.qplan, *again, "--hessian", model.hessian_path)
    if model.out.read_bytes() != expected:
        raise AssertionError("the plan gives other bytes")
    exact = ("verify", "-q", "--exact", "--hessian", model.hessian_path)
    run(model.qplan, *exact, "--hessian-damp", "0.05", model.out, model.path)
    run(model.qplan, *exact, model.out, model.path)
    run(model.qplan, *exact, "--hessian-damp", "0.01", model.out, model.path, expected=3)
    if "--hessian" not in run(model.qplan, *again, expected=3):
        raise AssertionError("no hint that a Hessian is needed")


def check_proof(model):
    model.round("int4:g32", "-q")
    said = run(model.qplan, "verify", model.out, model.path, expected=1)
    if "not provable without --exact" not in said or "sqnr_db" not in said:
        raise AssertionError(f"verify without the Hessian: {said}")
    said = run(model.qplan, "verify", "--allow-unproven", model.out, model.path)
    if "NOT PROVEN: 1 tensor was measured alone" not in said or "1 not proven" not in said:
        raise AssertionError(f"verify --allow-unproven: {said}")
    report = json.loads(run(model.qplan, "verify", "--json", "-q", "--allow-unproven", model.out,
                            model.path))
    if report["totals"]["proven"] or report["tensors"][0]["proven"]:
        raise AssertionError("what is not proven is said to be so")
    data = bytearray(model.out.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    at = begin + json.loads(data[8:begin])[NAME]["data_offsets"][0]
    data[at + 9] ^= 1
    model.out.write_bytes(data)
    said = run(model.qplan, "verify", "--exact", "--hessian", model.hessian_path, model.out,
               model.path, expected=1)
    if "not what ldlq gives for the source at [0,9]" not in said:
        raise AssertionError(f"a changed code: {said}")


def check_values(model):
    """Values that are not finite hand on no error; large ones are no numbers in no code."""
    x = model.x.copy()
    x[3, 5], x[7, 9], x[11, 13] = np.nan, np.inf, -np.inf
    stored.write(model.folder / "odd", {NAME: stored.packed("F32", x)})
    run(model.qplan, "quantize", "-q", "--scheme", "int4:g32", "--hessian", model.hessian_path,
        "--nonfinite", "saturate", "--verify", "--force", "-o", model.out, model.folder / "odd")
    codes = unpack(stored.read_file(model.out)[NAME], 4, x.shape)
    model.round("int4:g32", "-q")
    plain = unpack(stored.read_file(model.out)[NAME], 4, x.shape)
    rows = np.setdiff1d(np.arange(ROWS), (3, 7, 11))
    if codes[3, 5] != 0 or abs(codes[7, 9]) < 7 or (codes[rows] != plain[rows]).any():
        raise AssertionError("values that are not finite reach others")


def check_faults(model):
    """Row F17: what a Hessian cannot be."""
    bad = model.folder / "bad"

    def refuse(words, *flags, expected=3):
        said = model.quantize("int4:g32", "--hessian", bad, *flags, expected=expected)
        if words not in said:
            raise AssertionError(f"expected '{words}', found '{said}'")

    def change(row, col, value):
        hessian = model.hessian.copy()
        hessian[row, col] = value
        write_hessian(bad, {NAME: hessian})

    change(7, 7, -1)
    refuse("'" + NAME + ".hessian': bad number at [7,7]: expected a finite number of at least 0, "
           "found -1")
    for value, shown in ((np.nan, "nan"), (np.inf, "inf")):
        change(4, 4, value)
        refuse("bad number at [4,4]: expected a finite number of at least 0")
        change(4, 9, value)
        refuse("bad number at [4,9]: expected a finite number, found " + shown)
    change(4, 9, 1e6)
    refuse("expected that on the other side of the diagonal")
    for shape in ((COLS + 1, COLS + 1), (COLS, COLS + 1), (3, 3), (2, 40, 40), (4, 40, 41), (COLS,)):
        stored.write(bad, {NAME + ".hessian": stored.packed("F32", np.zeros(shape, np.float32))})
        refuse(f"not the Hessian of a weight of {COLS} columns")
    stored.write(bad, {NAME + ".hessian": stored.Stored("F16", (COLS, COLS), bytes(2 * COLS**2))})
    refuse("expected F32")
    write_hessian(bad, {"x": model.hessian}, {"format": "pt", NAME: "y"})
    refuse("expected the name of a weight whose Hessian is there, found 'y'")
    write_hessian(bad, {NAME: model.hessian, OTHER: model.hessian}, {"format": "pt", NAME: OTHER})
    refuse(f"metadata '{NAME}': expected no other Hessian where '{NAME}.hessian' is there, found "
           f"'{OTHER}'")
    write_hessian(bad, {"another.weight": model.hessian})
    refuse("bad: not the Hessians of this model: it names none of its tensors")
    bad.write_bytes(b"no")
    refuse("bad")
    hostile = np.full((COLS, COLS), 1e30, np.float32)
    np.fill_diagonal(hostile, np.exp2(-np.arange(COLS) % 50))
    write_hessian(bad, {NAME: hostile})
    refuse("not positive definite")
    # A pivot that is not above 0, until ten times as much is added.
    worse = np.full((COLS, COLS), -1, np.float32)
    np.fill_diagonal(worse, COLS - 8)
    write_hessian(bad, {NAME: worse})
    said = model.quantize("int4:g32", "--hessian", bad)
    if "not positive definite: 0.1 times the mean of its diagonal was added" not in said:
        raise AssertionError(f"a larger damp is not told: {said}")
    run(model.qplan, "verify", "-q", "--exact", "--hessian", bad, model.out, model.path)


def check_usage(model):
    for flags, words in ((("--calibrate", "ldlq"), "expected one, found none"),
                         (("--calibrate", "mse", "--hessian", model.hessian_path), "expected ldlq"),
                         (("--hessian-damp", "0.1"), "needs --hessian"),
                         (("--hessian", model.hessian_path, "--hessian-damp", "0"), "above 0"),
                         (("--hessian", model.hessian_path, "--hessian-damp", "x"), "above 0")):
        said = model.quantize("int4:g32", *flags, expected=2)
        if words not in said:
            raise AssertionError(f"{flags}: expected '{words}', found '{said}'")
    measured = ("verify", "--hessian", model.hessian_path, model.out, model.path)
    run(model.qplan, *measured, expected=1)
    run(model.qplan, *measured, "--hessian-damp", "0.1", expected=2)
    stored.write(model.folder / "f64", {NAME: stored.packed("F64", model.x.astype(np.float64))})
    said = run(model.qplan, "quantize", "--hessian", model.hessian_path, "--force", "-o", model.out,
               model.folder / "f64", expected=3)
    if "ldlq is not for this type" not in said:
        raise AssertionError(f"F64: {said}")


def check_memory(model):
    """A Hessian that does not fit is refused with what is needed, and that is enough."""
    wide = Model.__new__(Model)
    wide.__dict__.update(model.__dict__, path=model.folder / "wide",
                         hessian_path=model.folder / "wide_hessian")
    n = 1024
    x = np.random.default_rng(5).standard_normal((96, n)).astype(np.float32)
    stored.write(wide.path, {NAME: stored.packed("F32", x)})
    write_hessian(wide.hessian_path, {NAME: hessian_of(np.random.default_rng(6), n, n + 1)})
    said = wide.quantize("int4:g32", "--hessian", wide.hessian_path, "--memory", "5M", expected=5)
    if f"the cap is too small for the Hessian of '{NAME}': expected at least" not in said:
        raise AssertionError(f"too little memory: {said}")
    wide.round("int4:g32", "-q")
    expected = wide.out.read_bytes()
    for threads in ("1", "2"):
        wide.round("int4:g32", "-q", "--memory", said.split("at least ")[1].split(" ")[0],
                   "--threads", threads)
        if wide.out.read_bytes() != expected:
            raise AssertionError("other bytes with little memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    checks = (check_references, check_nearest, check_determinism, check_blocks, check_losses,
              check_names, check_documents, check_proof, check_values, check_faults, check_usage,
              check_memory, check_layouts, check_flat_groups)
    with tempfile.TemporaryDirectory() as name:
        model = Model(pathlib.Path(name), qplan, np.random.default_rng(18))
        for check in checks:
            check(model)
    print("Hessians: as they should be")


if __name__ == "__main__":
    main()
