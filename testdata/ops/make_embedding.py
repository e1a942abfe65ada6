#!/usr/bin/env python3
"""Writes the cases own-* of embeddings, bags and parameters beside this script.

    make_embedding.py            write them
    make_embedding.py --check    make them again in memory and compare; exit 1 if they differ

Every expected value follows the formulas in exact rationals (fractions) and is rounded once. The
script also adds in f64, one rounded operation at a time, and asserts that this does not change the
result: so the cases allow no other bits. Nothing comes from the program under test.
"""

import json
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

HERE = pathlib.Path(__file__).parent
FLOATS = {"F64": (11, 52), "F32": (8, 23), "F16": (5, 10), "BF16": (8, 7)}
PACK = {"I32": "<i", "I64": "<q"}
INF, NAN = math.inf, math.nan

# ---- Numbers --------------------------------------------------------------------------------------


def round_once(x, dtype):
    """The float of a dtype nearest to a rational, ties to even, as a Fraction or an infinity."""
    exp_bits, man_bits = FLOATS[dtype]
    if not isinstance(x, Fraction) or x == 0:
        return x
    least = 2 - (1 << (exp_bits - 1)) - man_bits          # exponent of the last subnormal place
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    place = max(exponent - man_bits, least)
    steps = round(size / Fraction(2) ** place)            # half to even
    result = steps * Fraction(2) ** place
    if result >= Fraction(2) ** (1 << (exp_bits - 1)):
        result = INF
    return -result if x < 0 else result


def bits(x, dtype):
    exp_bits, man_bits = FLOATS[dtype]
    top = (1 << exp_bits) - 1
    if isinstance(x, float) and math.isnan(x):
        return top << man_bits | 1 << (man_bits - 1)
    sign = int(math.copysign(1, x) < 0 if isinstance(x, float) else x < 0) << (exp_bits + man_bits)
    if isinstance(x, float) and math.isinf(x):
        return sign | top << man_bits
    size = abs(Fraction(x))
    if size == 0:
        return sign
    assert round_once(size, dtype) == size, (x, dtype)
    bias = (1 << (exp_bits - 1)) - 1
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    exponent = max(exponent, 1 - bias)
    steps = size / Fraction(2) ** (exponent - man_bits)
    assert steps.denominator == 1
    return sign | (exponent + bias - 1 << man_bits) + steps.numerator


def exact_sum(terms, divisor=1, old=None, dtype="F32"):
    """Terms, which may be infinite or NaN, then a division, then the old value; rounded once."""
    special = [t for t in [*terms, *([old] if old is not None else [])] if isinstance(t, float)
               and not math.isfinite(t)]
    if special:
        return sum(special)
    total = in_f64 = Fraction(0)
    for t in terms:
        total += Fraction(t)
        in_f64 = round_once(in_f64 + round_once(Fraction(t), "F64"), "F64")
    total, in_f64 = total / divisor, round_once(in_f64 / divisor, "F64")
    if old is not None:
        total, in_f64 = total + Fraction(old), round_once(in_f64 + Fraction(old), "F64")
    result = round_once(total, dtype)
    assert round_once(in_f64, dtype) == result, "rounding in f64 matters: take other data"
    return result


# ---- Files ----------------------------------------------------------------------------------------


def tensor(dtype, shape, values):
    values = list(values)
    assert len(values) == math.prod(shape), (shape, len(values))
    if dtype in PACK:
        return dtype, shape, b"".join(struct.pack(PACK[dtype], v) for v in values)
    size = (1 + sum(FLOATS[dtype])) // 8
    return dtype, shape, b"".join(bits(v, dtype).to_bytes(size, "little") for v in values)


def file_bytes(metadata, tensors):
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, raw) in sorted(tensors.items(),
                                            key=lambda item: (-len(item[1][2]), item[0])):
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Cases:
    def __init__(self, script):
        self.files, self.script = {}, script

    def add(self, op, name, desc, inputs, expect, compare="bit", **rules):
        metadata = {"op": op, "desc": json.dumps(desc), "compare": compare, **rules,
                    "origin": f"formula, exact rationals rounded once ({self.script})"}
        tensors = dict(inputs)
        tensors.update({f"expect.{key}": value for key, value in expect.items()})
        self.files[f"{op}-own-{name}.safetensors"] = file_bytes(metadata, tensors)

    def refuse(self, op, name, desc, inputs, code=3):
        metadata = {"op": op, "desc": json.dumps(desc), "compare": "bit", "exit": str(code),
                    "origin": f"a refusal of the contract ({self.script})"}
        self.files[f"{op}-own-refuse-{name}.safetensors"] = file_bytes(metadata, inputs)


