/*
 * stage.c - writing a folder that appears whole.
 */
#include "stage.h"

#include "folder.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const struct qp_stage closed_stage = {.parent = -1, .dir = -1, .old = -1, .mark = -1};

static enum qplan_status fail_errno(const struct qp_stage *s, const char *what,
                                    struct qplan_error *err)
{
    return qp_fail_errno(err, errno, s->shown, "%s", what);
}

/* ---- Where it will be --------------------------------------------------------------------------
 */

/* Its last component, inside path. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum qplan_status name_stage(struct qp_stage *s, const char *path, struct qplan_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    (void)qp_escape(s->shown, sizeof s->shown, path, n);
    s->path = qp_strndup(path, n);
    s->partial = qp_alloc(n + sizeof QP_STAGING_SUFFIX, 1);
    if (!s->path || !s->partial)
        return qp_fail_memory(err, s->shown, n);
    memcpy(s->partial, path, n);
    memcpy(s->partial + n, QP_STAGING_SUFFIX, sizeof QP_STAGING_SUFFIX);
    const char *name = name_of(s->path);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return qp_fail(err, QPLAN_ERR_USAGE, s->shown,
                       "the output needs a name: expected a path that ends in one");
    return QPLAN_OK;
}

static enum qplan_status open_parent(struct qp_stage *s, struct qplan_error *err)
{
    char *slash = strrchr(s->path, '/');
    const char *folder = slash == s->path ? "/" : ".";
    if (slash && slash != s->path) {
        *slash = '\0';
        folder = s->path;
    }
    s->parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int errnum = errno;
    if (slash)
        *slash = '/';
    return s->parent >= 0 ? QPLAN_OK
                          : qp_fail_errno(err, errnum, s->shown, "cannot open its folder");
}

/* ---- What may not be its place -----------------------------------------------------------------
 */

static bool lies_in(const char *inner, const char *outer)
{
    const size_t n = strlen(outer);
    return strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0' || n == 1);
}

