"""Mounted file systems for single cases; root only."""

import contextlib
import os
import subprocess

from bench import Skip


def mount(*words):
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode:
        raise Skip(f"cannot mount here: {done.stderr.strip()}")


def unmount(folder):
    subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def small_file_system(bench, size, kind="tmpfs", read_only=False):
    """A new file system is the folder of the bench inside the with block."""
    folder, outer = bench.path("mounted"), bench.folder
    os.mkdir(folder)
    options = ",".join((["size=" + size] if size else []) + ["ro" if read_only else "rw"])
    mount("-t", kind, "-o", options, kind, folder)
    bench.folder = folder
    try:
        yield
    finally:
        bench.folder = outer
        unmount(folder)


@contextlib.contextmanager
def bound(source, folder):
    """A folder is to be seen at a second place inside the with block."""
    mount("--bind", source, folder)
    try:
        yield
    finally:
        unmount(folder)
