#!/usr/bin/env python3
"""Measures every operator at a realistic size, against memcpy and, where it is there, PyTorch.

The ratio to memcpy is the time of a memcpy of the bytes that the operator must move (its inputs and
outputs, once each) divided by the operator's, on one thread and on two. A memcpy reads and writes
each of these bytes, the operator does one of the two: 2 is as fast as memory. One thread is timed
by the CPU time it used, two by the clock.

The ratio to PyTorch is its time for the same result divided by the operator's: above 1 qplan is
faster. PyTorch's side is one call where it has one, else the expression that people write. Times are
the least of all rounds: what else runs on the machine only adds to them.

The problems are a table; an operator of `qplan op list` that has none is an error.
"""

import argparse
import json
import os
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

ROWS = COLS = 4096
GROUP = 128


class Row:
    """A problem, its goal, and the call of PyTorch that does the same."""

    def __init__(self, name, op, words, reference, goal=None):
        self.name, self.op, self.words, self.reference, self.goal = name, op, words, reference, goal
        self.results, self.torch_seconds = [], []


# ---- The quantize family -------------------------------------------------------------------------

SETS = {"per_tensor": (), "per_channel": (ROWS,), "per_group": (ROWS, COLS // GROUP),
        "per_token": (ROWS,), "per_block": (ROWS // GROUP, COLS // GROUP)}
FIELDS = {"per_channel": ["axis=0"], "per_group": [f"group_size={GROUP}"],
          "per_block": [f"block_rows={GROUP}", f"block_cols={GROUP}"]}


def spread(granularity, x):
    """Scales as the expressions of PyTorch want them: broadcast against [.., rows, .., cols]."""
    views = {"per_tensor": (1,), "per_channel": (ROWS, 1), "per_token": (ROWS, 1),
             "per_group": (ROWS, COLS // GROUP, 1),
             "per_block": (ROWS // GROUP, 1, COLS // GROUP, 1)}
    return x.reshape(views[granularity])


def folded(granularity, x):
    views = {"per_group": (ROWS, COLS // GROUP, GROUP),
             "per_block": (ROWS // GROUP, GROUP, COLS // GROUP, GROUP)}
    return x.reshape(views[granularity]) if granularity in views else x


class Family:
    """Tensors of PyTorch for one granularity and dtype, and its calls."""

    def __init__(self, granularity, dtype):
        self.g = granularity
        self.x = torch.rand(ROWS, COLS).mul(2).sub(1).to(dtype)
        self.dy = torch.rand(ROWS, COLS).to(dtype)
        self.scale = torch.rand(SETS[granularity] or (1,)).add(1).div(96)
        self.zero = torch.zeros_like(self.scale, dtype=torch.int32)
        self.codes = torch.randint(-128, 128, (ROWS, COLS), dtype=torch.int8)
        self.s, self.f = spread(granularity, self.scale), folded(granularity, self.x)

    def quantize(self):
        if self.g == "per_tensor" and self.x.dtype == torch.float32:
            return lambda: torch.quantize_per_tensor(self.x, self.scale, self.zero, torch.qint8)
        if self.g in ("per_channel", "per_token") and self.x.dtype == torch.float32:
            return lambda: torch.quantize_per_channel(self.x, self.scale, self.zero, 0, torch.qint8)
        return lambda: torch.round(self.f / self.s).clamp_(-128, 127).to(torch.int8)

    def mask(self):
        steps = torch.round(self.f / self.s)
        return (steps >= -128) & (steps <= 127)

    def quantize_backward(self):
        dy = folded(self.g, self.dy)
        return lambda: torch.where(self.mask(), dy / self.s, 0)

    def dequantize(self):
        if self.g == "per_tensor":
            q = torch.quantize_per_tensor(self.x.float(), self.scale, self.zero, torch.qint8)
            return q.dequantize
        if self.g in ("per_channel", "per_token"):
            q = torch.quantize_per_channel(self.x.float(), self.scale, self.zero, 0, torch.qint8)
            return q.dequantize
        codes = folded(self.g, self.codes)
        return lambda: codes.float() * self.s

    def dequantize_backward(self):
        dy = folded(self.g, self.dy)
        return lambda: dy * self.s

    def channels(self):
        """Data as channels of one set each, for the calls that know channels only."""
        if self.g == "per_tensor":
            return self.x.reshape(1, -1)
        return self.f.movedim(1, 2).reshape(-1, GROUP * GROUP) if self.g == "per_block" else \
            self.f.reshape(self.scale.numel(), -1)

    def fake_quantize(self):
        x, s, z = self.channels(), self.scale.reshape(-1), self.zero.reshape(-1)
        return lambda: torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127)

    def fake_quantize_backward(self):
        dy = folded(self.g, self.dy)
        return lambda: torch.where(self.mask(), dy, 0)

    def fake_quantize_learnable(self):
        x, s = self.channels(), self.scale.reshape(-1)
        z = torch.zeros_like(s)
        return lambda: torch._fake_quantize_learnable_per_channel_affine(x, s, z, 0, -128, 127, 1.0)

    def fake_quantize_learnable_backward(self):
        x, s = self.channels(), self.scale.reshape(-1)
        dy, z = self.dy.reshape(x.shape), torch.zeros_like(s)
        return lambda: torch.ops.aten._fake_quantize_learnable_per_channel_affine_backward(
            dy, x, s, z, 0, -128, 127, 1.0)

    def dynamic_quantize(self):
        axes = {"per_tensor": None, "per_block": (1, 3)}.get(self.g, -1)

        def call():
            s = self.f.abs().amax(axes, keepdim=axes is not None) / 127.5
            return torch.round(self.f / s).clamp_(-128, 127).to(torch.int8)
        return call


class Floats(Family):
    """The same with codes of f8e4m3, for which PyTorch has a cast."""

    def quantize(self):
        return lambda: (self.f / self.s).clamp_(-448, 448).to(torch.float8_e4m3fn)

    def dequantize(self):
        codes = self.quantize()()
        return lambda: codes.float() * self.s

    def fake_quantize(self):
        make = self.quantize()
        return lambda: make().float() * self.s

    def mask(self):
        return (self.f / self.s).abs() <= 448


def quantize_rows():
    data = f"{ROWS}x{COLS}"
    for granularity, sets in SETS.items():
        fields, shape = FIELDS.get(granularity, []), "x".join(map(str, sets or (1,)))
        scale, zero = f"scale:F32:{shape}:scale", f"zero_point:F32:{shape}:zero"

        def row(op, words, dtype="F32", goal=None, kind="", family=Family):
            stem = op.replace(f"_{granularity}", "")
            torch_dtype = {"F32": "float32", "BF16": "bfloat16"}[dtype]
            return Row(op + kind + (" bf16" if dtype == "BF16" else ""), op, fields + words,
                       lambda: getattr(family(granularity, getattr(torch, torch_dtype)), stem)(),
                       goal)

        def floats(op, words):
            return row(op, words, kind=" f8e4m3", family=Floats)

        g, x, dy = granularity, f"input:F32:{data}", f"dout:F32:{data}"
        goal = 0.7 if g in ("per_channel", "per_group") else None
        yield row(f"quantize_{g}", [x, scale], goal=goal)
        yield row(f"quantize_{g}", [f"input:BF16:{data}", scale], "BF16", goal)
        yield row(f"quantize_{g}_backward", [dy, x, scale])
        yield row(f"dequantize_{g}", [f"input:I8:{data}", scale])
        yield row(f"dequantize_{g}_backward", [dy, scale])
        yield row(f"fake_quantize_{g}", [x, scale])
        yield row(f"fake_quantize_{g}_backward", [dy, x, scale])
        yield row(f"fake_quantize_learnable_{g}", [x, scale, zero])
        yield row(f"fake_quantize_learnable_{g}_backward", [dy, x, scale, zero])
        yield row(f"dynamic_quantize_{g}", [x])
        if g in ("per_channel", "per_group"):
            codes = f"input:F8_E4M3:{data}:below=127"
            yield floats(f"quantize_{g}", ["output_dtype=f8e4m3", x, scale])
            yield floats(f"dequantize_{g}", [codes, scale])
            yield floats(f"fake_quantize_{g}", ["code_dtype=f8e4m3", x, scale])
            yield floats(f"fake_quantize_{g}_backward", ["code_dtype=f8e4m3", dy, x, scale])


# ---- Embedding -----------------------------------------------------------------------------------

VOCABULARY, WIDTH, TOKENS, BAG = 32000, 1024, 8192, 16


def embedding_rows():
    weight, index = f"weight:F32:{VOCABULARY}x{WIDTH}", f"below={VOCABULARY}"
    table = [f"num_embeddings={VOCABULARY}"]

    def tensors():
        return torch.rand(VOCABULARY, WIDTH), torch.randint(VOCABULARY, (TOKENS,))

    def forward():
        w, i = tensors()
        return lambda: F.embedding(i, w)

    def backward():
        dy, i = torch.rand(TOKENS, WIDTH), tensors()[1]
        return lambda: torch.ops.aten.embedding_dense_backward(dy, i, VOCABULARY, -1, False)

    def bag(mode):
        w, i = tensors()
        i = i.reshape(-1, BAG)
        return lambda: F.embedding_bag(i, w, mode=mode)

    def bag_backward():
        w, i = tensors()
        w.requires_grad_()
        y = F.embedding_bag(i.reshape(-1, BAG), w, mode="sum")
        dy = torch.rand_like(y)
        return lambda: torch.autograd.grad(y, w, dy, retain_graph=True)

    moved = f"@{2 * TOKENS * WIDTH * 4}"  # not the whole table
    yield Row("embedding", "embedding", [moved, weight, f"indices:I64:{TOKENS}:{index}"], forward)
    yield Row("embedding_backward", "embedding_backward",
              [*table, f"dout:F32:{TOKENS}x{WIDTH}", f"indices:I64:{TOKENS}:{index}"], backward)
    bags = f"indices:I64:{TOKENS // BAG}x{BAG}:{index}"
    for mode in ("sum", "mean", "max"):
        yield Row(f"embedding_bag {mode}", "embedding_bag",
                  [f"@{(TOKENS + TOKENS // BAG) * WIDTH * 4}", f"mode={mode}", weight, bags],
                  lambda mode=mode: bag(mode))
    yield Row("embedding_bag_backward", "embedding_bag_backward",
              [*table, f"dout:F32:{TOKENS // BAG}x{WIDTH}", bags], bag_backward)


# ---- Grid sample, affine grid, parameters --------------------------------------------------------


def grid_rows():
    for dims, shape in ((2, (8, 32, 128, 128)), (3, (2, 16, 32, 64, 64))):
        batch, channels, *size = shape
        points = (batch, *size, dims)
        x, grid, dy = (f"{name}:F32:{'x'.join(map(str, extents))}" for name, extents in
                       (("input", shape), ("grid", points), ("dout", shape)))

        def sample(mode, shape=shape, points=points):
            x, grid = torch.rand(shape), torch.rand(points) * 2 - 1
            return lambda: F.grid_sample(x, grid, mode=mode, align_corners=False)

        def sample_backward(mode, shape=shape, points=points):
            x, grid = torch.rand(shape), torch.rand(points) * 2 - 1
            x.requires_grad_()
            grid.requires_grad_()
            y = F.grid_sample(x, grid, mode=mode, align_corners=False)
            dy = torch.rand_like(y)
            return lambda: torch.autograd.grad(y, (x, grid), dy, retain_graph=True)

        def affine(shape=shape, dims=dims):
            theta = torch.rand(shape[0], dims, dims + 1)
            return lambda: F.affine_grid(theta, shape, align_corners=False)

        def affine_backward(shape=shape, dims=dims):
            theta = torch.rand(shape[0], dims, dims + 1).requires_grad_()
            y = F.affine_grid(theta, shape, align_corners=False)
            dy = torch.rand_like(y)
            return lambda: torch.autograd.grad(y, theta, dy, retain_graph=True)

        for mode in ("bilinear", "nearest") + ("bicubic",) * (dims == 2):
            yield Row(f"grid_sample_{dims}d {mode}", f"grid_sample_{dims}d",
                      [f"mode={mode}", x, grid], lambda mode=mode, make=sample: make(mode))
            yield Row(f"grid_sample_{dims}d_backward {mode}", f"grid_sample_{dims}d_backward",
                      [f"mode={mode}", dy, x, grid],
                      lambda mode=mode, make=sample_backward: make(mode))
        out = [f"out_{axis}={n}" for axis, n in zip("dhw"[3 - dims:], size)]
        yield Row(f"affine_grid_{dims}d", f"affine_grid_{dims}d",
                  [*out, f"theta:F32:{batch}x{dims}x{dims + 1}"], affine)
        yield Row(f"affine_grid_{dims}d_backward", f"affine_grid_{dims}d_backward",
                  [*out, f"dout:F32:{'x'.join(map(str, points))}"], affine_backward)


def parameter_rows():
    n = 1 << 16

    def observer():
        from torch.ao.quantization.observer import PerChannelMinMaxObserver
        o = PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
        low, high = torch.rand(n).neg(), torch.rand(n)
        return lambda: o._calculate_qparams(low, high)

    yield Row("params_from_statistics", "params_from_statistics",
              ["dtype=int8", "scheme=symmetric", f"min:F32:{n}:zero", f"max:F32:{n}:scale"],
              observer)


def rows():
    return [*quantize_rows(), *embedding_rows(), *grid_rows(), *parameter_rows()]


# ---- Measuring -----------------------------------------------------------------------------------


class Bench:
    def __init__(self, options):
        self.options = options
        self.tool = os.path.join(options.build, "bench-ops")
        listing = subprocess.run([os.path.join(options.build, "qplan"), "op", "list", "--json"],
                                 capture_output=True, check=True)
        names = [op["name"] for op in json.loads(listing.stdout)["operators"]]
        table = rows()
        lost = set(names) - {row.op for row in table}
        if lost:
            sys.exit(f"no problem for: {', '.join(sorted(lost))}")
        self.rows = [row for row in table if row.op in names and options.only in row.name]

    def run_row(self, row):
        env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
        done = subprocess.run([self.tool, str(self.options.rounds), row.op, *row.words], env=env,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{row.name}: {done.stderr}")
        row.results.append(json.loads(done.stdout))
        if torch and not self.options.no_torch:
            row.torch_seconds.append(self.time_torch(row))

    def time_torch(self, row):
        """Seconds on one thread and on two, by the same clocks as bench-ops."""
        call, least = row.reference(), []
        for threads, clock in ((1, time.process_time), (2, time.perf_counter)):
            torch.set_num_threads(threads)
            call()
            seconds = []
            for _ in range(self.options.rounds):
                start = clock()
                call()
                seconds.append(clock() - start)
            least.append(min(seconds))
        return least

    def run(self):
        for index in range(self.options.repeat):
            for row in self.rows:
                self.run_row(row)
            print(f"round {index + 1} of {self.options.repeat}", file=sys.stderr)

    def table(self):
        for row in self.rows:
            seconds, copies = ([min(result["runs"][i][key] for result in row.results)
                                for i in (0, 1)] for key in ("seconds", "memcpy"))
            figures = {"name": row.name, "goal": row.goal, "arch": row.results[0]["arch"],
                       "bytes": row.results[0]["bytes"], "seconds": seconds, "memcpy": copies,
                       "memcpy_ratio": [copy / run for copy, run in zip(copies, seconds)]}
            if row.torch_seconds:
                figures["torch_seconds"] = [min(times[i] for times in row.torch_seconds)
                                            for i in (0, 1)]
                figures["torch_ratio"] = [theirs / ours for theirs, ours in
                                          zip(figures["torch_seconds"], seconds)]
            yield figures


def as_text(table):
    lines = [f"{'operator':46} {'MB':>6} {'ms, 1':>8} {'ms, 2':>8} {'memcpy, 1':>10} "
             f"{'memcpy, 2':>10} {'goal':>5} {'torch, 1':>9} {'torch, 2':>9}"]
    for row in table:
        line = f"{row['name']:46} {row['bytes'] / 1e6:6.1f} {1e3 * row['seconds'][0]:8.2f} " \
               f"{1e3 * row['seconds'][1]:8.2f} {row['memcpy_ratio'][0]:10.2f} " \
               f"{row['memcpy_ratio'][1]:10.2f} {row['goal'] or '':>5}"
        if "torch_ratio" in row:
            line += f" {row['torch_ratio'][0]:9.2f} {row['torch_ratio'][1]:9.2f}"
        lines.append(line)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="runs of a problem in a row [7]")
    parser.add_argument("--repeat", type=int, default=3, help="times through the table [3]")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    bench.run()
    table = list(bench.table())
    if options.json:
        print(json.dumps({"schema": "qplan-bench-ops/1", "rows": table,
                          "torch": torch.__version__ if torch else None}))
    else:
        print(as_text(table))


if __name__ == "__main__":
    main()