/* The real path of the target, which need not exist; false with errno. */
static bool real_target(const struct qp_stage *s, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *name = name_of(s->path);
    const int n_folder = name == s->path ? 0 : (int)(name - s->path);
    if (realpath(s->path, out))
        return true;
    const int n =
        snprintf(folder, sizeof folder, "%.*s", n_folder ? n_folder : 1, n_folder ? s->path : ".");
    if (n >= PATH_MAX || !realpath(folder, out))
        return false;
    const size_t used = strlen(out) == 1 ? 0 : strlen(out);
    if (used + strlen(name) + 2 > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    (void)snprintf(out + used, PATH_MAX - used, "/%s", name);
    return true;
}

/* Neither folder may hold the other: what is read would change, or be removed with the old one. */
static enum qplan_status check_apart(const struct qp_stage *s, const char *source,
                                     struct qplan_error *err)
{
    char target[PATH_MAX], real[PATH_MAX], shown[512];
    (void)qp_escape(shown, sizeof shown, source, strlen(source));
    if (!real_target(s, target) || !realpath(source, real))
        return fail_errno(s, "cannot examine the target", err);
    if (strcmp(target, real) == 0)
        return qp_fail(err, QPLAN_ERR_USAGE, s->shown, "the output is the input %s", shown);
    if (lies_in(target, real))
        return qp_fail(err, QPLAN_ERR_USAGE, s->shown, "the output lies in the input %s", shown);
    if (lies_in(real, target))
        return qp_fail(err, QPLAN_ERR_USAGE, s->shown, "the input %s lies in the output", shown);
    return QPLAN_OK;
}

/* ---- What is there already ---------------------------------------------------------------------
 */

static bool is_among(const char *name, char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* A file that a folder of this kind has: then the folder may be replaced. */
static bool may_replace(const struct qp_stage_request *r, const char *name)
{
    return qp_ends_with(name, QP_CHECKPOINT_SUFFIX) || qp_ends_with(name, QP_INDEX_SUFFIX) ||
           strcmp(name, "SHA256SUMS") == 0 || is_among(name, r->names, r->n_files) ||
           is_among(name, r->others, r->n_others);
}

static enum qplan_status fail_exists(const struct qp_stage *s, struct qplan_error *err)
{
    (void)qp_fail_errno(err, EEXIST, s->shown, "cannot write the output");
    qp_advise(err, QPLAN_ADVICE_FORCE);
    return QPLAN_ERR_IO;
}

/* A folder of that name: empty counts as absent; another is replaced only if all in it is alike. */
static enum qplan_status check_old_folder(struct qp_stage *s, const struct qp_stage_request *r,
                                          struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    enum qplan_status status = QPLAN_OK;
    DIR *dir = opendir(s->path);
    if (!dir)
        return fail_errno(s, "cannot list the folder", err);
    const struct dirent *entry;
    while (status == QPLAN_OK && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        struct stat st;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        const bool is_file = fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                             (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode));
        if (!s->force)
            status = fail_exists(s, err);
        else if (!is_file || !may_replace(r, name))
            status = qp_fail(err, QPLAN_ERR_IO, s->shown,
                             "the folder is not replaced: it holds %s, which is no part of a "
                             "checkpoint that this run writes",
                             qp_quote(quoted, name, strlen(name)));
    }
    if (status == QPLAN_OK && faccessat(dirfd(dir), ".", W_OK | X_OK, AT_EACCESS) != 0)
        status = fail_errno(s, "the folder cannot be replaced", err);
    s->old = status == QPLAN_OK ? fcntl(dirfd(dir), F_DUPFD_CLOEXEC, 0) : -1;
    if (status == QPLAN_OK && s->old < 0)
        status = fail_errno(s, "cannot open the folder", err);
    (void)closedir(dir);
    return status;
}

static enum qplan_status check_target(struct qp_stage *s, const struct qp_stage_request *r,
                                      struct qplan_error *err)
{
    struct stat st;
    if (fstatat(s->parent, name_of(s->path), &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? QPLAN_OK : fail_errno(s, "cannot examine the target", err);
    if (!S_ISDIR(st.st_mode))
        return qp_fail(err, QPLAN_ERR_IO, s->shown,
                       "cannot write the output: something other than a folder has this name");
    return check_old_folder(s, r, err);
}

static enum qplan_status check_space(const struct qp_stage *s, uint64_t n_bytes,
                                     struct qplan_error *err)
{
    struct statvfs fs;
    if (fstatvfs(s->parent, &fs) != 0 || fs.f_blocks == 0)
        return QPLAN_OK; /* it does not say */
    const uint64_t unit = fs.f_frsize ? fs.f_frsize : fs.f_bsize;
    const uint64_t blocks = geteuid() == 0 ? fs.f_bfree : fs.f_bavail;
    if (n_bytes / unit < blocks)
        return QPLAN_OK;
    return qp_fail_errno(err, ENOSPC, s->shown, "%" PRIu64 " bytes needed, %" PRIu64 " bytes free",
                         n_bytes, blocks * unit);
}

/* ---- Making it ---------------------------------------------------------------------------------
 */

/* The folder lets others in as that does which it replaces, or as is wanted. */
static enum qplan_status make_folder(struct qp_stage *s, mode_t wanted, struct qplan_error *err)
{
    char shown[512];
    struct stat st;
    const mode_t mode = s->old >= 0 && fstat(s->old, &st) == 0 ? st.st_mode : wanted;
    const char *name = name_of(s->partial);
    (void)qp_escape(shown, sizeof shown, s->partial, strlen(s->partial));
    if (mkdirat(s->parent, name, (mode | S_IRWXU) & 0777) != 0) {
        const int errnum = errno;
        (void)qp_fail_errno(err, errnum, shown, "cannot make the folder");
        if (errnum == EEXIST)
            qp_advise(err, QPLAN_ADVICE_CLEAN);
        return QPLAN_ERR_IO;
    }
    s->made = true;
    s->dir = openat(s->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->dir < 0)
        return qp_fail_errno(err, errno, shown, "cannot open the folder");
    s->mark = qp_staging_mark(s->dir);
    return s->mark >= 0 ? QPLAN_OK : qp_fail_errno(err, errno, shown, "cannot create a file");
}

/*
 * A new, empty file of the folder, with the mode of a file that it replaces, or as is wanted. What
 * its owner may not do in the end is lent until the commit, which reads and syncs the file.
 */
static int make_file(struct qp_staged *file, mode_t wanted, struct qplan_error *err)
{
    static const mode_t needed = S_IRUSR | S_IWUSR;
    const struct qp_stage *s = file->stage;
    struct stat st;
    const bool replaces = s->old >= 0 &&
                          fstatat(s->old, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                          S_ISREG(st.st_mode); /* of a link the mode says nothing */
    const mode_t mode = replaces ? st.st_mode : wanted;
    file->lent = needed & ~mode;
    const int fd =
        openat(s->dir, file->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, (mode | needed) & 0777);
    char quoted[QP_QUOTED];
    if (fd < 0)
        (void)qp_fail_errno(err, errno, s->shown, "cannot create %s",
                            qp_quote(quoted, file->name, strlen(file->name)));
    return fd;
}

static enum qplan_status make_files(struct qp_stage *s, const struct qp_stage_request *r,
                                    struct qplan_error *err)
{
    s->files = qp_alloc(r->n_files, sizeof *s->files);
    s->others = qp_alloc(r->n_others, sizeof *s->others);
    s->handles = qp_handles_new(qp_handles_most());
    if (!s->files || !s->others || !s->handles)
        return qp_fail_memory(err, s->shown, r->n_files * sizeof *s->files);
    for (size_t i = 0; i < r->n_files; i++) {
        s->files[i] = (struct qp_staged){.stage = s, .name = r->names[i]};
        const int fd = make_file(&s->files[i], r->modes[i], err);
        if (fd < 0)
            return QPLAN_ERR_IO;
        s->n_files++;
        if (close(fd) != 0)
            return fail_errno(s, "cannot create a file", err);
    }
    return QPLAN_OK;
}

enum qplan_status qp_stage_open(struct qp_stage *stage, const struct qp_stage_request *request,
                                struct qplan_error *err)
{
    *stage = closed_stage;
    stage->force = request->force;
    enum qplan_status status = name_stage(stage, request->path, err);
    if (status == QPLAN_OK)
        status = open_parent(stage, err);
    if (status == QPLAN_OK)
        status = check_apart(stage, request->source, err);
    if (status == QPLAN_OK)
        status = check_target(stage, request, err);
    if (status == QPLAN_OK)
        status = check_space(stage, request->n_bytes, err);
    if (status == QPLAN_OK)
        status = make_folder(stage, request->mode, err);
    if (status == QPLAN_OK)
        status = make_files(stage, request, err);
    if (status != QPLAN_OK)
        qp_stage_discard(stage);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int open_staged(const void *owner, struct qplan_error *err)
{
    const struct qp_staged *file = owner;
    char quoted[QP_QUOTED];
    const int fd = openat(file->stage->dir, file->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        (void)qp_fail_errno(err, errno, file->stage->shown, "cannot open %s again",
                            qp_quote(quoted, file->name, strlen(file->name)));
    return fd;
}

static enum qplan_status write_fd(const struct qp_stage *s, const char *name, int fd, uint64_t off,
                                  const char *from, size_t n, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    while (n > 0) {
        const ssize_t put = pwrite(fd, from, n, (off_t)off);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            (void)qp_fail_errno(err, put < 0 ? errno : EIO, s->shown,
                                "cannot write %s at byte %" PRIu64,
                                qp_quote(quoted, name, strlen(name)), off);
            return QPLAN_ERR_IO;
        }
        from += put;
        off += (uint64_t)put;
        n -= (size_t)put;
    }
    return QPLAN_OK;
}

enum qplan_status qp_stage_write(const struct qp_stage *stage, size_t file, uint64_t off,
                                 const void *bytes, size_t n, struct qplan_error *err)
{
    const struct qp_staged *staged = &stage->files[file];
    int fd;
    QP_TRY(qp_handles_take(stage->handles, staged, open_staged, &fd, err));
    const enum qplan_status status = write_fd(stage, staged->name, fd, off, bytes, n, err);
    qp_handles_give(stage->handles, staged);
    return status;
}

/* Remembers a file that was added, so that it is synced, or removed on failure. */
static enum qplan_status begin_other(struct qp_stage *s, const char *name, mode_t mode, int *fd,
                                     struct qplan_error *err)
{
    char *copy = qp_strndup(name, strlen(name));
    if (!copy)
        return qp_fail_memory(err, s->shown, strlen(name));
    struct qp_staged *file = &s->others[s->n_others];
    *file = (struct qp_staged){.stage = s, .name = copy};
    *fd = make_file(file, mode, err);
    if (*fd < 0) {
        qp_free(copy);
        return QPLAN_ERR_IO;
    }
    s->n_others++;
    return QPLAN_OK;
}

enum qplan_status qp_stage_add(struct qp_stage *stage, const char *name, const void *bytes,
                               size_t n, mode_t mode, struct qplan_error *err)
{
    int fd;
    QP_TRY(begin_other(stage, name, mode, &fd, err));
    enum qplan_status status = write_fd(stage, name, fd, 0, bytes, n, err);
    if (close(fd) != 0 && status == QPLAN_OK)
        status = fail_errno(stage, "cannot close a file", err);
    return status;
}

static enum qplan_status copy_bytes(const struct qp_stage *s, const char *name, int fd,
                                    const struct qp_file *from, struct qplan_error *err)
{
    char buffer[16 << 10];
    for (uint64_t off = 0; off < from->size; off += sizeof buffer) {
        const uint64_t left = from->size - off;
        const size_t n = left < sizeof buffer ? (size_t)left : sizeof buffer;
        QP_TRY(qp_file_read(from, off, buffer, n, err));
        QP_TRY(write_fd(s, name, fd, off, buffer, n, err));
    }
    return qp_file_unchanged(from, err);
}

enum qplan_status qp_stage_copy(struct qp_stage *stage, const char *name, const char *from,
                                struct qplan_error *err)
{
    struct qp_file file;
    struct stat st;
    int fd;
    QP_TRY(qp_file_open(&file, from, err));
    const mode_t mode = fstat(file.fd, &st) == 0 ? st.st_mode : 0600;
    enum qplan_status status = begin_other(stage, name, mode, &fd, err);
    if (status == QPLAN_OK) {
        status = copy_bytes(stage, name, fd, &file, err);
        if (close(fd) != 0 && status == QPLAN_OK)
            status = fail_errno(stage, "cannot close a file", err);
    }
    qp_file_close(&file);
    return status;
}

/* ---- The end -----------------------------------------------------------------------------------
 */

static bool sync_unsupported(int errnum)
{
    return errnum == EINVAL || errnum == ENOTSUP || errnum == ENOTTY || errnum == EROFS;
}

static enum qplan_status sync_fd(const struct qp_stage *s, int fd, const char *what, bool *synced,
                                 struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    if (fsync(fd) == 0)
        return QPLAN_OK;
    *synced = false;
    if (sync_unsupported(errno))
        return QPLAN_OK;
    return qp_fail_errno(err, errno, s->shown, "cannot sync %s, so it may not be on disk",
                         qp_quote(quoted, what, strlen(what)));
}

/* Takes back what was lent. */
static enum qplan_status settle_mode(const struct qp_staged *file, int fd, struct qplan_error *err)
{
    struct stat st;
    if (file->lent == 0 ||
        (fstat(fd, &st) == 0 && fchmod(fd, st.st_mode & 0777 & ~file->lent) == 0))
        return QPLAN_OK;
    return fail_errno(file->stage, "cannot set the mode of a file", err);
}

static enum qplan_status sync_file(const struct qp_staged *file, bool *synced,
                                   struct qplan_error *err)
{
    const struct qp_stage *s = file->stage;
    const int fd = open_staged(file, err);
    if (fd < 0)
        return QPLAN_ERR_IO;
    enum qplan_status status = settle_mode(file, fd, err);
    if (status == QPLAN_OK)
        status = sync_fd(s, fd, file->name, synced, err);
    if (close(fd) != 0 && status == QPLAN_OK)
        status = fail_errno(s, "cannot close a file", err);
    return status;
}

static enum qplan_status sync_files(struct qp_stage *s, bool *synced, struct qplan_error *err)
{
    for (size_t i = 0; i < s->n_files; i++) {
        if (qp_handles_close(s->handles, &s->files[i]) != 0)
            return fail_errno(s, "cannot close a file", err);
        QP_TRY(sync_file(&s->files[i], synced, err));
    }
    for (size_t i = 0; i < s->n_others; i++)
        QP_TRY(sync_file(&s->others[i], synced, err));
    if (qp_staging_unmark(s->dir) != 0)
        return fail_errno(s, "cannot remove a file", err);
    return sync_fd(s, s->dir, s->partial, synced, err);
}

/*
 * Gives the folder its name. An empty folder of that name goes away by the rename itself;
 * *exchanged tells that an old one now has the other name.
 */
static int give_name(const struct qp_stage *s, bool *exchanged)
{
    const char *from = name_of(s->partial), *to = name_of(s->path);
    if (renameat2(s->parent, from, s->parent, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST && s->force) {
        *exchanged = renameat2(s->parent, from, s->parent, to, RENAME_EXCHANGE) == 0;
        return *exchanged ? 0 : -1;
    }
    if (errno != EEXIST && errno != EINVAL && errno != ENOSYS)
        return -1;
    return renameat(s->parent, from, s->parent, to); /* fails unless it is an empty folder */
}

static enum qplan_status fail_name(const struct qp_stage *s, struct qplan_error *err)
{
    const int errnum = errno;
    if (errnum == ENOTEMPTY || errnum == EEXIST)
        return fail_exists(s, err);
    if (s->force && errnum == EINVAL)
        return qp_fail_errno(err, errnum, s->shown,
                             "this file system cannot exchange two folders: remove the old one "
                             "first");
    return qp_fail_errno(err, errnum, s->shown, "cannot give the output its name");
}

/* Closes the mark, after which there may be another. */
static void close_mark(struct qp_stage *s, int next)
{
    if (s->mark >= 0)
        (void)close(s->mark);
    s->mark = next;
}

enum qplan_status qp_stage_commit(struct qp_stage *stage, bool *synced, struct qplan_error *err)
{
    bool exchanged = false;
    *synced = true;
    enum qplan_status status = sync_files(stage, synced, err);
    if (status == QPLAN_OK && give_name(stage, &exchanged) != 0)
        status = fail_name(stage, err);
    if (status == QPLAN_OK) {
        stage->made = false;
        if (exchanged)
            close_mark(stage, qp_staging_mark(stage->old));
        status = sync_fd(stage, stage->parent, "its folder", synced, err);
        /* Only now: a power cut may take back a name that is not synced. */
        if (exchanged)
            (void)qp_staging_remove(stage->parent, name_of(stage->partial));
    }
    qp_stage_discard(stage);
    return status;
}

void qp_stage_discard(struct qp_stage *stage)
{
    qp_handles_free(stage->handles);
    if (stage->made)
        (void)qp_staging_remove(stage->parent, name_of(stage->partial));
    if (stage->dir >= 0)
        (void)close(stage->dir);
    if (stage->old >= 0)
        (void)close(stage->old);
    close_mark(stage, -1);
    if (stage->parent >= 0)
        (void)close(stage->parent);
    for (size_t i = 0; i < stage->n_others; i++)
        qp_free((char *)stage->others[i].name);
    qp_free(stage->others);
    qp_free(stage->files);
    qp_free(stage->partial);
    qp_free(stage->path);
    *stage = closed_stage;
}
