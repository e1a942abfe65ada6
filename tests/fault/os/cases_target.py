"""Rows G16 to G19: the place of the output is taken, is the input, or cannot be written."""

import os
import shutil
import socket
import stat

from bench import INPUT, JOBS, MODELS, NO_TMPFILE, OLD, QUANTIZED, TARGET, Skip, read_file, strerror
from mounts import bound
from table import case


def refused(bench, where, args, exit, *says, **how):
    """A run that fails and leaves the folder as it is."""
    before = bench.look()
    result = bench.run(*args, **how)
    bench.exits(where, result, exit)
    bench.says(where, result, *says)
    bench.untouched(where, before)


# ---- G16: the target exists ----------------------------------------------------------------------

@case("G16-exists")
def exists(bench):
    for name in JOBS:
        bench.old_target()
        refused(bench, name, JOBS[name].args, 4, TARGET, strerror("EEXIST"), "--force")
        bench.remove(TARGET)


def make_file(path):
    with open(path, "wb") as f:
        f.write(OLD)


NEW_TARGETS = {"file": make_file, "folder": os.mkdir,
               "link": lambda path: os.symlink("nowhere", path)}


def made_meanwhile(bench, where, name, rules, make, exits, *extra):
    """The target appears when the run is about to sync its file."""
    path = bench.path(TARGET)
    before = bench.look()
    result = bench.run(*JOBS[name].args, *extra, meanwhile=lambda: make(path),
                       fault=f"{rules}call=fsync,mode=STOP")
    bench.exits(where, result, exits)
    if exits == 0:
        bench.complete(where, before, bench.reference(name).target)
    else:
        bench.says(where, result, TARGET)
        bench.check(sorted(bench.look()) == sorted([*before, TARGET]),
                    f"{where}: files: {sorted(bench.look())}")
        bench.check(stat.S_ISDIR(os.lstat(path).st_mode) or os.path.islink(path) or
                    read_file(path) == OLD, f"{where}: the new target was touched")
    if stat.S_ISDIR(os.lstat(path).st_mode):
        os.rmdir(path)
    bench.remove(TARGET)


@case("G16-made-meanwhile", needs="preload")
def made_during_run(bench):
    for name in JOBS:
        for rules in ("", NO_TMPFILE + ";"):
            for what, make in NEW_TARGETS.items():
                made_meanwhile(bench, f"{name}, {what}, {rules}", name, rules, make, 4)


@case("G16-made-meanwhile-force", needs="preload")
def made_during_forced_run(bench):
    """--force takes the place of a file or of a link, not of a folder."""
    for name in JOBS:
        for rules in ("", NO_TMPFILE + ";"):
            for what, make in NEW_TARGETS.items():
                made_meanwhile(bench, f"{name} --force, {what}, {rules}", name, rules, make,
                               4 if what == "folder" else 0, "--force")


# ---- G17: the target is something else -----------------------------------------------------------

@case("G17-folder")
def target_folder(bench):
    os.mkdir(bench.path(TARGET))
    for name in JOBS:
        for extra in ((), ("--force",)):
            refused(bench, f"{name} {extra}", (*JOBS[name].args, *extra), 4, TARGET,
                    strerror("EISDIR"))


@case("G17-trailing-slash")
def trailing_slash(bench):
    for target in (TARGET + "/", ".", "..", "/"):
        before = bench.look()
        result = bench.run("quantize", "--force", "-o", target, INPUT)
        bench.exits(target, result, 2, 4)
        bench.untouched(target, before)


@case("G17-link")
def target_link(bench):
    """Refused; with --force the link itself is replaced, what it leads to is not touched."""
    make_file(bench.path("elsewhere"))
    for name in JOBS:
        for leads_to in ("elsewhere", "nowhere"):
            os.symlink(leads_to, bench.path(TARGET))
            refused(bench, f"{name}, link to {leads_to}", JOBS[name].args, 4, TARGET, "--force")
            before = bench.look()
            result = bench.run(*JOBS[name].args, "--force")
            bench.exits(name, result, 0)
            bench.complete(f"{name} --force, link to {leads_to}", before,
                           bench.reference(name).target)
            bench.remove(TARGET)


def make_socket(path):
    folder = os.open(os.path.dirname(path), os.O_RDONLY)    # the path may be too long for bind
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)


