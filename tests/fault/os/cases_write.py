"""Rows G8 to G15 and G20: writing, syncing, closing and naming the output fail."""

import os

from bench import JOBS, MODELS, NO_TMPFILE, TARGET, read_file, strerror
from mounts import small_file_system
from table import case

WAYS = {"tmpfile": "", "hidden": NO_TMPFILE + ";"}     # both kinds of temporary file


# ---- G8 to G11: write ----------------------------------------------------------------------------

@case("G8-every-pwrite", needs="preload", cost=3)
def every_pwrite(bench):
    for name in JOBS:
        for error in ("ENOSPC", "EIO"):
            bench.every_n(name, "pwrite", f"errno={error}",
                          says=[TARGET, "cannot write at byte", strerror(error)])


@case("G8-every-pwrite-hidden", needs="preload", cost=2)
def every_pwrite_hidden(bench):
    for name in ("channel-1", "tensor-2", "dequantize", "plan"):
        bench.every_n(name, "pwrite", f"errno=ENOSPC,mode=forever;{NO_TMPFILE}",
                      says=[TARGET, "cannot write at byte", strerror("ENOSPC")])


@case("G8-needed-and-free", needs="preload")
def needed_and_free(bench):
    bench.disturbed("channel-1", "call=pwrite,n=3,errno=ENOSPC,mode=forever",
                    says=[str(len(bench.reference("channel-1").target)), "needed", "free"])


@case("G8-full-file-system", needs="preload root")
def full_file_system(bench):
    """A real one; it does not tell how much room is left."""
    with small_file_system(bench, "1m"):
        for way, rules in WAYS.items():
            before = bench.look()
            for extra in ("", ";call=pwrite,mode=short"):
                result = bench.run("quantize", "-o", TARGET, bench.shelf.path("tiled.safetensors"),
                                   fault=f"{rules}call=fstatvfs,errno=ENOSYS{extra}")
                bench.exits(way, result, 4)
                bench.says(way, result, TARGET, strerror("ENOSPC"))
                bench.untouched(way, before)


@case("G9-errors", needs="preload")
def write_errors(bench):
    for name in JOBS:
        for error in ("EDQUOT", "EFBIG", "EROFS"):
            bench.disturbed(name, f"call=pwrite,errno={error},mode=forever",
                            says=[TARGET, strerror(error)])


@case("G9-file-size-limit", needs="limits")
def file_size_limit(bench):
    """ulimit -f counts blocks of 512 bytes; the signal that it sends is ignored."""
    for name in ("channel-1", "channel-2", "dequantize"):
        bench.disturbed(name, via=["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"],
                        says=[TARGET, strerror("EFBIG")])


@case("G9-read-only-file-system", needs="root")
def read_only_file_system(bench):
    with small_file_system(bench, "1m", read_only=True):
        before = bench.look()
        result = bench.run("quantize", "-o", TARGET, bench.shelf.path("in.safetensors"))
        bench.exits("read-only", result, 4)
        bench.says("read-only", result, TARGET, strerror("EROFS"))
        bench.untouched("read-only", before)


@case("G10-predicted", needs="preload")
def predicted(bench):
    """Before any work: nothing is written, and of the input only the header was read."""
    for name in MODELS:
        size = len(bench.reference(name).target)
        result = bench.disturbed(name, "call=fstatvfs,mode=full;call=pwrite,n=0",
                                 says=[TARGET, f"{size} bytes needed", "bytes free",
                                       strerror("ENOSPC")])
        bench.check(result.counts[1:] == (0,), f"{name}: wrote before: {result.counts}")


@case("G10-small-file-system", needs="root")
def predicted_for_real(bench):
    with small_file_system(bench, "1m"):
        before = bench.look()
        result = bench.run("quantize", "-o", TARGET, bench.shelf.path("large.safetensors"))
        bench.exits("1m", result, 4)
        bench.says("1m", result, TARGET, "bytes needed", "bytes free", strerror("ENOSPC"))
        bench.untouched("1m", before)


