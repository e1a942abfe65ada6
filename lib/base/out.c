/*
 * out.c - the output file, which appears complete or not at all.
 *
 * O_TMPFILE gives a file without a name; linkat gives it one, and fails if the name is taken: so a
 * kill at any time leaves nothing. Where the file system has no O_TMPFILE (some network and FUSE
 * ones), a hidden name in the same folder is used and removed on every path out.
 */
#include "io.h"

#include "alloc.h"
#include "check.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const struct qp_out closed_out = {.fd = -1, .dirfd = -1};

/* ---- Checks before the first byte ------------------------------------------------------------ */

static enum qplan_status open_folder(struct qp_out *out, struct qplan_error *err)
{
    char *slash = strrchr(out->path, '/');
    out->name = slash ? slash + 1 : out->path;
    if (out->name[0] == '\0' || strcmp(out->name, ".") == 0 || strcmp(out->name, "..") == 0)
        return qp_fail(err, QPLAN_ERR_USAGE, out->shown,
                       "the output needs a file name: expected a path that ends in a name");
    const char *folder = slash == out->path ? "/" : ".";
    if (slash && slash != out->path) {
        *slash = '\0';
        folder = out->path;
    }
    out->dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int errnum = errno;
    if (slash)
        *slash = '/';
    return out->dirfd >= 0 ? QPLAN_OK
                           : qp_fail_errno(err, errnum, out->shown, "cannot open its folder");
}

/* Refuses the input as target, whichever path leads to it, with or without force. */
static enum qplan_status check_not_input(const struct qp_out *out, const struct qp_file *input,
                                         struct qplan_error *err)
{
    struct stat st;
    if (!input || fstatat(out->dirfd, out->name, &st, 0) != 0)
        return QPLAN_OK; /* nothing there, or a dangling link: no input either */
    if (st.st_dev == input->dev && st.st_ino == input->ino)
        return qp_fail(err, QPLAN_ERR_USAGE, out->shown, "the output is the input %s",
                       input->shown);
    return QPLAN_OK;
}