# ---- Embeddings -----------------------------------------------------------------------------------


def table(rng, rows, cols):
    """Multiples of 1/8 that every dtype holds."""
    return [[Fraction(rng.randrange(-120, 121), 8) for _ in range(cols)] for _ in range(rows)]


def flat(rows):
    return [x for row in rows for x in row]


def counts(index, rows, padding):
    return 0 <= index < rows and index != padding


def places(n, offsets, last, shape):
    """The places of each bag."""
    if offsets is None:
        return [range(b * shape[1], (b + 1) * shape[1]) for b in range(shape[0])]
    ends = offsets[1:] + ([] if last else [n])
    return [range(begin, end) for begin, end in zip(offsets, ends)]


class Bags:
    """A problem of bags: what embedding_bag and its gradient must give."""

    def __init__(self, dtype, index_dtype, rows, cols, indices, offsets=None, shape=None, **desc):
        self.dtype, self.index_dtype, self.rows, self.cols = dtype, index_dtype, rows, cols
        self.indices, self.offsets, self.desc = indices, offsets, desc
        self.shape = shape or [len(indices)]
        self.mode = desc.get("mode", "sum")
        self.padding = desc.get("padding_idx")
        if self.padding is not None:
            self.padding %= rows
        all_places = places(len(indices), offsets, desc.get("include_last_offset"), self.shape)
        self.bags = [[indices[n] for n in bag if counts(indices[n], rows, self.padding)]
                     for bag in all_places]

    def inputs(self):
        result = {"indices": tensor(self.index_dtype, self.shape, self.indices)}
        if self.offsets is not None:
            result["offsets"] = tensor(self.index_dtype, [len(self.offsets)], self.offsets)
        return result

    def forward(self, weight):
        output, where = [], []
        for bag in self.bags:
            for col in range(self.cols):
                if self.mode == "max":
                    best, row = 0, -1
                    for index in bag:
                        if row < 0 or weight[index][col] > best:
                            best, row = weight[index][col], index
                    output.append(best)
                    where.append(row)
                    continue
                divisor = max(len(bag), 1) if self.mode == "mean" else 1
                output.append(exact_sum([weight[i][col] for i in bag], divisor, dtype=self.dtype))
        return output, where

    def backward(self, dout, where, by_frequency, old):
        result = []
        for row in range(self.rows):
            for col in range(self.cols):
                terms, size = [], 1
                for b, bag in enumerate(self.bags):
                    if self.mode == "max":
                        terms += [dout[b][col]] if where[b * self.cols + col] == row else []
                    else:
                        size = max(len(bag), 1) if self.mode == "mean" else 1
                        terms += [dout[b][col] / size] * bag.count(row)
                n = self.indices.count(row) if by_frequency else 1
                value = None if old is None else old[row][col]
                result.append(exact_sum(terms, max(n, 1), value, self.dtype))
        return result

    def add(self, cases, name, weight, dout, by_frequency=False, old=None):
        shape = [len(self.bags), self.cols]
        output, where = self.forward(weight)
        expect = {"output": tensor(self.dtype, shape, output)}
        if self.mode == "max":
            expect["max_indices"] = tensor("I64", shape, where)
        cases.add("embedding_bag", name, self.desc,
                  {"weight": tensor(self.dtype, [self.rows, self.cols], flat(weight)),
                   **self.inputs()}, expect)
        desc = {"num_embeddings": self.rows, **self.desc}
        inputs = {"dout": tensor(self.dtype, shape, flat(dout)), **self.inputs()}
        if self.mode == "max":
            inputs["max_indices"] = expect["max_indices"]
        if by_frequency:
            desc["scale_grad_by_freq"] = True
        if old is not None:
            desc["accumulate"] = True
            inputs["dweight"] = tensor(self.dtype, [self.rows, self.cols], flat(old))
        result = self.backward(dout, where, by_frequency, old)
        cases.add("embedding_bag_backward", name, desc, inputs,
                  {"dweight": tensor(self.dtype, [self.rows, self.cols], result)})


