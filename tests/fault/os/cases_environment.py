"""Rows G27 to G32: mode bits, environment, arguments, clock, and files with holes."""

import json
import os
import shutil
import stat
import tempfile

import checkpoint
from bench import INPUT, JOBS, MODELS, NO_TMPFILE, QUANTIZED, TARGET, Skip, read_file
from table import case


# ---- G27: mode bits ------------------------------------------------------------------------------

def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def check_mode(bench, name, source, target, mask, fault):
    """A job of a file of mode source, over an old target of mode target or over none."""
    os.chmod(bench.path(JOBS[name].source), source)
    bench.prepare(target is not None)
    if target is not None:
        os.chmod(bench.path(TARGET), target)
    result = bench.run(*JOBS[name].args, *["--force"] * (target is not None), fault=fault,
                       via=["sh", "-c", f'umask {mask:03o}; exec "$@"', "sh"])
    wanted = (0o666 if name == "plan" else source if target is None else target) & ~mask
    where = f"{name}, source {source:03o}, target {target and oct(target)}, umask {mask:03o}"
    bench.exits(where, result, 0)
    found = mode_of(bench.path(TARGET))
    bench.check(found == wanted, f"{where}: mode: expected {wanted:03o}, found {found:03o}")


def check_modes(bench, fault):
    """As cp: the mode of the source, or of the target that is replaced, less the umask. A plan is
    a new document, whatever it was made of."""
    for name in ("channel-1", "dequantize", "plan"):
        for source in (0o600, 0o644, 0o666, 0o440):
            for mask in (0o000, 0o022, 0o027, 0o077):
                for target in (None, 0o600, 0o664):
                    check_mode(bench, name, source, target, mask, fault)


@case("G27-modes", cost=1)
def modes(bench):
    check_modes(bench, None)


@case("G27-modes-hidden", needs="preload", cost=1)
def modes_hidden(bench):
    check_modes(bench, NO_TMPFILE)


@case("I8-never-wider", needs="preload")
def never_wider(bench):
    """Nor is it while it is written: its mode is looked at before each of the calls."""
    for name in ("channel-1", "dequantize"):
        source = bench.path(JOBS[name].source)
        os.chmod(source, 0o600)
        for rules in ("", NO_TMPFILE + ";"):
            for call in ("pwrite", "fsync"):
                bench.prepare(True)
                os.chmod(bench.path(TARGET), 0o640)
                seen = []
                proc = bench.start(*JOBS[name].args, "--force", preexec_fn=lambda: os.umask(0),
                                   fault=f"{rules}call={call},mode=STOP")
                bench.intervene(proc, JOBS[name].args, lambda: seen.extend(open_modes(proc.pid)))
                bench.exits(name, bench.finish(proc, JOBS[name].args), 0)
                bench.check(seen and set(seen) == {0o640}, f"{name}, {rules}{call}: modes: {seen}")


def open_modes(pid):
    """The modes of the files that a process has open for reading and writing."""
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        writes = os.lstat(f"{folder}/{fd}").st_mode & stat.S_IWUSR
        found = os.stat(f"{folder}/{fd}")
        if writes and int(fd) > 2 and stat.S_ISREG(found.st_mode):
            yield stat.S_IMODE(found.st_mode)


@case("G27-set-group-folder")
def set_group_folder(bench):
    groups = [12345] if os.geteuid() == 0 else [g for g in os.getgroups() if g != os.getegid()]
    if not groups:
        raise Skip("needs root or a second group")
    os.mkdir(bench.path("shared"))
    os.chown(bench.path("shared"), -1, groups[0])
    os.chmod(bench.path("shared"), 0o2775)
    os.chmod(bench.path(INPUT), 0o640)
    for fault in (None, NO_TMPFILE) if bench.shelf.preload else (None,):
        for extra in ((), ("--force",)):
            result = bench.run("quantize", *extra, "-o", "shared/" + TARGET, INPUT, fault=fault)
            bench.exits("shared", result, 0)
            bench.check(mode_of(bench.path("shared/" + TARGET)) == 0o640, "shared: mode")
            found = os.lstat(bench.path("shared/" + TARGET)).st_gid
            bench.check(found == groups[0], f"group: expected {groups[0]}, found {found}")
            if extra:
                os.unlink(bench.path("shared/" + TARGET))


# ---- G28, G30: variables and the clock -----------------------------------------------------------