/* Refuses what must not be replaced. A file that will be has its mode in *replaced, else 0. */
static enum qplan_status check_target(const struct qp_out *out, mode_t *replaced,
                                      struct qplan_error *err)
{
    struct stat st;
    *replaced = 0;
    if (fstatat(out->dirfd, out->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return QPLAN_OK;
        return qp_fail_errno(err, errno, out->shown, "cannot examine the target");
    }
    if (S_ISDIR(st.st_mode))
        return qp_fail_errno(err, EISDIR, out->shown, "cannot write the output");
    /* Never a device or a pipe: the name would be taken from whoever uses it. */
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return qp_fail(err, QPLAN_ERR_IO, out->shown,
                       "cannot write the output: something other than a file has this name");
    if (!out->force) {
        qp_fail_errno(err, EEXIST, out->shown, "cannot write the output");
        qp_advise(err, QPLAN_ADVICE_FORCE);
        return QPLAN_ERR_IO;
    }
    if (S_ISREG(st.st_mode)) /* of a link the mode says nothing */
        *replaced = st.st_mode;
    return QPLAN_OK;
}

/* The bytes that the file system has left; UINT64_MAX if it does not say. */
static uint64_t free_bytes(const struct qp_out *out)
{
    struct statvfs fs;
    if (fstatvfs(out->dirfd, &fs) != 0 || fs.f_blocks == 0)
        return UINT64_MAX;
    uint64_t unit = fs.f_frsize ? fs.f_frsize : fs.f_bsize, bytes;
    uint64_t blocks = geteuid() == 0 ? fs.f_bfree : fs.f_bavail;
    return qp_mul_u64(blocks, unit, &bytes) ? bytes : UINT64_MAX;
}

static enum qplan_status check_space(const struct qp_out *out, struct qplan_error *err)
{
    uint64_t n_free = free_bytes(out);
    if (out->n_bytes <= n_free)
        return QPLAN_OK;
    return qp_fail_errno(err, ENOSPC, out->shown,
                         "%" PRIu64 " bytes needed, %" PRIu64 " bytes free", out->n_bytes, n_free);
}

/* ---- The temporary file ---------------------------------------------------------------------- */

static int link_to(const struct qp_out *out, const char *name)
{
    char proc[64];
    if (!out->by_proc)
        return linkat(out->fd, "", out->dirfd, name, AT_EMPTY_PATH);
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", out->fd);
    return linkat(AT_FDCWD, proc, out->dirfd, name, AT_SYMLINK_FOLLOW);
}

/*
 * Whether the nameless file can get a name later: without /proc or the privilege for AT_EMPTY_PATH
 * it cannot. Asked by linking to ".", which fails with EEXIST only once the file itself was found.
 */
static bool can_link(struct qp_out *out)
{
    for (int by_proc = 1; by_proc >= 0; by_proc--) {
        out->by_proc = by_proc;
        if (link_to(out, ".") != 0 && errno == EEXIST)
            return true;
    }
    return false;
}

/* The system takes the umask from the mode as it makes the file. */
static int open_hidden(struct qp_out *out, mode_t mode)
{
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(out->hidden, sizeof out->hidden, ".qplan-%ld-%u.tmp", (long)getpid(), i);
        int fd = openat(out->dirfd, out->hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static enum qplan_status make_temporary(struct qp_out *out, mode_t mode, struct qplan_error *err)
{
    out->fd = openat(out->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    out->linkable = out->fd >= 0 && can_link(out);
    if (out->linkable)
        return QPLAN_OK;
    if (out->fd >= 0)
        (void)close(out->fd);
    out->fd = open_hidden(out, mode);
    if (out->fd >= 0)
        return QPLAN_OK;
    int errnum = errno;
    out->hidden[0] = '\0';
    return qp_fail_errno(err, errnum, out->shown, "cannot create a file in its folder");
}

/* All that qp_out_open does once the folder is open. */
static enum qplan_status check_and_make(struct qp_out *out, const struct qp_out_request *request,
                                        struct qplan_error *err)
{
    mode_t mode = 0666, replaced;
    QP_TRY(check_not_input(out, request->input, err));
    QP_TRY(check_target(out, &replaced, err));
    QP_TRY(check_space(out, err));
    if (request->like_input)
        mode = (replaced ? replaced : request->input->mode) & 0777;
    return make_temporary(out, mode, err);
}

enum qplan_status qp_out_open(struct qp_out *out, const struct qp_out_request *request,
                              struct qplan_error *err)
{
    const char *path = request->path;
    *out = closed_out;
    out->force = request->force;
    out->n_bytes = request->n_bytes;
    qp_escape(out->shown, sizeof out->shown, path, strlen(path));
    out->path = qp_strndup(path, strlen(path));
    if (!out->path)
        return qp_fail_memory(err, out->shown, strlen(path));
    enum qplan_status status = open_folder(out, err);
    if (status == QPLAN_OK)
        status = check_and_make(out, request, err);
    if (status != QPLAN_OK)
        qp_out_discard(out);
    return status;
}

static enum qplan_status fail_write(const struct qp_out *out, uint64_t off, int errnum,
                                    struct qplan_error *err)
{
    if (errnum == ENOSPC && out->n_bytes > 0)
        qp_fail_errno(err, errnum, out->shown,
                      "cannot write at byte %" PRIu64 ": %" PRIu64 " bytes needed, %" PRIu64
                      " bytes free",
                      off, out->n_bytes, free_bytes(out));
    else
        qp_fail_errno(err, errnum, out->shown, "cannot write at byte %" PRIu64, off);
    if (err)
        err->offset = off;
    return QPLAN_ERR_IO;
}

enum qplan_status qp_out_write(const struct qp_out *out, uint64_t off, const void *bytes, size_t n,
                               struct qplan_error *err)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t put = pwrite(out->fd, from, n, (off_t)off);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return fail_write(out, off, put < 0 ? errno : EIO, err);
        from += put;
        off += (uint64_t)put;
        n -= (size_t)put;
    }
    return QPLAN_OK;
}

/* ---- The end ----------------------------------------------------------------------------------
 */

/* Some file systems cannot sync a file or a folder; that is theirs to answer for. */
static bool sync_unsupported(int errnum)
{
    return errnum == EINVAL || errnum == ENOTSUP || errnum == ENOTTY || errnum == EROFS;
}

static enum qplan_status sync_fd(int fd, const struct qp_out *out, const char *what, bool *synced,
                                 struct qplan_error *err)
{
    if (fsync(fd) == 0)
        return QPLAN_OK;
    *synced = false;
    if (sync_unsupported(errno))
        return QPLAN_OK;
    return qp_fail_errno(err, errno, out->shown, "cannot sync %s, so it may not be on disk", what);
}

/* Takes the descriptor out of use; what was written may be lost only now. */
static enum qplan_status close_fd(struct qp_out *out, struct qplan_error *err)
{
    int fd = out->fd;
    out->fd = -1;
    if (fd < 0 || close(fd) == 0)
        return QPLAN_OK;
    return qp_fail_errno(err, errno, out->shown, "cannot close the file");
}

/* Puts the hidden file in the place of the target, which may exist. */
static int replace_target(struct qp_out *out)
{
    if (renameat(out->dirfd, out->hidden, out->dirfd, out->name) != 0)
        return -1;
    out->hidden[0] = '\0';
    return 0;
}

static int link_hidden_and_replace(struct qp_out *out)
{
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(out->hidden, sizeof out->hidden, ".qplan-%ld-%u.tmp", (long)getpid(), i);
        if (link_to(out, out->hidden) == 0)
            return replace_target(out);
        if (errno != EEXIST)
            break;
    }
    out->hidden[0] = '\0';
    return -1;
}

/*
 * Gives the nameless file a hidden name first: linkat cannot replace, rename can. A signal that
 * ends the process has to wait for both, or the hidden name would stay.
 */
static int link_and_replace(struct qp_out *out)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    const bool blocked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    const int result = link_hidden_and_replace(out), errnum = errno;
    if (blocked)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = errnum;
    return result;
}