def bag_cases(cases):
    rng = random.Random(3)
    indices = [3, 0, 5, 5, 2, 1, 3, 3, 0, 4, 2, 2]
    Bags("F16", "I32", 6, 5, indices, shape=[3, 4], padding_idx=-6).add(
        cases, "f16-sum-rows-pad", table(rng, 6, 5), table(rng, 3, 5))
    Bags("F32", "I64", 6, 3, indices, [0, 4, 4, 8], include_last_offset=True).add(
        cases, "f32-sum-tail-freq", table(rng, 6, 3), table(rng, 3, 3), by_frequency=True,
        old=table(rng, 6, 3))
    Bags("BF16", "I64", 6, 7, indices, [0, 2, 6, 12], mode="mean").add(
        cases, "bf16-mean-end-bag", table(rng, 6, 7), table(rng, 4, 7))
    Bags("F64", "I32", 6, 2, [3, -1, 6, 1, 2, 2**31 - 1, 3, 1, 4, 0, 5, -2**31],
         [0, 4, 5, 9], mode="mean",
         padding_idx=2, index_policy="skip").add(
        cases, "f64-mean-skip", table(rng, 6, 2), table(rng, 4, 2))
    ties = [[1, -2, -0.0, NAN, -INF, 3], [1, -3, 0.0, 5, -INF, INF], [2, NAN, 0, 7, -INF, INF],
            [2, -1, -1, NAN, NAN, 0]]
    for dtype in FLOATS:
        Bags(dtype, "I64", 4, 6, [0, 1, 2, 3, 2, 2, 3], [0, 4, 4, 6], mode="max",
             padding_idx=3).add(cases, f"{dtype.lower()}-max-ties", ties, table(rng, 4, 6),
                                old=table(rng, 4, 6) if dtype in ("F64", "F16") else None)
    Bags("F32", "I64", 3, 2, [], [0, 0, 0]).add(cases, "no-indices", table(rng, 3, 2),
                                                table(rng, 3, 2), old=table(rng, 3, 2))
    Bags("F32", "I64", 3, 2, [0, 1, 1], []).add(cases, "no-bags", table(rng, 3, 2), [],
                                                by_frequency=True)
    Bags("F32", "I32", 3, 0, [0, 1, 1], [0, 1], mode="max").add(cases, "no-columns", [[], [], []],
                                                                 [[], []])
    Bags("F32", "I32", 0, 2, [], [0], mode="mean").add(cases, "no-rows", [], table(rng, 1, 2))
    Bags("F64", "I64", 2, 3, [], shape=[4, 0], mode="max").add(cases, "empty-rows",
                                                               table(rng, 2, 3), table(rng, 4, 3))
    # Rows with terms in a few of many columns: the others keep the bits of their zeros and NaN.
    spread = [[Fraction(col == 20 * row) for col in range(50)] for row in range(3)]
    old = [[(-0.0, NAN, Fraction(3, 8))[col % 3] for col in range(50)] for _ in range(3)]
    for dtype in ("F32", "F64"):
        Bags(dtype, "I32", 3, 50, [2, 1, 0], [0, 2], mode="max").add(
            cases, f"{dtype.lower()}-max-spread", spread, table(rng, 2, 50), old=old)


