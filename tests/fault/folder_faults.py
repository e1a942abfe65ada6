#!/usr/bin/env python3
"""Faults while a folder is written, in the layout of an engine or the native one.

    folder_faults.py --qplan PATH [--preload LIBRARY] [--kills N] [--full]

Whatever happens, the output is what it was before or the whole new folder, and beside it there is at
most OUT.partial, of which the next run speaks and which `qplan clean` removes. Each row runs where
the output is absent and where --force replaces an old one. Kills strike at any time, N of them on
a folder of compressed-tensors and as many on the others together, and right before single calls;
with --full before each.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from folders import INDEX, Bench, problems, shard_bytes

LAYOUTS = {"compressed-tensors": (), "qplan": ("--scheme", "int8:c0"), "gptq": (), "gptq_v2": (),
           "awq": (), "mlx": (), "bitsandbytes": ("--scheme", "int8:c0"), "fp8": (), "modelopt": ()}
SEED = 20261118
OLD = {"model.safetensors": shard_bytes({"old": ((4, 8), 1)}), "config.json": b"{}"}
# Every call by which a folder is written, and the error that it gives.
CALLS = {"open": "EIO", "pread": "EIO", "read": "EIO", "pwrite": "ENOSPC", "write": "ENOSPC",
         "fsync": "EIO", "close": "EIO", "renameat": "EIO", "unlinkat": "EIO", "fstat": "EIO",
         "fstatvfs": "EIO"}


def make_model(folder, extent, shards=4):
    """Shards with a block each, of random numbers, and what is copied beside them."""
    folder.mkdir()
    numbers, names = random.Random(SEED), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        tensors = {f"model.layers.{i}.mlp.down_proj.weight": [extent, extent],
                   f"model.layers.{i}.input_layernorm.weight": [extent]}
        header, data = {}, b""
        for name, shape in tensors.items():
            n = shape[0] * (shape[1] if len(shape) > 1 else 1)
            raw = bytearray(numbers.randbytes(2 * n))
            raw[1::2] = bytes(byte & 0x83 | 0x3c for byte in raw[1::2])  # none is large, or NaN
            header[name] = {"dtype": "BF16", "shape": shape,
                            "data_offsets": [len(data), len(data) + len(raw)]}
            data += bytes(raw)
            names[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (folder / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    (folder / "config.json").write_text('{"model_type": "llama", "torch_dtype": "bfloat16"}')
    (folder / "tokenizer.json").write_text('{"a": 1}' * 1000)
    return folder


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else None


class Job:
    """A run that makes a folder, over none or an old one, and what it gives undisturbed."""

    def __init__(self, bench, layout, replace, extent, shards):
        self.bench, self.replace = bench, replace
        self.where = f"{layout}{' --force' * replace}"
        self.source = bench.root / "source"
        if not self.source.exists():
            make_model(self.source, extent, shards)
        self.out = bench.root / "out"
        self.partial = bench.root / "out.partial"
        self.args = ("quantize", "-q", "--threads", "1", "--format", layout, *LAYOUTS[layout],
                     *["--force"] * replace, "-o", self.out, self.source)
        self.before = dict(OLD) if replace else None
        self.prepare()
        begin = time.monotonic()
        bench.expect(bench.run(*self.args), 0, ())
        self.seconds = time.monotonic() - begin
        self.whole = content(self.out)

    def prepare(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(self.partial, ignore_errors=True)
        if self.replace:
            self.out.mkdir()
            for name, data in OLD.items():
                (self.out / name).write_bytes(data)

    def problem(self, text):
        self.bench.problem(f"{self.where}: {text}")

    def run(self, preload, rule, counts=None):
        more = {"QPLAN_FAULT_COUNT": str(counts)} if counts else {}
        return self.bench.run(*self.args, env={**os.environ, "LD_PRELOAD": preload,
                                               "QPLAN_FAULT": rule, **more})

    def count(self, preload, call):
        """How often an undisturbed run makes a call."""
        counts = self.bench.root / "counts"
        self.prepare()
        self.bench.expect(self.run(preload, f"call={call},n=0", counts), 0, ())
        return int(counts.read_text())

    def is_whole(self):
        return content(self.out) == self.whole

    def judge_kill(self, what):
        """What a run left that could not clean up behind itself, and whether the next one copes."""
        if not self.is_whole() and content(self.out) != self.before:
            self.problem(f"{what}: the output is neither the old nor the new one")
        extra = {p.name for p in self.bench.root.iterdir()} - {
            "out", "out.partial", "source", "counts"}
        if extra:
            self.problem(f"{what}: left {sorted(extra)}")
        if self.partial.exists():
            self.bench.expect(self.bench.run(*self.args), 4, ("out.partial", "qplan clean"))
            self.bench.expect(self.bench.run("clean", self.out), 0, ())
            if self.partial.exists():
                self.problem(f"{what}: clean has left something")

    def judge_error(self, what, result, may_stay=False):
        """What a run has to leave that could still speak."""
        whole = self.is_whole()
        if not whole and content(self.out) != self.before:
            self.problem(f"{what}: the output is neither the old nor the new one")
        if result.returncode not in (0, 4) or (result.returncode == 0 and not whole):
            self.problem(f"{what}: exit {result.returncode}: {result.stderr}")
        if result.returncode == 4 and whole and "may not be on disk" not in result.stderr:
            self.problem(f"{what}: the output is there in spite of: {result.stderr}")
        if result.returncode and result.stderr.count("qplan: error: ") != 1:
            self.problem(f"{what}: expected one error: {result.stderr}")
        if self.partial.exists() and not may_stay:
            self.problem(f"{what}: the run has left its folder")


def jobs(bench, extent, layouts=LAYOUTS, shards=4):
    for layout in layouts:
        for replace in (False, True):
            job = Job(bench, layout, replace, extent, shards)
            yield job
            shutil.rmtree(job.out, ignore_errors=True)


# ---- Kills ---------------------------------------------------------------------------------------

def kill_at_random(bench, layout, n):
    numbers = random.Random(SEED)
    for job in jobs(bench, 512, (layout,)):
        hits = 0
        for i in range(n // 2):
            job.prepare()
            number = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)[i % 3]
            with subprocess.Popen([bench.qplan, *job.args], stderr=subprocess.DEVNULL) as process:
                time.sleep(numbers.uniform(0, 1.1 * job.seconds))
                process.send_signal(number)
            hits += process.returncode != 0
            if number == signal.SIGTERM and job.partial.exists() and process.returncode != -number:
                job.problem(f"kill {i}: a run that was stopped has left its folder")
            job.judge_kill(f"kill {i}")
            job.seconds *= 1.05 if process.returncode else 0.8  # the load of a machine changes
        if n >= 20 and hits < n / 20:
            job.problem(f"too few hits: {hits} of {n // 2}")


def clean_beside_a_run(bench):
    """A run that is at work is not cleaned away: it is held while clean looks."""
    job = Job(bench, "compressed-tensors", False, 512, 4)
    mark = job.partial / ".qplan-staging"
    for _ in range(50):
        job.prepare()
        with subprocess.Popen([bench.qplan, *job.args], stderr=subprocess.DEVNULL) as process:
            while not (job.partial / "config.json").exists() and process.poll() is None:
                time.sleep(0.0005)
            process.send_signal(signal.SIGSTOP)
            held = mark.exists()
            if held:
                bench.expect(bench.run("clean", job.out), 4, ("out.partial", "a run is writing it"))
            process.send_signal(signal.SIGCONT)
        if process.returncode != 0 or not job.is_whole():
            job.problem(f"a run beside clean: exit {process.returncode}")
        if held:
            return
    job.problem("no run was caught at work")


def row_kills(bench, options):
    """Row G21 of folders: at any time."""
    clean_beside_a_run(bench)
    kill_at_random(bench, "compressed-tensors", options.kills)
    others = [layout for layout in LAYOUTS if layout != "compressed-tensors"]
    for layout in others:
        kill_at_random(bench, layout, max(2, options.kills // len(others)))


def row_kills_at_calls(bench, options):
    """Row G21 of folders: right before a call; of many calls some, or with --full all."""
    for job in jobs(bench, 128, LAYOUTS if options.full else ("compressed-tensors",)):
        for call in ("open", "pwrite", "write", "fsync", "close", "renameat", "unlinkat"):
            total = job.count(options.preload, call)
            for n in range(1, total + 1, 1 if options.full else 1 + total // 8):
                job.prepare()
                result = job.run(options.preload, f"call={call},n={n},mode=KILL")
                if result.returncode != -signal.SIGKILL:
                    job.problem(f"killed at {call} {n}: exit {result.returncode}")
                job.judge_kill(f"killed at {call} {n}")


# ---- Calls that fail -----------------------------------------------------------------------------

def row_calls(bench, options):
    """Row G8 to row G15 of folders: each call fails once, whichever it is."""
    for job in jobs(bench, 128):
        for call, error in CALLS.items():
            total = job.count(options.preload, call)
            some = 1 if options.full or "compressed" in job.where else 1 + total // 2
            for n in range(1, total + 1, some):
                job.prepare()
                result = job.run(options.preload, f"call={call},n={n},errno={error},mode=once")
                # What cannot be removed stays, and the next run tells.
                job.judge_error(f"{call} {n}", result, may_stay=call in ("unlinkat", "open"))


def row_full_disk(bench, options):
    """Row G8 and row G10 of folders: a disk that is full from some write on, or foretold to be."""
    for job in jobs(bench, 128):
        for n in (1, 2, 5, job.count(options.preload, "pwrite")):
            job.prepare()
            result = job.run(options.preload, f"call=pwrite,n={n},errno=ENOSPC,mode=forever")
            job.judge_error(f"full from write {n} on", result)
            bench.expect(result, 4, ("No space left on device",))
        job.prepare()
        counts = bench.root / "counts"
        result = job.run(options.preload, "call=fstatvfs,mode=full;call=pwrite,n=0", counts)
        job.judge_error("foretold", result)
        bench.expect(result, 4, ("bytes needed", "bytes free"))
        if counts.read_text().split()[-1] != "0":
            job.problem("foretold: written all the same")


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of that size, where mounting is allowed; yields whether it is there."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
                          capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def row_real_disk(bench, options):
    """Row G8 of folders: a real file system that is too small, and does not tell how small."""
    source = make_model(bench.root / "source", 512)
    for layout, more in LAYOUTS.items():
        with small_disk(bench.root / "disk", "400k") as is_there:
            if not is_there:
                return
            out = bench.root / "disk" / "out"
            result = bench.run("quantize", "-q", "--format", layout, *more, "-o", out, source, env={
                **os.environ, "LD_PRELOAD": options.preload,
                "QPLAN_FAULT": "call=fstatvfs,errno=ENOSYS,mode=forever"})
            bench.expect(result, 4, ("No space left on device",))
            if list(out.parent.iterdir()):
                bench.problem(f"{layout}: left {list(out.parent.iterdir())}")


# ---- The source changes, the order of calls ------------------------------------------------------

def row_replaced(bench, options):
    """Row E22: a shard that is replaced between the plan and its reading, or written to. The old
    one of a name is read to its end where it is still open, and it is not with few descriptors."""
    for job in jobs(bench, 128, ("compressed-tensors", "mlx"), shards=40):
        last = sorted(job.source.glob("*.safetensors"))[-1]
        good = last.read_bytes()
        for change, few in ((replace_file, True), (rewrite_file, False), (cut_file, False)):
            job.prepare()
            result = run_while(bench, job, options.preload, lambda: change(last, good), few)
            job.judge_error(change.__name__, result)
            bench.expect(result, 4, (last.name,))
            replace_file(last, good)


def run_while(bench, job, preload, change, few):
    """Runs a job, and makes a change when all is planned and nothing written."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    process = subprocess.Popen([bench.qplan, *job.args], stderr=subprocess.PIPE, text=True,
                               preexec_fn=limit if few else None,
                               env={**os.environ, "LD_PRELOAD": preload,
                                    "QPLAN_FAULT": "call=fstatvfs,mode=STOP"})
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        change()
        os.kill(process.pid, signal.SIGCONT)
    _, message = process.communicate()
    return subprocess.CompletedProcess((), process.returncode, "", message)


