/*
 * io.c - input files: open, read by position, notice a change. The output side is out.c.
 */
#include "io.h"

#include "alloc.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISDIR(mode))
        return "a folder";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "something else";
}

static enum qplan_status check_kind(const struct qp_file *file, mode_t mode,
                                    struct qplan_error *err)
{
    if (S_ISREG(mode))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, file->shown,
                   "not a regular file: expected a regular file, found %s", kind_of(mode));
}

/* Takes the identity of the open file, which qp_file_unchanged compares with later. */
static enum qplan_status identify(struct qp_file *file, struct qplan_error *err)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return qp_fail_errno(err, errno, file->shown, "cannot examine the file");
    QP_TRY(check_kind(file, st.st_mode, err));
    file->size = (uint64_t)st.st_size;
    file->dev = st.st_dev;
    file->ino = st.st_ino;
    file->mode = st.st_mode;
    file->n_links = st.st_nlink;
    file->mtime = st.st_mtim;
    file->ctime = st.st_ctim;
    /*
     * Workers read at two or more places in turn, which looks random to the system: without this
     * word it stops reading ahead (2 to 4 times slower from a disk). It is advice: no check.
     */
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return QPLAN_OK;
}

static enum qplan_status name_file(struct qp_file *file, const char *path, struct qplan_error *err)
{
    *file = (struct qp_file){.fd = -1};
    qp_escape(file->shown, sizeof file->shown, path, strlen(path));
    file->path = qp_strndup(path, strlen(path));
    return file->path ? QPLAN_OK : qp_fail_memory(err, file->shown, strlen(path));
}

enum qplan_status qp_file_open(struct qp_file *file, const char *path, struct qplan_error *err)
{
    QP_TRY(name_file(file, path, err));
    /* O_NONBLOCK: a FIFO without a writer must not hang the open. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum qplan_status status = QPLAN_OK;
    if (file->fd >= 0)
        status = identify(file, err);
    else if (errno == ENXIO) /* what opening a socket gives */
        status = qp_fail(err, QPLAN_ERR_INVALID, file->shown,
                         "not a regular file: expected a regular file, found a socket or device");
    else
        status = qp_fail_errno(err, errno, file->shown, "cannot open");
    if (status != QPLAN_OK)
        qp_file_close(file);
    return status;
}

enum qplan_status qp_file_wrap(struct qp_file *file, int fd, const char *path,
                               struct qplan_error *err)
{
    QP_TRY(name_file(file, path, err));
    file->fd = fd;
    file->borrowed_fd = true;
    enum qplan_status status = identify(file, err);
    if (status != QPLAN_OK)
        qp_file_close(file);
    return status;
}

void qp_file_close(struct qp_file *file)
{
    if (file->fd >= 0 && !file->borrowed_fd)
        (void)close(file->fd); /* read only: nothing can be lost */
    qp_free(file->path);
    file->fd = -1;
    file->path = NULL;
}

/* ---- Files that are opened when they are needed ------------------------------------------------
 */

void qp_file_park(struct qp_file *file, struct qp_handles *handles)
{
    (void)close(file->fd);
    file->fd = -1;
    file->handles = handles;
}

static bool is_the_file(const struct qp_file *file, const struct stat *st)
{
    return st->st_dev == file->dev && st->st_ino == file->ino;
}

/* Opens a parked file again, if it is still the same one. */
static int open_again(const void *owner, struct qplan_error *err)
{
    const struct qp_file *file = owner;
    struct stat st;
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        (void)qp_fail_errno(err, errno, file->shown, "cannot open again");
    } else if (fstat(fd, &st) != 0 || !is_the_file(file, &st)) {
        (void)qp_fail(err, QPLAN_ERR_IO, file->shown,
                      "the file changed while it was read: another one has its name");
        (void)close(fd);
        return -1;
    }
    return fd;
}

static enum qplan_status take_fd(const struct qp_file *file, int *fd, struct qplan_error *err)
{
    *fd = file->fd;
    return file->handles ? qp_handles_take(file->handles, file, open_again, fd, err) : QPLAN_OK;
}

static void give_fd(const struct qp_file *file)
{
    if (file->handles)
        qp_handles_give(file->handles, file);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static enum qplan_status read_fd(const struct qp_file *file, int fd, uint64_t off, void *out,
                                 size_t n, struct qplan_error *err)
{
    char *to = out;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int errnum = errno;
            qp_fail_errno(err, errnum, file->shown, "cannot read at byte %" PRIu64, off);
            if (err)
                err->offset = off;
            return QPLAN_ERR_IO;
        }
        if (got == 0)
            return qp_fail_at(err, QPLAN_ERR_IO, file->shown, off,
                              "the file became shorter: expected %" PRIu64 " bytes, found the end",
                              file->size);
        to += got;
        off += (uint64_t)got;
        n -= (size_t)got;
    }
    return QPLAN_OK;
}

enum qplan_status qp_file_read(const struct qp_file *file, uint64_t off, void *out, size_t n,
                               struct qplan_error *err)
{
    int fd;
    QP_TRY(take_fd(file, &fd, err));
    const enum qplan_status status = read_fd(file, fd, off, out, n, err);
    give_fd(file);
    return status;
}

/* Whether a copy between this address and this place of a file is slow. */
static bool is_entangled(uintptr_t address, uint64_t off)
{
    const uint64_t ahead = (address - off) % 4096;
    return (ahead > 0 && ahead < 64) || ahead > 4096 - 64;
}

void *qp_io_room(void *buffer, uint64_t off, uint64_t other)
{
    char *room = buffer;
    while (is_entangled((uintptr_t)room, off) || is_entangled((uintptr_t)room, other))
        room += 64;
    return room;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Whether the path still leads to the file. */
static bool has_its_name(const struct qp_file *file)
{
    struct stat st;
    return stat(file->path, &st) == 0 && is_the_file(file, &st);
}

/*
 * What is not as it was, or NULL. Nobody can put the change time back, but links, unlinking and
 * renaming move it too: it counts where neither the number of links nor the name explains it.
 */
static const char *what_moved(const struct qp_file *file, const struct stat *now)
{
    if (!is_the_file(file, now))
        return "identity";
    if (!same_time(&now->st_mtim, &file->mtime))
        return "modification time";
    const bool explained =
        now->st_nlink != file->n_links || (!file->borrowed_fd && !has_its_name(file));
    return same_time(&now->st_ctim, &file->ctime) || explained ? NULL : "change time";
}

enum qplan_status qp_file_unchanged(const struct qp_file *file, struct qplan_error *err)
{
    struct stat now;
    int fd;
    QP_TRY(take_fd(file, &fd, err));
    const int failed = fstat(fd, &now), errnum = errno;
    give_fd(file);
    if (failed)
        return qp_fail_errno(err, errnum, file->shown, "cannot examine the file");
    if ((uint64_t)now.st_size != file->size)
        return qp_fail(err, QPLAN_ERR_IO, file->shown,
                       "the file changed while it was read: expected %" PRIu64
                       " bytes, found %" PRIu64,
                       file->size, (uint64_t)now.st_size);
    const char *moved = what_moved(file, &now);
    if (moved)
        return qp_fail(err, QPLAN_ERR_IO, file->shown,
                       "the file changed while it was read: its %s moved", moved);
    return QPLAN_OK;
}
