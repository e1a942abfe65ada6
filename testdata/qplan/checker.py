"""A second look at the golden files: a decoder that shares no arithmetic with
contract.py, the error bound, and self-tests of the floating point helpers.

It starts from the written bytes, follows only the layout, and proves for every
finite element that |x - x'| <= s (1/2 + 2^(b-21)) + 2^-149 (b-50 for F64).
"""

import itertools
import json
import math
import struct
from fractions import Fraction

import container
from floats import BF16, F16, F32, F64, FORMATS, f32, nearest_exact


class Offence(Exception):
    """A golden file does not keep its promise."""


def require(condition, *what):
    if not condition:
        raise Offence(" ".join(map(str, what)))


# Layout ----------------------------------------------------------------------

def check_canonical(data):
    """Order of tensors, order of keys, padding; returns (tensors by name, metadata)."""
    tensors, metadata = container.read(data)
    (length,) = struct.unpack_from("<Q", data)
    require(length % 8 == 0, "header not padded to 8")
    header = data[8:8 + length].rstrip(b" ")
    require(length - len(header) < 8, "too much padding")
    keys = [k for k, _ in json.loads(header, object_pairs_hook=lambda pairs: pairs)]
    require(keys == ["__metadata__"] + [t.name for t in tensors], "header keys out of order")
    require(list(metadata) == sorted(metadata, key=str.encode), "metadata out of order")
    order = [(-container.WIDTHS[t.dtype], t.name.encode()) for t in tensors]
    require(order == sorted(order), "tensors out of order")
    return {t.name: t for t in tensors}, metadata


SCALES = {              # type of scales -> (how it is stored, the least scale)
    "f32": ("F32", 2.0 ** -126), "f16": ("F16", 2.0 ** -14), "bf16": ("BF16", 2.0 ** -126),
    "e8m0": ("U8", 2.0 ** -126), "f8e4m3": ("F8_E4M3", 2.0 ** -126),
}


def parse_description(text):
    """What a record says of its tensor."""
    scheme, calibrator, dtype, shape = text.split(" ")
    require(calibrator == "minmax", "calibrator", calibrator)
    code_type, granularity, *rest = scheme.split(":")
    bits = int(code_type[-1])
    signed = code_type[0] == "i"
    low = -(1 << bits - 1) + ("narrow" in rest) if signed else 0
    storage, least = SCALES[next((part for part in rest if part in SCALES), "f32")]
    return {
        "bits": bits, "signed": signed, "low": low,
        "high": (1 << bits - 1) - 1 if signed else (1 << bits) - 1,
        "kind": granularity[0],
        "sizes": [int(n) for n in granularity[1:].split("x") if n],
        "zero": 0 if signed else 1 << bits - 1,
        "scale_storage": storage, "least": least,
        "dtype": dtype, "shape": tuple(int(n) for n in shape.split("x")),
    }


def sign_extend(pattern, bits):
    return pattern - (1 << bits) if pattern >> bits - 1 else pattern


def read_codes(tensor, info):
    """Codes in flat order, from the bits of each row, lowest first; checks those that pad it."""
    columns, width = info["shape"][-1], info["bits"]
    used, stride = columns * width, (columns * width + 7) // 8
    require(tensor.shape[:-1] + (stride,) == info["shape"][:-1] + tensor.shape[-1:], "code shape")
    patterns = []
    for start in range(0, len(tensor.data), stride):
        row = tensor.data[start:start + stride]
        bits = [byte >> k & 1 for byte in row for k in range(8)]
        require(not any(bits[used:]), "pad bits of", tensor.name)
        patterns += [sum(bit << k for k, bit in enumerate(bits[i:i + width]))
                     for i in range(0, used, width)]
    if info["signed"]:
        return [sign_extend(p, info["bits"]) for p in patterns]
    return patterns


