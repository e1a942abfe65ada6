/*
 * document.c - reading a text to its end, and writing one beside its target until it is complete.
 */
#include "document.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ----------------------------------------------------------------------------------*/

#define MAX_DOCUMENT ((size_t)1 << 30)
#define FIRST_BUFFER ((size_t)1 << 16)

/* Doubles the buffer, up to one byte more than a document may have. */
static enum qplan_status grow(struct document *document, size_t *cap, struct qplan_error *err)
{
    size_t wanted = *cap ? 2 * *cap : FIRST_BUFFER;
    if (wanted > MAX_DOCUMENT)
        wanted = MAX_DOCUMENT + 1;
    char *text = realloc(document->text, wanted);
    if (!text)
        return cli_fail_memory(err);
    document->text = text;
    *cap = wanted;
    return QPLAN_OK;
}

static enum qplan_status read_all(struct document *document, int fd, const char *subject,
                                  struct qplan_error *err)
{
    size_t cap = 0;
    for (;;) {
        if (document->n_bytes > MAX_DOCUMENT)
            return cli_fail(err, QPLAN_ERR_INVALID, subject, "larger than 1 GiB");
        if (document->n_bytes == cap)
            CLI_TRY(grow(document, &cap, err));
        ssize_t n = read(fd, document->text + document->n_bytes, cap - document->n_bytes);
        if (n == 0)
            return QPLAN_OK;
        if (n > 0)
            document->n_bytes += (size_t)n;
        else if (errno != EINTR)
            return cli_fail_errno(err, errno, subject, "cannot read");
        CLI_TRY(cli_check_signal(err));
    }
}

enum qplan_status document_read(struct document *out, const char *path, struct qplan_error *err)
{
    *out = (struct document){0};
    if (strcmp(path, "-") == 0) {
        enum qplan_status status = read_all(out, STDIN_FILENO, "stdin", err);
        if (status != QPLAN_OK)
            document_free(out);
        return status;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_fail_errno(err, errno, path, "cannot open");
    enum qplan_status status = read_all(out, fd, path, err);
    (void)close(fd);
    if (status != QPLAN_OK)
        document_free(out);
    return status;
}

void document_free(struct document *document)
{
    free(document->text);
    *document = (struct document){0};
}

/* ---- Writing ----------------------------------------------------------------------------------*/

static enum qplan_status refuse(const struct new_document *document, int errnum,
                                struct qplan_error *err)
{
    (void)cli_fail_errno(err, errnum, document->path, "cannot write the output");
    if (errnum == EEXIST)
        err->advice = QPLAN_ADVICE_FORCE;
    return QPLAN_ERR_IO;
}

static enum qplan_status check_target(const struct new_document *document, const char *input,
                                      struct qplan_error *err)
{
    struct stat target, source;
    if (stat(document->path, &target) == 0 && stat(input, &source) == 0 &&
        target.st_dev == source.st_dev && target.st_ino == source.st_ino)
        return cli_fail(err, QPLAN_ERR_USAGE, document->path, "the output is the input");
    if (lstat(document->path, &target) != 0)
        return QPLAN_OK;
    if (S_ISDIR(target.st_mode))
        return refuse(document, EISDIR, err);
    if (!document->force)
        return refuse(document, EEXIST, err);
    /* A link is replaced itself; a device or a pipe must not be. */
    if (!S_ISREG(target.st_mode) && !S_ISLNK(target.st_mode))
        return cli_fail(err, QPLAN_ERR_IO, document->path, "not a regular file");
    return QPLAN_OK;
}

/* The hidden name is in the same folder, since a rename cannot cross file systems. */
static char *hidden_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    int n_folder = slash ? (int)(slash - path) + 1 : 0;
    size_t n = strlen(path) + 32;
    char *out = malloc(n);
    if (out)
        (void)snprintf(out, n, "%.*s.qplan-%ld.tmp", n_folder, path, (long)getpid());
    return out;
}

enum qplan_status new_document_begin(struct new_document *out, const char *path, bool force,
                                     const char *input, struct qplan_error *err)
{
    *out = (struct new_document){.path = path, .fd = -1, .force = force};
    CLI_TRY(check_target(out, input, err));
    char *hidden = hidden_name(path);
    if (!hidden)
        return cli_fail_memory(err);
    out->fd = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd >= 0) {
        out->hidden = hidden;
        return QPLAN_OK;
    }
    enum qplan_status status = refuse(out, errno, err);
    free(hidden);
    return status;
}

int new_document_write(void *ctx, const void *bytes, size_t n_bytes)
{
    struct new_document *document = ctx;
    const char *at = bytes;
    while (n_bytes > 0 && !document->error) {
        ssize_t n = write(document->fd, at, n_bytes);
        if (n < 0 && errno != EINTR)
            document->error = errno;
        if (n > 0) {
            at += n;
            n_bytes -= (size_t)n;
        }
    }
    return document->error;
}

static int give_name(const struct new_document *document)
{
    if (document->force)
        return rename(document->hidden, document->path);
    /* Fails if the name was taken meanwhile. */
    if (renameat2(AT_FDCWD, document->hidden, AT_FDCWD, document->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    return link(document->hidden, document->path);
}

/* Some file systems cannot sync; that is theirs to answer for. */
static bool sync_unsupported(int errnum)
{
    return errnum == EINVAL || errnum == ENOTSUP || errnum == ENOTTY || errnum == EROFS;
}

enum qplan_status new_document_commit(struct new_document *document, struct qplan_error *err)
{
    if (!document->error && fsync(document->fd) != 0 && !sync_unsupported(errno))
        document->error = errno;
    if (close(document->fd) != 0 && !document->error)
        document->error = errno;
    document->fd = -1;
    if (!document->error && give_name(document) != 0)
        document->error = errno;
    return document->error ? refuse(document, document->error, err) : QPLAN_OK;
}

void new_document_end(struct new_document *document)
{
    if (document->fd >= 0)
        (void)close(document->fd);
    if (document->hidden)
        (void)unlink(document->hidden); /* gone already if it was renamed */
    free(document->hidden);
}