def bag_refusals(cases):
    one = [Fraction(1)]

    def both(name, desc, indices, offsets, rows=3, bags=2, shape=None, dtype="I64", code=3):
        inputs = {"indices": tensor("I64", shape or [len(indices)], indices)}
        if offsets is not None:
            inputs["offsets"] = tensor(dtype, [len(offsets)], offsets)
        cases.refuse("embedding_bag", name, desc,
                     {"weight": tensor("F32", [rows, 1], one * rows), **inputs}, code)
        cases.refuse("embedding_bag_backward", name, {"num_embeddings": rows, **desc},
                     {"dout": tensor("F32", [bags, 1], one * bags), **inputs}, code)

    both("first-offset", {}, [0, 1, 2], [1, 2])
    both("decreasing", {}, [0, 1, 2], [0, 2, 1], bags=3)
    both("last-offset", {}, [0, 1, 2], [0, 4])
    both("negative-offset", {}, [0, 1, 2], [0, -1])
    both("end", {"include_last_offset": True}, [0, 1, 2], [0, 2, 4])
    both("no-end", {"include_last_offset": True}, [0, 1], [], bags=0)
    both("index-in-tail", {"include_last_offset": True}, [0, 1, 3], [0, 1, 2])
    both("no-table", {}, [0], [0], rows=0, bags=1)
    both("no-offsets", {}, [0, 1], None)
    both("offsets-and-rows", {}, [0, 1], [0, 1], shape=[2, 1])
    both("offsets-dtype", {}, [0, 1], [0, 1], dtype="I32")
    both("end-of-rows", {"include_last_offset": True}, [0, 1], None, shape=[2, 1])
    both("padding", {"padding_idx": 3}, [0, 1], [0, 1])
    both("mode", {"mode": "min"}, [0, 1], [0, 1], code=2)
    inputs = {"dout": tensor("F32", [2, 1], one * 2), "indices": tensor("I64", [2], [0, 1]),
              "offsets": tensor("I64", [2], [0, 1])}
    refuse = lambda name, desc, where: cases.refuse(
        "embedding_bag_backward", name, {"num_embeddings": 3, **desc},
        {**inputs, **({"max_indices": tensor("I64", [2, 1], where)} if where else {})})
    refuse("max-index", {"mode": "max"}, [0, 3])
    refuse("max-index-low", {"mode": "max", "index_policy": "skip"}, [-2, 0])
    refuse("max-missing", {"mode": "max"}, None)
    refuse("max-of-sum", {"mode": "sum"}, [0, 1])
    refuse("max-freq", {"mode": "max", "scale_grad_by_freq": True}, [0, 1])
    cases.refuse("embedding_bag_backward", "bags", {"num_embeddings": 3},
                 {**inputs, "dout": tensor("F32", [3, 1], one * 3)})
    cases.refuse("embedding_bag_backward", "rows-negative", {"num_embeddings": -1}, inputs)
    cases.refuse("embedding_bag_backward", "rows-missing", {}, inputs, 2)


def embedding_cases(cases):
    rng = random.Random(4)
    for name, dtype, index_dtype, rows, cols, shape in (
            ("rank0", "F32", "I64", 4, 3, []), ("rank3", "F16", "I32", 5, 2, [2, 1, 3]),
            ("no-columns", "F64", "I64", 3, 0, [2]), ("no-indices", "BF16", "I64", 3, 2, [2, 0]),
            ("no-rows", "F32", "I64", 0, 2, [0])):
        indices = [rng.randrange(rows) for _ in range(math.prod(shape))]
        weight, dout = table(rng, rows, cols), table(rng, len(indices), cols)
        old = table(rng, rows, cols)
        index = tensor(index_dtype, shape, indices)
        cases.add("embedding", name, {}, {"weight": tensor(dtype, [rows, cols], flat(weight)),
                                          "indices": index},
                  {"output": tensor(dtype, [*shape, cols], flat(weight[i] for i in indices))})
        result = [exact_sum([d[col] for d, i in zip(dout, indices) if i == row], 1, old[row][col],
                            dtype) for row in range(rows) for col in range(cols)]
        cases.add("embedding_backward", name, {"num_embeddings": rows, "accumulate": True},
                  {"dout": tensor(dtype, [*shape, cols], flat(dout)), "indices": index,
                   "dweight": tensor(dtype, [rows, cols], flat(old))},
                  {"dweight": tensor(dtype, [rows, cols], result)})
    for dtype, (exp_bits, man_bits) in FLOATS.items():
        # Sums beyond the largest number and half way to the next, of opposite infinities, of NaN.
        largest = (2 - Fraction(1, 2**man_bits)) * Fraction(2) ** ((1 << (exp_bits - 1)) - 1)
        half = Fraction(2) ** ((1 << (exp_bits - 1)) - 2 - man_bits)
        dout = [[largest, largest, INF, NAN, 1], [half, half / 2, -INF, 1, -INF]]
        if dtype == "F64":
            dout[0][:2] = [1, 1]                          # the sum itself is an f64
            dout[1][:2] = [Fraction(1, 2**53), Fraction(3, 2**54)]
        result = [exact_sum([a, b], 1, None, dtype) if dtype != "F64" or i > 1
                  else round_once(Fraction(a) + Fraction(b), "F64")
                  for i, (a, b) in enumerate(zip(*dout))]
        cases.add("embedding_backward", f"{dtype.lower()}-largest", {"num_embeddings": 1},
                  {"dout": tensor(dtype, [2, 5], flat(dout)), "indices": tensor("I64", [2], [0, 0])},
                  {"dweight": tensor(dtype, [1, 5], result)})
    one = tensor("F32", [2, 1], [1, 1])
    cases.refuse("embedding", "no-table", {}, {"weight": tensor("F32", [0, 1], []),
                                               "indices": tensor("I64", [1], [0])})
    cases.refuse("embedding", "negative", {}, {"weight": one, "indices": tensor("I32", [1], [-1])})
    cases.refuse("embedding", "padding", {"padding_idx": -3},
                 {"weight": one, "indices": tensor("I32", [1], [0])})
    cases.refuse("embedding_backward", "accumulate-missing",
                 {"num_embeddings": 2, "accumulate": True},
                 {"dout": one, "indices": tensor("I32", [2], [0, 1])})
    cases.refuse("embedding_backward", "dweight-extra", {"num_embeddings": 2},
                 {"dout": one, "indices": tensor("I32", [2], [0, 1]), "dweight": one})


