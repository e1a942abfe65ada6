#!/usr/bin/env python3
"""Compares grid samples and affine grids with another way to write them, on random problems.

    grid.py --qplan PROGRAM [--cases N] [--seed N]

A sample is a product of one matrix for each axis, points by pixels: the kernel of the mode at the
distance of every pixel of the image, which padding continues as zeros, as its edge, or as its
mirror image. Gradients follow from the same matrices and their derivatives. Everything is in f64;
points keep away from kinks and ties. Affine grids are exact rationals, rounded once.
"""

import argparse
import fractions
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import numpy

import run

LIMIT = {"F64": 1e-12, "F32": 5e-6, "F16": 2e-3, "BF16": 1e-2}  # of the largest value


# ---- Files ---------------------------------------------------------------------------------------

def stored(dtype, values):
    """The bits of values that the type can hold; bf16 drops what it cannot."""
    if dtype == "BF16":
        return (numpy.asarray(values, "<f4").view("<u4") >> 16).astype("<u2")
    return numpy.asarray(values, run.NUMPY[dtype])


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, bits) in tensors.items():
        raw = numpy.ascontiguousarray(bits).tobytes()
        header[name] = {"dtype": dtype, "shape": list(bits.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# ---- Padding -------------------------------------------------------------------------------------

def fold(p, size, padding, align):
    """Where a coordinate is after padding, and the derivative."""
    if padding == "zeros":
        return p, 1.0
    slope = 1.0
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return 0.0, 0.0
        phase = (p - low) % (2 * span)
        slope = 1.0 if phase < span else -1.0
        p = low + span - abs(span - phase)
    if p <= 0 or p >= size - 1:
        return min(max(p, 0.0), size - 1.0), 0.0
    return p, slope


def pixel_of(i, size, padding, align):
    """The pixel that an integer place shows, or None."""
    if padding == "zeros":
        return i if 0 <= i < size else None
    if padding == "border":
        return min(max(i, 0), size - 1)
    ahead = list(range(size))
    wave = ahead + (ahead[-2:0:-1] if align else ahead[::-1])
    return wave[i % len(wave)]


# ---- Matrices ------------------------------------------------------------------------------------

def cubic(x):
    """Keys' kernel with A = -3/4, and its derivative."""
    a, d = -0.75, abs(x)
    if d >= 2:
        return 0.0, 0.0
    if d >= 1:
        value, slope = a * (d - 2) ** 2 * (d - 1), a * (3 * d * d - 10 * d + 8)
    else:
        value, slope = (a + 2) * d ** 3 - (a + 3) * d * d + 1, 3 * (a + 2) * d * d - 2 * (a + 3) * d
    return value, math.copysign(1, x) * slope


def axis_row(g, size, rule):
    """Weights of all pixels of an axis for one coordinate, and their derivatives by it."""
    mode, padding, align = rule
    weight, slope = numpy.zeros(size), numpy.zeros(size)
    rate = (size - 1) / 2 if align else size / 2
    p = g * rate + (size - 1) / 2
    if mode == "bicubic":
        for i in range(math.floor(p) - 2, math.floor(p) + 4):
            pixel = pixel_of(i, size, padding, align)
            if pixel is not None:
                value, change = cubic(p - i)
                weight[pixel] += value
                slope[pixel] += change * rate
        return weight, slope
    p, factor = fold(p, size, padding, align)
    if mode == "nearest":
        if 0 <= round(p) < size:
            weight[round(p)] = 1
        return weight, slope
    for i in range(size):
        weight[i] = max(0.0, 1 - abs(p - i))
        if abs(p - i) < 1:
            slope[i] = (-1 if p >= i else 1) * rate * factor
    if p == int(p) and int(p) + 1 < size:  # at a pixel: the derivative to the right
        slope[int(p) + 1] = rate * factor
    return weight, slope


def reference(tensors, rule):
    """output, dinput and dgrid."""
    image, grid, dout = (tensors[name] for name in ("input", "grid", "dout"))
    sizes = image.shape[2:]
    n, c = image.shape[:2]
    points = grid.reshape(n, -1, len(sizes))
    output = numpy.zeros((n, c, points.shape[1]))
    dinput, dgrid = numpy.zeros(image.shape), numpy.zeros(points.shape)
    flat = dout.reshape(n, c, -1)
    for b in range(n):
        for p in range(points.shape[1]):
            if not numpy.isfinite(points[b, p]).all():
                continue
            rows = [axis_row(points[b, p, len(sizes) - 1 - i], size, rule)
                    for i, size in enumerate(sizes)]  # of the slowest axis first
            whole = outer([weight for weight, _ in rows])
            output[b, :, p] = (image[b] * whole).reshape(c, -1).sum(1)
            dinput[b] += flat[b, :, p].reshape((c,) + (1,) * len(sizes)) * whole
            for axis in range(len(sizes)):
                turned = outer([row[1] if i == axis else row[0] for i, row in enumerate(rows)])
                value = (image[b] * turned).reshape(c, -1).sum(1)
                dgrid[b, p, len(sizes) - 1 - axis] = (value * flat[b, :, p]).sum()
    return {"output": output.reshape(dout.shape), "dinput": dinput,
            "dgrid": dgrid.reshape(grid.shape)}


def outer(rows):
    product = rows[0]
    for row in rows[1:]:
        product = product[..., None] * row
    return product


# ---- Random problems -----------------------------------------------------------------------------

def coordinate(rng, dtype, size, align):
    """A value of the type that is 1/50 of a pixel from every pixel, edge and tie."""
    while True:
        g = rng.choice((rng.uniform(-1, 1), rng.uniform(-3, 3)))
        if rng.random() < 0.02:
            return math.nan
        g = float(run.numbers(dtype, stored(dtype, [g]))[0])
        p = ((g + 1) * (size - 1) if align else (g + 1) * size - 1) / 2
        if size == 1 and align or abs(2 * p - round(2 * p)) > 0.04:
            return g


def random_sample(rng):
    dims = rng.choice((2, 2, 3))
    dtype = rng.choice(("F64", "F32", "F32", "F16", "BF16"))
    mode = rng.choice(("bilinear", "nearest", "bicubic")[:3 if dims == 2 else 2])
    rule = mode, rng.choice(("zeros", "border", "reflection")), rng.choice((False, True))
    n, c = rng.randint(1, 2), rng.choice((1, 2, 3, 5, 8, 9, 13, 16, 17))
    sizes = [rng.randint(1, 6) for _ in range(dims)]
    outs = [rng.randint(1, 5) for _ in range(dims)]
    some = numpy.random.default_rng(rng.getrandbits(32))
    grid = numpy.array([coordinate(rng, dtype, sizes[dims - 1 - i % dims], rule[2])
                        for i in range(n * math.prod(outs) * dims)]).reshape([n, *outs, dims])
    bits = {"input": stored(dtype, some.standard_normal([n, c, *sizes])),
            "grid": stored(dtype, grid),
            "dout": stored(dtype, some.standard_normal([n, c, *outs]))}
    return dims, dtype, rule, bits


class Tester:
    def __init__(self, qplan, folder):
        self.qplan, self.folder, self.failures = qplan, pathlib.Path(folder), []

    def call(self, op, fields, tensors):
        source, out = self.folder / "in.safetensors", self.folder / "out.safetensors"
        write(source, tensors)
        words = [w for k, v in fields.items() for w in
                 ("--set", f"{k}={v if isinstance(v, str) else json.dumps(v)}")]
        done = subprocess.run([self.qplan, "op", "run", op, *words, "--force", "-o", out, source],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{op} {fields}: exit {done.returncode}\n{done.stderr}")
        return run.read(out)[0]

    def compare(self, what, got, want, limit, least=0):
        """least: how large the terms are, where their sum may cancel."""
        x, y = run.numbers(*got), numpy.asarray(want)
        most = max(numpy.abs(y).max(), least)
        error = numpy.abs(x - y).max() if x.shape == y.shape else math.inf
        if not error <= limit * most:
            self.failures.append(f"{what}: off by {error:.3g}, largest {most:.3g}, shape {x.shape}")

    def sample(self, rng):
        dims, dtype, rule, bits = random_sample(rng)
        tensors = {name: (dtype, value) for name, value in bits.items()}
        want = reference({name: run.numbers(*t) for name, t in tensors.items()}, rule)
        fields = dict(zip(("mode", "padding_mode", "align_corners"), rule))
        what = f"{dims}-D {dtype} {rule} {[list(b.shape) for b in bits.values()]}"
        dout = tensors.pop("dout")
        got = self.call(f"grid_sample_{dims}d", fields, tensors)
        got |= self.call(f"grid_sample_{dims}d_backward", fields, {"dout": dout, **tensors})
        for name, value in want.items():
            self.compare(f"{what} {name}", got[name], value, LIMIT[dtype],
                         max(bits["input"].shape[2:]) if name == "dgrid" else 0)

    def affine(self, rng):
        dims, dtype = rng.choice((2, 3)), rng.choice(("F64", "F32", "BF16"))
        n, align = rng.randint(1, 3), rng.choice((False, True))
        outs = [rng.randint(1, 7) for _ in range(dims)]
        some = numpy.random.default_rng(rng.getrandbits(32))
        theta = stored(dtype, some.standard_normal([n, dims, dims + 1]))
        dout = stored(dtype, some.standard_normal([n, *outs, dims]))
        fields = {**dict(zip(("out_d", "out_h", "out_w")[3 - dims:], outs)), "align_corners": align}
        got = self.call(f"affine_grid_{dims}d", fields, {"theta": (dtype, theta)})
        got |= self.call(f"affine_grid_{dims}d_backward", fields, {"dout": (dtype, dout)})
        want, sums = exact_affine(run.numbers(dtype, theta), run.numbers(dtype, dout), outs, align)
        what = f"affine {dims}-D {dtype} {outs} align {align}"
        limit = {"F64": 1e-15, "F32": 2 ** -24, "BF16": 2 ** -8}[dtype]
        self.compare(f"{what} output", got["output"], want, limit)
        self.compare(f"{what} dtheta", got["dtheta"], sums, 4 * limit)


def exact_affine(theta, dout, outs, align):
    """Points and gradient by rationals, rounded to f64."""
    def base(i, size):
        if align:
            return fractions.Fraction(2 * i, size - 1) - 1 if size > 1 else fractions.Fraction(0)
        return fractions.Fraction(2 * i + 1, size) - 1

    exact = numpy.vectorize(fractions.Fraction, otypes=[object])
    theta, dout = exact(theta), exact(dout)
    want = numpy.zeros(dout.shape)
    sums = theta * 0
    for at in numpy.ndindex(dout.shape[:-1]):
        b, place = at[0], at[1:]
        point = [base(i, size) for i, size in zip(place[::-1], outs[::-1])] + [fractions.Fraction(1)]
        for row in range(theta.shape[1]):
            want[at][row] = float(sum(t * x for t, x in zip(theta[b, row], point)))
            for col, x in enumerate(point):
                sums[b, row, col] += dout[at][row] * x
    return want, sums.astype(float)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(args.qplan, folder)
        for i in range(args.cases):
            rng = random.Random(args.seed * 1000003 + i)
            (tester.affine if i % 5 == 4 else tester.sample)(rng)
    print("\n".join(tester.failures))
    print(f"grid: {args.cases} problems, {len(tester.failures)} failures")
    return 1 if tester.failures else 0


if __name__ == "__main__":
    sys.exit(main())
