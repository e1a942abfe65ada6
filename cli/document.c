/*
 * document.c - reading a text to its end.
 */
#include "document.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        CLI_TRY(cli_check_signal(err));
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
    }
}

/* A pipe that nobody writes to makes open wait, until a signal comes. */
static enum qplan_status open_document(int *fd, const char *path, struct qplan_error *err)
{
    do {
        CLI_TRY(cli_check_signal(err));
        *fd = open(path, O_RDONLY | O_CLOEXEC);
    } while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? QPLAN_OK : cli_fail_errno(err, errno, path, "cannot open");
}

enum qplan_status document_read(struct document *out, const char *path, struct qplan_error *err)
{
    const bool from_stdin = strcmp(path, "-") == 0;
    int fd = STDIN_FILENO;
    *out = (struct document){0};
    if (!from_stdin)
        CLI_TRY(open_document(&fd, path, err));
    enum qplan_status status = read_all(out, fd, from_stdin ? "stdin" : path, err);
    if (!from_stdin)
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