# ---- Parameters -----------------------------------------------------------------------------------

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15),
          "int16": (-32768, 32767), "uint16": (0, 65535)}


def up(x):
    """The least f64 that is not below a rational."""
    y = float(x)
    return y if Fraction(y) >= x else math.nextafter(y, INF)


def linear_set(w, dtype, symmetric, narrow, lo, hi):
    """(scale, zero point, exact error bound) in working precision w."""
    q_min, q_max = RANGES[dtype]
    q_min += narrow
    lo, hi = min(lo, Fraction(0)), max(hi, Fraction(0))
    steps = Fraction(q_max - q_min)
    if lo == hi:
        scale = Fraction(1)
    elif symmetric:
        scale = round_once(max(-lo, hi) / (steps / 2), w)
    else:
        width = round_once(hi - lo, w)
        if width == INF:
            scale = round_once(round_once(hi / 2 - lo / 2, w) / (steps / 2), w)
        else:
            scale = round_once(width / steps, w)
    scale = max(scale, Fraction(2) ** (-126 if w == "F32" else -1022))
    if symmetric:
        zero = 0 if q_min < 0 else (q_min + q_max + 1) // 2
    elif lo == hi:
        zero = 0
    else:
        zero = min(max(q_min - round(round_once(lo / scale, w)), q_min), q_max)
    size = (q_max - RANGES[dtype][0] + 1).bit_length() - 1
    unit, least = (23, 149) if w == "F32" else (52, 1074)
    bound = max(scale / 2, hi - scale * (q_max - zero), scale * (q_min - zero) - lo)
    return scale, zero, bound + scale * Fraction(2) ** (size - unit) + Fraction(1, 2**least)


def parameter_cases(cases):
    def exact(*values):
        return [Fraction(v) for v in values]

    f32_max = (2 - Fraction(1, 2**23)) * 2**127
    f64_max = Fraction(sys.float_info.max)
    for w in ("F32", "F64"):
        top = f32_max if w == "F32" else f64_max
        tiny = Fraction(1, 2**149) if w == "F32" else Fraction(1, 2**1074)
        lo = exact(-2, -1, 0, 10, -20, 0, -top, 0, -tiny, "-3/8", -7, "-0.5", "-1.5", "-2.5")
        hi = exact(2, "1/2", 0, 20, -10, top, top, tiny, 0, "5/4", 8, "254.5", "253.5", "252.5")
        for dtype in RANGES:
            for scheme, narrow in (("symmetric", False), ("asymmetric", False), ("symmetric", True),
                                   ("channel_wise", True), ("linear", False)):
                if narrow and dtype.startswith("u"):
                    continue
                sets = [linear_set(w, dtype, scheme == "symmetric", narrow, a, b)
                        for a, b in zip(lo, hi)]
                desc = {"dtype": dtype, "scheme": scheme}
                if narrow:
                    desc["narrow_range"] = True
                n = [len(lo)]
                cases.add("params_from_statistics",
                          f"{w.lower()}-{dtype}-{scheme}{'-narrow' * narrow}", desc,
                          {"min": tensor(w, n, lo), "max": tensor(w, n, hi)},
                          {"scale": tensor(w, n, [s[0] for s in sets]),
                           "zero_point": tensor("I32", n, [s[1] for s in sets]),
                           "error_bound": tensor("F64", n, [up(s[2]) for s in sets])},
                          **{"compare.error_bound": "ulp:32"})
    scale, zero, bound = linear_set("F32", "uint8", False, False, Fraction(-1), Fraction(3))
    cases.add("params_from_statistics", "block_wise",
              {"dtype": "uint8", "scheme": "block_wise", "block_size": 16},
              {"min": tensor("F32", [2], [-1, -1]), "max": tensor("F32", [2], [3, 3])},
              {"scale": tensor("F32", [2], [scale] * 2), "zero_point": tensor("I32", [2], [zero] * 2),
               "error_bound": tensor("F64", [2], [up(bound)] * 2)},
              **{"compare.error_bound": "ulp:32"})
    # ln 1 = 0 exactly, and one value alone needs no scale: bits that any library gives.
    cases.add("params_from_statistics", "logarithmic-one-value",
              {"dtype": "int8", "scheme": "logarithmic"},
              {"min": tensor("F64", [2], [1, 100]), "max": tensor("F64", [2], [1, 100])},
              {"scale": tensor("F64", [2], [1, 1]), "zero_point": tensor("I32", [2], [-128, -133]),
               "error_bound": tensor("F64", [2], [math.expm1(0.5), 100 * math.expm1(0.5)])},
              **{"compare.error_bound": "rel:1e-12"})


