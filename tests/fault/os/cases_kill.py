"""Rows G21 and G22: the run is killed, or asked to stop, at any time.

Once at times drawn at random (the same ones every time, as far as a clock can be), and once exactly
at each call of a kind.
"""

import fcntl
import os
import random
import signal
import struct
import time

import checkpoint
from bench import HIDDEN, INPUT, JOBS, MODELS, NO_TMPFILE, QUANTIZED, TARGET, read_file
from table import case

SEED = 20260101
LARGE = "large.safetensors"
STOPS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP}


class Victim:
    """A long run that is to be hit, and what it gives if it is not."""

    def __init__(self, bench, fault=None):
        self.bench, self.fault = bench, fault
        self.random = random.Random(SEED)
        self.args = ("quantize", "-q", "--threads", "1", "-o", TARGET, bench.shelf.path(LARGE))
        begin = time.monotonic()
        result = bench.run(*self.args, fault=fault)
        self.seconds = time.monotonic() - begin
        bench.exits("undisturbed", result, 0)
        self.good = read_file(bench.path(TARGET))

    def hit(self, number, replace):
        """Runs it over a new or an old target and sends the signal after a while. How long it
        lasts changes with the load of the machine, and so does the while."""
        bench = self.bench
        bench.prepare(replace)
        before = bench.look()
        args = (*self.args, *["--force"] * replace)
        proc = bench.start(*args, fault=self.fault)
        time.sleep(self.random.uniform(0, 1.1 * self.seconds))
        proc.send_signal(number)
        result = bench.finish(proc, args)
        self.seconds *= 0.8 if result.exit == 0 else 1.05
        return result, before

    def state(self, before):
        """untouched, complete, or what is wrong; and the hidden files."""
        bench = self.bench
        after = bench.look()
        hidden = [name for name in after if HIDDEN.fullmatch(name)]
        path = bench.path(TARGET)
        if after.get(TARGET) == before.get(TARGET):
            return "untouched", hidden
        if read_file(path) == self.good:
            return "complete", hidden
        return f"torn: {os.path.getsize(path)} of {len(self.good)} bytes", hidden


# ---- G21: kill -9 --------------------------------------------------------------------------------

def kill_at_random(bench, times, fault, hidden_allowed):
    victim = Victim(bench, fault)
    seen = {"untouched": 0, "complete": 0}
    for i in range(times):
        result, before = victim.hit(signal.SIGKILL, replace=i % 2 == 1)
        state, hidden = victim.state(before)
        where = f"kill {i}: exit {result.exit}"
        bench.exits(where, result, -signal.SIGKILL, 0)
        if bench.check(state in seen, f"{where}: {state}"):
            seen[state] += 1
        bench.check(state == "complete" or result.exit != 0, f"{where}: exit 0 without a target")
        # Between its link and the rename of --force a complete file has a hidden name.
        if not hidden_allowed:
            stale = [n for n in hidden if read_file(bench.path(n)) != victim.good]
            bench.check(not stale, f"{where}: stale {stale}")
    bench.check(seen["untouched"] >= times / 10, f"too few hits in the middle: {seen}")


@case("G21-kill-at-random", needs="tmpfile", cost=9)
def kill_100(bench):
    kill_at_random(bench, 1000 if bench.shelf.full else 100, None, hidden_allowed=False)


@case("G21-kill-at-random-hidden", needs="preload", cost=5)
def kill_hidden(bench):
    """Without O_TMPFILE a temporary file may stay, but no torn target."""
    kill_at_random(bench, 200 if bench.shelf.full else 30, NO_TMPFILE, hidden_allowed=True)


