"""Rows G24 to G26: stdin, stdout and stderr are closed, full, or lead to nobody."""

import os
import time

from bench import INPUT, QUANTIZED, TARGET, read_file, strerror
from table import case

JSON = ("quantize", "--json", "--threads", "1", "-o", TARGET, INPUT)


def shell(script):
    """The words that run qplan by sh, which has its descriptors changed before."""
    return ["sh", "-c", f'exec "$@" {script}', "sh"]


def written(bench, where, args=JSON):
    """The model is complete whatever became of the report."""
    bench.check(os.path.exists(bench.path(TARGET)) and
                read_file(bench.path(TARGET)) == bench.reference("channel-1").target,
                f"{where}: {args[0]}: the target is missing or differs")
    bench.remove(TARGET)


# ---- G24: stdout ---------------------------------------------------------------------------------

@case("G24-closed")
def stdout_closed(bench):
    result = bench.run(*JSON, via=shell(">&-"))
    bench.exits("--json", result, 4)
    bench.says("--json", result, "stdout", "cannot write the report", strerror("EBADF"))
    written(bench, "--json")
    args = [a for a in JSON if a != "--json"]
    bench.exits("nothing to report", bench.run(*args, via=shell(">&-")), 0)
    written(bench, "nothing to report")


@case("G24-dev-full")
def stdout_full(bench):
    result = bench.run(*JSON, via=shell(">/dev/full"))
    bench.exits("--json", result, 4)
    bench.says("--json", result, "stdout", "cannot write the report", strerror("ENOSPC"))
    written(bench, "--json")


@case("G24-every-command")
def every_command(bench):
    """None takes a report that got lost for a success."""
    commands = (("--version",), ("--help",), ("help", "quantize"), ("plan", INPUT),
                ("inspect", INPUT), ("inspect", "--json", QUANTIZED),
                ("quantize", "--dry-run", INPUT), ("quantize", "--dry-run", "--json", INPUT),
                ("verify", QUANTIZED, INPUT), ("verify", "--json", QUANTIZED, INPUT),
                ("dequantize", "--json", "-o", TARGET, QUANTIZED), ("completions", "bash"))
    for args in commands:
        if not bench.run(*args).out:
            continue
        bench.remove(TARGET)
        for script, error in ((">&-", "EBADF"), (">/dev/full", "ENOSPC")):
            result = bench.run(*args, via=shell(script))
            bench.exits(f"{args} {script}", result, 4)
            bench.says(f"{args} {script}", result, "stdout", strerror(error))
            bench.remove(TARGET)


@case("G24-broken-pipe")
def broken_pipe(bench):
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = bench.run(*JSON, stdout=write_end)
    os.close(write_end)
    bench.exits("--json", result, 4)
    bench.says("--json", result, "stdout", strerror("EPIPE"))
    written(bench, "--json")


@case("G24-head")
def head(bench):
    """The reader takes a line and goes away: no signal, no crash."""
    source = bench.shelf.path("many.safetensors")
    for args in (("inspect", "--tensors", source), ("inspect", "--json", source), ("plan", source)):
        proc = bench.start(*args)
        line = proc.stdout.readline()
        proc.stdout.close()
        proc.stdout = None
        result = bench.finish(proc, args)
        bench.check(line, f"{args}: no line")
        bench.exits(str(args), result, 0, 4)
        if result.exit:
            bench.says(str(args), result, "stdout", strerror("EPIPE"))


@case("G24-full-pipe")
def full_pipe(bench):
    """Nobody reads: the model is committed before the report blocks."""
    args = ("quantize", "--json", "-o", TARGET, bench.shelf.path("many.safetensors"))
    proc = bench.start(*args)
    for _ in range(600):
        if os.path.exists(bench.path(TARGET)):
            break
        time.sleep(0.05)
    bench.check(os.path.exists(bench.path(TARGET)), "no target while the pipe is full")
    bench.check(proc.poll() is None, "the report fitted into the pipe")
    proc.stdout.close()
    proc.stdout = None
    result = bench.finish(proc, args)
    bench.exits("the reader goes", result, 4)
    bench.says("the reader goes", result, "stdout", strerror("EPIPE"))
    bench.exits("proof", bench.run("verify", TARGET, bench.shelf.path("many.safetensors")), 0)


# ---- G25: stderr ---------------------------------------------------------------------------------

@case("G25-closed")
def stderr_closed(bench):
    for script in ("2>&-", "2>/dev/full", "<&- >&- 2>&-", "<&- 2>&-"):
        args = [a for a in JSON if a != "--json"]
        bench.exits(script, bench.run(*args, via=shell(script)), 0)
        written(bench, script)


@case("G25-closed-and-failing")
def stderr_closed_failing(bench):
    """The same status as with somebody to tell."""
    bench.write("short.safetensors", read_file(bench.path(INPUT))[:-1])
    failing = ((("quantize", "--no-such-option"), 2), (("quantize", "short.safetensors"), 3),
               (("quantize", "missing.safetensors"), 4),
               (("quantize", "--fail-if", "sqnr_db<999", "-o", TARGET, INPUT), 1))
    before = bench.look()
    for args, exit in failing:
        for script in ("2>&-", "2>/dev/full", "<&- >&- 2>&-"):
            bench.exits(f"{args} {script}", bench.run(*args, via=shell(script)), exit)
    bench.untouched("all", before)


@case("G25-broken-pipe")
def stderr_broken(bench):
    read_end, write_end = os.pipe()
    os.close(read_end)
    bench.exits("fine", bench.run(*JSON, stderr=write_end), 0)
    written(bench, "fine")
    bench.exits("failing", bench.run("quantize", "missing", stderr=write_end), 4)
    os.close(write_end)


# ---- G26: stdin and models in pipes --------------------------------------------------------------

@case("G26-stdin-closed")
def stdin_closed(bench):
    args = [a for a in JSON if a != "--json"]
    bench.exits("<&-", bench.run(*args, via=shell("<&-")), 0)
    written(bench, "<&-")
    result = bench.run("quantize", "--plan", "-", "-o", TARGET, INPUT, via=shell("<&-"))
    bench.exits("--plan -", result, 4)
    bench.says("--plan -", result, "stdin", strerror("EBADF"))


@case("G26-model-in-a-pipe")
def model_in_a_pipe(bench):
    before = bench.look()
    for args in (("quantize", "-"), ("quantize", "-o", "-", INPUT), ("inspect", "-"),
                 ("verify", "-", INPUT), ("verify", QUANTIZED, "-"), ("dequantize", "-"),
                 ("dequantize", "-o", "-", QUANTIZED), ("plan", "-")):
        result = bench.run(*args)
        bench.exits(str(args), result, 2)
        bench.says(str(args), result, "piped")
    for args in (("quantize", "-o", TARGET, "/dev/stdin"), ("inspect", "/dev/stdin")):
        with os.fdopen(os.pipe()[0]) as pipe:
            result = bench.run(*args, stdin=pipe)
        bench.exits(str(args), result, 3)
        bench.says(str(args), result, "not a regular file")
    bench.untouched("all", before)


@case("G26-plan-in-a-pipe")
def plan_in_a_pipe(bench):
    plan = bench.start("plan", INPUT)
    args = ("quantize", "--plan", "-", "-o", TARGET, INPUT)
    result = bench.finish(bench.start(*args, stdin=plan.stdout), args)
    bench.exits("quantize", result, 0)
    bench.exits("plan", bench.finish(plan, ("plan",)), 0)
    written(bench, "plan")
