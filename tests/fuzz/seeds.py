#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets that take files: corpus/quantized, corpus/op_file, and
by seeds_folder.py corpus/folder and corpus/config, by seeds_importance.py corpus/importance.

    seeds.py                      write them
    seeds.py --check [--replay P] compare with the disk; and what P, fuzz-replay-quantized, says of
                                  each: honest ones are proven, hostile ones are not

support/described.h has the form. Honest files come from testdata/qplan/contract.py, which follows
the numeric contract without the program; hostile ones are honest ones with something wrong. What
else is in the folders was found by fuzzing and is kept so that it stays mended.
"""

import argparse
import json
import os
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "testdata")
sys.path.insert(0, os.path.join(DATA, "qplan"))

import cases
import container
import contract
import seeds_folder
import seeds_importance

META = ["meta format pt", "meta qplan.layout 1", "meta qplan.numerics 1"]
META_2 = ["meta format pt", "meta qplan.layout 2", "meta qplan.numerics 1"]


def shape_text(shape):
    return "x".join(map(str, shape)) or "-"


def tensor_line(word, t):
    return "%s %s %s %s %s" % (word, t.name, t.dtype, shape_text(t.shape), t.data.hex())


# Honest files ------------------------------------------------------------------------------------

def quantized_lines(tensors, flags):
    """The lines of an honest file and of its source."""
    _, quantized, kept = contract.quantize_file(tensors, {}, flags)
    zero_point = contract.parse_flags(flags).zero_point
    lines = list(META if all(q.scheme.bits in (4, 8) for q in quantized) else META_2)
    for q in sorted(quantized, key=lambda q: q.source.name):
        parts = contract.stored_tensors(q, zero_point)
        lines.append("quantized %s %s %s" % (q.source.name, contract.description(q),
                                             " ".join(t.data.hex() for t in parts)))
        lines.append(tensor_line("source", q.source))
    return lines + [tensor_line("tensor", t) for t in kept]


GRANULARITIES = {
    "t": ["--per-tensor"], "c0": ["--per-channel"], "c1": ["--per-channel", "--axis", "1"],
    "g2": ["--per-group", "2", "--indivisible", "ragged"], "g5": ["--per-group", "5"],
    "b2x3": ["--block", "2x3"],
}
VARIANTS = [[], ["--asymmetric"], ["--symmetric"], ["--symmetric", "--zero-point", "asymmetric"]]
SOURCES = ["F32", "BF16", "F64", "F16"]
SCALES = ["f32", "bf16", "f16"]


def large():
    """Many blocks, sets and units. Parameters repeat after a prime number of sets, so that a wrong
    set is seen; codes at the ends of each set make the source give them."""
    return {
        "blocks": META + ["quantized a int8:b2x16 minmax F32 5x64 7f80017e00 0000003e0000803f 00",
                          "quantized c int8:b4x16 minmax F32 4x64 7f80017e00 0000003e0000803f 00",
                          "quantized d int8:b64x32 minmax F32 128x64 7f80017e00 0000003e0000803f 00",
                          "quantized b uint4:b3x32:bf16 minmax BF16 2x4x32 f0781e 803f0040 0807",
                          "nudge 00307cd0"],
        "ones": META + ["quantized a int8:g1:asym minmax F32 2x9000 00 0000803f 00"],
        "long": META + ["quantized a int8:c0 minmax F32 3x9000 7f80017e 0000003f0000803e0000803f 00",
                        "quantized b uint4:g128:sym:bf16 minmax BF16 2x9000 70f8 "
                        "803f003f80400041e03e 08",
                        "quantized c int8:c1 minmax F16 2x2000x3 7f8001fe "
                        "0000803f0000003f0000803e 00",
                        "nudge 00000000ff00017c"],
        "wide": META + ["quantized a int8:b2x3:f16 minmax F16 7x1201 7f8001 003c00380040003a0030 00",
                        "quantized b int4:t:asym minmax F64 5x2000 7801 cdcccc3d 03"],
    }


def honest():
    """{name: lines}: every type with every granularity; the rest takes turns."""
    files = {}
    for dtype in ("int8", "uint8", "int4", "uint4", "int3", "uint6"):
        for gran, flags in GRANULARITIES.items():
            n = len(files)
            source = SOURCES[n % 4 if n % 8 < 4 else (n + 1) % 4]
            tensors = [cases.weights("a", source, (3, 5)), cases.weights("b", source, (2, 2, 5)),
                       cases.weights("bias", source, (3,))]
            flags = ["--dtype", dtype] + flags + VARIANTS[n % 4 if n % 5 else (n + 1) % 4]
            flags += ["--scale-dtype", SCALES[n % 3]]
            flags += ["--narrow-range"] if dtype.startswith("int") and n % 3 == 1 else []
            files["%s-%s" % (dtype, gran)] = quantized_lines(tensors, flags)
    for source in SOURCES:
        files["nonfinite-" + source.lower()] = quantized_lines(
            cases.nonfinite(source), ["--nonfinite", "saturate", "--dtype", "uint8"]) + [
                "meta qplan.nonfinite saturate"]
    files["huge"] = quantized_lines(cases.edge_f32(), ["--asymmetric"])
    files["huge-f64"] = quantized_lines(cases.edge_f64(), [])
    files["zeros"] = quantized_lines([cases.from_values("a", "F32", (2, 4), [0.0] * 4 + [1.0] * 4)],
                                     ["--dtype", "uint8", "--symmetric"])
    files["plain"] = ["meta format pt"] + [
        tensor_line("tensor", t) for t in cases.one_of_each_dtype()]
    files |= large()
    files["base"] = BASE
    files["errors"] = BASE + ["nudge 0030d0"]
    files["layout-2"] = META_2 + BASE[3:]
    files["making"] = META_2 + BASE[3:] + ["meta qplan.nonfinite saturate"]
    files["dtype"] = files["int8-c0"] + ["as f16", "gate sqnr_db<10", "gate total:ratio<0.1",
                                         "gate a:max_abs>1"]
    return files


# Hostile files -----------------------------------------------------------------------------------

# Every set has codes at the ends of its range, so that the source that fits gives its parameters.
CODES = "7f80017e0080"
ZEROS = "01f8fff8"
A = "quantized a int8:c0 minmax F32 2x3 %s 0000803f0000003f 0000" % CODES
B = "quantized b int4:g2:asym:bf16 minmax BF16 2x3 87078707 803f003f803f0040 " + ZEROS
KEPT = "tensor bias F32 3 0000803f"
BASE = META + [A, B, KEPT]


def instead(old, *new):
    """The lines of BASE with one replaced."""
    assert old in BASE
    return [line for each in BASE for line in (new if each == old else [each])]


def record(text, *rest):
    """BASE whose record of a says something else than its parts."""
    return META + ["record a " + text, "tensor a I8 2x3 " + CODES,
                   "tensor a_scale F32 2 0000803f0000003f", "tensor a_zero_point I8 2 0000", B, KEPT,
                   *rest]


def hostile():
    files = {
        # records
        "record-twice": BASE + ["record a int8:c0 minmax F32 2x3"],
        "record-of-nothing": BASE + ["record c int8:c0 minmax F32 2x3"],
        "record-without-tensors": META + ["record a int8:c0 minmax F32 2x3"],
        "record-of-scale": BASE + ["record a_scale int8:c0 minmax F32 2x3"],
        "codes-are-zero-points": META + [
            "quantized a int8:g2 minmax F32 2x4 7f80 0000803f 00",
            "record a_zero_point int8:t minmax F32 2x2",
            "tensor a_zero_point_scale F32 1 0000803f",
            "quantized z int8:t minmax F32 1x2 7f80 0000803f 00"],
        "scales-are-codes": META + [
            "quantized a_scale int8:t minmax F32 1x2 7f80 0000803f 00",
            "record a int8:c0:asym minmax F32 1x2", "tensor a I8 1x2 00",
            "tensor a_zero_point I8 1 00"],
        "record-empty": record(""),
        "record-word": record("int8:c0"),
        "record-two-words": record("int8:c0 minmax"),
        "record-words": record("int8:c0 minmax F32"),
        "record-more": record("int8:c0 minmax F32 2x3 4"),
        "record-blanks": record("int8:c0  minmax F32 2x3"),
        "record-nul": record("int8:c0 minmax F32 2x3\\u0000x"),
        "record-quote": record('int8:c0 minmax F32 2x3","b":"x'),
        "records-no-object": META + ["meta qplan.tensors []", "tensor a I8 2x3 7f80"],
        "records-number": META + ['meta qplan.tensors {\\"a\\":1}', "tensor a I8 2x3 7f80"],
        "records-cut": META + ['meta qplan.tensors {\\"a\\"', "tensor a I8 2x3 7f80"],
        "records-behind": META + ["meta qplan.tensors {} {}", "tensor a I8 2x3 7f80"],
        "records-missing": META + ["tensor a I8 2x3 7f80"],
        "records-many": META + ["meta qplan.tensors {%s}" % ",".join(
            '\\"t%d\\":\\"int8:t minmax F32 1x1\\"' % i for i in range(70)), "tensor a I8 1 00"],
        "records-deep": META + ["meta qplan.tensors " + '{\\"a\\":' * 9, "tensor a I8 2x3 7f80"],
        # what a record says
        "scheme-unknown": record("int9:c0 minmax F32 2x3"),
        "scheme-long": record("int8:c0" + ":sym" * 30 + " minmax F32 2x3"),
        "scheme-last-axis": record("int8:c-2 minmax F32 2x3"),
        "scheme-axis": record("int8:c2 minmax F32 2x3"),
        "scheme-other-axis": record("int8:c1 minmax F32 2x3"),
        "scheme-block": record("int8:b1x1 minmax F32 6"),
        "scheme-group-0": record("int8:g0 minmax F32 2x3"),
        "scheme-group-huge": record("int8:g18446744073709551615 minmax F32 2x3"),
        "scheme-unsigned": record("uint8:c0:sym minmax F32 2x3"),
        "scheme-4-bits": record("int4:c0 minmax F32 2x3"),
        "scheme-3-bits": record("int3:c0 minmax F32 2x3"),
        "scheme-scales": record("int8:c0:f16 minmax F32 2x3"),
        "calibrator-unknown": record("int8:c0 guess F32 2x3"),
        "calibrator-empty": record("int8:c0  F32 2x3"),
        "calibrator-long": record("int8:c0 " + "m" * 40 + " F32 2x3"),
        "source-unknown": record("int8:c0 minmax F31 2x3"),
        "source-integer": record("int8:c0 minmax I8 2x3"),
        "source-f8": record("int8:c0 minmax F8_E4M3 2x3"),
        "source-other": record("int8:c0 minmax F16 2x3", "source a F32 2x3 0000803f"),
        "shape-other": record("int8:c0 minmax F32 3x2"),
        "shape-rank": record("int8:c0 minmax F32 6"),
        "shape-none": record("int8:t minmax F32 -"),
        "shape-empty": record("int8:c0 minmax F32 0x3"),
        "shape-of-nothing": META + ["quantized a int8:c0 minmax F32 0x3 00 0000803f 00", KEPT],
        "shape-x": record("int8:c0 minmax F32 2x"),
        "shape-huge": record("int8:c0 minmax F32 4294967296x4294967296x3"),
        "shape-rank-65": record("int8:c0 minmax F32 " + "1x" * 64 + "1"),
        "shape-words": record("int8:c0 minmax F32 twoxthree"),
        # stored tensors
        "codes-missing": [line for line in record("int8:c0 minmax F32 2x3")
                          if not line.startswith("tensor a I8")],
        "codes-type": BASE + ["tensor a U8 2x3 00"],
        "codes-float": BASE + ["tensor a F32 2x3 00"],
        "codes-shape": BASE + ["tensor a I8 2x4 00"],
        "codes-rank": BASE + ["tensor a I8 6 00"],
        "codes-wider": BASE + ["tensor b U8 2x3 00"],
        "scale-missing": [line for line in record("int8:c0 minmax F32 2x3")
                          if not line.startswith("tensor a_scale")],
        "scale-type": BASE + ["tensor a_scale F16 2 003c"],
        "scale-shape": BASE + ["tensor a_scale F32 3 0000803f"],
        "scale-rank": BASE + ["tensor a_scale F32 2x1 0000803f"],
        "zero-missing": META + [B.rsplit(" ", 1)[0], KEPT],
        "zero-type": BASE + ["tensor a_zero_point U8 2 00"],
        "zero-wide": BASE + ["tensor a_zero_point I32 2 00"],
        "zero-shape": BASE + ["tensor a_zero_point I8 1 00"],
        "extra-sidecar": BASE + ["tensor bias_scale F32 1 0000803f", "lack bias_scale"],
        "extra-codes": BASE + ["tensor c I8 2x3 00", "tensor c_scale F32 2 0000803f"],
        "extra-f8": BASE + ["tensor c.weight F8_E4M3 2x3 00", "tensor c.scales F16 2 003c"],
        "extra-qweight": BASE + ["tensor c.qweight I32 2x3 00"],
        "extra-tensor": BASE + ["tensor extra F32 1 0000803f", "lack extra"],
        # values
        "scale-zero": instead(A, A.replace("0000803f", "00000000")),
        "scale-negative": instead(A, A.replace("0000803f", "000080bf")),
        "scale-nan": instead(A, A.replace("0000803f", "0000c07f")),
        "scale-infinite": instead(A, A.replace("0000803f", "0000807f")),
        "scale-second": instead(A, A.replace("0000003f", "0000807f")),
        "scale-second-f64": META + ["quantized a int8:c0 minmax F64 2x2 7f80 0000803f000080ff 00"],
        "scale-impossible": META + ["quantized a int8:t:f16 minmax F32 1x2 7f80 ff7b 00",
                                    "source a F32 1x2 ffff7f7f", B],
        "scale-subnormal": instead(A, A.replace("0000803f", "01000000")),
        "scale-minus-zero": instead(B, B.replace("803f003f", "0080003f")),
        "scale-too-large": META + ["quantized a int8:t minmax F32 2x2 0000 caf24971",
                                   "source a F32 2x2 0000803f"],
        "zero-out-of-range": instead(B, B.replace(ZEROS, "64f8fff8")),
        "zero-below-range": instead(B, B.replace(ZEROS, "9cf8fff8")),
        "zero-symmetric": instead(A, A[:-4] + "0500"),
        "zero-middle": META + ["quantized a uint4:t:sym minmax F32 1x4 98f0 0000803f 07"],
        "narrow-code": META + ["quantized a int8:c0:narrow minmax F32 2x3 %s 0000803f 00" % CODES],
        "spare-bits": META_2 + ["quantized a int3:t minmax F32 1x3 5c11 0000803f 00"],
        "narrow-3-bits": META_2 + ["quantized a int3:t:narrow minmax F32 1x8 1c71c7 0000803f 00"],
        "spare-nibble": instead(B, B.replace("87078707", "87178707")),
        "kept-differs": BASE + ["source bias F32 3 0000803f0000803f0000803e"],
        "kept-differs-often": BASE + ["source bias F32 3 00000040"],
        "clipped": BASE + ["source a F32 2x3 000000430000ffc20000803f0000fc420000000000008042"],
        "clipped-alone": META + ["quantized a int8:t minmax F32 1x3 7f8001 0000803f 00",
                                 "source a F32 1x3 00008044000000c30000803f"],
        "beyond-the-bound": BASE + ["nudge 7f"],
        "long-beyond": large()["long"][:-1] + ["nudge 000000007f00"],
        "one-beyond": BASE + ["nudge 000000007f00"],
        "nan-in-source": BASE + ["source a F32 2x3 0000c07f0000807f000080ff00000000"],
        "missing-in-file": BASE + ["source other F32 1 0000803f"],
        "source-shape": BASE + ["source a F32 3x2 0000803f"],
        "kept-dtype": BASE + ["source bias I32 3 0000803f"],
        "zeros-of-other-dtype": META + ["quantized a int8:t minmax BF16 2x2 00 0000803f 00",
                                        "source a F16 2x2 00"],
        "source-dtype": BASE + ["source a F16 2x3 003c"],
        # metadata
        "layout-3": ["meta format pt", "meta qplan.layout 3"] + BASE[2:],
        "layout-1-of-3-bits": META + ["quantized a int3:t minmax F32 1x8 1c71c7 0000803f 00"],
        "layout-nul": ["meta format pt", "meta qplan.layout 1\\u0000x"] + BASE[2:],
        "layout-twice": BASE + ["meta qplan.layout 1"],
        "numerics-99": [line.replace("numerics 1", "numerics 99") for line in BASE],
        "numerics-missing": [line for line in BASE if "numerics" not in line],
        "format-tf": [line.replace("format pt", "format tf") for line in BASE],
        "format-missing": [line for line in BASE if "format" not in line],
        "making-not-asked": META_2 + BASE[3:] + [
            "meta qplan.importance sha256:" + "0123456789abcdef" * 4,
            "meta qplan.hessian sha256:%s sha256:%s" % ("0f" * 32, "a5" * 32),
            "meta qplan.hessian_damp 0.01"],
        "making-in-layout-1": BASE + ["meta qplan.importance sha256:" + "00" * 32],
        "making-short": META_2 + ["meta qplan.importance sha256:" + "00" * 31] + BASE[3:],
        "making-damp-alone": META_2 + ["meta qplan.hessian_damp 0.01"] + BASE[3:],
        "making-nonfinite": BASE + ["meta qplan.nonfinite error"],
        "key-unknown": BASE + ["meta qplan.evil x"],
        "key-nul": BASE + ["meta k\\u0000evil v", "lack k", "hint k v"],
        "format-nul": BASE + ["meta format\\u0000x v", "lack format"],
        "key-of-source": BASE + ["hint k v"],
        "key-of-file": BASE + ["meta k v", "lack k", "hint k w"],
        "key-longer": BASE + ["meta k v", "lack k", "hint k vv"],
        "source-quantized": BASE + ["hint qplan.layout 1", "hint qplan.numerics 1",
                                    "hint qplan.tensors {}"],
        "name-nul": META + [A.replace(" a ", " a\\u0000b "), KEPT],
    }
    return files


GATES = ["gate " + text for text in (
    "sqnr_db<30", "worst:max_abs>1e-3", "total:rms>=1", "a:cosine<0.9", "*:clipped!=0", "max_clip>0",
    "nonfinite==0", "total:bound<=1e3", "{a,b}:half_step>1", "bpw>8.5", "ratio<1.9", "ratio_ideal<2",
    "bytes>1", "kept_bytes>0", "kept_percent>=50", "quantized<3", "missing>0", "b:sqnr_db>=-1e308",
    "total:clipped==1", "worst:rms<=1", "rms!=0")]


def odd():
    """Files that may or may not be proven, but must be read."""
    return {
        "order": META + [KEPT, "tensor a_zero_point I8 2 0000", A, B],
        "empty-tensor": BASE + ["tensor e F32 0x3 -"],
        "no-tensors": META + ["meta qplan.tensors {}"],
        "no-records": META + ["meta qplan.tensors {}", KEPT],
        "gates": BASE + GATES + ["nudge 10"],
        "gates-verify": BASE + ["gate sqnr_db<1000", "nudge 10"],
        "include": BASE + ["include b", "include {b,bias}"],
        "gates-nothing": BASE + ["gate nothing:sqnr_db<1"],
        "gates-no-value": META + [KEPT, "meta qplan.tensors {}", "gate sqnr_db<1", "gate total:cosine<1"],
        "include-nothing": BASE + ["include c"],
        "include-of-bad": instead(A, A.replace("0000803f", "00000000"), "include b"),
        "include-bad": BASE + ["include [a"],
        "no-layout": [line for line in BASE if "layout" not in line],
        "foreign": ["meta format pt", "tensor w.qweight I32 2 01", "tensor w.scales F16 1 003c"],
        "escapes": META + ["record \\u0061 int8:c0\\u0020minmax F32 2x3",
                           "tensor a I8 2x3 " + CODES, "tensor a_scale F32 2 0000803f0000003f"],
        "overflow": META + ["quantized a int8:t minmax F32 2x2 7f807f80 ffff7f7f 00"],
        "overflow-f16": META + ["quantized a int8:t minmax F16 2x2 7f807f80 00008047 00", "nudge 7f80"],
        "underflow": META + ["quantized a int8:t minmax BF16 2x2 7f800100 01008000 00", "as f16"],
    }


def raw(name):
    """A whole file of the golden data, bytes as they are."""
    with open(os.path.join(DATA, "qplan", name + ".safetensors"), "rb") as f:
        return b"raw\n" + f.read()


# Operators ---------------------------------------------------------------------------------------

def read_case(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", {})
    tensors = [container.Tensor(name, e["dtype"], tuple(e["shape"]),
                                data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
               for name, e in header.items() if not name.startswith("expect.")]
    return metadata, tensors


def field_text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def operator_cases():
    """{name: text}: of each operator the smallest case, and the smallest that is refused."""
    best = {}
    folder = os.path.join(DATA, "ops")
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        metadata, tensors = read_case(os.path.join(folder, file))
        lines = ["op " + metadata["op"]]
        lines += ["set %s=%s" % (k, field_text(v)) for k, v in json.loads(metadata["desc"]).items()]
        lines += [tensor_line("tensor", t) for t in tensors]
        text = "\n".join(lines) + "\n"
        key = metadata["op"] + ("-refused" if "exit" in metadata else "")
        if key not in best or len(text) < len(best[key]):
            best[key] = text
    return best


EMBEDDING = ["op embedding", "tensor weight F32 4x3 0000803f", "tensor indices I64 2 0100000000000000"]


SCALE = "tensor scale F32 1 0000803f"
FLOATS = ["op dequantize_per_tensor", "tensor input F8_E4M3 2x4 007e81fe", SCALE]
DENSE = ["op dequantize_per_tensor", "set input_dtype=uint3", "tensor input U8 2x2 a53c", SCALE]
ENCODE = ["op quantize_per_tensor", "tensor input F32 2x3 0000803f", SCALE]


def code_cases():
    """Codes of floats, tables and odd widths, and what is refused of them."""
    return {
        "codes-float": FLOATS,
        "codes-dense": DENSE + ["set row_len=5"],
        "codes-group": ["op dequantize_per_group", "set input_dtype=nf4", "set group_size=3",
                        "set ragged=true", "tensor input U8 2x2 f78b",
                        "tensor scale BF16 2x2 803f"],
        "codes-encode-f4e2m1": ENCODE + ["set output_dtype=f4e2m1"],
        "codes-encode-f8e5m2": ENCODE + ["set output_dtype=f8e5m2"],
        "codes-encode-int7": ENCODE + ["set output_dtype=int7"],
        "codes-fake": ["op fake_quantize_per_tensor", "set code_dtype=nf4"] + ENCODE[1:],
        "codes-gradient": ["op quantize_per_tensor_backward", "set code_dtype=f8e4m3",
                           "tensor dout F32 2x3 000000bf"] + ENCODE[1:],
        "codes-dynamic": ["op dynamic_quantize_per_token", "set output_dtype=f8e4m3", ENCODE[1]],
        "bad-code-nan": FLOATS[:1] + ["tensor input F8_E4M3 2x4 007f", SCALE],
        "bad-code-infinity": FLOATS[:1] + ["tensor input F8_E5M2 2x4 fc00", SCALE],
        "bad-code-storage": FLOATS + ["set input_dtype=f8e5m2"],
        "bad-code-zero-point": FLOATS + ["tensor zero_point I32 1 00"],
        "bad-code-range": ENCODE + ["set output_dtype=nf4", "set q_min=0"],
        "bad-code-word": ENCODE + ["set output_dtype=e8m0"],
        "bad-code-scheme": ["op dynamic_quantize_per_token", "set output_dtype=nf4",
                            "set scheme=asymmetric", ENCODE[1]],
        "bad-scale-e8m0": ENCODE[:2] + ["tensor scale F8_E8M0 1 7f", "set output_dtype=f8e4m3"],
        "bad-row-len": DENSE + ["set row_len=6"],
        "bad-row-len-huge": DENSE + ["set row_len=4611686018427387904"],
    }


def operator_faults():
    return {
        "bad-unknown-op": ["op nothing"] + EMBEDDING[1:],
        "bad-field": EMBEDDING + ["set nothing=1"],
        "bad-field-twice": EMBEDDING + ["set padding_idx=1", "set padding_idx=1"],
        "bad-field-value": EMBEDDING + ["set padding_idx=99999999999999999999"],
        "bad-field-word": ["op embedding_bag", "set mode=most"] + EMBEDDING[1:],
        "bad-field-none": ["op affine_grid_2d", "tensor theta F32 1x2x3 0000803f"],
        "bad-field-least": ["op affine_grid_2d", "set out_h=-1", "set out_w=1",
                            "tensor theta F32 1x2x3 0000803f"],
        "bad-field-text": EMBEDDING + ["set padding_idx=\x1b[31m"],
        "bad-extra-input": EMBEDDING + ["tensor extra F32 1 0000803f"],
        "bad-output-as-input": EMBEDDING + ["tensor output F32 2x3 0000803f"],
        "bad-missing-input": EMBEDDING[:2],
        "bad-dtype": EMBEDDING + ["tensor weight I64 4x3 00"],
        "bad-f4": EMBEDDING + ["tensor weight F4 4x4 00"],
        "bad-rank": EMBEDDING + ["tensor weight F32 12 0000803f"],
        "bad-rank-0": EMBEDDING + ["tensor weight F32 - 0000803f"],
        "bad-index": EMBEDDING + ["tensor indices I64 2 ff"],
        "index-skipped": EMBEDDING + ["tensor indices I64 2 ff", "set on_bad_index=skip"],
        "empty-input": EMBEDDING + ["tensor indices I64 0 00"],
        "empty-table": EMBEDDING + ["tensor weight F32 0x3 00"],
        "expected": EMBEDDING + ["tensor expect.output F32 2x3 00"],
        "expected-odd": EMBEDDING + ["tensor expect. U8 1 00", "tensor expect F32 1 00"],
        "bad-huge-output": ["op affine_grid_2d", "set out_h=1000000000", "set out_w=1000000000",
                            "tensor theta F32 1x2x3 0000803f"],
        "bad-huge-nothing": ["op affine_grid_2d", "set out_h=1000000000", "set out_w=1000000000",
                             "tensor theta F32 0x2x3 00"],
        "bad-huge-table": ["op embedding_backward", "set num_embeddings=4611686018427387904",
                           "tensor dout F32 2x3 0000803f", "tensor indices I64 2 00"],
        "bad-nothing": ["op embedding"],
        "metadata": EMBEDDING + ["meta format pt", "meta qplan.layout 1"],
    }


# All of it ---------------------------------------------------------------------------------------

def text_of(lines):
    return ("\n".join(lines) + "\n").encode()


def everything():
    """{path in corpus/: bytes}"""
    files = {"quantized/honest-" + name: text_of(lines) for name, lines in honest().items()}
    files |= {"quantized/hostile-" + name: text_of(lines) for name, lines in hostile().items()}
    files |= {"quantized/odd-" + name: text_of(lines) for name, lines in odd().items()}
    for name in ("int8-c0-asym.out", "odd-int4-c0.out", "mixed-int8.out", "int8-c0-asym.dequant",
                 "no-tensors.out"):
        files["quantized/raw-" + name] = raw(name)
    files |= {"op_file/" + name: text.encode() for name, text in operator_cases().items()}
    files |= {"op_file/" + name: text_of(lines) for name, lines in operator_faults().items()}
    files |= {"op_file/" + name: text_of(lines) for name, lines in code_cases().items()}
    with open(os.path.join(DATA, "ops", "embedding_bag-own-empty-rows.safetensors"), "rb") as f:
        files["op_file/raw-bag"] = b"raw\n" + f.read()
    return files | seeds_folder.everything() | seeds_importance.everything()


def path_of(file):
    return os.path.join(HERE, "corpus", file)


def is_same(file, data):
    if not os.path.exists(path_of(file)):
        return False
    with open(path_of(file), "rb") as f:
        return f.read() == data


def misjudged(replay, files):
    """What the target says of a seed that its name does not: a list of messages."""
    wrong = []
    for file in files:
        kind = file.removeprefix("quantized/").partition("-")[0]
        if not file.startswith("quantized/") or kind not in ("honest", "hostile"):
            continue
        run = subprocess.run([replay, path_of(file)], env=os.environ | {"QPLAN_FUZZ_SAY": "1"},
                             capture_output=True, text=True, check=False)
        proven = "verify ok" in run.stdout
        if run.returncode or proven != (kind == "honest"):
            wrong.append("%s: %s%s" % (file, run.stdout.strip(), run.stderr.strip()))
    return wrong


def main():
    parser = argparse.ArgumentParser(description="First inputs of fuzz targets.")
    parser.add_argument("--check", action="store_true", help="compare with the disk")
    parser.add_argument("--replay", help="fuzz-replay-quantized, to say what each file is")
    arguments = parser.parse_args()
    files = everything()
    wrong = []
    for file, data in files.items():
        if arguments.check:
            wrong += [] if is_same(file, data) else ["%s is not what seeds.py makes" % file]
            continue
        os.makedirs(os.path.dirname(path_of(file)), exist_ok=True)
        with open(path_of(file), "wb") as f:
            f.write(data)
    if arguments.replay:
        wrong += misjudged(arguments.replay, files)
    for message in wrong:
        print(message)
    print("%d files, %d wrong" % (len(files), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