def kill_at_every(bench, name, call, rules, replace):
    """Kills a job right before each of its calls."""
    args = (*JOBS[name].args, *["--force"] * replace)
    bench.prepare(replace)
    total = bench.run(*args, fault=f"call={call},n=0;{rules}").counts[0]
    bench.check(total > 0, f"{name}: makes no call of {call}")
    for n in range(1, total + 1):
        bench.prepare(replace)
        before = bench.look()
        where = f"{name}{' --force' * replace}, killed at {call} {n}, {rules}"
        result = bench.run(*args, fault=f"call={call},n={n},mode=KILL;{rules}")
        bench.exits(where, result, -signal.SIGKILL)
        after = bench.look()
        if after.get(TARGET) != before.get(TARGET):
            bench.check(read_file(bench.path(TARGET)) == bench.reference(name).target,
                        f"{where}: the target is torn")
        for hidden in set(after) - set(before) - {TARGET}:
            bench.check(HIDDEN.fullmatch(hidden) and (rules or call == "renameat"),
                        f"{where}: stale {hidden}")


@case("G21-kill-at-every-call", needs="preload tmpfile", cost=4)
def kill_every(bench):
    for name in ("channel-1", "tensor-2", "dequantize"):
        for call in ("pread", "pwrite", "fsync", "linkat", "close"):
            kill_at_every(bench, name, call, "", replace=False)
        for call in ("pwrite", "fsync", "linkat", "renameat"):
            kill_at_every(bench, name, call, "", replace=True)


@case("G21-kill-at-every-call-hidden", needs="preload", cost=3)
def kill_every_hidden(bench):
    for name in ("channel-1", "dequantize"):
        for call in ("pwrite", "fsync", "renameat"):
            kill_at_every(bench, name, call, NO_TMPFILE, replace=False)
        for call in ("fsync", "renameat"):
            kill_at_every(bench, name, call, NO_TMPFILE, replace=True)


# ---- G22: INT, TERM, HUP -------------------------------------------------------------------------

def stop_at_random(bench, times, fault):
    """Stopped: the status is that of the signal and nothing is left. Too late: complete."""
    victim = Victim(bench, fault)
    stopped = 0
    for i in range(times):
        name = list(STOPS)[i % 3]
        result, before = victim.hit(STOPS[name], replace=i % 2 == 1)
        state, hidden = victim.state(before)
        where = f"{name} {i}: exit {result.exit}"
        # Before main it has the default effect, which a shell shows as the same status.
        bench.exits(where, result, 0, 128 + STOPS[name], -STOPS[name])
        bench.check(state == ("untouched" if result.exit else "complete"), f"{where}: {state}")
        bench.check(not hidden, f"{where}: stale {hidden}")
        if result.exit == 128 + STOPS[name]:
            bench.says(where, result, f"signal {int(STOPS[name])}")
            stopped += 1
    bench.check(stopped >= times / 10, f"too few hits in the middle: {stopped}")


@case("G22-stop-at-random", cost=6)
def stop_random(bench):
    stop_at_random(bench, 300 if bench.shelf.full else 45, None)


@case("G22-stop-at-random-hidden", needs="preload", cost=6)
def stop_random_hidden(bench):
    stop_at_random(bench, 300 if bench.shelf.full else 45, NO_TMPFILE)


def stop_at_every(bench, name, call, path="", may_be_done=False, ways=("", ";" + NO_TMPFILE)):
    """A signal at each of the calls stops the job; at the last ones all may be done already."""
    for stop, number in STOPS.items():
        for rules in ways:
            total = bench.run(*JOBS[name].args, fault=f"call={call},n=0{path}{rules}").counts[0]
            bench.check(total > 0, f"{name}: makes no call of {call}")
            for n in range(1, total + 1):
                late = may_be_done or n > total - 2
                bench.disturbed(name, f"call={call},n={n},mode={stop}{path}{rules}",
                                exits=(128 + number, 0) if late else (128 + number,),
                                says=[f"signal {int(number)}"], force=(n % 2 == 0,))


@case("G22-stop-while-reading", needs="preload", cost=4)
def stop_reading(bench):
    for name in ("channel-1", "tensor-2", "dequantize"):
        stop_at_every(bench, name, "pread", f",path={JOBS[name].source}")