@case("G10-unknown-space", needs="preload")
def unknown_space(bench):
    """A file system that does not say how much is free is tried."""
    bench.disturbed("channel-1", "call=fstatvfs,errno=ENOSYS", exits=(0,))


@case("G11-every-EINTR", needs="preload", cost=2)
def every_eintr(bench):
    for name in JOBS:
        bench.every_n(name, "pwrite", "errno=EINTR", exits=(0,), force=(False,))


@case("G11-write-modes", needs="preload", cost=2)
def write_modes(bench):
    for name in JOBS:
        for mode in ("eintr", "short", "one-byte"):
            bench.disturbed(name, f"call=pwrite,mode={mode}", exits=(0,))


@case("G11-write-nothing", needs="preload")
def write_nothing(bench):
    """A write that does nothing and gives no reason must not be tried for ever."""
    for name in JOBS:
        bench.disturbed(name, "call=pwrite,mode=zero", says=[TARGET, "cannot write at byte"])


# ---- G12 to G14: sync and close ------------------------------------------------------------------

@case("G12-fsync-file", needs="preload")
def fsync_file(bench):
    for name in JOBS:
        for way, rules in WAYS.items():
            for error in ("EIO", "ENOSPC", "EDQUOT"):
                result = bench.disturbed(
                    name, f"call=fsync,n=0;{rules}call=fsync,errno={error}", where=", " + way,
                    says=[TARGET, "may not be on disk", strerror(error)])
                bench.check(result.counts[:1] == (1,), f"{name}, {way}: synced again")


@case("G12-fsync-folder", needs="preload")
def fsync_folder(bench):
    """The file has its name by then: complete, but the run cannot promise that it stays."""
    for name in JOBS:
        for way, rules in WAYS.items():
            bench.disturbed(name, f"{rules}call=fsync,n=2,errno=EIO", where=", " + way, named=True,
                            says=[TARGET, "folder", "may not be on disk", strerror("EIO")])


UNSUPPORTED = ("EINVAL", "EOPNOTSUPP", "ENOTTY", "EROFS")


@case("G13-fsync-unsupported", needs="preload")
def fsync_unsupported(bench):
    for name in JOBS:
        for error in UNSUPPORTED:
            bench.disturbed(name, f"call=fsync,errno={error},mode=forever", exits=(0,))


@case("G13-warning", needs="preload")
def fsync_warning(bench):
    for n, what in ((1, "file"), (2, "folder")):
        result = bench.disturbed("channel-1", f"call=fsync,n={n},errno=EINVAL", exits=(0,))
        bench.check("qplan: warning: " in result.err and TARGET in result.err,
                    f"{what}: no warning that names the target: {result.err!r}")


@case("G14-close", needs="preload")
def close_fails(bench):
    """The nameless file can only be closed behind its link: complete, and the run tells."""
    for name in JOBS:
        for error in ("EIO", "ENOSPC"):
            bench.disturbed(name, f"call=close,path=/#,errno={error}", named=True,
                            says=[TARGET, strerror(error)])


@case("G14-close-hidden", needs="preload")
def close_hidden_fails(bench):
    """A file with a hidden name is closed before it gets the other one (NFS tells errors then)."""
    for name in JOBS:
        bench.disturbed(name, f"{NO_TMPFILE};call=close,path=.qplan-,errno=EIO;"
                        f"call=close,path={TARGET},errno=EIO", says=[TARGET, strerror("EIO")])


# ---- G15, G20: naming ----------------------------------------------------------------------------

NAME_ERRORS = ("EXDEV", "EACCES", "EPERM", "EBUSY", "EIO")


@case("G15-link", needs="preload")
def link_fails(bench):
    for name in JOBS:
        for way, rules in WAYS.items():
            call = "linkat" if not rules else "renameat"  # a hidden file is renamed if that is free
            for error in NAME_ERRORS:
                bench.disturbed(name, f"{rules}call={call},path={TARGET},errno={error}",
                                force=(False,), where=", " + way, says=[TARGET, strerror(error)])


