/*
 * warning.c - a list of warnings.
 */
#include "warning.h"

#include "text.h"

#include <string.h>

enum qplan_status qp_warn(struct qp_warnings *warnings, struct qp_arena *arena, const char *code,
                          const char *subject, const char *message, struct qplan_error *err)
{
    struct qp_warning *w = &warnings->list[warnings->n];
    char shown[512];
    (void)qp_escape(shown, sizeof shown, subject, strlen(subject));
    char *start = qp_arena_join(arena, shown, strlen(shown), ": ");
    w->code = code;
    w->subject = qp_arena_join(arena, subject, strlen(subject), "");
    w->message = qp_arena_join(arena, message, strlen(message), "");
    w->text = start ? qp_arena_join(arena, start, strlen(start), message) : NULL;
    if (!w->subject || !w->message || !w->text)
        return qp_fail_memory(err, "warning", strlen(message));
    warnings->n++;
    return QPLAN_OK;
}
