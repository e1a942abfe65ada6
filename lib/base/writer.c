/*
 * writer.c - text that grows in memory or goes out in pieces: behind every document. Declared in
 * text.h.
 *
 * The same calls give the same bytes, whether the text is kept or sent.
 */
#include "text.h"

#include "alloc.h"
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PIECE 65536u

void qp_writer_init(struct qp_writer *w)
{
    *w = (struct qp_writer){0};
}

void qp_writer_stream(struct qp_writer *w, qplan_write_fn write, void *ctx)
{
    *w = (struct qp_writer){.write = write, .ctx = ctx};
}

static void send(struct qp_writer *w, const char *text, size_t n)
{
    if (!w->error && n > 0)
        w->error = w->write(w->ctx, text, n);
}

static void flush(struct qp_writer *w)
{
    size_t n = w->n;
    w->n = 0;
    send(w, w->data, n);
}

static void grow(struct qp_writer *w, size_t n)
{
    uint64_t need = (uint64_t)w->n + n;
    uint64_t cap = qp_max_u64(need, w->write ? PIECE : w->cap + w->cap / 2 + 256);
    char *data = need < n ? NULL : qp_realloc(w->data, cap, 1);
    if (!data) {
        w->error = ENOMEM;
        return;
    }
    w->data = data;
    w->cap = (size_t)cap;
}

/* Makes room for n more bytes; false if the writer has failed. */
static bool reserve(struct qp_writer *w, size_t n)
{
    if (!w->error && n > w->cap - w->n && w->write)
        flush(w);
    if (!w->error && n > w->cap - w->n)
        grow(w, n);
    return !w->error;
}

void qp_writer_reserve(struct qp_writer *w, size_t n)
{
    (void)reserve(w, n);
}

void qp_put_more(struct qp_writer *w, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (w->write && n >= PIECE) { /* nothing is gained by a copy */
        flush(w);
        send(w, text, n);
    } else if (reserve(w, n)) {
        memcpy(w->data + w->n, text, n);
        w->n += n;
    }
}

void qp_put_u64(struct qp_writer *w, uint64_t value)
{
    char text[QP_U64_TEXT];
    qp_put(w, text, qp_format_u64(text, value));
}

void qp_printf(struct qp_writer *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(w, (size_t)n + 1)) /* the NUL is written too, and then forgotten */
        return;
    va_start(args, fmt);
    (void)vsnprintf(w->data + w->n, (size_t)n + 1, fmt, args);
    va_end(args);
    w->n += (size_t)n;
}

enum qplan_status qp_writer_finish(struct qp_writer *w, const char *subject,
                                   struct qplan_error *err)
{
    if (w->write) {
        flush(w);
    } else if (reserve(w, 1)) {
        w->data[w->n] = '\0';
    }
    if (w->error == ENOMEM)
        return qp_fail_memory(err, subject, w->n);
    if (w->error)
        return qp_fail_errno(err, w->error, subject, "cannot write");
    return QPLAN_OK;
}

void qp_writer_free(struct qp_writer *w)
{
    qp_free(w->data);
    w->data = NULL;
    w->n = w->cap = 0;
}
