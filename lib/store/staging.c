/*
 * staging.c - the folder in which a run builds another, seen by those that did not make it.
 */
#include "staging.h"

#include "folder.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "side.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The mark ----------------------------------------------------------------------------------
 */

int qp_staging_mark(int dir)
{
    const int fd = openat(dir, QP_STAGING_MARK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)flock(fd, LOCK_EX | LOCK_NB); /* some file systems have no locks */
    return fd;
}

int qp_staging_unmark(int dir)
{
    return unlinkat(dir, QP_STAGING_MARK, 0);
}

bool qp_staging_is_marked(const char *path)
{
    struct stat st;
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_marked = dir >= 0 && fstatat(dir, QP_STAGING_MARK, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (dir >= 0)
        (void)close(dir);
    return is_marked;
}

/* ---- Removal -----------------------------------------------------------------------------------
 */

static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* The folder of that name, which is no link; NULL with errno. */
static DIR *open_folder(int parent, const char *name)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        (void)close(fd);
    return dir;
}

int qp_staging_remove(int parent, const char *name)
{
    DIR *dir = open_folder(parent, name);
    if (dir) {
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
            if (is_entry(entry->d_name) && strcmp(entry->d_name, QP_STAGING_MARK) != 0)
                (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
        (void)qp_staging_unmark(dirfd(dir));
        (void)closedir(dir);
    }
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/* ---- Cleaning ----------------------------------------------------------------------------------
 */

/* What is known of a folder that is to be removed. */
struct found {
    bool has_mark, has_tensors;
    char other[QP_QUOTED]; /* of what no run writes, the first; "" = there is nothing such */
    struct qplan_cleaned all;
};

static void look_at(struct found *f, int dir, const char *name)
{
    struct stat st;
    const bool is_file = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    const bool is_mark = strcmp(name, QP_STAGING_MARK) == 0;
    const bool has_tensors = qp_ends_with(name, QP_CHECKPOINT_SUFFIX);
    const bool is_ours = has_tensors || is_mark || strcmp(name, "SHA256SUMS") == 0;
    f->has_mark |= is_mark;
    f->has_tensors |= is_file && has_tensors;
    if ((!is_file || (!is_ours && qp_side_is_left_out(name))) && !f->other[0])
        (void)qp_quote(f->other, name, strlen(name));
    if (is_file && !is_mark) {
        f->all.n_files++;
        f->all.n_bytes += (uint64_t)st.st_size;
    }
}

static enum qplan_status look(struct found *f, DIR *dir, const char *shown, struct qplan_error *err)
{
    const struct dirent *entry;
    char first[QP_QUOTED] = "";
    while ((entry = readdir(dir)) != NULL) {
        if (!is_entry(entry->d_name))
            continue;
        look_at(f, dirfd(dir), entry->d_name);
        if (!first[0])
            (void)qp_quote(first, entry->d_name, strlen(entry->d_name));
    }
    if (f->has_mark || !first[0])
        return QPLAN_OK;
    if (f->other[0] || !f->has_tensors)
        return qp_fail(err, QPLAN_ERR_IO, shown,
                       "not a folder that a run has left: it holds %s, and no file %s",
                       f->other[0] ? f->other : first, "'" QP_STAGING_MARK "'");
    return QPLAN_OK;
}

/* Whether a run is at work in a folder: it has the mark locked. */
static bool is_at_work(int dir)
{
    const int fd = openat(dir, QP_STAGING_MARK, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    const bool is_locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        (void)close(fd);
    return is_locked;
}

static enum qplan_status clean(const char *path, struct qplan_cleaned *removed,
                               struct qplan_error *err)
{
    struct found f = {.has_mark = false};
    char shown[512];
    (void)qp_escape(shown, sizeof shown, path, strlen(path));
    DIR *dir = open_folder(AT_FDCWD, path);
    if (!dir)
        return errno == ENOTDIR || errno == ELOOP
                   ? qp_fail(err, QPLAN_ERR_IO, shown, "not a folder that a run has left")
                   : qp_fail_errno(err, errno, shown, "nothing to remove");
    enum qplan_status status = look(&f, dir, shown, err);
    if (status == QPLAN_OK && is_at_work(dirfd(dir)))
        status = qp_fail(err, QPLAN_ERR_IO, shown, "a run is writing it");
    (void)closedir(dir);
    if (status == QPLAN_OK && qp_staging_remove(AT_FDCWD, path) != 0)
        status = qp_fail_errno(err, errno, shown, "cannot remove the folder");
    if (status == QPLAN_OK && removed)
        *removed = f.all;
    return status;
}

enum qplan_status qplan_clean(const char *path, struct qplan_cleaned *removed,
                              struct qplan_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *partial = qp_alloc(n + sizeof QP_STAGING_SUFFIX, 1);
    if (!partial)
        return qp_fail_memory(err, "clean", n);
    memcpy(partial, path, n);
    memcpy(partial + n, QP_STAGING_SUFFIX, sizeof QP_STAGING_SUFFIX);
    const enum qplan_status status = clean(partial, removed, err);
    qp_free(partial);
    return status;
}
