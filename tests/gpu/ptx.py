#!/usr/bin/env python3
"""The PTX that is kept in kernels/gpu/ptx: what CUDA can be held to without a GPU.

    ptx.py [--nvcc PATH]     check
    ptx.py --write           make the kept files again (scripts/ptx.sh)
    ptx.py --table           registers, occupancy and bytes of each kernel, for kernels/gpu/README.md

Always: the kept PTX is of the device text as it is now; division is div.rn, nothing is fused,
flushed or approximate, nothing may be contracted later, octets are moved in 128 bits, and every kernel
of qk_list.h is an entry.
Where there is an nvcc: the same for what it makes, and for the text without 64-bit floats; if it is
the version that made the kept files, it makes the same bytes. Where there is a ptxas: it assembles
the kept files for every architecture without a spill and without a stack.
"""

import argparse
import concurrent.futures
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "kernels" / "gpu"
KEPT = GPU / "ptx"
README = GPU / "README.md"
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
FLAGS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "-Werror",
         "all-warnings")
# CUDA 11.0's: drivers from there on take it, and ptxas does for every architecture.
VERSION = ".version 7.0"
TABLE_ARCHITECTURE = "90"
# div.full and rcp are approximations too; PTX has no other division that is correctly rounded. A
# sum or product without a rounding of its own may be contracted by whoever assembles it.
FORBIDDEN = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:fma|mad\.\w*\.?f|rcp|rsqrt|div\.full|ex2|lg2|"
                       r"(?:add|sub|mul)\.f\d\d|sqrt\.f\d\d)[\w.]*|"
                       r"\w[\w.]*\.(?:ftz|approx)[\w.]*)", re.M)

# The kernels that read, and that write, whole octets of elements where they are aligned.
BOTH = r"fake|\w+_backward|gather_x4|bag|table_sum"
WIDE = {"ld.global": re.compile(rf"qk_({BOTH}|range_sets|codes|fused|measure|encode)[_(]"),
        "st.global": re.compile(rf"qk_({BOTH}|decode)[_(]")}


# ---- Making ---------------------------------------------------------------------------------------

def expand(line):
    """The words that a macro of qk_list.h gives."""
    text = f'#include "{GPU / "qk_list.h"}"\n#define WORD(x) x\n#define NONE(x)\n{line}\n'
    done = subprocess.run(["cc", "-E", "-P", "-x", "c", "-"], input=text, capture_output=True,
                          text=True, check=True)
    return done.stdout.split()


def programs():
    return expand("QK_PROGRAMS(WORD)")


def kernels(program, fp64):
    return expand(f"QK_{program}_KERNELS(WORD, {'WORD' if fp64 else 'NONE'})")


def text_hash(program):
    """Of the text of a program as cmake/embed.cmake puts it together, without comments and
    layout."""
    text = (GPU / f"qk_{program}_program.h").read_text()
    while match := re.search(r'#include "([\w.]+)"', text):
        text = text.replace(match.group(), (GPU / match.group(1)).read_text())
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def release_of(nvcc):
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release [\d.]+, (V[\d.]+)", told).group(1)


def header(program, release):
    return (f"// qk_{program}_program.h as PTX, made by scripts/ptx.sh with nvcc {release}.\n"
            f"// SHA-256 of the text: {text_hash(program)}\n")


def make_ptx(nvcc, folder, program, fp64):
    out = folder / f"{program}.ptx"
    define = ["-DQK_FP64"] if fp64 else []
    subprocess.run([nvcc, "-x", "cu", *define, *FLAGS, "-arch=compute_75", "-ptx", "-o", str(out),
                    str(GPU / f"qk_{program}_program.h")], check=True)
    text, n = re.subn(r"^\.version .*$", VERSION, out.read_text(), flags=re.M)
    assert n == 1, "one line .version"
    # A hint about loads of which some bytes are not used; older versions do not know it.
    text = re.sub(r'^\s*\.pragma "used_bytes_mask [^"]*";\n', "", text, flags=re.M)
    out.write_text(header(program, release_of(nvcc)) + text)
    return out


def write(nvcc):
    """All of them are made before one of the old goes."""
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = [make_ptx(nvcc, pathlib.Path(folder), program, True) for program in programs()]
        for old in KEPT.glob("*.ptx"):
            old.unlink()
        for path in made:
            shutil.copyfile(path, KEPT / path.name)
            print(f"{path.name}: {len(kernels(path.stem, True))} kernels, {path.stat().st_size} bytes")


# ---- Checks ---------------------------------------------------------------------------------------

