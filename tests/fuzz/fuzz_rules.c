/*
 * fuzz_rules.c - any text is rules or refused with a line; each line that is accepted has a pattern
 * that can be matched, and a scheme that has a text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/glob.h"
#include "lib/plan/choose.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* A line has a pattern that can be matched, and keeps or has a scheme whose text is a scheme. */
static void require_choice(const struct qp_choice *choice, const char *text, size_t n)
{
    struct qplan_scheme scheme;
    char canonical[QPLAN_SCHEME_TEXT];
    require(choice->kind == QP_LINE && choice->line > 0 && choice->calibrator);
    require(strcmp(choice->rule + strlen("rules:"), choice->glob) == 0);
    (void)qp_glob_match(choice->glob, text, n);
    if (!choice->scheme)
        return;
    qplan_scheme_format(choice->scheme, canonical);
    require(qplan_scheme_parse(&scheme, canonical, NULL) == QPLAN_OK);
    require(qp_scheme_equal(&scheme, choice->scheme));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char none[] = "";
    const char *text = size ? (const char *)data : none;
    const struct qplan_plan_options options = {.rules = text, .n_rules = size};
    struct qp_arena arena = {NULL};
    struct qp_chooser chooser;
    struct qplan_error err = {.status = QPLAN_OK};
    if (qp_chooser_make(&chooser, &options, qp_format_find("qplan"), NULL, &arena, &err) ==
        QPLAN_OK) {
        for (size_t i = 0; i < chooser.n_choices; i++)
            require_choice(&chooser.choices[i], text, size < 64 ? size : 64);
    } else {
        require(err.status == QPLAN_ERR_INVALID && strncmp(err.message, "line ", 5) == 0);
    }
    qp_arena_free(&arena);
    return 0;
}