@case("G15-no-rename-to-free", needs="preload")
def no_rename_to_free(bench):
    """A file system that cannot rename to a free name only: the hidden file gets a second name."""
    for name in JOBS:
        bench.disturbed(name, f"{NO_TMPFILE};call=renameat,path={TARGET},errno=EINVAL", exits=(0,),
                        force=(False,))


@case("G15-rename", needs="preload")
def rename_fails(bench):
    for name in JOBS:
        for error in NAME_ERRORS:
            bench.disturbed(name, f"call=renameat,errno={error}", force=(True,),
                            says=[TARGET, strerror(error)])
            bench.disturbed(name, f"{NO_TMPFILE};call=renameat,errno={error}", force=(True,),
                            says=[TARGET, strerror(error)])


@case("G15-every-link", needs="preload")
def every_link(bench):
    """The first ones only ask whether a link can be made; without it there is another way."""
    for name in JOBS:
        for error in NAME_ERRORS:
            bench.every_n(name, "linkat", f"errno={error}", exits=(0, 4),
                          says=[TARGET, strerror(error)])


@case("G15-hidden-link-taken", needs="preload")
def hidden_link_taken(bench):
    """The hidden name for a replacement exists already: the next one is taken."""
    bench.disturbed("channel-1", "call=linkat,path=.qplan-,errno=EEXIST", exits=(0,), force=(True,))


@case("G20-fallback", needs="preload")
def fallback(bench):
    for name in JOBS:
        for error in ("EOPNOTSUPP", "EISDIR", "EINVAL", "ENOENT"):
            bench.disturbed(name, f"call=tmpfile,errno={error},mode=forever", exits=(0,))


@case("G20-no-proc", needs="preload")
def no_proc(bench):
    """/proc is not there, and then neither the privilege for a link by descriptor alone."""
    for name in ("channel-1", "dequantize"):
        first, second = (f"call=linkat,n={n},errno=ENOENT" for n in (1, 2))
        bench.disturbed(name, f"{first};{second}", exits=(0,))


@case("G20-hidden-name-taken", needs="preload")
def hidden_name_taken(bench):
    bench.disturbed("channel-1", f"{NO_TMPFILE};call=open,path=.qplan-,errno=EEXIST", exits=(0,))


@case("I4-stale-hidden-names", needs="preload")
def stale_hidden_names(bench):
    """Left by a killed run of the same process number, which containers give again and again."""
    stale = 'for i in 0 1 2; do echo stale >.qplan-$$-$i.tmp; done; echo >.qplan-$$.tmp; exec "$@"'
    for name in JOBS:
        for way, rules in WAYS.items():
            for replace in (False, True):
                bench.prepare(replace)
                result = bench.run(*JOBS[name].args, *["--force"] * replace,
                                   fault=f"{rules}call=fsync,n=0", via=["sh", "-c", stale, "sh"])
                where = f"{name}{' --force' * replace}, {way}"
                bench.exits(where, result, 0)
                bench.check(read_file(bench.path(TARGET)) == bench.reference(name).target,
                            f"{where}: the target differs")
                left = [n for n in os.listdir(bench.folder) if n.startswith(".qplan-")]
                bench.check(len(left) == 4, f"{where}: expected the 4 stale names, found {left}")
                bench.remove(*left)


@case("G20-real", needs="root")
def fallback_real(bench):
    """ramfs has no O_TMPFILE before Linux 6.6; with it or without, the result is the same."""
    with small_file_system(bench, None, kind="ramfs"):
        for replace in (False, True):
            result = bench.run("quantize", *["--force"] * replace, "-o", TARGET,
                               bench.shelf.path("in.safetensors"))
            bench.exits("ramfs", result, 0)
            bench.check(os.listdir(bench.folder) == [TARGET], f"left {os.listdir(bench.folder)}")