@case("G22-stop-while-writing", needs="preload", cost=4)
def stop_writing(bench):
    for name in ("channel-1", "tensor-2", "dequantize"):
        stop_at_every(bench, name, "pwrite")


@case("G22-stop-while-naming", needs="preload", cost=3)
def stop_naming(bench):
    for name in ("channel-1", "proof", "dequantize"):
        stop_at_every(bench, name, "fsync", may_be_done=True)
        stop_at_every(bench, name, "linkat", may_be_done=True, ways=("",))
        stop_at_every(bench, name, "renameat", may_be_done=True, ways=(";" + NO_TMPFILE,))
    for name in MODELS:
        bench.disturbed(name, "call=renameat,mode=INT", exits=(130, 0), force=(True,))


@case("G22-stop-while-proving", needs="preload", cost=3)
def stop_proving(bench):
    stop_at_every(bench, "proof", "pread", may_be_done=True)


@case("G22-second-signal", needs="preload tmpfile")
def second_signal(bench):
    """The second one ends the run at once, be it only a moment later and on another thread."""
    for name in MODELS:
        for _ in range(10):
            bench.remove(TARGET)
            before = bench.look()
            result = bench.run(*JOBS[name].args,
                               fault="call=pread,n=3,mode=INT;call=pread,n=3,mode=TERM")
            # With two threads either of them may be the second.
            bench.exits(name, result, -signal.SIGTERM, -signal.SIGINT)
            bench.untouched(name, before)


@case("G22-second-signal-while-replacing", needs="preload tmpfile")
def second_signal_replacing(bench):
    """Between the two calls that replace a target it has to wait: no hidden name is left over."""
    for name in MODELS:
        bench.disturbed(name, "call=renameat,mode=INT;call=renameat,mode=TERM",
                        exits=(-signal.SIGTERM, -signal.SIGINT), force=(True,), named=True)


@case("G22-ignored-signal", needs="preload")
def ignored_signal(bench):
    """What the caller ignores stays ignored, as under nohup."""
    for name in MODELS:
        bench.disturbed(name, "call=pread,n=3,mode=HUP", exits=(0,),
                        via=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])


@case("G22-ignored-second-signal", needs="preload tmpfile")
def ignored_second_signal(bench):
    """It stays ignored behind one that stops the run, which then ends in good order."""
    for name in MODELS:
        bench.disturbed(name, "call=pread,n=3,mode=INT;call=pread,n=3,mode=HUP", exits=(130,),
                        says=["signal 2"], via=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])


def wait_until_caught(proc, number):
    """Until the process has a handler for the signal; a program that has just begun has none."""
    for _ in range(1000):
        with open(f"/proc/{proc.pid}/status", encoding="ascii") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.01)


def wait_until_asleep(proc):
    """Until the process waits for something, and a moment more: it may be the wrong thing."""
    for _ in range(1000):
        with open(f"/proc/{proc.pid}/stat", encoding="ascii") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "S":
                break
        time.sleep(0.01)
    time.sleep(0.2)


def stop_waiting(bench, where, args, **how):
    """A run that waits for somebody else ends by each of the signals."""
    for number in STOPS.values():
        before = bench.look()
        proc = bench.start(*args, **how)
        wait_until_caught(proc, number)
        wait_until_asleep(proc)
        proc.send_signal(number)
        result = bench.finish(proc, args)
        bench.exits(f"{where}, signal {number}", result, 128 + number)
        bench.says(f"{where}, signal {number}", result, f"signal {int(number)}")
        bench.untouched(f"{where}, signal {number}", before)


@case("G22-plan-from-a-silent-pipe")
def silent_pipe(bench):
    read_end, write_end = os.pipe()
    stop_waiting(bench, "stdin", ("quantize", "--plan", "-", "-o", TARGET, INPUT), stdin=read_end)
    os.close(read_end)
    os.close(write_end)


