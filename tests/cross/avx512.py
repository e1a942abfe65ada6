#!/usr/bin/env python3
"""Runs the kernels for AVX-512 on a CPU that has it, in Bochs, where this machine's has not.

    avx512.py --build DIR --data FILE... [--kernel VMLINUZ] [--timeout SECONDS]

Bochs is a PC emulator that executes the instructions of a Skylake-X. It boots a Linux kernel with a
file system in memory: the tests that walk the kernel table, and qplan, whose files must be the same
bytes at every level. It takes half an hour. Exit 77 if Bochs, its terminal, a kernel or what makes
a CD of them is missing.
"""

import argparse
import glob
import gzip
import os
import pathlib
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

TESTS = ("unit-kernels", "unit-kernels_check", "unit-kernels_params", "unit-kernels_quotients",
         "unit-kernels_rows")
# Scales of few bits would make ties below the normal numbers of f16, which Bochs 2.7 rounds up when
# it narrows them (120.5 * 2^-24 to 121), at AVX2 too; CPUs and the scalar kernels round to even.
SCHEMES = ("--per-channel --axis 0", "--per-channel --axis 1", "--per-tensor",
           "--dtype int4 --per-group 32", "--dtype uint4 --asymmetric --per-group 128",
           "--dtype uint8 --asymmetric --block 8x16")
OPTIONS = "--device cpu --nonfinite saturate --indivisible ragged"
ISOLINUX = "/usr/lib/ISOLINUX/isolinux.bin"
LDLINUX = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
TERMINAL = "/usr/lib/*/bochs/plugins/libbx_term_gui.so"
BUSYBOX = "/bin/busybox"

BOCHSRC = """megs: 1024
cpu: model=corei7_skylake_x, ips=100000000
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
boot: cdrom
display_library: term
com1: enabled=1, mode=file, dev={folder}/serial
log: {folder}/log
panic: action=fatal
clock: sync=none
sound: driver=dummy
plugin_ctrl: sb16=0, es1370=0, voodoo=0, ne2k=0, e1000=0, usb_uhci=0, speaker=0
"""

# Without xsaves and xsavec: Bochs counts their compacted state otherwise than Linux, which then
# would use no vector registers at all.
MENU = """default linux
label linux
 kernel /vmlinuz
 append initrd=/initrd console=ttyS0 quiet mitigations=off tsc=reliable panic=-1 clearcpuid=323,321
"""

# What runs there. Every line that matters begins with "qplan-test".
INIT = """#!/bin/busybox sh
export PATH=/bin:/tests LD_LIBRARY_PATH=/lib
busybox mount -t proc proc /proc
busybox mount -t tmpfs tmp /tmp
busybox grep -q -w avx512bw /proc/cpuinfo && echo qplan-test: the CPU has AVX-512
cd /tmp
for file in /data/*; do
    while read -r scheme; do
        for level in scalar avx2 avx512; do
            export QPLAN_CPU=$level
            qplan quantize -q $scheme {options} --force -o $level.q $file &&
            qplan dequantize -q --force -o $level.d $level.q ||
            echo qplan-test: $file $scheme: $level failed
            qplan verify -q --json $level.q $file > $level.json # may find what is not finite
        done
        for level in avx2 avx512; do
            busybox cmp scalar.q $level.q && busybox cmp scalar.d $level.d ||
            echo qplan-test: $file $scheme: $level differs
            busybox sed -i s/$level.q/scalar.q/ $level.json
            busybox cmp scalar.json $level.json ||
            echo qplan-test: $file $scheme: the report of $level differs
        done
    done < /schemes
    echo qplan-test: $file: compared
done
QPLAN_CPU=avx512 qplan quantize {options} -o named.q $file
for test in {tests}; do
    $test > /tmp/log 2>&1
    status=$?
    [ $status = 0 ] || busybox tail -n 20 /tmp/log
    echo qplan-test: $test: exit $status
done
echo qplan-test: end
busybox sleep 2
busybox poweroff -f
"""


def missing(kernel):
    """What is needed and not there, in words; None if all is."""
    for tool in ("bochs", "genisoimage"):
        if not shutil.which(tool):
            return f"no {tool}"
    for path in (ISOLINUX, LDLINUX, BUSYBOX):
        if not os.path.exists(path):
            return f"no {path}"
    if not glob.glob(TERMINAL):
        return "no terminal for Bochs"
    return None if kernel and os.path.exists(kernel) else "no Linux kernel: see --kernel"