def check_text(ptx, program, fp64):
    whole = ptx.read_text()
    text = re.sub(r"//.*", "", whole)
    for bad in FORBIDDEN.findall(text):
        yield f"{bad} in the PTX"
    divisions = set(re.findall(r"\bdiv\.[\w.]*f\d\d", text))
    for bad in sorted(divisions - {"div.rn.f32", "div.rn.f64"}):
        yield f"{bad} in the PTX"
    if program == "tiles" and len(divisions) != (2 if fp64 else 1):
        yield f"divisions {sorted(divisions)}"
    if not fp64 and re.search(r"\.f64\b", text):
        yield "f64 in the text for devices without it"
    for entry in text.split(".entry ")[1:]:
        for access, names in WIDE.items():
            if names.match(entry) and not re.search(rf"\b{access}[\w.]*\.v4\.", entry):
                yield f"{entry.split('(')[0]} has no {access} of 128 bits"
    entries = set(re.findall(r"\.entry (\w+)", text))
    if entries != set(kernels(program, fp64)):
        yield f"entries differ from qk_list.h: {sorted(entries ^ set(kernels(program, fp64)))}"
    if f"\n{VERSION}\n.target sm_75\n" not in text:
        yield f"expected {VERSION} and .target sm_75"
    for path in re.findall(r"(?<![\w.<])/(?:[\w.+-]+/)+[\w.+-]*", whole):
        yield f"a path of one machine: {path}"


def check_kept():
    missing = set(programs()) ^ {path.stem for path in KEPT.glob("*.ptx")}
    if missing:
        yield f"the files of kernels/gpu/ptx are not those of qk_list.h: {sorted(missing)}"
        return
    for program in programs():
        ptx = KEPT / f"{program}.ptx"
        yield from check_text(ptx, program, True)
        if text_hash(program) not in ptx.read_text().split("\n")[1]:
            yield f"{program}.ptx is of another text: run scripts/ptx.sh"


def check_made(nvcc, folder):
    for program in programs():
        yield from check_text(make_ptx(nvcc, folder, program, False), program, False)
        made = make_ptx(nvcc, folder, program, True)
        yield from check_text(made, program, True)
        kept = (KEPT / made.name).read_text()
        if kept.split("\n")[0] == made.read_text().split("\n")[0] and kept != made.read_text():
            yield f"{made.name} is not what this nvcc makes: run scripts/ptx.sh"


def assemble(ptx, architecture):
    return subprocess.run(["ptxas", "-v", f"-arch=sm_{architecture}", "-o", "/dev/null", str(ptx)],
                          capture_output=True, text=True)


def check_assembly(ptx, architecture):
    done = assemble(ptx, architecture)
    if done.returncode != 0:
        yield f"ptxas sm_{architecture}: {done.stderr.strip()[-300:]}"
    for line in done.stderr.splitlines():
        if "spill" in line and not re.search(r"^\s*0 bytes stack frame, 0 bytes spill stores, "
                                             r"0 bytes spill loads", line):
            yield f"ptxas sm_{architecture}: {line.strip()}"


# ---- The table ------------------------------------------------------------------------------------

def occupancy(registers, shared):
    """Threads of a multiprocessor of TABLE_ARCHITECTURE that 256-thread groups keep busy, of 2048:
    65536 registers given out to warps by 256, 227 KiB of shared memory, 1 KiB of it taken by each
    group."""
    by_registers = 65536 // (-(-registers * 32 // 256) * 256) // 8
    by_shared = 227 * 1024 // (shared + 1024)
    return min(2048 // 256, by_registers, by_shared) * 256


def table_rows():
    for program in programs():
        done = assemble(KEPT / f"{program}.ptx", TABLE_ARCHITECTURE)
        found = {}
        for name, rest in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling|\Z)",
                                     done.stderr, re.S):
            registers = int(re.search(r"Used (\d+) registers", rest).group(1))
            shared = re.search(r"(\d+) bytes smem", rest)
            found[name] = (registers, int(shared.group(1)) if shared else 0)
        for name in kernels(program, True):
            registers, shared = found[name]
            yield f"| `{name}` | {registers} | {shared} | {occupancy(registers, shared) * 100 // 2048} % |"


def table():
    release = re.search(r"nvcc V([\d.]+)\.\n", next(KEPT.glob("*.ptx")).read_text()).group(1)
    return "\n".join([f"ptxas {release}, sm_{TABLE_ARCHITECTURE}, groups of 256 threads:", "",
                      "| kernel | registers | shared bytes | occupancy |", "|---|---|---|---|",
                      *table_rows()])


def check_table(nvcc):
    kept = next(KEPT.glob("*.ptx")).read_text()
    if f"with nvcc {release_of(nvcc)}." in kept and table() not in README.read_text():
        yield "the table of kernels/gpu/README.md is not what ptx.py --table prints"


def check(nvcc):
    faults = list(check_kept())
    done = ["kept text"]
    if faults:
        return faults, done
    if nvcc:
        with tempfile.TemporaryDirectory() as folder:
            faults += check_made(nvcc, pathlib.Path(folder))
        done.append(f"nvcc {release_of(nvcc)}")
    if shutil.which("ptxas"):
        jobs = [(KEPT / f"{program}.ptx", a) for program in programs() for a in ARCHITECTURES]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for found in pool.map(lambda job: list(check_assembly(*job)), jobs):
                faults += found
        done.append(f"ptxas for {len(ARCHITECTURES)} architectures")
        faults += check_table(nvcc) if nvcc else []
    return faults, done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.write:
        if not args.nvcc:
            print("no nvcc: the CUDA toolkit makes the PTX", file=sys.stderr)
            return 1
        write(args.nvcc)
        return 0
    if args.table:
        print(table())
        return 0
    faults, done = check(args.nvcc)
    count = sum(len(kernels(program, True)) for program in programs())
    print("\n".join(faults) or f"{count} kernels: {', '.join(done)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