@case("I5-pipe-that-nobody-opens")
def pipe_that_nobody_opens(bench):
    """Before a plan can be read from a named pipe, somebody has to open its other end."""
    os.mkfifo(bench.path("p.json"))
    for command in (("quantize", "-o", TARGET), ("quantize", "--dry-run")):
        stop_waiting(bench, str(command), (*command, "--plan", "p.json", INPUT))


@case("I5-pipe-that-nobody-writes-to")
def pipe_that_nobody_writes_to(bench):
    os.mkfifo(bench.path("p.json"))
    end = os.open(bench.path("p.json"), os.O_RDWR)
    stop_waiting(bench, "p.json", ("quantize", "--plan", "p.json", "-o", TARGET, INPUT))
    os.close(end)


@case("I5-pipe-that-nobody-reads-from")
def pipe_that_nobody_reads_from(bench):
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.write(write_end, bytes(4096))
    for args in (("plan", INPUT), ("quantize", "--dry-run", "--json", INPUT), ("help", "quantize"),
                 ("inspect", "--json", QUANTIZED)):
        stop_waiting(bench, str(args), args, stdout=write_end)
    os.close(read_end)
    os.close(write_end)


@case("I5-importance", needs="preload")
def stop_importance(bench):
    """At whichever read of a file of importance the signal comes."""
    name, n = b"a.weight", checkpoint.SMALL["a.weight"][1][1]
    bench.write("i", struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii", 1, n) +
                struct.pack("<f", 1) * n)
    for args in (("inspect", "i"),
                 ("quantize", "--dry-run", "--dtype", "int8", "--calibrate", "mse", "--importance",
                  "i", INPUT)):
        good = bench.run(*args, fault="call=pread,n=0")
        bench.exits("undisturbed", good, 0)
        for n in range(1, good.counts[0] + 1):
            for stop, number in STOPS.items():
                result = bench.run(*args, fault=f"call=pread,n={n},mode={stop}")
                bench.exits(f"{args[0]} {stop} at pread {n}", result, 128 + number)


@case("I5-operator", needs="preload")
def stop_operator(bench):
    """op run stops too, at whichever of its reads and writes the signal comes."""
    bench.write("x", checkpoint.make({"input": ("F32", [64, 64]), "scale": ("F32", [1])}))
    args = ("op", "run", "quantize_per_tensor", "-o", TARGET, "x")
    for call in ("pread", "pwrite"):
        for rules in ("", ";" + NO_TMPFILE):
            good = bench.run(*args, fault=f"call={call},n=0{rules}")
            bench.exits("undisturbed", good, 0)
            for n in range(1, good.counts[0] + 1):
                for stop, number in STOPS.items():
                    bench.remove(TARGET)
                    before = bench.look()
                    where = f"{stop} at {call} {n}{rules}"
                    result = bench.run(*args, fault=f"call={call},n={n},mode={stop}{rules}")
                    bench.exits(where, result, 128 + number)
                    bench.says(where, result, f"signal {int(number)}")
                    bench.untouched(where, before)


@case("G22-many-signals", cost=2)
def many_signals(bench):
    """One after the other in quick succession: never a torn target, never a leftover."""
    victim = Victim(bench)
    for i in range(10):
        bench.prepare(True)
        before = bench.look()
        proc = bench.start(*victim.args, "--force")
        time.sleep(victim.random.uniform(0, victim.seconds))
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            proc.send_signal(number)
        result = bench.finish(proc, victim.args)
        state, hidden = victim.state(before)
        bench.exits(f"run {i}", result, 0, 128 + signal.SIGINT, -signal.SIGINT, -signal.SIGTERM,
                    128 + signal.SIGTERM)
        bench.check(state in ("untouched", "complete"), f"run {i}: {state}")
        bench.check(not hidden, f"run {i}: stale {hidden}")
