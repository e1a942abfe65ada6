/*
 * rules.c - reads the rules: lines "GLOB SCHEME|keep [calibrate=METHOD]". Blanks part words, and a
 * word that begins with # and what is behind it is a comment.
 */
#include "choose.h"

#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>

struct rules {
    struct qp_chooser *chooser;
    struct qp_arena *arena;
    struct qplan_error *err;
    size_t line; /* the number of the line at hand */
};

enum { GLOB, ACTION, CALIBRATE, N_WORDS };

#define BLANKS "\t\r "

/* What is wrong with a word, as the library says of it elsewhere. */
static enum qplan_status refuse(const struct rules *r, const struct qplan_error *why)
{
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->chooser->rules_name, "line %zu: %s: %s", r->line,
                   why->subject, why->message);
}

static enum qplan_status expected(const struct rules *r, const char *what, const char *found)
{
    char quoted[QP_QUOTED];
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->chooser->rules_name,
                   "line %zu: expected %s, found %s", r->line, what,
                   found ? qp_quote(quoted, found, strlen(found)) : "the end of the line");
}

/* Parts a line into words, in place; a word behind the last is refused. */
static enum qplan_status split(const struct rules *r, char *line, char *found[N_WORDS])
{
    for (size_t i = 0;; i++) {
        line += strspn(line, BLANKS);
        if (*line == '\0' || *line == '#')
            return QPLAN_OK;
        char *end = line + strcspn(line, BLANKS);
        const bool is_last = *end == '\0';
        *end = '\0';
        if (i == N_WORDS)
            return expected(r, "the end of the line", line);
        found[i] = line;
        if (is_last)
            return QPLAN_OK;
        line = end + 1;
    }
}

static enum qplan_status read_action(const struct rules *r, const char *word,
                                     struct qp_choice *choice)
{
    struct qplan_scheme scheme;
    struct qplan_error why;
    if (!word)
        return expected(r, "a scheme or keep behind the pattern", NULL);
    if (strcmp(word, "keep") == 0)
        return QPLAN_OK;
    if (qplan_scheme_parse(&scheme, word, &why) != QPLAN_OK)
        return refuse(r, &why);
    choice->scheme = qp_arena_copy(r->arena, &scheme, 1, sizeof scheme);
    return choice->scheme ? QPLAN_OK : qp_fail_memory(r->err, "rules", sizeof scheme);
}

static enum qplan_status read_calibrate(const struct rules *r, const char *word,
                                        struct qp_choice *choice)
{
    static const char key[] = "calibrate=";
    char what[48];
    choice->calibrator = r->chooser->calibrator;
    if (!word)
        return QPLAN_OK;
    if (!choice->scheme)
        return expected(r, "the end of the line behind keep", word);
    if (strncmp(word, key, sizeof key - 1) != 0)
        return expected(r, "calibrate=METHOD", word);
    QP_TRY(qp_calibrator_make(word + sizeof key - 1, r->arena, &choice->calibrator, r->err));
    (void)snprintf(what, sizeof what, "line %zu: calibrate", r->line);
    return choice->calibrator ? QPLAN_OK
                              : qp_fail_name(r->err, QPLAN_ERR_INVALID, r->chooser->rules_name,
                                             what, word + sizeof key - 1, qplan_calibrator_name);
}

static enum qplan_status read_line(const struct rules *r, char *text)
{
    char *found[N_WORDS] = {NULL};
    struct qp_choice choice = {.kind = QP_LINE, .line = r->line};
    struct qplan_error why;
    QP_TRY(split(r, text, found));
    if (!found[GLOB])
        return QPLAN_OK;
    choice.glob = found[GLOB];
    QP_TRY(read_action(r, found[ACTION], &choice));
    QP_TRY(read_calibrate(r, found[CALIBRATE], &choice));
    const enum qplan_status status = qp_chooser_add(r->chooser, &choice, r->arena, &why);
    if (status == QPLAN_ERR_USAGE)
        return refuse(r, &why);
    return status == QPLAN_OK ? QPLAN_OK : qp_fail_memory(r->err, "rules", sizeof choice);
}

/* Rules are text for people, and a rule of a report: UTF-8 without controls but tabs. */
static enum qplan_status check_line(const struct rules *r, const char *text, size_t n, uint64_t at)
{
    uint32_t code;
    for (size_t i = 0, step; i < n; i += step) {
        step = qp_utf8_decode(text + i, n - i, &code);
        if (step == 0)
            return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->chooser->rules_name, at + i,
                              "line %zu: not UTF-8", r->line);
        if ((code < ' ' && code != '\t' && !(code == '\r' && i + 1 == n)) || code == 0x7f)
            return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->chooser->rules_name, at + i,
                              "line %zu: a control character", r->line);
    }
    return QPLAN_OK;
}

enum qplan_status qp_rules_read(struct qp_chooser *chooser,
                                const struct qplan_plan_options *options, struct qp_arena *arena,
                                struct qplan_error *err)
{
    const char *name = options->rules_name ? options->rules_name : "rules";
    struct rules r = {chooser, arena, err, 0};
    char shown[512];
    (void)qp_escape(shown, sizeof shown, name, strlen(name));
    chooser->rules_name = qp_arena_join(arena, shown, strlen(shown), "");
    if (!chooser->rules_name)
        return qp_fail_memory(err, "rules", strlen(shown));
    for (size_t at = 0, n; at < options->n_rules; at += n + 1) {
        const char *text = options->rules + at;
        const char *end = memchr(text, '\n', options->n_rules - at);
        n = end ? (size_t)(end - text) : options->n_rules - at;
        r.line++;
        QP_TRY(check_line(&r, text, n, at));
        char *line = qp_arena_join(arena, text, n, "");
        if (!line)
            return qp_fail_memory(err, "rules", n);
        QP_TRY(read_line(&r, line));
    }
    return QPLAN_OK;
}
