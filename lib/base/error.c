/*
 * error.c - filling struct qplan_error: one place that knows its layout. Never allocates.
 */
#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *qplan_status_name(enum qplan_status status)
{
    static const char *const names[] = {
        [QPLAN_OK] = "ok",
        [QPLAN_ERR_PROOF] = "proof",
        [QPLAN_ERR_USAGE] = "usage",
        [QPLAN_ERR_INVALID] = "invalid",
        [QPLAN_ERR_VALUE] = "value",
        [QPLAN_ERR_UNSUPPORTED] = "unsupported",
        [QPLAN_ERR_IO] = "io",
        [QPLAN_ERR_MEMORY] = "memory",
        [QPLAN_ERR_CANCELLED] = "cancelled",
        [QPLAN_ERR_DEVICE] = "device",
        [QPLAN_ERR_BUFFER] = "buffer",
        [QPLAN_ERR_WORKSPACE] = "workspace",
        [QPLAN_ERR_MISALIGNED] = "misaligned",
        [QPLAN_ERR_INTERNAL] = "internal",
    };
    if ((size_t)status >= sizeof names / sizeof names[0])
        return "unknown";
    return names[status];
}

static void describe(struct qplan_error *err, enum qplan_status status, const char *subject,
                     const char *fmt, va_list args)
{
    err->status = status;
    err->sys_errno = 0;
    err->offset = QPLAN_NO_OFFSET;
    err->hint[0] = '\0';
    err->advice = QPLAN_ADVICE_NONE;
    (void)snprintf(err->subject, sizeof err->subject, "%s", subject ? subject : "");
    (void)vsnprintf(err->message, sizeof err->message, fmt, args);
}

enum qplan_status qp_fail(struct qplan_error *err, enum qplan_status status, const char *subject,
                          const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        describe(err, status, subject, fmt, args);
        va_end(args);
    }
    return status;
}

enum qplan_status qp_fail_at(struct qplan_error *err, enum qplan_status status, const char *subject,
                             uint64_t offset, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        describe(err, status, subject, fmt, args);
        va_end(args);
        err->offset = offset;
        qp_fail_more(err, " (at byte %" PRIu64 ")", offset);
    }
    return status;
}

enum qplan_status qp_fail_errno(struct qplan_error *err, int errnum, const char *subject,
                                const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        describe(err, QPLAN_ERR_IO, subject, fmt, args);
        va_end(args);
        err->sys_errno = errnum;
        /* Never localised: messages are the same everywhere. */
        const char *text = strerrordesc_np(errnum);
        qp_fail_more(err, ": %s", text ? text : "unknown error");
    }
    return QPLAN_ERR_IO;
}

enum qplan_status qp_fail_memory(struct qplan_error *err, const char *what, uint64_t n_bytes)
{
    return qp_fail(err, QPLAN_ERR_MEMORY, what, "out of memory: %" PRIu64 " bytes were refused",
                   n_bytes);
}

enum qplan_status qp_check_cancel(const volatile sig_atomic_t *cancel, const char *subject,
                                  struct qplan_error *err)
{
    return cancel && *cancel ? qp_fail(err, QPLAN_ERR_CANCELLED, subject, "stopped on request")
                             : QPLAN_OK;
}

void qp_hint(struct qplan_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
}

void qp_advise(struct qplan_error *err, enum qplan_advice advice)
{
    if (err)
        err->advice = advice;
}

void qp_fail_more(struct qplan_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    size_t used = strlen(err->message);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->message + used, sizeof err->message - used, fmt, args);
    va_end(args);
}
