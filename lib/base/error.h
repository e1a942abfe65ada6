/*
 * error.h - filling struct qplan_error.
 *
 * A failing function returns what qp_fail returns, at once: so the first failure wins. Messages
 * follow one grammar, "<what is wrong>: expected <a>, found <b>", and the subject names the file
 * and the tensor. Text that comes from a file goes through qp_quote (text.h) first.
 */
#ifndef QP_BASE_ERROR_H
#define QP_BASE_ERROR_H

#include "lib/qplan.h"

#include <signal.h>

#if defined(__GNUC__)
#define QP_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#else
#define QP_PRINTF(fmt_arg, first_arg)
#endif

/* Describes a failure in err, which may be NULL, and returns status. */
enum qplan_status qp_fail(struct qplan_error *err, enum qplan_status status, const char *subject,
                          const char *fmt, ...) QP_PRINTF(4, 5);

/* Describes a fault at a known byte of the subject: " (at byte N)" is appended to the message. */
enum qplan_status qp_fail_at(struct qplan_error *err, enum qplan_status status, const char *subject,
                             uint64_t offset, const char *fmt, ...) QP_PRINTF(5, 6);

/* A failed system call: QPLAN_ERR_IO, the text followed by the description of errnum. */
enum qplan_status qp_fail_errno(struct qplan_error *err, int errnum, const char *subject,
                                const char *fmt, ...) QP_PRINTF(4, 5);

/* Out of memory while allocating n_bytes for the thing named. */
enum qplan_status qp_fail_memory(struct qplan_error *err, const char *what, uint64_t n_bytes);

/* CANCELLED if the caller has asked for a stop: if cancel, which may be NULL, is not 0 any more. */
enum qplan_status qp_check_cancel(const volatile sig_atomic_t *cancel, const char *subject,
                                  struct qplan_error *err);

/*
 * Adds what the caller can set or call. The words are those of the caller: nothing in the library
 * names a flag or a command of a program. Does nothing when err is NULL.
 */
void qp_advise(struct qplan_error *err, enum qplan_advice advice);

/* Adds what any user can do, in words. Does nothing when err is NULL. */
void qp_hint(struct qplan_error *err, const char *fmt, ...) QP_PRINTF(2, 3);

/* Continues the message of a failure, for lists. Text that does not fit is cut. */
void qp_fail_more(struct qplan_error *err, const char *fmt, ...) QP_PRINTF(2, 3);

#define QP_TRY(call)                                                                               \
    do {                                                                                           \
        enum qplan_status qp_try_status = (call);                                                  \
        if (qp_try_status != QPLAN_OK)                                                             \
            return qp_try_status;                                                                  \
    } while (0)

#endif