def read_scales(name, info, written):
    """Scales in flat order; those of f8e4m3 are products with their factor."""
    tensor = written[name + "_scale"]
    require(tensor.dtype == info["scale_storage"], name, "type of the scale")
    if tensor.dtype == "U8":
        return [math.ldexp(1.0, byte - 127) if byte < 255 else math.nan for byte in tensor.data]
    if tensor.dtype != "F8_E4M3":
        return FORMATS[tensor.dtype].unpack(tensor.data)
    factor = written[name + "_scale_2"]
    require((factor.dtype, factor.shape) == ("F32", (1,)), name, "type and shape of the factor")
    exact = Fraction(FORMATS["F32"].unpack(factor.data)[0])
    scales = []
    for byte in tensor.data:
        require(0 < byte < 0x7f, name, "byte of a scale")
        fraction = Fraction(byte & 7, 8) + (byte >= 8)
        scales.append(nearest_exact(fraction * Fraction(2) ** (max(byte >> 3, 1) - 7) * exact, F32))
    return scales


def parameter_coordinates(at, info):
    """Where the parameters of the element at these coordinates are."""
    kind, sizes = info["kind"], info["sizes"]
    if kind == "t":
        return (0,)
    if kind == "c":
        return (at[sizes[0]],)
    if kind == "g":
        return at[:-1] + (at[-1] // sizes[0],)
    return at[:-2] + (at[-2] // sizes[0], at[-1] // sizes[1])


def parameter_shape(info):
    last = tuple(n - 1 for n in info["shape"])
    if info["kind"] == "c":
        return (info["shape"][info["sizes"][0]],)
    return tuple(n + 1 for n in parameter_coordinates(last, info))


def flat_index(at, shape):
    index = 0
    for i, n in zip(at, shape):
        index = index * n + i
    return index


# Values ----------------------------------------------------------------------

def decoded(code, scale, zero, working):
    """x' in working precision, from the exact product."""
    x = nearest_exact(Fraction(scale) * (code - zero), working)
    return math.copysign(working.max_finite, x) if math.isinf(x) else x


def within_bound(x, y, scale, info):
    slack = info["bits"] - (50 if info["dtype"] == "F64" else 21)
    bound = scale * (0.5 + 2.0 ** slack) + 2.0 ** -149
    if abs(x - y) < bound * (1 - 1e-9):
        return True
    exact = Fraction(scale) * (Fraction(1, 2) + Fraction(2) ** slack) + Fraction(1, 2 ** 149)
    return abs(Fraction(x) - Fraction(y)) <= exact


def check_tensor(name, info, files, output_dtype):
    """Proves one quantized tensor against its source and its dequantized form."""
    source, written, back = files
    original = source[name]
    require((original.dtype, original.shape) == (info["dtype"], info["shape"]), name, "source differs")
    codes = read_codes(written[name], info)
    scale_tensor = written[name + "_scale"]
    require(scale_tensor.shape == parameter_shape(info), name, "shape of the scale")
    scales = read_scales(name, info, written)
    zeros = [info["zero"]] * len(scales)
    if name + "_zero_point" in written:
        zero_tensor = written[name + "_zero_point"]
        require(zero_tensor.shape == scale_tensor.shape, name, "shape of the zero point")
        zeros = [sign_extend(b, 8) if info["signed"] else b for b in zero_tensor.data]
    require(all(info["low"] <= z <= info["high"] for z in zeros), name, "zero point out of range")
    require(all(info["least"] <= s < math.inf for s in scales), name, "scale out of range")

    working = F64 if info["dtype"] == "F64" else F32
    output = FORMATS[output_dtype or info["dtype"]]
    require(back[name].dtype == output.name, name, "dtype after dequantize")
    x_back = output.unpack(back[name].data)
    x_source = FORMATS[info["dtype"]].unpack(original.data)
    cache = {}
    for i, at in enumerate(itertools.product(*map(range, info["shape"]))):
        k = flat_index(parameter_coordinates(at, info), scale_tensor.shape)
        q, s, z = codes[i], scales[k], zeros[k]
        require(info["low"] <= q <= info["high"], name, at, "code out of range")
        if (q, k) not in cache:
            y = decoded(q, s, z, working)
            rounded = nearest_exact(Fraction(y), output)
            if math.isinf(rounded):
                rounded = math.copysign(output.max_finite, rounded)
            cache[q, k] = y, rounded
        y, rounded = cache[q, k]
        require(x_back[i] == rounded, name, at, "dequantized", x_back[i], "expected", rounded)
        require(x_back[i] != 0 or math.copysign(1, x_back[i]) == math.copysign(1, q - z),
                name, at, "sign of zero")
        x = x_source[i]
        if math.isfinite(x):
            require(within_bound(x, y, s, info), name, at, "source", x, "decoded", y, "scale", s)
        elif math.isnan(x):
            require(y == 0, name, at, "NaN decoded to", y)
        else:
            require(q == (info["high"] if x > 0 else info["low"]), name, at, "infinity")


def check_case(source_bytes, out_bytes, back_bytes, output_dtype):
    """Proves one case from the bytes of its three files; returns elements checked."""
    source_tensors, _ = container.read(source_bytes)
    source = {t.name: t for t in source_tensors}
    written, metadata = check_canonical(out_bytes)
    back, back_metadata = check_canonical(back_bytes)
    require(metadata["qplan.numerics"] == "1", "metadata")
    require(back_metadata == {k: v for k, v in metadata.items() if not k.startswith("qplan.")},
            "metadata after dequantize")
    described = json.loads(metadata["qplan.tensors"])
    require(list(described) == sorted(described, key=str.encode), "qplan.tensors out of order")
    infos = [parse_description(text) for text in described.values()]
    layout_1 = all(info["bits"] in (4, 8) and info["scale_storage"] not in ("U8", "F8_E4M3")
                   for info in infos)
    require(metadata["qplan.layout"] == ("1" if layout_1 else "2"), "layout")
    require(set(back) == set(source), "names after dequantize")
    expected_names = set(source)
    elements = 0
    for name, text in described.items():
        info = parse_description(text)
        check_tensor(name, info, (source, written, back), output_dtype)
        expected_names.add(name + "_scale")
        if info["scale_storage"] == "F8_E4M3":
            expected_names.add(name + "_scale_2")
        if name + "_zero_point" in written:
            expected_names.add(name + "_zero_point")
        elements += math.prod(info["shape"])
    require(set(written) == expected_names, "tensors missing or left over")
    for name in set(source) - set(described):
        require(written[name] == source[name] == back[name], name, "kept tensor changed")
    return elements


# Self-tests of floats.py -----------------------------------------------------

def check_formats():
    """Every 16-bit pattern, and rounding against struct and exact arithmetic."""
    for fmt in (F16, BF16):
        for bits in range(1 << 16):
            x = fmt.decode(bits)
            if math.isnan(x):
                continue
            require(fmt.encode(x) == bits, fmt.name, hex(bits), "does not survive a round trip")
            if not 0 < x < fmt.max_finite:
                continue
            middle = (x + fmt.decode(bits + 1)) / 2
            for y, up in ((middle, bits & 1), (F64.next_down(middle), 0), (F64.next_up(middle), 1)):
                require(fmt.encode(y) == bits + up, fmt.name, hex(bits), "rounding of", y)
                if fmt is F16:
                    require(struct.unpack("<H", struct.pack("<e", y))[0] == bits + up, "struct", y)


def check_single_arithmetic(patterns):
    """f32() after a double operation is the correctly rounded single operation."""
    values = [x for x in map(F32.decode, patterns) if math.isfinite(x)]
    for a, b in zip(values, values[1:]):
        exact = [(f32(a - b), Fraction(a) - Fraction(b)), (f32(a * b), Fraction(a) * Fraction(b))]
        if b:
            exact.append((f32(a / b), Fraction(a) / Fraction(b)))
        for got, want in exact:
            require(got == nearest_exact(want, F32), "single arithmetic", a, b)
        require(F32.round(a * b) == f32(a * b), "F32.round", a, b)