def libraries(program):
    """The shared libraries of a program, its loader among them."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+)", text)


def archive_member(name, mode, data):
    """A file of a cpio archive in the form that kernels read."""
    name_bytes = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name_bytes), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name_bytes
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def make_archive(build, data):
    """The file system: tests, qplan, what they link, the data, and the program that runs all."""
    files = {"init": INIT.format(tests=" ".join(TESTS), options=OPTIONS).encode(),
             "schemes": "".join(f"{scheme}\n" for scheme in SCHEMES).encode(),
             "bin/busybox": pathlib.Path(BUSYBOX).read_bytes()}
    programs = {f"tests/{test}": build / "tests" / test for test in TESTS}
    programs["bin/qplan"] = build / "qplan"
    for name, path in programs.items():
        files[name] = path.read_bytes()
        for library in libraries(path):
            where = library[1:] if "/ld-" in library else f"lib/{os.path.basename(library)}"
            files[where] = pathlib.Path(library).read_bytes()
    for path in data:
        files[f"data/{path.name}"] = path.read_bytes()
    folders = {parent for name in files for parent in list(pathlib.Path(name).parents)[:-1]}
    folders |= {pathlib.Path(name) for name in ("proc", "tmp", "dev")}
    out = b"".join(archive_member(str(f), stat.S_IFDIR | 0o755, b"") for f in sorted(folders))
    out += b"".join(archive_member(name, stat.S_IFREG | 0o755, files[name]) for name in files)
    return gzip.compress(out + archive_member("TRAILER!!!", 0, b""), 1)


def make_disc(folder, kernel, archive):
    disc = folder / "disc"
    (disc / "isolinux").mkdir(parents=True)
    shutil.copy(kernel, disc / "vmlinuz")
    (disc / "initrd").write_bytes(archive)
    shutil.copy(ISOLINUX, disc / "isolinux")
    shutil.copy(LDLINUX, disc / "isolinux")
    (disc / "isolinux" / "isolinux.cfg").write_text(MENU)
    subprocess.run(["genisoimage", "-quiet", "-o", folder / "boot.iso", "-b", "isolinux/isolinux.bin",
                    "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
                    "-boot-info-table", disc], check=True)


def drain(terminal):
    """What stands there to be read, perhaps nothing."""
    try:
        return os.read(terminal, 65536)
    except (BlockingIOError, OSError):
        return b""


def follow(process, ours, end):
    """Waits for Bochs. It draws the screen on a second terminal, names that, and stops if it is full."""
    said, screen = b"", None
    while process.poll() is None and time.monotonic() < end:
        said += drain(ours)
        named = re.search(rb'connected to screen "(/dev/pts/\d+)"', said)
        if named and screen is None:
            screen = os.open(named.group(1), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        while screen is not None and drain(screen):
            pass
        time.sleep(0.2)
    if screen is not None:
        os.close(screen)


def emulate(folder, seconds):
    """Runs Bochs on a terminal of its own until the machine turns itself off."""
    (folder / "bochsrc").write_text(BOCHSRC.format(folder=folder))
    (folder / "commands").write_text("c\n")  # Bochs with a debugger waits for it
    ours, theirs = pty.openpty()
    command = ["bochs", "-q", "-f", folder / "bochsrc", "-rc", folder / "commands"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
                               env=dict(os.environ, TERM="xterm"), start_new_session=True)
    os.set_blocking(ours, False)
    follow(process, ours, time.monotonic() + seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(ours)
    os.close(theirs)
    serial = folder / "serial"
    return serial.read_text(errors="replace") if serial.exists() else ""


def judge(text, n_files):
    """What is wrong with what the machine said; an empty list if nothing is."""
    lines = re.findall(r"qplan-test: (.*?)\s*$", text, re.M)
    wanted = ["the CPU has AVX-512", *(f"{test}: exit 0" for test in TESTS), "end"]
    wrong = [f"missing: {line}" for line in wanted if line not in lines]
    wrong += [line for line in lines if re.search(r"differs|failed|exit [^0]", line)]
    if sum(line.endswith(": compared") for line in lines) != n_files:
        wrong.append("missing: comparisons of files")
    if "cpu avx512" not in text:
        wrong.append("missing: a run that names AVX-512")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--kernel", default=max(glob.glob("/boot/vmlinuz-*"), default=None))
    parser.add_argument("--timeout", type=float, default=3500)
    args = parser.parse_args()
    reason = missing(args.kernel)
    if reason:
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_disc(folder, args.kernel, make_archive(args.build, args.data))
        text = emulate(folder, args.timeout)
    wrong = judge(text, len(args.data))
    if wrong:
        print(text[-8000:])
    print("\n".join(wrong) if wrong else "AVX-512: the kernels' tests pass, all files are the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