/* A target that was made meanwhile must not be lost: a plain rename would replace it. */
static int take_free_name(struct qp_out *out)
{
    if (renameat2(out->dirfd, out->hidden, out->dirfd, out->name, RENAME_NOREPLACE) == 0) {
        out->hidden[0] = '\0';
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* A file system or kernel without that; the hidden name is removed in the end. */
    return linkat(out->dirfd, out->hidden, out->dirfd, out->name, 0);
}

static int give_name(struct qp_out *out)
{
    if (out->linkable) {
        int result = link_to(out, out->name);
        if (result == 0 || errno != EEXIST || !out->force)
            return result;
        return link_and_replace(out);
    }
    if (out->force)
        return replace_target(out);
    return take_free_name(out);
}

enum qplan_status qp_out_commit(struct qp_out *out, bool *synced, struct qplan_error *err)
{
    *synced = true;
    enum qplan_status status = sync_fd(out->fd, out, "the file", synced, err);
    if (status == QPLAN_OK && !out->linkable) /* a nameless file needs its descriptor until later */
        status = close_fd(out, err);
    if (status == QPLAN_OK && give_name(out) != 0) {
        status = qp_fail_errno(err, errno, out->shown, "cannot give the output its name");
        if (err && err->sys_errno == EEXIST)
            qp_advise(err, QPLAN_ADVICE_FORCE);
    }
    if (status == QPLAN_OK)
        status = sync_fd(out->dirfd, out, "its folder", synced, err);
    if (status == QPLAN_OK)
        status = close_fd(out, err);
    qp_out_discard(out);
    return status;
}

void qp_out_discard(struct qp_out *out)
{
    if (out->fd >= 0)
        (void)close(out->fd);
    if (out->hidden[0] != '\0')
        (void)unlinkat(out->dirfd, out->hidden, 0);
    if (out->dirfd >= 0)
        (void)close(out->dirfd);
    qp_free(out->path);
    *out = closed_out;
}
