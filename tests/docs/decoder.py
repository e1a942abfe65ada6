"""The numpy decoder examples/decode.py against qplan dequantize, bit by bit."""

import importlib.util
import json

from sandbox import ROOT, TINY, Sandbox

GOLDEN = ROOT / "testdata" / "qplan"

SCHEMES = [
    "int8:t", "int8:c0", "int8:c1", "int8:g32", "int8:b16x24", "int8:b1000x7:bf16",
    "int8:c0:asym", "int8:c0:narrow", "int8:c0:asym:narrow:f16", "uint8:c0", "uint8:t:sym",
    "uint8:g64:bf16", "uint8:b128x128", "int4:t", "int4:c0", "int4:g32", "int4:g16:asym",
    "int4:b24x40", "int4:g64:narrow", "uint4:c1", "uint4:g128", "uint4:g32:sym", "uint4:b8x8:f16",
    "int2:g16", "uint2:c0", "int3:g32:asym", "int3:t:narrow", "uint3:c1:sym", "int5:b24x40", "uint5:g64",
    "int6:c0", "uint6:t:f16", "int7:g7", "uint7:b1000x7",
    "uint4:g64:bias:bf16", "uint8:c0:bias", "uint3:g32:bias:f16",
]
# Other sources: odd extents, more axes, other types, special values; and what must be left out of
# them because its scale is too large for f32.
SOURCES = {"odd-f32": [], "odd-bf16": [], "dtypes": [], "edge-f32": [], "edge-f16": [], "mixed": [],
           "edge-f64": ["--exclude", "largest"], "narrowing-f64": [], "nonfinite-f32": []}


def read_plain(np, path):
    """The tensors of a safetensors file, those that the decoder can give."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        a, b = entry["data_offsets"]
        if entry["dtype"] in ("F32", "F64"):
            x = np.frombuffer(raw[begin + a:begin + b], "<f" + str(int(entry["dtype"][1:]) // 8))
            yield name, x.reshape(entry["shape"])


def cases():
    for scheme in SCHEMES:
        yield TINY, ["--scheme", scheme, "--indivisible", "ragged"]
    for scheme in ("int8:c0", "uint8:c0:sym", "uint4:g32:sym", "int4:g32", "uint3:g32:sym", "int6:g32"):
        yield TINY, ["--scheme", scheme, "--zero-point", "asymmetric"]
    for source, flags in SOURCES.items():
        for scheme in ("int8:c0", "uint8:t", "int4:g3", "uint4:b3x5", "int3:c0", "uint7:g3"):
            yield GOLDEN / f"{source}.in.safetensors", [
                "--scheme", scheme, "--indivisible", "ragged", "--nonfinite", "saturate", *flags]


def compare(np, decode, sandbox):
    """Decodes q.safetensors; what differs from qplan, or None."""
    path = sandbox.path / "q.safetensors"
    decoded = dict(decode.tensors(str(path)))
    wanted = {}
    for dtype in (["--dtype", "f32"], []):  # f64 sources stay f64, the others become f32
        sandbox.qplan("dequantize", "-q", "--force", *dtype, "-o", "back", path.name)
        for name, x in read_plain(np, sandbox.path / "back"):
            if name in decoded and (dtype or x.dtype == np.float64):
                wanted[name] = x
    if set(wanted) != set(decoded):
        return f"tensors: {sorted(set(wanted) ^ set(decoded))}"
    for name, x in decoded.items():
        if x.dtype != wanted[name].dtype or x.shape != wanted[name].shape:
            return f"{name}: {x.dtype} {x.shape}"
        if x.tobytes() != wanted[name].tobytes():
            at = np.argwhere(x != wanted[name])
            return f"{name}: {len(at)} values differ, the first at {at[:1].tolist()}"
    return None


def test(tools, results):
    if not importlib.util.find_spec("numpy"):
        results.skip("decoder", "numpy is missing")
        return
    import numpy as np
    sandbox = Sandbox(tools)
    spec = importlib.util.spec_from_file_location("decode", ROOT / "examples" / "decode.py")
    decode = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(decode)
    for source, flags in cases():
        sandbox.qplan("quantize", "-q", "--force", "-o", "q.safetensors", *flags, str(source))
        why = compare(np, decode, sandbox)
        results.check(why is None, f"decoder: {source.name} {' '.join(flags)}", why)