VARIABLES = [
    {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}, {"LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "C"},
    {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "no_such"}, {"LANG": "de_DE", "LC_NUMERIC": "de_DE.UTF-8"},
    {"TZ": "Pacific/Kiritimati"}, {"TZ": ":no/such"}, {"TZ": "X-25:00"}, {"HOME": ""},
    {"TMPDIR": "/no/such/folder"}, {"SOURCE_DATE_EPOCH": "0"}, {"SOURCE_DATE_EPOCH": "-1"},
    {"SOURCE_DATE_EPOCH": "not a number"}, {"POSIXLY_CORRECT": "1"}, {"COLUMNS": "1"},
    {"TERM": "dumb"}, {"OMP_NUM_THREADS": "3"}, {"GLIBC_TUNABLES": "glibc.malloc.perturb=165"},
]


def same_everywhere(bench, where, **how):
    """The bytes, the report and the messages are those of a plain run."""
    bench.prepare(False)
    args = JOBS["proof"].args
    before = bench.look()
    result = bench.run(*args, **how)
    bench.judge(where, "proof", result, (0,), (), before)
    for command in (("inspect", QUANTIZED), ("plan", INPUT),
                    ("quantize", "--dry-run", "--dtype", "int4", INPUT),
                    ("quantize", "--per-group", "100", INPUT), ("quantize", "missing"),
                    ("verify", QUANTIZED, INPUT)):
        plain, other = bench.run(*command), bench.run(*command, **how)
        same = (plain.exit, plain.out) == (other.exit, other.out)
        bench.check(same, f"{where}: {command}: expected {plain.out!r}, found {other.out!r}")
        bench.check(plain.exit == 0 or plain.err == other.err,
                    f"{where}: {command}: expected {plain.err!r}, found {other.err!r}")


@case("G28-variables", cost=1)
def variables(bench):
    for row in VARIABLES:
        if "SOURCE_DATE_EPOCH" not in row:
            same_everywhere(bench, str(row), env=row)


@case("G28-no-variables")
def no_variables(bench):
    same_everywhere(bench, "empty environment", via=["env", "-i"])


@case("G30-source-date-epoch")
def source_date_epoch(bench):
    for row in VARIABLES:
        if "SOURCE_DATE_EPOCH" in row:
            same_everywhere(bench, str(row), env=row)


@case("G30-clock-jumps", needs="preload")
def clock_jumps(bench):
    for name in MODELS:
        bench.disturbed(name, "call=clock,mode=jump", exits=(0,))
        bench.disturbed(name, "call=clock,errno=EINVAL,mode=forever", exits=(0,))


# ---- G29: arguments ------------------------------------------------------------------------------

@case("G29-long-path")
def long_path(bench):
    before = bench.look()
    long = "x" * 100_000
    for path in (long, "/".join(["d" * 99] * 1000), "./" + long, long + "/y"):
        for args in (("quantize", path), ("quantize", "-o", path, INPUT), ("inspect", path),
                     ("verify", path, INPUT), ("verify", QUANTIZED, path), ("dequantize", path),
                     ("dequantize", "-o", path, QUANTIZED), ("plan", path),
                     ("plan", "-o", path, INPUT), ("quantize", "--plan", path, INPUT)):
            result = bench.run(*args)
            where = f"{args[0]} with a path of {len(path)}"
            bench.exits(where, result, 4)
            bench.says(where, result, "File name too long")
            bench.check(len(result.err) < 2000, f"{where}: the message is not cut")
    bench.untouched("all", before)


@case("G29-long-option-values")
def long_values(bench):
    before = bench.look()
    long = "x" * 100_000
    for option in ("--dtype", "--threads", "--memory", "--scheme", "--fail-if", "--per-group",
                   "--block", "--axis", "--device", "--" + long, "-" + long):
        result = bench.run("quantize", option, long, INPUT)
        bench.exits(option[:20], result, 2)
        bench.check(len(result.err) < 2000, f"{option[:20]}: the message is not cut")
    bench.exits("command", bench.run(long), 2)
    bench.exits("--exclude", bench.run("quantize", "--exclude", long, INPUT), 2, 3)
    bench.untouched("all", before)


@case("G29-many-arguments")
def many_arguments(bench):
    """argv of 50,000 words: a repeated option, operands, and an option given too often."""
    before = bench.look()
    excluded = ["--exclude=norm"] * 50_000
    bench.exits("--exclude", bench.run("quantize", "--dry-run", *excluded, INPUT), 0)
    bench.exits("operands", bench.run("quantize", *[INPUT] * 50_000), 2)
    bench.exits("--threads", bench.run("quantize", *["--threads=1"] * 50_000, INPUT), 2)
    bench.untouched("all", before)


ODD_NAMES = {"non-UTF-8": b"\xff\xfe\x80", "newline": b"a\nb", "escape": b"\x1b[31mred\x1b[0m",
             "blank": b" a b ", "dash": b"-o", "dashes": b"--force", "quote": b"'\"\\",
             "percent": b"%s%n", "equals": b"a=b", "direction": "a\u202eb".encode()}


@case("G29-odd-names")
def odd_names(bench):
    """Any bytes but NUL and / may be in a name."""
    for what, name in ODD_NAMES.items():
        source, target = name + b".in", name + b".out"
        os.rename(bench.path(INPUT), os.path.join(os.fsencode(bench.folder), source))
        for extra in ((), ("--force",)):
            result = bench.run("quantize", *extra, b"-o" + target, b"--", source)
            bench.exits(what, result, 0)
            check_printable(bench, what, result)
        found = read_file(os.path.join(os.fsencode(bench.folder), target))
        bench.check(found == bench.reference("channel-1").target, f"{what}: the target differs")
        for args in ((b"verify", b"--", target, source), (b"inspect", b"--", target),
                     (b"dequantize", b"--", target)):
            result = bench.run(*args)
            bench.exits(f"{what}: {args[0]}", result, 0)
            check_printable(bench, what, result)
        json.loads(bench.run(b"verify", b"--json", b"--", target, source).out.decode("utf-8"))
        os.rename(os.path.join(os.fsencode(bench.folder), source), bench.path(INPUT))


@case("G29-odd-names-in-messages")
def odd_names_in_messages(bench):
    for what, name in ODD_NAMES.items():
        for args in ((b"quantize", b"--", name),
                     (b"quantize", b"-o", b"no/" + name, INPUT.encode()),
                     (b"inspect", b"--", name), (b"quantize", b"--plan", b"./" + name, b"in"),
                     (b"verify", b"--", name, name), (b"./" + name,),
                     (b"quantize", b"--dtype", b"x" + name, b"in"),
                     (b"quantize", b"--" + name, b"in")):
            result = bench.run(*args)
            bench.check(result.exit in (2, 4), f"{what}: {args}: exit {result.exit}")
            check_printable(bench, f"{what}: {args}", result)
            lines = result.err.splitlines()
            bench.check(lines and all(x.startswith("qplan: ") for x in lines),
                        f"{what}: {args}: a line broke: {result.err!r}")


def check_printable(bench, where, result):
    for text in (result.err, result.out.decode("utf-8", "surrogateescape")):
        bad = [c for c in text if c != "\n" and (ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or
                                                 c in "\u202e\ufffd" or "\ud800" <= c < "\ue000")]
        bench.check(not bad, f"{where}: raw {bad} in {text[:300]!r}")


@case("G29-empty")
def empty(bench):
    before = bench.look()
    for args in (("",), ("quantize", ""), ("quantize", "-o", "", INPUT), ("inspect", ""),
                 ("verify", "", INPUT), ("verify", QUANTIZED, ""), ("dequantize", ""),
                 ("plan", ""), ("plan", "-o", "", INPUT), ("quantize", "--dtype", "", INPUT),
                 ("quantize", "--plan", "", INPUT), ("quantize", "--exclude", "", INPUT)):
        result = bench.run(*args)
        bench.exits(str(args), result, 2)
        bench.says(str(args), result)
    bench.untouched("all", before)


# ---- G31, G32: holes -----------------------------------------------------------------------------

def sparse(path, tensors, tail):
    """A checkpoint of zeros without blocks on the disk, but for the bytes of tail at its end."""
    head, n_bytes = checkpoint.header(tensors)
    try:
        with open(path, "wb") as f:
            f.truncate(len(head) + n_bytes)
            f.write(head)
            f.seek(-len(tail), os.SEEK_END)
            f.write(tail)
    except OSError as err:
        raise Skip(f"cannot make a file of {n_bytes} bytes here: {err}") from err


@case("G31-holes")
def holes(bench):
    tensors = {"zeros": ("F32", [512, 1024]), "last": ("F32", [8, 64])}
    tail = checkpoint.numbers("F32", 8 * 64, "last")
    head, n_bytes = checkpoint.header(tensors)
    sparse(bench.path("holes"), tensors, tail)
    bench.write("plain", head + bytes(n_bytes - len(tail)) + tail)
    for name in ("holes", "plain"):
        bench.exits(name, bench.run("quantize", "-o", name + ".out", name), 0)
    bench.check(read_file(bench.path("holes.out")) == read_file(bench.path("plain.out")),
                "a file with holes gives other bytes")
    bench.exits("proof", bench.run("verify", "holes.out", "holes"), 0)


@case("G32-large-header-only")
def large_inspect(bench):
    """5 TiB that nobody reads: inspect and plan need the header only."""
    sparse(bench.path("huge"), {"zeros": ("F32", [1 << 20, 1310720])}, b"")
    for args in (("inspect", "huge"), ("plan", "huge"), ("quantize", "--dry-run", "huge")):
        result = bench.run(*args)
        bench.exits(str(args), result, 0)
    result = bench.run("quantize", "-o", TARGET, "huge")
    bench.exits("no room", result, 4)
    bench.says("no room", result, TARGET, "bytes needed", "bytes free")


# The last tensors: one that is quantized and one that is kept.
LAST = {"zz": ("F32", [64, 128]), "zzz": ("F32", [100])}


def large_source(bench, name, dtype, shape):
    """LAST alone in the file small, and the same bytes behind zeros up to 2^32 in another."""
    tail = checkpoint.numbers("F32", 64 * 128 + 100, "last")
    bench.write("small", checkpoint.header(LAST)[0] + tail)
    sparse(bench.path(name), {"zeros": (dtype, shape), **LAST}, tail)


def tensors_of(path):
    """The bytes of each tensor in a file that belongs to LAST."""
    with open(path, "rb") as f:
        begin = 8 + int.from_bytes(f.read(8), "little")
        rows, found = json.loads(f.read(begin - 8)), {}
        for name in rows:
            if name.startswith("zz"):
                first, last = rows[name]["data_offsets"]
                f.seek(begin + first)
                found[name] = f.read(last - first)
    return found


def same_last(bench, where, name):
    """A result of the large source has the last tensors of that of the small one."""
    small, large = tensors_of(bench.path("small." + name)), tensors_of(bench.path("large." + name))
    bench.check(len(small) >= 2 and large == small, f"{where}: other bytes in {sorted(small)}")


def need_room(folder, n_bytes):
    usage = os.statvfs(folder)
    if usage.f_bavail * usage.f_frsize < n_bytes:
        raise Skip(f"needs {n_bytes >> 20} MiB in {folder}")


@case("G32-offsets-source", needs="limits", cost=15)
def large_source_offsets(bench):
    """The last tensors begin beyond 2^32 in the source; of f32, int4 is an eighth of it."""
    # Holes are read fastest in memory: there they take no pages.
    room = 1 << 30
    fast = os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 * room
    with tempfile.TemporaryDirectory(dir="/dev/shm" if fast else bench.folder) as folder:
        need_room(folder, room)
        outer, bench.folder = bench.folder, folder
        try:
            large_source(bench, "large", "F32", [65_540, 16_384])
            for name in ("small", "large"):
                bench.exits(name, bench.run("quantize", "-q", "--dtype", "int4", "-o",
                                            name + ".out", name), 0)
            same_last(bench, "quantize", "out")
            bench.exits("proof", bench.run("verify", "-q", "large.out", "large"), 0)
        finally:
            bench.folder = outer


@case("G32-offsets", full=True, cost=20)
def large_offsets(bench):
    """The same beyond 2^31 in the target of quantize, and beyond 2^32 in that of dequantize."""
    need_room(bench.folder, 8 << 30)
    large_source(bench, "large", "F16", [35_000, 65_536])
    for name in ("small", "large"):
        bench.exits(name, bench.run("quantize", "-o", name + ".out", name), 0)
    same_last(bench, "quantize", "out")
    bench.exits("proof", bench.run("verify", "large.out", "large"), 0)
    for name in ("small", "large"):
        bench.exits(name, bench.run("dequantize", "-o", name + ".back", name + ".out"), 0)
    same_last(bench, "dequantize", "back")
