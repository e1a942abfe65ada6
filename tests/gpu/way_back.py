"""The way back on a device: what dequantize writes, and what verify and inspect --against report,
byte for byte as on the CPU. files.py runs these checks on its device."""

import hashlib
import json
import struct

SETTINGS = ((), ("--threads", "3", "--device-memory", "2M"), ("--threads", "1", "--memory", "1M"))
REPORTS = (("verify",), ("verify", "--json"), ("inspect", "--against"),
           ("inspect", "--json", "--against"), ("inspect", "--tensors", "--against"))


def report(bench, device, words, file, source, *settings):
    command, *rest = words
    operands = (source, file) if rest and rest[-1] == "--against" else (file, source)
    return bench.run(command, "-q", "--device", device, *settings, *rest, *operands)


def same_reports(bench, what, file, source, settings=(), reports=REPORTS):
    """Exit code, report and messages of commands that measure; returns the exit code of the first."""
    status = None
    for words in reports:
        cpu = report(bench, "cpu", words, file, source)
        device = report(bench, bench.device, words, file, source, *settings)
        bench.check(f"{' '.join(words)} {what}", cpu == device and cpu[1] + cpu[2],
                    f"{device[0]}: {(device[2] or device[1]).strip()[-300:]}, expected {cpu[0]}: "
                    f"{cpu[2].strip()[-300:]}")
        status = cpu[0] if status is None else status
    return status


def same_file(bench, what, file, *args, settings=()):
    paths = [bench.folder / name for name in ("cpu.back", "device.back")]
    for path, device, more in zip(paths, ("cpu", bench.device), ((), settings)):
        path.unlink(missing_ok=True)
        status, _, err = bench.run("dequantize", "-q", "--device", device, "-o", path, *args, *more,
                                   file)
        bench.check(f"dequantize {what}", status == 0, err)
    a, b = (path.read_bytes() if path.exists() else b"" for path in paths)
    bench.check(f"dequantize {what}", a and a == b, "the files differ")


def check_schemes(bench, model, schemes):
    file = bench.folder / "way.safetensors"
    for scheme in schemes:
        bench.run("quantize", "-q", "--force", "-o", file, "--scheme", scheme, "--indivisible",
                  "ragged", model)
        for settings in SETTINGS:
            what = f"{scheme} {' '.join(settings)}"
            reports = (("verify", "--json"),) if settings else REPORTS
            status = same_reports(bench, what, file, model, settings, reports)
            bench.check(f"verify {what}", status == 0, "not proven")
            same_file(bench, what, file, settings=settings)
        for dtype in ("f32", "f16", "bf16"):
            same_file(bench, f"{scheme} --dtype {dtype}", file, "--dtype", dtype)


def check_golden(bench, data):
    """Every golden case: its restored bytes, and its proof."""
    for case in json.loads((data / "cases.json").read_text()):
        source, file = data / case["in"], bench.folder / "case.out"
        bench.run("quantize", "-q", "--force", "-o", file, *case["quantize"], source)
        bench.run("dequantize", "-q", "--force", "--device", bench.device, *case["dequantize"], "-o",
                  "case.back", file)
        found = hashlib.sha256((bench.folder / "case.back").read_bytes()).hexdigest()
        bench.check(f"golden {case['name']}", found == case["sha256"]["dequant"], "another SHA-256")
        status = same_reports(bench, case["name"], file, source,
                              reports=(("verify", "--json", "--allow-unquantized"),))
        bench.check(f"golden {case['name']}", status == 0, "not proven")


# ---- Files that are wrong -----------------------------------------------------------------------

def parts(path):
    blob = path.read_bytes()
    n = struct.unpack("<Q", blob[:8])[0]
    return json.loads(blob[8:8 + n]), 8 + n, bytearray(blob)


def spoil(path, name, offsets, value):
    """Another byte at these offsets of a tensor."""
    header, begin, blob = parts(path)
    first, end = header[name]["data_offsets"]
    for off in offsets:
        blob[begin + (first + off if off >= 0 else end + off)] = value
    path.write_bytes(blob)


def same_refusal(bench, what, file):
    """What dequantize refuses on the CPU, it refuses on the device in the same words."""
    runs = [bench.run("dequantize", "-q", "--device", device, "-o", "none", file)
            for device in ("cpu", bench.device)]
    bench.check(f"dequantize {what}", runs[0] == runs[1] and runs[0][0] == 3, str(runs))
    bench.check(f"dequantize {what}", not (bench.folder / "none").exists(), "a file was made")


def check_wrong(bench, model):
    """Offences, bad parameters and codes: the words of the CPU, the first and how many."""
    faults = (("a code", "int8:c0", "a.f32", (5000, 5001, 310000), 0x7f, 1),
              ("a last code", "int8:g128", "d.f64", (-1,), 0x81, 1),
              ("a clipped code", "int8:t", "c.f16", (9,), 0x7f, 1),
              ("a spare nibble", "int4:t", "b.bf16", (257, 257 + 258 * 300), 0xf0, 1),
              ("spare bits", "int3:t", "b.bf16", (193, 193 + 194 * 300), 0xf0, 1),
              ("a scale that is no number", "int8:c-1:bf16", "a.f32_scale", (100, 101), 0xff, 3),
              ("a negative scale", "uint4:g7", "f.row_scale", (4003,), 0xbf, 3),
              ("a zero point", "uint8:b64x100:asym", "a.f32_zero_point", (3,), 0xff, 1),
              ("a zero point that is no code", "int4:g128:asym", "a.f32_zero_point", (3,), 0x64, 3),
              ("a zero point of a symmetric scheme", "int8:c0", "a.f32_zero_point", (3,), 1, 3),
              ("a code outside a narrow range", "int8:c0:narrow", "a.f32", (5000,), 0x80, 3),
              ("a nibble outside a narrow range", "int4:t:narrow", "b.bf16", (200,), 0x83, 3),
              ("a code of 3 bits outside a narrow range", "int3:t:narrow", "b.bf16", (192,), 4, 3))
    file = bench.folder / "wrong.safetensors"
    for what, scheme, tensor, offsets, value, expected in faults:
        bench.run("quantize", "-q", "--force", "-o", file, "--scheme", scheme, "--indivisible",
                  "ragged", model)
        spoil(file, tensor, offsets, value)
        status = same_reports(bench, what, file, model)
        bench.check(what, status == expected, f"exit: expected {expected}, found {status}")
        if expected == 3 or "spare" in what:
            same_refusal(bench, what, file)


def check_errors(bench, model):
    file = bench.folder / "way.safetensors"
    for command in (("dequantize", "-o", "none", file), ("verify", file, model),
                    ("inspect", "--against", model, file)):
        status, out, err = bench.run(*command, "--device", bench.device, "--device-memory", "100K")
        bench.check(f"{command[0]}, a cap too small",
                    status == 5 and "too small: expected at least" in err and not out, err)
        bench.check(f"{command[0]}, a cap too small", not (bench.folder / "none").exists())
    status, _, err = bench.run("verify", "--device", bench.device, file, model)
    bench.check("the summary of verify names the device", f", {bench.device}:0, " in err, err)
    status, _, err = bench.run("inspect", "--device", f"{bench.device}:99", file)
    bench.check("inspect without a source wants a device that is there",
                status == 5 and "no such device" in err, err)


def check(bench, data, model, schemes):
    check_golden(bench, data)
    check_schemes(bench, model, schemes)
    check_wrong(bench, model)
    check_errors(bench, model)
