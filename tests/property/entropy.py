#!/usr/bin/env python3
"""Ranges by entropy, against the definition in numpy.

Divergences of all cuts are computed here from probabilities, as TensorRT describes them; of those
that are nearly the least, again in whole numbers with logarithms of 60 digits, so that ties are
known. Scales and zero points must be those of minmax from the values brought into the range that
this gives, to the byte: for every level of the CPU, number of threads and memory.
"""

import argparse
import decimal
import functools
import json
import pathlib
import tempfile

import numpy as np

from least_error import columns, groups, run, stored, whole

SETTINGS = (("scalar",), ("avx2", "--threads", "1"), ("avx512", "--threads", "2"),
            ("avx512", "--threads", "3", "--memory", "16M"), ("avx512", "--threads", "7"))
NEAR = 1e-9


# ---- The definition --------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def log2_units(n):
    """The binary logarithm in units of 2^-40, rounded down."""
    with decimal.localcontext(prec=60):
        if n & (n - 1) == 0:
            return (n.bit_length() - 1) << 40
        return int(decimal.Decimal(n).ln() / decimal.Decimal(2).ln() * (1 << 40))


def spread(counts, cut, levels):
    """The bins before a cut: count and number of filled bins of the level of each."""
    level = np.arange(cut) * levels // cut
    total = np.bincount(level, counts[:cut], levels).astype(np.int64)
    filled = np.bincount(level, counts[:cut] > 0, levels).astype(np.int64)
    return total[level], filled[level]


def heaped(counts, cut):
    p = counts[:cut].copy()
    p[-1] += counts[cut:].sum()
    return p


def divergence(counts, cut, levels):
    p = heaped(counts, cut)
    total, filled = spread(counts, cut, levels)
    has = p > 0
    if (counts[:cut][has] == 0).any():
        return np.inf
    q = total[has] / filled[has] / counts[:cut].sum()
    p = p[has] / p.sum()
    return float((p * np.log2(p / q)).sum())


def whole_divergence(counts, cut, levels):
    total, filled = (values.tolist() for values in spread(counts, cut, levels))
    n, m = int(counts.sum()), int(counts[:cut].sum())
    return sum(p * (log2_units(p) - log2_units(n) - log2_units(s) + log2_units(z) + log2_units(m))
               for p, s, z in zip(heaped(counts, cut).tolist(), total, filled) if p)


def best_cut(counts, levels):
    cuts = list(range(levels, len(counts))) + [len(counts)]
    found = [divergence(counts, cut, levels) for cut in cuts]
    near = [cut for cut, d in zip(cuts, found) if d <= min(found) + NEAR]
    exact = [whole_divergence(counts, cut, levels) for cut in near]
    return max(cut for cut, d in zip(near, exact) if d == min(exact))


def kept_range(x, bins, bits, asymmetric):
    """The range of a set, in f64."""
    lo, hi = min(x.min(), 0.0), max(x.max(), 0.0)
    most = max(-lo, hi)
    if most == 0:
        return lo, hi
    with np.errstate(under="ignore"):
        at = (np.abs(x) / most * bins).astype(np.int64)
    counts = np.bincount(np.minimum(at, bins - 1), minlength=bins)
    one_sign = lo == 0 or hi == 0
    cut = best_cut(counts, 1 << (bits if asymmetric and one_sign else bits - 1))
    end = most * (cut / bins)
    return max(lo, -end), min(hi, end)


# ---- Files -----------------------------------------------------------------------------------------

def heavy(rng, *shape):
    x = rng.standard_t(3, shape) * 0.02
    x.reshape(shape[0], -1)[::5, 2] *= 40
    x[0] = np.abs(x[0])
    x[-1] = 0
    return x


def whole_numbers(rng, *shape):
    """Values of few sizes: most bins are empty, and many cuts are as good as each other."""
    return rng.integers(-40, 41, shape) * 0.25


