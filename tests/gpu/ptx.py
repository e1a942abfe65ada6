#!/usr/bin/env python3
"""Compiles the device text as CUDA C and reads the result: what CUDA can be held to without a GPU.

    ptx.py [--nvcc PATH]      exit 77 where there is no nvcc

PTX: division is div.rn, nothing is fused, flushed or approximate, and every kernel of qk_list.h is
an entry. ptxas assembles it for every architecture without a spill and without a stack.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "kernels" / "gpu"
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
FLAGS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "-Werror",
         "all-warnings")
# div.full and rcp are approximations too; PTX has no other division that is correctly rounded.
FORBIDDEN = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:fma|mad\.\w*\.?f|rcp|rsqrt|div\.full|ex2|lg2)[\w.]*|"
                       r"\w[\w.]*\.(?:ftz|approx)[\w.]*)", re.M)


def compile_ptx(nvcc, folder, program, fp64):
    out = folder / f"{program}.ptx"
    define = ["-DQK_FP64"] if fp64 else []
    subprocess.run([nvcc, "-x", "cu", *define, *FLAGS, "-arch=compute_75", "-ptx", "-o", str(out),
                    str(GPU / f"qk_{program}_program.h")], check=True)
    return out


def expand(line):
    """The words that a macro of qk_list.h gives."""
    text = f'#include "{GPU / "qk_list.h"}"\n#define WORD(x) x\n#define NONE(x)\n{line}\n'
    done = subprocess.run(["cc", "-E", "-P", "-x", "c", "-"], input=text, capture_output=True,
                          text=True, check=True)
    return set(done.stdout.split())


def kernels(program, fp64):
    return expand(f"QK_{program}_KERNELS(WORD, {'WORD' if fp64 else 'NONE'})")


def check_text(ptx, program, fp64):
    text = re.sub(r"//.*", "", ptx.read_text())
    for bad in FORBIDDEN.findall(text):
        yield f"{bad} in the PTX"
    divisions = set(re.findall(r"\bdiv\.[\w.]*f\d\d", text))
    wanted = {"div.rn.f32", "div.rn.f64"} if fp64 else {"div.rn.f32"}
    if not divisions <= wanted: # a program need not divide
        yield f"divisions {sorted(divisions)}, expected {sorted(wanted)}"
    if not fp64 and re.search(r"\.f64\b", text):
        yield "f64 in the text for devices without it"
    entries = set(re.findall(r"\.entry (\w+)", text))
    if entries != kernels(program, fp64):
        yield f"entries differ from qk_list.h: {sorted(entries ^ kernels(program, fp64))}"


def check_assembly(ptxas, ptx, architecture):
    done = subprocess.run([ptxas, "-v", f"-arch=sm_{architecture}", "-o", "/dev/null", str(ptx)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        yield f"ptxas sm_{architecture}: {done.stderr.strip()[-300:]}"
    for line in done.stderr.splitlines():
        if "spill" in line and not re.search(r"^\s*0 bytes stack frame, 0 bytes spill stores, "
                                             r"0 bytes spill loads", line):
            yield f"ptxas sm_{architecture}: {line.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    nvcc = parser.parse_args().nvcc
    if not nvcc or not shutil.which("ptxas"):
        print("skipped: no nvcc")
        return 77
    faults = []
    programs = sorted(expand("QK_PROGRAMS(WORD)"))
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            for fp64 in (False, True):
                ptx = compile_ptx(nvcc, pathlib.Path(folder), program, fp64)
                faults += check_text(ptx, program, fp64)
            for architecture in ARCHITECTURES:
                faults += check_assembly("ptxas", ptx, architecture)
    count = sum(len(kernels(program, True)) for program in programs)
    print("\n".join(faults) or f"{count} kernels, {len(ARCHITECTURES)} architectures")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