SPECIAL = {"pipe": os.mkfifo, "socket": make_socket,
           "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))}


@case("G17-special")
def target_special(bench):
    """A pipe, a socket or a device is never replaced: think of --force -o /dev/null."""
    kinds = [k for k in SPECIAL if k != "device" or os.geteuid() == 0]
    for what in kinds:
        for name in ("channel-1", "dequantize", "plan"):
            for extra in ((), ("--force",)):
                SPECIAL[what](bench.path(TARGET))
                refused(bench, f"{name} {extra}, {what}", (*JOBS[name].args, *extra), 4, TARGET)
                bench.remove(TARGET)


# ---- G18: the target is the input ----------------------------------------------------------------

def same_file(bench, where, target):
    for command, source in (("quantize", INPUT), ("dequantize", QUANTIZED), ("plan", INPUT)):
        path = target(source)
        for extra in ((), ("--force",)):
            refused(bench, f"{command}, {where} {extra}", (command, *extra, "-o", path, source), 2,
                    "the output is the input")


@case("G18-path")
def target_is_input(bench):
    same_file(bench, "same path", lambda source: source)
    same_file(bench, "other spelling", lambda source: "././" + source)
    same_file(bench, "absolute", bench.path)


@case("G18-link")
def target_links_to_input(bench):
    os.mkdir(bench.path("sub"))
    os.symlink(".", bench.path("here"))

    def linked(make):
        def target(source):
            path = bench.path("sub/" + source)
            if os.path.lexists(path):
                os.unlink(path)
            make(bench.path(source), path)
            return "sub/" + source
        return target
    same_file(bench, "hard link", linked(os.link))
    same_file(bench, "symlink", linked(os.symlink))
    same_file(bench, "folder link", lambda source: "here/" + source)


@case("G18-bind-mount", needs="root")
def target_in_bind_mount(bench):
    os.makedirs(bench.path("a"))
    os.makedirs(bench.path("b"))
    for name in (INPUT, QUANTIZED):
        os.rename(bench.path(name), bench.path("a/" + name))
    with bound(bench.path("a"), bench.path("b")):
        for command, name in (("quantize", INPUT), ("dequantize", QUANTIZED)):
            for extra in ((), ("--force",)):
                refused(bench, f"{command} {extra}",
                        (command, *extra, "-o", "b/" + name, "a/" + name), 2,
                        "the output is the input")


# ---- G19: the folder -----------------------------------------------------------------------------

def as_user():
    """Permissions bind only those who are not root."""
    return {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


def need_reachable(bench):
    """Whether another user can run qplan at all from where it was built."""
    try:
        result = bench.run("--version", **as_user())
    except OSError as err:
        raise Skip(f"the program cannot be run as another user: {err}") from err
    if result.exit:
        raise Skip("the program cannot be run as another user")


@case("G19-read-only-folder")
def read_only_folder(bench):
    os.chmod(bench.folder, 0o755)
    need_reachable(bench)
    os.mkdir(bench.path("closed"))
    os.chmod(bench.path("closed"), 0o555)
    for command, source in (("quantize", INPUT), ("dequantize", QUANTIZED), ("plan", INPUT)):
        refused(bench, command, (command, "-o", "closed/" + TARGET, source), 4, "closed/" + TARGET,
                strerror("EACCES"), **as_user())
    bench.check(not os.listdir(bench.path("closed")), "something is in the folder")


@case("G19-no-search-permission")
def no_search(bench):
    os.chmod(bench.folder, 0o755)
    need_reachable(bench)
    os.mkdir(bench.path("closed"))
    shutil.copy(bench.path(INPUT), bench.path("closed"))
    os.chmod(bench.path("closed"), 0o600)
    refused(bench, "input", ("quantize", "closed/" + INPUT), 4, "closed/" + INPUT,
            strerror("EACCES"), **as_user())
    refused(bench, "output", ("quantize", "-o", "closed/" + TARGET, INPUT), 4, "closed/" + TARGET,
            strerror("EACCES"), **as_user())


@case("G19-unreadable-input")
def unreadable_input(bench):
    os.chmod(bench.folder, 0o755)
    need_reachable(bench)
    os.chmod(bench.path(INPUT), 0)
    refused(bench, "input", ("quantize", INPUT), 4, INPUT, strerror("EACCES"), **as_user())


@case("G19-missing-folder")
def missing_folder(bench):
    for name in ("no/such/folder/", INPUT + "/"):
        refused(bench, name, ("quantize", "-o", name + TARGET, INPUT), 4, name + TARGET)


@case("G19-folder-removed", needs="preload")
def folder_removed(bench):
    """While the run is at work: what it wrote has no place to go to."""
    for rules in ("", NO_TMPFILE + ";"):
        for name in MODELS:
            os.mkdir(bench.path("sub"))
            args = [a.replace(TARGET, "sub/" + TARGET) for a in JOBS[name].args]
            result = bench.run(*args, meanwhile=lambda: shutil.rmtree(bench.path("sub")),
                               fault=f"{rules}call=fsync,mode=STOP")
            bench.exits(f"{name}, {rules}", result, 4)
            bench.says(f"{name}, {rules}", result, "sub/" + TARGET, strerror("ENOENT"))
            bench.check(not os.path.exists(bench.path("sub")), f"{name}: the folder is back")