class Case:
    def __init__(self, scheme, bins, dtype, fold, shape, values=heavy):
        self.scheme, self.bins, self.dtype = scheme, bins, dtype
        self.fold, self.shape, self.values = fold, shape, values
        self.bits = int(scheme.lstrip("uint")[0])

    def source(self, rng, path):
        tensor = stored.packed(self.dtype, self.values(rng, *self.shape)) \
            if self.dtype != "F64" else stored.Stored("F64", self.shape, self.values(
                rng, *self.shape).astype("<f8").tobytes())
        stored.write(path, {"w": tensor})
        return values_of(tensor)

    def bring_in(self, x, path):
        """Writes the values, each brought into the range of its set, in working precision."""
        dtype = np.float64 if self.dtype == "F64" else np.float32
        places = self.fold(np.arange(x.size).reshape(x.shape))
        out = x.astype(dtype).ravel()
        for place in places:
            values = x.ravel()[place].astype(np.float64)
            ends = kept_range(values, self.bins, self.bits, "asym" in self.scheme)
            out[place] = np.clip(out[place], *(dtype(end) for end in ends))
        name = "F64" if dtype is np.float64 else "F32"
        stored.write(path, {"w": stored.Stored(name, self.shape, out.tobytes())})


def values_of(tensor):
    if tensor.dtype == "F64":
        return np.frombuffer(tensor.data, "<f8").reshape(tensor.shape)
    return stored.values(tensor)


CASES = (
    Case("int8:t", 2048, "F32", whole, (160, 512)),
    Case("int8:t", 2048, "BF16", whole, (700, 512)),
    Case("int8:c0", 2048, "BF16", groups(768), (12, 768)),
    Case("int8:c0:narrow:f16", 512, "F16", groups(3000), (12, 3000)),
    Case("int8:c0:asym:bf16", 300, "F32", groups(999), (12, 999)),
    Case("uint8:t:asym", 1024, "F64", whole, (64, 200)),
    Case("int4:c0", 2048, "F32", groups(512), (24, 512)),
    Case("int4:c1:asym", 256, "BF16", columns, (800, 40)),
    Case("int4:g128:f16", 128, "BF16", groups(128), (8, 256)),
    Case("int4:c0", 64, "F64", groups(320), (12, 320)),
    Case("int8:c0", 64, "F32", groups(64), (12, 64)),
    Case("int3:c0", 2048, "F32", groups(40), (12, 40), whole_numbers),
    Case("int8:c0", 8192, "F32", groups(60), (4, 60), whole_numbers),
    Case("int2:c0:asym", 333, "F16", groups(640), (6, 640)),
    Case("uint4:t:bias:f16", 512, "BF16", whole, (40, 128)),
)


