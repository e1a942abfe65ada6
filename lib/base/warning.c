/*
 * warning.c - a list of warnings.
 */
#include "warning.h"

#include "text.h"

#include <string.h>

enum qplan_status qp_warn(struct qp_warnings *warnings, struct qp_arena *arena, const char *code,
                          const char *subject, const char *message, struct qplan_error *err)
{
    struct qp_warning w = {.code = code};
    char shown[512];
    (void)qp_escape(shown, sizeof shown, subject, strlen(subject));
    char *start = qp_arena_join(arena, shown, strlen(shown), ": ");
    w.subject = qp_arena_join(arena, subject, strlen(subject), "");
    w.message = qp_arena_join(arena, message, strlen(message), "");
    w.text = start ? qp_arena_join(arena, start, strlen(start), message) : NULL;
    struct qp_warning *list = qp_arena_grow(arena, warnings->list, warnings->n, sizeof *list);
    if (!w.subject || !w.message || !w.text || !list)
        return qp_fail_memory(err, "warning", strlen(message));
    list[warnings->n++] = w;
    warnings->list = list;
    return QPLAN_OK;
}