def parameter_refusals(cases):
    def refuse(name, desc, lo, hi, dtype="F32", code=3):
        cases.refuse("params_from_statistics", name,
                     {"dtype": "uint8", "scheme": "asymmetric", **desc},
                     {"min": tensor(dtype, [len(lo)], lo), "max": tensor(dtype, [len(hi)], hi)},
                     code)

    refuse("order", {}, [0, 2], [1, 1])
    refuse("nan", {}, [0, NAN], [1, 1])
    refuse("infinite", {}, [0, 0], [1, INF])
    refuse("log-zero", {"scheme": "logarithmic"}, [1, 0], [1, 1])
    refuse("log-narrow", {"scheme": "logarithmic"}, [Fraction(2) ** 1000],
           [Fraction(2) ** 1000 * (1 + Fraction(1, 2**40))], "F64")
    refuse("no-sets", {}, [], [])
    refuse("shapes", {}, [0, 0], [1])
    refuse("unsigned-narrow", {"narrow_range": True}, [0], [1])
    refuse("no-block-size", {"scheme": "block_wise"}, [0], [1], code=2)
    refuse("block-size-zero", {"scheme": "block_wise", "block_size": 0}, [0], [1])
    refuse("block-size-elsewhere", {"block_size": 4}, [0], [1])
    refuse("scheme", {"scheme": "exponential"}, [0], [1], code=2)
    refuse("dtype", {"dtype": "binary"}, [0], [1], code=2)
    cases.refuse("params_from_statistics", "dtypes", {"dtype": "int8", "scheme": "symmetric"},
                 {"min": tensor("F32", [1], [0]), "max": tensor("F64", [1], [1])})
    cases.refuse("params_from_statistics", "rank", {"dtype": "int8", "scheme": "symmetric"},
                 {"min": tensor("F32", [1, 1], [0]), "max": tensor("F32", [1, 1], [1])})


def write_or_check(cases, mine):
    """Cases to files, or with --check compared with mine, the files that are there."""
    if "--check" not in sys.argv[1:]:
        for name in mine - cases.files.keys():
            (HERE / name).unlink()
        for name, data in cases.files.items():
            (HERE / name).write_bytes(data)
        return 0
    bad = sorted((mine ^ cases.files.keys()) |
                 {name for name, data in cases.files.items()
                  if name in mine and (HERE / name).read_bytes() != data})
    print("\n".join(f"{name}: not what {cases.script} makes" for name in bad))
    return 1 if bad else 0


def main():
    cases = Cases("make_embedding.py")
    for part in (bag_cases, bag_refusals, embedding_cases, parameter_cases, parameter_refusals):
        part(cases)
    mine = {path.name for op in ("embedding", "embedding_backward", "embedding_bag",
                                 "embedding_bag_backward", "params_from_statistics")
            for path in HERE.glob(f"{op}-own-*.safetensors")}
    return write_or_check(cases, mine)


if __name__ == "__main__":
    sys.exit(main())