def replace_file(path, good):
    path.with_suffix(".new").write_bytes(good)
    path.with_suffix(".new").rename(path)


def rewrite_file(path, good):
    path.write_bytes(good[:-2] + b"\0\0")


def cut_file(path, good):
    os.truncate(path, len(good) - 2)


def row_order(bench, options):
    """Row G23 of folders: before the name is given all files are synced, and the name is synced
    before the old folder goes."""
    log = bench.root / "log"
    for job in jobs(bench, 128):
        job.prepare()
        log.unlink(missing_ok=True)
        bench.expect(bench.run(*job.args, env={
            **os.environ, "LD_PRELOAD": options.preload, "QPLAN_FAULT": "call=fsync,n=0",
            "QPLAN_FAULT_LOG": str(log)}), 0, ())
        lines = [line.split()[0].decode() for line in log.read_bytes().split(b"\n")
                 if line.startswith((b"fsync ", b"rename ", b"unlink "))]
        named = len(lines) - 1 - lines[::-1].index("rename")
        if lines[:named].count("fsync") < len(job.whole) + 1:
            job.problem(f"not every file is synced before the name: {lines}")
        if lines[named + 1] != "fsync":
            job.problem(f"the name is not synced at once: {lines[named:]}")
    log.unlink()


ROWS = {row_kills: "", row_kills_at_calls: "preload", row_calls: "preload", row_full_disk: "preload",
        row_real_disk: "preload", row_replaced: "preload", row_order: "preload"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qplan", required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--preload", help="the library that makes calls fail")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    options = parser.parse_args()
    if os.environ.get("QPLAN_TEST_LIMITS") == "off":
        options.preload = None
    options.preload = options.preload and os.path.abspath(options.preload)
    rows = [row for row, needs in ROWS.items()
            if options.only in row.__name__ and (options.preload or not needs)]
    for row in rows:
        with tempfile.TemporaryDirectory() as root:
            bench = Bench(os.path.abspath(options.qplan), pathlib.Path(root))
            bench.row = row.__name__
            begin = time.monotonic()
            row(bench, options)
            print(f"{row.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    for text in problems:
        print(text)
    print(f"{len(rows)} rows, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