KNOWN = (
    (lambda j: 20000 // (j + 8), (2048, 2040)),
    (lambda j: 3000000 // (j + 30) ** 2, (1703, 520)),
    (lambda j: 2 ** 40 // (j + 400) ** 4, (625, 624)),
    (lambda j: 3 + (j * 7919) % 5, (2048, 2048)),
    (lambda j: 90 * (j < 900) + (j % 97 == 6), (2048, 900)),
)


# ---- Laws ------------------------------------------------------------------------------------------

def params_of(path):
    """The bytes of scales, and of zero points or biases."""
    return {name: tensor.data for name, tensor in stored.read_file(path).items() if name != "w"}


def check(qplan, case, folder, rng):
    source, clipped, out = (folder / f"{name}.safetensors" for name in ("m", "c", "o"))
    x = case.source(rng, source)
    case.bring_in(x, clipped)
    method = f"entropy:{case.bins}"
    run(qplan, "quantize", clipped, "-o", out, "--force", "-q", "--scheme", case.scheme)
    expected = params_of(out)
    make = ("quantize", source, "-o", out, "--force", "-q", "--scheme", case.scheme)
    made = None
    for cpu, *flags in SETTINGS:
        run(qplan, *make, "--calibrate", method, *flags, cpu=cpu)
        if params_of(out) != expected:
            raise AssertionError(f"{case.scheme} {case.dtype} {method}: not the parts of the "
                                 f"definition with {cpu} {' '.join(flags)}")
        if made not in (None, out.read_bytes()):
            raise AssertionError(f"{case.scheme} {method}: other bytes with {cpu} {flags}")
        made = out.read_bytes()
    run(qplan, "verify", out, source)
    run(qplan, "verify", "--exact", out, source)
    report = json.loads(run(qplan, "inspect", "--json", out))
    if report["tensors"][0]["calibrate"] != method:
        raise AssertionError(f"the record has {report['tensors'][0]['calibrate']}")


def check_known(qplan, folder):
    """Cuts that ModelOpt 0.47.0 finds (_compute_amax_entropy), of 2048 bins by their numbers."""
    source, clipped, out = (folder / f"{name}.safetensors" for name in ("m", "c", "o"))
    j = np.arange(2048)
    for counts, cuts in KNOWN:
        counts = counts(j)
        counts[0] = counts[1]  # as ModelOpt has it
        sizes = np.append(np.repeat((j + 0.5) / 2048, counts), 1)
        counts[-1] += 1
        x = np.where(np.arange(len(sizes)) % 2, sizes, -sizes).astype(np.float32)
        x[-1] = 1
        for bits, cut in zip((8, 4), cuts):
            if best_cut(counts, 1 << (bits - 1)) != cut:
                raise AssertionError(f"{cut} is not the cut of the definition")
            parts = []
            for path, values, method in ((source, x, "entropy"),
                                         (clipped, x.clip(-cut / 2048, cut / 2048), "minmax")):
                stored.write(path, {"w": stored.packed("F32", values.astype(np.float32)[None])})
                run(qplan, "quantize", path, "-o", out, "--force", "-q", "--scheme",
                    f"int{bits}:t", "--calibrate", method)
                parts.append(params_of(out))
            if parts[0] != parts[1]:
                raise AssertionError(f"int{bits}: the cut is not {cut}")


def check_pieces(qplan, folder, rng):
    """Sets that outgrow a tile, side by side: in pieces, and in order of rows when transposed."""
    tall, wide, out = (folder / f"{name}.safetensors" for name in ("t", "w", "o"))
    x = heavy(rng, 40000, 24).astype(np.float32)
    stored.write(tall, {"w": stored.packed("F32", x)})
    stored.write(wide, {"w": stored.packed("F32", x.T)})
    make = ("-o", out, "--force", "-q", "--calibrate", "entropy:512")
    run(qplan, "quantize", wide, "--scheme", "int8:c0", *make)
    expected = params_of(out)["w_scale"]
    for memory in ("64M", "8M", "2M"):
        run(qplan, "quantize", tall, "--scheme", "int8:c1", *make, "--memory", memory)
        if params_of(out)["w_scale"] != expected:
            raise AssertionError(f"{memory}: columns in pieces have other scales")
        run(qplan, "verify", "--exact", out, tall, "--memory", "64M")


def check_wrong(qplan, folder, rng):
    """A scale that the method does not give is found."""
    source, out = folder / "m.safetensors", folder / "o.safetensors"
    CASES[2].source(rng, source)
    run(qplan, "quantize", source, "-o", out, "--force", "-q", "--scheme", CASES[2].scheme,
        "--calibrate", "entropy")
    data = bytearray(out.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    at = begin + json.loads(data[8:begin])["w_scale"]["data_offsets"][0]
    scale = np.frombuffer(data[at:at + 4], "<f4") * np.float32(1.01)
    data[at:at + 4] = scale.astype("<f4").tobytes()
    out.write_bytes(data)
    run(qplan, "verify", out, source, expected=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qplan", required=True)
    qplan = parser.parse_args().qplan
    rng = np.random.default_rng(181)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            check(qplan, case, pathlib.Path(folder), rng)
        check_known(qplan, pathlib.Path(folder))
        check_pieces(qplan, pathlib.Path(folder), rng)
        check_wrong(qplan, pathlib.Path(folder), rng)
    print(f"{len(CASES)} schemes")


if __name__ == "__main__":
    main()
