/*
 * warning.h - what does not stop a run but should be known. Plans and reports have a few.
 */
#ifndef QP_WARNING_H
#define QP_WARNING_H

#include "arena.h"
#include "error.h"

struct qp_warning {
    const char *code; /* "nothing-quantized", for machines; NULL = of this run only, not in JSON */
    const char *subject, *message;
    const char *text; /* for people: subject: message, escaped */
};

struct qp_warnings {
    struct qp_warning *list; /* in the arena */
    size_t n;
};

/* Adds a warning. The list and copies of all strings are in the arena, always the same one. */
enum qplan_status qp_warn(struct qp_warnings *warnings, struct qp_arena *arena, const char *code,
                          const char *subject, const char *message, struct qplan_error *err);

#endif
